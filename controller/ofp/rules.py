"""Intent -> rules of one switch (docs/reference/openflow.md, section 3).

Ports get their numbers here. A port that the switch does not (yet) have leaves out exactly the rules, or the copies of
a flooded frame, that need it; its name is reported, and the caller builds again when the port appears.

Two things about Open vSwitch shape the rules. An output to the port a frame came in on is dropped: hosts never hear
themselves, but a relay on a shared medium needs the reserved port IN_PORT, hence the variants with ``in_port``. And
what a resubmitted table rewrites stays rewritten, hence copies with other addresses are made inside ``clone``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from hyroads.controller.core.services.membership import MAC as CONTROLLER_MAC

from . import match as act
from .fragments import bad_fragment_rules, fragment_port_rules
from .intents import AccessPort, AttachedClient, ClassifiedFlow, Hop, NodeRoute, SwitchIntent
from .match import GROUP_ADDRESS, Match
from .pipeline import (
    ETH_TYPE_ARP,
    ETH_TYPE_EAPOL,
    ETH_TYPE_HELLO,
    ETH_TYPE_IPV4,
    ETH_TYPE_IPV6,
    ETH_TYPE_MPLS,
    ETH_TYPE_SERVICE_VLAN,
    ETH_TYPE_SHIM,
    ETH_TYPE_VLAN,
    NEIGHBOUR_ADVERTISEMENT,
    NEIGHBOUR_SOLICITATION,
    PROTOCOL_ICMPV6,
    PROTOCOL_UDP,
    REDIRECT,
    ROUTER_ADVERTISEMENT,
    ROUTER_SOLICITATION,
    Priority,
    Table,
)
from .rule import GroupEntry, Rule
from .sessions import Groups, Ports, behind, label_match, labelled_from, sealed_from, session_rules
from .sizes import size_rules
from .vlan_tags import TagRules, with_tag_rules, with_tags_off

_TO_CONTROLLER: tuple[act.Action, ...] = (act.Output(act.CONTROLLER),)
_PASS: tuple[act.Action, ...] = (act.Resubmit(Table.ACCESS),)
_SERVER_PORTS = ((ETH_TYPE_IPV4, 67, 68), (ETH_TYPE_IPV6, 547, 546))
"""Of DHCP's servers and clients."""


_CLAIMS = (ROUTER_SOLICITATION, NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT)
"""Messages of neighbour discovery that bind an address to a host."""


def port_rules(number: int, port: AccessPort) -> Iterator[Rule]:
    """Frames of hosts: all of them, or those of known hosts while the controller is told of others."""
    if not port.guarded:
        yield Rule(Table.PORT, Priority.LABELLED, Match(in_port=number), goto=Table.ACCESS)
        return
    if port.closed:
        yield from closed_rules(number)
        return
    yield from fragment_port_rules(number, serves_dhcp=port.serves_dhcp)
    yield Rule(Table.PORT, Priority.LABELLED, Match(in_port=number), _TO_CONTROLLER)
    for mac in port.hosts:
        yield Rule(Table.PORT, Priority.CLIENT, Match(in_port=number, eth_src=mac), goto=Table.ACCESS)
    for match in server_matches(number):
        goto = Table.ACCESS if port.serves_dhcp else None
        yield Rule(Table.PORT, Priority.DHCP_SERVER, match, _TO_CONTROLLER, goto=goto)
    if not port.routes:
        for match in router_matches(number):
            yield Rule(Table.PORT, Priority.DHCP_SERVER, match, _TO_CONTROLLER)


def closed_rules(number: int) -> Iterator[Rule]:
    """An access port under 802.1X: frames of unknown sources are dropped and counted, those of authentication go to the
    switch's own interface, and come from there. Known ones are neither DHCP servers nor routers.
    """
    yield from station_port_rules(number)
    yield Rule(Table.PORT, Priority.LABELLED, Match(in_port=number))
    for at, to in ((number, act.LOCAL), (act.LOCAL, number)):
        yield Rule(Table.PORT, Priority.AUTHENTICATION, authentication_match(at), (act.Output(to),))


def authentication_match(number: int) -> Match:
    """Frames of 802.1X at a port."""
    return Match(in_port=number, eth_type=ETH_TYPE_EAPOL)


def server_matches(number: int, mac: str | None = None) -> Iterator[Match]:
    """What DHCP servers say: from their port, or to that of clients, which take answers from any port."""
    for eth_type, server, client in _SERVER_PORTS:
        match = Match(in_port=number, eth_src=mac, eth_type=eth_type, ip_proto=PROTOCOL_UDP)
        yield replace(match, udp_src=server)
        yield replace(match, udp_dst=client)


def router_matches(number: int, mac: str | None = None) -> Iterator[Match]:
    """What IPv6 routers say of themselves and of others: advertisements and redirects (RFC 4861)."""
    for kind in (ROUTER_ADVERTISEMENT, REDIRECT):
        yield Match(in_port=number, eth_src=mac, eth_type=ETH_TYPE_IPV6, ip_proto=PROTOCOL_ICMPV6, icmpv6_type=kind)


def client_rules(number: int, client: AttachedClient, *, guarded: bool) -> Iterator[Rule]:
    """Frames of a plain client at a medium port; where ports are guarded what it claims is checked, as at these."""
    match = Match(in_port=number, eth_src=client.mac)
    yield Rule(Table.PORT, Priority.CLIENT, match, goto=Table.CHECK if guarded else Table.ACCESS)
    if guarded and client.ip is not None:
        for match in claim_matches(number, client.mac, client.ip):
            yield Rule(Table.CHECK, Priority.CLIENT, match, _PASS)


def station_port_rules(number: int) -> Iterator[Rule]:
    """No plain client is a DHCP server or a router, nor is who was authenticated."""
    yield from fragment_port_rules(number)
    for match in (*server_matches(number), *router_matches(number)):
        yield Rule(Table.CHECK, Priority.DHCP_SERVER, match, _TO_CONTROLLER)


def check_rules() -> Iterator[Rule]:
    """Claims go to the controller unless they are known to be true; a host that asks whether an address is free claims
    none. So does what answers the controller's own questions.
    """
    yield Rule(Table.CHECK, Priority.DEFAULT, Match(), _PASS)
    yield Rule(Table.CHECK, Priority.ANSWER, Match(eth_dst=CONTROLLER_MAC), _TO_CONTROLLER)
    arp = Match(eth_type=ETH_TYPE_ARP, arp_spa="0.0.0.0")  # noqa: S104 - nobody's address
    yield Rule(Table.CHECK, Priority.UNICAST, Match(eth_type=ETH_TYPE_ARP), _TO_CONTROLLER)
    yield Rule(Table.CHECK, Priority.NO_CLAIM, arp, _PASS)
    # Open vSwitch reads no addresses of ARP but Ethernet's. Hosts also take ARP of IEEE 802 (hardware type 6).
    yield Rule(Table.CHECK, Priority.DISGUISED, replace(arp, arp_sha="00:00:00:00:00:00"))
    # It does not look behind the second tag. Hosts take a frame behind any number of tags of VLAN 0.
    for eth_type in (ETH_TYPE_VLAN, ETH_TYPE_SERVICE_VLAN):
        yield Rule(Table.CHECK, Priority.DISGUISED, Match(vlan=act.PRIORITY_TAG, eth_type=eth_type))
    for kind in _CLAIMS:
        match = Match(eth_type=ETH_TYPE_IPV6, ip_proto=PROTOCOL_ICMPV6, icmpv6_type=kind)
        yield Rule(Table.CHECK, Priority.UNICAST, match, _TO_CONTROLLER)
        if kind != NEIGHBOUR_ADVERTISEMENT:
            yield Rule(Table.CHECK, Priority.NO_CLAIM, replace(match, ipv6_src="::"), _PASS)


def any_claim_matches(number: int) -> Iterator[Match]:
    """Frames in which somebody at a port claims an address, or asks whether one is free."""
    yield Match(in_port=number, eth_type=ETH_TYPE_ARP)
    for kind in _CLAIMS:
        yield Match(in_port=number, eth_type=ETH_TYPE_IPV6, ip_proto=PROTOCOL_ICMPV6, icmpv6_type=kind)


def claim_matches(number: int, mac: str, ip: str) -> Iterator[Match]:
    """Frames in which a host claims an address."""
    if ":" not in ip:
        yield Match(in_port=number, eth_src=mac, eth_type=ETH_TYPE_ARP, arp_spa=ip)
        return
    ours = Match(in_port=number, eth_src=mac, eth_type=ETH_TYPE_IPV6, ip_proto=PROTOCOL_ICMPV6, ipv6_src=ip)
    yield replace(ours, icmpv6_type=NEIGHBOUR_SOLICITATION)
    yield replace(ours, icmpv6_type=ROUTER_SOLICITATION)
    yield replace(ours, icmpv6_type=NEIGHBOUR_ADVERTISEMENT, ipv6_src=None, nd_target=ip)


BROADCAST = "ff:ff:ff:ff:ff:ff"
_RESTORE: tuple[act.Action, ...] = (act.Decap(), act.Decap(act.PACKET_TYPE_ETHERNET), act.Resubmit(Table.DELIVER))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of one switch, the groups that they refer to, and the ports that were asked for but are not there."""

    rules: tuple[Rule, ...]
    missing_ports: tuple[str, ...]
    groups: tuple[GroupEntry, ...] = ()


def rules_for(intent: SwitchIntent, ports: Mapping[str, int], tags: TagRules | None = None) -> RuleSet:
    """All rules of a switch; ``ports`` maps the names of the ports it has to their OpenFlow numbers.

    ``tags`` is given in a network with a kernel datapath.
    """
    network, sessions = network_rules(intent, ports, tags), rules_of_sessions(intent, ports, tags)
    missing = {*network.missing_ports, *sessions.missing_ports}
    return RuleSet(network.rules + sessions.rules, tuple(sorted(missing)), sessions.groups)


def network_rules(intent: SwitchIntent, ports: Mapping[str, int], tags: TagRules | None = None) -> RuleSet:
    """All rules but those of sessions, which change more often."""
    builder = _Builder(intent, ports)
    parts = (builder.port(), builder.classify(), builder.forward(), builder.label(), builder.deliver(), builder.sizes())
    rules = with_tag_rules(chain.from_iterable(parts), tags) + tuple(builder.flows(tags))
    return RuleSet(rules + (tags.rules() if tags else ()), tuple(sorted(builder.missing)))


def flow_rules(
    flow: ClassifiedFlow, number: int, *, relays: bool = False, tags: TagRules | None = None
) -> tuple[Rule, ...]:
    """The rule that hands frames of a flow to the agent at port ``number``. With ``relays`` (``SwitchIntent.relays``)
    also one for those that come out of the agent. Nothing else of the switch changes with a flow.
    """
    encap, label = act.Encap(act.PACKET_TYPE_MPLS), act.SetMplsLabel(flow.number)
    there, back = (
        with_tags_off((encap, label, act.Encap(act.PACKET_TYPE_ETHERNET), act.Output(port)), tags)
        for port in (number, act.IN_PORT)
    )
    priority = Priority.FLOW_FIRST + flow.precedence
    rule = Rule(Table.CLASSIFY, priority, flow.match, there)
    if not relays:
        return (rule,)
    # Out of the agent, and back into it.
    return (rule, Rule(Table.CLASSIFY, priority + 1, replace(flow.match, in_port=number), back))


def rules_of_sessions(intent: SwitchIntent, ports: Mapping[str, int], tags: TagRules | None = None) -> RuleSet:
    """The rules of sessions, and their groups."""
    known, groups = Ports(intent, ports), Groups()
    rules = with_tag_rules(session_rules(intent, known, groups), tags)
    return RuleSet(rules, tuple(sorted(known.missing)), tuple(groups.by_id.values()))


class _Builder(Ports):
    """Rules table by table."""

    def __init__(self, intent: SwitchIntent, ports: Mapping[str, int]) -> None:
        super().__init__(intent, ports)
        self.intent = intent
        self.client_ports = tuple(dict.fromkeys(client.port for client in intent.clients))

    def port(self) -> Iterator[Rule]:
        """What may come in, by port."""
        intent = self.intent
        for port in intent.access:
            for number in self.number(port.name):
                yield from port_rules(number, port)
        for source in intent.label_sources:
            for name, number in self.numbered((source.port,)):
                labelled = labelled_from(source, number, self.macs[name])
                yield replace(labelled, goto=Table.LINK) if intent.seals else labelled
                yield from self._sealed(source, name, number)
        guarded = any(port.guarded for port in intent.access)
        if guarded:
            yield from bad_fragment_rules()
        for client in intent.clients:
            for number in self.number(client.port):
                yield from client_rules(number, client, guarded=guarded)
        for _, number in self.numbered(self.client_ports if guarded else ()):
            yield from station_port_rules(number)
        for client in intent.strays:
            for number in self.number(client.port):
                match = Match(in_port=number, eth_src=client.mac)
                yield Rule(Table.PORT, Priority.STRAY, match, (act.Output(act.CONTROLLER),))
        if intent.agent is not None:
            yield from self._port_agent(intent.agent.access, intent.agent.network)

    def _sealed(self, source: Hop, name: str, number: int) -> Iterator[Rule]:
        """A neighbour's sealed frames at a port go to the agent, and come back as if they had come in there."""
        for agent in self.sealer():
            yield sealed_from(source, number, self.macs[name], agent)
            opened = Match(in_port=agent, eth_type=ETH_TYPE_MPLS, eth_src=source.mac)
            yield Rule(Table.PORT, Priority.FROM_LINK, opened, (act.SetInPort(number),), goto=Table.LABEL)

    def _port_agent(self, access: str, network: str) -> Iterator[Rule]:
        for number in self.number(access):
            goto = Table.CLASSIFY if self.intent.relays else Table.DELIVER
            yield Rule(Table.PORT, Priority.LABELLED, Match(in_port=number), goto=goto)
        for agent in self.number(network):
            match = Match(in_port=agent, eth_type=ETH_TYPE_MPLS)
            yield Rule(Table.PORT, Priority.LABELLED, match, goto=Table.LABEL)
            for name, number in self.numbered(self.macs if self.intent.seals else ()):
                match = Match(in_port=agent, eth_type=ETH_TYPE_SHIM, eth_src=self.macs[name])
                yield Rule(Table.PORT, Priority.LABELLED, match, (act.Output(number),))
            for peer in self.intent.peers:
                for number in self.number(peer.port):
                    match = Match(in_port=number, eth_type=ETH_TYPE_HELLO, eth_src=peer.mac)
                    yield Rule(Table.PORT, Priority.HELLO, match, (act.Output(agent),))

    def classify(self) -> Iterator[Rule]:
        """Which frames may enter."""
        if any(port.guarded for port in self.intent.access):
            yield from check_rules()
        yield Rule(Table.ACCESS, Priority.DEFAULT, Match(), (act.Resubmit(Table.CLASSIFY),))
        yield Rule(Table.CLASSIFY, Priority.DEFAULT, Match(), goto=Table.FORWARD)

    def flows(self, tags: TagRules | None) -> Iterator[Rule]:
        """Flows that this edge splits."""
        agent = self.intent.agent
        if agent is None or not self.intent.flows:
            return
        for number in self.number(agent.access):
            for flow in self.intent.flows:
                yield from flow_rules(flow, number, relays=self.intent.relays, tags=tags)

    def forward(self) -> Iterator[Rule]:
        """The single path of users' frames."""
        hosts = [mac for port in self.intent.access for mac in port.hosts]
        hosts.extend(client.mac for client in self.intent.clients)
        for mac in hosts:
            yield Rule(Table.FORWARD, Priority.HERE, Match(eth_dst=mac), goto=Table.DELIVER)
        routes = {route.label: route for route in self.intent.routes}
        for mac, label in self.intent.remote_hosts.items():
            if label in routes:
                yield from self._forward_to(mac, routes[label])
        if not self.intent.asks:
            yield from self._floods(None, Priority.DEFAULT, Priority.FLOOD_VARIANT)
            return
        yield from self._floods(GROUP_ADDRESS, Priority.FLOOD, Priority.FLOOD_VARIANT)
        for rule in self._floods(None, Priority.DEFAULT, Priority.UNKNOWN_VARIANT):
            yield replace(rule, actions=(*_TO_CONTROLLER, *rule.actions))

    def _floods(self, eth_dst: str | None, priority: Priority, variant: Priority) -> Iterator[Rule]:
        """Along the broadcast tree, from anywhere and from ports that the tree goes on by."""
        yield self._flood(None, Match(eth_dst=eth_dst), priority)
        for name, number in self.numbered(self.client_ports):
            if any(hop.port == name for hop in self.intent.tree):
                yield self._flood(name, Match(in_port=number, eth_dst=eth_dst), variant)

    def _forward_to(self, mac: str, route: NodeRoute) -> Iterator[Rule]:
        label = behind(route.label)
        send = self.towards(route.hop, None)
        if send:
            yield Rule(Table.FORWARD, Priority.UNICAST, Match(eth_dst=mac), label + send)
        for number, send in self._variants(route, self.client_ports):
            match = Match(in_port=number, eth_dst=mac)
            yield Rule(Table.FORWARD, Priority.UNICAST_VARIANT, match, label + send)

    def _variants(self, route: NodeRoute, came_in: Iterable[str]) -> Iterator[tuple[int, tuple[act.Action, ...]]]:
        """Ingress ports for which a frame to ``route`` is sent otherwise than by default, and how."""
        for name, number in self.numbered(came_in):
            hop = route.by_port.get(name, route.hop)
            if hop != route.hop or hop.port == name:
                send = self.towards(hop, name)
                if send:
                    yield number, send

    def _flood(self, came_in: str | None, match: Match, priority: int) -> Rule:
        copies = tuple(action for hop in self.intent.tree for action in self.towards(hop, came_in))
        actions = (act.Clone(behind(self.intent.flood_label) + copies),) if copies else ()
        return Rule(Table.FORWARD, priority, match, actions, goto=Table.DELIVER)

    def sizes(self) -> Iterator[Rule]:
        """Hosts' frames that do not fit links, and TCP's SYNs, go to the agent and come back."""
        intent = self.intent
        if intent.agent is not None and intent.most_frame_bytes is not None:
            for access in self.number(intent.agent.access):
                for network in self.number(intent.agent.network):
                    yield from size_rules(intent.most_frame_bytes, access, network)
                    yield from self._deliver_fitted(network)

    def _deliver_fitted(self, agent: int) -> Iterator[Rule]:
        """Copies of frames that came back from port ``agent`` do not go back to their sender.

        A switch behind an access port would learn the sender's address at the wrong port. Sources that are not known
        are behind the access port, if there is one only.
        """
        ports = {port.name: port.hosts for port in self.intent.access}
        outputs = {name: act.Output(number) for name, number in self.numbered(ports)}
        unknown = tuple(outputs.values()) if len(ports) > 1 else ()
        clients = self.intent.clients
        group = Match(in_port=agent, eth_dst=GROUP_ADDRESS)
        yield Rule(Table.DELIVER, Priority.UNKNOWN_VARIANT, Match(in_port=agent), unknown)
        yield Rule(Table.DELIVER, Priority.FLOOD_VARIANT, group, unknown + self.to_clients(clients, None))
        for name, hosts in ports.items() if len(ports) > 1 else ():
            others = tuple(output for other, output in outputs.items() if other != name)
            for mac in hosts:
                actions = others + self.to_clients(clients, None)
                yield Rule(Table.DELIVER, Priority.FLOOD_CLIENT, replace(group, eth_src=mac), actions)
        for client in clients:
            rest = self.to_clients((other for other in clients if other != client), None)
            actions = tuple(outputs.values()) + rest
            yield Rule(Table.DELIVER, Priority.FLOOD_CLIENT, replace(group, eth_src=client.mac), actions)

    def label(self) -> Iterator[Rule]:
        """Labelled frames.

        A user's own MPLS frame ends here: Open vSwitch's ``encap(mpls)`` leaves the bottom-of-stack bit 0 in front of
        one, and its ``decap`` refuses such a packet.
        """
        intent = self.intent
        for label in (intent.node_label, *(client.label for client in intent.clients)):
            yield Rule(Table.LABEL, Priority.UNICAST, label_match(label), _RESTORE)
        for route in intent.routes:
            yield from self._label_node(route)
        yield from self._label_flood()
        for table in (Table.LABEL, Table.LINK) if intent.seals else (Table.LABEL,):
            yield from self._label_links(table)
            if intent.agent is not None:
                yield from self._label_agent(table, intent.agent.label, intent.agent.network)
        if intent.agent is not None:
            yield from self._label_hellos(intent.agent.network)

    def _label_node(self, route: NodeRoute) -> Iterator[Rule]:
        send = self.towards(route.hop, None)
        if send:
            yield Rule(Table.LABEL, Priority.UNICAST, label_match(route.label), (act.DecMplsTtl(), *send))
        for number, send in self._variants(route, self.macs):
            match = label_match(route.label, number)
            yield Rule(Table.LABEL, Priority.UNICAST_VARIANT, match, (act.DecMplsTtl(), *send))

    def _label_links(self, table: Table) -> Iterator[Rule]:
        """Source routing. Every label is a stack of its own: what follows it looks to the switch like its payload.

        Open vSwitch reads three labels at most and drops what it should pop from a longer stack. It also tells flows
        apart by every label that it reads, so this makes one cached flow per link instead of one per rest of a path.
        """
        pop = act.PopMpls(ETH_TYPE_MPLS)
        for link in self.intent.neighbours:
            hop = Hop(link.port, link.mac)
            for name, number in self.numbered((link.port,)):
                onward, back = label_match(link.label), label_match(link.label, number)
                # Paths are sealed from end to end.
                yield Rule(table, Priority.UNICAST, onward, (pop, *self.straight(hop, None)))
                yield Rule(table, Priority.UNICAST_VARIANT, back, (pop, *self.straight(hop, name)))

    def _label_flood(self) -> Iterator[Rule]:
        for source in self.intent.tree:
            for name, number in self.numbered((source.port,)):
                match = label_match(self.intent.flood_label, number, source.mac)
                others = (hop for hop in self.intent.tree if hop != source)
                copies = tuple(action for hop in others for action in self.towards(hop, name))
                onward = (act.DecMplsTtl(), *copies) if copies else ()
                yield Rule(Table.LABEL, Priority.FLOOD, match, onward + _RESTORE)

    def _label_agent(self, table: Table, label: int, network: str) -> Iterator[Rule]:
        for agent in self.number(network):
            to_agent = (act.PopMpls(ETH_TYPE_SHIM), act.Output(agent))
            yield Rule(table, Priority.UNICAST, label_match(label), to_agent)

    def _label_hellos(self, network: str) -> Iterator[Rule]:
        for agent in self.number(network):
            for hello in self.intent.hellos:
                send = self.straight(Hop(hello.port, BROADCAST), None)
                if send:
                    match = label_match(hello.label, agent)
                    yield Rule(Table.LABEL, Priority.UNICAST, match, (act.PopMpls(ETH_TYPE_HELLO), *send))

    def deliver(self) -> Iterator[Rule]:
        """Users' frames to the hosts that are here."""
        access = tuple(act.Output(number) for _, number in self.numbered(port.name for port in self.intent.access))
        for port in self.intent.access:
            for number in self.number(port.name):
                for mac in port.hosts:
                    yield Rule(Table.DELIVER, Priority.UNICAST, Match(eth_dst=mac), (act.Output(number),))
        for client in self.intent.clients:
            for number in self.number(client.port):
                there, back = (act.Output(number),), (act.Output(act.IN_PORT),)
                yield Rule(Table.DELIVER, Priority.UNICAST, Match(eth_dst=client.mac), there)
                match = Match(in_port=number, eth_dst=client.mac)
                yield Rule(Table.DELIVER, Priority.UNICAST_VARIANT, match, back)
        # A unicast frame for nobody known goes to access ports alone: on a medium only known addresses are reachable.
        yield Rule(Table.DELIVER, Priority.DEFAULT, Match(), access)
        if self.intent.clients:
            yield from self._deliver_groups(access)

    def _deliver_groups(self, access: tuple[act.Action, ...]) -> Iterator[Rule]:
        clients = self.intent.clients
        everywhere = access + self.to_clients(clients, None)
        yield Rule(Table.DELIVER, Priority.FLOOD, Match(eth_dst=GROUP_ADDRESS), everywhere)
        for name, number in self.numbered(self.client_ports):
            match = Match(in_port=number, eth_dst=GROUP_ADDRESS)
            actions = access + self.to_clients(clients, name)
            yield Rule(Table.DELIVER, Priority.FLOOD_VARIANT, match, actions)
        for client in clients:
            for number in self.number(client.port):
                others = [other for other in clients if other != client]
                match = Match(in_port=number, eth_src=client.mac, eth_dst=GROUP_ADDRESS)
                actions = access + self.to_clients(others, client.port)
                yield Rule(Table.DELIVER, Priority.FLOOD_CLIENT, match, actions)
