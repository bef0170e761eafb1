"""The controller: its packages, and the version of the program."""

from __future__ import annotations


def version() -> str:
    """The installed version; from a source tree that isn't installed, ``0+unknown``."""
    # Late: it takes longer to import than a wrong argument takes to answer.
    from importlib import metadata

    try:
        return metadata.version("hyroads")
    except metadata.PackageNotFoundError:
        return "0+unknown"
