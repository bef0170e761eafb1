"""Outcomes of tasks as text, and back, exactly: JSON, and arrays by their bytes.

Nothing is unpickled. Which classes are made is said by the annotations of the function that the outcomes are of, never
by the text; so a text from a file or from another machine makes numbers, texts, arrays and those classes alone.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

_KINDS = "biufc"
"""Kinds of arrays: truth values, integers, floating-point and complex numbers; no text and no objects."""


class OutcomeError(ValueError):
    """A text is no outcome, or an outcome can't be written as text."""


Classes = Mapping[str, type]


def classes_of(work: Callable[..., Any]) -> dict[str, type]:
    """The dataclasses, named tuples and enumerations in what ``work`` is annotated to return, at any depth, by name."""
    found: dict[str, type] = {}
    waiting = [_hints(getattr(work, "func", work)).get("return")]
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint)
        if not isinstance(hint, type) or not _is_ours(hint) or found.get(_name(hint)) is hint:
            continue
        found[_name(hint)] = hint
        waiting += _hints(hint).values()
    return found


def _is_ours(hint: type) -> bool:
    return dataclasses.is_dataclass(hint) or issubclass(hint, Enum) or hasattr(hint, "_fields")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _hints(of: Any) -> dict[str, Any]:
    """Annotations as types; none where one of them names what exists for type checkers alone."""
    try:
        return typing.get_type_hints(of)
    except (NameError, TypeError, AttributeError):
        return {}


def encode(outcome: Any, classes: Classes) -> str:
    """One line of text. ``OutcomeError`` names what of the outcome can't be written."""
    return json.dumps(_encoded(outcome, classes), separators=(",", ":"))


def _encoded(value: Any, classes: Classes) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple):
        items = [_encoded(each, classes) for each in value]
        return items if kind is list else {"tuple": items}
    if kind is dict:
        return {"dict": [[_encoded(key, classes), _encoded(each, classes)] for key, each in value.items()]}
    if isinstance(value, np.ndarray | np.generic):
        return _encoded_array(value)
    return _encoded_instance(value, classes)


def _encoded_instance(value: Any, classes: Classes) -> Any:
    kind = type(value)
    if classes.get(_name(kind)) is not kind:
        raise OutcomeError(f"{_name(kind)} is not among what its annotation says it returns")
    if isinstance(value, Enum):
        return {"enum": [_name(kind), value.name]}
    names = getattr(value, "_fields", None) or [field.name for field in dataclasses.fields(value)]
    return {"class": [_name(kind), {name: _encoded(getattr(value, name), classes) for name in names}]}


def _encoded_array(value: np.ndarray | np.generic) -> Any:
    if value.dtype.kind not in _KINDS:
        raise OutcomeError(f"an array of {value.dtype} can't be kept")
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
    shape = list(value.shape) if isinstance(value, np.ndarray) else None
    return {"array": [value.dtype.str, shape, data]}


def decode(text: str, classes: Classes) -> Any:
    """The outcome that ``encode`` wrote, of the same types. ``OutcomeError`` for every other text.

    A class may refuse what it is given in any way, so that any error counts.
    """
    try:
        return _decoded(json.loads(text), classes)
    except Exception as error:
        raise OutcomeError(f"no outcome: {error}") from error


def _decoded(value: Any, classes: Classes) -> Any:
    if isinstance(value, list):
        return [_decoded(each, classes) for each in value]
    if not isinstance(value, dict):
        return value
    [(mark, inner)] = value.items()
    return _MARKS[mark](inner, classes)


def _decoded_dict(pairs: list[Any], classes: Classes) -> Any:
    return {_decoded(key, classes): _decoded(each, classes) for key, each in pairs}


def _decoded_enum(inner: list[str], classes: Classes) -> Any:
    name, member = inner
    return classes[name].__members__[member]  # type: ignore[attr-defined]


def _decoded_instance(inner: list[Any], classes: Classes) -> Any:
    name, fields = inner
    return classes[name](**{field: _decoded(each, classes) for field, each in fields.items()})


def _decoded_array(inner: list[Any], classes: Classes) -> Any:
    name, shape, data = inner
    dtype = np.dtype(name)
    if dtype.kind not in _KINDS:
        raise OutcomeError(f"an array of {dtype} is never kept")
    flat = np.frombuffer(base64.b64decode(data, validate=True), dtype)
    if shape is None:
        [single] = flat
        return single
    return flat.reshape(shape).copy()


_MARKS: Mapping[str, Callable[[Any, Classes], Any]] = {
    "tuple": lambda inner, classes: tuple(_decoded(each, classes) for each in inner),
    "dict": _decoded_dict,
    "array": _decoded_array,
    "enum": _decoded_enum,
    "class": _decoded_instance,
}
