"""JSON Schemas of files, made by asking their parsers: editors complete keys by them and mark what is wrong. Pure.

Nothing is written down twice. A parser is given small documents, each with a value of another kind at one place, and
tells how it reads them (``checking.listening``): as a mapping with known keys, a number from 0 to 1, one of three
words. Where it decides by code of its own the schema leaves open what it takes, so that what the parser accepts is
never refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from .checking import MAX_ID_LENGTH, listening
from .errors import HyroadsError

Parse = Callable[[object], object]
Schema = dict[str, Any]
Reading = tuple[str, Mapping[str, Any]]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SAMPLES: Mapping[str, object] = {
    "null": None, "boolean": True, "integer": 1, "number": 0.5, "string": "x", "array": [], "object": {},
}  # fmt: skip
_ENTRY = "x"
_DEEPEST = 9


def schema_of(parse: Parse, title: str) -> Schema:
    """The schema of a kind of file; ``parse`` reads a document and may raise whatever a wrong one raises."""
    return {"$schema": DIALECT, "title": title, **_Prober(parse).schema("", lambda inner: inner)}


class _Prober:
    def __init__(self, parse: Parse) -> None:
        self._parse = parse

    def schema(self, path: str, around: Callable[[object], object]) -> Schema:
        """What may be at a place; ``around`` puts a value there into a document."""
        if path.count(".") + path.count("[") > _DEEPEST:
            return {}
        known: list[Reading] = []
        open_to: list[str] = []
        for kind, sample in _SAMPLES.items():
            readings = self._readings(path, around(sample))
            known += [reading for reading in readings if reading not in known]
            if not readings:
                open_to.append(kind)
        found = [self._of(reading, path, around) for reading in known]
        for kind, one in (("array", self._items(path, around)), ("object", self._entries(path, around))):
            # Read by code of the parser's own, but what is in it is known.
            if kind in open_to and one is not None:
                open_to.remove(kind)
                found.append(one)
        if not found or len(open_to) == len(_SAMPLES):
            return {}
        if open_to:
            found.append({"type": [kind for kind in open_to if kind != "integer" or "number" not in open_to]})
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _readings(self, path: str, document: object) -> list[Reading]:
        """How the parser reads what is at a place of a document, each way once."""
        found: list[Reading] = []
        for at, kind, bounds in self._heard(document):
            if at == path and (kind, bounds) not in found:
                found.append((kind, bounds))
        return found

    def _heard(self, document: object) -> list[tuple[str, str, Mapping[str, Any]]]:
        found: list[tuple[str, str, Mapping[str, Any]]] = []
        wrong = (HyroadsError, KeyError, TypeError, ValueError, AttributeError, IndexError)
        with listening(lambda *reading: found.append(reading)), suppress(*wrong):
            self._parse(document)
        return found

    def _of(self, reading: Reading, path: str, around: Callable[[object], object]) -> Schema:
        kind, bounds = reading
        if kind == "section":
            required = list(bounds["required"])
            inside = {key: self._value(key, path, around) for key in bounds["known"]}
            more = {"required": required} if required else {}
            return {"type": "object", "properties": inside, "additionalProperties": False, **more}
        if kind == "entries":
            return self._entries(path, around) or {"type": "object"}
        if kind == "items":
            return self._items(path, around) or {"type": "array"}
        return _plain(kind, bounds)

    def _value(self, key: str, path: str, around: Callable[[object], object]) -> Schema:
        return self.schema(f"{path}.{key}" if path else key, lambda inner: around({key: inner}))

    def _entries(self, path: str, around: Callable[[object], object]) -> Schema | None:
        """Of a mapping with free keys; None if nothing is known of what is in it."""
        return self._parts(f"{path}.{_ENTRY}" if path else _ENTRY, lambda inner: around({_ENTRY: inner}), "object")

    def _items(self, path: str, around: Callable[[object], object]) -> Schema | None:
        """The same of a list."""
        return self._parts(f"{path}[0]", lambda inner: around([inner]), "array")

    def _parts(self, path: str, around: Callable[[object], object], kind: str) -> Schema | None:
        samples: tuple[object, ...] = (_ENTRY, {})
        if not any(at == path for sample in samples for at, _, _ in self._heard(around(sample))):
            return None
        inner = self.schema(path, around)
        return {"type": kind, "items" if kind == "array" else "additionalProperties": inner} if inner else None


def _plain(kind: str, bounds: Mapping[str, Any]) -> Schema:
    """Of what has no parts."""
    if kind == "choice":
        return {"enum": list(bounds["known"])}
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "number":
        lower = {"exclusiveMinimum" if bounds["open_low"] else "minimum": bounds["low"]}
        limits = {**lower, "maximum": bounds["high"]}
        return {"type": "number", **{name: limit for name, limit in limits.items() if math.isfinite(limit)}}
    if kind == "integer":
        number = {"type": "integer", "minimum": bounds["low"], "maximum": bounds["high"]}
        return {"anyOf": [number, {"type": "string", "pattern": "^0x[0-9a-fA-F]{1,16}$"}]}
    if kind == "identifier":
        return {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
    return {"type": "string"}
