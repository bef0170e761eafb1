"""The Python packages that are pinned, with the hashes of the files that may be installed.

``requirements.txt``, ``requirements-dev.txt`` and ``requirements-fuzz.txt`` name each package once: ``name==version``,
then a line for each file.
Whoever changes a version makes the hashes anew (``make hashes``); that asks the registry through ``uv``, the only step
that needs it. Files are wheels for Linux with glibc, the processors and the versions of Python below, and for every
machine; of a package that has none for one of these, its source.

    scripts/pins.py --remake                      the hashes of all three anew
    scripts/pins.py FILE... [--only A,B] [--without A,B] [--no-hashes]
                                                  prints their packages, for pip install -r; needs no package itself
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
FILES = ("requirements.txt", "requirements-dev.txt", "requirements-fuzz.txt")
PYTHONS = (11, 12, 13)
"""Minor versions of Python 3."""
PROCESSORS = ("x86_64", "aarch64")
OLDEST = "3.11.2"
"""The oldest Python that packages must install in: that of Debian 12."""
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s\\;]+)\s*\\?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\s*\\?")


class PinsError(Exception):
    """A file of pins is not as it should be, or the registry does not have what it names."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A package: its name as written, its version, and the SHA-256 of each file that may be installed."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name in its normal form (PEP 503)."""
        return normal(self.name)

    def text(self, hashes: bool = True) -> str:
        """As a file of requirements has it."""
        lines = [f"{self.name}=={self.version}", *(f"    --hash=sha256:{each}" for each in self.hashes if hashes)]
        return " \\\n".join(lines)


def normal(name: str) -> str:
    """The normal form of a package's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(path: Path) -> tuple[list[str], list[Pin]]:
    """The comment at the top, and the packages of a file in its order. :class:`PinsError` for what is neither."""
    comment: list[str] = []
    pins: list[Pin] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("#"):
            comment.append(line)
        elif found := _PIN.fullmatch(line):
            pins.append(Pin(found[1], found[2]))
        elif (found := _HASH.fullmatch(line.strip())) and pins:
            pins[-1] = replace(pins[-1], hashes=(*pins[-1].hashes, found[1]))
        elif line.strip():
            raise PinsError(f"{path.name}, line {number}: expected name==version or --hash=sha256:..., got {line!r}")
    return comment, pins


def select(pins: Iterable[Pin], only: Collection[str] = (), without: Collection[str] = ()) -> Iterator[Pin]:
    """Each package once, ``only`` those named, or all but some; :class:`PinsError` if one of these is not there."""
    found = {pin.key: pin for pin in pins}
    for name in (*only, *without):
        if normal(name) not in found:
            raise PinsError(f"{name} is not pinned")
    left_out = {normal(name) for name in without}
    wanted = {normal(name) for name in only} or found.keys()
    yield from (pin for key, pin in found.items() if key in wanted and key not in left_out)


# -- remaking ---------------------------------------------------------------------------------------------------------


def remake(path: Path) -> int:
    """Write the hashes of a file's packages anew; how many there are."""
    comment, pins = read(path)
    locked = {normal(package["name"]): package for package in _locked(pins)}
    made = [replace(pin, hashes=tuple(sorted(_hashes(locked[pin.key])))) for pin in pins]
    path.write_text("\n".join([*comment, *(pin.text() for pin in made), ""]), encoding="utf-8")
    return sum(len(pin.hashes) for pin in made)


def _locked(pins: Iterable[Pin]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        wanted, made = Path(folder, "wanted.in"), Path(folder, "pylock.toml")
        wanted.write_text("".join(f"{pin.text(hashes=False)}\n" for pin in pins), encoding="utf-8")
        command = ["uv", "pip", "compile", "--quiet", "--no-deps", "--universal", "--python-version", OLDEST]
        try:
            done = subprocess.run(
                [*command, "--format", "pylock.toml", "--output-file", made, wanted],
                check=False,
                capture_output=True,
                text=True,
            )
        except FileNotFoundError:
            raise PinsError("uv is missing: pipx install uv") from None
        if done.returncode:
            raise PinsError(f"uv: {done.stderr.strip()[-500:]}")
        packages: list[dict[str, Any]] = tomllib.loads(made.read_text(encoding="utf-8"))["packages"]
        return packages


def _hashes(package: dict[str, Any]) -> set[str]:
    """Of the wheels that fit a machine of ours; of the source too if there is one that none fits."""
    from packaging.utils import parse_wheel_filename

    found: set[str] = set()
    machines = {(python, processor) for python in PYTHONS for processor in PROCESSORS}
    lacking = set(machines)
    for wheel in package.get("wheels", ()):
        tags = parse_wheel_filename(unquote(wheel["url"].rsplit("/", 1)[1]))[3]
        fitting = {machine for machine in machines if any(_fits(tag, *machine) for tag in tags)}
        if fitting:
            found.add(wheel["hashes"]["sha256"])
            lacking -= fitting
    if lacking:
        if "sdist" not in package:
            raise PinsError(f"{package['name']} has no file for {sorted(lacking)}")
        found.add(package["sdist"]["hashes"]["sha256"])
    return found


def _fits(tag: Any, python: int, processor: str) -> bool:
    """Whether a wheel with this tag (PEP 425) is for this minor version of Python 3 and this processor."""
    on_linux = re.match(r"(many)?linux", tag.platform) and tag.platform.endswith(processor)
    if tag.platform != "any" and not on_linux:
        return False
    if tag.interpreter in ("py3", f"py3{python}"):
        return tag.abi in ("none", "abi3")
    of = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    if of is None:
        return False
    if tag.abi == "abi3":
        return int(of[1]) <= python
    return int(of[1]) == python and tag.abi in (f"cp3{python}", "none")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--remake", action="store_true", help="write the hashes of all three anew")
    parser.add_argument("--only", default="", help="names, with commas between them")
    parser.add_argument("--without", default="", help="names, with commas between them")
    parser.add_argument("--no-hashes", action="store_true", help="print names and versions alone")
    arguments = parser.parse_args()
    try:
        if arguments.remake:
            for name in FILES:
                print(f"{name}: {remake(ROOT / name)} files")
            return 0
        pins = [pin for path in arguments.files for pin in read(path)[1]]
        names = ([each for each in text.split(",") if each] for text in (arguments.only, arguments.without))
        for pin in select(pins, *names):
            print(pin.text(hashes=not arguments.no_hashes))
    except (PinsError, OSError) as error:
        print(f"pins: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
