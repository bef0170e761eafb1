"""Settings and the state file of the slicer."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.slices.core.allocation import Allocation, Block, allocate
from hyroads.slices.core.model import PRODUCTION
from hyroads.slices.server import state
from hyroads.slices.server.settings import OPENFLOW_PORT, REST_PORT, load, parse_settings

TOKENS = {"api_tokens": {"ops": {"token": "a token of the operator"}}}


def test_defaults_are_safe() -> None:
    found = parse_settings({"slices": []}, "here/slicer.yaml")
    assert (found.openflow, found.tls) == (Endpoint("127.0.0.1", OPENFLOW_PORT), None)
    assert found.rest is None and found.owner_controllers == ()
    assert list(found.model.slices) == [PRODUCTION] and found.state_file is None


def test_slices_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "slices.yaml").write_text("slices:\n  - {name: red, flowspace: [{ports: [p1]}]}\n")
    (tmp_path / "slicer.yaml").write_text("slices: slices.yaml\nstate_file: state\ntables: 16\nmetadata_bits: 48\n")
    found = load(str(tmp_path / "slicer.yaml"))
    assert set(found.model.slices) == {"red", PRODUCTION} and found.state_file == str(tmp_path / "state")
    assert found.layout.tables == 16 and found.layout.slice_shift == 32


@pytest.mark.parametrize(
    ("document", "place", "words"),
    [
        ({}, "slices", "is missing"),
        ({"slices": [], "port": 1}, "port", "unknown key"),
        ({"slices": [], "listen": {"openflow": {"port": 0}}}, "listen.openflow.port", "from 1 to 65535"),
        ({"slices": [], "listen": {"openflow": {"host": "0.0.0.0"}}}, "listen.openflow", "needs tls"),
        ({"slices": [], "listen": {"openflow": {"host": "nowhere"}}}, "listen.openflow.host", "an IP address"),
        ({"slices": [], "tls": {"key": "k"}}, "tls.certificate", "is missing"),
        ({"slices": [], "listen": {"rest": {"host": "192.0.2.1"}}}, "listen.rest", "api_tokens and rest_tls"),
        ({"slices": [], "listen": {"rest": {"host": "::", "port": 1}}, **TOKENS}, "listen.rest", "and rest_tls"),
        (
            {"slices": [], "api_tokens": {"a": {"token": "t" * 16, "role": "slice-owner"}}},
            "api_tokens.a.role",
            "viewer",
        ),
        ({"slices": [], "owner_controllers": ["10.0.0.1/8"]}, "owner_controllers[0]", "a network like"),
        ({"slices": [], "tables": 255}, "tables", "from 2 to 254"),
        ({"slices": [], "state_file": 3}, "state_file", "a file name"),
        ({"slices": [{"name": "red", "flowspace": [{"priority": 0}]}]}, "slices[0].flowspace[0].priority", "from 1"),
        ({"slices": [{"name": "a", "flowspace": [{}]}, {"name": "b", "flowspace": [{}]}]}, "slices", "every packet"),
    ],
)
def test_errors_name_the_place(document: object, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_settings(document, "slicer.yaml")
    assert error.value.place == place and words in error.value.problem


def test_rest_beyond_loopback_with_tokens_and_tls() -> None:
    files = {"rest_tls": {"key": "k", "certificate": "c"}}
    document = {"slices": [], "listen": {"rest": {"host": "0.0.0.0"}}, "owner_controllers": ["192.0.2.0/24"]}
    found = parse_settings({**document, **files, **TOKENS}, "slicer.yaml")
    assert found.rest == Endpoint("0.0.0.0", REST_PORT) and str(found.owner_controllers[0]) == "192.0.2.0/24"


def test_the_state_comes_back_and_is_private(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    blocks = MappingProxyType({"red": Block(2, 9, 8), PRODUCTION: Block(1, 1, 8)})
    allocation = Allocation({PRODUCTION: 1, "red": 2}, {7: blocks})
    saved = state.Saved(b"k" * 32, allocation, {7: {"red": {"groups": {5: 1}}}}, "hash", {"slices": []})
    file, _, _ = state.read(path)
    file.save(state.encode(saved))
    assert Path(path).stat().st_mode & 0o777 == 0o600
    _, found, broken = state.read(path)
    assert found == saved and not broken
    model = parse_settings({"slices": [{"name": "red", "flowspace": [{}]}]}, "x").model
    assert allocate(model, (7,), found.allocation).blocks[7]["red"] == Block(2, 9, 8)


WHOLE = {"key": "00" * 32, "numbers": {"red": 3}, "blocks": {}, "ids": {}, "file_hash": "", "slices": None}


WRONG: list[dict[str, Any]] = [{"numbers": {"a": "b"}}, {"key": "x"}, {"ids": {"0x1": [3]}}]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"version": 2}', '{"version": 7}', "\0" * 99,
     *(json.dumps({"version": 1, **WHOLE, **wrong}) for wrong in WRONG)],
)  # fmt: skip
def test_from_a_damaged_state_file_it_starts_with_the_older_copy_and_then_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state"
    # As it was written before there were checksums.
    path.write_text(json.dumps({"version": 1, **WHOLE}))
    path.chmod(0o600)
    file, found, broken = state.read(str(path))
    assert found.allocation.numbers == {"red": 3} and not broken
    file.save(state.encode(found))
    for expected in ({"red": 3}, {}):
        path.write_text(text)
        path.chmod(0o600)
        _, found, broken = state.read(str(path))
        assert found.allocation.numbers == expected and broken
        aside = path.with_name(broken[0].aside or "")
        assert aside.read_text() == text and not path.exists()
        path.with_name("state.1").unlink(missing_ok=True)


def test_a_public_state_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="0600"):
        state.read(str(path))
    assert state.read(str(tmp_path / "none"))[1].slices is None
