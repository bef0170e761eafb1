"""A client's control session with its waypoint: TLS, a token, and a new key for the data plane.

The connection goes over each usable interface in turn until one works. When it ends, the data plane goes on with what
it has while a new connection is made.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import random
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.files.text import read_private

from .json_lines import Document, LineError, close, encode, read
from .modes import WaypointSession
from .policy import WaypointPolicy

VERSION = 1
MAX_LINE = 4096
MIN_TOKEN_LENGTH, MAX_TOKEN_LENGTH = 16, 512
CONNECT_WITHIN_S = 4.0
PING_EVERY_S, DEAD_S = 5.0, 12.0
BACKOFF_S = (0.25, 15.0)
_KEY = re.compile(r"[0-9a-f]{32}")
_MOST_SESSION = 0xFFFFFFFF


class SessionError(HyroadsError):
    """The waypoint does not answer, is another one, or refuses."""


def reason_of(error: Exception) -> str:
    """Why a connection failed, without numbers and addresses."""
    number = getattr(error, "errno", None)
    return getattr(error, "reason", None) or (os.strerror(number) if number else str(error)) or "closed"


def is_token(text: str) -> bool:
    """Whether a text is hard enough to guess, and one word."""
    return (
        MIN_TOKEN_LENGTH <= len(text) <= MAX_TOKEN_LENGTH and text.isascii() and text.isprintable() and " " not in text
    )


def read_token(path: str) -> str:
    """The client's token from its file; :class:`ConfigError`."""
    token = read_private(path).strip()
    if not is_token(token):
        what = f"expected a token of {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} printable characters without blanks"
        raise ConfigError(path, "", what)
    return token


def tls_context(policy: WaypointPolicy) -> ssl.SSLContext:
    """Accepts the waypoint's certificate only: one of its authority for its address, or, with a fingerprint, any,
    which :class:`SessionClient` then compares. :class:`ConfigError` if the authority's file can't be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if policy.fingerprint is not None or policy.ca_file is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        context.load_verify_locations(policy.ca_file)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(policy.ca_file, "", f"expected PEM certificates: {reason_of(error)}") from error
    return context


class SessionClient:
    """Keeps a session. ``interfaces`` names those to try, in order; ``established`` gets each new session and whoever
    ``say`` is hears what goes wrong, once. ``connected`` and ``problem`` tell how it is.
    """

    def __init__(
        self,
        policy: WaypointPolicy,
        interfaces: Callable[[], Sequence[str]],
        established: Callable[[WaypointSession], Awaitable[None]],
        say: Callable[[str], None],
        plane: str = "agent",
    ) -> None:
        self._policy, self._interfaces, self._plane = policy, interfaces, plane
        self._established, self._say = established, say
        self._name = policy.name or socket.gethostname()
        self._token = read_token(policy.token_file)
        self._context = tls_context(policy)
        self._writer: asyncio.StreamWriter | None = None
        self._renewed = asyncio.Event()
        self.connected = False
        self.problem: str | None = None

    async def renew(self, within_s: float) -> bool:
        """Ask for a new key, as is needed after the program that had the old one was started again; whether a session
        was established meanwhile.
        """
        self._renewed.clear()
        if self._writer is not None:
            self._writer.write(encode({"type": "renew"}))
        try:
            await asyncio.wait_for(self._renewed.wait(), within_s)
        except TimeoutError:
            return False
        return True

    async def keep(self) -> None:
        """Makes a session, and another one whenever it ends; for ever."""
        backoff_s = BACKOFF_S[0]
        while True:
            for interface in self._each():
                try:
                    reader, writer, session = await self._open(interface)
                except SessionError as error:
                    self._complain(str(error))
                    continue
                backoff_s = BACKOFF_S[0]
                try:
                    await self._hold(reader, writer, session)
                except SessionError as error:
                    self._complain(str(error))
                finally:
                    self.connected, self._writer = False, None
                    await close(writer)
                break
            await asyncio.sleep(backoff_s * random.uniform(0.75, 1.25))  # noqa: S311 - spreads clients, no secret
            backoff_s = min(2 * backoff_s, BACKOFF_S[1])

    async def check(self) -> WaypointSession:
        """Makes a session and ends it; :class:`SessionError`."""
        problem: SessionError | None = None
        for interface in self._each():
            try:
                _, writer, session = await self._open(interface)
            except SessionError as error:
                problem = error
                continue
            await close(writer)
            return session
        raise problem or SessionError("no interface")

    async def tell_paths(self, paths: Mapping[int, str], usable: Sequence[int]) -> bool:
        """Tell the waypoint of the interfaces, by number, each over a connection of its own through it: so the waypoint
        sees where the interface's tunnel (``plane: kernel``) ends. ``usable`` are those that carry packets now.
        Whether it has heard of all of them.
        """
        return all(await asyncio.gather(*(self._tell_path(number, name, usable) for number, name in paths.items())))

    async def _tell_path(self, number: int, interface: str, usable: Sequence[int]) -> bool:
        try:
            _, writer, answer = await self._ask(interface, {"path": number, "usable": list(usable)})
        except SessionError as error:
            self._complain(str(error))
            return False
        await close(writer)
        if answer is not None and answer.get("type") == "path":
            return True
        said = None if answer is None else answer.get("message")
        self._complain(str(self._fail(interface, f"it refuses the tunnel: {str(said)[:200]!a}")))
        return False

    def _each(self) -> Sequence[str | None]:
        """Without a usable interface the host's own route is tried."""
        return [*self._interfaces()] or [None]

    def _complain(self, what: str) -> None:
        if what != self.problem:
            self._say(what)
        self.problem = what

    def _fail(self, interface: str | None, what: object) -> SessionError:
        over = "" if interface is None else f" over {interface}"
        return SessionError(f"waypoint {self._policy.address} port {self._policy.port}{over}: {what}")

    async def _open(self, interface: str | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, WaypointSession]:
        reader, writer, answer = await self._ask(interface, {})
        try:
            return reader, writer, self._session(answer)
        except SessionError as error:
            await close(writer)
            raise self._fail(interface, error) from error

    async def _ask(
        self, interface: str | None, more: Document
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Document | None]:
        """A new connection that has said hello, and the answer to it; :class:`SessionError`."""
        try:
            reader, writer = await asyncio.wait_for(self._dial(interface), CONNECT_WITHIN_S)
        except TimeoutError as error:
            raise self._fail(interface, f"no answer within {CONNECT_WITHIN_S:g} s") from error
        except ssl.SSLCertVerificationError as error:
            raise self._fail(interface, f"wrong certificate: {error.verify_message}") from error
        except (OSError, EOFError) as error:
            raise self._fail(interface, reason_of(error)) from error
        try:
            self._compare(writer)
            hello = {"type": "hello", "version": VERSION, "client": self._name, "token": self._token}
            writer.write(encode({**hello, **({} if self._plane == "agent" else {"plane": self._plane}), **more}))
            return reader, writer, await asyncio.wait_for(read(reader), CONNECT_WITHIN_S)
        except TimeoutError as error:
            await close(writer)
            raise self._fail(interface, f"no answer within {CONNECT_WITHIN_S:g} s") from error
        except (OSError, LineError, SessionError) as error:
            await close(writer)
            raise self._fail(interface, error) from error
        except asyncio.CancelledError:
            writer.close()
            raise

    async def _dial(self, interface: str | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        family = socket.AF_INET6 if ":" in self._policy.address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if interface is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
            address = self._policy.address, self._policy.port
            await asyncio.get_running_loop().sock_connect(connection, address)
            return await asyncio.open_connection(
                sock=connection,
                ssl=self._context,
                server_hostname=self._policy.address,
                limit=MAX_LINE,
            )
        except BaseException:
            connection.close()
            raise

    def _compare(self, writer: asyncio.StreamWriter) -> None:
        """The token is said only to the waypoint with the right certificate."""
        if self._policy.fingerprint is None:
            return
        shown: ssl.SSLObject = writer.get_extra_info("ssl_object")
        found = hashlib.sha256(shown.getpeercert(binary_form=True) or b"").hexdigest()
        if not hmac.compare_digest(found, self._policy.fingerprint):
            raise SessionError(f"wrong certificate: its fingerprint is {found}")

    def _session(self, answer: Document | None) -> WaypointSession:
        if answer is None:
            raise SessionError("it closed the connection")
        if answer.get("type") == "error":
            raise SessionError(f"it refuses: {str(answer.get('message'))[:200]!a}")
        if answer.get("type") != "session":
            raise SessionError("it did not answer with a session")
        if answer.get("plane", "agent") != self._plane:
            raise SessionError(f"it does not serve plane: {self._plane}")
        number, port, key = (answer.get(name) for name in ("session", "port", "key"))
        if not _whole(number, _MOST_SESSION) or not _whole(port, 0xFFFF) or not port:
            raise SessionError("its session has no valid number and port")
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise SessionError("its session has no valid key")
        addresses = _address(answer.get("address4"), 4), _address(answer.get("address6"), 6)
        if addresses[0] is None and addresses[1] is None:
            raise SessionError("its session has no address")
        return WaypointSession(self._policy.address, int(port), int(number or 0), key, *addresses)

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: WaypointSession) -> None:
        """Until the connection ends, or the waypoint is silent."""
        await self._tell(session)
        self.connected, self.problem, self._writer = True, None, writer
        pinging = asyncio.create_task(_ping(writer))
        try:
            while True:
                message = await asyncio.wait_for(read(reader), DEAD_S)
                if message is None:
                    raise SessionError("it closed the connection")
                if message.get("type") == "session":
                    await self._tell(self._session(message))
                if message.get("type") == "error":
                    raise SessionError(f"it says {str(message.get('message'))[:200]!a}")
        except TimeoutError as error:
            raise self._fail(None, f"silent for {DEAD_S:g} s") from error
        except (OSError, LineError, SessionError) as error:
            raise self._fail(None, error) from error
        finally:
            pinging.cancel()

    async def _tell(self, session: WaypointSession) -> None:
        await self._established(session)
        self._renewed.set()


async def _ping(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(encode({"type": "ping"}))
        await asyncio.sleep(PING_EVERY_S)


def _whole(value: Any, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high


def _address(value: object, version: int) -> str | None:
    """An address that hr0 may have; :class:`SessionError` if there is another value."""
    if value is None:
        return None
    try:
        address = ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        address = None
    special = address is None or address.is_multicast or address.is_unspecified or address.is_loopback
    if special or address is None or address.version != version or address.is_link_local:
        raise SessionError(f"its session has no valid IPv{version} address")
    return str(address)


def usable_interfaces(names: Sequence[str]) -> list[str]:
    """Those interfaces of the host that are there and have a carrier."""
    return [name for name in names if _state(name) not in ("down", "lowerlayerdown", "notpresent", None)]


def _state(name: str) -> str | None:
    try:
        return Path(f"/sys/class/net/{name}/operstate").read_text(encoding="ascii").strip()
    except OSError:
        return None
