"""Reading configuration and network files from disk; parsing and checking are pure (``core/netfile``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hyroads.controller.core.document import MAX_CHARACTERS
from hyroads.controller.core.errors import ConfigError

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


def _unreadable(path: str | Path, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigError(str(path), "", f"can't be read: {reason}")


def read_private(path: str | Path) -> str:
    """The text of a file that holds secrets, which nobody but its owner may read."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if mode & 0o077:
        raise ConfigError(str(path), "", "expected mode 0600: the file holds secrets")
    return read_text(path)


def read_text(path: str | Path) -> str:
    """The text of a configuration file, of bounded size."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if len(data) > MAX_CHARACTERS:
        raise ConfigError(str(path), "", f"expected at most {MAX_CHARACTERS} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "", f"expected UTF-8 text: byte {error.start} is not") from error
