"""The plain lane (mininet/reference.py) as a process, on real veth pairs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from controller_process import eventually

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
FORWARD = """
from hyroads.mininet import reference
reference._veth("r0", "r1")
reference._veth("r2", "r3")
outlet = reference._raw("r0")
reference._forward(reference.Path({path!r}), shaped=False)
"""
SEND = "from hyroads.mininet import reference; reference._raw('r0').send(reference._HEADER + bytes(1000))"


def packet_sockets(pid: int) -> int:
    return len(Path(f"/proc/{pid}/net/packet").read_text().splitlines()) - 1


def test_the_lane_begins_with_its_first_frame(tmp_path: Path) -> None:
    """A sender that starts late on a busy machine is no shortfall of the lane."""
    path = tmp_path / "reference.txt"
    words = ["unshare", "--net", sys.executable, "-c", FORWARD.format(path=str(path))]
    with subprocess.Popen(words) as lane:
        try:
            eventually(lambda: packet_sockets(lane.pid) == 3 and path.exists(), 20.0)
            sent_s = time.monotonic()
            subprocess.run(["nsenter", f"--net=/proc/{lane.pid}/ns/net", sys.executable, "-c", SEND], check=True)
            eventually(lambda: path.read_text().count("\n") > 1, 10.0)
            assert float(path.read_text().split()[0]) > sent_s
        finally:
            lane.kill()
