"""Scenario tests name their networks by ``network_name`` alone, so no two workers use one name at a time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from network_names import network_name

ROOT = Path(__file__).parents[1]
# In code: a string that is a name, or begins with one.
LITERAL = re.compile(r"""(?:["']|hr-|/run/hyroads/|--name )t-[a-z{]""")
RADIOS = '"t-radio{number}"'


def test_workers_have_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        names.add(network_name("mptcp"))
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    assert len(names | {network_name("mptcp")}) == 3


@pytest.mark.parametrize("path", sorted((ROOT / "scenario").glob("*.py")), ids=lambda path: path.stem)
def test_no_scenario_writes_a_name_itself(path: Path) -> None:
    # Interfaces of radios are no networks, nor are files.
    lines = [line for line in path.read_text().splitlines() if RADIOS not in line and "t-gate.yaml" not in line]
    assert [line for line in lines if LITERAL.search(line)] == []
