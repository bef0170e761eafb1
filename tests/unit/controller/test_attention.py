"""Silence is judged by the time in which one could hear; many sockets are read by one green thread."""

from __future__ import annotations

import json
import random
import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.protocol import ProtocolError, parse_line
from hyroads.controller.core import strict_json
from hyroads.controller.core.attention import AttendedClock
from hyroads.controller.core.strict_json import JsonError
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework import shared_poll
from hyroads.controller.framework.shared_poll import SharedPoll
from hyroads.controller.switches import reading
from hyroads.controller.switches.reading import LargeReads


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=30))
def test_attended_time_goes_on_and_counts_each_turn_once(steps: list[tuple[float, bool]]) -> None:
    now = [5.0]
    clock = AttendedClock(lambda: now[0], 0.15)
    before, most, since_s = clock(), clock(), 0.0
    for step_s, turns in steps:
        now[0] += step_s
        since_s += step_s
        assert before <= clock() <= most + min(since_s, 0.15) + 1e-9
        before = clock()
        if turns:
            clock.turned()
            most, since_s = clock(), 0.0
    assert clock() <= now[0]


def test_whoever_is_never_late_has_the_same_time() -> None:
    now = [0.0]
    clock = AttendedClock(lambda: now[0], 0.15)
    for _ in range(100):
        now[0] += 0.05
        clock.turned()
    assert clock() == pytest.approx(5.0)


class _Datapath:
    """A socket that tells what it is given; None: nothing came in time."""

    def __init__(self, told: list[bytes | None]) -> None:
        self._told = told

    def recv(self, size: int) -> bytes:
        data = self._told.pop(0)
        if data is None:
            raise TimeoutError
        return data


def test_a_switch_is_silent_only_while_somebody_reads() -> None:
    now = [0.0]
    reads = LargeReads(_Datapath([b"x", None, b"y"]), lambda: now[0])
    now[0] = 9.0
    assert reads.silence_s() == 0.0
    assert reads.recv(8) == b"x"
    # What came is worked on for long: nothing was read meanwhile.
    now[0] = 20.0
    assert reads.silence_s() == 0.0
    with pytest.raises(TimeoutError):
        reads.recv(8)
    now[0] = 24.0
    assert reads.silence_s() == 4.0
    assert reads.recv(8) == b"y" and reads.silence_s() == 0.0


@pytest.mark.parametrize(
    ("bytes_each", "every_s", "pauses"), [(100, 0.002, True), (4096, 0.002, False), (100, 0.02, False)]
)
def test_many_small_messages_are_read_together_and_nothing_else_waits(
    bytes_each: int, every_s: float, pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, slept = [0.0], []
    monkeypatch.setattr(reading.shim, "sleep", slept.append)

    class Endless:
        def recv(self, size: int) -> bytes:
            now[0] += every_s
            return bytes(bytes_each)

    reads = LargeReads(Endless(), lambda: now[0])
    for _ in range(500):
        assert len(reads.recv(8)) == bytes_each
    assert bool(slept) is pauses and set(slept) <= {reading.PAUSE_S}
    # As soon as little comes each message is read at once again.
    every_s, slept[:] = 0.05, []
    for _ in range(10):
        reads.recv(8)
    assert len(slept) <= 4 * pauses


def test_lines_of_many_sockets_come_whole_and_in_order() -> None:
    rng = random.Random(3)
    poll = SharedPoll()
    got: dict[int, list[bytes]] = {}
    ended: list[int] = []
    pairs = [shim.socket_pair() for _ in range(20)]

    def serve(number: int, connection: Any) -> None:
        lines = shim.LineReader(connection, 100)
        got[number] = []

        def take(data: bytes) -> None:
            for line in lines.given(data):
                if line == b"bad":
                    raise ProtocolError("bad")
                got[number].append(line)

        try:
            poll.serve(connection, take)
        except ProtocolError:
            ended.append(number)

    for number, (here, _) in enumerate(pairs):
        shim.spawn(serve, number, here)
    said = {number: [b"%d-%d" % (number, i) for i in range(30)] for number in range(20)}
    texts = {number: b"\n".join(lines) + b"\n" + (b"bad\nnot read\n" if number % 5 == 0 else b"")
             for number, lines in said.items()}  # fmt: skip
    while any(texts.values()):
        for number, (_, there) in enumerate(pairs):
            size = rng.randrange(1, 40)
            there.sendall(texts[number][:size])
            texts[number] = texts[number][size:]
        shim.sleep(0.001)
    for _, there in pairs:
        there.shutdown(socket.SHUT_RDWR)
    shim.sleep(0.05)
    assert got == said and sorted(ended) == [0, 5, 10, 15]
    for here, there in pairs:
        here.close()
        there.close()


@given(st.binary(max_size=30) | st.sampled_from([b"1e999", b"9" * 4301, b"NaN", b'"\\ud800"', b"[" * 9000]))
def test_what_is_compared_with_bounds_is_read_as_before_but_for_great_numbers(inner: bytes) -> None:
    text = b'{"a":' + inner + b"}"
    try:
        wanted: Any = strict_json.parse(text)
    except JsonError:
        wanted = None
    try:
        found = strict_json.parse_checked(text)
    except JsonError:
        assert wanted is None
    else:
        assert wanted is None or found == wanted


@pytest.mark.parametrize("value", [b"1e999", b"-1e999", b"9" * 400, b"9" * 4400, b"true", b'"1"', b"[]"])
def test_reports_with_numbers_beyond_bounds_are_refused(value: bytes) -> None:
    for line in (
        b'{"type":"report","time_s":1,"revision":%b}' % value,
        b'{"type":"report","time_s":1,"ingress":[{"number":%b}]}' % value,
    ):
        with pytest.raises(ProtocolError):
            parse_line(line)


def test_a_type_is_named_once() -> None:
    with pytest.raises(ProtocolError):
        parse_line(b'{"type":"report","time_s":1,"type":"client-report","status":1e999}')
    assert parse_line(json.dumps({"type": "ping", "seq": 1}).encode())["seq"] == 1


def test_whoever_has_not_read_all_knows_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_poll, "AT_ONCE", 2)
    # Each takes longer than others are kept waiting.
    long_s = 1.2 * shared_poll.WORK_S
    poll, worst_s = SharedPoll(), 0.0
    pairs = [shim.socket_pair() for _ in range(12)]
    for here, _ in pairs:
        shim.spawn(poll.serve, here, lambda data: time.sleep(long_s))
    shim.sleep(0)
    others = [there for _, there in pairs]
    for there in others:
        there.sendall(b"x")
    began_s = time.monotonic()
    for _ in range(100):
        shim.sleep(0.001)
        poll.look()
        worst_s = max(worst_s, poll.late_s)
        assert poll.late_s <= time.monotonic() - began_s + 0.1
    assert worst_s > 8 * long_s and poll.late_s < 4 * long_s
    # One that never stops is read in turn with the others, and does not hide that these are silent.
    for _ in range(40):
        others[0].sendall(b"x" * shared_poll.READ_BYTES)
        shim.sleep(0.001)
        poll.look()
    assert poll.late_s < 40 * long_s
    for here, there in pairs:
        there.close()
        here.close()


@pytest.mark.parametrize(
    ("late_s", "others_s", "works_s"),
    [
        (0.1, 0.2, shared_poll.WORK_S),
        (1.0, 0.001, shared_poll.WORK_S),
        (1.0, 0.03, 0.03),
        (1.0, 0.5, shared_poll.MOST_WORK_S),
    ],
    ids=["in time", "nobody else", "as others", "at most"],
)
def test_reading_that_is_late_works_as_long_as_all_others(
    monkeypatch: pytest.MonkeyPatch, late_s: float, others_s: float, works_s: float
) -> None:
    now = [100.0]
    monkeypatch.setattr(shared_poll.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(shared_poll.shim, "wait_readable", lambda descriptor: None)
    monkeypatch.setattr(shared_poll.shim, "sleep", lambda wait_s: now.__setitem__(0, now[0] + others_s))
    turn = shared_poll._Round()
    now[0] += late_s
    turn.rest(0)
    assert turn.wait(3) - now[0] == pytest.approx(works_s)
