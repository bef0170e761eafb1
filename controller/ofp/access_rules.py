"""Access ports of one switch: who is let in, and which claims go to the controller first
(docs/explanation/clients.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hyroads.controller.ofp import action as act
from hyroads.controller.ofp.intents import AccessPort
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import (
    ETH_TYPE_ARP,
    ETH_TYPE_IPV4,
    ETH_TYPE_IPV6,
    NEIGHBOUR_ADVERTISEMENT,
    NEIGHBOUR_SOLICITATION,
    PROTOCOL_ICMPV6,
    PROTOCOL_UDP,
    Priority,
    Table,
)
from hyroads.controller.ofp.rule import Rule

_TO_CONTROLLER: tuple[act.Action, ...] = (act.Output(act.CONTROLLER),)
_PASS: tuple[act.Action, ...] = (act.Resubmit(Table.CLASSIFY),)
_SERVER_PORTS = ((ETH_TYPE_IPV4, 67), (ETH_TYPE_IPV6, 547))


def port_rules(number: int, port: AccessPort) -> Iterator[Rule]:
    """Frames of hosts: all of them, or those of known hosts while the controller is told of others."""
    if not port.guarded:
        yield Rule(Table.PORT, Priority.LABELLED, Match(in_port=number), goto=Table.CLASSIFY)
        return
    yield Rule(Table.PORT, Priority.LABELLED, Match(in_port=number), _TO_CONTROLLER)
    for mac in port.hosts:
        yield Rule(Table.PORT, Priority.CLIENT, Match(in_port=number, eth_src=mac), goto=Table.CLASSIFY)
    for match in server_matches(number):
        goto = Table.CLASSIFY if port.serves_dhcp else None
        yield Rule(Table.PORT, Priority.DHCP_SERVER, match, _TO_CONTROLLER, goto=goto)


def server_matches(number: int, mac: str | None = None) -> Iterator[Match]:
    """What DHCP servers say."""
    for eth_type, udp in _SERVER_PORTS:
        yield Match(in_port=number, eth_src=mac, eth_type=eth_type, ip_proto=PROTOCOL_UDP, udp_src=udp)


def check_rules() -> Iterator[Rule]:
    """Claims go to the controller unless they are known to be true; a host that asks whether an address is free claims
    none.
    """
    yield Rule(Table.CHECK, Priority.DEFAULT, Match(), _PASS)
    arp = Match(eth_type=ETH_TYPE_ARP, arp_spa="0.0.0.0")  # noqa: S104 - nobody's address
    yield Rule(Table.CHECK, Priority.UNICAST, Match(eth_type=ETH_TYPE_ARP), _TO_CONTROLLER)
    yield Rule(Table.CHECK, Priority.UNICAST_VARIANT, arp, _PASS)
    for kind in (NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT):
        match = Match(eth_type=ETH_TYPE_IPV6, ip_proto=PROTOCOL_ICMPV6, icmpv6_type=kind)
        yield Rule(Table.CHECK, Priority.UNICAST, match, _TO_CONTROLLER)
    free = Match(eth_type=ETH_TYPE_IPV6, ip_proto=PROTOCOL_ICMPV6, icmpv6_type=NEIGHBOUR_SOLICITATION, ipv6_src="::")
    yield Rule(Table.CHECK, Priority.UNICAST_VARIANT, free, _PASS)


def claim_matches(number: int, mac: str, ip: str) -> Iterator[Match]:
    """Frames in which a host claims an address."""
    if ":" not in ip:
        yield Match(in_port=number, eth_src=mac, eth_type=ETH_TYPE_ARP, arp_spa=ip)
        return
    ours = Match(in_port=number, eth_src=mac, eth_type=ETH_TYPE_IPV6, ip_proto=PROTOCOL_ICMPV6, ipv6_src=ip)
    yield replace(ours, icmpv6_type=NEIGHBOUR_SOLICITATION)
    yield replace(ours, icmpv6_type=NEIGHBOUR_ADVERTISEMENT, ipv6_src=None, nd_target=ip)
