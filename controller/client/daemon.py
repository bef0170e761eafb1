"""The daemon ``hyroads client run``: brings the host, ``hyroads-client`` and a waypoint's session to what the policy
wants, and keeps them there.

:meth:`Daemon.status` gives the status document, and :meth:`Daemon.use` applies another policy, as a whole or not at
all. A campus controller that the policy names is told the one, and may ask for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hyroads.controller.core.checking import describe, one_of
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.files.text import read_text
from hyroads.controller.framework.tls_client import client_context

from .host import ClientPlan, HostError, default_gateways
from .json_lines import ControlServer, Document
from .modes import Addresses, ModeError, Modes, WaypointSession, check_mode, configuration, own_addresses
from .mptcp_runner import PathManager
from .planes import Planes
from .policy import MPTCP, Policy, load_text, parse
from .process import Process
from .program import ProgramError, RefusedError
from .reporting import Callbacks, Controller, Reporter
from .session import SessionClient, read_token, usable_interfaces
from .status import Facts, Meter, document
from .usage import GIB, Caps, UsageFile, counter_bytes

LOG = logging.getLogger("hyroads.client")
POLL_S = 1.0
CHECK_HOST_EVERY = 15
"""Polls between two looks whether the host still is as it should be."""
FIRST_SESSION_WITHIN_S = 3.0
PACKETS_SHARE = 0.95
"""Of what an interface carries: the rest are headers of the link, and packets that are cut into pieces there."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the policy is, and the folders for sockets and for what outlives a boot. With ``realtime``,
    ``hyroads-client`` runs at real-time priority where that is permitted (CAP_SYS_NICE).
    """

    policy: str
    run_directory: Path
    state_directory: Path
    tun: str = "hr0"
    realtime: bool = True


def load_policy(path: str) -> Policy:
    """The policy of a file; :class:`ConfigError`."""
    return load_text(read_text(path), path)


class Daemon(Process):
    """The whole program. All it does is in one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings.run_directory, "client", LOG)
        self._settings = settings
        self._policy = load_policy(settings.policy)
        self._modes = Modes()
        self._client = self._session_client(self._policy)
        self._reporter = self._new_reporter(self._policy)
        self._reporting: asyncio.Task[None] | None = None
        self._session: WaypointSession | None = None
        self._addresses: Addresses | None = None
        self._session_program: int | None = None
        self._session_task: asyncio.Task[None] | None = None
        self._has_session = asyncio.Event()
        self._plan: ClientPlan | None = None
        self._quota_bytes: dict[str, int] = {}
        self._configured: Document | None = None
        self._managed: tuple[Policy, Modes, frozenset[str], Addresses] | None = None
        self._changing = asyncio.Lock()
        self._meter, self._caps = Meter(), Caps()
        self._usage = UsageFile(settings.state_directory / "client-usage.json")
        self._used_up: set[str] = set()
        self._mptcp = PathManager(settings.run_directory)
        self._planes = Planes(settings.run_directory, self.data_socket, settings.tun, realtime=settings.realtime)
        self._program, self._host = self._planes.make(
            self._policy.plane, self._ready, self._event, self._tell_paths, LOG.warning
        )

    async def main(self) -> None:
        """Runs until it is told to end; then the host is as before."""
        for broken in self._usage.content.broken:
            LOG.warning("%s", broken)
        control = ControlServer(self.control_socket, self._answer)
        await control.start()
        self._count()
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._planes.clear_other(self._policy.plane)
            self._host.prepare(self._wanted_plan())
            self._begin_session()
            self._begin_reporting()
            works = (self._program.keep(), self._poll(), self._mptcp.keep())
            tasks = [asyncio.create_task(work) for work in works]
            await self.until_ended(tasks)
        finally:
            control.close()
            for task in (*tasks, self._session_task, self._reporting):
                if task is not None:
                    task.cancel()
            try:
                self._mptcp.stop()
                await self._program.stop()
            finally:
                self._host.undo(self._settings.tun)
                self._planes.flows.unlink(missing_ok=True)
                self._count()
                self._save(self._usage.save)

    def reload(self) -> None:
        """SIGHUP: the file again. What is wrong with it is said in one line, and the old policy stays."""
        self.spawn(self._reload())

    async def _reload(self) -> None:
        try:
            await self.use(load_policy(self._settings.policy))
        except HyroadsError as error:
            LOG.error("%s; the policy stays as it was", error)
        else:
            LOG.info("policy %s read again", self._settings.policy)

    async def use(self, policy: Policy) -> None:
        """Another policy, with no modes chosen live. :class:`HyroadsError` if it can't be used: the old one stays."""
        if policy.plane != self._policy.plane:
            raise ConfigError(
                policy.document, "plane", f"expected {self._policy.plane} until the daemon is started again"
            )
        old, new_waypoint = (self._policy, self._modes), policy.waypoint != self._policy.waypoint
        client = self._session_client(policy) if new_waypoint else self._client
        new_controller = policy.controller != old[0].controller
        reporter = self._new_reporter(policy) if new_controller else self._reporter
        session = self._session
        self._policy, self._modes = policy, Modes()
        addresses = self._addresses
        if new_waypoint:
            self._session = self._addresses = None
        try:
            await self._apply()
        except HyroadsError:
            (self._policy, self._modes), self._session, self._addresses = old, session, addresses
            with contextlib.suppress(HyroadsError):
                await self._apply()
            raise
        if new_waypoint:
            self._client = client
            self._begin_session()
        if new_controller:
            self._reporter = reporter
            self._begin_reporting()

    def status(self) -> Document:
        """The status now (docs/reference/client.md)."""
        at: dict[str, str | None] = {}
        with contextlib.suppress(HostError):
            at = {**default_gateways(6), **default_gateways(4)}
        waypoint = None
        if self._client is not None and self._policy.waypoint is not None:
            waypoint = {
                "address": self._policy.waypoint.address,
                "connected": self._client.connected,
                "session": None if self._session is None else self._session.session,
                "problem": self._client.problem,
            }
        restarts = max(0, self._program.starts - 1)
        usage = self._usage.usage
        return document(
            self._meter,
            Facts(
                self._policy,
                self._modes,
                usage,
                self._used_up,
                time.time(),
                at,
                waypoint,
                restarts,
                self._mptcp.documents(),
            ),
        )

    def _session_client(self, policy: Policy) -> SessionClient | None:
        if policy.waypoint is None:
            return None
        return SessionClient(policy.waypoint, self._usable, self._established, LOG.warning, policy.plane)

    async def _tell_paths(self, paths: Mapping[int, str], usable: Sequence[int]) -> bool:
        return self._client is None or await self._client.tell_paths(paths, usable)

    def _begin_session(self) -> None:
        if self._session_task is not None:
            self._session_task.cancel()
        self._session_task = None if self._client is None else asyncio.create_task(self._client.keep())

    def _new_reporter(self, policy: Policy) -> Reporter | None:
        """Who tells the campus controller of a policy; :class:`ConfigError` if this client's token can't be read."""
        controller = policy.controller
        if controller is None:
            return None
        if controller.token_file is None:
            raise ConfigError(policy.document, "controller.token_file", "is missing")
        name = (policy.waypoint.name if policy.waypoint is not None else None) or socket.gethostname()
        files = controller.tls
        tls = None if files is None else client_context(files.ca, files.certificate, files.key)
        where = Controller(controller.address, controller.port, name, read_token(controller.token_file), tls=tls)
        callbacks = Callbacks(
            self.status, lambda: dict(self._policy.raw), self._use_document, self._migrate, self._choose_mode
        )
        return Reporter(where, callbacks, LOG.warning)

    def _begin_reporting(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
        self._reporting = None if self._reporter is None else asyncio.create_task(self._reporter.keep())

    async def _use_document(self, document: Document) -> None:
        """A policy of the controller. It holds until the file is read again."""
        # Files that it names are found where those of the client's own file are.
        name = Path(self._settings.policy).with_name("policy of the controller")
        await self.use(parse(document, str(name)))
        LOG.info("the controller has set another policy")

    def _usable(self) -> list[str]:
        return usable_interfaces([name for name in self._policy.interfaces if name not in self._used_up])

    async def _established(self, session: WaypointSession) -> None:
        first, self._session = self._session is None, session
        self._addresses, self._session_program = own_addresses(self._policy, session), self._program.starts
        self._has_session.set()
        if first:
            LOG.info("waypoint %s: session %d", session.address, session.session)
        if self._configured is not None:
            try:
                await self._apply()
            except HyroadsError as error:
                LOG.error("waypoint %s: %s", session.address, error)

    async def _ready(self) -> None:
        """The program is there, for the first time or again."""
        if self._session is not None and self._session_program != self._program.starts and self._client is not None:
            # A program that was started again can't use an old key; without the waypoint flows go direct.
            self._session = None
            await self._client.renew(FIRST_SESSION_WITHIN_S)
        if self._configured is None and self._client is not None:
            # Connections that begin with the waypoint's address need not end when the session comes.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_session.wait(), FIRST_SESSION_WITHIN_S)
        first = self._configured is None
        try:
            await self._apply(anew=True)
        except (RefusedError, HostError) as error:
            if first:
                self.fail(error)
                return
            raise ProgramError(str(error)) from error
        LOG.info("ready" if first else "the program runs again")

    async def _apply(self, *, anew: bool = False) -> None:
        """Brings host and program to what policy, modes, caps and session ask for."""
        async with self._changing:
            plan = self._wanted_plan()
            if anew or plan != self._plan:
                self._apply_host(plan)
            chosen = (self._policy, self._modes, self._used_up, self._session, self._addresses)
            wanted = configuration(*chosen, copied=self._mptcp.copied())
            if anew or wanted != self._configured:
                await self._program.request(wanted)
                self._configured = wanted
            subflows = (self._policy, self._modes, frozenset(self._used_up), self._own())
            if anew or subflows != self._managed:
                self._mptcp.configure(*subflows)
                self._managed = subflows

    def _own(self) -> Addresses:
        """The addresses of hr0; none without one."""
        return (None, None) if self._policy.plane == MPTCP else self._addresses or own_addresses(self._policy, None)

    def _wanted_plan(self) -> ClientPlan:
        address4, address6 = self._addresses or own_addresses(self._policy, None)
        waypoint = None if self._policy.waypoint is None else self._policy.waypoint.address
        used_up, tun = tuple(sorted(self._used_up)), self._settings.tun
        ipv6 = self._addresses is not None and address6 is not None
        return ClientPlan(tuple(self._policy.interfaces), address4, address6, waypoint, used_up, tun, ipv6)

    def _apply_host(self, plan: ClientPlan) -> None:
        left = self._left_bytes()
        self._host.apply(plan, left)
        self._plan, self._quota_bytes = plan, left

    def _left_bytes(self) -> dict[str, int]:
        """What interfaces with a cap may still carry in this month, as the packet filter counts: without the headers
        that interfaces add.
        """
        self._count()
        used = {name: self._usage.usage.used_bytes(name, time.time()) for name in self._cap_gib()}
        return {name: max(0, int(PACKETS_SHARE * (gib * GIB - used[name]))) for name, gib in self._cap_gib().items()}

    def _event(self, event: Document) -> None:
        name = str(event.get("event"))
        details = " ".join(f"{key}={event[key]}" for key in event if key not in ("type", "event"))
        LOG.info("%s %s", name, details)
        self._tell(event)
        if name in ("interface.dead", "interface.alive"):
            self._mptcp.judge(str(event.get("interface")), alive=name == "interface.alive")
        if name == "interface.up" and self._plan is not None:
            self.spawn(self._check_host())

    def _tell(self, event: Document) -> None:
        if self._reporter is not None:
            self._reporter.event(event)

    async def _check_host(self) -> None:
        async with self._changing:
            if self._plan is not None and self._program.connected:
                self._apply_host(self._plan)

    async def _poll(self) -> None:
        polls = 0
        while True:
            await asyncio.sleep(POLL_S)
            polls += 1
            self._count()
            self._save(partial(self._usage.save_if_due, self._cap_gib(), time.monotonic()))
            try:
                await self._look(check_host=polls % CHECK_HOST_EVERY == 0)
            except HyroadsError as error:
                if self._program.connected:
                    LOG.warning("%s", error)

    async def _look(self, *, check_host: bool) -> None:
        if not self._program.connected or self._configured is None:
            return
        rates = {name: each.rate_mbps for name, each in self._policy.interfaces.items()}
        used_up = self._caps.used_up(self._usage.usage, self._cap_gib(), rates, time.time())
        if used_up != self._used_up:
            for name in sorted(used_up - self._used_up):
                LOG.warning("%s: the cap of this month is used up", name)
                self._tell({"event": "interface.capped", "interface": name})
            self._used_up = used_up
        # Nothing happens unless something differs, or could not be done a second ago.
        await self._apply()
        # The kernel's quotas are a little less than what is left, and are set anew in time.
        left = self._left_bytes()
        if check_host or any(left[name] < self._quota_bytes.get(name, 0) / 2 for name in left):
            await self._check_host()
        await self._measure()

    async def _measure(self) -> None:
        self._meter.add(await self._program.request({"type": "status"}), time.monotonic())

    def _cap_gib(self) -> dict[str, float]:
        caps = {name: each.cap_gib_month for name, each in self._policy.interfaces.items()}
        return {name: gib for name, gib in caps.items() if gib is not None}

    def _count(self) -> None:
        for name in self._policy.interfaces:
            counter = counter_bytes(name)
            if counter is not None:
                self._usage.usage.count(name, counter, time.time())

    def _save(self, save: Callable[[], object]) -> None:
        try:
            save()
        except OSError as error:
            LOG.error("what interfaces carried can't be saved: %s", error)

    async def _answer(self, request: Document) -> Document:
        """A request of ``hyroads client``; the answer comes when it is done."""
        kind = request.get("type")
        if kind == "status":
            with contextlib.suppress(ProgramError):
                await self._measure()
            return self.status()
        if kind == "mode":
            return await self._choose_mode(str(request.get("mode")), request.get("flow"), request.get("connection"))
        if kind == "migrate":
            return await self._migrate(request.get("flow"), request.get("interface"))
        raise HyroadsError(f"unknown request {describe(kind)}")

    async def _choose_mode(self, mode: str, flow: object, connection: object = None) -> Document:
        old, begun_s = self._modes, time.monotonic()
        if connection is not None:
            if flow is not None:
                raise ModeError("expected a flow or a connection, not both")
            check_mode(self._policy, mode)
            self._mptcp.choose(str(connection), mode)
            await self._apply()
            took_s = time.monotonic() - begun_s
            return {"type": "ok", "mode": mode, "connection": connection, "took_s": took_s}
        self._modes = old.with_choice(self._policy, mode, None if flow is None else str(flow))
        try:
            await self._apply()
        except HyroadsError:
            self._modes = old
            raise
        return {"type": "ok", "mode": mode, "flow": flow, "took_s": time.monotonic() - begun_s}

    async def _migrate(self, flow: object, interface: object) -> Document:
        if interface not in self._policy.interfaces:
            raise HyroadsError(f"unknown interface {describe(interface)}, expected {one_of(self._policy.interfaces)}")
        begun_s = time.monotonic()
        await self._program.request({"type": "migrate", "flow": flow, "interface": interface})
        return {"type": "ok", "flow": flow, "interface": interface, "took_s": time.monotonic() - begun_s}
