"""The source distribution: whole, and its programs are built from it. The Containerfile, as far as it can be read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("hyroads-edge", "hyroads-medium", "hyroads-client", "hyroads-modem", "libhyroads_dataplane.so")


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CARGO_TARGET_DIR")}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env={**env, **environment}, text=True, capture_output=True, timeout=580)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the source distribution holds."""
    out = tmp_path_factory.mktemp("source")
    done = run(sys.executable, "setup.py", "-q", "sdist", "-d", out, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (archive,) = out.glob("hyroads-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(out)
    (folder,) = (each for each in out.iterdir() if each.is_dir())
    return folder


def tracked(*folders: str) -> set[str]:
    return set(run("git", "ls-files", *folders, cwd=ROOT).stdout.split())


def test_everything_is_in_it_that_something_is_built_of(unpacked: Path) -> None:
    held = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    folders = ("controller", "rest", "plugins", "slices", "mininet", "dataplane", "mibs", "docs", "deploy", "scripts")
    assert tracked(*folders) <= held
    assert {"LICENSE", "CHANGELOG.md", "requirements.txt", "Containerfile", "mkdocs.yml"} <= held
    assert not any(re.search(r"(^|/)(target|build|\.venv|__pycache__)/", name) for name in held)


def wheel_of(folder: Path, out: Path, **environment: str) -> set[str]:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q")
    done = run(*pip, "--no-deps", "--no-build-isolation", "-w", out, folder, cwd=out, **environment)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("hyroads-*.whl")
    return {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if "/_native/" in name}


def test_a_wheel_of_it_calls_the_compiler_for_the_programs(unpacked: Path, tmp_path: Path) -> None:
    # A stand-in for the compiler, which takes a minute: test_the_programs_are_really_built is made nightly.
    compiler = tmp_path / "bin" / "cargo"
    compiler.parent.mkdir()
    words = " ".join(PROGRAMS)
    compiler.write_text(
        "#!/bin/sh\n[ \"$*\" = 'build --release --locked' ] && [ -f Cargo.toml ] || exit 1\n"
        'mkdir -p "$CARGO_TARGET_DIR/release" && cd "$CARGO_TARGET_DIR/release" || exit 1\n'
        f'for each in {words}; do echo > "$each"; done\n'
    )
    compiler.chmod(0o755)
    path = f"{compiler.parent}:{os.environ['PATH']}"
    built = wheel_of(unpacked, tmp_path, PATH=path, CARGO_TARGET_DIR=str(tmp_path / "target"))
    assert built == set(PROGRAMS)


@pytest.mark.nightly
def test_the_programs_are_really_built(unpacked: Path, tmp_path: Path) -> None:
    assert wheel_of(unpacked, tmp_path, CARGO_TARGET_DIR=str(tmp_path / "target")) == set(PROGRAMS)
    done = run(tmp_path / "target" / "release" / "hyroads-edge", "--version", cwd=tmp_path)
    assert done.stdout.startswith("hyroads-edge ")


INSTRUCTION = re.compile(r"(FROM|RUN|COPY|WORKDIR|ENV|USER|VOLUME|EXPOSE|STOPSIGNAL|ENTRYPOINT|CMD) \S")


def test_the_containerfile_is_sound() -> None:
    text = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(INSTRUCTION.match(line) for line in lines), lines
    stages = [line for line in lines if line.startswith("FROM")]
    assert all(re.search(r":[\w.-]+( AS \w+)?$", line) for line in stages), "an image without a version"
    last = lines[lines.index(stages[-1]) :]
    assert any(re.fullmatch(r"USER (?!root)\w+", line) for line in last), "it would run as root"
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            assert all((ROOT / each).exists() for each in line.split()[1:-1]), line
        if line.startswith("RUN"):
            assert subprocess.run(["sh", "-n", "-c", line.removeprefix("RUN ")]).returncode == 0
            assert "apt-get install" not in line or "rm -rf /var/lib/apt/lists/*" in line
    assert "curl" not in text and "http" not in text, "only packages are installed"
