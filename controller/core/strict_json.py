"""JSON that comes from outside, read strictly. Pure, of the standard library alone: access points' agents use it too.

Python's own reader takes more than can be worked with afterwards: whole numbers that no float holds, some of which
can't be printed any more; ``1e999`` and ``NaN``; text with half a character (a lone surrogate), which no socket and no
file takes; any encoding that it guesses. Whoever read such a value has accepted it, and fails later, where nobody
expects it. What is refused here is an error of the sender.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from .errors import HyroadsError

MAX_CHARACTERS = 8 * 1024 * 1024
"""The longest text that is a document."""
MAX_DIGITS = 300
"""Any whole number of as many digits is a float as well."""
_INFINITE = float("inf")

Pairs = Callable[[list[tuple[str, Any]]], Any]


class JsonError(HyroadsError, ValueError):
    """A text is not JSON, or JSON that nobody can work with; says why, without quoting more than a few characters.

    ``line`` is where, if the text is not JSON at all.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        self.problem, self.line = problem, line
        super().__init__(problem)

    def __reduce__(self) -> tuple[type[JsonError], tuple[str, int | None]]:
        """Pickle by the arguments of the constructor."""
        return type(self), (self.problem, self.line)


def parse(text: bytes | bytearray | str, *, pairs: Pairs | None = None) -> Any:
    """The value of a text in UTF-8; :class:`JsonError`. ``pairs`` makes an object of its names and values."""
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        if decoded is text:
            decoded.encode("utf-8")
        value = (_DECODER if pairs is None else _decoder(pairs)).decode(decoded)
        # A lone surrogate can only come from an escape; only then is the whole document looked at.
        if "\\ud" in decoded or "\\uD" in decoded:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"not valid JSON: not UTF-8: {error.reason} at byte {error.start}") from error
    except UnicodeEncodeError as error:
        raise JsonError("not valid JSON: half a character (a lone surrogate) in a text") from error
    except json.JSONDecodeError as error:
        raise JsonError(f"not valid JSON: {error.msg}", error.lineno) from error
    except RecursionError as error:
        raise JsonError("expected a document that is not nested so deeply") from error
    return value


def parse_checked(text: bytes) -> Any:
    """Like :func:`parse`, in half the time, for documents of which every number is compared with bounds before it is
    used: numbers may be infinite, or whole numbers of up to 4,300 digits.
    """
    try:
        decoded = text.decode("utf-8")
        value = _FAST.decode(decoded)
    except UnicodeDecodeError as error:
        raise JsonError(f"not valid JSON: not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise JsonError(f"not valid JSON: {error.msg}", error.lineno) from error
    except RecursionError as error:
        raise JsonError("expected a document that is not nested so deeply") from error
    except ValueError as error:
        raise JsonError("not valid JSON: expected whole numbers of at most 4300 digits") from error
    if "\\ud" in decoded or "\\uD" in decoded:
        return parse(decoded)
    return value


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise JsonError(f"not valid JSON: expected whole numbers of at most {MAX_DIGITS} digits")
    return int(digits)


def _real(text: str) -> float:
    value = float(text)
    if value in (_INFINITE, -_INFINITE):
        raise JsonError(f"not valid JSON: expected numbers up to 1.7e308, got {text[:20]}")
    return value


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"not valid JSON: {name} is not a number")


def _decoder(pairs: Pairs | None = None) -> json.JSONDecoder:
    return json.JSONDecoder(parse_int=_whole, parse_float=_real, parse_constant=_no_constant, object_pairs_hook=pairs)


_DECODER = _decoder()
_FAST = json.JSONDecoder(parse_constant=_no_constant)
