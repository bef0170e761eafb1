"""Lines over a Unix stream socket with a time limit: what clients of the medium and of the agents have in common.

Client of the control socket of `hyroads-edge`, the edge agent (docs/reference/dataplane.md, section 2).

Synchronous: one request, its answer. What the agent says by itself (links, pings, regular reports) is kept in `events`.

Client of the control socket of `hyroads-medium`, the shared-medium emulator (docs/reference/dataplane.md, section 3).

Synchronous: one request, one reply. All rates are Mb/s at L2 payload, shares of time are fractions.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from hyroads.controller.core.errors import HyroadsError


class LineSocket:
    """A connection; usable as a context manager. Problems are OSError: one kind for the caller to put into words."""

    def __init__(self, path: str, timeout_s: float, max_line_bytes: int) -> None:
        self.timeout_s = timeout_s
        self._max_line_bytes = max_line_bytes
        self._received = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def write(self, line: bytes) -> None:
        """Sends a line, which has no line end yet."""
        self._socket.sendall(line + b"\n")

    def read(self) -> bytes:
        """The next line without its end."""
        while b"\n" not in self._received:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError(0, "the other end closed the connection")
            self._received += chunk
            if len(self._received) > self._max_line_bytes:
                raise ConnectionResetError(0, f"line longer than {self._max_line_bytes} bytes")
        line, _, self._received = self._received.partition(b"\n")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reason(error: OSError, timeout_s: float) -> str:
    """An error of a connection in words."""
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return error.strerror or str(error)


class LineClient:
    """What the clients of the medium and of the agents have in common; usable as a context manager."""

    what: ClassVar[str]
    failure: ClassVar[type[HyroadsError]]
    """Every problem is one of these, and names what it is about and where."""
    max_line_bytes: ClassVar[int]

    def __init__(self, path: str | Path, timeout_s: float = 5.0) -> None:
        self.path = str(path)
        self._timeout_s = timeout_s
        try:
            self._lines = LineSocket(self.path, timeout_s, self.max_line_bytes)
        except OSError as error:
            raise self._problem(error) from error
        try:
            self._greet()
        except HyroadsError:
            self.close()
            raise

    def _greet(self) -> None:
        """The first thing on a connection."""

    def _answers(self) -> None:
        """Returns once the other end has answered."""

    @classmethod
    def wait_for(cls, path: str | Path, wait_s: float = 10.0, timeout_s: float = 5.0) -> Self:
        """Connect to a program that is just starting; raises if it does not answer within ``wait_s``."""
        deadline_s = time.monotonic() + wait_s
        while True:
            client: Self | None = None
            try:
                client = cls(path, timeout_s)
                client._answers()
                return client
            except cls.failure:
                if client is not None:
                    client.close()
                if time.monotonic() >= deadline_s:
                    raise
                time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; the program goes on."""
        self._lines.close()

    def _problem(self, problem: Exception | str) -> HyroadsError:
        words = reason(problem, self._timeout_s) if isinstance(problem, OSError) else str(problem)
        return self.failure(f"{self.what} at {self.path}: {words}")


MAX_LINE_BYTES = 2 << 20


class EdgeError(HyroadsError):
    """The agent refused a request, or could not be reached."""


class EdgeClient(LineClient):
    """A connection to a running agent; usable as a context manager. `hello` is the agent's greeting."""

    what = "agent"
    failure = EdgeError
    max_line_bytes = MAX_LINE_BYTES

    def _greet(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._sequence = 0
        self.hello = self._read()

    def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a message with the next number and gives its answer; raises EdgeError if the agent refuses it."""
        self._sequence += 1
        self._write({**message, "seq": self._sequence})
        answer = self._answer()
        if answer["type"] == "error":
            raise self._problem(answer["message"])
        return answer

    def configure(self, config: Mapping[str, Any]) -> dict[int, int]:
        """Makes this the agent's whole configuration (without `type` and `seq`).

        Gives the first number under the new paths of each flow whose paths in use changed.
        """
        return _first(self.request({"type": "config", **config}))

    def set_rates(
        self, rates: Mapping[int, Mapping[int, float | None]], fill: Mapping[int, Mapping[int, float]] | None = None
    ) -> dict[int, int]:
        """New rates in Mb/s at L2 payload, by flow number and path id; None is unshaped. `fill` is sent at least.

        Gives what `configure` gives.
        """
        return _first(self.request({"type": "rates", "rates": _texts(rates), "fill": _texts(fill or {})}))

    def reset_counters(self) -> None:
        """Sets all counters to zero."""
        self.request({"type": "reset-counters"})

    def stats(self) -> dict[str, Any]:
        """A report of all flows; the parts of a long one are put together."""
        report = self.request({"type": "stats"})
        part = report
        while part["more"]:
            part = self._answer()
            for key in ("ingress", "egress", "links"):
                report[key] += part[key]
        return report

    def subscribe(self, report_ms: int = 0, ping_ms: int = 0) -> None:
        """Asks for events (links going down or up), and for regular reports and pings if not 0."""
        self._write({"type": "welcome", "version": 1, "report_ms": report_ms, "ping_ms": ping_ms})

    def wait_event(self, kind: str, wait_s: float = 5.0) -> dict[str, Any]:
        """The next event of a type; raises EdgeError if there is none within `wait_s`."""
        deadline_s = time.monotonic() + wait_s
        while True:
            for at, event in enumerate(self.events):
                if event["type"] == kind:
                    return self.events.pop(at)
            if time.monotonic() >= deadline_s:
                raise self._problem(f"no {kind} within {wait_s:g} s")
            self.events.append(self._read())

    def _answer(self) -> dict[str, Any]:
        while True:
            message = self._read()
            if message.get("seq") == self._sequence and message["type"] in {"ok", "error", "report", "pong"}:
                return message
            self.events.append(message)

    def _write(self, message: Mapping[str, Any]) -> None:
        try:
            self._lines.write(json.dumps(message, separators=(",", ":")).encode())
        except OSError as error:
            raise self._problem(error) from error

    def _read(self) -> dict[str, Any]:
        try:
            message = json.loads(self._lines.read())
        except OSError as error:
            raise self._problem(error) from error
        if not isinstance(message, dict) or "type" not in message:
            raise self._problem("expected an object with a type")
        return message


def _first(answer: Mapping[str, Any]) -> dict[int, int]:
    return {int(flow): number for flow, number in answer.get("from", {}).items()}


def _texts(flows: Mapping[int, Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    return {str(flow): {str(path): value for path, value in paths.items()} for flow, paths in flows.items()}


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
