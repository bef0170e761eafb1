"""Reading network files from disk; parsing and checking are pure (``core/netfile``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .text import read_text

if TYPE_CHECKING:
    from hyroads.controller.core.network import Network


def read_file(path: str | Path, *, measured: bool = False) -> Network:
    """The network of a file; :class:`ConfigError` if it can't be read or is wrong.

    Capacities may be missing only if they will be ``measured``.
    """
    text = read_text(path)
    # A wrong name answers without the large libraries that a network needs.
    from hyroads.controller.core.netfile import load_text

    return load_text(text, str(path), measured=measured)
