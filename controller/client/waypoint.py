"""The waypoint's end of clients' control sessions, and the data plane behind it.

A client has one session. Each connection makes a new key, and so does each start of the program at either end: with an
old key its packets would be taken for repeated ones. A session stays while its client makes a new connection, for
``AWAY_S`` at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hyroads.controller.core.admission import Limits
from hyroads.controller.core.checking import Endpoint, TlsFiles
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.files.text import read_private
from hyroads.controller.files.tls import fingerprint, own_certificate, server_side
from hyroads.controller.framework.admitted import AdmittedListener
from hyroads.controller.framework.tls_hello import secured_streams

from .host import HostError, WaypointHost, default_gateways
from .json_lines import ControlServer, Document, LineError, close, encode, read
from .kernel_sessions import KernelSessions, endpoint_of, read_news
from .policy import AGENT, KERNEL
from .process import Process
from .program import Program, ProgramError
from .session import MAX_LINE, reason_of
from .waypoint_clients import (
    NETWORK4,
    NETWORK6,
    OWN_NUMBER,
    Numbers,
    Stranger,
    client_of,
    inner_addresses,
    parse_tokens,
)

LOG = logging.getLogger("hyroads.waypoint")
HANDSHAKE_WITHIN_S, HELLO_WITHIN_S, SILENT_S = 5.0, 3.0, 30.0
LIMITS = Limits(strangers=512, known=256, within_s=HANDSHAKE_WITHIN_S + HELLO_WITHIN_S, each=32)
"""A client has a connection for its session, and at times one for each of its interfaces."""
AWAY_S = 3600.0
SWEEP_EVERY_S = 30.0
LEARN_EVERY_S = 1.0
_REFUSED_AFTER_S = 0.5
_RENEW_EVERY_S = 0.1
_SAY_EVERY_S = 1.0
_ACCEPT_AGAIN_S = 0.1


@dataclass
class _Session:
    """A client's session; ``writer`` is None while its client makes a new connection."""

    client: str
    number: int
    plane: str = "agent"
    writer: asyncio.StreamWriter | None = None
    left_s: float = 0.0

    def document(self, key: str, has_ipv6: bool) -> Document:
        """As in the message ``session`` to the program."""
        address4, address6 = inner_addresses(self.number)
        named = {"type": "session", "session": self.number, "client": self.client, "key": key}
        return {**named, "address4": address4, "address6": address6 if has_ipv6 else None}


@dataclass(frozen=True, slots=True)
class WaypointSettings:
    """Where to listen (TCP for sessions, UDP for data), the certificate, and the file of tokens. With ``realtime``,
    ``hyroads-client`` runs at real-time priority where that is permitted (CAP_SYS_NICE). ``tls`` None: a certificate of
    its own for the address of ``listen``, kept in ``state_directory``. ``node``: it is a gateway's of a network file.
    """

    listen: Endpoint
    tls: TlsFiles | None
    tokens: str
    run_directory: Path
    state_directory: Path
    tun: str = "hrw0"
    realtime: bool = True
    node: str | None = None
    is_isolated: bool = False
    """Clients reach public addresses alone, and no network that this host is in."""


class Sessions:
    """Serves clients' control connections. ``program`` gets ``session`` and ``end-session``."""

    def __init__(
        self, tokens: Mapping[str, str], context: ssl.SSLContext, numbers: Numbers, port: int, kernel: KernelSessions
    ) -> None:
        self.tokens, self.context = tokens, context
        self._kernel = kernel
        self.program: Program | None = None
        self.has_ipv6 = True
        """Clients get IPv6 addresses only if IPv6 leads anywhere from here."""
        self.counters: Counter[str] = Counter()
        self._numbers, self._port = numbers, port
        self._sessions: dict[str, _Session] = {}
        self.listener: AdmittedListener | None = None
        """Gives connections their places."""
        self._said_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, host: str, port: int) -> AdmittedListener:
        """The socket for clients; OSError."""
        self.listener = AdmittedListener(host, port, LIMITS, partial(self._refused, "too_many_connections"))
        return self.listener

    async def accept_for_ever(self, listener: AdmittedListener) -> None:
        """Serve the connections of a listener until this is cancelled."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                LOG.warning("can't accept a connection: %s", error.strerror)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            task = asyncio.create_task(self._secure(connection, str(address[0])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()

    async def _secure(self, connection: socket.socket, peer: str) -> None:
        """One connection, from its first byte to its end."""
        try:
            reader, writer = await secured_streams(connection, self.context, HANDSHAKE_WITHIN_S, MAX_LINE)
        except TimeoutError:
            self._refused("strangers", peer, "says nothing")
        except OSError as error:
            self._refused("strangers", peer, f"no TLS: {reason_of(error)}")
        else:
            await self._serve(reader, writer, peer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str) -> None:
        """One connection over TLS, to its end."""
        session: _Session | None = None
        try:
            session = await self._welcome(reader, writer)
            if session is not None:
                await self._hold(session, reader, writer)
        except Stranger as error:
            self._refused("strangers", peer, str(error))
            await asyncio.sleep(_REFUSED_AFTER_S)
            await _tell(writer, str(error))
        except (TimeoutError, LineError, OSError) as error:
            if session is None:
                self._refused("strangers", peer, str(error) or "says nothing")
        except HyroadsError as error:
            LOG.warning("%s: %s", peer, error)
            await _tell(writer, str(error))
        finally:
            if session is not None and session.writer is writer:
                session.writer, session.left_s = None, time.monotonic()
                LOG.info("client %s: connection from %s ended", session.client, peer)
            await close(writer)

    async def renew(self) -> None:
        """The program began anew: all clients that are connected get new keys, the others when they connect."""
        for session in [*self._sessions.values()]:
            if session.writer is not None:
                with contextlib.suppress(OSError):
                    await self._give(session, session.writer)

    def adopt(self, status: Document) -> None:
        """Sessions that the program had before this process began: they end with the others."""
        for each in status.get("sessions", []):
            client, number = each.get("client"), each.get("session")
            if isinstance(client, str) and isinstance(number, int) and client not in self._sessions:
                self._sessions[client] = _Session(client, number, left_s=time.monotonic())

    def restore(self) -> None:
        """Tunnels that a killed daemon has left: their clients come again, or they end with the other sessions."""
        try:
            left = self._kernel.restore()
        except HyroadsError as error:
            LOG.warning("tunnels of clients: %s", error)
            return
        for number, client in left.items():
            self._sessions[client] = _Session(client, number, "kernel", left_s=time.monotonic())

    async def sweep(self) -> None:
        """End the sessions of clients that have been away for long, or have no token any more."""
        now_s = time.monotonic()
        for session in [*self._sessions.values()]:
            unknown = session.client not in self.tokens
            if not unknown and (session.writer is not None or now_s - session.left_s < AWAY_S):
                continue
            del self._sessions[session.client]
            if session.writer is not None:
                await _tell(session.writer, "not a client any more")
                session.writer.close()
            LOG.info("session %d of client %s ended", session.number, session.client)
            await self._end(session)

    async def _end(self, session: _Session) -> None:
        """Nothing more is carried for a session."""
        if session.plane == "kernel":
            self._kernel.end(session.number)
        elif self.program is not None:
            with contextlib.suppress(ProgramError):
                await self.program.request({"type": "end-session", "session": session.number})

    def document(self) -> Document:
        """Who is connected, for ``status``; without keys."""
        return {
            "sessions": [
                {"session": each.number, "client": each.client, "plane": each.plane, "connected": bool(each.writer)}
                | dict(zip(("address4", "address6"), inner_addresses(each.number), strict=True))
                | (self._kernel.document(each.number) if each.number in self._kernel else {})
                for each in self._sessions.values()
            ],
            "counters": {"strangers": 0, "too_many_connections": 0, **self.counters},
        }

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Session | None:
        """The session of a client that has said who it is; None if it only told of one of its interfaces."""
        hello = await asyncio.wait_for(read(reader), HELLO_WITHIN_S)
        client, plane = client_of(hello, self.tokens), str((hello or {}).get("plane", "agent"))
        if plane not in (AGENT, KERNEL):
            raise Stranger("expected plane agent or kernel")
        peer = writer.get_extra_info("peername")
        if self.listener is not None and not self.listener.authenticated(peer, client):
            raise Stranger("too many connections")
        if hello is not None and "path" in hello:
            await self._tell_path(client, hello, writer)
            return None
        session = self._sessions.get(client)
        if session is not None and session.plane != plane:
            await self._end(session)
            session.plane = plane
        session = session or _Session(client, self._numbers.of(client), plane)
        await self._give(session, writer)
        self._sessions[client] = session
        old, session.writer = session.writer, writer
        if old is not None:
            await _tell(old, "replaced by a new connection")
            old.close()
        LOG.info("client %s: session %d, %s", client, session.number, inner_addresses(session.number)[0])
        return session

    async def _tell_path(self, client: str, hello: Document, writer: asyncio.StreamWriter) -> None:
        """Where the tunnel over one of a client's interfaces ends: at the address that this connection comes from."""
        session = self._sessions.get(client)
        if session is None or session.number not in self._kernel:
            raise HyroadsError(f"client {client} tells of an interface without a session of plane: kernel")
        news, endpoint = read_news(hello), endpoint_of(writer.get_extra_info("peername")[0])
        self._kernel.tell(session.number, news, endpoint)
        writer.write(encode({"type": "path", "path": news.number, "endpoint": endpoint}))
        await asyncio.wait_for(writer.drain(), HELLO_WITHIN_S)

    async def _give(self, session: _Session, writer: asyncio.StreamWriter) -> None:
        """A new key, for the data plane first. Tunnels of the kernel need none."""
        if self.program is None:
            raise ProgramError("the data plane is being started, try again")
        document = session.document(secrets.token_hex(16), self.has_ipv6)
        if session.plane == "kernel":
            self._kernel.begin(session.client, session.number, (document["address4"], document["address6"]))
            answer = {**document, "port": self._kernel.port, "plane": session.plane}
        else:
            await self.program.request(document)
            answer = {**document, "port": self._port}
        del answer["client"]
        writer.write(encode(answer))
        await asyncio.wait_for(writer.drain(), HELLO_WITHIN_S)

    async def _hold(self, session: _Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while session.writer is writer:
            message = await asyncio.wait_for(read(reader), SILENT_S)
            if message is None:
                return
            if message.get("type") == "ping":
                writer.write(encode({"type": "pong"}))
                await asyncio.wait_for(writer.drain(), SILENT_S)
            elif message.get("type") == "renew":
                await self._give(session, writer)
                await asyncio.sleep(_RENEW_EVERY_S)

    def _refused(self, counter: str, peer: str, why: str) -> None:
        """Counted always, said at most once a second."""
        self.counters[counter] += 1
        now_s = time.monotonic()
        if now_s - self._said_s >= _SAY_EVERY_S:
            self._said_s = now_s
            LOG.warning("stranger at %s: %s (%d so far)", peer, why, sum(self.counters.values()))


async def _tell(writer: asyncio.StreamWriter, why: str) -> None:
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        writer.write(encode({"type": "error", "message": why}))
        await asyncio.wait_for(writer.drain(), 1.0)


class Waypoint(Process):
    """The whole program ``hyroads client waypoint``."""

    def __init__(self, settings: WaypointSettings) -> None:
        super().__init__(settings.run_directory, "waypoint", LOG)
        self._settings = settings
        self._tokens = parse_tokens(read_private(settings.tokens), settings.tokens)
        self._tls = settings.tls or _own_certificate(settings)
        context = server_side(self._tls, "command line", "--certificate")
        self._host = WaypointHost(settings.run_directory, settings.tun, is_isolated=settings.is_isolated)
        self._kernel = KernelSessions(settings.run_directory, settings.listen.port)
        numbers = Numbers(settings.state_directory / "waypoint.json")
        self._sessions = Sessions(self._tokens, context, numbers, settings.listen.port, self._kernel)
        host = settings.listen.host
        listen = f"{f'[{host}]' if ':' in host else host}:{settings.listen.port}"
        options = ["--waypoint", "--listen", listen, "--tun", settings.tun]
        options += ["--realtime"] if settings.realtime else []
        self._program = Program(options, self.data_socket, self._ready, self._event, LOG.warning)

    async def main(self) -> None:
        """Serves until it is told to end."""
        settings = self._settings
        self._sessions.restore()
        host, port = settings.listen.host, settings.listen.port
        listener = self._sessions.listen(host, port)
        control = ControlServer(self.control_socket, self._answer)
        await control.start()
        tasks = [
            asyncio.create_task(work)
            for work in (
                self._program.keep(),
                self._sweep(),
                self._learn(),
                listener.sweep_for_ever(),
                self._sessions.accept_for_ever(listener),
            )
        ]
        try:
            await self.until_ended(tasks)
        finally:
            listener.close()
            control.close()
            self._sessions.close()
            for task in tasks:
                task.cancel()
            await self._program.stop()
            # First what was changed last: both may have set the host to forward.
            self._kernel.remove()
            self._host.undo()

    def reload(self) -> None:
        """Tokens and certificate again; what is wrong leaves all as it was."""
        settings = self._settings
        try:
            tokens = parse_tokens(read_private(settings.tokens), settings.tokens)
            self._sessions.context = server_side(self._tls, "command line", "--certificate")
        except ConfigError as error:
            LOG.error("%s; nothing is changed", error)
            return
        self._sessions.tokens = tokens
        self.spawn(self._sessions.sweep())

    async def _ready(self) -> None:
        own4, own6 = inner_addresses(OWN_NUMBER)
        try:
            self._host.apply(own4, NETWORK4.prefixlen, own6, NETWORK6.prefixlen)
        except HostError as error:
            self.fail(error)
            return
        self._sessions.has_ipv6 = bool(default_gateways(6))
        self._sessions.adopt(await self._program.request({"type": "status"}))
        self._sessions.program = self._program
        await self._sessions.renew()
        LOG.info("ready")
        self.manager.ready()

    def _event(self, event: Document) -> None:
        if event.get("event") == "stranger":
            self._sessions.counters["data_strangers"] += 1

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                self._host.isolate()
            except HostError as error:
                LOG.error("isolation of clients: %s", error)
            await self._sessions.sweep()

    async def _learn(self) -> None:
        while True:
            await asyncio.sleep(LEARN_EVERY_S)
            try:
                self._kernel.learn()
            except HyroadsError as error:
                LOG.warning("tunnels of clients: %s", error)

    async def _answer(self, request: Document) -> Document:
        if request.get("type") != "status":
            raise HyroadsError("expected the request status")
        data = await self._program.request({"type": "status"})
        data.pop("seq", None)
        endpoint, node = self._settings.listen, self._settings.node
        where = {"node": node, "address": endpoint.host, "port": endpoint.port}
        own = {**where, "fingerprint": fingerprint(self._tls.certificate), "restarts": max(0, self._program.starts - 1)}
        return {"type": "status", **own, **self._sessions.document(), "data_plane": data}


def _own_certificate(settings: WaypointSettings) -> TlsFiles:
    try:
        return own_certificate(settings.state_directory, "waypoint", settings.listen.host)
    except OSError as error:
        raise HyroadsError(f"{settings.state_directory}: {error.strerror}") from error
