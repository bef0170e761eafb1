"""The path manager of a client's MPTCP connections, in the daemon: the kernel's events to :class:`.Subflows`, its
commands to the kernel, and the routes and the sysctl that they need.

Routes. A subflow leaves by the interface whose address it has. Interface number k of the policy has a table of its own
with its networks and its default route, and rules that ask that table for packets from its addresses. Where the
interface has no route any more such packets are refused: another interface's network would drop them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hyroads.controller.core.checking import describe
from hyroads.controller.kernel.netlink import NetlinkError

from .host import HostError, Sysctls, default_gateways, read_sysctl, rules_of, run
from .json_lines import Document
from .kernel_items import Link
from .kernel_plane import discover, has_carrier, link_events
from .modes import ModeError, Modes
from .mptcp import Interface, Subflows
from .mptcp_netlink import Command, PathManagerSocket
from .policy import MAX_INTERFACES, FlowPolicy, Policy

LOG = logging.getLogger("hyroads.client")
TABLES = PRIORITIES = range(5130, 5130 + 2 * MAX_INTERFACES)
"""Of the policy's interfaces and those that it had a moment ago; before the rules of hr0."""
LEAVE_WITHIN_S = 2.0
"""What the policy no longer names has drained by then."""
MAX_COPIED = 64
SETTLE_S = 0.05
"""After news of links, addresses and routes, which come in bunches."""
LOOK_EVERY_S = 5.0
FOLLOW_EVERY_S = 0.05
"""Carriers, while there are connections: the kernel may tell that one is gone up to a second late."""
_LAST_METRIC = 4_000_000_000
_BUFFER_BYTES = 1 << 16
_NEW, _OLD = ("mptcp/path_manager", "userspace"), ("mptcp/pm_type", "1")


class SourceRoutes:
    """The routing tables and rules of the interfaces."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._installed: dict[int, tuple[tuple[int, str], ...]] = {}

    def set(self, links: Mapping[str, Link]) -> None:
        """The tables of these interfaces, and no others. :class:`HostError`."""
        for name in links:
            if name not in self._numbers:
                taken = self._numbers.values()
                self._numbers[name] = next(number for number in range(len(TABLES)) if number not in taken)
        for name, number in list(self._numbers.items()):
            wanted = tuple(_source_routes(links[name], number)) if name in links else ()
            if name not in links:
                del self._numbers[name]
            if wanted != self._installed.get(number, ()):
                self._clear(number)
                for version in {version for version, _ in wanted}:
                    lines = [line for each, line in wanted if each == version]
                    run("ip", f"-{version}", "-batch", "-", text="\n".join(lines) + "\n")
                self._installed[number] = wanted

    def clear(self) -> None:
        """Everything away, also what a daemon that was killed has left."""
        used = {rule["priority"] for version in (4, 6) for rule in rules_of(version, PRIORITIES)}
        for number in {*self._installed, *(priority - PRIORITIES.start for priority in used)}:
            self._clear(number)
        self._installed.clear()
        self._numbers.clear()

    @staticmethod
    def _clear(number: int) -> None:
        for version in ("-4", "-6"):
            with contextlib.suppress(HostError):
                # One rule an address; until there is none.
                for _ in range(8):
                    run("ip", version, "rule", "delete", "priority", str(PRIORITIES[number]))
            with contextlib.suppress(HostError):
                run("ip", version, "route", "flush", "table", str(TABLES[number]))


def _source_routes(link: Link, number: int) -> Iterator[tuple[int, str]]:
    """IP version and command of each route and rule."""
    table, priority = TABLES[number], PRIORITIES[number]
    for version, address in link.addresses.items():
        if version not in link.gateways:
            continue
        for network in link.subnets.get(version, ()):
            yield version, f"route replace {network} dev {link.name} src {address} table {table}"
        via = f"via {link.gateways[version]} " if link.gateways[version] else ""
        yield version, f"route replace default {via}dev {link.name} table {table}"
        yield version, f"route replace unreachable default metric {_LAST_METRIC} table {table}"
        yield version, f"rule add from {address} lookup {table} priority {priority}"


def interface_of(link: Link, excluded: Collection[str]) -> Interface:
    """An interface as subflows use it, if it is not ``excluded``: with the addresses that have a default route."""
    addresses = {version: address for version, address in link.addresses.items() if version in link.gateways}
    networks = tuple(network for each in link.subnets.values() for network in each)
    usable = link.carrier and bool(addresses) and link.name not in excluded
    return Interface(link.name, link.index, usable, addresses, networks)


def _carries(name: str) -> bool:
    """Whether an interface is up and has a carrier at this very moment."""
    if not has_carrier(name):
        return False
    try:
        return Path(f"/sys/class/net/{name}/carrier").read_text(encoding="ascii").strip() == "1"
    except OSError:
        return not Path("/sys/class/net").exists()


class PathManager:
    """Manages the subflows of a network namespace, as long as :meth:`keep` runs and the policy says ``mptcp: true``.

    ``folder`` is below /run, and remembers a sysctl that is changed. Where the kernel has no MPTCP, or no path manager
    in user space, that is said once and nothing happens.
    """

    def __init__(self, folder: Path) -> None:
        self._sysctls = Sysctls(folder / "client-mptcp.json")
        self._left_behind = (folder / "client-mptcp.json").exists()
        self._routes = SourceRoutes()
        self._socket: PathManagerSocket | None = None
        self._subflows: Subflows | None = None
        self._names: tuple[str, ...] = ()
        self._leaving_s: dict[str, float] = {}
        self._used_up: frozenset[str] = frozenset()
        self._dead: set[str] = set()
        self._links: dict[str, Link] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._problem: str | None = None

    # What the daemon asks

    def configure(
        self, policy: Policy, modes: Modes, used_up: Collection[str] = (), own: Sequence[str | None] = ()
    ) -> None:
        """Follow another policy, other modes, caps or addresses of hr0. :class:`HostError`."""
        if not policy.mptcp:
            self.stop()
            return
        old, self._names, self._used_up = self._names, tuple(policy.interfaces), frozenset(used_up)
        self._leaving_s |= dict.fromkeys(old, time.monotonic() + LEAVE_WITHIN_S)
        if self._subflows is None:
            if not self._start():
                return
            self._subflows = Subflows(policy, modes, own)
            self._discover()
        else:
            self._subflows.configure(policy, modes, own, time.monotonic())
            self._news.set()
        self._see()

    def choose(self, token: str, mode: str) -> None:
        """A mode for one connection; :class:`ModeError`."""
        if self._subflows is None:
            raise ModeError(f"unknown MPTCP connection {describe(token)}")
        self._subflows.choose(token, mode, time.monotonic())
        self._act()

    def copied(self) -> list[FlowPolicy]:
        """Connections over hr0 whose packets are to be copied, at most ``MAX_COPIED``."""
        return [] if self._subflows is None else self._subflows.copied()[:MAX_COPIED]

    def judge(self, interface: str, *, alive: bool) -> None:
        """Somebody has found out whether an interface that has a carrier carries anything."""
        (self._dead.discard if alive else self._dead.add)(interface)
        self._see()

    def documents(self) -> list[Document]:
        """The connections, for the status."""
        return [] if self._subflows is None else self._subflows.documents()

    def stop(self) -> None:
        """Leave each connection one subflow, over the host's own default route; host and kernel as before."""
        if self._socket is not None and self._subflows is not None:
            stays = None
            with contextlib.suppress(HostError):
                gateways = {**default_gateways(4), **default_gateways(6)}
                stays = next((name for name in gateways if name in self._names), None)
            for command in self._subflows.leave(stays):
                self._do(command)
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None or self._left_behind:
            self._routes.clear()
            self._sysctls.restore()
        self._socket = self._subflows = self._timer = None
        self._left_behind, self._links, self._names = False, {}, ()

    async def keep(self) -> None:
        """Follows the interfaces, for ever."""
        news = link_events()
        loop = asyncio.get_running_loop()
        loop.add_reader(news, self._hear, news)
        try:
            while True:
                pause_s = LEAVE_WITHIN_S if self._leaving_s.keys() - set(self._names) else LOOK_EVERY_S
                await self._until_news(time.monotonic() + pause_s)
                await asyncio.sleep(SETTLE_S)
                self._news.clear()
                if self._subflows is None:
                    continue
                try:
                    found = await asyncio.to_thread(discover, self._watched())
                    self._use(found)
                except HostError as error:
                    self._say(str(error))
        finally:
            loop.remove_reader(news)
            news.close()

    # What it does

    async def _until_news(self, until_s: float) -> None:
        while not self._news.is_set() and (left_s := until_s - time.monotonic()) > 0:
            connected = self._subflows is not None and self._subflows.count > 0
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left_s, FOLLOW_EVERY_S) if connected else left_s)
            self._follow()

    def _start(self) -> bool:
        """Whether the kernel lets us."""
        name, value = _NEW if read_sysctl(_NEW[0]) is not None else _OLD
        if read_sysctl(name) is None:
            self._say("this kernel has no MPTCP with a path manager in user space: connections have one subflow")
            return False
        if read_sysctl("mptcp/enabled") == "0":
            self._say("net.mptcp.enabled is 0 here: programs get no MPTCP connections")
        try:
            self._socket = PathManagerSocket()
        except NetlinkError as error:
            self._say(str(error))
            return False
        self._routes.clear()
        self._sysctls.set(name, value)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._listen)
        return True

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            LOG.warning("mptcp: %s", problem)
        self._problem = problem

    def _hear(self, news: object) -> None:
        """News of links: what has lost its carrier is left at once, the rest is looked at when it has settled."""
        with contextlib.suppress(BlockingIOError):
            while news.recv(_BUFFER_BYTES):  # type: ignore[attr-defined]
                pass
        self._news.set()
        self._follow()

    def _follow(self) -> None:
        now = {name: replace(link, carrier=_carries(name)) for name, link in self._links.items()}
        for name, link in now.items():
            if link.carrier and not self._links[name].carrier:
                # The kernel would wait for answers to questions that it asked without a carrier.
                with contextlib.suppress(HostError):
                    run("ip", "neigh", "flush", "dev", name, "nud", "incomplete", "nud", "failed")
        if now != self._links:
            self._links = now
            self._see()

    def _discover(self) -> None:
        self._use(discover(self._watched()))

    def _use(self, links: Mapping[str, Link]) -> None:
        self._links = dict(links)
        self._routes.set(links)
        self._see()

    def _watched(self) -> list[str]:
        """The policy's interfaces, and those that it had a moment ago."""
        now_s = time.monotonic()
        self._leaving_s = {name: until_s for name, until_s in self._leaving_s.items() if until_s > now_s}
        return [*self._names, *(name for name in self._leaving_s if name not in self._names)][: len(TABLES)]

    def _see(self) -> None:
        if self._subflows is not None:
            # Where nothing answers over any of them, it is the one who is asked that is gone.
            dead = self._dead if set(self._names) - self._dead else set()
            interfaces = {name: interface_of(link, self._used_up | dead) for name, link in self._links.items()}
            self._subflows.see(interfaces, time.monotonic())
            self._act()

    def _listen(self) -> None:
        if self._socket is None or self._subflows is None:
            return
        try:
            for event in self._socket.events():
                LOG.debug("mptcp: %s", event)
                self._subflows.event(event, time.monotonic())
        except NetlinkError as error:
            lost = error.number == errno.ENOBUFS
            self._say("events of the kernel were lost" if lost else str(error))
        self._act()

    def _act(self) -> None:
        """What is due now; and again when something else is."""
        if self._subflows is None:
            return
        for command in self._subflows.commands(time.monotonic()):
            if not self._do(command):
                self._subflows.refused(command, time.monotonic())
        next_s = self._subflows.next_s()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if next_s is not None:
            # A refused command is tried again later, never at once.
            pause_s = max(0.001, next_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._act)

    def _do(self, command: Command) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.do(command)
        except NetlinkError as error:
            LOG.debug("mptcp: %s: %s", command, error)
            return False
        LOG.debug("mptcp: %s", command)
        return True
