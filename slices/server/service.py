"""What the REST API offers of the slicer (docs/reference/slicer.md): slices read and changed, switches
read, reload.

Its methods are called by threads. What takes long, checking documents and models, they do themselves, on the model that
they saw; the event loop only puts the new one in force, if nobody has been faster, else they begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily

from hyroads.controller.core.errors import ConfigError
from hyroads.rest.contract import ConflictError, Document, ForbiddenError, NotFoundError, Token, TooBusyError
from hyroads.rest.slices import Changed
from hyroads.slices.core import delegation
from hyroads.slices.core.change import changed
from hyroads.slices.core.delegation import Network, Principal, default_limits
from hyroads.slices.core.errors import AllocationError, NotAllowedError
from hyroads.slices.core.errors import ConflictError as SliceConflictError
from hyroads.slices.core.model import HIGHEST_PRIORITY, PRODUCTION, Slice, SliceModel, token_hash
from hyroads.slices.core.slicefile import parse, parse_slice, slice_document
from hyroads.slices.proxy.roles import EQUAL, MASTER, SLAVE
from hyroads.slices.proxy.session import Tenant

from .slicer import Outcome, Slicer, StaleError
from .switch import Switch


@dataclass(frozen=True)
class Edit:
    """Slices to add or replace and names to remove, or a whole model."""

    put: tuple[Slice, ...] = ()
    remove: tuple[str, ...] = ()
    model: SliceModel | None = None


def edit(model: SliceModel, principal: Principal, method: str, path: tuple[str, ...], document: Any) -> Edit:
    """``path`` is that below ``/slices``; ConfigError names the place in the document that is wrong."""
    if not path:
        return Edit(model=parse(document, "slices"))
    name = path[0]
    if (method, len(path)) == ("PUT", 1):
        return Edit((_declared(model, principal, name, document),))
    old = _seen(model, principal, name)
    if (method, len(path)) == ("DELETE", 1):
        return Edit(remove=(name,))
    return Edit((_changed(model, old, method, path[1:], document),))


def _seen(model: SliceModel, principal: Principal, name: str) -> Slice:
    """A slice, if there is one of that name and the principal may see it whole."""
    if name not in model.slices:
        raise NotFoundError(f"there is no slice {name[:40]!a}")
    if name not in delegation.visible(model, principal):
        raise ForbiddenError(f"slice {name} is another's")
    return model.slices[name]


def _declared(model: SliceModel, principal: Principal, name: str, document: Any) -> Slice:
    """A slice that is given whole."""
    document = {"name": name, **document}
    if document["name"] != name:
        raise ConfigError("slice", "name", "expected the name of the path")
    own = sorted(principal.slices)
    # Where an owner has one slice to give out of, it need not say which.
    if not principal.operator and name not in principal.slices and "parent" not in document and len(own) == 1:
        document["parent"] = own[0]
    parent = model.slices.get(str(document.get("parent", "")))
    return parse_slice(document if parent is None else _as_child(document, parent), "slice")


def _as_child(document: Mapping[str, Any], parent: Slice) -> dict[str, Any]:
    """With what a child has that is not said: a quarter of its parent's limits, rules just above its parent's."""
    limits = slice_document(Slice("", limits=default_limits(parent)))["limits"]
    given = document.get("limits", {})
    document = {**document, "limits": {**limits, **given} if isinstance(given, Mapping) else given}
    if isinstance(document.get("flowspace"), list):
        document["flowspace"] = [_above(rule, parent) for rule in document["flowspace"]]
    return document


def _above(rule: Any, parent: Slice) -> Any:
    if not isinstance(rule, Mapping) or "priority" in rule or not parent.flowspace:
        return rule
    return {**rule, "priority": min(HIGHEST_PRIORITY, 1 + max(each.priority for each in parent.flowspace))}


def _changed(model: SliceModel, old: Slice, method: str, path: tuple[str, ...], document: Any) -> Slice:
    """A slice of which something is changed: itself, its flowspace, one rule of it."""
    now = slice_document(old)
    parent = model.slices.get(old.parent)
    if not path:
        limits = {**now["limits"], **document.get("limits", {})}
        now |= {**document, "limits": limits}
    elif method == "PUT":
        now["flowspace"] = document["flowspace"]
    elif method == "POST":
        now["flowspace"] = [*now["flowspace"], document]
    else:
        now["flowspace"] = _without(now["flowspace"], old.name, path[1])
    if parent is not None:
        now["flowspace"] = [_above(rule, parent) for rule in now["flowspace"]]
    return parse_slice(now, "slice")


def _without(rules: list[Any], name: str, rule: str) -> list[Any]:
    wanted = {number for number, each in enumerate(rules) if rule in {str(number), each.get("name")}}
    if not wanted:
        raise NotFoundError(f"slice {name} has no flowspace rule {rule[:40]!a}")
    return [each for number, each in enumerate(rules) if number not in wanted]


T = TypeVar("T")

ANSWER_WITHIN_S = 50.0
TRIES = 10
OWNER = "slice-owner"
_ADMIN = "admin"
_ROLES = {EQUAL: "equal", MASTER: "master", SLAVE: "slave"}


class SlicerService:
    """The REST API's requests on the slicer's event loop, with the rights of who asks.

    ``reload`` reads the settings' slices again. ``allowed`` are the networks in which owners may name controllers.
    """

    def __init__(
        self,
        slicer: Slicer,
        loop: asyncio.AbstractEventLoop,
        reload: Callable[[], Coroutine[Any, Any, Outcome]],
        allowed: tuple[Network, ...] = (),
    ) -> None:
        self._slicer = slicer
        self._loop = loop
        self._reload = reload
        self._allowed = allowed
        self._reads: Mapping[tuple[str, int], Callable[..., Any]] = {
            ("slices", 1): self._slices,
            ("slices", 2): self._slice,
            ("slices", 3): self._flowspace_of,
            ("flowspace", 1): self._flowspace,
            ("switches", 1): self._switches,
            ("switches", 2): self._switch,
        }

    # -- who asks -----------------------------------------------------------------------------------------------------

    def find(self, token: str) -> Token | None:
        """The owner whose token this is."""
        hashed = token_hash(token)
        mine = delegation.owned(self._slicer.model, hashed)
        # A name that no operator's token can have.
        return Token(f"\0owner {hashed[:16]}", hashed, OWNER, mine) if mine else None

    def visible_to(self, principal: Token) -> Callable[[Any], bool]:
        """A filter of events: owners see those of their slices, as long as they own them; others see all."""
        if principal.role != OWNER:
            return lambda event: True

        def mine(event: Any) -> bool:
            model = self._slicer.model
            own = Principal(slices=delegation.owned(model, principal.token))
            if "slice" in event.document:
                name = event.document["slice"]
                gone = event.kind == "slice.removed" and name in principal.slices
                return bool(gone or name in delegation.visible(model, own))
            switch = self._slicer.switches.get(int(event.document.get("switch", "-1"), 16))
            return switch is not None and not delegation.visible(model, own).isdisjoint(switch.tenants)

        return mine

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, principal: Token, *path: str) -> Any:
        """What is there, as far as who asks may see it."""
        return self._in_loop(lambda: self._reads[path[0], len(path)](_as_principal(principal), *path[1:]))

    def _slices(self, principal: Principal) -> list[Document]:
        model = self._slicer.model
        seen = delegation.visible(model, principal)
        return [_shown(e, principal) if e.name in seen else {"name": e.name} for e in model.slices.values()]

    def _slice(self, principal: Principal, name: str) -> Document:
        shown = _shown(_seen(self._slicer.model, principal, name), principal)
        switches = {
            f"{dpid:#x}": _tenant(switch, switch.tenants[name])
            for dpid, switch in self._slicer.switches.items()
            if name in switch.tenants and switch.session is not None
        }
        return {**shown, "switches": switches}

    def _flowspace_of(self, principal: Principal, name: str, _: str) -> list[Document]:
        return _rules(_seen(self._slicer.model, principal, name))

    def _flowspace(self, principal: Principal) -> list[Document]:
        model = self._slicer.model
        seen = delegation.visible(model, principal)
        return [rule for name, each in model.slices.items() if name in seen for rule in _rules(each)]

    def _switches(self, principal: Principal) -> list[Document]:
        seen = delegation.visible(self._slicer.model, principal)
        return [
            {**self._switch_document(switch), "slices": sorted(seen & switch.tenants.keys())}
            for switch in self._slicer.switches.values()
            if principal.sees_all or not seen.isdisjoint(switch.tenants)
        ]

    def _switch(self, principal: Principal, dpid: str) -> Document:
        switch = self._slicer.switches.get(int(dpid, 16))
        seen = delegation.visible(self._slicer.model, principal)
        if switch is None or not (principal.sees_all or not seen.isdisjoint(switch.tenants)):
            raise NotFoundError(f"there is no switch {dpid[:40]!a}")
        mine = {name: tenant for name, tenant in switch.tenants.items() if name in seen}
        ports = {port for tenant in mine.values() for port in tenant.view.ports}
        complaints = {"malformed_messages": switch.link.complaints if switch.link is not None else 0}
        return {
            **self._switch_document(switch),
            **(complaints if principal.sees_all else {}),
            "ports": {n: port for n, port in sorted(switch.names.items()) if principal.sees_all or port in ports},
            "slices": {name: _tenant(switch, tenant) for name, tenant in mine.items()},
        }

    def _switch_document(self, switch: Switch) -> Document:
        connected = switch.session is not None
        confirmed = connected and switch.version == self._slicer.version
        return {"dpid": f"{switch.dpid:#x}", "connected": connected, "confirmed": confirmed}

    def metrics(self, principal: Token) -> list[Any]:
        """What slices do on connected switches, for Prometheus; owners see their slices."""
        return self._in_loop(lambda: list(_metrics(self._slicer, _as_principal(principal))))

    # -- changing -----------------------------------------------------------------------------------------------------

    def change(self, principal: Token, method: str, *path: str, document: Any = None, wait: bool = True) -> Changed:
        """Change slices, all of it or nothing."""
        who = _as_principal(principal)
        try:
            if len(path) == 1 and not who.operator:
                raise ForbiddenError("only the operator may do this")
            if path == ("reload",):
                return self._answer(self._await(self._reload()))
            return self._edit(who, method, path[1:], document, wait=wait)
        except (NotAllowedError, ForbiddenError, SliceConflictError, AllocationError) as error:
            name = path[1] if len(path) > 1 else ""
            told = {"slice": name, "by": principal.name.lstrip("\0"), "reason": str(error)[:500]}
            self._loop.call_soon_threadsafe(self._slicer.events.publish, "change.refused", told)
            may_not = isinstance(error, NotAllowedError | ForbiddenError)
            raise (ForbiddenError if may_not else ConflictError)(str(error)) from error

    def _edit(self, principal: Principal, method: str, path: tuple[str, ...], document: Any, *, wait: bool) -> Changed:
        for _ in range(TRIES):
            model = self._slicer.model
            found = edit(model, principal, method, path, document)
            if PRODUCTION in found.remove:
                raise ConflictError(f"{PRODUCTION} is always there")
            delegation.check(model, principal, found.put, found.remove, self._allowed)
            try:
                new = found.model if found.model is not None else changed(model, found.put, found.remove)[0]
                outcome = self._await(self._slicer.become(new, model, wait=wait))
            except StaleError:
                continue
            return self._answer(outcome)
        raise TooBusyError("others change slices all the time")

    def _answer(self, outcome: Outcome) -> Changed:
        change, version = outcome.change, outcome.version
        document = {
            "added": sorted(change.added), "changed": sorted(change.changed), "removed": sorted(change.removed)
        }  # fmt: skip
        return Changed(document, outcome.pending, lambda: self._in_loop(lambda: self._slicer.pending(version)))

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _in_loop(self, work: Callable[[], T]) -> T:
        async def call() -> T:
            return work()

        return self._await(call())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        """What it gives; it goes on if it takes too long for us."""
        found: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return found.result(ANSWER_WITHIN_S)
        except FutureTimeoutError:
            raise TooBusyError("the slicer did not answer in time") from None


def _metrics(slicer: Slicer, principal: Principal) -> Iterator[Any]:
    names = ("slice", "dp_id")
    rules = Gauge("hyroads_slice_rules", "Flow entries of a slice in a switch", labels=names)
    controllers = Gauge("hyroads_slice_controllers", "Connected controllers of a slice", labels=names)
    messages = Counter("hyroads_slice_messages", "Messages of a slice's controllers", labels=names)
    refused = Counter("hyroads_slice_refusals", "Messages that were answered with an error of the slicer", labels=names)
    dropped = Counter("hyroads_slice_dropped_packet_ins", "Packet-ins beyond a slice's limit", labels=names)
    answers = HistogramMetricFamily(
        "hyroads_slice_answer_seconds", "How long a switch took to answer a slice's controller", labels=names
    )
    up = Gauge("hyroads_sliced_switch_up", "1 if the switch is connected and prepared", labels=("dp_id",))
    seen = delegation.visible(slicer.model, principal)
    for dpid, switch in slicer.switches.items():
        mine = {name: tenant for name, tenant in switch.tenants.items() if name in seen}
        if mine or principal.sees_all:
            up.add_metric((hex(dpid),), switch.session is not None)
        for name, tenant in mine.items():
            labels = (name, hex(dpid))
            rules.add_metric(labels, tenant.entries.used)
            controllers.add_metric(labels, len(tenant.guests))
            messages.add_metric(labels, tenant.messages)
            refused.add_metric(labels, tenant.refusals)
            dropped.add_metric(labels, tenant.dropped_packet_ins)
            answers.add_metric(labels, tenant.answers.cumulative(), tenant.answers.total_s)
    yield from (up, rules, controllers, messages, refused, dropped, answers)


def _as_principal(token: Token) -> Principal:
    if token.role == OWNER:
        return Principal(slices=token.slices)
    return Principal(operator=token.role == _ADMIN, sees_all=True)


def _shown(each: Slice, principal: Principal) -> Document:
    document = slice_document(each)
    if not principal.operator:
        document.pop("owner_token_sha256", None)
    return document


def _rules(each: Slice) -> list[Document]:
    rules = slice_document(each)["flowspace"]
    return [{"slice": each.name, "rule": number, **rule} for number, rule in enumerate(rules)]


def _tenant(switch: Switch, tenant: Tenant) -> Document:
    view, links = tenant.view, {} if switch.link is None else switch.link.guests
    return {
        "tables": {"first": view.block.first, "count": view.block.count},
        "ports": sorted(view.ports),
        "flow_entries": tenant.entries.used,
        "groups": len(view.groups),
        "meters": len(view.meters),
        "dropped_packet_ins": tenant.dropped_packet_ins,
        "controllers": [
            {"address": link.address, "role": _ROLES[tenant.roles.role(link.number)]}
            for link in links.values()
            if link.tenant is tenant
        ],
    }
