"""All that is pinned has hashes, and is read and written as pip reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import pins

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", pins.FILES)
def test_every_package_has_a_version_and_hashes(name: str) -> None:
    comment, found = pins.read(ROOT / name)
    assert comment and len(found) > (1 if "fuzz" in name else 50) and len({pin.key for pin in found}) == len(found)
    assert [pin.key for pin in found if not pin.hashes] == []
    assert all(len(set(pin.hashes)) == len(pin.hashes) for pin in found)
    # Nothing is lost between reading and writing.
    assert "\n".join([*comment, *(pin.text() for pin in found), ""]) == (ROOT / name).read_text()


def test_packages_are_selected_by_any_spelling_and_once() -> None:
    one, other = pins.Pin("Flask-Smorest", "1", ("a" * 64,)), pins.Pin("pbr", "2", ("b" * 64,))
    assert list(pins.select([one, other, other], only=("flask_smorest",))) == [one]
    assert list(pins.select([one, other, other], without=("flask.smorest",))) == [other]
    with pytest.raises(pins.PinsError, match="nothing is not pinned"):
        list(pins.select([one], only=("nothing",)))


def test_what_is_no_pin_is_named(tmp_path: Path) -> None:
    for text in ("flask>=3\n", "flask==3 ; python_version > '3'\n", "--index-url x\n", "    --hash=md5:abc\n"):
        (tmp_path / "requirements.txt").write_text(f"# top\n{text}")
        with pytest.raises(pins.PinsError, match="line 2"):
            pins.read(tmp_path / "requirements.txt")


def tag(interpreter: str, abi: str, platform: str) -> SimpleNamespace:
    return SimpleNamespace(interpreter=interpreter, abi=abi, platform=platform)


def test_files_for_other_machines_are_left_out() -> None:
    fits = pins._fits
    assert fits(tag("py3", "none", "any"), 11, "x86_64")
    assert fits(tag("cp311", "cp311", "manylinux_2_28_x86_64"), 11, "x86_64")
    assert fits(tag("cp39", "abi3", "manylinux2014_aarch64"), 13, "aarch64")
    assert not fits(tag("cp312", "abi3", "manylinux2014_x86_64"), 11, "x86_64")
    assert not fits(tag("cp313", "cp313t", "manylinux2014_x86_64"), 13, "x86_64")
    assert not fits(tag("cp311", "cp311", "musllinux_1_2_x86_64"), 11, "x86_64")
    assert not fits(tag("cp311", "cp311", "manylinux2014_x86_64"), 11, "aarch64")
    assert not fits(tag("cp311", "cp311", "win_amd64"), 11, "x86_64")


def test_pip_takes_what_is_printed_and_no_file_with_another_hash(tmp_path: Path) -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "scripts/pins.py", ROOT / "requirements.txt", "--only", "six,PyYAML"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert printed.count("==") == 2 and printed.count("--hash") > 2
    # A wheel of this name whose hash is none of those.
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    version = printed.partition("six==")[2].split()[0]
    (wheels / f"six-{version}-py2.py3-none-any.whl").write_bytes(b"another one")
    (tmp_path / "r.txt").write_text(printed[printed.index("six==") :].split("\nPyYAML")[0])
    options = ("--no-index", "--find-links", wheels, "--no-deps", "--target", tmp_path / "t", "--require-hashes")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *options, "-r", tmp_path / "r.txt"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode and "DO NOT MATCH THE HASHES" in done.stderr, done.stderr
