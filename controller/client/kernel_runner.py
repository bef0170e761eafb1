"""``plane: kernel`` in the place of ``hyroads-client``: the same requests, answered by :class:`.KernelPlane`.

While the daemon runs it follows the interfaces' carriers, addresses and gateways, tells the waypoint of them, and sends
a packet through each tunnel now and then, so that NATs keep their entries. When the daemon is killed everything
installed stays; the next one goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import ConfigError, HyroadsError

from .json_lines import Document
from .kernel_items import NEIGHBOURS, PROBE_PORT, WAYPOINT_END, tunnel_name
from .kernel_plane import Flow, KernelPlane, link_events
from .program import ProgramError, RefusedError

LOOK_EVERY_S = 1.0
SETTLE_S = 0.3
"""After news of addresses or routes; they come in bunches."""
PROBE_EVERY_S = 5.0
TELL_EVERY_S = 60.0
"""An interface may get another address behind its NAT without notice."""
TELL_AGAIN_S = 5.0
TELL_WITHIN_S = 1.0
LISTING_SHARE = 0.05
"""Of the time is spent on listing connections at most."""
_PROBE = b"hyroads"
_BUFFER_BYTES = 1 << 16

TellPaths = Callable[[Mapping[int, str], list[int]], Awaitable[bool]]


class KernelRunner:
    """Has the shape of :class:`.Program`. ``ready`` is awaited once; ``event`` takes events of interfaces; ``tell``
    tells the waypoint of the interfaces that have a carrier, by number, and which numbers are usable, and says whether
    it has heard of all of them.
    """

    def __init__(
        self,
        state: Path,
        ready: Callable[[], Awaitable[None]],
        event: Callable[[Document], None],
        tell: TellPaths,
        say: Callable[[str], None],
    ) -> None:
        self._plane = KernelPlane(state)
        self._ready, self._event, self._tell, self._say = ready, event, tell, say
        self._document: Document | None = None
        self._told: object = None
        self._told_s = self._probed_s = -TELL_EVERY_S
        self._telling: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._news_s: float | None = None
        self._flows: list[Flow] = []
        self._list_again_s = 0.0
        self._migrations: dict[int, int] = {}
        self._begun_s = time.monotonic()
        self._probe = _probe_socket()
        self.starts = 0
        self.connected = False

    async def keep(self) -> None:
        """Follows the host for ever."""
        self.starts, self.connected = 1, True
        events = link_events()
        loop = asyncio.get_running_loop()
        loop.add_reader(events, self._hear, events)
        try:
            await self._ready()
            while True:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._news.wait(), LOOK_EVERY_S)
                self._news.clear()
                try:
                    self._look()
                except HyroadsError as error:
                    self._say(f"plane: kernel: {error}")
        finally:
            loop.remove_reader(events)
            events.close()
            self.connected = False

    async def request(self, document: Document) -> Document:
        """The answer to ``configure``, ``migrate`` or ``status``; :class:`RefusedError` if that can't be done, and
        then nothing has changed.
        """
        if not self.connected:
            raise ProgramError("the kernel plane is being started, try again")
        kind = document.get("type")
        try:
            if kind == "configure":
                await self._configure(document)
            elif kind == "migrate":
                self._migrate(document)
            elif kind == "status":
                return self._status()
        except HyroadsError as error:
            raise RefusedError(str(error)) from error
        return {"type": "ok"}

    async def stop(self) -> None:
        """Take everything away."""
        if self._telling is not None:
            self._telling.cancel()
        self._probe.close()
        self._plane.remove()

    async def _configure(self, document: Document) -> None:
        old, self._document = self._document, document
        # The waypoint has its end of the tunnels before the first packet comes.
        told = self._tell_waypoint(document)
        if told is not None:
            await asyncio.wait([told], timeout=TELL_WITHIN_S)
        try:
            self._plane.install(document, time.monotonic())
        except HyroadsError:
            self._document = old
            raise
        self._list_again_s = 0.0

    def _migrate(self, document: Document) -> None:
        flow, interface = document.get("flow"), document.get("interface")
        if not isinstance(flow, int) or not isinstance(interface, str):
            raise ConfigError("migrate", "", "expected a flow's number and an interface's name")
        self._plane.migrate(flow, interface)
        self._migrations[flow] = self._migrations.get(flow, 0) + 1
        self._list_again_s = 0.0

    def _hear(self, events: socket.socket) -> None:
        """News of links, addresses and routes; what exactly the host itself says when it is asked."""
        with contextlib.suppress(OSError):
            while events.recv(_BUFFER_BYTES):
                pass
        self._news_s = time.monotonic()
        self._news.set()

    def _look(self) -> None:
        """Once a second, and when there are news."""
        now_s = time.monotonic()
        if self._document is None:
            return
        before = self._plane.carriers()
        if self._plane.refresh(now_s):
            self._say_changes(before, self._plane.carriers())
        if self._news_s is not None and now_s - self._news_s >= SETTLE_S:
            self._news_s = None
            if self._plane.is_outdated():
                self._plane.install(self._document, now_s)
                self._say_changes(before, self._plane.carriers())
        self._tell_waypoint(self._document)
        if now_s - self._probed_s >= PROBE_EVERY_S:
            self._probed_s = now_s
            self._send_probes(self._document)

    def _say_changes(self, before: Mapping[str, bool], now: Mapping[str, bool]) -> None:
        for name in sorted(before.keys() | now.keys()):
            if before.get(name, False) != now.get(name, False):
                self._event({"event": f"interface.{'up' if now.get(name) else 'down'}", "interface": name})

    def _tell_waypoint(self, document: Document) -> asyncio.Task[None] | None:
        """Tell the waypoint of the interfaces, if there is something new or it is time; the task that does it."""
        waypoint = document["waypoint"]
        if waypoint is None:
            return None
        usable = {number: name for number, name in _numbered(document) if _has_carrier(name)}
        news, now_s = (waypoint, usable, self._plane.ways()), time.monotonic()
        if not usable or (news == self._told and now_s - self._told_s < TELL_EVERY_S):
            return None
        if self._telling is not None:
            self._telling.cancel()
        self._told, self._told_s = news, now_s
        self._telling = asyncio.create_task(self._tell_all(usable))
        return self._telling

    async def _tell_all(self, usable: Mapping[int, str]) -> None:
        if not await self._tell(usable, sorted(usable)):
            self._told_s -= TELL_EVERY_S - TELL_AGAIN_S

    def _send_probes(self, document: Document) -> None:
        """Out of each tunnel a packet, whose outer one shows the waypoint the port that a NAT has given the client."""
        waypoint = document["waypoint"]
        for number, _ in [] if waypoint is None else _numbered(document):
            device = tunnel_name(waypoint["session"], number).encode()
            # Without its tunnel an interface needs no probe.
            with contextlib.suppress(OSError):
                self._probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
                source = socket.inet_aton(document["address4"] or "0.0.0.0")  # noqa: S104 - then the kernel's choice
                control = bytes(4) + source + bytes(4)
                where = (NEIGHBOURS[WAYPOINT_END][0], PROBE_PORT)
                self._probe.sendmsg([_PROBE], [(socket.IPPROTO_IP, _IP_PKTINFO, control)], 0, where)

    def _status(self) -> Document:
        document = self._document or {"interfaces": [], "rules": []}
        carriers = self._plane.carriers()
        accepted = {rule["name"]: [*rule["interfaces"], *rule["backup"]] for rule in document["rules"]}
        weights = {rule["name"]: (rule["weight"], rule["urgent"]) for rule in document["rules"]}
        return {
            "type": "status",
            "program": "kernel",
            "uptime_s": time.monotonic() - self._begun_s,
            "interfaces": [_interface(each, carriers.get(each["name"])) for each in document["interfaces"]],
            "flows": [self._flow(each, accepted, weights) for each in self._list()],
            "counters": {},
        }

    def _list(self) -> list[Flow]:
        """The flows; of a router with very many not at each request."""
        begun_s = time.monotonic()
        if self._document is not None and begun_s >= self._list_again_s:
            self._flows = self._plane.flows()
            ended_s = time.monotonic()
            self._list_again_s = ended_s + (ended_s - begun_s) / LISTING_SHARE
            ids = {flow.id for flow in self._flows}
            self._migrations = {flow: count for flow, count in self._migrations.items() if flow in ids}
        return self._flows

    def _flow(
        self, flow: Flow, accepted: Mapping[str, list[str]], weights: Mapping[str, tuple[float, bool]]
    ) -> Document:
        weight, urgent = weights.get(flow.rule, (1.0, False))
        return {
            "id": flow.id,
            "rule": flow.rule,
            "protocol": flow.protocol,
            "source": _end(flow.source),
            "destination": _end(flow.destination),
            "via": flow.via,
            "interface": flow.interface,
            "interfaces": accepted.get(flow.rule, []),
            "sent_bytes": flow.sent_bytes or 0,
            "received_bytes": flow.received_bytes or 0,
            "queue_packets": 0,
            "dropped_packets": 0,
            "migrations": self._migrations.get(flow.id, 0),
            "weight": weight,
            "urgent": urgent,
        }


_IP_PKTINFO = 8


def _probe_socket() -> socket.socket:
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.setblocking(False)
    return probe


def _numbered(document: Document) -> list[tuple[int, str]]:
    """Number, from 1, and name of the interfaces that may be used."""
    return [(number, each["name"]) for number, each in enumerate(document["interfaces"], 1) if each["usable"]]


def _has_carrier(name: str) -> bool:
    try:
        return Path(f"/sys/class/net/{name}/carrier").read_text(encoding="ascii").strip() == "1"
    except OSError:
        # A device that is down says nothing.
        return False


def _interface(wanted: Document, carrier: bool | None) -> Document:
    name = wanted["name"]
    return {
        "name": name,
        "up": carrier is not None,
        "carrier": bool(carrier),
        "usable": wanted["usable"],
        "alive": None,
        "rate_mbps": wanted["rate_mbps"],
        "sent_bytes": _statistic(name, "tx_bytes"),
        "received_bytes": _statistic(name, "rx_bytes"),
        "queue_packets": 0,
    }


def _statistic(name: str, counter: str) -> int:
    try:
        return int(Path(f"/sys/class/net/{name}/statistics/{counter}").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _end(end: tuple[str, Any]) -> str:
    address, port = end
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
