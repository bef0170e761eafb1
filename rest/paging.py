"""Lists in pages: ``?limit=`` and ``?cursor=``; an answer's ``next`` is the address of the page after it.

A cursor names the last items of its page, so that items which come or go meanwhile neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from flask import Response, request
from hyroads.controller.core import strict_json
from hyroads.rest.contract import Document, ValueRefusedError
from hyroads.rest.replies import reply

_ANCHORS = 3


Documents = Callable[[Sequence[str]], Sequence[Document]]
"""The documents of some ids; of those that are there."""


def page(name: str, ids: Sequence[str], documents: Documents, query: Mapping[str, Any]) -> Response:
    """One page of a list as an answer: ``{name: [documents], "next": address or null}``."""
    limit = query["limit"]
    start = _start(ids, query["cursor"])
    chosen = ids[start : start + limit]
    end = start + len(chosen)
    following = _following(query, _cursor(ids, end)) if end < len(ids) and chosen else None
    answer = reply({name: list(documents(chosen)), "next": following})
    if following:
        answer.headers["Link"] = f'<{following}>; rel="next"'
    return answer


def pages(name: str, documents: Sequence[Document], query: Mapping[str, Any], key: str = "id") -> Response:
    """One page of a list of documents that are there already."""
    known = {str(document[key]): document for document in documents}
    return page(name, tuple(known), lambda ids: [known[one] for one in ids], query)


def _following(query: Mapping[str, Any], cursor: str) -> str:
    kept = [(key, value) for key, value in request.args.items() if key not in ("limit", "cursor")]
    return f"{request.path}?{urlencode([*kept, ('limit', query['limit']), ('cursor', cursor)])}"


def _cursor(ids: Sequence[str], end: int) -> str:
    text = json.dumps([end, *ids[max(0, end - _ANCHORS) : end]], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _start(ids: Sequence[str], cursor: str | None) -> int:
    """Where a page begins: after the last of its cursor's items that is still there, else where that one was."""
    if cursor is None:
        return 0
    end, anchors = _parsed(cursor)
    place = min(end, len(ids))
    for back, anchor in enumerate(reversed(anchors), start=1):
        if 0 <= end - back < len(ids) and ids[end - back] == anchor:
            return end - back + 1
        if anchor in ids:
            return ids.index(anchor) + 1
    return place


def _parsed(cursor: str) -> tuple[int, list[str]]:
    try:
        end, *anchors = strict_json.parse(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError) as error:
        raise ValueRefusedError("cursor", "expected the cursor of a `next` address") from error
    sound = isinstance(end, int) and end >= 0 and all(isinstance(anchor, str) for anchor in anchors)
    if not sound or len(anchors) > _ANCHORS:
        raise ValueRefusedError("cursor", "expected the cursor of a `next` address")
    return end, anchors
