"""The service of reservations: minimum rates of flows and sessions. They are admitted if the airtime exists, and each
slot of the control loop allocates them first.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from hyroads.controller.control.sessions import airtime_per_mbps, finite
from hyroads.controller.core.checking import id_problem
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Policy
from hyroads.controller.core.rates import RateProblem
from hyroads.controller.core.reservation import (
    Answer,
    Reservations,
    SessionLoad,
    least_airtime,
    reserve_flow,
    reserve_session,
)
from hyroads.controller.core.services.sessions import rate
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.services.multicast.sessions import SessionService
from hyroads.controller.services.owners import ReservedLoad
from hyroads.controller.services.port import ControllerPort, pending_as_known
from hyroads.rest.contract import ConflictError, Document, NotConfirmedError, NotFoundError, TooBusyError

LOG = logging.getLogger("hyroads.reservations")
MAX_RESERVATIONS = 1024
MAX_DOMAINS_TOLD = 8
# What is short for a moment while rates follow a change is no news.
SHORT_FOR_S = 0.5
CONFIRM_S = 5.0
RATES = "rates"
"""Pending until the next slot has worked out rates with what was promised."""
MAX_WAITING = 4096


@dataclass(frozen=True, slots=True)
class Reservation:
    """A promise to a flow, or to every source of a session."""

    id: str
    flow: str | None
    session: str | None
    rate_mbps: float

    @property
    def subject(self) -> tuple[str | None, str | None]:
        """The flow or the session that it is for."""
        return self.flow, self.session


@dataclass
class _Waiting:
    """A reservation that was made, changed or released, and is not confirmed yet. ``agents`` have not confirmed the
    rates that follow from it; None: the next slot has not worked them out yet.
    """

    subject: tuple[str | None, str | None]
    agents: set[str] | None = None


class NotAdmittedError(ConflictError):
    """The airtime does not exist: what would be possible, and the domains that are full."""

    def __init__(self, what: str, rate_mbps: float, possible_mbps: float, domains: Sequence[Document]) -> None:
        missing = rate_mbps - possible_mbps
        self.details = {"possible_mbps": possible_mbps, "missing_mbps": missing, "domains": list(domains)}
        where = "; ".join(f"{domain['technology']} ({', '.join(domain['links'])})" for domain in domains)
        full = f"; no airtime is left on {where}" if where else ""
        super().__init__(f"{what}: {missing:.3g} of {rate_mbps:.3g} Mb/s are missing{full}")


@dataclass(eq=False)
class ReservationService:
    """One per controller. Reservations are served in the order in which they were made."""

    port: ControllerPort
    sessions: SessionService
    check_quotas: Callable[[str, ReservedLoad], None] = lambda name, load: None
    """Whether the owner of a reservation may have it with such a load; QuotaError."""

    def __post_init__(self) -> None:
        self._reservations: dict[str, Reservation] = {}
        self._short_since_s: dict[str, float] = {}
        self._short: dict[str, float] = {}
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()

    # -- the state file

    def restore(self, documents: object) -> list[ConfigError]:
        """Take in the reservations of an earlier controller; returns what is wrong with them."""
        problems = []
        for document in documents if isinstance(documents, list) else ():
            try:
                reservation = _parsed(document if isinstance(document, Mapping) else {}, "state file")
            except ConfigError as error:
                problems.append(error)
            else:
                self._reservations[reservation.id] = reservation
        self._tell()
        return problems

    def become(self, documents: object) -> list[ConfigError]:
        """Reservations are those that another controller, which leads, has saved; what is wrong with some of them."""
        self._reservations = {}
        self._waiting.clear()
        return self.restore(documents)

    def to_save(self) -> list[Document]:
        """What :meth:`restore` needs to go on from here."""
        return [asdict(reservation) for reservation in self._reservations.values()]

    def has(self, name: str) -> bool:
        """Whether there is a reservation of this id."""
        return name in self._reservations

    def names(self) -> Sequence[str]:
        """Ids of all reservations, the most important first."""
        return tuple(self._reservations)

    def documents(self, names: Sequence[str]) -> list[Document]:
        """The reservations of these ids; unknown ids are left out."""
        return [self.document(name) for name in names if name in self._reservations]

    def document(self, name: str) -> Document:
        """The reservation of this id; NotFoundError if there is none."""
        reservation = self._get(name)
        state, given = self._state(reservation)
        pending = pending_as_known(self.port, partial(self._unconfirmed, name))
        return {
            **asdict(reservation),
            "state": "activating" if pending and state == "kept" else state,
            "given_mbps": given,
            "pending": pending,
        }

    def reserve(self, document: Mapping[str, Any], *, wait: bool = True) -> tuple[Document, bool]:
        """The reservation, made if it is new, and whether it is. ConfigError, TooBusyError, ConflictError (e.g. not
        admitted), NotConfirmedError.
        """
        new = _parsed(document, "request")
        known = self._reservations.get(new.id)
        if known is not None:
            if known != new:
                raise ConflictError(f"reservation {new.id!r} exists with other content")
            self._confirm(new.id, wait=wait)
            return self.document(new.id), False
        self.port.saver.check()
        self._admit(new)
        self.port.events.publish("reservation.made", asdict(new))
        self._confirm(new.id, wait=wait)
        return self.document(new.id), True

    def change(self, name: str, document: Mapping[str, Any], *, wait: bool = True) -> Document:
        """Change the rate of a reservation; errors as of :meth:`reserve`, and NotFoundError."""
        old = self._get(name)
        new = _parsed({**asdict(old), **document}, "request")
        if new != old:
            self.port.saver.check()
            self._admit(new)
            self.port.events.publish("reservation.changed", asdict(new))
        self._confirm(name, wait=wait)
        return self.document(name)

    def release(self, name: str, *, wait: bool = True) -> None:
        """Release a reservation; NotFoundError, NotConfirmedError."""
        self._get(name)
        self.port.saver.check()
        self._put(name, None)
        self.port.events.publish("reservation.released", {"id": name})
        self._confirm(name, wait=wait)

    # -- what is confirmed

    def pending(self, name: str) -> list[str]:
        """What has not confirmed a reservation, its last change, or its end: switches and agents of its flow or
        session, and agents that do not send by the rates that follow from it yet. NotSavedError.
        """
        self.port.saver.check_refused(f"reservation {name}")
        return [*self._unconfirmed(name), *self.port.saver.unsaved]

    def waits(self) -> set[str]:
        """Switches and agents that have not confirmed what reservations want of them."""
        return {who for name in list(self._waiting) for who in self._unconfirmed(name)}

    def _unconfirmed(self, name: str) -> list[str]:
        waiting = self._waiting.get(name)
        if waiting is None:
            return []
        flow, session = waiting.subject
        found = {*self.port.unconfirmed([flow] if flow is not None else ())}
        if session is not None:
            found |= self.sessions.unconfirmed(session)
        if self.port.settled and self.port.live.keeps_guarantees:
            late = self.port.rates_unconfirmed()
            # Rates change all the time: who has confirmed some since then has confirmed these or later ones.
            waiting.agents = late if waiting.agents is None else waiting.agents & late
        found |= {RATES} if waiting.agents is None else waiting.agents
        if not found:
            del self._waiting[name]
        return sorted(found)

    def _confirm(self, name: str, *, wait: bool) -> None:
        within_s = CONFIRM_S if wait else 0.0
        if not wait_until(lambda: not self.pending(name), within_s, self.port.clock, self.port.progress):
            raise NotConfirmedError(f"reservation {name}", self.pending(name))

    def _get(self, name: str) -> Reservation:
        found = self._reservations.get(name)
        if found is None:
            raise NotFoundError(f"no reservation {name[:64]!r}")
        return found

    # -- admission

    def _admit(self, new: Reservation) -> None:
        others = [each for each in self._reservations.values() if each.id != new.id]
        for other in others:
            if other.subject == new.subject:
                raise ConflictError(f"reservation {other.id!r} is for the same")
        if len(others) >= MAX_RESERVATIONS:
            raise TooBusyError(f"there are {MAX_RESERVATIONS} reservations already")
        if not self.port.settled or self.port.plan is None:
            raise TooBusyError("the controller is starting; no rates are planned yet")
        if self.port.live.loop.options.mode != "solver":
            raise ConflictError("mode controller keeps no least rates")
        answer = self._asked(new, others)
        if not answer.admitted:
            what = f"reservation {new.id!r}"
            raise NotAdmittedError(what, new.rate_mbps, answer.possible_mbps, self._domains(answer.full))
        self.check_quotas(new.id, self._load(new, self._problem()))
        self._put(new.id, new)

    def _put(self, name: str, new: Reservation | None) -> None:
        """Set a reservation (None: remove it); returns once that is saved."""
        before = dict(self._reservations)
        change = self.port.saver.change(f"reservation {name}", partial(self._become, before))
        self._waiting[name] = _Waiting((new or before[name]).subject)
        self._waiting.move_to_end(name)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
        self._become({**before, name: new} if new is not None else {n: r for n, r in before.items() if n != name})
        self.port.saver.wait(change)

    def _become(self, reservations: Mapping[str, Reservation]) -> None:
        self._reservations = dict(reservations)
        self._tell()

    def _asked(self, new: Reservation, others: Sequence[Reservation]) -> Answer:
        problem = self._problem()
        flows = {each.flow: each.rate_mbps for each in others if each.flow is not None}
        promised = Reservations(flows, self._loads(new))
        if new.flow is not None:
            self._check_flow(new.flow)
            return reserve_flow(promised, problem, new.flow, new.rate_mbps)
        live, media = self.sessions.sessions.get(new.session or ""), self.sessions.media
        if live is None or media is None:
            raise ConfigError("request", "session", f"no session {(new.session or '')[:64]!r}")
        # What the session takes anyway is taken out of flows already; here it asks for a rate of its own.
        sessions = {name: load for name, load in promised.sessions.items() if not name.startswith(f"{live.spec.id}\0")}
        share = airtime_per_mbps(media, live)
        return reserve_session(Reservations(flows, sessions), problem, live.spec.id, new.rate_mbps, share)

    def _problem(self) -> RateProblem:
        """The current rate problem without sessions, less the airtime of others; all flows want what they can get."""
        loop = self.port.live.loop
        others = loop.state.external.per_link(self.port.clock())
        unlimited = np.full(loop.state.problem.layout.flow_count, np.inf)
        return loop.state.problem.changed(external=others, demand_mbps=unlimited)

    def _check_flow(self, flow: str) -> None:
        route = self.port.live.loop.routes.get(flow)
        if route is None:
            raise ConfigError("request", "flow", f"no flow {flow[:64]!r}")
        if route.reason is not None:
            raise ConflictError(f"flow {flow!r} has no multipath, so nobody paces it: {route.reason}")
        if route.spec.policy.learns or route.spec.policy is Policy.LATENCY:
            raise ConflictError(f"flow {flow!r} has policy {route.spec.policy.value}, which decides its rates")

    def loads(self) -> dict[str, ReservedLoad] | None:
        """What each reservation takes, by id; None: no rates are planned yet."""
        if not self.port.settled or self.port.plan is None:
            return None
        problem = self._problem() if self._reservations else None
        return {name: self._load(each, problem) for name, each in self._reservations.items() if problem is not None}

    def _load(self, reservation: Reservation, problem: RateProblem) -> ReservedLoad:
        """What a reservation takes: a flow the airtime of its cheapest path, a session that of all its trees."""
        mbps = reservation.rate_mbps
        nothing = np.zeros(problem.layout.link_count)
        if reservation.flow is not None:
            share = least_airtime(problem, reservation.flow)
            return ReservedLoad(mbps, nothing if share is None else mbps * share)
        live, media = self.sessions.sessions.get(reservation.session or ""), self.sessions.media
        if live is None or media is None:
            return ReservedLoad(mbps, nothing)
        return ReservedLoad(mbps * len(live.session.trees), mbps * airtime_per_mbps(media, live))

    def _loads(self, but: Reservation) -> dict[str, SessionLoad]:
        """What sessions take, by session and source: promised, declared or measured, whichever is most."""
        media = self.sessions.media
        if media is None:
            return {}
        promised = {each.session: each.rate_mbps for each in self._reservations.values() if each.id != but.id}
        loads = {}
        for name, live in self.sessions.sessions.items():
            least = max(live.spec.rate_mbps or 0.0, promised.get(name, 0.0))
            for source in live.session.trees:
                mbps = max(least, self.sessions.rates.get((name, source), 0.0))
                share = finite(media.domain_airtime(live.session.trees[source].links))
                loads[f"{name}\0{source}"] = SessionLoad(mbps, share)
        return loads

    def _domains(self, full: Sequence[int]) -> list[Document]:
        """Links whose domains are full, by technology."""
        links = self.port.context.network.links
        by_technology: dict[str, list[str]] = {}
        for index in full:
            by_technology.setdefault(links[index].technology, []).append(links[index].id)
        return [
            {"technology": technology, "links": names[:MAX_DOMAINS_TOLD]} for technology, names in by_technology.items()
        ]

    # -- allocation

    def _tell(self) -> None:
        reservations = self._reservations.values()
        self.port.live.loop.guarantee({each.flow: each.rate_mbps for each in reservations if each.flow is not None})
        self.sessions.promise({each.session: each.rate_mbps for each in reservations if each.session is not None})

    def _state(self, reservation: Reservation) -> tuple[str, float | None]:
        if reservation.session is not None:
            there = reservation.session in self.sessions.sessions
            return ("kept", reservation.rate_mbps) if there else ("idle", None)
        grant = self.port.live.loop.granted.get(reservation.flow or "")
        if grant is None:
            route = self.port.live.loop.routes.get(reservation.flow or "")
            is_carried = route is not None and route.reason is None
            # Until the next slot.
            return ("kept", reservation.rate_mbps) if is_carried else ("idle", None)
        # A flow that wants less than it was promised has all that it wants.
        return ("short", grant.given_mbps) if grant.is_short else ("kept", reservation.rate_mbps)

    def follow(self) -> None:
        """Called after slots: publishes which reservations fall short of their rate, and which no longer do."""
        for name in list(self._waiting):
            self._unconfirmed(name)
        if not (self._reservations or self._short or self._short_since_s):
            return
        now_s, granted = self.port.clock(), self.port.live.granted
        for name, reservation in self._reservations.items():
            grant = granted.get(reservation.flow or "")
            if grant is None or not grant.is_short:
                self._short_since_s.pop(name, None)
                if self._short.pop(name, None) is not None:
                    LOG.info("reservation %s has its full rate again", name)
                    self.port.events.publish("reservation.kept", {"id": name})
                continue
            since_s = self._short_since_s.setdefault(name, now_s)
            if name not in self._short and now_s - since_s >= SHORT_FOR_S:
                self._short[name] = grant.given_mbps
                LOG.warning("reservation %s: only %.2f Mb/s of its rate can be given", name, grant.given_mbps)
                told = {**asdict(reservation), "given_mbps": grant.given_mbps}
                self.port.events.publish("reservation.short", told)
        for gone in (self._short.keys() | self._short_since_s.keys()) - self._reservations.keys():
            self._short.pop(gone, None)
            self._short_since_s.pop(gone, None)


def _parsed(document: Mapping[str, Any], name: str) -> Reservation:
    what = id_problem(document.get("id"))
    if what:
        raise ConfigError(name, "id", f"expected {what}")
    flow, session = document.get("flow"), document.get("session")
    if (flow is None) == (session is None):
        raise ConfigError(name, "flow", "expected either a flow or a session")
    subject = flow if session is None else session
    if not isinstance(subject, str):
        raise ConfigError(name, "flow" if session is None else "session", "expected an id")
    mbps = rate(document.get("rate_mbps"), name)
    if mbps is None:
        raise ConfigError(name, "rate_mbps", "expected a rate")
    return Reservation(str(document["id"]), flow, session, mbps)
