"""Safe reading of YAML and JSON text: bounded size, depth and number of values, no duplicate keys, no NaN in JSON.

Every failure is a :class:`ConfigError` that names the document and the line.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import yaml
from hyroads.controller.core.errors import ConfigError

MAX_CHARACTERS = 8 * 1024 * 1024
MAX_DEPTH = 32
MAX_VALUES = 5_000_000

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc, valid-type]  # the base is chosen at run time
    """Safe loader that refuses duplicate keys, merge keys (which can multiply) and keys that aren't scalars."""

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        """Build one mapping; replaces the base's, which silently keeps the last of several equal keys."""
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(None, None, "expected a mapping", node.start_mark)
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", key_node.start_mark)
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, "merge keys (<<) are not supported", key_node.start_mark
                )
            key = self.construct_object(key_node)
            if key in result:
                problem = f"duplicate key {_short(key)}"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            result[key] = self.construct_object(value_node, deep=deep)
        return result


# YAML 1.1 reads 12:30:00 as a number, 010 as 8, 2026-01-01 as a date and 1e-3 as text: all four surprise in a network
# file, so numbers are read by the rules of YAML 1.2 and dates not at all.
_REPLACED_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED_TAGS]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z|0x[0-9a-fA-F]+\Z"), list("-+0123456789")
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z|[-+]?[0-9]+[eE][-+]?[0-9]+\Z"
        r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
    ),
    list("-+0123456789."),
)


def load_document(text: str, document: str) -> Any:
    """The value of a text: JSON if ``document`` ends in ``.json``, else YAML (which includes nearly all of JSON)."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(document, "", f"expected at most {MAX_CHARACTERS} characters, got {len(text)}")
    if document.endswith(".json"):
        return _load_json(text, document)
    return _load_yaml(text, document)


def _load_json(text: str, document: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(document, f"line {error.lineno}", f"not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError(document, "", "expected a document that is not nested so deeply") from error
    except ValueError as error:
        raise ConfigError(document, "", f"not valid JSON: {error}") from error


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key {_short(key)}")
        result[key] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _load_yaml(text: str, document: str) -> Any:
    try:
        _check_events(text, document)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506  # a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        raise _marked(error, document) from error
    except yaml.YAMLError as error:
        raise ConfigError(document, "", f"not valid YAML: {_one_line(str(error))}") from error
    except (ValueError, OverflowError) as error:
        # Numbers of thousands of digits, text that can't be encoded.
        raise ConfigError(document, "", f"not valid YAML: {_one_line(str(error))}") from error


def _check_events(text: str, document: str) -> None:
    """Refuse what would hurt before anything is built.

    Deep nesting exhausts the C stack of the loader, an alias inside its own anchor never ends, and aliases of aliases
    multiply: the count is of the values that the document stands for, with every alias replaced by what it names.
    """
    counts = [0]
    anchors: list[str | None] = []
    count_of: dict[str | None, int] = {}
    for event in yaml.parse(text, Loader=_Loader):
        if getattr(event, "tag", None) is not None:
            # Some constructors fail on a wrong value with whatever exception comes up.
            raise _refused(event, document, "no explicit type tags")
        if isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
            count_of[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            anchors.append(event.anchor)
            count_of.pop(event.anchor, None)
        elif isinstance(event, yaml.CollectionEndEvent):
            count = counts.pop()
            counts[-1] += count
            count_of[anchors.pop()] = count
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in anchors:
                raise _refused(event, document, "an alias that does not contain itself")
            counts[-1] += count_of.get(event.anchor, 1)
        if len(counts) > MAX_DEPTH:
            raise _refused(event, document, f"at most {MAX_DEPTH} levels of nesting")
        if counts[-1] > MAX_VALUES:
            raise _refused(event, document, f"at most {MAX_VALUES} values, those that aliases repeat included")


def _refused(event: yaml.Event, document: str, expected: str) -> ConfigError:
    place = f"line {event.start_mark.line + 1}" if event.start_mark is not None else ""
    return ConfigError(document, place, f"expected {expected}")


def _marked(error: yaml.MarkedYAMLError, document: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}" if mark is not None else ""
    return ConfigError(document, place, f"not valid YAML: {_one_line(error.problem or str(error))}")


def _one_line(text: str, limit: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _short(value: object) -> str:
    return _one_line(repr(value), 60)
