"""The configuration of the kernel plane: the documents that ``hyroads-client`` takes, checked for what a kernel can do.

The kernel binds flows and moves them, and no more: a rule that asks for copies or for packets spread over interfaces is
an error, weights and urgency have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from hyroads.controller.core.checking import Place, Problems, Section

MOST_INTERFACES, MOST_RULES, MOST_SESSION = 16, 250, (1 << 20) - 1
_PROTOCOLS = ("udp", "tcp", "icmp")
_NAME_BYTES = 15


@dataclass(frozen=True)
class Match:
    """What a flow must look like; None accepts everything. Ports are the lowest and the highest."""

    protocol: str | int | None = None
    source: str | None = None
    destination: str | None = None
    source_port: tuple[int, int] | None = None
    destination_port: tuple[int, int] | None = None
    dscp: int | None = None


@dataclass(frozen=True)
class Rule:
    """Which interfaces (numbers from 1) the flows of a match may use; ``backup`` ones only if no other can."""

    name: str
    match: Match
    interfaces: tuple[int, ...]
    backup: tuple[int, ...]
    through_waypoint: bool


@dataclass(frozen=True)
class Interface:
    """An interface of the client; ``rate_mbps`` None means unknown."""

    name: str
    rate_mbps: float | None = None
    backup: bool = False
    usable: bool = True


@dataclass(frozen=True)
class WaypointEnd:
    """Where the tunnels go; the kernel has no use for the session's key."""

    address: str
    port: int
    session: int

    @property
    def version(self) -> int:
        """4 or 6: the family of the tunnels' outer packets."""
        return ip_address(self.address).version


@dataclass(frozen=True)
class Configuration:
    """All that a client wants of the kernel plane. The last rule accepts everything."""

    address4: str | None
    address6: str | None
    interfaces: tuple[Interface, ...]
    waypoint: WaypointEnd | None
    rules: tuple[Rule, ...]

    def address(self, family: int) -> str | None:
        """The stable address of a family."""
        return self.address4 if family == 4 else self.address6

    def addresses(self) -> Iterator[tuple[int, str]]:
        """Family and stable address, of those families that have one."""
        yield from ((family, each) for family, each in ((4, self.address4), (6, self.address6)) if each is not None)


def read_configuration(document: object, name: str = "configure") -> Configuration:
    """Check a ``configure`` document; raises one ConfigError that names every mistake and its place."""
    problems = Problems(name)
    keys = ("address4", "address6", "interfaces", "waypoint", "rules")
    top = Place(document, problems).section(("type", "seq", *keys), keys)
    problems.raise_if_any()
    interfaces = tuple(_interfaces(top["interfaces"]))
    numbers = {each.name: number for number, each in enumerate(interfaces, 1)}
    waypoint = _waypoint(top["waypoint"])
    rules = tuple(_rule(place, numbers, waypoint is not None) for place in top["rules"].items())
    _check_rules(top["rules"], rules)
    address4, address6 = _address(top["address4"], 4), _address(top["address6"], 6)
    if top["address4"].value is None and top["address6"].value is None:
        top["address4"].fail("expected an address: address4 and address6 are both null")
    problems.raise_if_any()
    return Configuration(address4, address6, interfaces, waypoint, rules)


def _interfaces(place: Place) -> Iterator[Interface]:
    names: set[str] = set()
    for item in place.items():
        section = item.section(("name", "rate_mbps", "backup", "usable", "dns"), ("name",))
        name = interface_name(section["name"]) if "name" in section else ""
        if "name" in section and name in names:
            section["name"].fail(f"interface {name} is listed twice")
        names.add(name)
        rate = section.optional("rate_mbps")
        rate_mbps = None if rate is None or rate.value is None else rate.number(1.0, 0.0, 1e6, open_low=True)
        yield Interface(name, rate_mbps, _flag(section, "backup", False), _flag(section, "usable", True))
    if not 1 <= len(names) <= MOST_INTERFACES:
        place.fail(f"expected 1 to {MOST_INTERFACES} interfaces")


def interface_name(place: Place) -> str:
    """A name that a network interface may have and that means nothing else in a command; empty if it is wrong."""
    name = place.value
    plain = isinstance(name, str) and 0 < len(name.encode()) <= _NAME_BYTES and not name.startswith("-")
    if not plain or not all(letter.isascii() and (letter.isalnum() or letter in "._-@+:") for letter in str(name)):
        place.expected("the name of a network interface")
        return ""
    return str(name)


def _flag(section: Section, key: str, default: bool) -> bool:
    return section[key].boolean(default) if key in section else default


def _waypoint(place: Place) -> WaypointEnd | None:
    if place.value is None:
        return None
    section = place.section(("address", "port", "session", "key"), ("address", "port", "session"))
    if not all(key in section for key in ("address", "port", "session")):
        return None
    address = host_address(section["address"])
    port = section["port"].integer(6656, 1, 65534)
    return WaypointEnd(address or "0.0.0.0", port, section["session"].integer(1, 1, MOST_SESSION))  # noqa: S104 - unused


def host_address(place: Place, family: int | None = None) -> str | None:
    """An address that a host may have, of one family if it is given; None and an error if it is not one."""
    try:
        address = ip_address(place.value) if isinstance(place.value, str) else None
    except ValueError:
        address = None
    bad = address is None or address.is_multicast or address.is_unspecified or address.is_loopback
    if address is None or bad or (family is not None and address.version != family) or "%" in str(address):
        place.expected(f"an IPv{family} address of a host" if family else "the IP address of a host")
        return None
    return str(address)


def _address(place: Place, family: int) -> str | None:
    return None if place.value is None else host_address(place, family)


def _rule(place: Place, numbers: Mapping[str, int], has_waypoint: bool) -> Rule:
    keys = ("name", "match", "weight", "urgent", "interfaces", "backup", "copies", "spread", "via")
    section = place.section(keys, ("name", "match", "interfaces"))
    name = section["name"].identifier() if "name" in section else ""
    interfaces = _names(section, "interfaces", numbers)
    backup = _names(section, "backup", numbers)
    if section.valid and "interfaces" in section and not interfaces and not backup:
        section["interfaces"].fail("no interface is left for the rule")
    if _flag(section, "copies", False):
        section["copies"].fail("the kernel plane makes no copies (plane: agent does)")
    if "spread" in section and section["spread"].choice(("flow", "packet"), "flow") == "packet":
        section["spread"].fail("the kernel plane does not spread the packets of a flow (plane: agent does)")
    through = "via" in section and section["via"].choice(("direct", "waypoint"), "direct") == "waypoint"
    if through and not has_waypoint:
        section["via"].fail("expected direct: there is no waypoint")
    match = _match(section["match"]) if "match" in section else Match()
    return Rule(name, match, interfaces, backup, through)


def _names(section: Section, key: str, numbers: Mapping[str, int]) -> tuple[int, ...]:
    if key not in section:
        return ()
    names = [item.reference(numbers, "interface") for item in section[key].items()]
    return tuple(dict.fromkeys(numbers[name] for name in names if name))


def _match(place: Place) -> Match:
    keys = ("protocol", "source", "destination", "source_port", "destination_port", "dscp")
    section = place.section(keys)

    def given(key: str) -> Place | None:
        return section[key] if section.values.get(key) is not None else None

    dscp = given("dscp")
    networks = (_network(given("source")), _network(given("destination")))
    if None not in networks and len({":" in str(each) for each in networks}) > 1:
        place.fail("source and destination are of different families")
    return Match(
        _protocol(given("protocol")),
        *networks,
        _ports(given("source_port")),
        _ports(given("destination_port")),
        None if dscp is None else dscp.integer(0, 0, 63),
    )


def _protocol(place: Place | None) -> str | int | None:
    if place is None:
        return None
    if isinstance(place.value, str):
        return place.choice(_PROTOCOLS, "udp")
    return place.integer(17, 0, 255)


def _network(place: Place | None) -> str | None:
    if place is None:
        return None
    try:
        return str(ip_network(place.value if isinstance(place.value, str) else ""))
    except ValueError:
        place.expected("a network like 192.0.2.0/24 or fd00::/8")
        return None


def _ports(place: Place | None) -> tuple[int, int] | None:
    if place is None:
        return None
    ports: Any = place.value
    if not isinstance(ports, list | tuple) or len(ports) != 2:
        place.expected("the lowest and the highest port, as a list")
        return None
    low, high = (item.integer(0, 0, 65535) for item in place.items())
    if low > high:
        place.fail("the lowest port is above the highest")
    return low, high


def _check_rules(place: Place, rules: tuple[Rule, ...]) -> None:
    if not 1 <= len(rules) <= MOST_RULES:
        place.fail(f"expected 1 to {MOST_RULES} rules")
    elif rules[-1].match != Match():
        place.fail("the last rule must accept everything: an empty match")
    if len({rule.name for rule in rules}) < len(rules):
        place.fail("two rules have the same name")
