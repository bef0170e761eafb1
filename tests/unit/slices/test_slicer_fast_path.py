"""The compiled fast path against the proxy in Python: the same bytes, or it leaves the message alone."""

from __future__ import annotations

import ctypes
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from examples import seeds

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.ofp import wire
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Block, Layout
from hyroads.slices.core.classifier import ClassifierEntry, at_port
from hyroads.slices.core.match import ALL, completed, of_fields
from hyroads.slices.core.model import Permission
from hyroads.slices.native.layout import FIRST_XID, Bucket, Line
from hyroads.slices.native.relay import Relay, load_relay
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.region import Regions
from hyroads.slices.proxy.session import FastGuest, Out, SwitchSession, Tenant
from hyroads.slices.proxy.xids import EntryQuota, bucket_of

LOADED = load_relay()
pytestmark = pytest.mark.skipif(LOADED is None, reason="the compiled fast path isn't built")

BLOCKS = {"production": Block(1, 1, 8), "web": Block(2, 10, 4), "lab": Block(3, 20, 2), "host": Block(4, 30, 1)}
NUMBERS = {1: "production", 2: "web", 3: "lab", 4: "host"}
ENTRIES = [
    ClassifierEntry(50, at_port(ALL, 3), BLOCKS["lab"]),
    ClassifierEntry(50, at_port(ALL, 4), BLOCKS["lab"]),
    *(ClassifierEntry(40, match, BLOCKS["web"]) for match in completed({"tcp_dst": 80})),
    *(ClassifierEntry(30, at_port(match, 2), BLOCKS["host"]) for match in completed({"eth_src": 0x020000000007})),
    ClassifierEntry(0, ALL, BLOCKS["production"]),
]
PORTS = {"production": {1, 2, 5, 0xFFFFFFFE}, "web": {1, 2, 5, 4095, 4096}, "lab": {3, 4}, "host": {2}}
GUESTS = {1: 2, 2: 2, 3: 3, 4: 1, 5: 4}
SWITCH = 0
FEATURES = wire.message(struct.pack("!QIBB2xII", 0x42, 256, 254, 0, 0x4F, 0), 1, 6)


def session(line: Line | None = None, **rates: float) -> tuple[SwitchSession, dict[str, Tenant]]:
    regions, groups, meters = Regions(ENTRIES), NumberPool(1, 1000), NumberPool(1, 1000)
    tenants = {
        name: Tenant(
            name,
            GuestView(block, frozenset(PORTS[name]), regions, IdMap(groups, 5), IdMap(meters, 5), Layout(254, 48)),
            frozenset({Permission.READ, Permission.WRITE}),
            bucket_of(rates.get("packet_ins", 1e9)),
            bucket_of(rates.get("changes", 1e9)),
            EntryQuota(int(rates.get("entries", 1 << 40))),
        )
        for name, block in BLOCKS.items()
    }
    tenants["lab"].view.queue = 7
    return SwitchSession(FEATURES, regions, tenants.values(), b"k" * 32, line), tenants


class Connection:
    """A connection as the relay has it, without a loop: one end of a pair of sockets."""

    def __init__(self) -> None:
        self.socket, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        self.buffer = (ctypes.c_char * (1 << 17))()
        self.line = Line(ctypes.addressof(self.buffer), 1 << 17, fd=self.socket.fileno(), open=1, writable=1)
        self.waiting = b""
        self.paces = 0

    def put(self, data: bytes) -> None:
        ctypes.memmove(ctypes.addressof(self.buffer) + self.line.end, data, len(data))
        self.line.end += len(data)

    def work(self) -> None: ...

    def paced(self) -> None:
        self.paces += 1
        self.line.open = 0

    def send(self, data: bytes) -> None:
        self.waiting += data

    def drained(self) -> bool:
        return not self.waiting

    def got(self) -> bytes:
        try:
            return self.peer.recv(1 << 20)
        except BlockingIOError:
            return b""


class Fast:
    """A session whose messages go through the relay first, beside one that has none."""

    def __init__(self, relay: Relay, **rates: float) -> None:
        self.relay = relay
        self.connections = {number: Connection() for number in (SWITCH, *GUESTS)}
        self.fast, self.tenants = session(self.connections[SWITCH].line, **rates)
        self.plain, self.plain_tenants = session(**rates)
        for number, each in self.connections.items():
            relay.add(each)
            each.line.writable = 1
            if number != SWITCH:
                self.fast.join(number, GUESTS[number], FastGuest(each.line, self._asked(each)))
                self.plain.join(number, GUESTS[number])

    def _asked(self, each: Connection) -> Callable[[int], object]:
        return lambda xid: self.relay.asked(each, xid)

    def forwarded(self, number: int, message: bytes) -> Out | None:
        """What the relay made of a message; None if it left it alone."""
        each = self.connections[number]
        each.line.start = each.line.end = 0
        each.put(message)
        self.relay.step(each)
        out = Out()
        out.switch = split(self.connections[SWITCH].got())
        for guest in GUESTS:
            out.guests += [(guest, one) for one in split(self.connections[guest].got())]
        if each.line.end:
            assert (each.line.start, each.line.end) == (0, len(message)) and out == Out()
            return None
        return out

    def both(self, number: int, message: bytes) -> bool:
        """Whether the relay forwarded a message; the outcome is the reference's in any case."""
        now_s = time.monotonic()
        wanted = handled(self.plain, number, message, now_s)
        found = self.forwarded(number, message)
        came = found if found is not None else handled(self.fast, number, message, now_s)
        assert without_xids(came) == without_xids(wanted), message.hex()
        return found is not None


@contextmanager
def fast(**rates: float) -> Iterator[Fast]:
    relay = load_relay()
    assert relay is not None
    made = Fast(relay, **rates)
    yield made
    relay.close()
    for each in made.connections.values():
        each.socket.close()
        each.peer.close()


def handled(one: SwitchSession, number: int, message: bytes, now_s: float) -> Out | None:
    try:
        return one.from_switch(message, now_s) if number == SWITCH else one.from_guest(number, message, now_s)
    except HyroadsError:
        return None


def without_xids(out: Out | None) -> tuple[list[bytes], list[tuple[int, bytes]]] | None:
    if out is None:
        return None
    return [each[:4] + each[8:] for each in out.switch], sorted(out.guests)


def split(data: bytes) -> list[bytes]:
    found = []
    while data:
        length = int.from_bytes(data[2:4], "big")
        found.append(data[:length])
        data = data[length:]
    return found


# -- messages ---------------------------------------------------------------------------------------------------------

_OXM = {0: 4, 2: 8, 3: 6, 4: 6, 5: 2, 6: 2, 7: 1, 8: 1, 9: 1, 10: 1, 11: 4, 12: 4, 13: 2, 14: 2, 16: 2, 21: 2, 22: 4}
_VALUES = {
    0: (1, 2, 3, 5, 9, 4095, 4096),
    5: (0x0800, 0x0806, 0x86DD, 0x88CC, 0x8942),
    6: (0, 5, 0x1005, 0x1FFF, 0x3001),
    7: (3, 9),
    8: (9, 70),
    9: (2, 5),
    10: (6, 17, 1),
}


def oxm(rng: random.Random, number: int) -> bytes:
    size = _OXM[number]
    value = rng.choice(_VALUES.get(number, (rng.getrandbits(8 * size), 80, 0)))
    value &= (1 << 8 * size) - 1
    if rng.random() < 0.15:
        mask = rng.choice(((1 << 8 * size) - 1, rng.getrandbits(8 * size), 0))
        value &= mask if rng.random() < 0.9 else -1
        return bytes((0x80, 0, number << 1 | 1, 2 * size)) + value.to_bytes(size, "big") + mask.to_bytes(size, "big")
    return bytes((0x80, 0, number << 1, size)) + value.to_bytes(size, "big")


def oxms(rng: random.Random) -> bytes:
    plausible = (
        (0, 3, 4),
        (0, 4),
        (3,),
        (),
        (0, 5, 3),
        (0, 5, 10, 11, 14),
        (5, 10, 13),
        (5, 21, 22),
        (0, 6, 7),
        (0, 2),
    )
    numbers = rng.choice(plausible) if rng.random() < 0.7 else rng.choices(list(_OXM), k=rng.randrange(5))
    return b"".join(oxm(rng, number) for number in numbers)


def instructions(rng: random.Random) -> bytes:
    parts = []
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        kind = rng.choice((1, 2, 3, 4, 4, 4, 4, 4, 4, 5, 6, 7))
        if kind == 1:
            parts.append(struct.pack("!HHB3x", 1, 8, rng.randrange(6)))
        elif kind == 2:
            parts.append(struct.pack("!HH4xQQ", 2, 24, rng.getrandbits(40), rng.getrandbits(rng.choice((20, 64)))))
        elif kind in {3, 4}:
            ports = (1, 2, 3, 4, 5, 9, 4095, 4096, 0xFFFFFFFD, 0xFFFFFFFB, 0xFFFFFFF8)
            outputs = [struct.pack("!HHIH6x", 0, 16, rng.choice(ports), 128) for _ in range(rng.randrange(4))]
            if rng.random() < 0.1:
                outputs.append(struct.pack("!HHI", rng.choice((21, 22, 18)), 8, 1))
            actions = b"".join(outputs)
            parts.append(struct.pack("!HH4x", kind, 8 + len(actions)) + actions)
        else:
            parts.append(struct.pack("!HHI", kind, 8, rng.randrange(2)))
    return b"".join(parts)


def flow_mod(rng: random.Random) -> bytes:
    head = struct.pack(
        "!QQBBHHHIIIH2x",
        rng.getrandbits(64),
        rng.getrandbits(64),
        rng.choice((0, 0, 0, 1, 3, 5, 255)),
        rng.choice((0, 0, 0, 1, 2, 3, 4, 5)),
        rng.randrange(100),
        0,
        rng.getrandbits(16),
        0xFFFFFFFF if rng.random() < 0.9 else 5,
        rng.choice((0xFFFFFFFF, 0xFFFFFFFF, 1, 0xFFFFFFFB, 0xFFFFFFFC)),
        rng.choice((0xFFFFFFFF, 0xFFFFFFFF, 1)),
        rng.getrandbits(3) if rng.random() < 0.95 else 0x20,
    )
    return wire.message(head + wire.match_struct(oxms(rng)) + instructions(rng), rng.getrandbits(32))


def packet_in(rng: random.Random) -> bytes:
    table = rng.choice((0, 1, 5, 10, 10, 12, 12, 20, 21, 30, 40, 255))
    port = rng.choice((1, 2, 3, 4, 5, 9, 4095, 4096))
    fields = bytes.fromhex("80000004") + port.to_bytes(4, "big") if rng.random() < 0.97 else b""
    if rng.random() < 0.5:
        fields += bytes.fromhex("80000408") + rng.choice((2 << 32, rng.getrandbits(64), 0)).to_bytes(8, "big")
    fields += oxms(rng) if rng.random() < 0.2 else b""
    source = rng.choice((rng.randbytes(6), rng.randbytes(6), bytes.fromhex("0a534c430002")))
    frame = rng.randbytes(6) + source + b"\x08\x00" + rng.randbytes(rng.choice((46, 84, 0)))
    frame = frame[: rng.choice((len(frame), len(frame), 8))]
    buffer = 0xFFFFFFFF if rng.random() < 0.9 else 9
    body = struct.pack("!IHBBQ", buffer, len(frame), rng.randrange(3), table, rng.getrandbits(64))
    return wire.message(body + wire.match_struct(fields) + b"\0\0" + frame, 0, 10)


def broken(rng: random.Random, message: bytes) -> bytes:
    """With some bytes others, or cut; the length in the header is right, or the message would never be one."""
    data = bytearray(message)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.choice((rng.randrange(len(data)), rng.randrange(min(len(data), 72))))
        if at not in {2, 3}:
            data[at] = rng.choice((0, 1, 4, 8, 0x80, 0xFF, rng.getrandbits(8)))
    if rng.random() < 0.3:
        del data[rng.randrange(8, len(data)) :]
    data[2:4] = len(data).to_bytes(2, "big")
    return bytes(data)


def other(rng: random.Random) -> bytes:
    """Messages that change what a guest may and wants."""
    role = struct.pack("!I4xQ", rng.randrange(4), 1)
    masks = struct.pack("!6I", *(rng.choice((7, 7, 3, 0)) for _ in range(6)))
    kind, body = rng.choice(((24, role), (28, masks), (20, b""), (14, b"")))
    return wire.message(body, 3, kind)


@pytest.mark.parametrize("seed", seeds(40))
def test_the_same_bytes_or_none(seed: int) -> None:
    rng = random.Random(seed)
    with fast() as made:
        forwarded = {10: 0, 14: 0}
        for _ in range(500):
            number = rng.choice((SWITCH, SWITCH, SWITCH, *GUESTS))
            message = packet_in(rng) if number == SWITCH else flow_mod(rng)
            if rng.random() < 0.3:
                message = broken(rng, message)
            elif number != SWITCH and rng.random() < 0.08:
                message = other(rng)
            if made.both(number, message):
                forwarded[message[1]] += 1
        assert forwarded[10] and forwarded[14]
        for name, tenant in made.tenants.items():
            plain = made.plain_tenants[name]
            assert tenant.messages == plain.messages and tenant.entries.used == plain.entries.used
            assert tenant.dropped_packet_ins == plain.dropped_packet_ins == 0


def learned(port: int, out: int, xid: int = 77, source: int = 0x020000000001) -> bytes:
    """The flow-mod of a learning switch."""
    fields = classifier.encode(of_fields({"in_port": port, "eth_src": source, "eth_dst": 0x020000000002}))
    output = struct.pack("!HH4xHHIH6x", 4, 24, 0, 16, out, 128)
    return wire.message(wire.flow_mod_body(wire.ADD, 0, 5, fields, output), xid)


def arrival(table: int, port: int) -> bytes:
    body = struct.pack("!IHBBQ", 0xFFFFFFFF, 60, 1, table, 5) + wire.match_struct(
        classifier.encode(of_fields({"in_port": port, "metadata": 2 << 32}))
    )
    return wire.message(body + bytes(62), 0, 10)


def test_plain_messages_need_nobody_from_the_second_on() -> None:
    with fast() as made:
        for number, port, out in ((1, 1, 5), (3, 3, 4), (5, 2, 2)):
            assert not made.both(number, learned(port, out)), "nobody has looked at the ports yet"
            assert made.both(number, learned(port, out))
        assert made.both(SWITCH, arrival(10, 1)) and made.both(SWITCH, arrival(20, 3))
        assert not made.both(1, learned(1, 2)), "the kinds of flowspace at these ports differ"
        assert not made.both(1, learned(1, 3)), "not a port of the slice"
        before = made.fast._regions
        for each in (made.fast, made.plain):
            each.serve(Regions(ENTRIES[2:]), (made.tenants if each is made.fast else made.plain_tenants).values())
        assert made.fast._regions is not before
        assert not made.both(1, learned(1, 5)), "other slices: everything is learned again"


def test_who_may_not_write_is_refused_by_the_proxy() -> None:
    with fast() as made:
        made.both(1, learned(1, 5))
        assert made.both(1, learned(1, 5))
        assert not made.both(1, wire.message(struct.pack("!I4xQ", 3, 1), 3, 24)), "a slave from now on"
        assert not made.both(1, learned(1, 5)) and made.both(2, learned(1, 5))
        assert made.tenants["web"].refusals == made.plain_tenants["web"].refusals == 1
        for one, tenants in ((made.fast, made.tenants), (made.plain, made.plain_tenants)):
            tenants["web"].permissions = frozenset({Permission.READ})
            one.serve(one._regions, tenants.values())
        assert not made.both(2, learned(1, 5))
        made.fast.leave(2)
        assert made.forwarded(2, learned(1, 5)) is None, "gone"


def test_limits_are_those_of_the_proxy() -> None:
    with fast(packet_ins=50.0, changes=40.0, entries=6) as made:
        for _ in range(12):
            made.both(SWITCH, arrival(10, 1))
        web, plain = made.tenants["web"], made.plain_tenants["web"]
        assert web.dropped_packet_ins == plain.dropped_packet_ins == 7
        made.both(1, learned(1, 5))
        assert made.both(1, learned(1, 5)) and not made.connections[1].paces
        assert made.both(1, learned(1, 5)) and made.both(1, learned(1, 5))
        assert made.connections[1].paces == 1 and made.fast.pause_s(1, time.monotonic()) > 0
        assert made.forwarded(1, learned(1, 5)) is None, "it is held"
        made.connections[1].line.open = 1
        made.both(1, learned(1, 5)), made.both(1, learned(1, 5))
        assert web.entries.used == 6
        assert not made.both(1, learned(1, 5)), "the seventh entry is refused"
        assert web.entries.due and plain.entries.due


def test_an_error_quotes_what_the_guest_sent() -> None:
    with fast() as made:
        made.both(1, learned(1, 5))
        sent = [made.forwarded(1, learned(1, 5, xid)) for xid in (5, 6)]
        xids = [int.from_bytes(out.switch[0][4:8], "big") for out in sent if out is not None]
        assert xids == [FIRST_XID, FIRST_XID + 1]
        error = wire.message(struct.pack("!HH", 5, 1) + bytes(12), xids[1], 1)
        [(guest, told)] = made.fast.from_switch(error, 0.0).guests
        assert guest == 1 and told[4:8] == (6).to_bytes(4, "big") and told[12:] == learned(1, 5, 6)[:64]
        assert not made.fast.from_switch(error, 0.0).guests, "once"
        assert not made.fast.from_switch(wire.message(error[8:], FIRST_XID + 9, 1), 0.0).guests, "nobody's"


def test_nothing_is_lost_when_a_guest_reads_slowly() -> None:
    with fast() as made:
        made.connections[3].socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        slow, switch = made.connections[3], made.connections[SWITCH]
        sent = 0
        while not slow.waiting and sent < 10_000:
            switch.line.start = switch.line.end = 0
            switch.put(arrival(20, 3) * 10)
            made.relay.step(switch)
            sent += 10
        assert slow.line.writable == 0 and switch.line.end == 0
        data = b""
        while more := slow.got():
            data += more
        assert len(split(data + slow.waiting)) == sent
        switch.put(arrival(20, 3))
        made.relay.step(switch)
        assert switch.line.end, "what comes behind waits for Python"
        slow.waiting = b""
        made.relay._look_at_full()
        assert slow.line.writable == 1


@pytest.mark.parametrize("seed", seeds(10))
def test_any_bytes_are_left_alone_or_forwarded(seed: int) -> None:
    rng = random.Random(seed)
    with fast() as made:
        for _ in range(100):
            number = rng.choice(list(made.connections))
            each = made.connections[number]
            each.line.start = each.line.end = 0
            data = rng.randbytes(rng.choice((3, 8, 40, 300)))
            if len(data) >= 8 and rng.random() < 0.8:
                data = bytes((4, rng.choice((10, 14)))) + rng.randrange(400).to_bytes(2, "big") + data[4:]
            each.put(data)
            made.relay.step(each)
            assert 0 <= each.line.start <= each.line.end <= len(data)
            for one in made.connections.values():
                one.got()


@pytest.mark.parametrize("seed", seeds(20))
def test_buckets_in_shared_memory_count_as_those_of_the_core(seed: int) -> None:
    rng = random.Random(seed)
    rate = rng.choice((0.0, 3.0, 1000.0))
    shared, core = Bucket(rate, 2 * rate), TokenBucket(rate, 2 * rate)
    now_s = rng.uniform(0, 1e6)
    for _ in range(200):
        now_s += rng.choice((0.0, 1e-4, 0.5))
        call = rng.choice(("take", "wait_s", "spend"))
        arguments = (rng.randrange(3),) if call == "spend" else (now_s,)
        assert getattr(shared, call)(*arguments) == getattr(core, call)(*arguments)
