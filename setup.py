"""Maps the repository's top-level folders into the package ``hyroads``.

There is no ``hyroads/__init__.py``: ``hyroads`` is a namespace package whose parts are the folders. ``mininet/`` has no
``__init__.py`` either, so that a checkout on ``sys.path`` never hides the real Mininet.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PARTS = ("controller", "slices", "plugins", "rest", "mininet", "dashboard")
NATIVE = ("hyroads-edge", "hyroads-medium", "hyroads-client", "libhyroads_dataplane.so")


def packages() -> list[str]:
    """Explicit package names; a bare find_packages() would pick up the folders under their own names."""
    names: list[str] = []
    for part in PARTS:
        folder = ROOT / part
        if any(folder.glob("*.py")):
            names.append(f"hyroads.{part}")
        names += [f"hyroads.{part}.{name}" for name in find_packages(str(folder))]
    return names


class BuildWithNative(build_py):
    """Puts the compiled programs beside the Python code, so that an installed wheel finds them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "hyroads" / "controller" / "_native"
        for name in NATIVE:
            built = ROOT / "dataplane" / "target" / "release" / name
            if built.exists():
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(built, target / name)


class NativeDistribution(Distribution):
    """A wheel that carries compiled programs belongs to one platform."""

    def has_ext_modules(self) -> bool:
        return (ROOT / "dataplane" / "target" / "release" / NATIVE[0]).exists() and "sdist" not in sys.argv


setup(
    packages=packages(),
    package_dir={f"hyroads.{part}": part for part in PARTS},
    package_data={"hyroads.mininet": ["networks/*.yaml", "examples/*"]},
    cmdclass={"build_py": BuildWithNative},
    distclass=NativeDistribution,
)
