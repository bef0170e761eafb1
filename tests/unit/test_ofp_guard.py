"""The guard in front of Ryu's parser: what would hang it is refused, what is well-formed passes."""

from __future__ import annotations

import gc
import logging
import random
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import ryu.ofproto.ofproto_v1_3_parser  # noqa: F401 - so that Ryu parses version 4
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from ryu.ofproto import ofproto_parser, ofproto_protocol, ofproto_v1_3

from hyroads.controller.core.errors import GuardError
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.guard import _EXPERIMENTERS_SIZES, _FIELD_SIZES, _OLD_ONF_TYPE, check
from hyroads.controller.ofp.match import Match


def msg(kind: int, body: bytes, version: int = 4) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), 7) + body


def multipart(kind: int, body: bytes) -> bytes:
    return msg(19, struct.pack("!HH4x", kind, 0) + body)


MATCH = wire.match_struct(wire.match_fields(Match(in_port=1, eth_type=0x8847, mpls_label=99, mpls_bos=1)))
ACTIONS = wire.actions((act.SetEthDst("02:00:00:00:00:01"), act.Clone((act.Output(3),)), act.Output(2)))
INSTRUCTIONS = wire.instructions((act.PopMpls(0x8847), act.Output(2)), 4)


def flow_stats(match: bytes = MATCH, instructions: bytes = INSTRUCTIONS, length: int | None = None) -> bytes:
    size = 48 + len(match) + len(instructions) if length is None else length
    return struct.pack("!HBxIIHHHH4xQQQ", size, 3, 1, 2, 20, 0, 0, 0, 0x48, 5, 6) + match + instructions


def apply_actions(actions: bytes) -> bytes:
    return struct.pack("!HH4x", 4, 8 + len(actions)) + actions


def bucket(actions: bytes, length: int | None = None) -> bytes:
    return struct.pack("!HHII4x", 16 + len(actions) if length is None else length, 1, 0xFFFFFFFF, 0xFFFFFFFF) + actions


def group_desc(buckets: bytes, length: int | None = None) -> bytes:
    return struct.pack("!HBxI", 8 + len(buckets) if length is None else length, 1, 1) + buckets


def meter_config(bands: bytes) -> bytes:
    return struct.pack("!HHI", 8 + len(bands), 0, 1) + bands


def table_features(properties: bytes) -> bytes:
    return struct.pack("!HB5x32sQQII", 64 + len(properties), 0, b"t", 0, 0, 0, 1) + properties


def queues(properties: bytes) -> bytes:
    return struct.pack("!I4x", 1) + struct.pack("!IIH6x", 1, 1, 16 + len(properties)) + properties


MIN_RATE = struct.pack("!HH4xH6x", 1, 16, 500)
HELLO = struct.pack("!HHI", 1, 8, 0x10)
PACKET_IN = struct.pack("!IHBBQ", 0xFFFFFFFF, 60, 0, 0, 0) + MATCH + b"\0\0" + bytes(60)
FLOW_REMOVED = struct.pack("!QHBBIIHHQQ", 1, 2, 0, 0, 1, 2, 0, 0, 5, 6) + MATCH
SET_FIELD = struct.pack("!HHI", 25, 16, 0x80000606) + bytes(8)

FLOWS = flow_stats() + flow_stats(instructions=b"") + flow_stats(instructions=apply_actions(ACTIONS))
PROPERTIES = struct.pack("!HHHHHH4x", 0, 12, 1, 4, 4, 4) + struct.pack("!HHI", 8, 8, 4)
EMPTY_CLONE = struct.pack("!HHIH6x", 0xFFFF, 24, 0x2320, 42)
NESTED = wire.actions((act.Clone((act.Clone((act.Clone((act.Clone((act.Clone((act.Output(1),)),)),)),)),)),))

GOOD = {
    "hello": msg(0, HELLO),
    "hello of a newer switch": msg(0, HELLO, version=6),
    "empty hello": msg(0, b""),
    "error": msg(1, struct.pack("!HH", 5, 2) + bytes(64)),
    "echo request": msg(2, b"abc"),
    "features": msg(6, struct.pack("!QIBB2xII", 1, 0, 254, 0, 0x4F, 0)),
    "config": msg(8, bytes(4)),
    "packet-in": msg(10, PACKET_IN),
    "flow removed": msg(11, FLOW_REMOVED),
    "port status": msg(12, bytes(72)),
    "description": multipart(0, bytes(1056)),
    "flows": multipart(1, FLOWS),
    "no flows": multipart(1, b""),
    "aggregate": multipart(2, bytes(24)),
    "tables": multipart(3, bytes(48)),
    "ports": multipart(4, bytes(224)),
    "queues": multipart(5, bytes(80)),
    "groups": multipart(6, struct.pack("!H2xII4xQQII", 56, 1, 0, 0, 0, 0, 0) + bytes(16)),
    "group descriptions": multipart(7, group_desc(bucket(ACTIONS) + bucket(b"")) * 2),
    "group features": multipart(8, bytes(40)),
    "meters": multipart(9, struct.pack("!IH6xIQQII", 1, 56, 0, 0, 0, 0, 0) + bytes(16)),
    "meter configurations": multipart(10, meter_config(struct.pack("!HHIIBBH", 1, 16, 1, 2, 0, 0, 0))),
    "meter features": multipart(11, bytes(16)),
    "table features": multipart(12, table_features(PROPERTIES)),
    "port descriptions": multipart(13, bytes(128)),
    "barrier": msg(21, b""),
    "queue configuration": msg(23, queues(MIN_RATE)),
    "role": msg(25, bytes(16)),
    "asynchronous": msg(27, bytes(24)),
}

# Most of these make Ryu 4.34 loop for ever (proved below).
HANGING = {
    "hello element of length 0": msg(0, struct.pack("!HHI", 9, 0, 0)),
    "hello version bitmap of length 0": msg(0, struct.pack("!HHI", 1, 0, 0)),
    "hello element whose padding Ryu does not skip": msg(0, struct.pack("!HHII4x", 1, 12, 0x10, 0)),
    "flow of length 0": multipart(1, flow_stats(length=0)),
    "instruction of length 0": multipart(1, flow_stats(instructions=struct.pack("!HH4x", 4, 0))),
    "action of length 0": multipart(1, flow_stats(instructions=apply_actions(struct.pack("!HHIH6x", 0, 0, 1, 0)))),
    "bucket of length 0": multipart(7, group_desc(bucket(b"", length=0))),
    "action of length 0 in a bucket": multipart(7, group_desc(bucket(struct.pack("!HHI", 21, 0, 1)))),
    "group of length 0": multipart(7, group_desc(b"", length=0)),
    "group statistics of length 0": multipart(6, struct.pack("!H2xII4xQQII", 0, 1, 0, 0, 0, 0, 0)),
    "meter of length 0": multipart(9, struct.pack("!IH6xIQQII", 1, 0, 0, 0, 0, 0, 0)),
    "meter configuration of length 0": multipart(10, struct.pack("!HHI", 0, 0, 1)),
    "band of length 0": multipart(10, meter_config(struct.pack("!HHIIBBH", 1, 0, 1, 2, 0, 0, 0))),
    "table of length 0": multipart(12, struct.pack("!HB5x32sQQII", 0, 0, b"t", 0, 0, 0, 1)),
    "property of length 0": multipart(12, table_features(struct.pack("!HHI", 0, 0, 0))),
    "queue property of length 0": msg(23, queues(struct.pack("!HH4xH6x", 1, 0, 500))),
    "queue of length 0": msg(23, struct.pack("!I4x", 1) + struct.pack("!IIH6x", 1, 1, 0)),
}

BROKEN = {
    **HANGING,
    "shorter than a header": b"\4\0\0",
    "length in the header too small": struct.pack("!BBHI", 4, 2, 4, 0) + b"abcd",
    "length in the header too big": struct.pack("!BBHI", 4, 2, 400, 0),
    "unknown type": msg(99, b""),
    "a flow-mod from a switch": msg(14, bytes(48)),
    "another version": msg(21, b"", version=1),
    "hello element beyond the end": msg(0, struct.pack("!HHI", 1, 64, 0)),
    "features too short": msg(6, bytes(8)),
    "packet-in cut in the match": msg(10, PACKET_IN[:24]),
    "match of length 0": multipart(1, flow_stats(match=struct.pack("!HH4x", 1, 0))),
    "match beyond the entry": multipart(1, flow_stats(match=struct.pack("!HH4x", 1, 400))),
    "match of the old type": multipart(1, flow_stats(match=struct.pack("!HH4x", 0, 4))),
    "field of length 0": multipart(1, flow_stats(match=struct.pack("!HHI", 1, 8, 0x80000000))),
    "field beyond the match": multipart(1, flow_stats(match=struct.pack("!HHI", 1, 8, 0x800000FF))),
    "instruction beyond the flow": multipart(1, flow_stats(instructions=struct.pack("!HHB3x", 1, 80, 4))),
    "action beyond the instruction": multipart(
        1, flow_stats(instructions=apply_actions(struct.pack("!HHIH6x", 0, 64, 1, 0)))
    ),
    "output of the wrong size": multipart(1, flow_stats(instructions=apply_actions(struct.pack("!HHI", 0, 8, 1)))),
    "set-field beyond the action": multipart(
        1, flow_stats(instructions=apply_actions(struct.pack("!HHI8x", 25, 16, 0x800006F0)))
    ),
    "length no multiple of eight": multipart(1, flow_stats(length=57)),
    "bucket too short": multipart(7, group_desc(bucket(b"", length=8))),
    "clone nested five deep": multipart(1, flow_stats(instructions=apply_actions(NESTED))),
    "action of length 0 in a clone": multipart(
        1,
        flow_stats(instructions=apply_actions(EMPTY_CLONE + bytes(4) + b"\0\0\0\1")),
    ),
    "controller property of length 0": multipart(
        1, flow_stats(instructions=apply_actions(struct.pack("!HHIH6x", 0xFFFF, 24, 0x2320, 37) + bytes(8)))
    ),
    "queue property that nobody knows": msg(23, queues(struct.pack("!HH4xH6x", 172, 16, 500))),
    "action that nobody knows": multipart(1, flow_stats(instructions=apply_actions(struct.pack("!HHI", 99, 8, 1)))),
    "instruction that nobody knows": multipart(1, flow_stats(instructions=struct.pack("!HH4x", 9, 8))),
    "band that nobody knows": multipart(10, meter_config(struct.pack("!HHIIBBH", 3, 16, 1, 2, 0, 0, 0))),
    "port number of two bytes": multipart(1, flow_stats(match=struct.pack("!HHIH6x", 1, 10, 0x80000002, 1))),
    "mask in a set-field": multipart(
        1, flow_stats(instructions=apply_actions(struct.pack("!HHI8x", 25, 16, 0x80000B02)))
    ),
    "ports cut": multipart(13, bytes(65)),
    "OXM id cut": multipart(12, table_features(struct.pack("!HHH2x", 8, 6, 4))),
    "experimenter's table property cut": multipart(12, table_features(struct.pack("!HHI", 0xFFFE, 8, 1))),
    "experimenter multipart": multipart(0xFFFF, bytes(8)),
    "barrier with a body": msg(21, b"\0"),
}


@pytest.mark.parametrize("name", GOOD)
def test_well_formed_messages_pass(name: str) -> None:
    check(GOOD[name])


@pytest.mark.parametrize("name", BROKEN)
def test_broken_messages_are_named_and_refused(name: str) -> None:
    with pytest.raises(GuardError, match=r"^[A-Za-z_]+.*: .+"):
        check(BROKEN[name])


@pytest.mark.parametrize("name", GOOD)
def test_every_cut_of_a_message_is_refused(name: str) -> None:
    """With the header's length made to fit, so that only what is inside can tell."""
    data = GOOD[name]
    opaque = {"error": 12, "echo request": 8, "packet-in": 8 + 16 + len(MATCH) + 2}
    for end in range(8, len(data)):
        cut = data[:2] + struct.pack("!H", end) + data[4:end]
        complete = (
            end >= opaque.get(name, len(data))
            or ((end - 16) % 8 == 0 and data[1] == 19)
            or (end == 8 and data[1] == 0)
            or (end == 16 and data[1] == 23)
        )
        try:
            check(cut)
        except GuardError:
            continue
        # A list may end earlier between two elements; anything else is noticed.
        assert complete, end


class TooLongError(RuntimeError):
    """The parser has had the time that it was given. Ryu swallows it, as it does everything else."""


@contextmanager
def within(limit_s: float) -> Iterator[list[int]]:
    """Interrupts what takes more processor time than that, again and again; the list is then no longer empty."""
    fired: list[int] = []

    def ring(number: int, _: object) -> None:
        fired.append(number)
        raise TooLongError

    # What others do after a collection is not to be interrupted.
    gc.disable()
    before = signal.signal(signal.SIGVTALRM, ring)

    def disarm() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        gc.enable()

    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s, limit_s)
            yield fired
        finally:
            disarm()
    except TooLongError:
        pass
    finally:
        # The first time may have been interrupted itself; the next interrupt is a whole limit away.
        disarm()


def ryu_says(messages: list[bytes], limit_s: float) -> list[str]:
    datapath = ofproto_protocol.ProtocolDesc(version=4)
    said = []
    logging.disable(logging.CRITICAL)
    try:
        for data in messages:
            version, kind, length, xid = ofproto_parser.header(data)
            message = None
            with within(limit_s) as fired:
                message = ofproto_parser.msg(datapath, version, kind, length, xid, data)
            said.append("hangs" if fired else "parsed" if message else "fails")
    finally:
        logging.disable(logging.NOTSET)
    return said


def test_ryus_own_parser_hangs_or_fails_on_what_we_refuse() -> None:
    outcomes = dict(zip(HANGING, ryu_says(list(HANGING.values()), 0.01), strict=True))
    # Actions and bands have fixed sizes in Ryu's parser; there a length of 0 only makes nonsense of what follows.
    assert {name for name, outcome in outcomes.items() if outcome != "hangs"} <= {
        "action of length 0",
        "action of length 0 in a bucket",
        "band of length 0",
    }


def test_ryu_parses_what_passes() -> None:
    wanted = [name for name in GOOD if name not in {"hello of a newer switch"}]
    outcomes = dict(zip(wanted, ryu_says([GOOD[name] for name in wanted], 5), strict=True))
    assert {name: outcome for name, outcome in outcomes.items() if outcome == "hangs"} == {}
    assert outcomes["flows"] == outcomes["group descriptions"] == outcomes["hello"] == "parsed"


def test_nothing_that_passes_hangs_ryu() -> None:
    """Mutated messages: whatever the guard lets through, the parser ends with."""
    rng = random.Random(7)
    passed = []
    for data in list(GOOD.values()) * 400:
        mutant = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(4, max(5, min(len(mutant), 160)))
            if at < len(mutant):
                mutant[at] = rng.choice((0, 1, 4, 8, 16, 255, rng.randrange(256)))
        try:
            check(bytes(mutant))
        except GuardError:
            continue
        if mutant[0] == 4:
            passed.append(bytes(mutant))
    assert len(passed) > 1000
    said = ryu_says(passed, 5)
    assert "hangs" not in said
    # What is inside an experimenter's action is not ours to know.
    failed = [message for message, what in zip(passed, said, strict=True) if what == "fails"]
    assert all(b"\xff\xff" in message and message[1] == wire.MULTIPART_REPLY for message in failed)


def test_the_sizes_of_fields_are_those_that_ryu_expects() -> None:
    known: dict[int, dict[int, int]] = {}
    experimenters: dict[tuple[int, int], int] = {}
    for each in ofproto_v1_3.oxm_types:
        if isinstance(each.num, int):
            known.setdefault(each.num >> 7, {})[each.num & 0x7F] = each.type.size
        elif each.exp_type != _OLD_ONF_TYPE:
            experimenters[each.num[0], each.num[1] & 0x7F] = each.type.size
    # Packet registers os-ken alone knows.
    assert {**known, 0x8001: dict.fromkeys(range(8), 8)} == _FIELD_SIZES
    assert experimenters == _EXPERIMENTERS_SIZES


def experimenters_field(experimenter: int, field: int, value: bytes) -> bytes:
    fields = struct.pack("!IIHBBI", 0x80000004, 1, 0xFFFF, field, 4 + len(value), experimenter) + value
    return msg(10, struct.pack("!IHBBQ", 0xFFFFFFFF, 0, 0, 3, 1) + wire.match_struct(fields) + b"\0\0")


def test_fields_of_experimenters_are_those_that_ryu_knows() -> None:
    good = {
        "TCP flags": experimenters_field(0x4F4E4600, 42 << 1, b"\0\x11"),
        "TCP flags with a mask": experimenters_field(0x4F4E4600, 42 << 1 | 1, b"\0\x11\0\x11"),
        "a flag of a service chain": experimenters_field(0x5AD650, 1 << 1, b"\1"),
        "extension 256": experimenters_field(0x4F4E4600, 0, b"\x0a\0\1"),
    }
    bad = {
        "another length": experimenters_field(0x4F4E4600, 42 << 1, b"\0\0\x11"),
        "a mask that is cut": experimenters_field(0x4F4E4600, 42 << 1 | 1, b"\0\x11\0"),
        "another field": experimenters_field(0x4F4E4600, 41 << 1, b"\0\x11"),
        "another experimenter": experimenters_field(0x12345678, 42 << 1, b"\0\x11"),
        "another type of extension 256": experimenters_field(0x4F4E4600, 0, b"\x0a\1\1"),
    }
    for message in good.values():
        check(message)
    assert ryu_says(list(good.values()), 5) == ["parsed"] * len(good)
    for what, message in bad.items():
        with pytest.raises(GuardError, match="none that is known"):
            check(message)
            pytest.fail(what)
    assert ryu_says(list(bad.values()), 5).count("fails") > 2


@examples(300)
@given(kind=st.sampled_from(sorted({m[1] for m in GOOD.values()})), body=st.binary(max_size=300))
def test_random_bytes_end_in_a_verdict(kind: int, body: bytes) -> None:
    with within(5) as fired, suppress(GuardError):
        check(msg(kind, body))
    assert not fired, "the guard itself hangs"


def test_a_full_size_message_is_checked_in_linear_time() -> None:
    """65 535 bytes of the smallest elements cost at most some hundred times what a hundredth of them costs."""
    import time

    def seconds(count: int) -> float:
        data = multipart(1, flow_stats(instructions=apply_actions(struct.pack("!HHI", 24, 8, 0) * count)))
        best = 1e9
        for _ in range(3):
            start = time.perf_counter()
            check(data)
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(8000) < 400 * seconds(80)
