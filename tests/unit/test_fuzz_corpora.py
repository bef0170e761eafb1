"""The corpora of the fuzzers, without a fuzzer: whatever was found once stays mended. And what the fuzzers rely on."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import fuzz
import inputs
import targets

ROOT = Path(__file__).parents[2]
PYTHON = sorted(targets.HOMES)


@pytest.mark.parametrize("name", PYTHON)
def test_nothing_is_found_in_the_corpus(name: str) -> None:
    found = targets.load(name)
    seeds = inputs.seeds(name)
    assert seeds and targets.HOMES.keys() >= {found.name}
    for seed in (
        *seeds,
        inputs.Seed("nothing", b""),
        inputs.Seed("zeros", bytes(64)),
        inputs.Seed("ones", b"\xff" * 64),
    ):
        found.function(seed.data)


@pytest.mark.parametrize("name", [*fuzz.rust_names(), *PYTHON])
def test_each_input_is_explained_and_there_once(name: str) -> None:
    seeds = inputs.seeds(name)
    assert seeds and all(seed.what and len(seed.data) <= 4096 for seed in seeds)
    assert len({seed.data for seed in seeds}) == len(seeds) == len({seed.what for seed in seeds})


def test_every_corpus_is_of_a_target_and_every_target_of_the_data_plane_is_built() -> None:
    names = {*fuzz.rust_names(), *PYTHON}
    assert {path.stem for path in inputs.CORPUS.glob("*.toml")} == names
    crate = tomllib.loads((fuzz.CRATE / "Cargo.toml").read_text())
    assert sorted(each["name"] for each in crate["bin"]) == fuzz.rust_names()


@pytest.mark.parametrize("name", PYTHON)
def test_a_target_is_declared_where_its_fuzzer_looks_for_it(name: str) -> None:
    found = targets.load(name)
    assert fuzz._longest(name) == found.longest
    assert re.search(rf'@target\("{name}", "', (fuzz.HERE / f"{targets.HOMES[name]}.py").read_text())
    for package in found.watched:
        path = ROOT / package.removeprefix("hyroads.").replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), package


def test_the_lock_of_the_fuzzers_has_the_versions_of_the_data_plane() -> None:
    def versions(path: Path) -> dict[str, str]:
        return {each["name"]: each["version"] for each in tomllib.loads(path.read_text())["package"]}

    own, theirs = versions(fuzz.CRATE / "Cargo.lock"), versions(ROOT / "dataplane" / "Cargo.lock")
    assert own | theirs == own


def found_by(function: Callable[[bytes], None], data: bytes) -> bool:
    try:
        function(data)
    except Exception:  # noqa: BLE001 - that is what a fuzzer looks for
        return True
    return False


def test_a_defect_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets whose decoder lets through what it should refuse, or fails otherwise than it says, find that."""
    found = targets.load("openflow-parsers")
    from hyroads.controller.ofp import guard

    # A description that ends in its middle: the guard refuses it, both frameworks fail with it.
    cut = bytes.fromhex("0413 0018 0000 0007 0000 0000 0000 0000 6162 6364 6566 6768")
    assert not found_by(found.function, cut)
    monkeypatch.setattr(guard, "check", lambda data: None)
    assert found_by(found.function, cut)


@pytest.mark.skipif(shutil.which("ovs-ofctl") is None, reason="no Open vSwitch")
def test_open_vswitch_reads_what_the_slicer_sends_on() -> None:
    sent = fuzz.sent_on(seed.data for seed in inputs.seeds("slicer-guests"))
    assert len(sent) > 15 and len({message[1] for message in sent}) > 4
    assert fuzz.unread(sent) == []
    # It would be seen: a flow-mod whose instruction is none.
    wrong = next(message for message in sent if message[1] == 14 and len(message) > 100)
    at = len(wrong) - 8
    assert fuzz.unread([sent[0], wrong[:at] + b"\x00\x63" + wrong[at + 2 :]])
