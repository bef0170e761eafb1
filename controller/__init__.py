"""The Ryu application, its configuration and state.

The version of the program.
"""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """The installed version; from a source tree that isn't installed, ``0+unknown``."""
    try:
        return importlib.metadata.version("hyroads")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
