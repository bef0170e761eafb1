"""Where our compiled programs are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


def program_path(name: str) -> str | None:
    """Path of one of our compiled programs: $HYROADS_BIN, the package, the checkout's build, then $PATH."""
    folders = [
        *([Path(os.environ["HYROADS_BIN"])] if os.environ.get("HYROADS_BIN") else []),
        _PACKAGE_ROOT / "controller" / "_native",
        _PACKAGE_ROOT / "dataplane" / "target" / "release",
    ]
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    return shutil.which(name)
