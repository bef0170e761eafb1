"""Who is told what agents and access points say (:mod:`.server`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hyroads.controller.core.port_readings import PortReading

from .al_devices import AlDevices
from .changes import DecodedReports
from .sessions import Session
from .telemetry import (
    AuthenticationEvent,
    Bss,
    DecodedReadings,
    RadioReport,
    StationEvent,
    TransitionAnswer,
)


class Listener(Protocol):
    """Who wants to know of agents."""

    def agent_up(self, session: Session) -> None:
        """An agent joined; its first report, if it has one, was given before."""

    def agent_down(self, session: Session) -> None:
        """An agent that had joined is gone."""

    def agent_links(self, session: Session, up: Mapping[str, bool]) -> None:
        """What an agent says of its inbound links."""

    def agent_ports(self, session: Session, ports: Collection[PortReading]) -> None:
        """What an agent read from ports of its node; those that are missing have no interface there."""

    def agent_report(self, session: Session, report: Mapping[str, Any]) -> None:
        """Counters."""

    def agent_reports(self, reports: DecodedReports) -> None:
        """Counters of several agents at once, of each at most one report; none of them is in parts."""

    @property
    def is_starting(self) -> bool:
        """Whether so many devices come back that what they report is of less use than that all of them are heard."""

    def agent_misbehaved(self, peer: str, what: str) -> None:
        """A line that the protocol does not allow, a wrong token, too many connections."""


class RadioListener(Protocol):
    """Who wants to know what radios read."""

    def radio_up(self, session: Session) -> None:
        """An access point's radios are connected; ``session.read()`` asks for a reading at once."""

    def radio_down(self, session: Session) -> None:
        """They are gone."""

    def radio_report(self, session: Session, report: RadioReport) -> None:
        """A reading."""

    def radio_devices(self, session: Session, devices: AlDevices) -> None:
        """All devices near it that speak IEEE 1905.1."""

    def radio_readings(self, readings: DecodedReadings) -> None:
        """Readings of several at once, of each at most one."""


class Stations(Protocol):
    """Who wants to know what access points say of their stations; by node."""

    def station(self, node: str, event: StationEvent) -> None:
        """A station joined, left, or is heard otherwise."""

    def bss(self, node: str, bss: Bss) -> None:
        """An access point's own entry."""

    def authentication(self, node: str, event: AuthenticationEvent) -> None:
        """What an access point says of 802.1X: a station was rejected, or what became of a RADIUS server."""

    def gone(self, node: str) -> None:
        """An access point's session ended: it tells nothing any more."""

    def answered(self, node: str, answer: TransitionAnswer) -> None:
        """A station answered a request to go elsewhere."""


@dataclass(frozen=True)
class Radios:
    """Which nodes may speak as radios, how often they shall read, and who listens."""

    listener: RadioListener
    stations: Stations
    nodes: frozenset[str]
    interval_ms: int
