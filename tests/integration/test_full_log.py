"""A log that cannot be written, on a full disk say, ends nobody: what cannot be said is not said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hyroads.mininet.programs import find_program

FULL = Path("/dev/full")


@pytest.mark.parametrize("name", ["hyroads-edge", "hyroads-medium", "hyroads-client"])
def test_our_programs_end_as_they_would_when_their_log_is_full(name: str) -> None:
    """A panic is status 101."""
    command = [find_program(name), "--no-such-option"]
    with FULL.open("wb") as full:
        assert subprocess.run(command, stderr=full, check=False).returncode == 2
    heard = subprocess.run(command, capture_output=True, text=True, check=False)
    assert heard.returncode == 2 and heard.stderr.startswith(name)


def test_complaints_of_an_access_point_end_nothing() -> None:
    program = "from hyroads.controller.access_point.agent import Complaints; Complaints('x')('y'); print('on')"
    with FULL.open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert (done.returncode, done.stdout) == (0, "on\n")
