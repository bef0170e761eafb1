"""What the kernel plane installs at a waypoint, derived from its sessions. Pure: no I/O, no clock.

Each interface of a client has a VXLAN tunnel of its own. A flow's way back follows its last packet from the client: its
connection tracking mark, ``session << 8 | interface number``, is set by each packet that comes out of a tunnel. The map
``route`` turns the mark into a packet mark that selects a routing table, and so one element moves the way back of all
flows of a session from a dead interface to a live one.

Who may use a tunnel is decided by the addresses that the daemon saw on the authenticated control connections: a packet
of a tunnel must come from such an address, and hold a packet from the session's inner address.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hyroads.controller.core.checking import Place, Problems

from .kernel_document import MOST_INTERFACES, MOST_SESSION, host_address
from .kernel_items import (
    CLAMP,
    CLIENT_END,
    NEIGHBOURS,
    PROBE_PORT,
    WAYPOINT_END,
    Item,
    Plan,
    Tunnel,
    hooked_chain,
    mark_key,
    rule_item,
    tunnel_items,
    tunnel_mac,
    tunnel_name,
    vni,
)

TABLE = "hyroads_tunnels"
ROUTES = 6700
PACKET_MARK = 0x06660000
PREFERENCE = 6600
MOST_SESSIONS = 4000
_NAME_BYTES = 16
_SETS = (
    "set endpoints4 { type ipv4_addr . mark; size 65535; }",
    "set endpoints6 { type ipv6_addr . mark; size 65535; }",
    "set seen4 { type ipv4_addr . mark . inet_service; size 65535; flags dynamic,timeout; timeout 2m; }",
    "set seen6 { type ipv6_addr . mark . inet_service; size 65535; flags dynamic,timeout; timeout 2m; }",
    "set owners4 { type ifname . ipv4_addr; size 65535; }",
    "set owners6 { type ifname . ipv6_addr; size 65535; }",
    "map arrival { type ifname : mark; size 65535; }",
    "map route { type mark : mark; size 65535; }",
)
_MASQUERADE = 'oifname != "hrk*" ct mark != 0 ct direction original masquerade'


@dataclass(frozen=True)
class ClientPath:
    """A client's interface: its number, the address it was seen at, and whether packets reach the client there."""

    number: int
    endpoint: str
    usable: bool


@dataclass(frozen=True)
class WaypointSession:
    """A client's session with its inner addresses and tunnels."""

    session: int
    address4: str | None
    address6: str | None
    paths: tuple[ClientPath, ...]

    def addresses(self) -> Iterator[tuple[int, str]]:
        """Family and inner address, of those families that have one."""
        yield from ((family, each) for family, each in ((4, self.address4), (6, self.address6)) if each is not None)


def read_sessions(document: object, name: str = "sessions") -> tuple[WaypointSession, ...]:
    """Check a list of sessions; raises one ConfigError that names every mistake and its place.

    Each is ``{"session": 7, "address4": "100.72.0.2" | null, "address6": null | "...", "paths": [{"number": 1,
    "endpoint": "192.0.2.7", "usable": true}, ...]}``; numbers are those of the client's interfaces, from 1.
    """
    problems = Problems(name)
    sessions = tuple(_session(item) for item in Place(document, problems).items())
    inner = [each for session in sessions for _, each in session.addresses()]
    if len(inner) != len(set(inner)) or len({each.session for each in sessions}) != len(sessions):
        problems.add("", "two sessions have the same number or inner address")
    if len(sessions) > MOST_SESSIONS:
        problems.add("", f"expected at most {MOST_SESSIONS} sessions")
    problems.raise_if_any()
    return sessions


def _session(place: Place) -> WaypointSession:
    section = place.section(("session", "address4", "address6", "paths"), ("session", "paths"))
    number = section["session"].integer(1, 1, MOST_SESSION) if "session" in section else 1
    addresses = [
        host_address(section[key], family) if section.values.get(key) is not None else None
        for family, key in ((4, "address4"), (6, "address6"))
    ]
    paths = tuple(_path(item) for item in section["paths"].items()) if "paths" in section else ()
    if len({path.number for path in paths}) < len(paths):
        section["paths"].fail("two paths have the same number")
    return WaypointSession(number, addresses[0], addresses[1], paths)


def _path(place: Place) -> ClientPath:
    section = place.section(("number", "endpoint", "usable"), ("number", "endpoint"))
    number = section["number"].integer(1, 1, MOST_INTERFACES) if "number" in section else 1
    endpoint = (host_address(section["endpoint"]) if "endpoint" in section else None) or "192.0.2.1"
    return ClientPath(number, endpoint, section["usable"].boolean(True) if "usable" in section else True)


def waypoint_plan(sessions: Sequence[WaypointSession], port: int) -> Plan:
    """What a waypoint installs; ``port`` is the UDP port of all tunnels."""
    return Plan(
        items=tuple(_items(sessions, port)),
        ruleset=_ruleset(port),
        elements={
            "endpoints4": {endpoint_key(p.endpoint, vni(s.session, p.number)): b"" for s, p in _all(sessions, 4)},
            "endpoints6": {endpoint_key(p.endpoint, vni(s.session, p.number)): b"" for s, p in _all(sessions, 6)},
            "owners4": _owners(sessions, 4),
            "owners6": _owners(sessions, 6),
            "arrival": {_name(s, p): mark_key(s.session << 8 | p.number) for s in sessions for p in s.paths},
            "route": _route(sessions),
        },
    )


def endpoint_key(address: str, network: int) -> bytes:
    """Key of the sets ``endpoints`` and, but for the port, ``seen``: address and VNI as it stands in the packet."""
    return _packed(address) + struct.pack(">I", network << 8)


def seen_ports(elements: Mapping[bytes, bytes]) -> dict[int, int]:
    """The UDP source ports of the set ``seen``, by VNI; keys of a wrong length are left out."""
    found: dict[int, int] = {}
    for key in elements:
        if len(key) in (12, 24):
            network, port = struct.unpack(">IH", key[-8:-2])
            found[network >> 8] = port
    return found


def _all(sessions: Sequence[WaypointSession], family: int) -> Iterator[tuple[WaypointSession, ClientPath]]:
    for session in sessions:
        yield from ((session, path) for path in session.paths if (":" in path.endpoint) == (family == 6))


def _name(session: WaypointSession, path: ClientPath) -> bytes:
    return tunnel_name(session.session, path.number).encode().ljust(_NAME_BYTES, b"\0")


def _owners(sessions: Sequence[WaypointSession], family: int) -> dict[bytes, bytes]:
    return {
        _name(session, path) + _packed(address): b""
        for session in sessions
        for path in session.paths
        for version, address in session.addresses()
        if version == family
    }


def _route(sessions: Sequence[WaypointSession]) -> dict[bytes, bytes]:
    """Back to the interface that the last packet came from, or to the first usable one."""
    elements: dict[bytes, bytes] = {}
    for session in sessions:
        usable = [path.number for path in session.paths if path.usable]
        for number in range(1, MOST_INTERFACES + 1):
            target = number if number in usable or not usable else usable[0]
            elements[mark_key(session.session << 8 | number)] = mark_key(PACKET_MARK + target)
    return elements


def _items(sessions: Sequence[WaypointSession], port: int) -> Iterator[Item]:
    for number in range(1, MOST_INTERFACES + 1):
        for version in (4, 6):
            yield rule_item(version, f"fwmark {PACKET_MARK + number:#x} lookup {ROUTES + number} pref {PREFERENCE}")
    for session in sessions:
        for path in session.paths:
            yield from tunnel_items(Tunnel(session.session, path.number, WAYPOINT_END, path.endpoint, port))
            name = tunnel_name(session.session, path.number)
            for version, address in session.addresses():
                far = NEIGHBOURS[CLIENT_END][version == 6]
                route = f"{address} via {far} dev {name} onlink table {ROUTES + path.number}"
                yield Item(f"-{version} route replace {route}", f"-{version} route del {route}", again=True)


def remote_command(session: int, path: ClientPath, port: int) -> str:
    """The ``bridge`` command that sends a tunnel's packets to the port at which a NAT has put the client."""
    name = tunnel_name(session, path.number)
    return (
        f"fdb replace {tunnel_mac(path.number, CLIENT_END)} dev {name} dst {path.endpoint} port {port} self permanent"
    )


def _ruleset(port: int) -> str:
    """The table without elements; it depends on nothing but the port."""
    back = "ct direction reply ct mark != 0 meta mark set ct mark map @route"
    chains = [
        hooked_chain("tunnels", "filter", "prerouting", "raw", [f"udp dport {port} jump outer"]),
        ["chain outer {", "meta mark set @th,96,32", *_learn(), "meta mark set 0 notrack", "}"],
        hooked_chain(
            "outer_back", "filter", "output", "raw", [f'udp sport {port} udp dport != 0 oifname != "lo" notrack']
        ),
        hooked_chain("inner", "filter", "prerouting", "mangle", ['iifname "hrk*" goto from_client', back]),
        ["chain from_client {", *_from_client(), "}"],
        hooked_chain("local", "route", "output", "mangle", [back]),
        hooked_chain("segments", "filter", "postrouting", "mangle", [CLAMP]),
        hooked_chain("rewrite", "nat", "postrouting", "srcnat", [_MASQUERADE]),
    ]
    return "\n".join([f"table inet {TABLE} {{", *_SETS, *(line for chain in chains for line in chain), "}", ""])


def _learn() -> list[str]:
    """Where clients' tunnels come from; packets from elsewhere are dropped."""
    return [
        text
        for version, family in ((4, "ip"), (6, "ip6"))
        for text in (
            f"meta nfproto ipv{version} {family} saddr . meta mark != @endpoints{version} counter drop",
            f"meta nfproto ipv{version} update @seen{version} {{ {family} saddr . meta mark . udp sport }}",
        )
    ]


def _from_client() -> list[str]:
    """What comes out of a tunnel."""
    return [
        "meta nfproto ipv4 iifname . ip saddr != @owners4 counter drop",
        "meta nfproto ipv6 iifname . ip6 saddr != @owners6 counter drop",
        # It has shown where its client is; that is all.
        f"ip daddr {NEIGHBOURS[WAYPOINT_END][0]} udp dport {PROBE_PORT} drop",
        "ct mark set iifname map @arrival",
    ]


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
