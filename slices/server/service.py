"""What the REST API offers of the slicer (docs/reference/slicer.md): slices read and changed, users who join them and
leave, switches read, reload.

Its methods are called by threads. What takes long, checking documents and models, they do themselves, on the model that
they saw; the event loop only puts the new one in force, if nobody has been faster, else they begin anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.token_bucket import Buckets, Limit
from hyroads.rest.contract import (
    ConflictError,
    Document,
    ForbiddenError,
    NotFoundError,
    Token,
    TooBusyError,
    TooOftenError,
)
from hyroads.rest.slices import Changed
from hyroads.slices.core import delegation
from hyroads.slices.core.change import changed
from hyroads.slices.core.delegation import Network, Principal, default_limits
from hyroads.slices.core.errors import AllocationError, NotAllowedError
from hyroads.slices.core.errors import ConflictError as SliceConflictError
from hyroads.slices.core.model import HIGHEST_PRIORITY, PRODUCTION, Slice, SliceModel, token_hash
from hyroads.slices.core.opt_in import open_to, requests_of, seated
from hyroads.slices.core.slicefile import parse, parse_slice, slice_document
from hyroads.slices.core.users import user_of
from hyroads.slices.proxy.roles import EQUAL, MASTER, SLAVE
from hyroads.slices.proxy.session import Tenant

from .opt_ins import joined_or_left, joining, opt_in_document
from .slicer import Outcome, Seen, Slicer, StaleError
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
    if "opt_in" in document:
        document["opt_in"] = _above(document["opt_in"], parent)
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
        opt_in = {**now.get("opt_in", {}), **document.get("opt_in", {})}
        now |= {**document, "limits": limits} | ({"opt_in": opt_in} if "opt_in" in document else {})
    elif method == "PUT":
        now["flowspace"] = document["flowspace"]
    elif method == "POST":
        now["flowspace"] = [*now["flowspace"], document]
    else:
        now["flowspace"] = _without(now["flowspace"], old.name, path[1])
    if parent is not None:
        now["flowspace"] = [_above(rule, parent) for rule in now["flowspace"]]
        now |= {"opt_in": _above(now["opt_in"], parent)} if "opt_in" in now else {}
    return parse_slice(now, "slice")


def _without(rules: list[Any], name: str, rule: str) -> list[Any]:
    wanted = {number for number, each in enumerate(rules) if rule in {str(number), each.get("name")}}
    if not wanted:
        raise NotFoundError(f"slice {name} has no flowspace rule {rule[:40]!a}")
    return [each for number, each in enumerate(rules) if number not in wanted]


T = TypeVar("T")

ANSWER_WITHIN_S = 50.0
TRIES = 10
OWNER, USER = "slice-owner", "user"
_ADMIN = "admin"
_OF_USER = "\0user "
USERS_PACE = Limit(per_s=0.5, burst=10.0)
"""How often one user may join and leave."""
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
        pace: Limit = USERS_PACE,
    ) -> None:
        self._slicer = slicer
        self._loop = loop
        self._reload = reload
        self._allowed = allowed
        self._pace = Buckets(pace)
        self._reads: Mapping[tuple[str, int], Callable[..., Any]] = {
            ("slices", 1): self._slices,
            ("slices", 2): self._slice,
            ("slices", 3): self._flowspace_of,
            ("flowspace", 1): self._flowspace,
            ("opt-ins", 1): self._opt_ins,
            ("opt-ins", 3): self._opt_in,
            ("switches", 1): self._switches,
            ("switches", 2): self._switch,
        }

    # -- who asks -----------------------------------------------------------------------------------------------------

    def find(self, token: str) -> Token | None:
        """The owner or user whose token this is."""
        hashed = token_hash(token)
        mine = delegation.owned(self._slicer.model, hashed)
        # Names that no operator's token can have.
        if mine:
            return Token(f"\0owner {hashed[:16]}", hashed, OWNER, mine)
        user = user_of(self._slicer.users, hashed)
        return Token(f"{_OF_USER}{user.name}", hashed, USER) if user is not None else None

    def visible_to(self, principal: Token) -> Callable[[Any], bool]:
        """A filter of events: owners see those of their slices, as long as they own them; others see all."""
        if principal.role == USER:
            return self._visible_to_user(principal)
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

    def _visible_to_user(self, principal: Token) -> Callable[[Any], bool]:
        """A user hears where the user has joined and left, as long as the token is the user's."""
        name = _as_principal(principal).user

        def mine(event: Any) -> bool:
            user = self._slicer.users.get(name)
            still = user is not None and user.token_sha256 == principal.token
            return still and event.kind.startswith("opt_in.") and event.document["user"] == name

        return mine

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, principal: Token, *path: str) -> Any:
        """What is there, as far as who asks may see it."""
        return self._in_loop(lambda: self._reads[path[0], len(path)](_as_principal(principal), *path[1:]))

    def _slices(self, principal: Principal) -> list[Document]:
        model = self._slicer.model
        if principal.user:
            return [{"name": each.name} for each in model.slices.values() if open_to(each, principal.user)]
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

    def _opt_ins(self, principal: Principal) -> list[Document]:
        """For users, the slices that they may join or have; for others, who has joined theirs."""
        model, users = self._slicer.model, self._slicer.users
        if principal.user in users:
            user = users[principal.user]
            return [opt_in_document(e, user) for e in model.slices.values() if open_to(e, user.name)]
        seen = delegation.visible(model, principal)
        return [
            opt_in_document(each, users[one.user])
            for each in model.slices.values()
            for one in each.members
            if each.name in seen and one.user in users
        ]

    def _opt_in(self, principal: Principal, name: str, user: str) -> Document:
        each, who = joining(self._slicer.seen(), principal, name, user)
        return opt_in_document(each, who)

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
            if path[0] == "opt-ins":
                self._check_pace(principal)
                work = partial(joined_or_left, who, method, (path[1], path[2]), document)
            else:
                work = partial(self._edited, who, method, path[1:], document)
            return self._answer(self._put_in_force(work, wait=wait))
        except (NotAllowedError, ForbiddenError, SliceConflictError, AllocationError) as error:
            name = path[1] if len(path) > 1 else ""
            told = {"slice": name, "by": principal.name.lstrip("\0"), "reason": str(error)[:500]}
            self._loop.call_soon_threadsafe(self._slicer.events.publish, "change.refused", told)
            may_not = isinstance(error, NotAllowedError | ForbiddenError)
            raise (ForbiddenError if may_not else ConflictError)(str(error)) from error

    def _edited(
        self, principal: Principal, method: str, path: tuple[str, ...], document: Any, seen: Seen
    ) -> SliceModel:
        """Other slices, with those of the users of now who fit them."""
        model = seen.model.declared
        found = edit(model, principal, method, path, document)
        if PRODUCTION in found.remove:
            raise ConflictError(f"{PRODUCTION} is always there")
        delegation.check(model, principal, found.put, found.remove, self._allowed)
        new = found.model if found.model is not None else changed(model, found.put, found.remove)[0]
        return seated(new, requests_of(seen.model), seen.users, seen.model)[0]

    def _put_in_force(self, work: Callable[[Seen], SliceModel], *, wait: bool) -> Outcome:
        """The slices that a change makes of those of now; made again if somebody was faster."""
        for _ in range(TRIES):
            seen = self._slicer.seen()
            try:
                return self._await(self._slicer.become(work(seen), seen, wait=wait))
            except StaleError:
                continue
        raise TooBusyError("others change slices all the time")

    def _check_pace(self, principal: Token) -> None:
        """Each change of a user's costs all switches some rules: nobody joins and leaves all the time."""
        wait_s = self._pace.take(principal.name, time.monotonic()) if principal.role == USER else 0.0
        if wait_s:
            raise TooOftenError("too many changes", wait_s)

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
    if token.role == USER:
        return Principal(user=token.name.removeprefix(_OF_USER))
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
