"""Reading network files and files of settings from disk; parsing and checking are pure (``core/netfile``). Apart from
``text``, as access points read files of secrets and have no YAML.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyroads.controller.core.document import load_document
from hyroads.controller.core.secret_places import secrets_in

from .text import check_private, read_text

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


def read_settings(path: str | Path) -> Any:
    """The document of a file of settings. If it holds secrets itself, nobody but its owner may read it."""
    document = load_document(read_text(path), str(path))
    secret = next(secrets_in(document), None)
    if secret is not None:
        check_private(path, f"{secret[0]} is a secret")
    return document
