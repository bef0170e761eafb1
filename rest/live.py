"""The live document: ``GET /api/v1/live``, everything that moves, small enough to be read each second."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .resource import JSON, Resource
from .schemas import ProblemSchema, Strict, about, required

MAX_VERSION = 2**53 - 1
COLUMNS: Mapping[str, list[str]] = {
    "links": ["up", "capacity_mbps", "rate_mbps", "busy_percent", "planned_mbps", "planned_busy_percent", "source"],
    "flows": ["mode", "wanted_mbps", "planned_mbps", "delivered_mbps", "lost_frames_per_s", "group", "owner"],
    "paths": ["links", "planned_mbps", "sent_mbps", "delivered_mbps", "lost_percent", "delay_ms"],
    "slices": ["planned_busy_percent", "share_percent", "held", "busy_percent"],
}
"""What the places of the rows are; rows are lists because there are hundreds of them."""


SOURCES: Sequence[Sequence[str | None]] = tuple(
    (rate, busy) for rate in ("port", "paths", None) for busy in ("radio", "snmp", "counters", None)
)
"""How the rate and the busy share of a link are known; rows of links have an index into this."""


class LiveText(NamedTuple):
    """The document as JSON, and its version."""

    version: int
    text: str


class LiveService(Protocol):
    """What the resource needs of the controller."""

    def live(self, since: int | None = None) -> LiveText:
        """Everything, or what changed since a version."""


class LiveQuery(Strict):
    """What of the document is wanted."""

    since = fields.Integer(
        load_default=None,
        validate=validate.Range(0, MAX_VERSION),
        **about("`version` of an earlier answer: only what changed since then is told"),
    )


class SlotSchema(Schema):
    """Slots of the control loop."""

    count = fields.Integer(**required("slots since the controller started"))
    missed = fields.Integer(**required("slots that did not take place"))
    slot_ms = fields.Float(**required("how long a slot is, in ms"))


class LiveColumnsSchema(Schema):
    """Names of the places of the rows."""

    links = fields.List(fields.String(), **required("of the rows of `links`"))
    flows = fields.List(fields.String(), **required("of the rows of `flows`"))
    paths = fields.List(fields.String(), **required("of the rows of `paths`"))
    slices = fields.List(fields.String(), **required("of the rows of `slices`"))


def _rows(text: str) -> fields.Dict:
    return fields.Dict(keys=fields.String(), values=fields.List(fields.Raw(allow_none=True)), **required(text))


_EXAMPLE = {
    "from": None, "version": 1790000000000042, "complete": True, "reason": "first", "age_s": 0.0,
    "topology_version": 17, "slot": {"count": 5120, "missed": 0, "slot_ms": 100}, "columns": dict(COLUMNS),
    "sources": [list(pair) for pair in SOURCES],
    "links": {"ab-wifi": [1, 15, 9.81, 66, 10, 67, 0]},
    "flows": {"f1": ["multipath", None, 20, 19.6, 0]},
    "paths": {"f1/1": [["ab-wifi"], 10, 9.81, 9.8, 0, 3.12]},
    "clients": {"c": {"02:00:00:00:00:0c": ["b", "wifi"]}},
    "slices": {"production": {"wifi": [67, None, False, 65]}},
    "gone": {},
}  # fmt: skip


class LiveSchema(Schema):
    """The network as it is now. Rates: Mb/s at L2 payload. What is not measured is null, never what is planned."""

    since = fields.Integer(
        **required("the version that the answer starts from; null: it is complete", data_key="from", allow_none=True)
    )
    version = fields.Integer(**required("rises by one with each change; goes into the next `since`"))
    complete = fields.Boolean(**required("everything is here: forget what you have"))
    reason = fields.String(
        **required(
            "why it is complete: `first` (no `since`), `other-start` (a version of another run of the controller), "
            "`too-old`",
            allow_none=True,
            validate=validate.OneOf(["first", "other-start", "too-old"]),
        )
    )
    age_s = fields.Float(**required("how long ago the figures were taken together"))
    topology_version = fields.Integer(**required("`version` of `/topology`: read that again once it differs"))
    slot = fields.Nested(SlotSchema, **required("slots of the control loop"))
    columns = fields.Nested(LiveColumnsSchema, **about("names of the places of the rows; in complete answers"))
    sources = fields.List(
        fields.List(fields.String(allow_none=True)),
        **about(
            "in complete answers: how rate (port: counters of the port; paths: agents' counters of paths) and busy "
            "share (radio, snmp, counters: rate over capacity) of a link are known; null: not"
        ),
    )
    links = _rows(
        "by link id: up (1) or down (0); capacity that rates count on; measured rate; measured busy share; sum of the "
        "planned rates of paths; planned busy share of its domain; index into `sources`"
    )
    flows = _rows(
        "by flow id: multipath, single or unreachable; what it wants if that is less than it could get; planned rate; "
        "delivered rate; frames a second given up as lost"
    )
    paths = _rows(
        "by FLOW/NUMBER: link ids; planned rate; sent and delivered rate; frames that did not arrive; delay that the "
        "receiving agent estimates"
    )
    clients = fields.Dict(
        keys=fields.String(),
        values=fields.Dict(keys=fields.String(), values=fields.List(fields.String(), allow_none=True)),
        **required("by client and MAC of its interface: node and technology, or null where it is nowhere"),
    )
    slices = fields.Dict(
        keys=fields.String(),
        values=fields.Dict(keys=fields.String(), values=fields.List(fields.Raw(allow_none=True))),
        **required(
            "by slice and technology: planned busy share; its own share; whether others hold it to that; measured busy "
            "share of its multipath flows"
        ),
    )
    gone = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.String()),
        **required("by part (`links`, `flows`, ...): ids that are no longer there"),
    )


def text_of(head: Mapping[str, Any], parts: Mapping[str, Mapping[str, str]]) -> str:
    """The document without white space, which would be a tenth of it. Of ``parts`` each value is text already: name and
    row of one link, flow, path, client or slice.
    """
    sections = [f'"{name}":{{{",".join(rows.values())}}}' for name, rows in parts.items()]
    return ",".join((json.dumps(head, separators=(",", ":"))[:-1], *sections)) + "}"


def blueprint(service: LiveService) -> Resource:
    """The resource ``live``; it can only be read."""
    found = Resource("live", description="Everything that moves, in one small document")

    @found.get("")
    @found.arguments(LiveQuery(), location="query", error_status_code=400)
    @found.response(200, LiveSchema, description="the document, or what changed", example=_EXAMPLE)
    @found.alt_response(400, schema=ProblemSchema, description="`since` is not a version")
    def read_live(query: dict[str, Any]) -> ResponseReturnValue:
        """Links, flows, paths, clients and slices as they are now, measured beside planned."""
        answer = Response(service.live(query["since"]).text, content_type=JSON)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    return found
