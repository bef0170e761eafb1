"""A switch with two slices and production: every message goes to whom it belongs, and to nobody else."""

from __future__ import annotations

import random
import struct

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.ofp import guard, wire
from hyroads.controller.ofp import match as act
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry
from hyroads.slices.core.errors import Refused
from hyroads.slices.core.match import ALL, completed, of_fields
from hyroads.slices.core.model import Permission
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.region import Regions
from hyroads.slices.proxy.session import Out, SwitchSession, Tenant
from hyroads.slices.proxy.xids import EntryQuota, bucket_of

BLOCKS = {"production": Block(1, 1, 8), "web": Block(2, 10, 4), "other": Block(3, 20, 4)}
ENTRIES = [
    *(ClassifierEntry(40, match, BLOCKS["web"]) for match in completed({"tcp_dst": 80})),
    *(ClassifierEntry(40, match, BLOCKS["other"]) for match in completed({"tcp_dst": 81})),
    ClassifierEntry(0, ALL, BLOCKS["production"]),
]
PORTS = {"production": {1, 2, 3, 4}, "web": {1, 2}, "other": {2, 3}}
FEATURES = wire.message(struct.pack("!QIBB2xII", 0x42, 256, 254, 0, 0x4F, 0), 1, 6)
WEB, WEB_TOO, OTHER = 1, 2, 3
ANY = 0xFFFFFFFF


def session(write: bool = True, **rates: float) -> tuple[SwitchSession, dict[str, Tenant]]:
    regions, groups, meters = Regions(ENTRIES), NumberPool(1, 1000), NumberPool(1, 1000)
    permissions = frozenset({Permission.READ, Permission.WRITE} if write else {Permission.READ})
    tenants = {
        name: Tenant(
            name,
            GuestView(block, frozenset(PORTS[name]), regions, IdMap(groups, 5), IdMap(meters, 5)),
            permissions,
            bucket_of(rates.get("packet_ins", 1000.0)),
            bucket_of(rates.get("changes", 1000.0)),
            EntryQuota(int(rates.get("entries", 100))),
        )
        for name, block in BLOCKS.items()
    }
    found = SwitchSession(FEATURES, regions, tenants.values(), b"k" * 32)
    for guest, number in ((WEB, 2), (WEB_TOO, 2), (OTHER, 3)):
        found.join(guest, number)
    return found, tenants


def request(kind: int, body: bytes = b"", xid: int = 7) -> bytes:
    return wire.message(body, xid, kind)


def flow_mod(table: int = 0, port: int = 2, command: int = 0, buffer: int = 0xFFFFFFFF, xid: int = 7) -> bytes:
    body = struct.pack("!QQBBHHHIIIH2x", 5, 0, table, command, 0, 0, 9, buffer, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return wire.message(body + wire.match_struct(b"") + wire.instructions((act.Output(port),), None), xid)


def frame(port: int) -> bytes:
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 1, 0, 64, 6, 0, bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
    return bytes.fromhex("0200000000020200000000010800") + ip + struct.pack("!HH8xB7x", 1000, port, 0x50)


def packet_in(table: int, in_port: int = 2, port: int = 80, buffer: int = 0xFFFFFFFF) -> bytes:
    match = wire.match_struct(classifier.encode(of_fields({"in_port": in_port})))
    data = frame(port)
    return request(10, struct.pack("!IHBBQ", buffer, len(data), 1, table, 5) + match + b"\0\0" + data, 0)


def error_of(out: Out) -> tuple[int, int]:
    assert not out.switch
    [(_, message)] = out.guests
    assert message[1] == 1
    return struct.unpack_from("!HH", message, 8)


def test_features_and_configuration_are_the_slices_own() -> None:
    mine, _ = session()
    [(guest, features)] = mine.from_guest(WEB, request(5), 0).guests
    assert guest == WEB and features[4:8] == b"\0\0\0\7"
    assert features[8:16] == FEATURES[8:16] and features[20] == 4 and len(features) == len(FEATURES)
    mine.from_guest(WEB, request(9, struct.pack("!HH", 0, 500)), 0)
    [(_, config)] = mine.from_guest(WEB, request(7), 0).guests
    assert config == request(8, struct.pack("!HH", 0, 500))
    [(_, config)] = mine.from_guest(OTHER, request(7), 0).guests
    assert config == request(8, struct.pack("!HH", 0, 128))
    assert mine.from_guest(WEB, request(2, b"ping"), 0).guests == [(WEB, request(3, b"ping"))]
    assert mine.from_switch(request(2, b"ping"), 0).switch == [request(3, b"ping")]


def test_two_guests_with_the_same_ids_get_their_own_answers() -> None:
    mine, _ = session()
    sent = {}
    for guest in (WEB, OTHER):
        [message] = mine.from_guest(guest, request(20), 0).switch
        sent[guest] = message[4:8]
    for guest in (OTHER, WEB):
        reply = wire.message(b"", int.from_bytes(sent[guest], "big"), 21)
        assert mine.from_switch(reply, 0).guests == [(guest, request(21))]
        assert mine.from_switch(reply, 0) == Out(), "an answer twice is nobody's"


def test_an_error_of_the_switch_quotes_what_the_guest_sent() -> None:
    mine, _ = session()
    message = flow_mod(1)
    [sent] = mine.from_guest(WEB, message, 0).switch
    assert sent[24] == 11 and sent[4:8] != message[4:8]
    [(guest, error)] = mine.from_switch(Refused(5, 1, "").message(sent), 0).guests
    assert guest == WEB and error == Refused(5, 1, "").message(message)


def test_packet_ins_go_to_their_slice_only() -> None:
    mine, tenants = session()
    assert sorted(g for g, _ in mine.from_switch(packet_in(11), 0).guests) == [WEB, WEB_TOO]
    assert [g for g, _ in mine.from_switch(packet_in(20), 0).guests] == [OTHER]
    assert not mine.from_switch(packet_in(1), 0).guests, "production has no controller here"
    assert [g for g, _ in mine.from_switch(packet_in(0, port=81), 0).guests] == [OTHER]
    assert sorted(g for g, _ in mine.from_switch(packet_in(0xFF, port=80), 0).guests) == [WEB, WEB_TOO]
    assert not mine.from_switch(packet_in(200), 0).guests and not mine.from_switch(packet_in(11, in_port=3), 0).guests
    for _, message in mine.from_switch(packet_in(12), 0).guests:
        assert message == packet_in(2)
    assert tenants["web"].dropped_packet_ins == 0


def discovery_in(frame: bytes, in_port: int, table: int = 0) -> bytes:
    match = wire.match_struct(classifier.encode(of_fields({"in_port": in_port})))
    body = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, table, 5) + match + b"\0\0" + frame
    return request(10, body, 0)


LLDP = bytes.fromhex("0180c200000e02000000000188cc" + "0207040200000000010403020001060200780000")


def test_discovery_frames_go_to_the_slice_that_sent_them_and_to_nobody_else() -> None:
    mine, tenants = session(packet_ins=5)
    [sent] = mine.from_guest(WEB, request(13, struct.pack("!IIH6x", ANY, 0xFFFFFFFD, 16) + OUT_1 + LLDP), 1.0).switch
    frame = sent[40:]
    other, _ = session(packet_ins=30)
    assert sorted(g for g, _ in other.from_switch(discovery_in(frame, 2), 1.001).guests) == [WEB, WEB_TOO]
    assert [m[42:] for _, m in other.from_switch(discovery_in(frame, 1), 1.001).guests] == [LLDP] * 2
    for forged in (
        LLDP[:6] + frame[6:12] + LLDP[12:],
        frame[:11] + b"\3" + frame[12:],
        frame[:12] + b"\x81\0\0\5" + frame[12:],
    ):
        for table, port in ((0, 2), (11, 2), (20, 2), (0xFF, 3)):
            assert not mine.from_switch(discovery_in(forged, port, table), 1.001).guests
    for number in (0, 9, 0xFFFF):
        nobodys = frame[:10] + number.to_bytes(2, "big") + frame[12:]
        assert not mine.from_switch(discovery_in(nobodys, 2), 1.001).guests
    for _ in range(20):
        other.from_switch(discovery_in(frame, 2), 1.002)
        mine.from_switch(discovery_in(forged, 2), 1.002)
    assert other.from_switch(packet_in(11), 1.003).guests
    assert mine.from_switch(packet_in(11), 1.003).guests, "what is forged or sent again costs the slice nothing"
    assert not tenants["web"].dropped_packet_ins


OUT_1 = struct.pack("!HHIH6x", 0, 16, 1, 0)


def test_one_slices_packet_ins_are_limited_and_the_others_are_not() -> None:
    mine, tenants = session(packet_ins=10)
    passed = sum(bool(mine.from_switch(packet_in(11), now / 1000).guests) for now in range(1000))
    assert 10 <= passed <= 12 and tenants["web"].dropped_packet_ins == 1000 - passed
    assert mine.from_switch(packet_in(20), 1.0).guests


def test_buffers_are_of_the_slice_that_was_told() -> None:
    mine, _ = session()
    mine.from_switch(packet_in(11, buffer=77), 0)
    assert error_of(mine.from_guest(OTHER, flow_mod(buffer=77), 0)) == (1, 8)
    assert len(mine.from_guest(WEB, flow_mod(buffer=77), 0).switch) == 1
    assert error_of(mine.from_guest(WEB, flow_mod(buffer=77), 0)) == (1, 8)


def test_slaves_change_nothing_and_hear_of_ports_only() -> None:
    mine, _ = session()
    [(_, reply)] = mine.from_guest(WEB, request(24, struct.pack("!I4xQ", 2, 1)), 0).guests
    assert reply[1] == 25
    mine.from_guest(WEB_TOO, request(24, struct.pack("!I4xQ", 3, 1)), 0)
    assert error_of(mine.from_guest(WEB_TOO, flow_mod(), 0)) == (1, 10)
    assert [g for g, _ in mine.from_switch(packet_in(11), 0).guests] == [WEB]
    status = request(12, struct.pack("!B7xI", 2, 1) + bytes(60), 0)
    assert sorted(mine.from_switch(status, 0).guests) == [(WEB, status), (WEB_TOO, status)]
    mine.from_guest(WEB, request(28, struct.pack("!6I", 0, 0, 7, 7, 0, 0)), 0)
    assert not mine.from_switch(packet_in(11), 0).guests
    [(_, masks)] = mine.from_guest(WEB, request(26), 0).guests
    assert masks == request(27, struct.pack("!6I", 0, 0, 7, 7, 0, 0))


def test_port_events_are_for_those_who_have_the_port() -> None:
    mine, _ = session()
    for port, guests in ((1, [WEB, WEB_TOO]), (3, [OTHER]), (4, [])):
        status = request(12, struct.pack("!B7xI", 2, port) + bytes(60), 0)
        assert sorted(g for g, _ in mine.from_switch(status, 0).guests) == guests


def test_a_removed_rule_is_told_to_its_slice() -> None:
    mine, _ = session()
    message = request(11, struct.pack("!QHBBIIHHQQ", 7, 9, 0, 21, 1, 2, 3, 4, 5, 6) + wire.match_struct(b""), 0)
    [(guest, found)] = mine.from_switch(message, 0).guests
    assert guest == OTHER and found[19] == 1


def test_statistics_of_all_tables_are_one_answer() -> None:
    mine, _ = session()
    body = struct.pack("!HH4xB3xII4xQQ", 2, 0, 0xFF, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0) + wire.match_struct(b"")
    sent = mine.from_guest(WEB, request(18, body), 0).switch
    assert len(sent) == 4
    answers = []
    for message in sent:
        aggregate = struct.pack("!HH4xQQI4x", 2, 0, 1, 10, 100)
        answers += mine.from_switch(wire.message(aggregate, int.from_bytes(message[4:8], "big"), 19), 0).guests
    [(guest, found)] = answers
    assert guest == WEB and struct.unpack_from("!QQI", found, 16) == (4, 40, 400) and found[4:8] == b"\0\0\0\7"
    sent = mine.from_guest(WEB, request(18, body), 0).switch
    errors = [answer for message in sent for answer in mine.from_switch(Refused(1, 9, "").message(message), 0).guests]
    assert len(errors) == 1, "one question, one error"


def test_of_a_ports_queues_a_guest_sees_its_slices_own() -> None:
    switch, tenants = session()
    tenants["web"].view.queue = 7
    records = b"".join(struct.pack("!IIH6x", queue, 2, 16) for queue in (0, 7, 8))
    for guest, expected in ((WEB, records[16:32]), (OTHER, b"")):
        [asked] = switch.from_guest(guest, request(22, struct.pack("!I4x", 2)), 0.0).switch
        reply = wire.message(struct.pack("!I4x", 2) + records, int.from_bytes(asked[4:8], "big"), 23)
        [(who, told)] = switch.from_switch(reply, 0.0).guests
        assert who == guest and told[8:] == struct.pack("!I4x", 2) + expected
        guard.check(told)
    counters = b"".join(struct.pack("!II", port, queue) + bytes(32) for port in (1, 3) for queue in (7, 8))
    [asked] = switch.from_guest(WEB, request(18, struct.pack("!HH4xII", 5, 0, ANY, ANY)), 0.0).switch
    reply = wire.message(struct.pack("!HH4x", 5, 0) + counters, int.from_bytes(asked[4:8], "big"), 19)
    [(_, told)] = switch.from_switch(reply, 0.0).guests
    assert told[16:] == counters[:40], "port 3 is another's, queue 8 too"


def test_a_group_that_the_switch_refuses_does_not_exist() -> None:
    mine, tenants = session()
    groups = tenants["web"].view.groups
    message = request(15, struct.pack("!HBxI", 0, 1, 9))
    [sent] = mine.from_guest(WEB, message, 0).switch
    assert groups.real(9) is not None
    mine.from_switch(Refused(6, 5, "").message(sent), 0)
    assert groups.real(9) is None
    meter = request(29, struct.pack("!HHI", 0, 1, 9))
    [sent] = mine.from_guest(WEB, meter, 0).switch
    mine.from_switch(Refused(12, 5, "").message(sent), 0)
    assert tenants["web"].view.meters.real(9) is None


def test_quota_rate_and_permission() -> None:
    mine, _ = session(entries=2)
    assert [len(mine.from_guest(WEB, flow_mod(), 0).switch) for _ in range(2)] == [1, 1]
    assert error_of(mine.from_guest(WEB, flow_mod(), 0)) == (5, 1)
    mine, _ = session(changes=10)
    assert mine.pause_s(WEB, 0) == 0
    mine.from_guest(WEB, flow_mod(), 0)
    assert mine.pause_s(WEB, 0) == mine.pause_s(WEB_TOO, 0) == pytest.approx(0.1) and mine.pause_s(OTHER, 0) == 0
    mine, _ = session(write=False)
    for message in (flow_mod(), request(13, bytes(16)), request(15, bytes(8)), request(29, bytes(8))):
        assert error_of(mine.from_guest(WEB, message, 0)) == (1, 5)
    assert mine.from_guest(WEB, request(20), 0).switch


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (request(16, bytes(32)), (7, 4)),
        (request(17, bytes(8)), (8, 2)),
        (request(4, bytes(8)), (1, 3)),
        (request(99), (1, 1)),
        (request(10, bytes(40)), (1, 1)),
        (b"\1" + request(5)[1:], (1, 0)),
        (request(22, struct.pack("!I4x", 3)), (9, 0)),
        (request(9, b""), (1, 6)),
        (request(28, b""), (1, 6)),
        (request(24, b""), (1, 6)),
    ],
)
def test_what_is_not_possible_is_an_error_and_reaches_no_switch(message: bytes, error: tuple[int, int]) -> None:
    mine, _ = session()
    assert error_of(mine.from_guest(WEB, message, 0)) == error


def test_a_guest_that_left_gets_nothing_and_its_slice_goes_on() -> None:
    mine, _ = session()
    [sent] = mine.from_guest(WEB, request(20), 0).switch
    mine.leave(WEB)
    assert not mine.from_switch(wire.message(b"", int.from_bytes(sent[4:8], "big"), 21), 0).guests
    assert [g for g, _ in mine.from_switch(packet_in(11), 0).guests] == [WEB_TOO]


GOOD = [
    flow_mod(),
    request(13, bytes(16)),
    request(15, struct.pack("!HBxI", 0, 1, 9)),
    request(18, bytes(48)),
    request(24, bytes(16)),
]


@examples(400)
@given(st.integers(0, 35), st.sampled_from(GOOD), st.binary(max_size=80), st.integers(8, 90))
def test_hostile_messages_of_guests_harm_nobody(kind: int, base: bytes, noise: bytes, at: int) -> None:
    mine, _ = session()
    body = (base[:at] + noise + base[at + len(noise) :])[8:]
    for message in (request(kind, body), request(base[1], body), request(kind, noise)):
        out = mine.from_guest(WEB, message, 0)
        for sent in out.switch:
            assert int.from_bytes(sent[2:4], "big") == len(sent)
            assert sent[1] != 14 or 10 <= sent[24] < 14, "no table of others"
        for guest, answer in out.guests:
            assert guest == WEB and int.from_bytes(answer[2:4], "big") == len(answer)
    assert [g for g, _ in mine.from_switch(packet_in(20), 0).guests] == [OTHER], "the others go on"


@examples(300)
@given(st.integers(0, 30), st.binary(max_size=100), st.integers(0, 10**6))
def test_hostile_messages_of_the_switch_end_in_one_kind_of_error(kind: int, noise: bytes, seed: int) -> None:
    mine, _ = session()
    rng = random.Random(seed)
    base = rng.choice([packet_in(11), packet_in(0), request(12, bytes(72))])
    at = rng.randrange(8, 60)
    for message in (request(kind, noise), request(base[1], (base[:at] + noise + base[at + len(noise) :])[8:])):
        try:
            out = mine.from_switch(message, 0)
        except HyroadsError:
            continue
        for _, answer in out.guests:
            guard.check(answer)


def test_a_barrier_with_something_behind_it_is_refused() -> None:
    found, _ = session()
    assert found.from_guest(WEB, request(20), 0.0).switch
    assert error_of(found.from_guest(WEB, request(20, b"more"), 0.0)) == (1, 6)
