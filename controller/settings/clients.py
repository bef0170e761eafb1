"""The parts ``access`` and ``querier`` of the settings: hosts at access ports, and who asks which groups they want."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from hyroads.controller.core.checking import Place, Section, boolean_of, integer_of, number_of
from hyroads.controller.core.services.clients import Limits
from hyroads.controller.core.services.membership import MAX_ROBUSTNESS, QueryTimes


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """``guard``: only frames of hosts that were learned pass, and no host takes the place of another."""

    guard: bool = True
    dhcp_servers: tuple[str, ...] | None = None
    """Nodes at whose access port DHCP servers may be; None: gateways."""
    limits: Limits = field(default_factory=Limits)


def parse_access(top: Section) -> AccessSettings:
    """The section of the settings, if there is one."""
    if top.values.get("access") is None:
        return AccessSettings()
    section = top["access"].section(("guard", "quiet_s", "forget_s", "interfaces", "dhcp_servers"))
    default = Limits()
    limits = Limits(
        interfaces=integer_of(section, "interfaces", default.interfaces, 1, 100_000),
        quiet_s=number_of(section, "quiet_s", default.quiet_s, 0.1, 3600),
        forget_s=number_of(section, "forget_s", default.forget_s, 1, 86_400),
    )
    servers = section.optional("dhcp_servers")
    return AccessSettings(boolean_of(section, "guard", True), None if servers is None else _nodes(servers), limits)


def _nodes(place: Place) -> tuple[str, ...]:
    if not isinstance(place.value, list) or not all(isinstance(node, str) for node in place.value):
        place.expected("a list of nodes")
        return ()
    return tuple(place.value)


@dataclass(frozen=True, slots=True)
class QuerierSettings:
    """``address`` is where IGMP queries come from; 0.0.0.0 gives way to every other querier."""

    address: str = "0.0.0.0"  # noqa: S104 - nothing listens there: it is the address of a querier without one
    times: QueryTimes = field(default_factory=QueryTimes)


def parse_querier(place: Place | None) -> QuerierSettings:
    """The section of the settings, if there is one."""
    plain = QuerierSettings()
    if place is None or place.value is None:
        return plain
    section, default = place.section(("address", "interval_s", "response_s", "robustness")), plain.times
    address = plain.address
    if "address" in section:
        try:
            address = str(ipaddress.IPv4Address(section.values["address"]))
        except ValueError:
            section["address"].expected("an IPv4 address that no host has")
    times = QueryTimes(
        number_of(section, "interval_s", default.interval_s, 1, 1000),
        number_of(section, "response_s", default.response_s, 0.1, 600),
        integer_of(section, "robustness", default.robustness, 1, MAX_ROBUSTNESS),
    )
    if times.response_s >= times.interval_s:
        section.place.key("response_s", None).fail("expected less than interval_s")
    return QuerierSettings(address, times)
