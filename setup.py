"""Maps the repository's top-level folders into the package ``hyroads``.

There is no ``hyroads/__init__.py``: ``hyroads`` is a namespace package whose parts are the folders. ``mininet/`` has no
``__init__.py`` either, so that a checkout on ``sys.path`` never hides the real Mininet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
PARTS = ("controller", "slices", "plugins", "rest", "mininet", "dashboard")
NATIVE = ("hyroads-edge", "hyroads-medium", "hyroads-client", "hyroads-modem", "libhyroads_dataplane.so")
RELEASE = ROOT / "dataplane" / os.environ.get("CARGO_TARGET_DIR", "target") / "release"


def packages() -> list[str]:
    """Explicit package names; a bare find_packages() would pick up the folders under their own names."""
    names: list[str] = []
    for part in PARTS:
        folder = ROOT / part
        if any(folder.glob("*.py")):
            names.append(f"hyroads.{part}")
        names += [f"hyroads.{part}.{name}" for name in find_packages(str(folder))]
    return names


def has_programs() -> bool:
    return all((RELEASE / name).exists() for name in NATIVE)


class BuildWithNative(build_py):
    """Puts the compiled programs beside the Python code, so that an installed wheel finds them. Those that are not
    built yet (a source distribution has none) are, where there is a Rust compiler; else the wheel has none.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        if not has_programs() and shutil.which("cargo"):
            subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT / "dataplane", check=True)
        target = Path(self.build_lib) / "hyroads" / "controller" / "_native"
        for name in NATIVE if has_programs() else ():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(RELEASE / name, target / name)


class PlatformWheel(bdist_wheel):
    """The programs and the library know nothing of Python: a wheel for one platform is for every version of it."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class NativeDistribution(Distribution):
    """A wheel that carries compiled programs belongs to one platform."""

    def has_ext_modules(self) -> bool:
        return "sdist" not in sys.argv and (has_programs() or shutil.which("cargo") is not None)


setup(
    packages=packages(),
    package_dir={f"hyroads.{part}": part for part in PARTS},
    package_data={"hyroads.mininet": ["networks/*.yaml", "examples/*"], "hyroads.mininet.chaos": ["*.c"]},
    cmdclass={"build_py": BuildWithNative, "bdist_wheel": PlatformWheel},
    distclass=NativeDistribution,
)
