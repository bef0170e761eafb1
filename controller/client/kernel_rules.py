"""What the kernel plane installs, derived from a client's configuration. Pure: no I/O, no clock.

A *path* is a number: 1..16 leaves directly by the interface of that number, 17..32 by the tunnel to the waypoint over
interface number path - 16. The connection tracking mark of a flow is ``rule number << 8 | path``. It is given to a flow
by its first packet and kept by the kernel. Two maps of the nftables table say the rest:

* ``pick``: for each rule and address family 64 slots, each with a mark for a new flow. A rule takes one slot after the
  other, so that the flows are spread by the interfaces' rates.
* ``route``: from a flow's mark to the packet mark that selects a routing table. A flow whose mark is not in it waits.

So one element moves all flows of a rule from one tunnel to another, and the set ``refused`` ends those of an interface
that will not come back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from .kernel_document import Configuration, Match, Rule
from .kernel_items import (
    CLAMP,
    CLIENT_END,
    NEIGHBOURS,
    WAYPOINT_END,
    Item,
    Link,
    Plan,
    Tunnel,
    hooked_chain,
    mark_key,
    rule_item,
    tunnel_items,
    tunnel_name,
)

TABLE = "hyroads_client"
HR0 = "hr0"
SLOTS = 64
TUNNEL_PATHS = 16
MOST_INTERFACES = 16
ROUTES = 6650
"""Routing table of hr0's default route; that of path p is ``ROUTES + p``, the packet mark ``PACKET_MARK + p``."""
PACKET_MARK = 0x06650000
PREFERENCE_MARK, PREFERENCE_SOURCE, PREFERENCE_MAIN, PREFERENCE_DEFAULT = 6600, 6605, 6610, 6611
PREFERENCES = frozenset((PREFERENCE_MARK, PREFERENCE_SOURCE, PREFERENCE_MAIN, PREFERENCE_DEFAULT))
RESET_AFTER_S = 3.0
"""An interface without carrier for so long will hardly come back: its direct TCP connections are reset."""


def flow_mark(rule: int, path: int) -> int:
    """The connection tracking mark of a flow."""
    return rule << 8 | path


def client_plan(configuration: Configuration, links: Mapping[str, Link], numbers: Mapping[str, int]) -> Plan:
    """What a client installs. ``links`` are the host's interfaces and ``numbers`` those of the rules, by name."""
    present = {
        number: links[each.name]
        for number, each in enumerate(configuration.interfaces, 1)
        if each.name in links and each.usable
    }
    return Plan(
        items=(*_hr0(configuration, present), *_paths(configuration, present), *_defaults(configuration)),
        ruleset=_ruleset(configuration, numbers),
        elements={
            "pick": _pick(configuration, present, numbers),
            "route": _route(configuration, present, numbers),
            "refused": _refused(configuration, present, numbers),
        },
    )


def candidates(configuration: Configuration, rule: Rule, links: Mapping[int, Link], family: int) -> list[int]:
    """Numbers of the interfaces that take new flows of a rule and family now: the backups only if no other can."""
    waypoint = configuration.waypoint
    outer = family
    if rule.through_waypoint and waypoint is not None:
        outer = waypoint.version
        if configuration.address(family) is None:
            return []
    able = [number for number, link in links.items() if link.carrier and link.reaches(outer)]
    backups = {*rule.backup, *(n for n, each in enumerate(configuration.interfaces, 1) if each.backup)}
    first = [number for number in able if number in rule.interfaces and number not in backups]
    return first or [number for number in able if number in rule.interfaces or number in rule.backup]


def slots(weights: Mapping[int, float], count: int = SLOTS) -> list[int]:
    """Numbers in proportion to their weights, as evenly mixed as possible (smooth weighted round robin)."""
    total = sum(weights.values())
    credit = dict.fromkeys(weights, 0.0)
    mixed: list[int] = []
    for _ in range(count if weights else 0):
        for number, weight in weights.items():
            credit[number] += weight
        best = max(credit, key=lambda number: credit[number])
        credit[best] -= total
        mixed.append(best)
    return mixed


def _weights(configuration: Configuration, numbers: Sequence[int]) -> dict[int, float]:
    """The interfaces' rates; one that is unknown counts as the mean of the known ones."""
    rates = {number: configuration.interfaces[number - 1].rate_mbps for number in numbers}
    known = [rate for rate in rates.values() if rate is not None]
    mean = sum(known) / len(known) if known else 1.0
    return {number: mean if rate is None else rate for number, rate in rates.items()}


def _path(rule: Rule, number: int) -> int:
    return number + (TUNNEL_PATHS if rule.through_waypoint else 0)


def _slot_base(rule: int, family: int) -> int:
    return (rule * 2 + (family == 6)) * SLOTS


def _pick(configuration: Configuration, links: Mapping[int, Link], numbers: Mapping[str, int]) -> dict[bytes, bytes]:
    elements: dict[bytes, bytes] = {}
    for rule in configuration.rules:
        for family in (4, 6):
            weights = _weights(configuration, candidates(configuration, rule, links, family))
            base = _slot_base(numbers[rule.name], family)
            for slot, number in enumerate(slots(weights)):
                mark = flow_mark(numbers[rule.name], _path(rule, number))
                elements[mark_key(base + slot)] = mark_key(mark)
    return elements


def _route(configuration: Configuration, links: Mapping[int, Link], numbers: Mapping[str, int]) -> dict[bytes, bytes]:
    """Flows stay where they are while they may; tunnelled ones move to the rule's fastest interface when they may not.

    Rules that have gone still have flows: their direct ones go on, their tunnelled ones follow the last rule.
    """
    by_number = {numbers[rule.name]: rule for rule in configuration.rules}
    elements: dict[bytes, bytes] = {}
    for number in {*numbers.values()}:
        for interface, link in links.items():
            if link.carrier:
                elements[mark_key(flow_mark(number, interface))] = mark_key(PACKET_MARK + interface)
        rule = by_number.get(number, configuration.rules[-1])
        for interface, target in _tunnel_targets(configuration, rule, links):
            mark = flow_mark(number, TUNNEL_PATHS + interface)
            elements[mark_key(mark)] = mark_key(PACKET_MARK + TUNNEL_PATHS + target)
    return elements


def _tunnel_targets(configuration: Configuration, rule: Rule, links: Mapping[int, Link]) -> Iterator[tuple[int, int]]:
    if configuration.waypoint is None:
        return
    outer = configuration.waypoint.version
    able = {number for number, link in links.items() if link.carrier and link.reaches(outer)}
    family = 4 if configuration.address(4) is not None else 6
    now = candidates(configuration, rule, links, family) if rule.through_waypoint else sorted(able)
    weights = _weights(configuration, now)
    for interface in range(1, len(configuration.interfaces) + 1):
        # A flow leaves a backup interface as soon as another one is there.
        if interface in now or (interface in able and not rule.through_waypoint):
            yield interface, interface
        elif weights:
            yield interface, max(weights, key=lambda number: weights[number])


def _refused(configuration: Configuration, links: Mapping[int, Link], numbers: Mapping[str, int]) -> dict[bytes, bytes]:
    gone = [
        interface
        for interface in range(1, len(configuration.interfaces) + 1)
        if interface not in links or (not links[interface].carrier and links[interface].down_s >= RESET_AFTER_S)
    ]
    return {mark_key(flow_mark(number, interface)): b"" for number in {*numbers.values()} for interface in gone}


def _hr0(configuration: Configuration, links: Mapping[int, Link]) -> Iterator[Item]:
    """The device that holds the stable address. What nftables does not send elsewhere ends there."""
    yield Item(f"link add {HR0} type ifb", f"link del {HR0}")
    mtu = min([1500, *(link.mtu for link in links.values())])
    yield Item(f"link set {HR0} mtu {max(mtu, 1280)} addrgenmode none up", again=True)
    for version, address in configuration.addresses():
        nodad = " nodad" if version == 6 else ""
        length = 128 if version == 6 else 32
        yield Item(
            f"-{version} addr replace {address}/{length} dev {HR0}{nodad}",
            f"-{version} addr del {address}/{length} dev {HR0}",
            again=True,
        )


def _paths(configuration: Configuration, links: Mapping[int, Link]) -> Iterator[Item]:
    for number, link in links.items():
        table = ROUTES + number
        for version in (4, 6):
            if not link.reaches(version):
                continue
            for subnet in link.subnets.get(version, ()):
                yield _route_item(version, f"{subnet} dev {link.name} table {table}", link)
            gateway = f"via {link.gateways[version]} " if link.gateways[version] else ""
            onlink = " onlink" if gateway else ""
            yield _route_item(version, f"default {gateway}dev {link.name}{onlink} table {table}", link)
            yield rule_item(version, f"from {link.addresses[version]} lookup {table} pref {PREFERENCE_SOURCE}")
            yield rule_item(version, f"fwmark {PACKET_MARK + number:#x} lookup {table} pref {PREFERENCE_MARK}")
        waypoint = configuration.waypoint
        if waypoint is not None and link.reaches(waypoint.version):
            yield from tunnel_items(
                Tunnel(
                    waypoint.session,
                    number,
                    CLIENT_END,
                    waypoint.address,
                    waypoint.port,
                    link.addresses[waypoint.version],
                    link,
                )
            )
            device = tunnel_name(waypoint.session, number)
            path = number + TUNNEL_PATHS
            for version, _ in configuration.addresses():
                far = NEIGHBOURS[WAYPOINT_END][version == 6]
                yield Item(
                    f"-{version} route replace default via {far} dev {device} onlink table {ROUTES + path}",
                    f"-{version} route del default dev {device} table {ROUTES + path}",
                    again=True,
                    index=link.index,
                )
                yield rule_item(
                    version, f"fwmark {PACKET_MARK + path:#x} lookup {ROUTES + path} pref {PREFERENCE_MARK}"
                )


def _defaults(configuration: Configuration) -> Iterator[Item]:
    """Whatever has no better route than a default goes to hr0, and with its address; last, when all else is there."""
    for version, address in configuration.addresses():
        yield Item(
            f"-{version} route replace default dev {HR0} src {address} table {ROUTES}",
            f"-{version} route del default dev {HR0} table {ROUTES}",
            again=True,
        )
        yield rule_item(version, f"lookup main suppress_prefixlength 0 pref {PREFERENCE_MAIN}")
        yield rule_item(version, f"lookup {ROUTES} pref {PREFERENCE_DEFAULT}")


def _route_item(version: int, route: str, link: Link) -> Item:
    return Item(f"-{version} route replace {route}", f"-{version} route del {route}", again=True, index=link.index)


def _ruleset(configuration: Configuration, numbers: Mapping[str, int]) -> str:
    """The table without elements; it changes only with the rules, the addresses and the waypoint."""
    own = [f"{'ip' if version == 4 else 'ip6'} saddr {address}" for version, address in configuration.addresses()]
    snat = [f"{each} accept" for each in own] + [
        f"snat {'ip' if version == 4 else 'ip6'} to {address}" for version, address in configuration.addresses()
    ]
    choices = [text for rule in configuration.rules for text in _jumps(rule.match, f"rule{numbers[rule.name]}")]
    return "\n".join(
        [
            f"table inet {TABLE} {{",
            "map pick { type mark : mark; size 65535; }",
            "map route { type mark : mark; size 65535; }",
            "set refused { type mark; size 65535; }",
            *_tunnel_chains(configuration),
            *hooked_chain(
                "local",
                "route",
                "output",
                "mangle",
                ['oifname "lo" accept', 'oifname "hrk*" accept', *(f"{each} jump steer" for each in own)],
            ),
            *hooked_chain("forwarded", "filter", "prerouting", "mangle", _forwarded()),
            *hooked_chain("rewrite", "nat", "postrouting", "srcnat", _rewrite(snat)),
            "chain translate {",
            *snat,
            "}",
            *_steer(),
            "chain choose {",
            *choices,
            "}",
            *(text for rule in configuration.rules for text in _rule_chain(numbers[rule.name])),
            "}",
            "",
        ]
    )


def _tunnel_chains(configuration: Configuration) -> list[str]:
    """The tunnels' own packets need no tracking. Without a waypoint no packet has to pass these chains."""
    waypoint = configuration.waypoint
    if waypoint is None:
        return []
    family = "ip" if waypoint.version == 4 else "ip6"
    out, back = (
        f"{family} {side}addr {waypoint.address} udp {side}port {waypoint.port} notrack" for side in ("d", "s")
    )
    return [
        *hooked_chain("untracked_out", "filter", "output", "raw", [out]),
        *hooked_chain("untracked_in", "filter", "prerouting", "raw", [back]),
        *hooked_chain("segments", "filter", "postrouting", "mangle", [CLAMP]),
    ]


def _forwarded() -> list[str]:
    """A router's clients are bound like its own programs: whatever would take the default route."""
    return [
        "ct direction reply accept",
        'iifname "hrk*" accept',
        "ct mark and 0xff != 0 goto steer",
        f'ct state new fib daddr oifname "{HR0}" goto steer',
    ]


def _rewrite(snat: Sequence[str]) -> list[str]:
    first, last = TUNNEL_PATHS + 1, TUNNEL_PATHS + MOST_INTERFACES
    return [
        f"ct mark and 0xff >= {first} ct mark and 0xff <= {last} goto translate",
        "ct mark and 0xff != 0 masquerade",
    ]


def _steer() -> list[str]:
    """What most packets need comes first: a known flow that has its path."""
    return [
        "chain steer {",
        "meta mark set ct mark map @route accept",
        "ct mark 0 jump choose",
        "ct mark 0 reject with icmpx type no-route",
        "ct mark @refused meta l4proto tcp reject with tcp reset",
        "meta mark set ct mark map @route",
        "}",
    ]


def _rule_chain(number: int) -> list[str]:
    """A first packet takes the next slot; if there is none, no interface is usable and the mark stays zero."""
    four, six = (
        f"meta nfproto ipv{family} meta mark set numgen inc mod {SLOTS} offset {_slot_base(number, family)}"
        for family in (4, 6)
    )
    return [f"chain rule{number} {{", four, six, "ct mark set meta mark map @pick", "}"]


def _jumps(match: Match, chain: str) -> Iterator[str]:
    """A rule's match as nftables text; none if no packet of a family can match."""
    words: list[str] = []
    if match.protocol == "icmp":
        words.append("meta l4proto { icmp, ipv6-icmp }")
    elif match.protocol is not None:
        words.append(f"meta l4proto {match.protocol}")
    elif match.source_port is not None or match.destination_port is not None:
        words.append("meta l4proto { tcp, udp }")
    for network, side in ((match.source, "saddr"), (match.destination, "daddr")):
        if network is not None:
            words.append(f"{'ip6' if ':' in network else 'ip'} {side} {network}")
    for ports, side in ((match.source_port, "sport"), (match.destination_port, "dport")):
        if ports is not None:
            words.append(f"th {side} {ports[0]}-{ports[1]}")
    if match.dscp is None:
        yield " ".join([*words, "goto", chain])
        return
    versions = {6 if ":" in network else 4 for network in (match.source, match.destination) if network is not None}
    for family, version in (("ip", 4), ("ip6", 6)):
        if version in (versions or (4, 6)):
            yield " ".join([f"meta nfproto ipv{version}", *words, f"{family} dscp {match.dscp} goto {chain}"])


def script(table: str, plan: Plan) -> str:
    """The nftables script that puts a plan's table, with its elements, in the place of whatever has its name."""
    lines = [f"table inet {table}", f"delete table inet {table}", plan.ruleset]
    for name, elements in plan.elements.items():
        words = [
            " : ".join(str(int.from_bytes(part, sys.byteorder)) for part in pair if part) for pair in elements.items()
        ]
        if words:
            lines.append(f"add element inet {table} {name} {{ {', '.join(words)} }}")
    return "\n".join(lines) + "\n"
