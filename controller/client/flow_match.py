"""Which packets a flow of a client's policy is for: reading a match (docs/reference/client.md), and whether it fits a
connection. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from hyroads.controller.core.checking import Place, Section, integer_of

PROTOCOLS = ("tcp", "udp", "icmp")
MAX_RANGES = 32
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_CGROUP = re.compile(r"(?!.*/\.{0,2}(?:/|$))(?:/[^/\x00-\x1f\x7f]+)+")
_APPLICATION = re.compile(r"[A-Za-z0-9_.:@-]+")
_MOST_APPLICATION = 255
_PORT_KEYS = ("tcp_dst", "udp_dst", "tcp_src", "udp_src")
_MATCH_KEYS = (*_PORT_KEYS, "protocol", "dst", "src", "dscp", "icmp", "application")

Ports = tuple[int, int]
End = tuple[str, int]
"""Address and port."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Match:
    """What packets a flow is for; None and empty: any. Ports are inclusive ranges. ``application`` is the name of a
    systemd unit or scope, or the path of a control group (cgroup v2), of the process that made the socket.
    """

    protocol: str | int | None = None
    source: str | None = None
    destination: str | None = None
    source_ports: tuple[Ports, ...] = ()
    destination_ports: tuple[Ports, ...] = ()
    dscp: int | None = None
    application: str | None = None

    @staticmethod
    def exactly(source: End, destination: End) -> Match:
        """Matches one TCP connection, by address and port of its ends."""
        near, far = (str(ipaddress.ip_network(address)) for address, _ in (source, destination))
        return Match("tcp", near, far, ((source[1], source[1]),), ((destination[1], destination[1]),))

    def fits(self, source: End, destination: End) -> bool:
        """Whether it matches a TCP connection, by address and port of its ends. A match with what can't be told from
        them, DSCP and application, fits none.
        """
        if self.protocol not in (None, "tcp") or self.dscp is not None or self.application is not None:
            return False
        ends = (
            (source, self.source, self.source_ports),
            (destination, self.destination, self.destination_ports),
        )
        return all(_is_within(end, network, ports) for end, network, ports in ends)


def _is_within(end: End, network: str | None, ports: tuple[Ports, ...]) -> bool:
    address, port = end
    if network is not None and ipaddress.ip_address(address) not in ipaddress.ip_network(network):
        return False
    return not ports or any(low <= port <= high for low, high in ports)


def parse_match(place: Place) -> Match:
    """The match of a flow, as it is in a policy; what is wrong is noted at ``place``."""
    section = place.section(_MATCH_KEYS)
    protocols = {key.partition("_")[0] for key in _PORT_KEYS if key in section}
    if "icmp" in section:
        protocols.add("icmp")
        if section.values["icmp"] is not True:
            section["icmp"].expected("true")
    protocol = _protocol(section["protocol"]) if section.values.get("protocol") is not None else None
    if protocol is not None:
        protocols.add(str(protocol))
    if len(protocols) > 1:
        place.fail(f"expected one protocol, got {' and '.join(sorted(protocols))}")
    elif protocol is None and protocols:
        protocol = next(iter(protocols))
    ports = {end: _ports_of(section, end) for end in ("src", "dst")}
    networks = {key: _network(section[key]) for key in ("src", "dst") if section.values.get(key) is not None}
    versions = {network.version for network in networks.values() if network is not None}
    if len(versions) > 1:
        place.fail("expected src and dst of one IP version")
    texts = {key: str(network) for key, network in networks.items()}
    dscp = integer_of(section, "dscp", 0, 0, 63) if section.values.get("dscp") is not None else None
    application = _application(section["application"]) if section.values.get("application") is not None else None
    return Match(protocol, texts.get("src"), texts.get("dst"), ports["src"], ports["dst"], dscp, application)


def _application(place: Place) -> str | None:
    text = place.value if isinstance(place.value, str) and len(place.value.encode()) <= _MOST_APPLICATION else ""
    if _APPLICATION.fullmatch(text) or _CGROUP.fullmatch(text):
        return text
    place.expected(
        "the name of an application such as firefox, or the path of a cgroup such as /system.slice/x.service"
    )
    return None


def _protocol(place: Place) -> str | int | None:
    if isinstance(place.value, str) and place.value in PROTOCOLS:
        return place.value
    if isinstance(place.value, int) and not isinstance(place.value, bool) and 0 <= place.value <= 255:
        return {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp"}.get(place.value, place.value)
    place.expected("tcp, udp, icmp or a protocol's number from 0 to 255")
    return None


def _ports_of(section: Section, end: str) -> tuple[Ports, ...]:
    found: tuple[Ports, ...] = ()
    for key in (f"tcp_{end}", f"udp_{end}"):
        if key in section:
            found += _ports(section[key])
    return found


def _ports(place: Place) -> tuple[Ports, ...]:
    """A port, ``LOW-HIGH`` or a list of these."""
    several = isinstance(place.value, list)
    if several and not 1 <= len(place.value) <= MAX_RANGES:
        place.fail(f"expected 1 to {MAX_RANGES} ports or ranges")
        return ()
    found = [_port_range(item) for item in (place.items() if several else (place,))]
    return tuple(sorted({each for each in found if each is not None}))


def _port_range(place: Place) -> Ports | None:
    value = place.value
    low: object = value
    high: object = value
    if isinstance(value, str) and (words := _RANGE.fullmatch(value)):
        low, high = int(words[1]), int(words[2])
    whole = isinstance(low, int) and isinstance(high, int) and not isinstance(low, bool)
    if whole and 0 <= low <= high <= 0xFFFF:  # type: ignore[operator]
        return low, high  # type: ignore[return-value]
    place.expected("a port from 0 to 65535 or a range such as 5000-5010")
    return None


def _network(place: Place) -> Network | None:
    try:
        return ipaddress.ip_network(place.value if isinstance(place.value, str) else "")
    except ValueError:
        place.expected("an IP address or a network such as 192.0.2.0/24")
        return None
