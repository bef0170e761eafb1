"""Clients with ``plane: kernel`` at a waypoint: their tunnels, as their authenticated connections tell of them.

A client tells of each of its interfaces over a connection through that very interface, so the address that the
connection comes from is where the interface's tunnel ends. Tunnels stay while the daemon is gone: what is wanted is in
a file, and the next daemon goes on with it.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.files.private import write_atomically

from .json_lines import Document
from .kernel_document import MOST_INTERFACES
from .kernel_plane import KernelWaypoint

MOST_PORT = 65_533


@dataclass(frozen=True, slots=True)
class PathNews:
    """What a client tells of an interface: its number, from 1, and the numbers of all that are usable now."""

    number: int
    usable: frozenset[int]


def read_news(message: Document) -> PathNews:
    """The news in a client's hello; :class:`ConfigError` names every wrong place."""
    problems = Problems("hello")
    place = Place(message, problems)
    section = place.section(tuple(message), ("path", "usable"))
    number, usable = 1, frozenset[int]()
    if "path" in section and "usable" in section:
        number = section["path"].integer(1, 1, MOST_INTERFACES)
        usable = frozenset(item.integer(1, 1, MOST_INTERFACES) for item in section["usable"].items())
    problems.raise_if_any()
    return PathNews(number, usable)


def endpoint_of(peer: str) -> str:
    """The address of a connection's other end, without the form that IPv4 has at an IPv6 socket."""
    address = ip_address(peer)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


class KernelSessions:
    """The sessions with tunnels. ``port`` is that of the waypoint's own sessions; the tunnels have the next one, as
    the program that carries the other clients' packets has this one.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self._file = folder / "waypoint-tunnels.json"
        self._plane = KernelWaypoint(folder / "waypoint-kernel.json", port + 1)
        self._sessions: dict[int, Document] = {}
        self.port = port + 1
        """UDP port of all tunnels."""

    def __contains__(self, number: int) -> bool:
        return number in self._sessions

    def restore(self) -> dict[int, str]:
        """Go on with what a daemon that was killed has left; session -> client."""
        try:
            saved = json.loads(self._file.read_text(encoding="utf-8"))
            self._sessions = {int(each["session"]): dict(each) for each in saved}
            clients = {number: str(each["client"]) for number, each in self._sessions.items()}
        except (OSError, ValueError, TypeError, KeyError):
            self._sessions, clients = {}, {}
        if self._sessions:
            try:
                self._plane.install(self._document(self._sessions))
            except ConfigError:
                self._sessions, clients = {}, {}
        return clients

    def begin(self, client: str, number: int, addresses: tuple[str, str | None]) -> None:
        """A session, without tunnels if it is new."""
        named = {"session": number, "client": client, "address4": addresses[0], "address6": addresses[1]}
        if self.port > MOST_PORT:
            raise HyroadsError(f"no port for tunnels (plane: kernel): the waypoint listens above {MOST_PORT - 1}")
        before = self._sessions.get(number)
        wanted = {**named, "paths": [] if before is None else before["paths"]}
        if wanted != before:
            self._use({**self._sessions, number: wanted})

    def tell(self, number: int, news: PathNews, endpoint: str) -> None:
        """An interface of a session is at this address; raises what :meth:`KernelWaypoint.install` does, and then
        nothing changes.
        """
        session = self._sessions[number]
        paths = {each["number"]: each["endpoint"] for each in session["paths"]}
        known = paths.get(news.number) == endpoint
        paths[news.number] = endpoint
        told = [
            {"number": path, "endpoint": where, "usable": path in news.usable} for path, where in sorted(paths.items())
        ]
        if told != session["paths"]:
            self._use({**self._sessions, number: {**session, "paths": told}}, only_usable=known)

    def end(self, number: int) -> None:
        """A session's tunnels go."""
        if number in self._sessions:
            self._use({each: session for each, session in self._sessions.items() if each != number})

    def learn(self) -> None:
        """Follow clients whose NAT has given their tunnel another port."""
        if self._sessions:
            self._plane.learn()

    def remove(self) -> None:
        """All tunnels, and the file."""
        if self._sessions or self._file.exists():
            self._plane.remove()
            self._sessions = {}
            self._file.unlink(missing_ok=True)

    def document(self, number: int) -> Document:
        """The interfaces of a session, for ``status``."""
        return {"paths": self._sessions[number]["paths"]}

    def _use(self, sessions: dict[int, Document], *, only_usable: bool = False) -> None:
        if only_usable:
            self._plane.set_usable(self._document(sessions))
        else:
            self._plane.install(self._document(sessions))
        self._sessions = sessions
        with contextlib.suppress(OSError):
            write_atomically(self._file, json.dumps(list(sessions.values())))

    @staticmethod
    def _document(sessions: dict[int, Document]) -> list[Document]:
        return [{key: value for key, value in each.items() if key != "client"} for each in sessions.values()]
