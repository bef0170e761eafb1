"""Safe reading of YAML and JSON text: bounded size, depth and number of values, no duplicate keys, no NaN in JSON.

YAML's events are turned into values here and not by the library's constructors: those keep the last of several equal
keys, recurse on the C stack, follow merge keys that multiply, and take several times as long. Plain scalars are read
by the rules of YAML 1.2 (1.1 reads 12:30:00 as a number, 010 as 8, 2026-01-01 as a date and 1e-3 as text), except that
yes, no, on and off stay booleans, so that an id written so is an error and not a surprise.

Every failure is a :class:`ConfigError` that names the document and the line.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import yaml

from . import strict_json
from .errors import ConfigError
from .strict_json import MAX_CHARACTERS, JsonError

MAX_DEPTH = 32
MAX_VALUES = 5_000_000

_Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: dict[str, bool | None] = {
    spelling: value
    for words, value in (("true yes on", True), ("false no off", False), ("null ~", None))
    for word in words.split()
    for spelling in (word, word.capitalize(), word.upper())
} | {"": None}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def load_document(text: str, document: str) -> Any:
    """The value of a text: JSON if ``document`` ends in ``.json``, else YAML (which includes nearly all of JSON)."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(document, "", f"expected at most {MAX_CHARACTERS} characters, got {len(text)}")
    return (load_json if document.endswith(".json") else _load_yaml)(text, document)


def load_json(text: str, document: str) -> Any:
    """The value of a JSON text of any size."""
    try:
        return strict_json.parse(text, pairs=_unique_pairs)
    except JsonError as error:
        raise ConfigError(document, "" if error.line is None else f"line {error.line}", error.problem) from error


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise JsonError(f"not valid JSON: duplicate key {_short(key)}")
        result[key] = value
    return result


def _load_yaml(text: str, document: str) -> Any:
    builder = _Builder(document)
    try:
        for event in yaml.parse(text, Loader=_Parser):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        place = f"line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise ConfigError(document, place, f"not valid YAML: {_one_line(error.problem or str(error))}") from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise ConfigError(document, "", f"not valid YAML: {_one_line(str(error))}") from error
    return builder.result


class _Frame:
    """A mapping or list that is being read; ``count`` is the number of values in it, repeats by aliases included."""

    def __init__(self, value: dict[Any, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.count = 1
        self.key: Any = _NO_KEY


_NO_KEY = object()


class _Builder:
    """Turns the events of one YAML document into its value."""

    def __init__(self, document: str) -> None:
        self.result: Any = None
        self._document = document
        self._documents = 0
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._plain: dict[str, Any] = {}

    def take(self, event: yaml.Event) -> None:
        """Take the next event; :class:`ConfigError` if the document is refused."""
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)

    def _start_document(self, event: yaml.DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            self._refuse(event, "expected one document")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if event.tag is not None:
            self._refuse(event, "expected no explicit type tags")
        plain = event.implicit[0]
        if plain and event.value == "<<":
            self._refuse(event, "merge keys (<<) are not supported")
        value = self._plain_value(event) if plain else event.value
        self._put(event, value, 1, event.anchor)

    def _plain_value(self, event: yaml.ScalarEvent) -> Any:
        text = event.value
        if text not in self._plain:
            try:
                self._plain[text] = _resolve(text)
            except ValueError:  # thousands of digits
                self._refuse(event, "expected a shorter number")
        return self._plain[text]

    def _start_collection(self, event: yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            self._refuse(event, "expected no explicit type tags")
        if self._frames and isinstance(self._frames[-1].value, dict) and self._frames[-1].key is _NO_KEY:
            self._refuse(event, "a key must be a scalar")
        if len(self._frames) >= MAX_DEPTH:
            self._refuse(event, f"expected at most {MAX_DEPTH} levels of nesting")
        self._frames.append(_Frame({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))

    def _end_collection(self, event: yaml.CollectionEndEvent) -> None:
        frame = self._frames.pop()
        self._put(event, frame.value, frame.count, frame.anchor)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if any(frame.anchor == event.anchor for frame in self._frames):
            self._refuse(event, "expected an alias that does not contain itself")
        if event.anchor not in self._anchors:
            self._refuse(event, f"undefined alias {_short(event.anchor)}")
        value, count = self._anchors[event.anchor]
        self._put(event, value, count, None)

    def _put(self, event: yaml.Event, value: Any, count: int, anchor: str | None) -> None:
        """Put a complete value where it belongs: a key, the value of a key, an item, or the document."""
        if anchor is not None:
            self._anchors[anchor] = (value, count)
        if not self._frames:
            self.result = value
            return
        frame = self._frames[-1]
        frame.count += count
        if frame.count > MAX_VALUES:
            self._refuse(event, f"expected at most {MAX_VALUES} values, those that aliases repeat included")
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is _NO_KEY:
            if isinstance(value, dict | list):
                self._refuse(event, "a key must be a scalar")
            if value in frame.value:
                self._refuse(event, f"duplicate key {_short(value)}")
            frame.key = value
        else:
            frame.value[frame.key] = value
            frame.key = _NO_KEY

    def _refuse(self, event: yaml.Event, problem: str) -> NoReturn:
        place = f"line {event.start_mark.line + 1}" if event.start_mark is not None else ""
        raise ConfigError(self._document, place, problem)


_HANDLERS: dict[type[yaml.Event], Any] = {
    yaml.DocumentStartEvent: _Builder._start_document,
    yaml.ScalarEvent: _Builder._scalar,
    yaml.MappingStartEvent: _Builder._start_collection,
    yaml.SequenceStartEvent: _Builder._start_collection,
    yaml.MappingEndEvent: _Builder._end_collection,
    yaml.SequenceEndEvent: _Builder._end_collection,
    yaml.AliasEvent: _Builder._alias,
}


def _resolve(text: str) -> Any:
    """The value of a plain scalar; ``ValueError`` for a whole number of thousands of digits."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if _INTEGER.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        if len(text) > strict_json.MAX_DIGITS:
            raise ValueError("too many digits")
        return int(text, 16 if "x" in text else 10)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _NOT_FINITE.fullmatch(text) else text


def _one_line(text: str, limit: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _short(value: object) -> str:
    return _one_line(repr(value), 60)
