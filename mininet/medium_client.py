"""Client of the control socket of `hyroads-medium`, the shared-medium emulator (docs/reference/dataplane.md, section
3).

Synchronous: one request, one reply. All rates are Mb/s at L2 payload, shares of time are fractions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.mininet.line_socket import LineClient, reason

MAX_REPLY_BYTES = 16 << 20


class MediumError(HyroadsError):
    """The emulator refused a request, or could not be reached."""


@dataclass(frozen=True)
class LinkStats:
    """One link since the last reset."""

    id: str
    up: bool
    capacity_mbps: float
    frames: int  # arrived
    bytes: int  # L2 payload of those
    dropped: int  # queue full, link down, or waiting when it was cut
    lost: int  # sent, but did not arrive
    collisions: int  # transmissions that collided
    airtime: float  # share of time that the link itself was sending, collisions included
    busy: float  # share of time that any link of its domain was sending
    queued: int  # waiting now
    queue_delay_ms: float  # mean wait of the frames that were sent


@dataclass(frozen=True)
class BroadcastStats:
    """Group frames that left a port since the last reset."""

    frames: int  # sent
    copies: int  # arrived
    bytes: int  # L2 payload of those copies
    dropped: int
    lost: int  # copies that did not arrive
    airtime: float
    queued: int


@dataclass(frozen=True)
class PortStats:
    """One port since the last reset."""

    name: str
    received_frames: int  # from the host
    sent_frames: int  # to the host
    refused: int  # the host had no room
    unknown: int  # no link leads to the destination
    broadcast: BroadcastStats | None  # None: no link leaves the port
    busy: float | None = None  # share of time that it sent or heard somebody; None: it has no ears


@dataclass(frozen=True)
class TotalStats:
    """Sums over all links (without broadcast) and ports since the last reset."""

    received: int
    unknown: int
    frames: int
    bytes: int
    dropped: int
    lost: int
    queued: int
    in_flight: int


@dataclass(frozen=True)
class WokenLate:
    """How late the machine woke a program since its counters were reset: the worst, and by how much all wake-ups later
    than 5, 20 and 100 ms were late, together."""

    max_ms: float
    over_5_ms_s: float
    over_20_ms_s: float
    over_100_ms_s: float


@dataclass(frozen=True)
class MediumStats:
    """All counters; `links` and `ports` by identifier, in the order of the configuration."""

    elapsed_s: float
    links: Mapping[str, LinkStats]
    ports: Mapping[str, PortStats]
    total: TotalStats
    lateness_max_ms: float
    woken_late: WokenLate
    cpu_s: float

    def rate_mbps(self, link: str) -> float:
        """Mean L2 payload rate that arrived over a link since the last reset."""
        return self.links[link].bytes * 8e-6 / self.elapsed_s if self.elapsed_s > 0 else 0.0


class MediumClient(LineClient):
    """A connection to a running emulator; usable as a context manager."""

    what = "medium"
    failure = MediumError
    max_line_bytes = MAX_REPLY_BYTES

    def _answers(self) -> None:
        self.ping()

    def ping(self) -> None:
        """Return once the emulator has answered."""
        self._request({"op": "ping"})

    def reset(self) -> None:
        """Start all counters anew."""
        self._request({"op": "reset"})

    def set_link(
        self,
        link: str,
        *,
        capacity_mbps: float | None = None,
        delay_ms: float | None = None,
        loss: float | None = None,
        up: bool | None = None,
    ) -> None:
        """Change a link at once; what is None stays. On an error nothing has changed."""
        changes = {"capacity_mbps": capacity_mbps, "delay_ms": delay_ms, "loss": loss, "up": up}
        given = {key: value for key, value in changes.items() if value is not None}
        self._request({"op": "set", "link": link, **given})

    def set_uplink(self, port: str, to: str | None) -> None:
        """Send everything from `port` to the port `to`; None: by destination address."""
        self._request({"op": "uplink", "port": port, "to": to})

    def stats(self) -> MediumStats:
        """All counters since the last reset."""
        reply = self._request({"op": "stats"})
        try:
            return _stats(reply)
        except (KeyError, TypeError) as error:
            raise self._problem(f"unexpected reply to stats: {error!r}") from error

    def lateness(self) -> WokenLate:
        """How late the machine woke the emulator, without all the other counters."""
        reply = self._request({"op": "lateness"})
        try:
            return WokenLate(**reply["woken_late"])
        except (KeyError, TypeError) as error:
            raise self._problem(f"unexpected reply to lateness: {error!r}") from error

    def _request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            self._lines.write(json.dumps(request, allow_nan=False).encode())
            reply = json.loads(self._lines.read())
        except ValueError as error:
            raise self._problem(f"{request['op']}: {error}") from error
        except OSError as error:
            # A late reply must not be taken for the next request's.
            self.close()
            raise self._problem(f"{request['op']}: {reason(error, self._timeout_s)}") from error
        if not isinstance(reply, dict) or reply.get("ok") is not True:
            problem = reply.get("error") if isinstance(reply, dict) else reply
            raise self._problem(f"{request['op']}: {problem}")
        return reply


def _port(entry: Mapping[str, Any]) -> PortStats:
    broadcast = entry["broadcast"]
    return PortStats(**{**entry, "broadcast": None if broadcast is None else BroadcastStats(**broadcast)})


def _stats(reply: Mapping[str, Any]) -> MediumStats:
    return MediumStats(
        elapsed_s=reply["elapsed_s"],
        links={entry["id"]: LinkStats(**entry) for entry in reply["links"]},
        ports={entry["name"]: _port(entry) for entry in reply["ports"]},
        total=TotalStats(**reply["total"]),
        lateness_max_ms=reply["lateness_max_ms"],
        woken_late=WokenLate(**reply["woken_late"]),
        cpu_s=reply["cpu_s"],
    )
