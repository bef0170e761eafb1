"""The classifier: flowspace as the flow entries of table 0 of each switch, and matches as OpenFlow 1.3 OXM fields and
back (specification 1.3.5, section 7.2.3).

Each match of each flowspace rule, at each of its ports, is one entry with the rule's priority. It writes the slice's
number into the metadata and sends the packet to the slice's tables. The lowest entry sends everything else to
production. Nothing is rewritten by intersection: what a guest matches, it matches behind the classifier.

The topmost entries recognise the discovery frames (LLDP) that the slicer marks for each slice (``discovery``). They
send them to the slicer, and never to a slice's tables: anybody can write a mark, and only the slicer can tell who did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Installed
from hyroads.controller.ofp.rule import MARK_MASK, cookie_of

from .allocation import CLASSIFIER_TABLE, PRODUCTION_NUMBER, Allocation, Block, Layout
from .errors import MatchError
from .fields import BY_NAME, FIELDS, Field
from .match import ALL, TernaryMatch, normal, of_fields
from .model import PRODUCTION, FlowspaceRule, Permission, Slice, SliceModel

_BASIC_CLASS = 0x8000
_PADDED = {field.number: field.ones for field in FIELDS if field.bits % 8}
"""Fields that do not fill their bytes: the other bits must be 0."""


def encode(match: TernaryMatch) -> bytes:
    """OXM fields in ascending order, without the header of ofp_match; :class:`MatchError` for a refused mask."""
    parts = []
    for field, value, mask in match.fields():
        if mask != field.ones and not field.maskable:
            raise MatchError(MatchError.BAD_MASK, f"{field.name} takes no mask")
        parts.append(field_bytes(field, value, mask))
    return b"".join(parts)


def field_bytes(field: Field, value: int, mask: int) -> bytes:
    """One OXM field; a mask of all ones is left out."""
    size = field.size
    if mask == field.ones:
        return bytes((0x80, 0, field.number << 1, size)) + value.to_bytes(size, "big")
    header = bytes((0x80, 0, field.number << 1 | 1, 2 * size))
    return header + value.to_bytes(size, "big") + mask.to_bytes(size, "big")


def decode(data: bytes) -> TernaryMatch:
    """The match that OXM fields mean; :class:`MatchError` with OpenFlow's code if a switch would refuse them."""
    value = mask = offset = 0
    while offset < len(data):
        field, one, ones, offset = _field(data, offset)
        bits = field.ones << field.shift
        if mask & bits:
            raise MatchError(MatchError.DUP_FIELD, f"{field.name} is given twice")
        value |= one << field.shift
        mask |= ones << field.shift
    return normal(value, mask)


def _field(data: bytes, offset: int) -> tuple[Field, int, int, int]:
    """(field, value, mask, where the next one starts)."""
    if len(data) - offset < 4:
        raise MatchError(MatchError.BAD_LEN, f"{len(data) - offset} bytes are no OXM field")
    number, masked, length = data[offset + 2] >> 1, data[offset + 2] & 1, data[offset + 3]
    if (data[offset] << 8 | data[offset + 1]) != _BASIC_CLASS or number >= len(FIELDS):
        raise MatchError(MatchError.BAD_FIELD, f"OXM field {data[offset : offset + 4].hex()} is none of OpenFlow 1.3")
    field = FIELDS[number]
    size, start = field.size, offset + 4
    end = start + length
    if length != size << masked or end > len(data):
        raise MatchError(MatchError.BAD_LEN, f"{field.name} has {length} bytes, expected {size << masked}")
    value = int.from_bytes(data[start : start + size], "big")
    mask = int.from_bytes(data[start + size : end], "big") if masked else field.ones
    if number in _PADDED:
        if value & ~field.ones:
            raise MatchError(MatchError.BAD_VALUE, f"{field.name}={value:#x} has more than {field.bits} bits")
        mask &= field.ones
    if value & ~mask:
        raise MatchError(MatchError.BAD_WILDCARDS, f"{field.name}: bits outside the mask")
    if mask != field.ones and not field.maskable:
        raise MatchError(MatchError.BAD_MASK, f"{field.name} takes no mask")
    return field, value, mask, end


COOKIE_MARK = 0x53 << 56
"""Top byte of the cookies of the slicer's own entries; the rest is a hash of the entry."""

DISCOVERY_PRIORITY = 65_000
DISCOVERY_ETH_TYPES = (0x88CC, 0x8942)
"""LLDP, and ONOS's frames of the same form for discovery through switches that are not controlled."""
_DISCOVERY_MAC, _ANY_DISCOVERY_MAC = 0x0A53_4C43_0000, 0xFFFF_FFFF_0000
_GROUP_ADDRESS = 1 << 40

_WRITE_METADATA = Struct("!HH4xQQ")
_GOTO = Struct("!HHB3x")
_METER = Struct("!HHI")
_FIRST_TABLE = 0xFF
_TO_CONTROLLER = Struct("!HH4xHHIH6x").pack(4, 24, 0, 16, 0xFFFF_FFFD, 0xFFFF)
"""Apply-actions: output to the controller, the whole packet."""
_IN_PORT = BY_NAME["in_port"]

Key = tuple[int, TernaryMatch]
"""(priority, match) of an entry: what tells entries of table 0 apart."""

Entries = Mapping[Key, Block]
"""The entries of one slice on one switch."""


@dataclass(frozen=True, slots=True)
class ClassifierEntry:
    """One flow entry of table 0: packets that match belong to the slice that has ``block``, or may be its discovery."""

    priority: int
    match: TernaryMatch
    block: Block

    def instructions(self, layout: Layout) -> bytes:
        """The slice's meter if it has one, write-metadata with its number, then goto the first table of its block.

        Discovery frames go to the slicer and nowhere else. Their metadata is for a later slicer that reads the switch:
        it says whose the block is that starts at a table, also of slices that have no other entry.
        """
        metadata = self.block.number << layout.slice_shift
        if self.priority == DISCOVERY_PRIORITY:
            told = _FIRST_TABLE if layout.guest_metadata_mask >= _FIRST_TABLE else 0
            mask = layout.slice_metadata_mask | told
            return _TO_CONTROLLER + _WRITE_METADATA.pack(2, 24, metadata | self.block.first & told, mask)
        meter = _METER.pack(6, 8, self.block.number) if self.block.metered else b""
        return (
            meter
            + _WRITE_METADATA.pack(2, 24, metadata, layout.slice_metadata_mask)
            + _GOTO.pack(1, 8, self.block.first)
        )

    def cookie(self, layout: Layout) -> int:
        """The slicer's mark and a hash of the whole entry, so that reading cookies back is enough after a restart."""
        hashed = cookie_of(CLASSIFIER_TABLE, self.priority, _match_fields(self.match), self.instructions(layout))
        return COOKIE_MARK | hashed & ~MARK_MASK

    def add_body(self, layout: Layout) -> bytes:
        """The flow-mod that adds or overwrites the entry, without header."""
        fields, instructions = _match_fields(self.match), self.instructions(layout)
        return wire.flow_mod_body(
            wire.ADD, CLASSIFIER_TABLE, self.priority, fields, instructions, cookie=self.cookie(layout)
        )

    def installed(self, layout: Layout) -> Installed:
        """The entry as a switch reports it."""
        return Installed(CLASSIFIER_TABLE, self.priority, _match_fields(self.match), self.cookie(layout))


@dataclass(frozen=True, slots=True)
class ClassifierChange:
    """What to send to one switch, in the order of the fields."""

    passed_on: tuple[int, ...] = ()
    """Tables that go from one slice to another at once: emptied before anything leads to them."""
    adds: tuple[ClassifierEntry, ...] = ()
    deletes: tuple[ClassifierEntry, ...] = ()
    freed: tuple[int, ...] = ()
    """Tables that lost their slice: emptied when nothing leads to them any more."""

    def __bool__(self) -> bool:
        return bool(self.adds or self.deletes or self.freed or self.passed_on)


@lru_cache(maxsize=65536)
def _match_fields(match: TernaryMatch) -> bytes:
    return encode(match)


def discovery_mac(number: int) -> int:
    """The source address that marks discovery frames of a slice inside the network."""
    return _DISCOVERY_MAC | number


def is_discovery_mac(address: int) -> bool:
    """Whether an address is the mark of any slice: nobody but the slicer may send from it."""
    return address & _ANY_DISCOVERY_MAC == _DISCOVERY_MAC


def entries_of(each: Slice, dpid: int, block: Block, ports: Mapping[str, int]) -> Entries:
    """The entries of a slice on a switch that has these ports; rules by other names wait until there is such a port."""
    entries: dict[Key, Block] = dict.fromkeys(_discovery_keys(block.number), block)
    if each.limits.rate_in_mbps is not None:
        block = replace(block, metered=True)
    if each.name == PRODUCTION:
        entries[0, ALL] = block
    elif Permission.WRITE in each.permissions:
        for rule in each.rules:
            if rule.on(dpid):
                entries |= dict.fromkeys(_rule_keys(rule, ports), block)
    return entries


@lru_cache(maxsize=4096)
def _discovery_keys(number: int) -> tuple[Key, ...]:
    """Untagged frames to groups, which is all that ``discovery`` marks; production's are those of every mark.

    So the mark of a slice that has nothing at this switch is nobody's, not that of the port where it comes in.
    """
    source = discovery_mac(number) if number != PRODUCTION_NUMBER else (_DISCOVERY_MAC, _ANY_DISCOVERY_MAC)
    group = (_GROUP_ADDRESS, _GROUP_ADDRESS)
    return tuple(
        (DISCOVERY_PRIORITY, of_fields({"eth_dst": group, "eth_src": source, "vlan_vid": 0, "eth_type": eth_type}))
        for eth_type in DISCOVERY_ETH_TYPES
    )


def _rule_keys(rule: FlowspaceRule, ports: Mapping[str, int]) -> Iterator[Key]:
    if rule.ports is None:
        for match in rule.matches:
            yield rule.priority, match
        return
    for port in rule.ports:
        number = ports.get(port) if isinstance(port, str) else port
        if number is not None:
            for match in rule.matches:
                yield rule.priority, at_port(match, number)


def at_port(match: TernaryMatch, port: int) -> TernaryMatch:
    """The match with an ingress port."""
    return TernaryMatch(match.value | port << _IN_PORT.shift, match.mask | _IN_PORT.ones << _IN_PORT.shift)


@dataclass(frozen=True)
class Classifier:
    """The entries of all switches, by datapath id and slice."""

    entries: Mapping[int, Mapping[str, Entries]]

    def of_switch(self, dpid: int) -> tuple[ClassifierEntry, ...]:
        """Every entry of a switch, highest priority first."""
        mine = self.entries.get(dpid, {})
        every = [ClassifierEntry(*key, block) for entries in mine.values() for key, block in entries.items()]
        return tuple(sorted(every, key=lambda entry: -entry.priority))


NO_CLASSIFIER = Classifier({})


def classifier_of(
    model: SliceModel,
    allocation: Allocation,
    ports: Mapping[int, Mapping[str, int]],
    previous: Classifier = NO_CLASSIFIER,
    names: Iterable[str] | None = None,
) -> Classifier:
    """The classifiers for all switches of the allocation.

    ``ports`` maps the names of each switch's ports to numbers. With ``previous`` only the slices in ``names`` are
    computed, the others are taken over: give every slice whose rules changed, or whose ports came or went.
    """
    fresh = frozenset(model.slices if names is None else names)
    entries: dict[int, Mapping[str, Entries]] = {}
    for dpid, blocks in allocation.blocks.items():
        before = previous.entries.get(dpid, {})
        mine = {name: before[name] for name in blocks if name in before and name not in fresh}
        for name in blocks.keys() - mine.keys():
            mine[name] = entries_of(model.slices[name], dpid, blocks[name], ports.get(dpid, {}))
        entries[dpid] = mine
    return Classifier(entries)


def switch_difference(before: Mapping[str, Entries], after: Mapping[str, Entries]) -> ClassifierChange:
    """The smallest change of one switch, from what it has to what it should have; the same objects cost nothing."""
    adds: dict[Key, Block] = {}
    gone: dict[Key, Block] = {}
    for name in before.keys() | after.keys():
        mine, theirs = before.get(name, {}), after.get(name, {})
        if mine is not theirs:
            adds |= {key: block for key, block in theirs.items() if mine.get(key) != block}
            gone |= {key: block for key, block in mine.items() if key not in theirs}
    # An entry that passes from one slice to another is overwritten by its add.
    deletes = [ClassifierEntry(*key, block) for key, block in gone.items() if key not in adds]
    lost, held = _tables(before) - _tables(after), {table for table, _ in _tables(after)}
    return ClassifierChange(
        tuple(sorted(table for table, _ in lost if table in held)),
        tuple(sorted((ClassifierEntry(*key, block) for key, block in adds.items()), key=lambda e: -e.priority)),
        tuple(sorted(deletes, key=lambda entry: entry.priority)),
        tuple(sorted(table for table, _ in lost if table not in held)),
    )


def _tables(of: Mapping[str, Entries]) -> set[tuple[int, int]]:
    """(table, number of its slice); every slice has entries, those for discovery at least."""
    blocks = [next(iter(entries.values())) for entries in of.values()]
    return {(table, block.number) for block in blocks for table in block.tables}
