"""Messages of random parts, valid and not, against a reference that puts the other side's message together from them.

All packets at the ports are the slice's, so that nothing is refused because a packet would leave the slice.
"""

from __future__ import annotations

import random
import struct

import pytest
from swarm import swarm

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry
from hyroads.slices.core.errors import Refused, SliceError
from hyroads.slices.core.fields import BY_NAME
from hyroads.slices.core.match import ALL, of_fields
from hyroads.slices.proxy.actions import Origin, Translator
from hyroads.slices.proxy.flow_mod import NO_SUCH_GROUP, translate
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.packets import packet_in, packet_out
from hyroads.slices.proxy.readback import guest_actions
from hyroads.slices.proxy.region import Regions
from hyroads.slices.proxy.xids import Buffers

MINE, COUNT, FIRST = Block(2, 10, 4), 4, 10
ANY, FLOOD, ALL_PORTS, CONTROLLER = 0xFFFF_FFFF, 0xFFFF_FFFB, 0xFFFF_FFFC, 0xFFFF_FFFD
IN_PORT, TABLE = 0xFFFF_FFF8, 0xFFFF_FFF9
FLOOD_GROUP = 0xFF00_0000 - 0x2_0000 + 2 * 2
GROUPS, METERS = {7: 30, 9: 31}, {700: 50}
BELOW_SLICE = (1 << 48) - 1
Error = tuple[int, int]
Part = tuple[bytes, bytes, set[Error]]
"""What the guest sends, what the switch shall get, and with which errors it may be refused."""


def guest() -> GuestView:
    view = GuestView(
        MINE,
        frozenset({1, 2, 3}),
        Regions([ClassifierEntry(9, ALL, MINE)]),
        IdMap(NumberPool(1, 99), 9),
        IdMap(NumberPool(1, 99), 9),
    )
    for numbers, ids in ((GROUPS, view.groups), (METERS, view.meters)):
        for number, real in numbers.items():
            ids.put(number, real)
    return view


def encoded(fields: dict[str, object]) -> bytes:
    return wire.match_struct(classifier.encode(of_fields(fields)))  # type: ignore[arg-type]


def match_part(rng: random.Random) -> Part:
    port, metadata = rng.choice([None, 1, 2, 3, 0, 4]), rng.choice([None, 0, 1, BELOW_SLICE, 1 << 48, 3 << 62])
    mask = rng.choice([(1 << 64) - 1, (1 << 64) - 1, 0xFF, BELOW_SLICE, 0xFF | 1 << 48, 1 << 63 | 1])
    fields: dict[str, object] = {"eth_dst": 5} if rng.random() < 0.5 else {}
    fields |= {} if port is None else {"in_port": port}
    errors: set[Error] = set() if port in (None, 1, 2, 3) else {(4, 7)}
    sent = dict(fields)
    if metadata is not None:
        value = metadata & mask
        fields["metadata"] = value, mask
        is_whole = mask >> 48
        sent["metadata"] = (value | (2 << 48 if is_whole else 0), mask | (0xFFFF << 48 if is_whole else 0))
        errors |= {(4, 7)} if value >> 48 else set()
    theirs, ours = (encoded(fields), b"" if errors else encoded(sent))
    return theirs, ours, errors


def actions_of(rng: random.Random) -> Part:
    theirs, ours, errors = b"", b"", set[Error]()
    for _ in range(rng.randrange(3)):
        kind = rng.choice(["output", "output", "group"])
        if kind == "output":
            port = rng.choice([1, 2, 3, FLOOD, ALL_PORTS, CONTROLLER, 0, 4, 0xFFFF_FFFE])
            plain = wire.actions((act.Output(port),))
            group = FLOOD_GROUP + (port == ALL_PORTS)
            ours += struct.pack("!HHI", 22, 8, group) if port in (FLOOD, ALL_PORTS) else plain
            errors |= set() if port in (1, 2, 3, FLOOD, ALL_PORTS, CONTROLLER) else {(2, 4)}
            theirs += plain
        else:
            group = rng.choice([7, 9, 8, 30])
            theirs += struct.pack("!HHI", 22, 8, group)
            ours += struct.pack("!HHI", 22, 8, GROUPS.get(group, 0))
            errors |= set() if group in GROUPS else {(2, 9)}
    return theirs, ours, errors


def applied(kind: int, actions: bytes) -> bytes:
    return struct.pack("!HH4x", kind, 8 + len(actions)) + actions


def instruction(rng: random.Random, kind: int, table: int) -> Part:
    if kind == 1:
        to = rng.choice([0, 1, 2, 3, 4, 9])
        head = "!HHB3x"
        parts = (struct.pack(head, 1, 8, to), struct.pack(head, 1, 8, FIRST + to))
        return *parts, set() if table < to < COUNT else {(3, 2)}
    if kind == 2:
        value, mask = (rng.choice([0, 5, BELOW_SLICE, 1 << 48, (1 << 64) - 1]) for _ in range(2))
        parts = (
            struct.pack("!HH4xQQ", 2, 24, value, mask),
            struct.pack("!HH4xQQ", 2, 24, value & BELOW_SLICE, mask & BELOW_SLICE),
        )
        return *parts, {(3, 3)} if (value & mask) >> 48 else set()
    if kind in (3, 4):
        theirs, ours, errors = actions_of(rng)
        parts = (applied(kind, theirs), applied(kind, ours))
        return *parts, errors
    if kind == 5:
        return struct.pack("!HH4x", 5, 8), struct.pack("!HH4x", 5, 8), set()
    meter = rng.choice([700, 700, 701, 50])
    parts = (struct.pack("!HHI", 6, 8, meter), struct.pack("!HHI", 6, 8, METERS.get(meter, 0)))
    return *parts, set() if meter in METERS else {(5, 0)}


def instructions_part(rng: random.Random, table: int) -> Part:
    kinds = [rng.randrange(1, 7) for _ in range(rng.randrange(4))]
    found = [instruction(rng, kind, table) for kind in kinds]
    errors: set[Error] = set().union(*(part[2] for part in found)) if found else set()
    errors |= {(3, 1)} if len(set(kinds)) < len(kinds) else set()
    return b"".join(part[0] for part in found), b"".join(part[1] for part in found), errors


def play(seed: int, row: list[int]) -> None:
    for choice in row:
        rng = random.Random(choice)
        command, table = rng.choice([0, 1, 2, 0, 3, 4, 5]), rng.choice([0, 1, 3, 0, 4, 0xFF])
        flags = rng.choice([0, 1, 0x1F, 0, 0x20, 0x8000])
        out_port = rng.choice([ANY, ANY, 2, FLOOD, ALL_PORTS, 0xFF00, 0xFFFF_FEFF, 0xFFFF_FF00, 0xFEFF])
        out_group = rng.choice([ANY, ANY, 7, 8])
        match, real_match, errors = match_part(rng)
        instructions, real_instructions, wrong = instructions_part(rng, table)
        is_delete = command in (3, 4)
        errors |= set() if is_delete else wrong
        errors |= {(5, 2)} if table >= COUNT and not (is_delete and table == 0xFF) else set()
        errors |= {(5, 7)} if flags & ~0x1F else set()
        errors |= {(2, 4)} if is_delete and 0xFF00 <= out_port < 0xFFFF_FF00 else set()
        errors |= {(5, 6)} if command > 4 else set()
        head = [7, rng.getrandbits(64), command, 3, 4, rng.getrandbits(16), rng.getrandbits(32)]
        message = flow_mod(table, head, out_port, out_group, flags, match + instructions)
        if errors:
            with pytest.raises(Refused) as refused:
                translate(message, guest())
            assert (refused.value.kind, refused.value.code) in errors
            continue
        if is_delete:
            real_instructions = b""
            if out_port in (FLOOD, ALL_PORTS):
                out_port, out_group = ANY, FLOOD_GROUP + (out_port == ALL_PORTS)
            elif out_group != ANY:
                out_group = GROUPS.get(out_group, NO_SUCH_GROUP)
        tables = range(FIRST, FIRST + COUNT) if table == 0xFF else [FIRST + table]
        body = real_match + real_instructions
        assert translate(message, guest()) == [
            flow_mod(real, head, out_port, out_group, flags, body) for real in tables
        ]  # fmt: skip


def flow_mod(table: int, head: list[int], out_port: int, out_group: int, flags: int, rest: bytes) -> bytes:
    fixed = struct.pack("!QQBBHHHIIIH2x", *head[:2], table, *head[2:], out_port, out_group, flags)
    return wire.message(fixed + rest, 99)


def test_flow_mod_is_the_switchs_or_refused_by_each_of_its_parts() -> None:
    swarm(100, lambda rng: [rng.randrange(1 << 30) for _ in range(20)], play)


POP_VLAN = struct.pack("!HH4x", 18, 8)
CONTENT = {1: b"\2" + bytes(43), 2: bytes(44), 5: bytes(44), 6: struct.pack("!I", 700) + bytes(40)}
SIZES = {1: 8, 2: 24, 5: 8, 6: 8}


@pytest.mark.parametrize("before", [b"", struct.pack("!HH4x", 5, 8)], ids=["first", "second"])
@pytest.mark.parametrize("missing", [0, 8, 16])
@pytest.mark.parametrize("kind", range(1, 8))
def test_instruction_has_its_length_and_lies_within_the_message(kind: int, missing: int, before: bytes) -> None:
    """Specification 1.3.5, section 7.2.3; lists of actions have any length in steps of 8 bytes."""
    for length in range(0, 49, 4):
        content = CONTENT.get(kind, bytes(4) + POP_VLAN * 5)
        data = struct.pack("!HH", kind, length) + content
        data = data[: max(0, max(8, length) - missing)]
        message = flow_mod(0, [7, 0, 0, 0, 0, 5, wire.NO_BUFFER], ANY, ANY, 0, wire.match_struct(b"") + before + data)
        is_size = length == SIZES[kind] if kind in SIZES else length >= 8 and not length % 8
        is_twice = kind == 5 and before
        if is_size and not missing and kind != 7 and not is_twice:
            [found] = translate(message, guest())
            assert len(found) == len(message)
            continue
        if not data:
            assert translate(message, guest()), "nothing is left of it"
            continue
        with pytest.raises(Refused) as refused:
            translate(message, guest())
        is_whole = length >= 8 and not length % 8 and not missing
        code = 7 if not is_whole or (kind in SIZES and not is_size) else 0 if kind == 7 else 1
        assert (refused.value.kind, refused.value.code) == (3, code), length


KEY = b"k" * 32
FRAME = bytes.fromhex("020000000001 020000000002 0800".replace(" ", "")) + bytes(46)


def packet_in_message(table: int, head: list[int], fields: list[bytes], data: bytes) -> bytes:
    oxm = b"".join(fields)
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm + b"\0" * (-(4 + len(oxm)) % 8)
    body = struct.pack("!IHBBQ", *head[:3], table, head[3]) + match + b"\0\0" + data
    return wire.message(body, 5, wire.PACKET_IN)


def play_packet_in(_: int, row: list[int]) -> None:
    for choice in row:
        rng = random.Random(choice)
        port, table = rng.choice([1, 2, 3, 1, 0, 4, 1 << 24 | 1]), rng.choice([0, 0xFF, 10, 11, 13, 9, 14, 1])
        fields = [[classifier.field_bytes(BY_NAME["in_port"], port, (1 << 32) - 1)] * 2]
        value, mask = rng.choice([0, 5, BELOW_SLICE]) | 2 << 48, rng.choice([None, (1 << 64) - 1, 0xFFFF << 48, 0xFF])
        if mask is not None:
            header = b"\x80\0\5\x10" if rng.random() < 0.5 else b"\x80\0\4\x08"
            theirs = header + value.to_bytes(8, "big") + (mask.to_bytes(8, "big") if header[3] == 16 else b"")
            ours = value & BELOW_SLICE
            fields.append([theirs, b"\x80\0\4\x08" + ours.to_bytes(8, "big") if ours else b""])
        fields += [[classifier.field_bytes(BY_NAME["tunnel_id"], 7, (1 << 64) - 1)] * 2] if rng.random() < 0.5 else []
        rng.shuffle(fields)
        head = [rng.getrandbits(32), rng.randrange(60, 2000), rng.randrange(3), rng.getrandbits(64)]
        data = FRAME[: rng.randrange(10, 61)]
        message = packet_in_message(table, head, [theirs for theirs, _ in fields], data)
        if 0 < table < 0xFF and table not in MINE.tables:
            with pytest.raises(SliceError):
                packet_in(message, guest(), KEY, 0.0)
            continue
        own_table = table - FIRST if table in MINE.tables else 0
        expected = packet_in_message(own_table, head, [ours for _, ours in fields], data)
        assert packet_in(message, guest(), KEY, 0.0) == (expected if port in (1, 2, 3) else None)


def test_packet_in_is_shown_with_the_guests_table_and_metadata() -> None:
    swarm(50, lambda rng: [rng.randrange(1 << 30) for _ in range(20)], play_packet_in)


def packet_out_message(buffer: int, in_port: int, actions: bytes, data: bytes) -> bytes:
    body = struct.pack("!IIH6x", buffer, in_port, len(actions)) + actions + data
    return wire.message(body, 5, wire.PACKET_OUT)


def play_packet_out(_: int, row: list[int]) -> None:
    for choice in row:
        rng = random.Random(choice)
        view, buffers, now_s = guest(), Buffers(), 10.0
        view.queue = rng.choice([None, 4])
        buffers.tell(77, 2, 9.0)
        buffers.tell(78, 3, 9.0)
        buffer = rng.choice([wire.NO_BUFFER, wire.NO_BUFFER, 77, 78, 79])
        in_port = rng.choice([1, 2, 3, CONTROLLER, ANY, 0, 4])
        errors: set[Error] = set() if in_port in (1, 2, 3, CONTROLLER, ANY) else {(1, 11)}
        errors |= {(1, 8)} if buffer in (78, 79) else set()
        is_buffered = buffer != wire.NO_BUFFER
        theirs = ours = b""
        for _ in range(rng.randrange(3)):
            port = rng.choice([1, 2, 3, FLOOD, ALL_PORTS, IN_PORT, CONTROLLER, TABLE, 0, 4])
            theirs += wire.actions((act.Output(port),))
            ports = [port]
            if port in (FLOOD, ALL_PORTS) and not is_buffered:
                ports = [each for each in (1, 2, 3) if each != in_port]
            outputs = [wire.actions((act.Output(each),)) for each in ports]
            before = b"" if view.queue is None else struct.pack("!HHI", 21, 8, view.queue)
            if port in (FLOOD, ALL_PORTS) and is_buffered:
                ours += struct.pack("!HHI", 22, 8, FLOOD_GROUP + (port == ALL_PORTS))
            elif port in (1, 2, 3, FLOOD, ALL_PORTS, IN_PORT):
                ours += before + b"".join(outputs)
            elif port == CONTROLLER or (port == TABLE and not is_buffered):
                ours += outputs[0]
            else:
                errors |= {(2, 4)}
        data = b"" if is_buffered else FRAME
        message = packet_out_message(buffer, in_port, theirs, data)
        if errors:
            with pytest.raises(Refused) as refused:
                packet_out(message, view, buffers, KEY, now_s)
            assert (refused.value.kind, refused.value.code) in errors
        else:
            expected = packet_out_message(buffer, in_port, ours, data)
            assert packet_out(message, view, buffers, KEY, now_s) == expected


def test_packet_out_is_the_switchs_or_refused_by_each_of_its_parts() -> None:
    swarm(50, lambda rng: [rng.randrange(1 << 30) for _ in range(20)], play_packet_out)


def nested(rng: random.Random, depth: int = 0) -> tuple[act.Action, ...]:
    found: list[act.Action] = []
    for _ in range(rng.randrange(4)):
        plain = [act.Output(rng.choice([1, 2, 3, FLOOD, ALL_PORTS, CONTROLLER])), act.Group(rng.choice(list(GROUPS)))]
        plain += [act.SetEthDst("02:00:00:00:00:09"), act.DecMplsTtl(), act.Resubmit(rng.randrange(2, COUNT))]
        inner = act.Clone(nested(rng, depth + 1)) if depth < 3 and rng.random() < 0.4 else None
        found.append(inner or rng.choice(plain))
    return tuple(found)


def lengths(data: bytes) -> list[int]:
    """The lengths of actions in a list, which they fill; of those in clones, too."""
    found, at = list[int](), 0
    while at < len(data):
        kind, length = struct.unpack_from("!HH", data, at)
        assert length >= 8 and not length % 8 and at + length <= len(data)
        is_clone = kind == 0xFFFF and data[at + 8 : at + 10] == b"\0\x2a"
        found += [length, *(lengths(data[at + 16 : at + length]) if is_clone else [])]
        at += length
    return found


def play_actions(_: int, row: list[int]) -> None:
    for choice in row:
        rng, view = random.Random(choice), guest()
        view.queue = rng.choice([None, 4])
        data = wire.actions(nested(rng))
        sent = Translator(view, Origin(ALL, (1, 2, 3)), 1).walk(data, 0, len(data))
        shown = guest_actions(sent, 0, len(sent), view)
        assert lengths(sent) and lengths(shown) == lengths(data) if data else not sent
        assert shown == data


def test_actions_are_shown_as_they_were_sent_also_inside_of_clones() -> None:
    swarm(50, lambda rng: [rng.randrange(1 << 30) for _ in range(20)], play_actions)
