"""Answers in JSON. A long one is encoded piece by piece, and others run in between: slots must not wait for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Response, current_app

EXTENSION = "hyroads.pause"
MEDIA_TYPE = "application/json"
_PIECE = 16 * 1024


def pause() -> None:
    """Let others run."""
    let_others: Callable[[], None] = current_app.extensions[EXTENSION]
    let_others()


def reply(document: Mapping[str, Any] | list[Any], status: int = 200, *, location: str | None = None) -> Response:
    """An answer with a document; ``location`` is where what it is about can be read."""
    answer = Response("".join(_pieces(document)), status=status, content_type=MEDIA_TYPE)
    if location is not None:
        answer.headers["Location"] = location
    return answer


def _pieces(document: Mapping[str, Any] | list[Any]) -> Iterator[str]:
    """The text of a document; lists and values of mappings down to the second level are pieces of their own."""
    written = 0
    for text in _walk(document, 2):
        yield text
        written += len(text)
        if written > _PIECE:
            written = 0
            pause()
    yield "\n"


def _walk(value: Any, depth: int) -> Iterator[str]:
    if not depth or not isinstance(value, Mapping | list):
        yield json.dumps(value)
        return
    opening, closing = ("[", "]") if isinstance(value, list) else ("{", "}")
    items = [("", item) for item in value] if isinstance(value, list) else _named(value)
    yield opening
    for number, (name, item) in enumerate(items):
        yield f",{name}" if number else name
        yield from _walk(item, depth - 1)
    yield closing


def _named(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{json.dumps(name)}:", item) for name, item in value.items()]
