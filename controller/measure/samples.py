"""Measurements of access points as the controller sees them: frozen, with units and times, and with their doubts.

A value that could not be measured is None. ``flags`` say what is wrong; who uses a sample that has any does so
knowingly. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError

MAX_LINE_BYTES = 1 << 20

# What can be wrong, and what it means for people.
FLAGS: Mapping[str, str] = {
    "stale": "the access point serves old values: it cannot read its radios",
    "frozen": "the access point answers, but its measurements do not move",
    "restarted": "the agent started anew: no differences for this interval",
    "clock": "the access point's clock went back, or runs far from ours",
    "busy-beyond-active": "the medium was busy for longer than it was observed",
    "down-but-sending": "the interface says that it is down, but it counts what it sends",
    "heard-while-down": "a neighbour is heard on an interface that says it is down",
    "beyond-capacity": "the interface sent more than any estimate allows",
    "no-such-interface": "the agent serves an interface that IF-MIB does not have",
    "openflow-disagrees": "OpenFlow's port counters say something else than IF-MIB",
}


class SampleError(HyroadsError):
    """A line that is not a sample."""


@dataclass(frozen=True, slots=True)
class NeighbourSample:
    """A neighbour on an interface. Capacities are estimates from modulation at L2 payload, None without one."""

    mac: str
    node: str
    tx_capacity_mbps: float | None
    rx_capacity_mbps: float | None
    tx_loss: float
    signal_dbm: int | None
    last_heard_ms: int
    modulation: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InterfaceSample:
    """An interface. ``busy_share`` is over ``busy_over_s``; the rates (whole frames, IF-MIB) over ``rate_over_s``."""

    index: int
    name: str
    technology: str
    medium: str
    up: bool | None
    busy_share: float | None
    busy_over_s: float
    in_mbps: float | None
    out_mbps: float | None
    rate_over_s: float
    neighbours: tuple[NeighbourSample, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSample:
    """What one poll of an access point gave. ``time_s`` is the collector's clock (CLOCK_MONOTONIC) at the answer."""

    target: str
    node: str
    time_s: float
    measured_s: float  # when the access point took its values, on the collector's clock
    interfaces: tuple[InterfaceSample, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Silence:
    """An access point that did not answer ``failures`` polls in a row; the next is after ``retry_s``."""

    target: str
    time_s: float
    failures: int
    retry_s: float
    reason: str


Event = NodeSample | Silence
_KINDS: Mapping[str, type[Event]] = {"sample": NodeSample, "silence": Silence}


def to_line(event: Event) -> bytes:
    """One line of JSON, for the pipe between collector and controller."""
    kind = next(name for name, known in _KINDS.items() if type(event) is known)
    return json.dumps({"type": kind, **asdict(event)}, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> Event:
    """The event of a line; :class:`SampleError` for anything else."""
    try:
        document = strict_json.parse(line[:MAX_LINE_BYTES])
        kind = _KINDS[document.pop("type")]
        if "interfaces" in document:
            document["interfaces"] = tuple(map(_interface, document["interfaces"]))
            document["flags"] = tuple(document["flags"])
        return kind(**document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SampleError(f"collector: expected a line with a sample: {error!r}") from error


def _interface(document: dict[str, Any]) -> InterfaceSample:
    neighbours = tuple(NeighbourSample(**{**n, "flags": tuple(n["flags"])}) for n in document["neighbours"])
    return InterfaceSample(**{**document, "neighbours": neighbours, "flags": tuple(document["flags"])})
