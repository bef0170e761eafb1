"""The proxy's engine id and starts (RFC 3414): never a start counted twice under one id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyroads.slices.snmpvisor.server import _engine


def test_starts_are_counted_also_over_a_file_of_an_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text(json.dumps({"engine": "80001f8805" + "ab" * 8, "boots": 41}))
    engine, boots = _engine(path)
    assert (engine.hex(), boots) == ("80001f8805" + "ab" * 8, 42)
    assert [_engine(path) for _ in range(3)] == [(engine, 43), (engine, 44), (engine, 45)]


BROKEN = ["", "{}", "null", "\0" * 40, '{"engine": "", "boots": 1}', '{"engine": "00112233445566", "boots": -1}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_means_a_new_engine(tmp_path: Path, text: str) -> None:
    path = tmp_path / "engine.json"
    old = [_engine(path) for _ in range(3)]
    path.write_text(text)
    engine, boots = _engine(path)
    assert boots == 1 and engine not in {each for each, _ in old}
    assert _engine(path) == (engine, 2)
