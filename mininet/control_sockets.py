"""Clients of the control sockets of `hyroads-edge`, `hyroads-medium` (docs/reference/dataplane.md, sections 2, 3) and
`hyroads-client` (docs/reference/client-stack.md).

Lines of JSON over a Unix stream socket with a time limit; one request, its answer. All rates are Mb/s at L2 payload,
shares of time are fractions.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from hyroads.controller.core.errors import HyroadsError


class LineClient:
    """What the clients of the medium and of the agents have in common; usable as a context manager."""

    what: ClassVar[str]
    failure: ClassVar[type[HyroadsError]]
    """Every problem is one of these, and names what it is about and where."""
    max_line_bytes: ClassVar[int]

    def __init__(self, path: str | Path, timeout_s: float = 5.0) -> None:
        self.path = str(path)
        self._timeout_s = timeout_s
        self._received = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(self.path)
            self._greet()
        except OSError as error:
            self.close()
            raise self._problem(error) from error
        except HyroadsError:
            self.close()
            raise

    def _send_line(self, line: bytes) -> None:
        """Send a line, which has no line end yet; OSError."""
        self._socket.sendall(line + b"\n")

    def _read_line(self) -> bytes:
        """The next line without its end; OSError."""
        while b"\n" not in self._received:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError(0, "the other end closed the connection")
            self._received += chunk
            if len(self._received) > self.max_line_bytes:
                raise ConnectionResetError(0, f"line longer than {self.max_line_bytes} bytes")
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _greet(self) -> None:
        """The first thing on a connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; the program goes on."""
        self._socket.close()

    def _problem(self, problem: Exception | str) -> HyroadsError:
        words = self._reason(problem) if isinstance(problem, OSError) else str(problem)
        return self.failure(f"{self.what} at {self.path}: {words}")

    def _reason(self, error: OSError) -> str:
        return (
            f"no answer within {self._timeout_s:g} s"
            if isinstance(error, TimeoutError)
            else error.strerror or str(error)
        )


class EdgeError(HyroadsError):
    """The agent refused a request, or could not be reached."""


class EdgeClient(LineClient):
    """A connection to a running agent; usable as a context manager.

    `hello` is the agent's first message. What it says by itself (links, pings, regular reports) is kept in `events`.
    """

    what = "agent"
    failure = EdgeError
    max_line_bytes = 2 << 20

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

    def stats(self) -> dict[str, Any]:
        """A report of all flows; the parts of a long one are put together."""
        report = self.request({"type": "stats"})
        part = report
        while part["more"]:
            part = self._answer()
            for key in ("ingress", "egress", "links"):
                report[key] += part[key]
        return report

    def _answer(self) -> dict[str, Any]:
        while True:
            message = self._read()
            if message.get("seq") == self._sequence and message["type"] in {"ok", "error", "report", "pong"}:
                return message
            self.events.append(message)

    def _write(self, message: Mapping[str, Any]) -> None:
        try:
            self._send_line(json.dumps(message, separators=(",", ":")).encode())
        except OSError as error:
            raise self._problem(error) from error

    def _read(self) -> dict[str, Any]:
        try:
            message = json.loads(self._read_line())
        except OSError as error:
            raise self._problem(error) from error
        if not isinstance(message, dict) or "type" not in message:
            raise self._problem("expected an object with a type")
        return message


class StackError(HyroadsError):
    """The client stack refused a request, or could not be reached."""


class StackClient(LineClient):
    """A connection to a running `hyroads-client` or waypoint; usable as a context manager.

    What it says by itself after a request `watch` is kept in `events`.
    """

    what = "client stack"
    failure = StackError
    max_line_bytes = 64 << 20

    def _greet(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._sequence = 0

    def request(self, kind: str, **keys: Any) -> dict[str, Any]:
        """The answer to a request; raises StackError if it is refused."""
        self._sequence += 1
        try:
            self._send_line(json.dumps({"type": kind, "seq": self._sequence, **keys}).encode())
            answer = json.loads(self._read_line())
            while answer["type"] == "event":
                self.events.append(answer)
                answer = json.loads(self._read_line())
        except OSError as error:
            raise self._problem(error) from error
        if answer["type"] == "error":
            raise self._problem(f"{kind}: {answer['message']}")
        if not isinstance(answer, dict) or answer.get("seq") != self._sequence:
            raise self._problem(f"{kind}: answer to another request")
        return answer


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
    retries: int = 0  # frames of a radio that were sent, not received, and sent again


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


class MediumClient(LineClient):
    """A connection to a running emulator; usable as a context manager."""

    what = "medium"
    failure = MediumError
    max_line_bytes = 16 << 20

    def set_link(
        self,
        link: str,
        *,
        capacity_mbps: float | None = None,
        delay_ms: float | None = None,
        loss: float | None = None,
        up: bool | None = None,
        signal_dbm: int | None = None,
    ) -> None:
        """Change a link at once; what is None stays. On an error nothing has changed."""
        changes = {"capacity_mbps": capacity_mbps, "delay_ms": delay_ms, "loss": loss, "up": up}
        changes["signal_dbm"] = signal_dbm  # what a radio at its end hears
        given = {key: value for key, value in changes.items() if value is not None}
        self._request({"op": "set", "link": link, **given})

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
            self._send_line(json.dumps(request, allow_nan=False).encode())
            reply = json.loads(self._read_line())
        except ValueError as error:
            raise self._problem(f"{request['op']}: {error}") from error
        except OSError as error:
            # A late reply must not be taken for the next request's.
            self.close()
            raise self._problem(f"{request['op']}: {self._reason(error)}") from error
        if not isinstance(reply, dict) or reply.get("ok") is not True:
            problem = reply.get("error") if isinstance(reply, dict) else reply
            raise self._problem(f"{request['op']}: {problem}")
        return reply


T = TypeVar("T")


def _fields_of(kind: type[T], entry: Mapping[str, Any]) -> T:
    """What a class has fields for; the medium tells more."""
    return kind(**{each.name: entry[each.name] for each in fields(kind) if each.name in entry})  # type: ignore[arg-type]


def _port(entry: Mapping[str, Any]) -> PortStats:
    broadcast = entry["broadcast"]
    return PortStats(**{**entry, "broadcast": None if broadcast is None else BroadcastStats(**broadcast)})


def _stats(reply: Mapping[str, Any]) -> MediumStats:
    return MediumStats(
        elapsed_s=reply["elapsed_s"],
        links={entry["id"]: _fields_of(LinkStats, entry) for entry in reply["links"]},
        ports={entry["name"]: _port(entry) for entry in reply["ports"]},
        total=_fields_of(TotalStats, reply["total"]),
        lateness_max_ms=reply["lateness_max_ms"],
        woken_late=WokenLate(**reply["woken_late"]),
        cpu_s=reply["cpu_s"],
    )
