"""Frozen values as JSON and back, by their types: what goes between the controller and a plugin's process.

Dataclasses, enumerations, tuples, frozen sets and mappings with text as keys. Nothing is run and nothing is imported
on the way, so what comes from a plugin can be wrong, but not harmful.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from hyroads.controller.core.errors import HyroadsError

TAG = "is"
"""The key that holds the class of a dataclass."""
_PLAIN = (str, int, float, bool, NoneType)


class CodecError(HyroadsError):
    """A document is not what its type says."""


def encode(value: object) -> Any:
    """JSON of a value; :class:`CodecError` for what has none."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {TAG: type(value).__name__, **{name: encode(getattr(value, name)) for name in _names(type(value))}}
    if isinstance(value, Mapping):
        return {_text(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, frozenset):
        return [encode(item) for item in sorted(value, key=repr)]
    raise CodecError(f"a {type(value).__name__} can't be sent")


def decode(hint: Any, document: object) -> Any:
    """The value of type ``hint``; :class:`CodecError` if the document is not one."""
    origin = get_origin(hint)
    if hint is Any or hint is object:
        return document
    if origin in (UnionType, Union):
        return _union(hint, document)
    if origin is not None:
        return _collection(origin, get_args(hint), document)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(hint, document)
    if is_dataclass(hint):
        return _dataclass(cast("type", hint), document)
    return _plain(hint, document)


def _text(key: object) -> str:
    if isinstance(key, str):
        return key
    raise CodecError(f"a key that is a {type(key).__name__} can't be sent")


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _plain(hint: Any, document: object) -> object:
    if hint is float and type(document) in (int, float):
        value = float(cast("float", document))
        if math.isnan(value):
            raise CodecError("expected a number, got NaN")
        return value
    if hint is None or hint is NoneType:
        hint = NoneType
    if type(document) is not hint:
        raise CodecError(f"expected {getattr(hint, '__name__', hint)}, got {type(document).__name__}")
    return document


def _member(hint: type[Enum], document: object) -> Enum:
    try:
        return hint(document)
    except ValueError:
        raise CodecError(f"expected a {hint.__name__}") from None


def _dataclass(kind: type, document: object) -> object:
    if not isinstance(document, Mapping) or document.get(TAG) != kind.__name__:
        raise CodecError(f"expected a {kind.__name__}")
    names = _names(kind)
    if set(document) != {TAG, *names}:
        raise CodecError(f"expected a {kind.__name__} with {', '.join(names)}")
    hints = _hints(kind)
    return kind(**{name: decode(hints[name], document[name]) for name in names})


def _union(hint: Any, document: object) -> object:
    """The first of the types that fits; dataclasses tell theirs."""
    for one in get_args(hint):
        try:
            return decode(one, document)
        except CodecError:
            continue
    raise CodecError(f"expected {hint}")


def _collection(origin: Any, arguments: tuple[Any, ...], document: object) -> object:
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(document, Mapping):
            raise CodecError("expected a mapping")
        return {_text(key): decode(arguments[1], item) for key, item in document.items()}
    if not isinstance(document, list):
        raise CodecError("expected a list")
    if origin is tuple and arguments[-1] is not ...:
        if len(document) != len(arguments):
            raise CodecError(f"expected {len(arguments)} items")
        return tuple(decode(one, item) for one, item in zip(arguments, document, strict=True))
    try:
        return origin(decode(arguments[0], item) for item in document)
    except TypeError as error:
        raise CodecError(str(error)) from None
