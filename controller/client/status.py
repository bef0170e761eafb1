"""What ``hyroads client status`` says, from what ``hyroads-client`` counts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.fair.maxmin import Flow, Shares, allocate

from .modes import Modes, flow_name
from .policy import Policy
from .usage import GIB, Usage

Document = dict[str, Any]
MOST_SHARED = 256
"""Flows, the busiest ones, of which clusters are worked out."""
_LEAST_S = 0.2


class Meter:
    """Rates, Mb/s, from successive statuses of the program; times are monotonic seconds."""

    def __init__(self) -> None:
        self.status: Document = {}
        self._at_s = 0.0
        self._counted: dict[tuple[str, object, str], int] = {}
        self._mbps: dict[tuple[str, object, str], float] = {}

    def add(self, status: Document, now_s: float) -> None:
        """A new status. Counters that went down began anew; too soon after the last one the rates stay."""
        counted = {
            (kind, each.get(name), counter): int(each.get(counter, 0))
            for kind, name in (("interfaces", "name"), ("flows", "id"))
            for each in status.get(kind, [])
            for counter in ("sent_bytes", "received_bytes")
        }
        passed_s = now_s - self._at_s
        self.status = status
        if passed_s < _LEAST_S:
            return
        self._mbps = {key: _mbps(self._counted.get(key, value), value, passed_s) for key, value in counted.items()}
        self._counted, self._at_s = counted, now_s

    def mbps(self, kind: str, name: object, counter: str) -> float:
        """The rate of a counter of an interface or flow between the last two statuses."""
        return self._mbps.get((kind, name, counter), 0.0)


def _mbps(before: int, now: int, passed_s: float) -> float:
    return (now - before if now >= before else now) * 8e-6 / passed_s


@dataclass(frozen=True, slots=True)
class Facts:
    """What the daemon knows besides the program's status: by interface the attachment point (the gateway, where nothing
    better is known); what interfaces carried, and those whose cap is used up; the waypoint, if the policy has one;
    ``time_s`` is seconds since 1970; ``mptcp`` are the MPTCP connections.
    """

    policy: Policy
    modes: Modes
    usage: Usage
    used_up: Collection[str]
    time_s: float
    at: Mapping[str, str | None]
    waypoint: Document | None = None
    restarts: int = 0
    mptcp: Sequence[Document] = ()


def document(meter: Meter, facts: Facts) -> Document:
    """The status as one JSON document (docs/reference/client.md)."""
    policy, modes = facts.policy, facts.modes
    told = {each.get("name"): each for each in meter.status.get("interfaces", [])}
    flows = [_flow(meter, each) for each in meter.status.get("flows", [])]
    return {
        "type": "status",
        "mode": modes.client or policy.mode,
        "flow_modes": dict(modes.flows),
        "interfaces": {name: _interface(name, told.get(name), meter, facts) for name in policy.interfaces},
        "flows": flows,
        "clusters": clusters(policy, meter, flows),
        "mptcp": list(facts.mptcp),
        "waypoint": facts.waypoint,
        "counters": meter.status.get("counters", {}),
        "program": {key: meter.status.get(key) for key in ("program", "uptime_s")} | {"restarts": facts.restarts},
    }


def _interface(name: str, told: Document | None, meter: Meter, facts: Facts) -> Document:
    declared, known = facts.policy.interfaces[name], told or {}
    problem = None
    if name in facts.used_up:
        problem = f"the cap of {declared.cap_gib_month:g} GiB is used up until the month (UTC) ends"
    elif not known.get("up"):
        problem = "not there" if not known else "down"
    elif known.get("alive") is False:
        problem = "the waypoint does not answer over it"
    elif not known.get("usable", True):
        problem = "not usable"
    return {
        "up": bool(known.get("up")) and bool(known.get("carrier", True)),
        "at": facts.at.get(name),
        "metered": declared.metered,
        "rate_mbps": known.get("rate_mbps", declared.rate_mbps),
        "sent_mbps": _rounded(meter.mbps("interfaces", name, "sent_bytes")),
        "received_mbps": _rounded(meter.mbps("interfaces", name, "received_bytes")),
        "queue_packets": known.get("queue_packets", 0),
        "month_gib": _rounded(facts.usage.used_bytes(name, facts.time_s) / GIB),
        "cap_gib_month": declared.cap_gib_month,
        "problem": problem,
    }


def _flow(meter: Meter, told: Document) -> Document:
    rate = meter.mbps("flows", told.get("id"), "sent_bytes")
    weight = told.get("weight") or 1.0
    shown = ("source", "destination", "protocol", "via", "queue_packets", "dropped_packets")
    return {
        "id": told.get("id"),
        "name": flow_name(str(told.get("rule") or "")),
        "interface": told.get("interface"),
        "interfaces": told.get("interfaces", []),
        "rate_mbps": _rounded(rate),
        "received_mbps": _rounded(meter.mbps("flows", told.get("id"), "received_bytes")),
        "level_mbps": _rounded(rate / weight),
        "weight": weight,
        "migrations": told.get("migrations", 0),
        **{key: told.get(key) for key in shown},
    }


def clusters(policy: Policy, meter: Meter, flows: Sequence[Document]) -> list[Document]:
    """Flows of one level with the interfaces that serve them: the fair shares of what interfaces carry now among the
    flows that have packets waiting (Yap 2013, Theorem 4). Flows that send all they have take what they send.
    """
    sent = {name: meter.mbps("interfaces", name, "sent_bytes") for name in policy.interfaces}
    busy = sorted((flow for flow in flows if flow["rate_mbps"] > 0), key=lambda flow: -flow["rate_mbps"])[:MOST_SHARED]
    shares: dict[str, Flow] = {}
    for flow in busy:
        accepted = frozenset(flow["interfaces"] or [flow["interface"]]) & sent.keys()
        if accepted:
            demand = None if flow["queue_packets"] else flow["rate_mbps"]
            shares[str(flow["id"])] = Flow(float(flow["weight"]), accepted, demand)
    found = allocate(Shares(sent, shares)).clusters
    return [
        {
            "flows": [int(flow) for flow in each.flows],
            "interfaces": list(each.interfaces),
            "level_mbps": None if each.level_mbps is None else _rounded(each.level_mbps),
        }
        for each in found
    ]


def _rounded(value: float) -> float:
    return round(value, 6)
