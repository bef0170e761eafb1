"""The wheel holds every part under the right name, carries the compiled programs, and works from any directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
TRIANGLE = ROOT / "mininet" / "networks" / "triangle.yaml"


def run(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(c) for c in command], cwd=cwd, env={**os.environ, **env}, text=True, capture_output=True, timeout=180
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    result = run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", out, ROOT, cwd=out)
    assert result.returncode == 0, result.stderr
    (built,) = out.glob("hyroads-*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the wheel; the dependencies come from the environment of the tests."""
    target = tmp_path_factory.mktemp("site")
    result = run(*PIP, "install", "--no-deps", "-q", "--target", target, wheel, cwd=target)
    assert result.returncode == 0, result.stderr
    return target


def test_every_part_and_no_stray_module(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    python = {name for name in names if name.endswith(".py")}
    tracked = run("git", "ls-files", "controller/*.py", "rest/*.py", "mininet/*.py", cwd=ROOT).stdout.split()
    assert {f"hyroads/{name}" for name in tracked} <= python, "a module is missing in the wheel"
    assert "hyroads/__init__.py" not in names, "hyroads is a namespace package"
    assert "hyroads/mininet/__init__.py" not in names, "it would hide the real Mininet in a checkout"
    assert all(name.startswith(("hyroads/", "hyroads-")) for name in names), "a part under its bare name"
    assert "hyroads/mininet/networks/triangle.yaml" in names


def test_compiled_programs_are_carried_and_can_be_run(installed: Path) -> None:
    native = installed / "hyroads" / "controller" / "_native"
    for name in ("hyroads-edge", "hyroads-medium", "hyroads-client", "hyroads-modem", "libhyroads_dataplane.so"):
        assert (native / name).exists()
    for name in ("hyroads-edge", "hyroads-medium", "hyroads-client", "hyroads-modem"):
        result = run(native / name, "--version", cwd=installed)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(name)


def test_it_is_named_after_the_oldest_glibc_and_is_for_every_python(wheel: Path, tmp_path: Path) -> None:
    command = (sys.executable, ROOT / "scripts/packages.py", "wheel", "--wheel", wheel, "--out", tmp_path)
    said = run(*command, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    built = Path(said.stdout.strip())
    assert re.fullmatch(r"hyroads-[0-9.]+-py3-none-manylinux_2_\d+_\w+\.whl", built.name)
    # Nothing was brought that is the machine's.
    assert {name for name in zipfile.ZipFile(built).namelist() if ".libs/" in name} == set()


@pytest.mark.parametrize("where", ["/", "the repository", "an empty folder"])
def test_the_command_works_from_any_directory(installed: Path, tmp_path: Path, where: str) -> None:
    cwd = {"/": Path("/"), "the repository": ROOT, "an empty folder": tmp_path}[where]
    result = run(
        *(sys.executable, "-P", "-m", "hyroads.controller.cli", "plan", TRIANGLE, "--from", "a", "--to", "c", "--json"),
        cwd=cwd,
        PYTHONPATH=str(installed),
    )
    assert result.returncode == 0, result.stderr
    assert '"total_mbps": 16.66' in result.stdout


def test_the_kernel_is_found_in_an_installed_wheel(installed: Path, tmp_path: Path) -> None:
    code = "from hyroads.controller.core import planner; print(planner.__file__, planner.engine())"
    result = run(sys.executable, "-P", "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert result.returncode == 0, result.stderr
    path, implementation = result.stdout.split()
    assert path.startswith(str(installed))
    assert implementation == "native"
