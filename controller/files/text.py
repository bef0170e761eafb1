"""Reading configuration files as text, of bounded size. Apart from ``documents``, so that small programs can read
theirs without the large libraries that a network needs.
"""

from __future__ import annotations

from pathlib import Path

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.strict_json import MAX_CHARACTERS


def _unreadable(path: str | Path, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigError(str(path), "", f"can't be read: {reason}")


def read_private(path: str | Path) -> str:
    """The text of a file that holds secrets, which nobody but its owner may read."""
    check_private(path)
    return read_text(path)


def check_private(path: str | Path, what: str = "the file holds secrets") -> None:
    """:class:`ConfigError` if somebody else than its owner may read or write a file, or if it is not there."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if mode & 0o077:
        raise ConfigError(str(path), "", f"expected mode 0600: {what}")


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
