"""The project's packages for a lab: those of a folder, or built from the checkout with scripts/packages.py."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hyroads.mininet.programs import EmulationError

from .root import last_words

NAMES = ("hyroads", "hyroads-edge", "hyroads-ap", "hyroads-box")
CHECKOUT = Path(__file__).resolve().parents[2]
_BUILDER = CHECKOUT / "scripts" / "packages.py"
# What the packages are made of: folders with their kinds of files, and single files.
_FOLDERS = ("controller", "slices", "plugins", "rest", "mininet", "dashboard", "deploy", "mibs", "slices/examples")
_FILES = ("scripts/packages.py", "setup.py", "pyproject.toml", "requirements.txt", "requirements-dev.txt")
_PROGRAMS = ("hyroads-edge", "hyroads-medium", "hyroads-client", "libhyroads_dataplane.so")
_MOST_SETS = 2
_BUILD_WITHIN_S = 900.0


def files_of(folder: Path, architecture: str) -> dict[str, Path]:
    """Package -> its newest file for this architecture in ``folder``; EmulationError if one is missing."""
    found = {}
    for name in NAMES:
        fitting = [file for end in (architecture, "all") for file in folder.glob(f"{name}_*_{end}.deb")]
        if not fitting:
            raise EmulationError(f"--packages {folder}: no {name}_*_{architecture}.deb")
        found[name] = max(fitting, key=lambda file: file.stat().st_mtime)
    return found


def contents_key(files: Iterable[tuple[str, bytes]]) -> str:
    """16 hexadecimal digits that depend on the names and contents of files, in any order."""
    digest = hashlib.sha256()
    for name, data in sorted(files):
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:16]


def built_packages(cache: Path, say: Callable[[str], None]) -> Path:
    """A folder with the packages of this checkout, from the cache or built; EmulationError where there is no checkout.

    Packages in the cache are used again as long as the sources have not changed. The two newest sets are kept.
    """
    if not _BUILDER.is_file():
        raise EmulationError("no checkout to build packages from: name the folder that has them with --packages")
    folder = cache / "packages" / contents_key(_sources())
    if folder.is_dir():
        say(f"packages {folder.name}: from the cache")
        return folder
    # Wheels that were built of sources stay here, and are used again.
    work = cache / "build"
    work.mkdir(parents=True, exist_ok=True)
    with (cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            say(f"packages {folder.name}: scripts/packages.py builds them; this takes some minutes")
            _build(work)
            _move(work, folder)
    return folder


def _build(work: Path) -> None:
    """Build the packages in ``work``; EmulationError with the last lines of what the builder printed."""
    tools = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, str(_BUILDER), "--formats", "deb"]
    done = subprocess.run(
        [*command, "--out", str(work), *NAMES],
        capture_output=True, text=True, timeout=_BUILD_WITHIN_S, check=False, env={**os.environ, "PATH": tools},
    )  # fmt: skip
    if done.returncode:
        raise EmulationError(f"scripts/packages.py: {last_words((done.stdout + done.stderr).splitlines())}")


def _move(work: Path, folder: Path) -> None:
    """Take the packages out of ``work`` as the newest set, and remove sets that are too old."""
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for file in work.glob("*.deb"):
        file.rename(new / file.name)
    new.rename(folder)
    shutil.rmtree(work / "stage", ignore_errors=True)
    sets = sorted((each for each in folder.parent.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    for old in sets[:-_MOST_SETS]:
        shutil.rmtree(old, ignore_errors=True)


def _sources() -> Iterator[tuple[str, bytes]]:
    for name in _FOLDERS:
        for path in (CHECKOUT / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(CHECKOUT)), path.read_bytes()
    release = CHECKOUT / "dataplane" / "target" / "release"
    for path in [*(CHECKOUT / name for name in _FILES), *(release / name for name in _PROGRAMS)]:
        if path.is_file():
            yield str(path.relative_to(CHECKOUT)), path.read_bytes()
