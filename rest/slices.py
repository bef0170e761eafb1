"""The resources ``slices``, ``flowspace`` and ``switches`` of the slicer, and the controller's view of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from . import schemas
from .contract import PREFIX, Document, Token
from .operations import accepted
from .owners import principal
from .resource import Resource, page, page_schema, pages, reply
from .schemas import Strict, about, required

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
        """Change slices, all of it or nothing; confirmed by every switch that answers in time."""


class RuleSchema(Schema):
    """Packets that match and come in at these ports of these switches (docs/reference/slicer.md)."""

    name = fields.String()
    switches = fields.Raw(**about('"all" or datapath ids'))
    ports = fields.Raw(**about('"all" or numbers and names of ports'))
    priority = fields.Integer()
    match = fields.Raw(**about("a mapping of match fields, or a list of such: any of them"))


class FlowspaceRuleSchema(RuleSchema):
    """A rule and whose it is."""

    slice = fields.String(**required())
    rule = fields.Integer(**required("its number in the slice"))


_OPT_IN = "which users may join the slice, and with which part of their traffic"


class SliceBody(Strict):
    """What may be said of a slice; details as in the file."""

    parent = fields.String(**about("the slice whose flowspace it is a part of"))
    owner_token_sha256 = fields.String(validate=validate.Regexp("^[0-9a-f]{64}$"))
    controllers = fields.List(fields.String())
    permissions = fields.List(fields.String(validate=validate.OneOf(["read", "write", "delegate"])))
    flowspace = fields.List(fields.Dict(keys=fields.String()))
    limits = fields.Dict(keys=fields.String())
    ssids = fields.List(fields.Dict(keys=fields.String()))
    opt_in = fields.Dict(keys=fields.String(), **about(_OPT_IN))


class SliceDeclaration(SliceBody):
    """A whole slice: what is not said is the default."""

    name = fields.String()


class SlicesDeclaration(Strict):
    """All slices."""

    slices = fields.List(fields.Dict(keys=fields.String()), required=True)


class FlowspaceDeclaration(Strict):
    """All rules of a slice."""

    flowspace = fields.List(fields.Dict(keys=fields.String()), required=True)


class RuleDeclaration(Strict, RuleSchema):
    """One rule."""

    priority = fields.Integer(strict=True)


class SliceSchema(Schema):
    """A slice; of others' slices its owner sees the name alone."""

    name = fields.String(**required())
    parent = fields.String()
    owner_token_sha256 = fields.String(**about("shown to admins"))
    controllers = fields.List(fields.String())
    permissions = fields.List(fields.String())
    flowspace = fields.List(fields.Nested(RuleSchema))
    limits = fields.Dict()
    ssids = fields.List(fields.Dict())
    opt_in = fields.Dict(**about(_OPT_IN))
    switches = fields.Dict(**about("what it has on each connected switch"))


class FlowspaceList(schemas.PageSchema):
    """A page of flowspace rules."""

    flowspace = fields.List(fields.Nested(FlowspaceRuleSchema), **required())


class SlicedSwitchSchema(Schema):
    """A switch, as far as who asks may see it."""

    dpid = fields.String(**required())
    connected = fields.Boolean(**required())
    confirmed = fields.Boolean(**required("has confirmed the slices of now"))
    slices = fields.Raw(**required("names; of one switch: what each slice has there"))
    ports = fields.Dict(**about("numbers by name"))
    malformed_messages = fields.Integer()


class OptInDeclaration(Strict):
    """What of the user's own traffic is given to the slice."""

    match = fields.Raw(**about("a mapping of match fields, or a list of such: any of them; without: all"))


class OptInSchema(Schema):
    """A user and a slice."""

    slice = fields.String(**required())
    user = fields.String(**required())
    joined = fields.Boolean(**required())
    open = fields.Boolean(**required("whether users may join now"))
    takes = fields.List(fields.Dict(), **required("which part of a user's traffic the slice takes: any of these"))
    match = fields.List(fields.Dict(), **required("which packets of the user are the slice's: any of these"))


class ChangeSchema(Schema):
    """Which slices a change added, changed and removed."""

    added = fields.List(fields.String(), **required())
    changed = fields.List(fields.String(), **required())
    removed = fields.List(fields.String(), **required())


_LATER = "wait=false, or not every switch has confirmed in time"
_BUSY = "the slicer did not answer in time"
_CONFLICT = "two slices would own the same packets, or a child what is not its parent's; nothing has changed"


def blueprints(service: SliceService, *, switches: bool = True) -> list[Resource]:
    """The resources; ``switches`` is there where no other resource has that name."""
    found = [_slices(service), _flowspace(service)]
    return [*found, _opt_ins(service), _switches(service), _reload(service)] if switches else found


class _Change(NamedTuple):
    """An endpoint that changes slices."""

    method: str
    rule: str
    """Below /slices."""
    body: type[Schema] | None
    what: str
    """What the operation is called."""
    text: str


_ONE, _RULES = "/<slice:name>", "/<slice:name>/flowspace"
_CHANGES = (
    _Change("put", "", SlicesDeclaration, "put all slices", "Exactly these slices (admins)."),
    _Change("put", _ONE, SliceDeclaration, "put slice {name}",
            "Add a slice, or replace it whole; owners: a child of their slice (permission `delegate`)."),
    _Change("patch", _ONE, SliceBody, "change slice {name}",
            "Change what is given (of `limits` those that are given); owners: their controllers, and lower limits."),
    _Change("delete", _ONE, None, "remove slice {name}",
            "Remove a slice, its children and all that they have in switches."),
    _Change("put", _RULES, FlowspaceDeclaration, "put flowspace of {name}", "Exactly these flowspace rules."),
    _Change("post", _RULES, RuleDeclaration, "add flowspace to {name}", "One flowspace rule more."),
    _Change("delete", f"{_RULES}/<id:rule>", None, "remove flowspace of {name}",
            "One flowspace rule less, by its name or number."),
)  # fmt: skip


def _add_change(found: Resource, service: SliceService, about: _Change) -> None:
    """Serve a change of slices; an operation stays about its slice unless that is removed."""
    name, (method, rule, body, what, text) = found.name, about

    def change(*given: dict[str, Any], **ids: str) -> ResponseReturnValue:
        [*document, query] = given
        path = [name, *(ids.get(word.strip("<>").rpartition(":")[2], word) for word in rule.split("/")[1:])]
        wanted = document[0] if document else None
        done = service.change(principal(), method.upper(), *path, document=wanted, wait=query["wait"])
        if not done.pending and query["wait"]:
            return reply(done.document)
        stays = "name" in ids and not (method == "delete" and rule == _ONE)
        resource = f"{ADDRESS}/{quote(ids['name'], safe='')}" if stays else None
        return accepted(what.format(**ids), resource, done.poll)

    change.__name__, change.__doc__ = f"{method} {rule}", text
    responses = {200: "done, and confirmed by switches", 202: _LATER, 404: "there is none"}
    responses |= {409: _CONFLICT, 503: _BUSY}
    found.endpoint(method, rule, responses, ChangeSchema, body=body, query=schemas.WaitQuery)(change)


def _slices(service: SliceService) -> Resource:
    found = Resource("slices", url_prefix=ADDRESS, description="Who has which part of the network")
    for change in _CHANGES:
        _add_change(found, service, change)

    @found.endpoint("get", "", {200: None, 503: _BUSY}, page_schema("slices", SliceSchema), query=schemas.PageQuery)
    def list_slices(query: dict[str, Any]) -> ResponseReturnValue:
        """All slices; owners see those of others by name."""
        return pages("slices", service.read(principal(), "slices"), query, key="name")

    @found.endpoint("get", _ONE, {200: None, 503: _BUSY, 404: None}, SliceSchema)
    def show_slice(name: str) -> ResponseReturnValue:
        """One slice, and what it has on each connected switch."""
        return reply(service.read(principal(), "slices", name))

    @found.endpoint("get", _RULES, {200: None, 503: _BUSY, 404: None}, FlowspaceList, query=schemas.PageQuery)
    def show_flowspace(query: dict[str, Any], name: str) -> ResponseReturnValue:
        """The flowspace rules of one slice."""
        return pages("flowspace", service.read(principal(), "slices", name, "flowspace"), query, key="rule")

    return found


def _flowspace(service: SliceService) -> Resource:
    blueprint = Resource("flowspace", url_prefix=f"{PREFIX}/flowspace", description="The flowspace rules of all slices")

    @blueprint.endpoint("get", "", {200: None, 503: _BUSY}, FlowspaceList, query=schemas.PageQuery)
    def list_flowspace(query: dict[str, Any]) -> ResponseReturnValue:
        """All flowspace rules; owners see theirs."""
        rules = {f"{each['slice']} {each['rule']}": each for each in service.read(principal(), "flowspace")}
        return page("flowspace", tuple(rules), lambda ids: [rules[one] for one in ids], query)

    return blueprint


def _opt_ins(service: SliceService) -> Resource:
    found = Resource("opt-ins", url_prefix=f"{PREFIX}/opt-ins", description="Users who join slices with their traffic")
    one = "/<slice:name>/<id:user>"
    changes = (
        _Change("put", one, OptInDeclaration, "add user {user} to slice {name}",
                "Add a user's own traffic to a slice that is open for it; users: their own (`me` is their name, too)."),
        _Change("delete", one, None, "remove user {user} from slice {name}",
                "Take a user's traffic back; users: their own, owners: that of users of their slices."),
    )  # fmt: skip
    for change in changes:
        _add_change(found, service, change)

    @found.endpoint("get", "", {200: None, 503: _BUSY}, page_schema("opt_ins", OptInSchema), query=schemas.PageQuery)
    def list_opt_ins(query: dict[str, Any]) -> ResponseReturnValue:
        """Who has joined which slice; users see the slices that they have joined or may join."""
        known = {f"{each['slice']} {each['user']}": each for each in service.read(principal(), "opt-ins")}
        return page("opt_ins", tuple(known), lambda ids: [known[one] for one in ids], query)

    @found.endpoint("get", one, {200: None, 503: _BUSY, 404: None}, OptInSchema)
    def show_opt_in(name: str, user: str) -> ResponseReturnValue:
        """One user and one slice."""
        return reply(service.read(principal(), "opt-ins", name, user))

    return found


def _switches(service: SliceService) -> Resource:
    blueprint = Resource("switches", url_prefix=f"{PREFIX}/switches", description="Switches and what slices have there")

    @blueprint.endpoint(
        "get", "", {200: None, 503: _BUSY}, page_schema("switches", SlicedSwitchSchema), query=schemas.PageQuery
    )
    def list_switches(query: dict[str, Any]) -> ResponseReturnValue:
        """All switches; owners see those where they have something."""
        return pages("switches", service.read(principal(), "switches"), query, key="dpid")

    @blueprint.endpoint("get", "/<switch:dpid>", {200: None, 503: _BUSY, 404: None}, SlicedSwitchSchema)
    def show_switch(dpid: str) -> ResponseReturnValue:
        """One switch: its ports, and what each slice has there."""
        return reply(service.read(principal(), "switches", dpid))

    return blueprint


def _reload(service: SliceService) -> Resource:
    found = Resource("reload", url_prefix=f"{PREFIX}/reload", description="The slices of the settings' file")
    text = "Read the settings' slices again (admins); what was changed while running is forgotten."
    _add_change(found, service, _Change("post", "", None, "reload", text))
    return found
