"""The resources ``slices``, ``flowspace`` and ``switches`` of the slicer, and the controller's view of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from . import schemas
from .access import principal
from .contract import PREFIX, Document, Token
from .operations import accepted
from .resource import Resource, page, page_schema, pages, reply
from .schemas import Strict, required

ADDRESS = f"{PREFIX}/slices"


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that was made: the names of slices by ``added``, ``changed`` and ``removed``."""

    document: Document
    pending: Sequence[str] = ()
    """What has not confirmed it."""
    poll: Callable[[], Sequence[str]] = field(default=tuple)
    """What has not confirmed it by now."""


class SliceService(Protocol):
    """Paths are those below ``/api/v1`` in parts. NotFoundError, ForbiddenError, ConflictError, ConfigError."""

    def read(self, principal: Token, *path: str) -> Any:
        """What is there, as far as who asks may see it: the documents of a list, or one document."""

    def change(self, principal: Token, method: str, *path: str, document: Any = None, wait: bool = True) -> Changed:
        """Change slices, all of it or nothing; confirmed by every connected switch that answers in time."""


class RuleSchema(Schema):
    """Packets that match and come in at these ports of these switches (docs/reference/slicer.md)."""

    name = fields.String()
    switches = fields.Raw(metadata={"description": '"all" or datapath ids'})
    ports = fields.Raw(metadata={"description": '"all" or numbers and names of ports'})
    priority = fields.Integer()
    match = fields.Raw(metadata={"description": "a mapping of match fields, or a list of such: any of them"})


class FlowspaceRuleSchema(RuleSchema):
    """A rule and whose it is."""

    slice = fields.String(**required())
    rule = fields.Integer(**required("its number in the slice"))


class SliceBody(Strict):
    """What may be said of a slice; details as in the file."""

    parent = fields.String(metadata={"description": "the slice whose flowspace it is a part of"})
    owner_token_sha256 = fields.String(validate=validate.Regexp("^[0-9a-f]{64}$"))
    controllers = fields.List(fields.String())
    permissions = fields.List(fields.String(validate=validate.OneOf(["read", "write", "delegate"])))
    flowspace = fields.List(fields.Dict(keys=fields.String()))
    limits = fields.Dict(keys=fields.String())
    ssids = fields.List(fields.Dict(keys=fields.String()))


class SliceDeclaration(SliceBody):
    """A whole slice: what is not said is the default."""

    name = fields.String()


class SlicesDeclaration(Strict):
    """All slices."""

    slices = fields.List(fields.Dict(keys=fields.String()), required=True)


class FlowspaceDeclaration(Strict):
    """All rules of a slice."""

    flowspace = fields.List(fields.Dict(keys=fields.String()), required=True)


class RuleDeclaration(Strict):
    """One rule."""

    name = fields.String()
    switches = fields.Raw(metadata={"description": '"all" or datapath ids'})
    ports = fields.Raw(metadata={"description": '"all" or numbers and names of ports'})
    priority = fields.Integer(strict=True)
    match = fields.Raw(metadata={"description": "a mapping of match fields, or a list of such: any of them"})


class SliceSchema(Schema):
    """A slice; of others' slices its owner sees the name alone."""

    name = fields.String(**required())
    parent = fields.String()
    owner_token_sha256 = fields.String(metadata={"description": "shown to admins"})
    controllers = fields.List(fields.String())
    permissions = fields.List(fields.String())
    flowspace = fields.List(fields.Nested(RuleSchema))
    limits = fields.Dict()
    ssids = fields.List(fields.Dict())
    switches = fields.Dict(metadata={"description": "what it has on each connected switch"})


class FlowspaceList(schemas.PageSchema):
    """A page of flowspace rules."""

    flowspace = fields.List(fields.Nested(FlowspaceRuleSchema), **required())


class SwitchSchema(Schema):
    """A switch, as far as who asks may see it."""

    dpid = fields.String(**required())
    connected = fields.Boolean(**required())
    confirmed = fields.Boolean(**required("has confirmed the slices of now"))
    slices = fields.Raw(**required("names; of one switch: what each slice has there"))
    ports = fields.Dict(metadata={"description": "numbers by name"})
    malformed_messages = fields.Integer()


class ChangeSchema(Schema):
    """Which slices a change added, changed and removed."""

    added = fields.List(fields.String(), **required())
    changed = fields.List(fields.String(), **required())
    removed = fields.List(fields.String(), **required())


_LATER = "wait=false, or not every switch has confirmed in time"
_BUSY = "the slicer did not answer in time"
_CONFLICT = "two slices would own the same packets, or a child what is not its parent's; nothing has changed"


def _change(blueprint: Resource, method: str, rule: str, body: type[Schema] | None = None) -> Any:
    """Registers an endpoint that changes slices: what it takes, and what every one of them answers."""
    responses = {200: "done, and confirmed by connected switches", 202: _LATER, 404: "there is none"}
    responses |= {409: _CONFLICT, 503: _BUSY}
    return blueprint.endpoint(method, rule, responses, ChangeSchema, body=body, query=schemas.WaitQuery)


def blueprints(service: SliceService, *, switches: bool = True) -> list[Resource]:
    """The resources; ``switches`` is there where no other resource has that name."""
    found = [_slices(service), _flowspace(service)]
    return [*found, _switches(service), _reload(service)] if switches else found


def _done(what: str, changed: Changed, query: Mapping[str, Any], resource: str | None) -> ResponseReturnValue:
    if changed.pending or not query["wait"]:
        return accepted(what, resource, changed.poll)
    return reply(changed.document)


def _address(name: str) -> str:
    return f"{ADDRESS}/{quote(name, safe='')}"


def _slices(service: SliceService) -> Resource:
    blueprint = Resource("slices", url_prefix=ADDRESS, description="Who has which part of the network")

    def ask(what: str, method: str, *path: str, query: Mapping[str, Any], document: Any = None) -> ResponseReturnValue:
        changed = service.change(principal(), method, "slices", *path, document=document, wait=query["wait"])
        stays = path and not (method == "DELETE" and len(path) == 1)
        return _done(what, changed, query, _address(path[0]) if stays else None)

    @blueprint.endpoint("get", "", {200: None, 503: _BUSY}, page_schema("slices", SliceSchema), query=schemas.PageQuery)
    def list_slices(query: dict[str, Any]) -> ResponseReturnValue:
        """All slices; owners see those of others by name."""
        return pages("slices", service.read(principal(), "slices"), query, key="name")

    @_change(blueprint, "put", "", SlicesDeclaration)
    def put_slices(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Exactly these slices (admins)."""
        return ask("put all slices", "PUT", query=query, document=body)

    @blueprint.endpoint("get", "/<slice:name>", {200: None, 503: _BUSY, 404: None}, SliceSchema)
    def show_slice(name: str) -> ResponseReturnValue:
        """One slice, and what it has on each connected switch."""
        return reply(service.read(principal(), "slices", name))

    @_change(blueprint, "put", "/<slice:name>", SliceDeclaration)
    def put_slice(body: dict[str, Any], query: dict[str, Any], name: str) -> ResponseReturnValue:
        """Add a slice, or replace it whole; owners: a child of their slice (permission `delegate`)."""
        return ask(f"put slice {name}", "PUT", name, query=query, document=body)

    @_change(blueprint, "patch", "/<slice:name>", SliceBody)
    def change_slice(body: dict[str, Any], query: dict[str, Any], name: str) -> ResponseReturnValue:
        """Change what is given (of `limits` those that are given); owners: their controllers, and lower limits."""
        return ask(f"change slice {name}", "PATCH", name, query=query, document=body)

    @_change(blueprint, "delete", "/<slice:name>")
    def remove_slice(query: dict[str, Any], name: str) -> ResponseReturnValue:
        """Remove a slice, its children and all that they have in switches."""
        return ask(f"remove slice {name}", "DELETE", name, query=query)

    @blueprint.endpoint(
        "get", "/<slice:name>/flowspace", {200: None, 503: _BUSY, 404: None}, FlowspaceList, query=schemas.PageQuery
    )
    def show_flowspace(query: dict[str, Any], name: str) -> ResponseReturnValue:
        """The flowspace rules of one slice."""
        return pages("flowspace", service.read(principal(), "slices", name, "flowspace"), query, key="rule")

    @_change(blueprint, "put", "/<slice:name>/flowspace", FlowspaceDeclaration)
    def put_flowspace(body: dict[str, Any], query: dict[str, Any], name: str) -> ResponseReturnValue:
        """Exactly these flowspace rules."""
        return ask(f"put flowspace of {name}", "PUT", name, "flowspace", query=query, document=body)

    @_change(blueprint, "post", "/<slice:name>/flowspace", RuleDeclaration)
    def add_rule(body: dict[str, Any], query: dict[str, Any], name: str) -> ResponseReturnValue:
        """One flowspace rule more."""
        return ask(f"add flowspace to {name}", "POST", name, "flowspace", query=query, document=body)

    @_change(blueprint, "delete", "/<slice:name>/flowspace/<id:rule>")
    def remove_rule(query: dict[str, Any], name: str, rule: str) -> ResponseReturnValue:
        """One flowspace rule less, by its name or number."""
        return ask(f"remove flowspace of {name}", "DELETE", name, "flowspace", rule, query=query)

    return blueprint


def _flowspace(service: SliceService) -> Resource:
    blueprint = Resource("flowspace", url_prefix=f"{PREFIX}/flowspace", description="The flowspace rules of all slices")

    @blueprint.endpoint("get", "", {200: None, 503: _BUSY}, FlowspaceList, query=schemas.PageQuery)
    def list_flowspace(query: dict[str, Any]) -> ResponseReturnValue:
        """All flowspace rules; owners see theirs."""
        rules = {f"{each['slice']} {each['rule']}": each for each in service.read(principal(), "flowspace")}
        return page("flowspace", tuple(rules), lambda ids: [rules[one] for one in ids], query)

    return blueprint


def _switches(service: SliceService) -> Resource:
    blueprint = Resource("switches", url_prefix=f"{PREFIX}/switches", description="Switches and what slices have there")

    @blueprint.endpoint(
        "get", "", {200: None, 503: _BUSY}, page_schema("switches", SwitchSchema), query=schemas.PageQuery
    )
    def list_switches(query: dict[str, Any]) -> ResponseReturnValue:
        """All switches; owners see those where they have something."""
        return pages("switches", service.read(principal(), "switches"), query, key="dpid")

    @blueprint.endpoint("get", "/<switch:dpid>", {200: None, 503: _BUSY, 404: None}, SwitchSchema)
    def show_switch(dpid: str) -> ResponseReturnValue:
        """One switch: its ports, and what each slice has there."""
        return reply(service.read(principal(), "switches", dpid))

    return blueprint


def _reload(service: SliceService) -> Resource:
    blueprint = Resource("reload", url_prefix=f"{PREFIX}/reload", description="The slices of the settings' file")

    @_change(blueprint, "post", "")
    def reload(query: dict[str, Any]) -> ResponseReturnValue:
        """Read the settings' slices again (admins); what was changed while running is forgotten."""
        return _done("reload", service.change(principal(), "POST", "reload", wait=query["wait"]), query, None)

    return blueprint
