"""What guests' actions do to real frames, carried out byte by byte: no frame of the slice leaves as another slice's.

The frames here are those of which it is certain whose they are, before and after: see ``owner``.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import product

import pytest
from swarm import events, swarm

from hyroads.controller.ofp import wire
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry, at_port
from hyroads.slices.core.errors import MatchError, Refused
from hyroads.slices.core.fields import BY_NAME
from hyroads.slices.core.match import ALL, TernaryMatch, describe, of_fields
from hyroads.slices.proxy.actions import Origin, Translator
from hyroads.slices.proxy.flow_mod import translate
from hyroads.slices.proxy.frames import header_of
from hyroads.slices.proxy.group_mod import translate_group_mod
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.region import Regions

MINE, OTHER, PRODUCTION = Block(2, 40, 4), Block(3, 50, 4), Block(1, 20, 8)
PORTS = (1, 2, 3)
IN_PORT, FLOOD, ALL_PORTS = 0xFFFFFFF8, 0xFFFFFFFB, 0xFFFFFFFC
IPV4, ARP, MPLS, MPLS_MULTICAST, PBB, VLAN, SERVICE_VLAN = 0x0800, 0x0806, 0x8847, 0x8848, 0x88E7, 0x8100, 0x88A8
IPV6 = 0x86DD
MACS = (0x020000000001, 0x020000000002)


@dataclass
class Packet:
    """A frame in its parts, as a switch carries actions out on it. ``arp`` is written when the frame leaves."""

    dst: bytes
    src: bytes
    tags: list[tuple[int, int]]
    kind: int
    payload: bytes
    arp: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: bytes, most_tags: int) -> Packet:
        """As a switch reads it that looks behind some tags; further ones are payload to it."""
        tags, at = [], 12
        while (kind := int.from_bytes(frame[at : at + 2], "big")) in (VLAN, SERVICE_VLAN) and len(tags) < most_tags:
            tags.append((kind, int.from_bytes(frame[at + 2 : at + 4], "big")))
            at += 4
        return cls(frame[:6], frame[6:12], tags, kind, frame[at + 2 :])

    def copy(self) -> Packet:
        return replace(self, tags=list(self.tags), arp=dict(self.arp))

    def bytes(self) -> bytes:
        payload = self.payload
        if self.kind == ARP and self.arp.get("arp_op", payload[6:8]) != b"\0\0" and payload[6:8] != b"\0\0":
            for name, (start, end) in ARP_FIELDS.items():
                payload = payload[:start] + self.arp.get(name, payload[start:end]) + payload[end:]
        tags = b"".join(struct.pack("!HH", *tag) for tag in self.tags)
        return self.dst + self.src + tags + self.kind.to_bytes(2, "big") + payload


ARP_FIELDS = {"arp_op": (6, 8), "arp_sha": (8, 14), "arp_spa": (14, 18), "arp_tha": (18, 24), "arp_tpa": (24, 28)}


def set_field(packet: Packet, name: str, value: int) -> None:
    """Writes a field that the packet has; nothing happens to others."""
    raw = value.to_bytes(BY_NAME[name].size, "big")
    data = packet.payload
    if name in ("eth_dst", "eth_src"):
        setattr(packet, name[4:], raw)
    elif name in ("vlan_vid", "vlan_pcp"):
        for i, (kind, tci) in enumerate(packet.tags[:1]):
            keep, new = (0xE000, value & 0xFFF) if name == "vlan_vid" else (0x1FFF, value << 13)
            packet.tags[i] = kind, tci & keep | new
    elif name in ARP_FIELDS and packet.kind == ARP:
        packet.arp[name] = raw
    elif name in ("ipv4_src", "ipv4_dst") and packet.kind == IPV4:
        at = 12 if name == "ipv4_src" else 16
        packet.payload = data[:at] + raw + data[at + 4 :]
    elif name == "mpls_label" and packet.kind in (MPLS, MPLS_MULTICAST):
        entry = int.from_bytes(data[:4], "big") & 0xFFF | value << 12
        packet.payload = entry.to_bytes(4, "big") + data[4:]
    elif name in ("tcp_dst", "udp_dst"):
        proto, at = {IPV4: (9, 20), IPV6: (6, 40)}.get(packet.kind, (0, 0))
        if at and data[proto] == (6 if name == "tcp_dst" else 17):
            packet.payload = data[: at + 2] + raw + data[at + 4 :]


def push_vlan(packet: Packet, kind: int, copies: bool) -> None:
    packet.tags.insert(0, (kind, packet.tags[0][1] if packet.tags and copies else 0))


def push_mpls(packet: Packet, kind: int) -> None:
    is_there = packet.kind in (MPLS, MPLS_MULTICAST)
    entry = int.from_bytes(packet.payload[:4], "big") & ~0x100 if is_there else 0x140
    packet.payload = entry.to_bytes(4, "big") + packet.bytes()[-len(packet.payload) :]
    packet.kind, packet.arp = kind, {}


def pop_mpls(packet: Packet, kind: int) -> None:
    if packet.kind in (MPLS, MPLS_MULTICAST):
        packet.kind, packet.payload = kind, packet.payload[4:]


def push_pbb(packet: Packet) -> None:
    packet.payload, packet.kind, packet.tags, packet.arp = bytes(4) + packet.bytes(), PBB, [], {}


def pop_pbb(packet: Packet, most_tags: int) -> None:
    if packet.kind == PBB:
        packet.__dict__.update(Packet.of(packet.payload[4:], most_tags).__dict__)


# -- frames -----------------------------------------------------------------------------------------------------------


def ethernet(payload: bytes, kind: int, *tags: int) -> bytes:
    head = MACS[0].to_bytes(6, "big") + MACS[1].to_bytes(6, "big")
    return head + b"".join(struct.pack("!HH", VLAN, tag) for tag in tags) + kind.to_bytes(2, "big") + payload


def ip(port: int, proto: int = 6, last: int = 2) -> bytes:
    upper = struct.pack("!HH8xB7x", 1000, port, 0x50) if proto == 6 else struct.pack("!HHHxx", 1000, port, 8)
    return (
        struct.pack("!BBHHHBBH3sB3sB", 0x45, 0, 20 + len(upper), 1, 0, 64, proto, 0, b"\n\0\0", 1, b"\n\0\0", last)
        + upper
    )


def ip6(port: int) -> bytes:
    upper = struct.pack("!HH8xB7x", 1000, port, 0x50)
    return struct.pack("!IHBB", 6 << 28, len(upper), 6, 64) + bytes(15) + b"\1" + bytes(15) + b"\2" + upper


def arp(operation: int, target: int = 2) -> bytes:
    addresses = MACS[1].to_bytes(6, "big") + bytes((10, 0, 0, 1)) + bytes(6) + bytes((10, 0, 0, target))
    return bytes.fromhex("000108000604") + operation.to_bytes(2, "big") + addresses


def label(number: int, bottom: int = 1) -> bytes:
    return (number << 12 | bottom << 8 | 64).to_bytes(4, "big")


FRAMES = [
    *(ethernet(ip(port, proto), IPV4, *tags) for port in (80, 81) for proto in (6, 17) for tags in ((), (5,), (6, 5))),
    *(ethernet(arp(operation), ARP, *tags) for operation in (0, 1, 2) for tags in ((), (5,))),
    *(ethernet(ip6(80), IPV6, *tags) for tags in ((), (5,))),
    *(ethernet(label(16) + ip(80), MPLS, *tags) for tags in ((), (5,))),
    ethernet(label(17, 0) + label(16) + ip(80), MPLS),
    ethernet(label(16) + arp(1), MPLS),
    ethernet(label(16) + b"\0\5\x08\0" + ip(81), MPLS),
    ethernet(bytes(4) + ethernet(ip(80), IPV4, 5).replace(MACS[1].to_bytes(6, "big"), MACS[0].to_bytes(6, "big")), PBB),
    ethernet(bytes(46), 0x88CC),
]

# -- whose they are ---------------------------------------------------------------------------------------------------

FIELDS: list[dict[str, object]] = [
    {}, {"eth_type": IPV4}, {"eth_type": ARP}, {"eth_type": MPLS}, {"eth_type": IPV6}, {"eth_type": PBB},
    {"vlan_vid": 0}, {"vlan_vid": (0x1000, 0x1000)}, {"vlan_vid": 0x1005}, {"vlan_vid": 0x1006},
    {"vlan_vid": (0x1000, 0x1000), "vlan_pcp": 3},
    {"eth_src": MACS[0]}, {"eth_src": MACS[1]}, {"eth_dst": MACS[0]}, {"eth_dst": MACS[1]},
    {"eth_type": IPV4, "ipv4_dst": 0x0A000002}, {"eth_type": IPV4, "ipv4_dst": 0x0A000003},
    {"eth_type": IPV4, "ip_proto": 6}, {"eth_type": IPV4, "ip_proto": 6, "tcp_dst": 80},
    {"eth_type": IPV4, "ip_proto": 17, "udp_dst": 80}, {"eth_type": IPV6, "ip_proto": 6, "tcp_dst": 80},
    {"eth_type": ARP, "arp_op": 1}, {"eth_type": ARP, "arp_tpa": 0x0A000002}, {"eth_type": ARP, "arp_tpa": 0x0A000003},
    {"eth_type": MPLS, "mpls_label": 16}, {"eth_type": MPLS, "mpls_bos": 1}, {"eth_type": 0x88CC},
]  # fmt: skip


def flowspace(rng: random.Random) -> list[ClassifierEntry]:
    """Entries of the slice and of another one, some at one port only, highest first; one port may be all the slice's,
    as an access point's interface.
    """
    found = []
    for priority in range(rng.randrange(2, 9), 1, -1):
        match = of_fields(dict(rng.choice(FIELDS)))  # type: ignore[arg-type]
        at = rng.choice((None, None, *PORTS))
        match = match if at is None else at_port(match, at)
        found.append(ClassifierEntry(priority, match, rng.choice([MINE, OTHER])))
    whole = [ClassifierEntry(99, at_port(ALL, 1), MINE)] if rng.random() < 0.6 else []
    return [*whole, *found, ClassifierEntry(0, ALL, PRODUCTION)]


header = lru_cache(maxsize=4096)(header_of)


def owner(entries: Sequence[ClassifierEntry], port: int, frame: bytes) -> int | None:
    """Whose a frame certainly is at a port; None if it may be of several."""
    there = at_port(header(frame), port)
    for entry in entries:
        if entry.match.overlaps(there):
            return None if entry.match.mask & ~there.mask else entry.block.number
    raise AssertionError("the lowest entry has all")


def is_certain(match: TernaryMatch, frame: bytes, port: int) -> bool:
    there = at_port(header(frame), port)
    return match.overlaps(there) and not match.mask & ~there.mask


# -- lists of actions -------------------------------------------------------------------------------------------------

SETS = {
    "eth_dst": MACS, "eth_src": MACS, "vlan_vid": (0x1005, 0x1006), "vlan_pcp": (3,), "mpls_label": (16, 17),
    "ipv4_dst": (0x0A000002, 0x0A000003), "tcp_dst": (80, 81), "udp_dst": (80, 81),
    "arp_op": (0, 1, 2), "arp_tpa": (0x0A000002, 0x0A000003),
}  # fmt: skip
KINDS = (
    "output", "flood", "group", "push vlan", "pop vlan", "push mpls", "pop mpls", "push pbb", "pop pbb", *SETS
)  # fmt: skip
OUTPUTS = ("output", "flood", "group")
THEMES = (
    ("arp_op", "arp_tpa"), ("push vlan", "pop vlan", "vlan_vid", "vlan_pcp"), ("push mpls", "pop mpls", "mpls_label"),
    ("push pbb", "pop pbb", "eth_src", "eth_dst"), ("ipv4_dst", "tcp_dst", "udp_dst"),
)  # fmt: skip
Step = tuple[str, int]
"""A kind of action, and its port, type or value."""


def step_of(kind: str, number: int) -> Step:
    rng = random.Random(number)
    types = {"push vlan": (VLAN, SERVICE_VLAN), "push mpls": (MPLS,), "pop mpls": (IPV4, ARP, VLAN, MPLS, IPV6)}
    types |= {"output": (*PORTS, IN_PORT), "flood": (FLOOD, ALL_PORTS), "group": (1,), **SETS}
    return kind, rng.choice(types.get(kind, (0,)))


def encoded(step: Step) -> bytes:
    kind, number = step
    codes = {
        "push vlan": 17,
        "pop vlan": 18,
        "push mpls": 19,
        "pop mpls": 20,
        "group": 22,
        "push pbb": 26,
        "pop pbb": 27,
    }
    if kind in ("output", "flood"):
        return struct.pack("!HHIH6x", 0, 16, number, 0)
    if kind in SETS:
        value = classifier.field_bytes(BY_NAME[kind], number, BY_NAME[kind].ones)
        return struct.pack("!HH", 25, (4 + len(value) + 7) // 8 * 8) + value + b"\0" * (-(4 + len(value)) % 8)
    if kind == "group":
        return struct.pack("!HHI", 22, 8, number)
    return struct.pack("!HHHxx", codes[kind], 8, PBB if kind == "push pbb" else number)


@dataclass(frozen=True)
class Switch:
    """Carries lists of actions out. Switches differ in how many tags they look behind and in what a new tag has."""

    most_tags: int
    tags_are_copied: bool
    buckets: Sequence[Sequence[Step]] = ()

    def leaving(self, steps: Sequence[Step], packet: Packet, in_port: int) -> Iterator[tuple[int, bytes]]:
        """(port, frame) of all that goes out."""
        for kind, number in steps:
            if kind == "output":
                yield in_port if number == IN_PORT else number, packet.bytes()
            elif kind == "flood":
                yield from ((port, packet.bytes()) for port in PORTS if number == ALL_PORTS or port != in_port)
            elif kind == "group":
                for bucket in self.buckets:
                    yield from self.leaving(in_order(bucket), packet.copy(), in_port)
            else:
                self.rewrite(kind, number, packet)

    def rewrite(self, kind: str, number: int, packet: Packet) -> None:
        plain: dict[str, Callable[[], object]] = {
            "push vlan": lambda: push_vlan(packet, number, self.tags_are_copied),
            "pop vlan": lambda: packet.tags and packet.tags.pop(0),
            "push mpls": lambda: push_mpls(packet, number),
            "pop mpls": lambda: pop_mpls(packet, number),
            "push pbb": lambda: push_pbb(packet),
            "pop pbb": lambda: pop_pbb(packet, self.most_tags),
        }
        if kind in plain:
            plain[kind]()
        else:
            set_field(packet, kind, number)


def in_order(steps: Sequence[Step]) -> list[Step]:
    """An action set is carried out in the order of the specification, section 5.10: the last of each kind."""
    last = {(kind if kind not in ("output", "flood") else "output"): (kind, number) for kind, number in steps}
    order = ("pop mpls", "pop pbb", "pop vlan", "push mpls", "push pbb", "push vlan", *SETS, "group", "output")
    return [last[kind] for kind in order if kind in last and not (kind == "output" and "group" in last)]


def guest(entries: Sequence[ClassifierEntry]) -> GuestView:
    pool = NumberPool(1, 99)
    return GuestView(MINE, frozenset(PORTS), Regions(list(entries)), IdMap(pool, 9), IdMap(pool, 9))


def passes(translator: Callable[[bytes, GuestView], object], message: bytes, view: GuestView) -> bool:
    try:
        translator(message, view)
    except Refused:
        return False
    return True


def check_frames(
    rng: random.Random,
    entries: Sequence[ClassifierEntry],
    match: TernaryMatch,
    run: Callable[..., list[tuple[int, bytes]]],
) -> None:
    switches = list(product((1, 2), (False, True)))
    for frame in FRAMES:
        for in_port in PORTS:
            if owner(entries, in_port, frame) == MINE.number and is_certain(match, frame, in_port):
                how = rng.choice(switches)
                for port, out in run(how, Packet.of(frame, how[0]), in_port):
                    assert owner(entries, port, out) in (MINE.number, None), f"{frame.hex()} -> {out.hex()} at {port}"


def some_match(rng: random.Random) -> TernaryMatch:
    while True:
        fields: dict[str, object] = {**rng.choice(FIELDS), **rng.choice(FIELDS)}
        if rng.random() < 0.5:
            fields["in_port"] = rng.choice(PORTS)
        try:
            return of_fields(fields)  # type: ignore[arg-type]
        except MatchError:
            continue


def flow_mod(match: TernaryMatch, steps: Sequence[Step], kind: int, goto: bool) -> bytes:
    body = b"".join(map(encoded, steps))
    instructions = struct.pack("!HH4x", kind, 8 + len(body)) + body
    instructions += struct.pack("!HHB3x", 1, 8, 1) if goto else b""
    return wire.message(wire.flow_mod_body(wire.ADD, 0, 9, classifier.encode(match), instructions), 1)


def is_for_switches(match: TernaryMatch, steps: Sequence[Step]) -> bool:
    """Open vSwitch refuses to pop a label off what a rule does not match as MPLS."""
    is_mpls = match.field("eth_type") in ((MPLS, 0xFFFF), (MPLS_MULTICAST, 0xFFFF))
    for kind, number in steps:
        if kind == "pop mpls" and not is_mpls:
            return False
        is_mpls = {"push mpls": True, "pop mpls": number in (MPLS, MPLS_MULTICAST)}.get(kind, is_mpls)
    return True


def play_rules(seed: int, row: list[tuple[str, int]]) -> None:
    rng = random.Random(seed)
    steps = [*(step_of(*each) for each in row), step_of("output", seed)]
    for _ in range(12):
        entries, match, goto = flowspace(rng), some_match(rng), rng.random() < 0.2
        view, plain = guest(entries), [[("output", rng.choice(PORTS))]]
        if any(kind == "group" for kind, _ in steps) and not passes(translate_group_mod, group_mod(plain), view):
            continue
        if is_for_switches(match, steps) and passes(translate, flow_mod(match, steps, 4, goto), view):
            run = partial(run_list, plain, steps, goto)
            check_frames(rng, entries, match, run)


def run_list(
    buckets: Sequence[Sequence[Step]], steps: Sequence[Step], goto: bool, how: tuple[int, bool], packet: Packet, at: int
) -> list[tuple[int, bytes]]:
    found = list(Switch(*how, buckets).leaving(steps, packet, at))
    # In the next table it meets rules that were checked for packets of the slice.
    return [*found, (at, packet.bytes())] if goto else found


def group_mod(buckets: Sequence[Sequence[Step]]) -> bytes:
    found = b""
    for bucket in buckets:
        body = b"".join(map(encoded, bucket))
        found += struct.pack("!HHII4x", 16 + len(body), 0, 0xFFFFFFFF, 0xFFFFFFFF) + body
    return wire.message(struct.pack("!HBxI", 0, 0, 1) + found, 1, wire.GROUP_MOD)


def play_groups(seed: int, row: list[tuple[str, int]]) -> None:
    """Action sets: a bucket gets any packet of the slice, and what one rule writes meets what another has written."""
    rng = random.Random(seed)
    steps = [step for step in (step_of(*each) for each in row) if step[0] != "group"]
    steps.append(step_of("output", seed))
    for _ in range(12):
        entries = flowspace(rng)
        if passes(translate_group_mod, group_mod([steps]), guest(entries)):
            check_frames(rng, entries, ALL, partial(run_list, [steps], [("group", 1)], False))


def play_knowledge(seed: int, row: list[tuple[str, int]]) -> None:
    """What a clone does to its copy does not happen to the packet."""
    rng = random.Random(seed)
    steps = [step_of(*each) for each in row]
    everything = guest([ClassifierEntry(9, ALL, MINE)])
    for frame in FRAMES:
        whole = header(frame)
        part = rng.choice(FIELDS)
        origins = [whole, *(match for match in (of_fields(dict(part)),) if is_certain(match, frame, 1))]  # type: ignore[arg-type]
        for match in origins:
            walker = Translator(everything, Origin(match, PORTS))
            how = Switch(rng.choice((1, 2)), rng.random() < 0.5)
            packet = Packet.of(frame, how.most_tags)
            for step in steps:
                data = encoded(step)
                is_copied = rng.random() < 0.2
                data = struct.pack("!HHIH6x", 0xFFFF, 16 + len(data), 0x2320, 42) + data if is_copied else data
                walker.walk(data, 0, len(data))
                if not is_copied:
                    how.rewrite(*step, packet)
                same = match.mask & ~(walker.rewrite.mask | walker.rewrite.unknown)
                known = TernaryMatch(match.value & same | walker.rewrite.value, same | walker.rewrite.mask)
                out = packet.bytes()
                assert known.overlaps(header(out)), f"{frame.hex()} -> {out.hex()}: {describe(known)}"
                if len(packet.tags) <= how.most_tags or step[0] == "push vlan":
                    read = of_fields({"eth_type": Packet.of(out, how.most_tags).kind})
                    assert known.overlaps(read), f"{frame.hex()} -> {out.hex()}: {describe(known)}"


def test_what_is_known_of_a_header_is_what_a_switch_makes_of_it() -> None:
    swarm(300, lambda rng: events(rng, [kind for theme in rng.sample(THEMES, 2) for kind in theme], 4), play_knowledge)


ABOVE_ETHERNET = [
    "ip_dscp", "ip_ecn", "ip_proto", "ipv4_src", "ipv4_dst", "tcp_src", "tcp_dst", "udp_src", "udp_dst", "sctp_src",
    "sctp_dst", "icmpv4_type", "icmpv4_code", "arp_op", "arp_spa", "arp_tpa", "arp_sha", "arp_tha", "ipv6_src",
    "ipv6_dst", "ipv6_flabel", "icmpv6_type", "icmpv6_code", "ipv6_nd_target", "ipv6_nd_sll", "ipv6_nd_tll",
    "mpls_label", "mpls_tc", "mpls_bos", "pbb_isid", "ipv6_exthdr",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["push mpls", "pop mpls", "push pbb", "pop pbb", "push vlan"])
@pytest.mark.parametrize("name", ABOVE_ETHERNET)
def test_nothing_above_ethernet_is_known_once_headers_were_put_on_or_taken_off(name: str, kind: str) -> None:
    walker = Translator(guest([ClassifierEntry(9, ALL, MINE)]), Origin(of_fields({"in_port": 1}), PORTS))
    data = encoded(step_of(kind, 1))
    walker.walk(data, 0, len(data))
    field = BY_NAME[name]
    assert walker.rewrite.unknown >> field.shift & field.ones == field.ones


def test_label_that_is_read_as_an_ip_header_makes_another_slices_frame_of_no_rule() -> None:
    """With two labels on and one off, the other label is the first bytes of what is read as IP; guests can set it."""
    web = ClassifierEntry(9, at_port(of_fields({"eth_type": IPV4, "ip_proto": 6, "tcp_dst": 80}), 2), OTHER)
    view = guest([web, *(ClassifierEntry(8, at_port(ALL, port), MINE) for port in PORTS)])
    steps = [("push mpls", MPLS), ("push mpls", MPLS), ("mpls_label", 0x45000), ("pop mpls", IPV4), ("output", 2)]
    mine = of_fields({"in_port": 1, "eth_type": IPV4, "ip_proto": 6, "tcp_dst": 81})
    assert not passes(translate, flow_mod(mine, steps, 4, False), view)


def test_popping_a_label_makes_no_type_known_of_packets_that_may_have_none() -> None:
    """Buckets get any packet of the slice, and Open vSwitch sends those without a label on as they are."""
    arp_is_mine = ClassifierEntry(9, at_port(of_fields({"eth_type": ARP}), 2), MINE)
    view = guest([ClassifierEntry(99, at_port(ALL, 1), MINE), arp_is_mine, ClassifierEntry(0, ALL, PRODUCTION)])
    steps = [("pop mpls", ARP), ("output", 2)]
    assert not passes(translate_group_mod, group_mod([steps]), view)
    assert not passes(translate, flow_mod(of_fields({"in_port": 1}), steps, 3, False), view)
    labelled = of_fields({"in_port": 1, "eth_type": MPLS})
    assert passes(translate, flow_mod(labelled, steps, 4, False), view)


@pytest.mark.parametrize("kind", [0, 0x5FF, 0x600, 0x800, VLAN, SERVICE_VLAN, 0xFFFF])
def test_type_behind_a_label_is_known_unless_it_is_a_length_or_a_tag(kind: int) -> None:
    walker = Translator(guest([ClassifierEntry(9, ALL, MINE)]), Origin(of_fields({"eth_type": MPLS}), PORTS))
    data = encoded(("pop mpls", kind))
    assert walker.walk(data, 0, len(data)) == data
    is_known = kind >= 0x600 and kind not in (VLAN, SERVICE_VLAN)
    field = BY_NAME["eth_type"]
    assert (walker.rewrite.mask >> field.shift & 0xFFFF) == (0xFFFF if is_known else 0)
    assert (walker.rewrite.unknown >> field.shift & 0xFFFF) == (0 if is_known else 0xFFFF)


LENGTHS = {0: 16, 25: 16, **dict.fromkeys((11, 12, *range(15, 25), 26, 27), 8)}
"""By type of action the bytes that it has in OpenFlow Switch Specification 1.3.5, section 7.2.4; a field of 2 bytes."""
SET_QUEUE, SET_FIELD = 21, 25


@pytest.mark.parametrize("kind", range(30))
def test_action_has_the_length_of_its_type(kind: int) -> None:
    view = guest([ClassifierEntry(9, ALL, MINE)])
    assert passes(translate_group_mod, group_mod([]), view)
    content = {0: b"\0\0\0\1", 22: b"\0\0\0\1", SET_FIELD: bytes.fromhex("80001c0207d0")}
    for length in range(48):
        walker = Translator(view, Origin(of_fields({"in_port": 1}), PORTS))
        action = struct.pack("!HH", kind, length) + content.get(kind, b"\x88\x47\0\0").ljust(44, b"\0")
        if kind != SET_QUEUE and LENGTHS.get(kind) == length:
            assert walker.walk(action, 0, length)
            continue
        with pytest.raises(Refused) as refused:
            walker.walk(action, 0, max(8, length))
        is_whole = length >= 8 and not length % 8
        code = 1 if kind in LENGTHS or not is_whole else 0
        assert refused.value.kind == 2
        assert refused.value.code == (8 if (kind, length) == (SET_QUEUE, 8) else code)


def test_no_rule_lets_a_frame_of_the_slice_out_as_another_slices() -> None:
    swarm(100, lambda rng: events(rng, KINDS, 5, OUTPUTS), play_rules)


def test_no_bucket_lets_a_frame_of_the_slice_out_as_another_slices() -> None:
    swarm(50, lambda rng: events(rng, KINDS, 4, OUTPUTS), play_groups)
