"""Schemas of requests, which refuse unknown fields, and of answers; they make the OpenAPI document."""

from __future__ import annotations

from typing import Any

from marshmallow import RAISE, Schema, fields, validate

MAX_LIMIT = 1000


class Strict(Schema):
    """Unknown fields are errors."""

    class Meta:
        """Options of marshmallow."""

        unknown = RAISE


def about(text: str, **more: Any) -> dict[str, Any]:
    """The option of a field that is its description in the OpenAPI document; ``example``: another than its name's."""
    return {"metadata": {"description": text, **more}}


def required(text: str | None = None, **options: Any) -> dict[str, Any]:
    """Options of a response's field that is always there, with its description."""
    return {"required": True, **({} if text is None else about(text)), **options}


class Number(fields.Float):
    """A number, not text that looks like one."""

    def _validated(self, value: Any) -> Any:
        if isinstance(value, str):
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


def identifier(text: str | None = None, longest: int = 64, **options: Any) -> fields.String:
    """A request's field that names something: bounded text that is not empty."""
    return fields.String(validate=validate.Length(1, longest), **({} if text is None else about(text)), **options)


class PlaceSchema(Strict):
    """Where a client's interface can be: at a node (an access point), on a technology."""

    node = identifier(required=True)
    technology = identifier(required=True)


def rate() -> fields.Float:
    """A rate; null: not known, or not shaped."""
    return fields.Float(**required("Mb/s at L2 payload", allow_none=True))


class PageQuery(Strict):
    """Which part of a list is wanted."""

    limit = fields.Integer(load_default=MAX_LIMIT, validate=validate.Range(1, MAX_LIMIT))
    cursor = identifier("of the `next` address of another page", 1024, load_default=None)


class PageSchema(Schema):
    """A page of a list."""

    next = fields.String(**required("address of the next page", allow_none=True))


class WaitQuery(Strict):
    """Whether to answer only once switches and agents confirmed."""

    wait = fields.Boolean(load_default=True)


class OperationSchema(Schema):
    """Something that was accepted."""

    id = fields.String(**required())
    what = fields.String(**required())
    resource = fields.String(**required("address of what it is about, if that stays", allow_none=True))
    state = fields.String(**required(validate=validate.OneOf(["pending", "confirmed", "failed"])))
    pending = fields.List(fields.String(), **required("what has not confirmed yet"))
    reason = fields.String(**required("why it failed", allow_none=True))
    created_s = fields.Float(**required("Unix time"))
    finished_s = fields.Float(**required("Unix time at which it was first seen at its end", allow_none=True))


class EventsQuery(Strict):
    """Which events are wanted."""

    kinds = fields.String(
        load_default="",
        validate=validate.Length(max=512),
        **about("comma-separated kinds; `link` means all of `link.up`, `link.down`, ..."),
    )
    follow = fields.Boolean(load_default=True, **about("false: what is kept, then the end"))


class ProblemSchema(Schema):
    """RFC 9457."""

    type = fields.String(**required())
    title = fields.String(**required())
    status = fields.Integer(**required())
    detail = fields.String(**required())
    errors = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.String()),
        **about("place in the request -> what was expected there"),
    )
    pending = fields.List(fields.String(), **about("what has not confirmed"))
    restart = fields.List(fields.String(), **about("what only a restart of the controller can take, by file and place"))
