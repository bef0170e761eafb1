"""Multi-homed clients that report to this controller: what each tells and is asked (docs/reference/clients.md).

A client's own daemon carries out what it is asked, and may refuse. A request counts as done once the daemon has said
so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily

from hyroads.controller.agents.clients import ClientEvent, ClientReport
from hyroads.controller.agents.sessions import GONE, NO_ANSWER, Session
from hyroads.controller.control.slots import Histogram
from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.pending_names import client_name
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.services.port import Publish
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, ValueRefusedError

LOG = logging.getLogger("hyroads.clients")
Document = dict[str, Any]
ANSWER_WITHIN_S = 15.0
"""A client may have to change its host's addresses and routes, and to ask a waypoint."""
CONFIRM_S = 5.0
MAX_MIGRATIONS = 1000
SAME_WITHIN_S = 5.0
"""An event and an answer of a client that are no further apart tell of one migration."""
EVENTS_PER_S, EVENTS_BURST = 20.0, 500.0
"""A client can't push the events of others out of the controller's memory."""
_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_MPTCP = "mptcp-"
"""Begins the ids of MPTCP connections."""
_BYTES_PER_MBIT = 1e6 / 8


@dataclass(slots=True)
class ClientRequest:
    """Something that a client was asked, and its answer. ``part`` names what its words are about."""

    client: str
    what: str
    part: str
    asked_s: float
    done: bool = False
    problem: str | None = None
    took_s: float | None = None

    def check(self) -> None:
        """Raise what went wrong: ValueRefusedError if the client refused, ConflictError if it could not be asked."""
        if self.problem in (GONE, NO_ANSWER):
            raise ConflictError(f"client {self.client}: {self.problem}")
        if self.problem is not None:
            raise ValueRefusedError(self.part, f"client {self.client} refused it: {self.problem}")

    def pending(self) -> list[str]:
        """What has not confirmed it; for the operations of the REST API."""
        self.check()
        return [] if self.done else [client_name(self.client)]


@dataclass(eq=False)
class _Client:
    """What is known of one client; ``requests`` are those that it has not answered yet."""

    session: Session | None = None
    report: ClientReport | None = None
    reported_s: float = 0.0
    policy: Document | None = None
    requests: int = 0
    migrations: deque[Document] = field(default_factory=lambda: deque(maxlen=MAX_MIGRATIONS))
    numbers: count[int] = field(default_factory=lambda: count(1))
    seconds: Histogram = field(default_factory=lambda: Histogram(_BOUNDS_S))
    events: TokenBucket = field(default_factory=lambda: TokenBucket(EVENTS_PER_S, EVENTS_BURST))
    events_left_out: int = 0


class MultihomedClients:
    """``clients`` are the ids that may connect. ``clock`` is monotonic, ``wall`` Unix time, both in seconds."""

    def __init__(
        self, clients: Sequence[str], publish: Publish, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._clients = {client: _Client() for client in clients}
        self._publish, self._clock, self._wall = publish, clock, wall
        self._progress = shim.Signal()

    def allow(self, clients: Iterable[str]) -> None:
        """Other clients may connect from now on; what is known of those that stay is kept. Those that may not are gone:
        their sessions have ended.
        """
        self._clients = {client: self._clients.get(client) or _Client() for client in clients}

    # -- agents.clients.ClientListener

    def client_up(self, session: Session) -> None:
        """A client has connected."""
        self._clients[session.node].session = session
        self._publish("client.connected", {"client": session.node, "program": session.hello.program})

    def client_down(self, session: Session) -> None:
        """A client is gone; what it told last is still shown, with its age."""
        known = self._clients[session.node]
        if known.session is session:
            known.session = None
            self._publish("client.disconnected", {"client": session.node})

    def client_report(self, session: Session, report: ClientReport) -> None:
        """How a client is."""
        known = self._clients[session.node]
        known.report, known.reported_s = report, self._clock()

    def client_policy(self, session: Session, policy: Document) -> None:
        """Which policy a client has now."""
        self._clients[session.node].policy = policy

    def client_event(self, session: Session, event: ClientEvent) -> None:
        """Something happened at a client."""
        known = self._clients[session.node]
        if not known.events.take(self._clock()):
            known.events_left_out += 1
            return
        if event.kind == "flow_migrated":
            self._note_migration(session.node, event)
        else:
            self._publish_event(session.node, event)

    def _publish_event(self, client: str, event: ClientEvent) -> None:
        told = {key: value for key, value in asdict(event).items() if value is not None and key != "kind"}
        if "old_interface" in told:
            told["from"] = told.pop("old_interface")
        self._publish(f"client.{event.kind}", {"client": client, **told})

    def _note_migration(self, client: str, event: ClientEvent, *, asked: bool = False) -> None:
        """A flow goes by another interface: the client tells, or confirms what it was asked. Often it does both."""
        known, now = self._clients[client], self._wall()
        for one in reversed(known.migrations):
            if now - one["at"] > SAME_WITHIN_S:
                break
            if (one["flow"], one["interface"]) == (event.flow, event.interface) and one["asked"] != asked:
                one.update(asked=True, name=one["name"] or event.name)
                return
        if event.took_s is not None:
            known.seconds.add(event.took_s)
        known.migrations.append(
            {
                "id": str(next(known.numbers)),
                "flow": event.flow,
                "name": event.name,
                "from": event.old_interface,
                "interface": event.interface,
                "at": now,
                "took_s": event.took_s,
                "asked": asked,
            }
        )
        self._publish_event(client, event)

    # -- rest.multihomed.Multihomed

    def ids(self) -> Sequence[str]:
        """All clients that may connect."""
        return tuple(self._clients)

    def summary(self, client: str) -> Document | None:
        """What the list of clients shows of one; None if it is none of these."""
        known = self._clients.get(client)
        if known is None:
            return None
        mode = None if known.report is None else known.report.mode
        return {"connected": known.session is not None, "mode": mode, **self._age(known)}

    def policy(self, client: str) -> Document:
        """The policy that a client told last; NotFoundError, ConflictError if it never told one."""
        known = self._known(client)
        if known.policy is None:
            raise ConflictError(f"client {client} has not told its policy: it is not connected")
        return known.policy

    def interfaces(self, client: str) -> Document:
        """A client's interfaces and clusters; NotFoundError, ConflictError."""
        known = self._known(client)
        report = self._report(client, known)
        return {
            "client": client,
            "connected": known.session is not None,
            **self._age(known),
            "mode": report.mode,
            "interfaces": [asdict(each) for each in report.interfaces],
            "clusters": [
                {"flows": list(each.flows), "interfaces": list(each.interfaces), "level_mbps": each.level_mbps}
                for each in report.clusters
            ],
        }

    def connections(self, client: str) -> list[Document]:
        """A client's flows, the busiest if there are many, and its MPTCP connections; NotFoundError, ConflictError."""
        report = self._report(client, self._known(client))
        nothing = {"flow": None, "interface": None, "rate_mbps": None, "level_mbps": None}
        flows = [
            {**asdict(flow), "id": str(flow.id), "kind": "flow", "flow": flow.id, "mode": None, "subflows": None}
            for flow in report.flows
        ]
        return flows + [
            {
                "id": f"{_MPTCP}{each.token}",
                "kind": "mptcp",
                **nothing,
                "migrations": None,
                "name": each.name,
                "mode": each.mode,
                "subflows": each.subflows,
            }
            for each in report.mptcp
        ]

    def migrations(self, client: str) -> list[Document]:
        """The latest migrations of a client's flows, oldest first; NotFoundError."""
        return list(self._known(client).migrations)

    def set_policy(self, client: str, policy: Mapping[str, Any]) -> ClientRequest:
        """Ask a client to use another policy; NotFoundError, ConflictError if it is not connected."""
        return self._ask(client, {"type": "client-policy", "policy": dict(policy)}, "policy")

    def set_mode(self, client: str, mode: str, flow: str | None, connection: str | None = None) -> ClientRequest:
        """Ask a client to choose another mode, for all its flows, for those of one name, or for one MPTCP connection by
        its id; errors as before.
        """
        message = {"type": "client-mode", "mode": mode, "flow": flow}
        if connection is not None:
            message["connection"] = connection.removeprefix(_MPTCP)
        return self._ask(client, message, "mode")

    def migrate(self, client: str, flow: int, interface: str) -> ClientRequest:
        """Ask a client to move a flow to another interface; errors as before."""
        report = self._known(client).report
        before = next((each for each in report.flows if each.id == flow), None) if report is not None else None

        def moved(request: ClientRequest) -> None:
            name, old = (None, None) if before is None else (before.name, before.interface)
            event = ClientEvent("flow_migrated", interface, flow, name, old, request.took_s)
            self._note_migration(client, event, asked=True)

        return self._ask(client, {"type": "client-migrate", "flow": flow, "interface": interface}, "migration", moved)

    def waits(self) -> set[str]:
        """Clients that have not answered a request."""
        return {client_name(client) for client, known in self._clients.items() if known.requests}

    def wait(self, request: ClientRequest) -> None:
        """Wait for a client's answer; raises what :meth:`ClientRequest.check` does, and NotConfirmedError."""
        wait_until(lambda: request.done, CONFIRM_S, self._clock, self._progress)
        if pending := request.pending():
            raise NotConfirmedError(request.what, pending)

    def _ask(
        self,
        client: str,
        message: Document,
        part: str,
        then: Callable[[ClientRequest], None] = lambda _: None,
    ) -> ClientRequest:
        known = self._known(client)
        session = known.session
        if session is None:
            raise ConflictError(f"client {client} is not connected")
        request = ClientRequest(client, f"{part} of client {client}", part, self._clock())
        known.requests += 1

        def answered(problem: str | None) -> None:
            known.requests -= 1
            request.done, request.problem = True, problem
            request.took_s = self._clock() - request.asked_s
            if problem is None:
                then(request)
            LOG.info("client %s: %s %s", client, part, "confirmed" if problem is None else f"failed: {problem}")
            self._progress.notify()

        session.request(message, answered, within_s=ANSWER_WITHIN_S)
        return request

    def _known(self, client: str) -> _Client:
        known = self._clients.get(client)
        if known is None:
            raise NotFoundError(f"there is no multi-homed client {client[:64]!r}")
        return known

    def _report(self, client: str, known: _Client) -> ClientReport:
        if known.report is None:
            raise ConflictError(f"client {client} has not reported: it is not connected")
        return known.report

    def _age(self, known: _Client) -> Document:
        age_s = None if known.report is None else max(0.0, self._clock() - known.reported_s)
        return {"reported_s": age_s}

    # -- metrics

    def metrics(self) -> Iterator[Any]:
        """What connected clients told last, and how long migrations took, for Prometheus."""
        rate = Gauge(
            "hyroads_client_interface_bytes_per_second",
            "What a client's interface carries",
            labels=("client", "interface", "direction"),
        )
        queue = Gauge(
            "hyroads_client_queue_packets", "Packets that wait for a client's interface", labels=("client", "interface")
        )
        subflows = Gauge(
            "hyroads_client_mptcp_subflows", "Subflows of a client's MPTCP connections", labels=("client",)
        )
        fetched = Gauge(
            "hyroads_fetch_bytes_per_second", "What downloads take over an interface", labels=("client", "interface")
        )
        seconds = HistogramMetricFamily(
            "hyroads_client_migration_seconds", "How long migrations of a client's flows took", labels=("client",)
        )
        for client, known in self._clients.items():
            seconds.add_metric((client,), known.seconds.cumulative(), known.seconds.total_s)
            if known.report is None or known.session is None:
                continue
            for each in known.report.interfaces:
                rate.add_metric((client, each.name, "sent"), each.sent_mbps * _BYTES_PER_MBIT)
                if each.received_mbps is not None:
                    rate.add_metric((client, each.name, "received"), each.received_mbps * _BYTES_PER_MBIT)
                queue.add_metric((client, each.name), each.queue_packets)
            subflows.add_metric((client,), sum(each.subflows for each in known.report.mptcp))
            for name, mbps in known.report.fetched_mbps.items():
                fetched.add_metric((client, name), mbps * _BYTES_PER_MBIT)
        yield from (rate, queue, subflows, fetched, seconds)
