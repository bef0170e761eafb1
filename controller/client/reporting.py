"""A client's session with a campus controller, over the agents' protocol (docs/reference/clients.md, *Multi-homed
clients*): it reports each second, tells of events, and carries out what it is asked.

The standard library alone, for asyncio. What comes from the controller is checked here; whether a policy, a mode or a
migration can be carried out the daemon decides, by raising a :class:`HyroadsError` with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError

VERSION = 1
MAX_LINE = 1 << 20
MAX_POLICY_BYTES = 256 << 10
MAX_FLOWS = MAX_CLUSTERS = MAX_MPTCP = 256
"""Of more flows the busiest are reported."""
CONNECT_WITHIN_S, WELCOME_WITHIN_S, DEAD_S = 10.0, 5.0, 10.0
FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 10.0
OWN = ("waypoint", "controller", "plane", "mptcp", "address4", "address6")
"""Parts of a policy that only the client's own file changes: they name files, and whom the client trusts."""
_INTERFACE = (
    "up",
    "at",
    "metered",
    "rate_mbps",
    "sent_mbps",
    "received_mbps",
    "queue_packets",
    "month_gib",
    "problem",
)
_FLOW = ("id", "name", "interface", "rate_mbps", "level_mbps", "migrations")
_OF_MODE = ("flow", "connection")
_MPTCP = ("token", "name", "mode")
EVENTS = {
    "interface.up": "interface_up",
    "interface.down": "interface_down",
    "interface.alive": "interface_alive",
    "interface.dead": "interface_dead",
    "interface.capped": "interface_capped",
    "flow.migrated": "flow_migrated",
    "waypoint.lost": "waypoint_lost",
    "waypoint.back": "waypoint_back",
}
"""What the controller is told of, and how that is called there."""
_EVENT = {
    "interface": "interface",
    "to": "interface",
    "flow": "flow",
    "name": "name",
    "from": "from",
    "took_s": "took_s",
}

Document = dict[str, Any]


class ReportingError(HyroadsError):
    """The controller can't be reached, refuses this client, or does not keep to the protocol."""


@dataclass(frozen=True, slots=True)
class Controller:
    """Where a campus controller listens for agents, and as whom the client reports; the token is this client's own."""

    address: str
    port: int
    client: str
    token: str = field(repr=False)
    program: str = "hyroads-client"
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a daemon does for its session.

    ``status`` gives the status document (``hyroads client status --json``), ``policy`` the document of the policy in
    force. The others do what the controller asks: use a policy, move a flow to an interface, choose a mode for all
    flows, those of one name or the MPTCP connection of a token. They raise :class:`HyroadsError` with the reason if
    they can't.
    """

    status: Callable[[], Document]
    policy: Callable[[], Document]
    apply_policy: Callable[[Document], Awaitable[object]]
    migrate: Callable[[int, str], Awaitable[object]]
    set_mode: Callable[[str, str | None, str | None], Awaitable[object]]


class Reporter:
    """The session, as long as :meth:`keep` runs. ``warn`` is told, once each, why there is none."""

    def __init__(self, controller: Controller, callbacks: Callbacks, warn: Callable[[str], None]) -> None:
        self._controller, self._callbacks, self._warn = controller, callbacks, warn
        self._boot = secrets.token_hex(8)
        self._writer: asyncio.StreamWriter | None = None
        self._was_connected = False
        self._told_policy: Document | None = None
        self._requests: asyncio.Queue[Document] = asyncio.Queue(64)
        self.problem: str | None = None
        """Why there is no session, if there is none."""

    @property
    def connected(self) -> bool:
        """Whether the controller has let this client in."""
        return self._writer is not None

    async def keep(self) -> None:
        """Connect, and again whenever the session ends, until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._session()
            except (TimeoutError, OSError, ReportingError) as error:
                pause_s = self._note(error, pause_s)
            await asyncio.sleep(pause_s)

    def _note(self, error: BaseException, pause_s: float) -> float:
        """Tells of a problem that is another than before; the next pause."""
        where = f"controller {self._controller.address}:{self._controller.port}"
        text = f"{where}: {getattr(error, 'strerror', None) or str(error) or 'no answer in time'}"
        was_connected, self._was_connected = self._was_connected, False
        if text != self.problem:
            self._warn(text)
        self.problem = text
        return FIRST_PAUSE_S if was_connected else min(2 * pause_s, MOST_PAUSE_S)

    def event(self, event: Mapping[str, Any]) -> None:
        """Tell of an event of ``hyroads-client``, as it comes over its control socket. Those that are not among
        ``EVENTS``, and all without a session, are left out.
        """
        kind = EVENTS.get(str(event.get("event")))
        if kind is None:
            return
        told = {name: event[key] for key, name in _EVENT.items() if event.get(key) is not None}
        self._send({"type": "client-event", "event": kind, **told})

    async def _session(self) -> None:
        where = self._controller
        opening = asyncio.open_connection(where.address, where.port, limit=MAX_LINE, ssl=where.tls)
        reader, writer = await asyncio.wait_for(opening, CONNECT_WITHIN_S)
        tasks: list[asyncio.Task[None]] = []
        try:
            report_s = await self._enter(reader, writer)
            self._writer, self.problem, self._told_policy, self._was_connected = writer, None, None, True
            self._requests = asyncio.Queue(64)
            works = (self._read(reader), self._report_for_ever(report_s), self._serve())
            tasks = [asyncio.create_task(work) for work in works]
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            self._writer = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1.0)

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
        """Say who this is; the period of reports, in seconds, that the controller wants."""
        who = self._controller
        hello = {"type": "hello", "version": VERSION, "role": "client", "node": who.client, "program": who.program}
        writer.write(_line({**hello, "boot": self._boot, "token": who.token}))
        await writer.drain()
        welcome = await asyncio.wait_for(_next(reader), WELCOME_WITHIN_S)
        if welcome.get("type") == "error":
            raise ReportingError(f"it refuses client {who.client}: {_words(welcome.get('message'))}")
        period_ms = welcome.get("report_ms")
        if welcome.get("type") != "welcome" or isinstance(period_ms, bool) or not isinstance(period_ms, int | float):
            raise ReportingError("it does not answer as a controller")
        return min(60.0, max(0.1, period_ms / 1e3))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            # The controller pings each fifth of a second.
            message = await asyncio.wait_for(_next(reader), DEAD_S)
            kind = message.get("type")
            if kind == "ping":
                self._send({"type": "pong", "seq": message.get("seq")})
            elif kind == "error" and message.get("seq") is None:
                raise ReportingError(_words(message.get("message")))
            elif "seq" in message and kind not in ("ok", "pong", "error"):
                try:
                    self._requests.put_nowait(message)
                except asyncio.QueueFull:
                    self._refuse(message, "too many requests at once")

    async def _serve(self) -> None:
        """Requests, one after the other."""
        while True:
            message = await self._requests.get()
            try:
                await self._carry_out(message)
            except HyroadsError as error:
                self._refuse(message, str(error))
            else:
                # What it changed is there to be read once it is confirmed.
                self._report()
                self._send({"type": "ok", "seq": message["seq"]})

    async def _carry_out(self, message: Document) -> None:
        kind = message.get("type")
        if kind == "client-policy" and isinstance(message.get("policy"), dict):
            await self._callbacks.apply_policy(with_own_parts(message["policy"], self._callbacks.policy()))
        elif kind == "client-migrate" and _is_whole(message.get("flow")) and isinstance(message.get("interface"), str):
            await self._callbacks.migrate(message["flow"], message["interface"])
        elif kind == "client-mode" and isinstance(message.get("mode"), str) and _are_names(message, _OF_MODE):
            await self._callbacks.set_mode(message["mode"], *(message.get(key) for key in _OF_MODE))
        else:
            raise ReportingError(f"unknown or malformed request {_words(kind)}")

    async def _report_for_ever(self, period_s: float) -> None:
        while True:
            self._report()
            await asyncio.sleep(period_s)

    def _report(self) -> None:
        policy = self._callbacks.policy()
        if policy != self._told_policy:
            text = json.dumps(policy)
            self._told_policy = json.loads(text)
            if len(text) <= MAX_POLICY_BYTES:
                self._send({"type": "client-policy", "policy": policy})
        self._send({"type": "client-report", "status": reported(self._callbacks.status())})

    def _refuse(self, message: Document, why: str) -> None:
        self._send({"type": "error", "seq": message["seq"], "message": why})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._writer is None or self._writer.transport.get_write_buffer_size() > MAX_LINE:
            # A controller that reads nothing gets nothing more; soon the session is over.
            return
        self._writer.write(_line(message))


def reported(status: Mapping[str, Any]) -> Document:
    """The part of a status document that a controller is told: addresses and ports of flows are none of it."""
    flows = sorted(status.get("flows", []), key=lambda flow: -float(flow.get("rate_mbps") or 0.0))
    interfaces: Mapping[str, Mapping[str, Any]] = status.get("interfaces", {})
    document: Document = {
        "mode": status.get("mode"),
        "interfaces": {
            name: {key: each[key] for key in _INTERFACE if each.get(key) is not None}
            for name, each in interfaces.items()
        },
        "flows": [{key: flow[key] for key in _FLOW if flow.get(key) is not None} for flow in flows[:MAX_FLOWS]],
        "flow_count": len(flows),
        "clusters": list(status.get("clusters", []))[:MAX_CLUSTERS],
        "mptcp": [
            {key: each[key] for key in _MPTCP if key in each} | {"subflows": _count(each.get("subflows"))}
            for each in list(status.get("mptcp", []))[:MAX_MPTCP]
        ],
    }
    return {**document, "fetch": dict(status["fetch"])} if status.get("fetch") else document


def with_own_parts(asked: Mapping[str, Any], current: Mapping[str, Any]) -> Document:
    """A policy as a controller wants it, with the parts that are the client's own (``OWN``) as they are.
    :class:`ReportingError` if others are wanted.
    """
    policy = dict(asked)
    for part in OWN:
        if part in policy and policy[part] != current.get(part):
            raise ReportingError(f"{part}: only the client's own file may change it")
        if current.get(part) is not None:
            policy[part] = current[part]
    return policy


async def _next(reader: asyncio.StreamReader) -> Document:
    try:
        line = await reader.readline()
    except ValueError as error:
        raise ReportingError(f"a line is longer than {MAX_LINE} bytes") from error
    if not line.endswith(b"\n"):
        raise ReportingError("it closed the connection")
    try:
        message = strict_json.parse(line)
    except strict_json.JsonError as error:
        raise ReportingError(f"a line: {error}") from error
    if not isinstance(message, dict):
        raise ReportingError("a line is not an object")
    return message


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _words(value: object) -> str:
    """Text of the other side, fit for a log."""
    return "".join(each for each in str(value)[:200] if each.isprintable())


def _count(subflows: object) -> object:
    return len(subflows) if isinstance(subflows, list) else subflows


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(message: Document, keys: Sequence[str]) -> bool:
    return all(message.get(key) is None or isinstance(message[key], str) for key in keys)
