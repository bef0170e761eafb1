"""What multi-homed clients tell the controller (docs/reference/clients.md, *Multi-homed clients*): messages -> checked
values.

A client is a laptop or a phone of anybody who was given a token: all that comes from it is hostile until it was checked
here. It can speak for itself only, because a session's client is the one whose token its hello had.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hyroads.controller.core.network import ClientMode
from hyroads.controller.core.token_bucket import TokenBucket

from .protocol import ProtocolError
from .sessions import Session

REPORT_MS = 1000
DEAD_S = 5.0
"""A client that was silent for so long is not connected any more: its networks may be slow, or change."""
MAX_INTERFACES, MAX_FLOWS, MAX_CLUSTERS, MAX_MPTCP, MAX_FETCHED = 16, 256, 256, 256, 16
MAX_POLICY_BYTES = 256 << 10
ALLOWED_BYTES_PER_S, ALLOWED_BURST_BYTES = 256 << 10, 2 << 20
MODES = tuple(mode.value for mode in ClientMode)
EVENTS = (
    "interface_up",
    "interface_down",
    "interface_alive",
    "interface_dead",
    "interface_capped",
    "flow_migrated",
    "waypoint_lost",
    "waypoint_back",
)
_MOST = 1e12
_MOST_ID = 2**53
_MOST_TEXT = 64

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InterfaceReport:
    """An interface of a client. ``at`` is the gateway there; rates in Mb/s, None if not known; ``month_gib`` is what it
    carried in this month, in GiB.
    """

    name: str
    up: bool
    at: str | None
    metered: bool
    rate_mbps: float | None
    sent_mbps: float
    received_mbps: float | None
    queue_packets: int
    month_gib: float | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class FlowReport:
    """A flow of a client: ``name`` is that of its policy's rule, ``level_mbps`` its rate divided by its weight."""

    id: int
    name: str
    interface: str | None
    rate_mbps: float
    level_mbps: float
    migrations: int


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Flows of one level, Mb/s (None: they send all they have), and the interfaces that serve them."""

    flows: tuple[int, ...]
    interfaces: tuple[str, ...]
    level_mbps: float | None


@dataclass(frozen=True, slots=True)
class MptcpReport:
    """An MPTCP connection, by its token, and how many subflows it has; ``name`` is that of its policy's flow. An older
    client does not tell name and mode.
    """

    token: str
    subflows: int
    name: str | None = None
    mode: str | None = None


@dataclass(frozen=True)
class ClientReport:
    """How a client is now. Of many flows it tells the busiest; ``flow_count`` is how many there are."""

    mode: str
    interfaces: tuple[InterfaceReport, ...] = ()
    flows: tuple[FlowReport, ...] = ()
    flow_count: int = 0
    clusters: tuple[ClusterReport, ...] = ()
    mptcp: tuple[MptcpReport, ...] = ()
    fetched_mbps: Mapping[str, float] = field(default_factory=dict)
    """What downloads take over each interface."""


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """Something that happened at a client: one of ``EVENTS``. ``took_s`` is how long a migration took."""

    kind: str
    interface: str | None = None
    flow: int | None = None
    name: str | None = None
    old_interface: str | None = None
    took_s: float | None = None


class ClientListener(Protocol):
    """Who wants to know of multi-homed clients."""

    def client_up(self, session: Session) -> None:
        """A client has connected; ``session.node`` is its id."""

    def client_down(self, session: Session) -> None:
        """It is gone."""

    def client_report(self, session: Session, report: ClientReport) -> None:
        """How it is."""

    def client_event(self, session: Session, event: ClientEvent) -> None:
        """Something happened there."""

    def client_policy(self, session: Session, policy: Document) -> None:
        """Its policy, when it connects and whenever it is another."""


@dataclass(frozen=True)
class ClientAccess:
    """Which clients may connect, by id, with their tokens, and who listens."""

    listener: ClientListener
    tokens: Mapping[str, str] = field(repr=False)

    def handlers(self) -> Mapping[str, Callable[[Session, Document], None]]:
        """By type of message, what is done with it; raises :class:`ProtocolError`."""
        listener = self.listener
        return {
            "client-report": lambda session, message: listener.client_report(session, parse_report(message)),
            "client-event": lambda session, message: listener.client_event(session, parse_event(message)),
            "client-policy": lambda session, message: listener.client_policy(session, parse_policy(message)),
        }


def allowance() -> TokenBucket:
    """What one client may send."""
    return TokenBucket(ALLOWED_BYTES_PER_S, ALLOWED_BURST_BYTES)


def parse_report(message: Mapping[str, Any]) -> ClientReport:
    """The message ``client-report``; :class:`ProtocolError`."""
    status = _object(message.get("status"), "status")
    told = status.get("interfaces", {})
    if not isinstance(told, dict) or len(told) > MAX_INTERFACES:
        raise ProtocolError(f"client-report.interfaces is not an object of at most {MAX_INTERFACES}")
    flows = tuple(_flow(each) for each in _list(status, "flows", MAX_FLOWS))
    if len({flow.id for flow in flows}) != len(flows):
        raise ProtocolError("client-report.flows has an id twice")
    fetched = _object(status.get("fetch", {}), "fetch")
    if len(fetched) > MAX_FETCHED:
        raise ProtocolError(f"client-report.fetch has more than {MAX_FETCHED} interfaces")
    return ClientReport(
        _mode(status.get("mode")),
        tuple(_interface(_text(name, "interfaces"), _object(each, "interfaces")) for name, each in told.items()),
        flows,
        max(len(flows), _whole(status.get("flow_count", len(flows)), "flow_count")),
        tuple(_cluster(each) for each in _list(status, "clusters", MAX_CLUSTERS)),
        tuple(_mptcp(each) for each in _list(status, "mptcp", MAX_MPTCP)),
        {_text(name, "fetch"): _number(mbps, "fetch") for name, mbps in fetched.items()},
    )


def parse_event(message: Mapping[str, Any]) -> ClientEvent:
    """The message ``client-event``; :class:`ProtocolError`."""
    kind = message.get("event")
    if kind not in EVENTS:
        raise ProtocolError("client-event.event is none that there is")
    flow, took_s = message.get("flow"), message.get("took_s")
    if kind == "flow_migrated" and (flow is None or message.get("interface") is None):
        raise ProtocolError("client-event: a migration has a flow and an interface")
    return ClientEvent(
        kind,
        _text_or_none(message.get("interface"), "interface"),
        None if flow is None else _whole(flow, "flow"),
        _text_or_none(message.get("name"), "name"),
        _text_or_none(message.get("from"), "from"),
        None if took_s is None else _number(took_s, "took_s"),
    )


def parse_policy(message: Mapping[str, Any]) -> Document:
    """The policy of the message ``client-policy``, as the client has it; :class:`ProtocolError`. Only its size is
    checked: it is shown to people and programs, nothing here is done by it.
    """
    policy = _object(message.get("policy"), "policy")
    if len(json.dumps(policy)) > MAX_POLICY_BYTES:
        raise ProtocolError(f"client-policy.policy has more than {MAX_POLICY_BYTES} bytes")
    return policy


def _interface(name: str, told: Document) -> InterfaceReport:
    return InterfaceReport(
        name,
        _flag(told, "up"),
        _text_or_none(told.get("at"), "at"),
        _flag(told, "metered"),
        _number_or_none(told, "rate_mbps"),
        _number(told.get("sent_mbps", 0.0), "sent_mbps"),
        _number_or_none(told, "received_mbps"),
        _whole(told.get("queue_packets", 0), "queue_packets"),
        _number_or_none(told, "month_gib"),
        _text_or_none(told.get("problem"), "problem", 200),
    )


def _flow(told: Document) -> FlowReport:
    return FlowReport(
        _whole(told.get("id"), "flows.id"),
        _text(told.get("name"), "flows.name"),
        _text_or_none(told.get("interface"), "flows.interface"),
        _number(told.get("rate_mbps", 0.0), "flows.rate_mbps"),
        _number(told.get("level_mbps", 0.0), "flows.level_mbps"),
        _whole(told.get("migrations", 0), "flows.migrations"),
    )


def _cluster(told: Document) -> ClusterReport:
    flows, interfaces = told.get("flows", []), told.get("interfaces", [])
    bounded = isinstance(flows, list) and len(flows) <= MAX_FLOWS and isinstance(interfaces, list)
    if not bounded or len(interfaces) > MAX_INTERFACES:
        raise ProtocolError("client-report.clusters: expected lists of flows and interfaces")
    return ClusterReport(
        tuple(_whole(flow, "clusters.flows") for flow in flows),
        tuple(_text(name, "clusters.interfaces") for name in interfaces),
        _number_or_none(told, "level_mbps"),
    )


def _mptcp(told: Document) -> MptcpReport:
    token, subflows = told.get("token"), told.get("subflows")
    count = len(subflows) if isinstance(subflows, list) else subflows
    return MptcpReport(
        _text(str(token) if isinstance(token, int) else token, "mptcp.token"),
        _whole(count, "subflows"),
        _text_or_none(told.get("name"), "mptcp.name"),
        None if told.get("mode") is None else _mode(told["mode"]),
    )


def _object(value: Any, key: str) -> Document:
    if not isinstance(value, dict):
        raise ProtocolError(f"client: {key} is not an object")
    return value


def _list(status: Document, key: str, most: int) -> list[Document]:
    values = status.get(key, [])
    if not isinstance(values, list) or len(values) > most or not all(isinstance(each, dict) for each in values):
        raise ProtocolError(f"client-report.{key} is not a list of at most {most} objects")
    return values


def _mode(value: Any) -> str:
    if value not in MODES:
        raise ProtocolError("client-report.mode is none that there is")
    return str(value)


def _flag(told: Document, key: str) -> bool:
    value = told.get(key, False)
    if not isinstance(value, bool):
        raise ProtocolError(f"client-report.{key} is not true or false")
    return value


def _text(value: Any, key: str, longest: int = _MOST_TEXT) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise ProtocolError(f"client: {key} is not text of 1 to {longest} characters")
    return value


def _text_or_none(value: Any, key: str, longest: int = _MOST_TEXT) -> str | None:
    return None if value is None else _text(value, key, longest)


def _whole(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_ID:
        raise ProtocolError(f"client: {key} is not a whole number")
    return value


def _number(value: Any, key: str) -> float:
    # Neither NaN nor infinity is between these bounds.
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ProtocolError(f"client: {key} is not a number from 0 on")
    return float(value)


def _number_or_none(told: Document, key: str) -> float | None:
    return None if told.get(key) is None else _number(told[key], key)
