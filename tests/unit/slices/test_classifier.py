"""The classifier's messages, read back from their bytes and carried out by the model switch."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product

import pytest
from swarm import events, swarm
from switch_model import Frame, ModelSwitch

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.rule import Rule
from hyroads.slices.core import classifier as oxm
from hyroads.slices.core.allocation import Allocation, Layout, allocate
from hyroads.slices.core.change import changed
from hyroads.slices.core.classifier import (
    NO_CLASSIFIER,
    Classifier,
    ClassifierChange,
    classifier_of,
    discovery_mac,
    switch_difference,
)
from hyroads.slices.core.errors import AllocationError, ConflictError
from hyroads.slices.core.fields import VLAN_PRESENT
from hyroads.slices.core.match import TernaryMatch, completed, intersection
from hyroads.slices.core.model import EMPTY, PRODUCTION, FlowspaceRule, Limits, Permission, Slice, SliceModel
from hyroads.slices.core.notation import write
from hyroads.slices.proxy.maintenance import DesiredState, change_stages

LAYOUT = Layout()
NOTHING_ELSE = DesiredState((), (), {}, LAYOUT)
CONTROLLER = 0xFFFFFFFD
Table = dict[tuple[int, int, bytes], tuple[bytes, int]]


def carry_out(messages: bytes, switch: Table) -> int:
    """What a switch does with flow-mods: (table, priority, OXM) -> (instructions, cookie). Returns their number."""
    offset = count = 0
    while offset < len(messages):
        _, kind, length, _ = struct.unpack_from("!BBHI", messages, offset)
        body = messages[offset + 8 : offset + length]
        offset += length
        if kind != 14:
            assert kind == 20
            continue
        count += 1
        cookie, cookie_mask, table, command = struct.unpack_from("!QQBB", body)
        (priority,) = struct.unpack_from("!H", body, 22)
        (match_length,) = struct.unpack_from("!H", body, 42)
        fields = body[44 : 40 + match_length]
        rest = body[40 + (match_length + 7) // 8 * 8 :]
        key = (table, priority, fields)
        if command == 0:
            switch[key] = (rest, cookie)
        elif command == 4:
            assert switch[key][1] & cookie_mask == cookie & cookie_mask, "deletes what it thinks it deletes"
            del switch[key]
        else:
            assert command == 3 and not fields
            for key in [key for key in switch if key[0] == table]:
                del switch[key]
    return count


def to_controller(instructions: bytes) -> tuple[tuple[act.Action, ...], bytes]:
    """The output that instructions begin with, if any, and what follows; nothing follows but write-metadata."""
    if instructions[:2] != b"\0\4":
        return (), instructions
    *head, port, most = struct.unpack_from("!HH4xHHIH6x", instructions)
    assert head == [4, 24, 0, 16] and most == 0xFFFF and len(instructions) == 48
    return (act.Output(port),), instructions[24:]


def model_switch(table: Table, guests: Iterable[Rule]) -> ModelSwitch:
    rules = []
    for (number, priority, fields), (instructions, _) in table.items():
        match = oxm.decode(fields)
        values = {f.name: write(f, v, m) for f, v, m in match.fields()}
        numbers = {"in_port", "eth_type", "ip_proto", "tcp_src", "tcp_dst", "udp_src", "udp_dst"}
        text = {("vlan" if n == "vlan_vid" else n): int(v, 0) if n in numbers else v for n, v in values.items()}
        if "vlan" in text:
            text["vlan"] = 0 if text["vlan"] == "none" else int(str(text["vlan"]))
        actions, rest = to_controller(instructions)
        kind, length, metadata, mask = struct.unpack_from("!HH4xQQ", rest)
        assert (kind, length) == (2, 24) and metadata & mask == metadata
        goto = None
        if not actions:
            goto_kind, size, goto = struct.unpack_from("!HHB", rest, 24)
            assert (goto_kind, size, len(rest)) == (1, 8, 32)
        rules.append(Rule(number, priority, Match(**text), actions, goto))
    return ModelSwitch([*rules, *guests])


def owner(switch: ModelSwitch, frame: Frame, port: int) -> int:
    """Every slice's block sends all its packets to the port 1000 + its number."""
    [(out, _)] = switch.receive(frame, port)
    return out - 1000


def guests(allocation: Allocation, dpid: int) -> list[Rule]:
    return [Rule(b.first, 1, Match(), (act.Output(1000 + b.number),)) for b in allocation.blocks[dpid].values()]


def packet(rng: random.Random) -> tuple[Frame, TernaryMatch]:
    """A frame and its header as bits."""
    mac = rng.randrange(2)
    upper: dict[str, object] = {"vlan": 0}
    fields: dict[str, int] = {"eth_src": 0x020000000000 | mac, "eth_dst": 0x02000000FF00, "vlan_vid": 0}
    kind = rng.choice([0x0800, 0x86DD, 0x0806])
    fields["eth_type"] = kind
    if kind != 0x0806:
        proto = rng.choice([6, 17])
        name = "tcp_dst" if proto == 6 else "udp_dst"
        fields |= {"ip_proto": proto, name: rng.choice([80, 81, 443])}
        if kind == 0x0800:
            fields["ipv4_dst"] = 0x0A000000 | rng.randrange(4)
            upper["ipv4_dst"] = f"10.0.0.{fields['ipv4_dst'] & 3}"
        upper |= {"ip_proto": proto, name: fields[name]}
    frame = Frame(f"02:00:00:00:00:0{mac}", "02:00:00:00:ff:00", kind, upper=upper)
    return frame, completed(fields)[0]


CHOICES: list[dict[str, object]] = [
    {},
    {"tcp_dst": 80},
    {"udp_dst": 443},
    {"eth_src": 0x020000000001},
    {"ipv4_dst": (0x0A000000, 0xFFFFFFFE)},
    {"eth_type": 0x0806},
    {"vlan_vid": 0},
    {"tcp_dst": 81, "ipv4_dst": 0x0A000003},
]


def random_slice(rng: random.Random, name: str, priorities: list[int]) -> Slice:
    rules = tuple(
        FlowspaceRule(
            completed(rng.choice(CHOICES)),
            priorities.pop(),
            rng.choice([None, frozenset({1}), frozenset({1, 2})]),
            rng.choice([None, frozenset({1}), frozenset({"two"}), frozenset({3, 4})]),
        )
        for _ in range(rng.randrange(1, 4))
    )
    return Slice(name, rules, limits=Limits(tables=rng.randrange(1, 5)))


PORTS = {1: {"one": 1, "two": 2}, 2: {"two": 7}}


def difference(old: Classifier, new: Classifier) -> dict[int, ClassifierChange]:
    """The changes of all switches that have one."""
    found = {dpid: switch_difference(old.entries.get(dpid, {}), after) for dpid, after in new.entries.items()}
    return {dpid: change for dpid, change in found.items() if change}


def expected_owner(
    model: SliceModel, dpid: int, port: int, header: TernaryMatch, ports: Mapping[int, Mapping[str, int]] = PORTS
) -> str:
    """Straight from the definition: the slice of the rule of highest priority, else production."""
    best = (0, PRODUCTION)
    for each in model.slices.values():
        for rule in each.flowspace:
            numbers = (
                None if rule.ports is None else {ports[dpid].get(p, p) if isinstance(p, str) else p for p in rule.ports}
            )
            if (
                rule.on(dpid)
                and (numbers is None or port in numbers)
                and any(intersection(m, header) == header for m in rule.matches)
            ):
                best = max(best, (rule.priority, each.name))
    return best[1]


CHANGES = ("put one", "put two", "put all", "replace rules", "swap tables", "remove", "take ports", "give ports")


class Sliced:
    """Slices that change, and what two switches have of them."""

    def __init__(self) -> None:
        self.model, self.allocation, self.classifier = EMPTY, Allocation(), NO_CLASSIFIER
        self.tables: dict[int, Table] = {1: {}, 2: {}}
        self.ports = PORTS

    def change(self, kind: str, rng: random.Random) -> None:
        there = sorted(self.model.slices.keys() - {PRODUCTION})
        put: list[Slice] = []
        remove: list[str] = []
        if kind.startswith("put"):
            names = rng.sample("abcd", {"put one": 1, "put two": 2, "put all": 4}[kind])
            priorities = rng.sample(range(1, 60000), 20)
            put = [random_slice(rng, name, priorities[i * 5 : i * 5 + 5]) for i, name in enumerate(names)]
        elif kind == "replace rules" and there:
            # Equal priorities meet: refused, or the change is one of one rule alone.
            name = rng.choice(there)
            each = self.model.slices[name]
            put = [replace(each, flowspace=each.flowspace[1:] or each.flowspace)]
        elif kind == "swap tables" and len(there) > 1:
            remove, put = there[:1], [replace(self.model.slices[there[1]], name="e")]
            remove.append(there[1])
        elif kind == "remove" and there:
            remove = [rng.choice(there)]
        elif kind.endswith("ports"):
            self.ports = PORTS if kind == "give ports" else {1: {"one": 1}, 2: {"two": 4}}
        try:
            self.model, change = changed(self.model, put, remove)
        except ConflictError:
            return
        names_ = None if kind.endswith("ports") else change.names
        self.allocation = allocate(self.model, (1, 2), self.allocation, names_, LAYOUT)
        fresh = classifier_of(self.model, self.allocation, self.ports, self.classifier, names_)
        assert fresh == classifier_of(self.model, self.allocation, self.ports), "computed in part or whole: the same"
        for dpid, difference_ in difference(self.classifier, fresh).items():
            for stage in change_stages(difference_, NOTHING_ELSE, NOTHING_ELSE):
                carry_out(b"".join(stage), self.tables[dpid])
        self.classifier = fresh
        assert not difference(self.classifier, fresh)


def play_changes(_: int, row: list[tuple[str, int]]) -> None:
    sliced = Sliced()
    for kind, choice in row:
        rng = random.Random(choice)
        sliced.change(kind, rng)
        for dpid in (1, 2):
            check_switch(rng, sliced, dpid)


def test_every_packet_reaches_the_tables_of_its_owner_through_any_row_of_changes() -> None:
    swarm(25, lambda rng: events(rng, CHANGES, 8, ("put two",)), play_changes)


def check_switch(rng: random.Random, sliced: Sliced, dpid: int) -> None:
    model, allocation, classifier, ports = sliced.model, sliced.allocation, sliced.classifier, sliced.ports
    table = sliced.tables[dpid]
    installed = {(0, e.priority, oxm.encode(e.match)): e.cookie(LAYOUT) for e in classifier.of_switch(dpid)}
    assert {key: cookie for key, (_, cookie) in table.items()} == installed
    switch = model_switch(table, guests(allocation, dpid))
    for _ in range(30):
        frame, header = packet(rng)
        port = rng.choice([1, 2, 3, 4, 7])
        name = expected_owner(model, dpid, port, header, ports)
        assert owner(switch, frame, port) == allocation.numbers[name]
    for number in {*allocation.numbers.values(), 999}:
        for group, vlan, eth_type in product((True, False), (0, 5), (0x88CC, 0x8942, 0x0806)):
            frame, header = marked(number, group, vlan, eth_type)
            port = rng.choice([1, 2, 3, 4, 7])
            [(out, _)] = switch.receive(frame, port)
            if group and not vlan and eth_type != 0x0806:
                assert out == CONTROLLER, "discovery, also of slices that have nothing here"
            else:
                name = expected_owner(model, dpid, port, header, ports)
                assert out - 1000 == allocation.numbers[name], "any other packet"


def marked(number: int, group: bool, vlan: int, eth_type: int) -> tuple[Frame, TernaryMatch]:
    """A frame with the mark of a slice, by whomever."""
    source, destination = discovery_mac(number), 0x0180C200000E if group else 0x02000000FF00
    tag = VLAN_PRESENT | vlan if vlan else 0
    [header] = completed({"eth_src": source, "eth_dst": destination, "eth_type": eth_type, "vlan_vid": tag})
    text = (each.to_bytes(6, "big").hex(":") for each in (source, destination))
    return Frame(*text, eth_type, upper={"vlan": vlan}), header


def slices(count: int, tables: int = 2) -> list[Slice]:
    return [
        Slice(f"s{i}", (FlowspaceRule(completed({"ipv4_dst": i + 1})),), limits=Limits(tables=tables))
        for i in range(count)
    ]


def test_blocks_never_overlap_nor_move_and_numbers_are_not_reused_at_once() -> None:
    model, _ = changed(EMPTY, slices(20))
    first = allocate(model, (1,))
    model, change = changed(model, [replace(model.slices["s3"], limits=Limits(tables=5))], ["s7", "s8"])
    second = allocate(model, (1,), first, change.names)
    used = [t for b in second.blocks[1].values() for t in range(b.first, b.first + b.count)]
    assert len(used) == len(set(used)) and 0 not in used and max(used) < 254
    assert all(second.blocks[1][n] == b for n, b in first.blocks[1].items() if n not in change.names)
    assert second.blocks[1]["s3"].count == 5 and second.blocks[1]["s3"].number == first.numbers["s3"]
    model, change = changed(model, [Slice("new", slices(30)[-1].flowspace)])
    third = allocate(model, (1,), second, change.names)
    assert third.numbers["new"] in {first.numbers["s7"], first.numbers["s8"]}, "free for long enough by now"
    assert allocate(model, (1,), second, change.names) == third, "the same from the same"


def test_a_switch_that_comes_later_gets_every_slice() -> None:
    model, _ = changed(EMPTY, slices(5))
    first = allocate(model, (1,))
    later = allocate(model, (1, 2), first, ())
    assert later.blocks[1] == first.blocks[1]
    assert set(later.blocks[2]) == set(model.slices)
    assert set(allocate(model, (2,), later, ()).blocks) == {2}


def test_too_many_tables_are_refused_with_the_switch_and_slice() -> None:
    model, _ = changed(EMPTY, slices(100, 3))
    with pytest.raises(AllocationError, match=r"switch 0x1 has 254 tables: no 3 in a row are left for slice s\d+"):
        allocate(model, (1,))
    model, _ = changed(EMPTY, slices(100, 2))
    assert len(allocate(model, (1,)).blocks[1]) == 101


@pytest.mark.parametrize("bits", [16, 20, 24, 64])
def test_entries_write_only_metadata_that_the_slicer_has(bits: int) -> None:
    layout = Layout(metadata_bits=bits)
    limits = Limits(rate_in_mbps=1.0)
    model, _ = changed(EMPTY, [replace(slices(1)[0], limits=limits)])
    allocation = allocate(model, (1,), layout=layout)
    block = allocation.blocks[1]["s0"]
    for entry in classifier_of(model, allocation, {}).of_switch(1):
        actions, rest = to_controller(entry.instructions(layout))
        if entry.priority == 100:
            assert rest[:8] == struct.pack("!HHI", 6, 8, block.number), "its meter comes first"
            rest = rest[8:]
        metadata, mask = struct.unpack_from("!QQ", rest, 8)
        known = bool(actions) and bits >= 24
        assert mask == layout.slice_metadata_mask | (0xFF if known else 0) and mask >> bits == 0
        assert metadata == entry.block.number << layout.slice_shift | (entry.block.first if known else 0)


def test_address_is_a_mark_only_with_all_bits_of_it() -> None:
    mark = discovery_mac(5)
    assert oxm.is_discovery_mac(mark) and not oxm.is_discovery_mac(0x020000000001)
    model, _ = changed(EMPTY, slices(1))
    entries = classifier_of(model, allocate(model, (1,)), {}).of_switch(1)
    for source, known in ((mark, True), (mark | 1 << 40, False), (mark | 1 << 20, False)):
        [header] = completed({"eth_src": source, "eth_dst": 0x0180C200000E, "eth_type": 0x88CC, "vlan_vid": 0})
        assert any(entry.priority == 65000 and entry.match.has(header.value) for entry in entries) is known


def test_block_fits_a_gap_of_exactly_its_size() -> None:
    layout = Layout(tables=1 + 8 + 2 + 2)
    model, _ = changed(EMPTY, slices(2))
    first = allocate(model, (1,), layout=layout)
    gap, name = min((first.blocks[1][name].first, name) for name in ("s0", "s1"))
    model, change = changed(model, [replace(slices(3)[2], name="new")], [name])
    second = allocate(model, (1,), first, change.names, layout)
    assert second.blocks[1]["new"].first == gap


def test_tables_that_change_hands_at_once_are_emptied_first() -> None:
    layout = Layout(tables=8 + 1 + 4)
    model, _ = changed(EMPTY, [Slice("a", slices(1)[0].flowspace, limits=Limits(tables=4))])
    first = allocate(model, (1,), layout=layout)
    old = classifier_of(model, first, {})
    model, change = changed(model, [Slice("b", slices(1)[0].flowspace, limits=Limits(tables=4))], ["a"])
    second = allocate(model, (1,), first, change.names, layout)
    assert second.blocks[1]["b"].first == first.blocks[1]["a"].first
    [(_, found)] = difference(old, classifier_of(model, second, {}, old, change.names)).items()
    assert found.passed_on == (9, 10, 11, 12) and not found.freed
    model, change = changed(model, remove=["b"])
    third = allocate(model, (1,), second, change.names, layout)
    before = classifier_of(changed(model, [Slice("b", slices(1)[0].flowspace)])[0], second, {})
    [(_, found)] = difference(before, classifier_of(model, third, {})).items()
    assert found.freed == (9, 10, 11, 12) and not found.passed_on


def messages_of(change: ClassifierChange) -> list[bytes]:
    """The messages of a change to one switch, in the order in which they are sent."""
    return [message for stage in change_stages(change, NOTHING_ELSE, NOTHING_ELSE) for message in stage]


def leads(table: Table) -> set[tuple[int, int]]:
    """(number of the slice, first table) to which entries of the classifier send packets."""
    found = set()
    for (number, _, _), (instructions, _) in table.items():
        if number == 0 and len(instructions) == 32:
            metadata, _, _, _, first = struct.unpack_from("!QQHHB", instructions, 8)
            found.add((metadata >> LAYOUT.slice_shift, first))
    return found


def test_packets_meet_only_rules_of_their_own_slice_while_tables_change_hands() -> None:
    layout = Layout(tables=8 + 1 + 4)
    one, other = (Slice(name, slices(1)[0].flowspace, limits=Limits(tables=4)) for name in "ab")
    model, _ = changed(EMPTY, [one])
    first = allocate(model, (1,), layout=layout)
    before = classifier_of(model, first, {})
    table: Table = {}
    carry_out(b"".join(messages_of(switch_difference({}, before.entries[1]))), table)
    for put, remove in (([other], ["a"]), ([], ["b"])):
        model, change = changed(model, put, remove)
        second = allocate(model, (1,), first, change.names, layout)
        after = classifier_of(model, second, {}, before, change.names)
        # Each slice has a rule in its first table; its cookie is the slice's number.
        table |= {(b.first, 1, b""): (b"", b.number) for b in first.blocks[1].values()}
        old = {block.number for block in first.blocks[1].values()}
        found = switch_difference(before.entries[1], after.entries[1])
        for message in messages_of(found):
            carry_out(message, table)
            for number, at in leads(table):
                rule = table.get((at, 1, b""))
                assert rule is None or rule[1] == number, "a rule of another slice"
                assert rule is not None or number not in old or found.passed_on, "a table that is emptied too early"
        assert {(at, rule[1]) for (at, _, _), rule in table.items() if at} == {
            (block.first, block.number) for name, block in second.blocks[1].items() if name == PRODUCTION
        }
        first, before = second, after


def test_packets_of_a_slice_that_is_carved_out_of_another_never_meet_the_other() -> None:
    large = Slice("large", (FlowspaceRule(completed({"eth_type": 0x0800}), 10),))
    small = Slice("small", (FlowspaceRule(completed({"eth_type": 0x0800, "eth_src": 0x020000000001}), 20),))
    frame = Frame("02:00:00:00:00:01", "02:00:00:00:ff:00", 0x0800, upper={"vlan": 0})
    model, _ = changed(EMPTY, [large, small])
    allocation = allocate(model, (1,))
    nothing = classifier_of(EMPTY, allocate(EMPTY, (1,)), {}).entries[1]
    both = classifier_of(model, allocation, {}).entries[1]
    table: Table = {}
    carry_out(b"".join(messages_of(switch_difference({}, nothing))), table)
    for old, new, last in ((nothing, both, "small"), (both, nothing, PRODUCTION)):
        owners = []
        for message in messages_of(switch_difference(old, new)):
            carry_out(message, table)
            owners.append(owner(model_switch(table, guests(allocation, 1)), frame, 1))
        assert allocation.numbers["large"] not in owners and owners[-1] == allocation.numbers[last]


def test_a_slice_that_may_not_write_takes_no_packets() -> None:
    model, _ = changed(EMPTY, [replace(slices(1)[0], permissions=frozenset({Permission.READ}))])
    entries = classifier_of(model, allocate(model, (1,)), {}).of_switch(1)
    assert {entry.priority for entry in entries} == {0, 65000}


def test_ports_that_are_not_there_are_left_out_until_they_come() -> None:
    each = Slice("a", (FlowspaceRule(completed({}), ports=frozenset({"wlan0-1", 3})),))
    model, _ = changed(EMPTY, [each])
    allocation = allocate(model, (1,))
    classifier = classifier_of(model, allocation, {1: {}})
    ports = {entry.match.field("in_port")[0] for entry in classifier.of_switch(1) if entry.priority == 100}
    assert ports == {3}
    there = classifier_of(model, allocation, {1: {"wlan0-1": 9}}, classifier, ["a"])
    [entry] = difference(classifier, there)[1].adds
    assert entry.match.field("in_port") == (9, 0xFFFFFFFF)


def test_a_slicer_behind_a_slicer_uses_the_next_bits() -> None:
    inner = Layout(tables=8, metadata_bits=48)
    assert inner.slice_metadata_mask == 0x0000_FFFF_0000_0000
    assert LAYOUT.guest_metadata_mask == (1 << 48) - 1
    assert not inner.slice_metadata_mask & LAYOUT.slice_metadata_mask
