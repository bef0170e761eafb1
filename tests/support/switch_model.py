"""Model switches that carry out rules, and media that deliver by MAC address: an oracle for what rules mean.

A frame is data, not bytes: Ethernet header, labels, and the user's frame inside. The semantics follow Open vSwitch:
the rule of highest priority that matches wins; an output to the ingress port is dropped; what a resubmitted table
rewrites stays rewritten; a clone works on a copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.rule import GroupEntry, Rule

MPLS = 0x8847
SHIM = 0x88B5


class ModelError(AssertionError):
    """The rules do something no switch or network should do."""


@dataclass(frozen=True)
class Label:
    """An entry; in our frames every one is the bottom of a stack of its own, unless VLAN tags follow."""

    value: int
    ttl: int = 64
    bottom: bool = True


@dataclass(frozen=True)
class Frame:
    """An Ethernet frame. With ``labels`` its type is MPLS and ``payload`` follows the bottom of the stack.

    ``tags`` are its VLAN tags, the outer one first: type and TCI, of which OpenFlow sees all but the type and DEI.
    """

    src: str
    dst: str
    eth_type: int
    labels: tuple[Label, ...] = ()
    payload: object = None
    upper: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Fields of upper layers by their name in ``Match``."""
    tags: tuple[tuple[int, int], ...] = ()
    size: int = 60
    """Bytes with the Ethernet header."""


@dataclass(frozen=True)
class MplsPacket:
    """A packet without Ethernet header: its packet type is (1, 0x8847)."""

    labels: tuple[Label, ...]
    payload: object


@dataclass(frozen=True)
class Sealed:
    """A labelled frame that an agent has sealed; only agents can make one."""

    frame: Frame


def is_group(mac: str) -> bool:
    return bool(int(mac[:2], 16) & 1)


def _mac_matches(pattern: str, mac: str) -> bool:
    address, _, mask = pattern.partition("/")
    as_int: Callable[[str], int] = lambda text: int(text.replace(":", ""), 16)  # noqa: E731
    bits = as_int(mask) if mask else (1 << 48) - 1
    return as_int(address) & bits == as_int(mac) & bits


def _ip_matches(pattern: str, address: str) -> bool:
    return ip_address(address) in ip_network(pattern, strict=False)


_SPECIAL = {"ipv4_src": _ip_matches, "ipv4_dst": _ip_matches, "ipv6_src": _ip_matches, "ipv6_dst": _ip_matches}
_UPPER = (
    "vlan",
    "ip_proto",
    "icmpv6_type",
    "ipv4_src",
    "ipv4_dst",
    "tcp_src",
    "tcp_dst",
    "udp_src",
    "udp_dst",
    "ipv6_src",
    "ipv6_dst",
)


def matches(match: Match, frame: Frame, in_port: int) -> bool:
    """Whether an Ethernet packet matches."""
    if match.in_port not in {None, in_port}:
        return False
    if match.eth_type not in {None, frame.eth_type}:
        return False
    if match.eth_src is not None and not _mac_matches(match.eth_src, frame.src):
        return False
    if match.eth_dst is not None and not _mac_matches(match.eth_dst, frame.dst):
        return False
    if match.mpls_label is not None and (not frame.labels or frame.labels[0].value != match.mpls_label):
        return False
    if match.mpls_bos is not None and (not frame.labels or frame.labels[0].bottom != bool(match.mpls_bos)):
        return False
    if match.vlan == act.TAGGED and not frame.tags:
        return False
    if match.tcp_flags is not None and match.tcp_flags & int(frame.upper.get("tcp_flags", 0)) != match.tcp_flags:
        return False
    for name in _UPPER:
        if name == "vlan" and match.vlan == act.TAGGED:
            continue
        wanted = getattr(match, name)
        if wanted is not None:
            value = frame.upper.get(name)
            if value is None or not _SPECIAL.get(name, lambda a, b: a == b)(wanted, value):
                return False
    return True


class _Context:
    """One packet on its way through one switch."""

    def __init__(self, switch: ModelSwitch, packet: Frame | MplsPacket, in_port: int) -> None:
        self.switch = switch
        self.packet = packet
        self.in_port = in_port
        self.outputs: list[tuple[int, Frame]] = []
        self.depth = 0
        self.registers = {act.REGISTER_0: 0, act.REGISTER_1: 0}
        self.numbered = {2: 0, 3: 0}
        """The registers that rules match."""

    def lookup(self, table: int) -> None:
        self.depth += 1
        if self.depth > 64:
            raise ModelError("resubmit without end")
        if not isinstance(self.packet, Frame):
            raise ModelError(f"table {table} sees a packet without Ethernet header")
        for rule in self.switch.tables.get(table, ()):
            wanted = {2: rule.match.register_2, 3: rule.match.register_3}
            is_marked = all(value in {None, self.numbered[number]} for number, value in wanted.items())
            if is_marked and matches(rule.match, self.packet, self.in_port):
                self.switch.used.add(rule)
                self.apply(rule.actions)
                if rule.goto is not None:
                    if rule.goto <= table:
                        raise ModelError("goto must go forward")
                    self.lookup(rule.goto)
                return

    def apply(self, actions: Iterable[act.Action]) -> None:
        for action in actions:
            _APPLY[type(action)](self, action)

    def frame(self) -> Frame:
        if not isinstance(self.packet, Frame):
            raise ModelError("expected an Ethernet packet")
        return self.packet

    def top(self, label: Label) -> None:
        if not self.packet.labels:
            raise ModelError("expected a label")
        self.packet = replace(self.packet, labels=(label, *self.packet.labels[1:]))


class _Expired(Exception):
    """The TTL is used up, or the datapath refuses what it shall do: the packet is dropped."""


def _output(context: _Context, action: act.Output) -> None:
    if action.port == act.IN_PORT:
        context.outputs.append((context.in_port, context.frame()))
    elif action.port != context.in_port:
        context.outputs.append((action.port, context.frame()))


def _clone(context: _Context, action: act.Clone) -> None:
    saved, registers, in_port = context.packet, dict(context.registers), context.in_port
    context.apply(action.actions)
    context.packet, context.registers, context.in_port = saved, registers, in_port


def _group(context: _Context, action: act.Group) -> None:
    if action.group not in context.switch.groups:
        raise ModelError(f"no group {action.group:#x}")
    for bucket in context.switch.groups[action.group].buckets:
        _clone(context, act.Clone(bucket))


def _encap(context: _Context, action: act.Encap) -> None:
    packet = context.packet
    if action.packet_type == act.PACKET_TYPE_MPLS:
        if isinstance(packet, MplsPacket):
            context.packet = MplsPacket((Label(0, 1, bottom=False), *packet.labels), packet.payload)
        elif packet.eth_type == MPLS and not context.switch.marks_mpls:
            raise ModelError("encap(mpls) needs an Ethernet packet that is not MPLS")
        else:
            context.packet = MplsPacket((Label(0, 1, bottom=packet.eth_type != MPLS),), packet)
    else:
        if not isinstance(packet, MplsPacket):
            raise ModelError("encap(ethernet) needs a packet without Ethernet header")
        if context.switch.in_kernel and isinstance(packet.payload, Frame) and packet.payload.tags:
            raise _Expired
        zero = "00:00:00:00:00:00"
        context.packet = Frame(zero, zero, MPLS, packet.labels, packet.payload)


def _decap(context: _Context, action: act.Decap) -> None:
    packet = context.packet
    if isinstance(packet, Frame):
        if not packet.labels or action.packet_type != act.PACKET_TYPE_NEXT:
            raise ModelError("decap() of an Ethernet header needs MPLS after it")
        context.packet = MplsPacket(packet.labels, packet.payload)
    elif len(packet.labels) == 1 and packet.labels[0].bottom and action.packet_type == act.PACKET_TYPE_ETHERNET:
        if not isinstance(packet.payload, Frame):
            raise ModelError("no Ethernet frame behind the label")
        context.packet = packet.payload
    else:
        raise ModelError("decap to Ethernet needs exactly one label")


def _pop_mpls(context: _Context, action: act.PopMpls) -> None:
    frame = context.frame()
    if not frame.labels or (len(frame.labels) > 1) != (action.eth_type == MPLS):
        raise ModelError(f"pop to {action.eth_type:#x} with {len(frame.labels)} labels")
    context.packet = replace(frame, labels=frame.labels[1:], eth_type=action.eth_type)


def _pop_vlan(context: _Context, _: act.PopVlan) -> None:
    context.packet = replace(context.frame(), tags=context.frame().tags[1:])


def _push_vlan(context: _Context, action: act.PushVlan) -> None:
    context.packet = replace(context.frame(), tags=((action.eth_type, _TAG_PRESENT), *context.frame().tags))


_TAG_PRESENT = 0x1000


def _move(context: _Context, action: act.Move) -> None:
    mask = (1 << action.bits) - 1
    if action.source == act.MPLS_LABEL:
        value = context.packet.labels[0].value & mask
    elif action.source == act.VLAN_TCI:
        value = context.frame().tags[0][1] | _TAG_PRESENT
    else:
        value = context.registers[action.source] & mask
    if action.target == act.MPLS_LABEL:
        label = context.packet.labels[0]
        context.top(replace(label, value=label.value & ~mask | value))
    elif action.target == act.VLAN_TCI:
        (kind, _), *others = context.frame().tags
        # What says in Open vSwitch that there is a tag is the DEI bit on the wire.
        context.packet = replace(context.frame(), tags=((kind, value & ~_TAG_PRESENT), *others))
    else:
        context.registers[action.target] = context.registers[action.target] & ~mask | value


def _check_larger(context: _Context, action: act.CheckLarger) -> None:
    bit = 1 << action.bit
    is_larger = context.frame().size > action.most_bytes
    context.numbered[3] = context.numbered[3] & ~bit | (bit if is_larger else 0)


def _set_in_port(context: _Context, action: act.SetInPort) -> None:
    context.in_port = action.port


def _dec_ttl(context: _Context, _: act.DecMplsTtl) -> None:
    label = context.packet.labels[0]
    if label.ttl <= 1:
        raise _Expired
    context.top(replace(label, ttl=label.ttl - 1))


def _set(name: str) -> Callable[[_Context, act.SetEthSrc | act.SetEthDst], None]:
    def apply(context: _Context, action: act.SetEthSrc | act.SetEthDst) -> None:
        context.packet = replace(context.frame(), **{name: action.mac})

    return apply


_APPLY: dict[type, Callable[..., None]] = {
    act.Output: _output,
    act.Clone: _clone,
    act.Encap: _encap,
    act.Decap: _decap,
    act.PopMpls: _pop_mpls,
    act.PopVlan: _pop_vlan,
    act.PushVlan: _push_vlan,
    act.Move: _move,
    act.DecMplsTtl: _dec_ttl,
    act.SetEthSrc: _set("src"),
    act.SetEthDst: _set("dst"),
    act.SetMplsLabel: lambda c, a: c.top(replace(c.packet.labels[0], value=a.label)),
    act.SetMplsTtl: lambda c, a: c.top(replace(c.packet.labels[0], ttl=a.ttl)),
    act.Resubmit: lambda c, a: c.lookup(a.table),
    act.Group: _group,
    act.SetRegister2: lambda c, a: c.numbered.update({2: a.value}),
    act.SetRegister3: lambda c, a: c.numbered.update({3: a.value}),
    act.CheckLarger: _check_larger,
    act.SetInPort: _set_in_port,
}


class ModelSwitch:
    """A switch with rules; ``used`` collects the ones that packets hit.

    ``in_kernel``: Linux carries the rules out, which puts no header in front of a tagged frame. ``marks_mpls``: users'
    frames may be MPLS, because the rules mark them.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        groups: Iterable[GroupEntry] = (),
        *,
        in_kernel: bool = False,
        marks_mpls: bool = False,
    ) -> None:
        self.in_kernel, self.marks_mpls = in_kernel, marks_mpls
        self.groups = {group.id: group for group in groups}
        self.tables: dict[int, list[Rule]] = {}
        self.used: set[Rule] = set()
        keys = set()
        for rule in rules:
            if rule.key in keys:
                raise ModelError(f"two rules with one key: {rule}")
            keys.add(rule.key)
            self.tables.setdefault(rule.table, []).append(rule)
        for table in self.tables.values():
            table.sort(key=lambda rule: -rule.priority)

    def receive(self, frame: Frame, in_port: int) -> list[tuple[int, Frame]]:
        context = _Context(self, frame, in_port)
        with suppress(_Expired):
            context.lookup(0)
        return context.outputs


@dataclass(frozen=True)
class Delivery:
    """A frame that left the switches: at a host (node id), or at an agent (``acc`` or ``net`` side of a node)."""

    node: str
    side: str
    frame: Frame


def port_numbers(network: Network, addressing: Addressing, node: str) -> dict[str, int]:
    """Numbers for all ports a node should have."""
    names = [addressing.interface_name[node, k] for k in addressing.technologies(node)]
    names.append(addressing.access_port[node])
    if addressing.has_agent(node):
        names += [addressing.agent_access_port[node], addressing.agent_network_port[node]]
    return {name: number for number, name in enumerate(names, start=1)}


class ModelNetwork:
    """Switches with rules, wired as the network says."""

    def __init__(
        self,
        network: Network,
        addressing: Addressing,
        rules: Mapping[str, Iterable[Rule]],
        homes: Mapping[str, tuple[str, str]],
        groups: Mapping[str, Iterable[GroupEntry]] | None = None,
        kernels: Container[str] = (),
        *,
        seals: bool = False,
    ) -> None:
        """``homes`` maps plain clients to (node, technology) of their attachment; ``kernels`` are the nodes whose
        datapaths are in the kernel. With ``seals`` agents seal and open what passes their ``net`` side.
        """
        self.seals = seals
        groups = groups or {}
        self.network = network
        self.addressing = addressing
        self.homes = homes
        self.switches = {
            node: ModelSwitch(mine, groups.get(node, ()), in_kernel=node in kernels, marks_mpls=bool(kernels))
            for node, mine in rules.items()
        }
        self.numbers = {node: port_numbers(network, addressing, node) for node in addressing.dpid}
        self.names = {node: {n: name for name, n in numbers.items()} for node, numbers in self.numbers.items()}
        self.technology = {name: (node, k) for (node, k), name in addressing.interface_name.items()}
        self.steps = 0
        self.visited: list[tuple[str, str]] = []
        self.sent: list[tuple[str, str, Frame]] = []

    def from_host(self, node: str, frame: Frame) -> list[Delivery]:
        """What becomes of a frame that a host (of a switch, or a plain client) sends."""
        if self.addressing.is_plain_client(node):
            if node not in self.homes:
                return []
            at, technology = self.homes[node]
            # A station sends everything to its access point.
            port = self.addressing.interface_name[at, technology]
            return self.run([(at, self.numbers[at][port], frame)])
        return self.run([(node, self.numbers[node][self.addressing.access_port[node]], frame)])

    def from_agent(self, node: str, side: str, frame: Frame) -> list[Delivery]:
        """What becomes of a frame that an agent sends on its ``acc`` or ``net`` side."""
        ports = {"acc": self.addressing.agent_access_port, "net": self.addressing.agent_network_port}
        return self.run([(node, self.numbers[node][ports[side][node]], frame)])

    def run(self, start: list[tuple[str, int, Frame]], limit: int = 20000) -> list[Delivery]:
        waiting = deque(start)
        deliveries: list[Delivery] = []
        steps = 0
        self.visited, self.sent = [], []
        while waiting:
            steps += 1
            if steps > limit:
                raise ModelError("a loop or a storm")
            node, in_port, frame = waiting.popleft()
            self.visited.append((node, self.names[node][in_port]))
            for out, copy in self.switches[node].receive(frame, in_port):
                name = self.names[node][out]
                if name in self.technology:
                    self.sent.append((node, name, copy))
                    waiting.extend(self._medium(node, name, copy, deliveries))
                elif self._side(node, name) == "net" and (back := self._agent(node, copy)) is not None:
                    waiting.append((node, out, back))
                else:
                    deliveries.append(Delivery(node, self._side(node, name), copy))
        self.steps = steps
        return deliveries

    def _agent(self, node: str, frame: Frame) -> Frame | None:
        """What the agent of a node gives back for a labelled frame of its switch, or for a sealed one."""
        own = {mac for (of, _), mac in self.addressing.interface_mac.items() if of == node}
        if self.seals and frame.eth_type == MPLS and frame.src in own:
            return Frame(frame.src, frame.dst, SHIM, payload=Sealed(frame))
        if self.seals and frame.eth_type == SHIM and isinstance(frame.payload, Sealed):
            opened = frame.payload.frame
            return opened if (opened.src, opened.dst) == (frame.src, frame.dst) else None
        return None

    def _side(self, node: str, name: str) -> str:
        sides = {
            self.addressing.access_port[node]: "host",
            self.addressing.agent_access_port.get(node): "acc",
            self.addressing.agent_network_port.get(node): "net",
        }
        return sides[name]

    def _medium(
        self, node: str, name: str, frame: Frame, deliveries: list[Delivery]
    ) -> Iterable[tuple[str, int, Frame]]:
        _, technology = self.technology[name]
        for link in self.network.links:
            if link.source != node or link.technology != technology:
                continue
            mac = self.addressing.interface_mac[link.target, technology]
            if frame.dst != mac and not is_group(frame.dst):
                continue
            if self.addressing.is_plain_client(link.target):
                deliveries.append(Delivery(link.target, "host", frame))
            else:
                port = self.addressing.interface_name[link.target, technology]
                yield link.target, self.numbers[link.target][port], frame
