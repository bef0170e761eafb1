"""Sockets of switches: what comes often is taken at once, all else reaches the framework as it came."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.ofp import wire
from hyroads.controller.switches.reading import ECHO_REPLY, ECHO_REQUEST, READ_BYTES, LargeReads, SwitchPoll, _Frames

COUNTERS = wire.message(bytes((0, wire.MULTIPART_PORT_STATS)) + bytes(118), 7, wire.MULTIPART_REPLY)
BARRIER = wire.message(b"", 9, wire.BARRIER_REPLY)
RULES = wire.message(bytes((0, wire.MULTIPART_FLOW)) + bytes(40), 8, wire.MULTIPART_REPLY)
OTHER_ECHO = wire.message(b"", 5, wire.ECHO_REPLY)
WITHIN_S = 5.0


class Switch:
    """One end of a connection; a green thread reads the other one as the framework does."""

    def __init__(self, poll: SwitchPoll) -> None:
        self.now_s = 0.0
        self.here, self.there = shim.socket_pair()
        self.reads = LargeReads(self.here, lambda: self.now_s, poll=poll)
        self.taken: list[bytes] = []
        self.given: list[bytes] = []
        self.error: Exception | None = None
        self.reads.take = self.taken.append
        self.pause: Callable[[], None] = lambda: None
        shim.spawn(self._read)
        shim.sleep(0)

    def _read(self) -> None:
        try:
            while data := self.reads.recv(8):
                self.given.append(data)
                self.pause()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.given.append(b"")

    def say(self, data: bytes) -> None:
        self.there.sendall(data)
        for _ in range(3):
            shim.sleep(0.001)

    @property
    def text(self) -> bytes:
        return b"".join(self.given)


@pytest.fixture
def poll() -> SwitchPoll:
    return SwitchPoll()


@pytest.fixture
def switch(poll: SwitchPoll) -> Iterator[Switch]:
    made = Switch(poll)
    yield made
    made.there.close()
    shim.sleep(0.005)
    made.reads.close()
    assert not poll._reads


def test_echoes_and_counters_are_taken_and_show_that_it_lives(switch: Switch) -> None:
    switch.now_s = 3.0
    assert switch.reads.silence_s() == 3.0
    switch.say(ECHO_REPLY + COUNTERS)
    assert switch.taken == [COUNTERS] and not switch.given
    assert switch.reads.reads == 1 and switch.reads.silence_s() == 0.0
    switch.now_s = 5.0
    switch.say(COUNTERS * 2 + ECHO_REPLY)
    assert switch.taken == [COUNTERS] * 3 and switch.reads.reads == 2 and switch.reads.silence_s() == 0.0


@pytest.mark.parametrize("data", [
    BARRIER, RULES, OTHER_ECHO, ECHO_REQUEST, ECHO_REPLY[:5], COUNTERS[:-1], COUNTERS + BARRIER,
    ECHO_REPLY + BARRIER[:7], wire.message(b"x", 0, wire.ECHO_REPLY), b"\x05" + COUNTERS[1:], b"\0" * 8,
])  # fmt: skip
def test_all_else_is_left_to_the_framework(switch: Switch, data: bytes) -> None:
    switch.say(data)
    assert switch.given == [data] and not switch.taken


def test_what_looks_like_an_echo_within_a_message_is_a_part_of_it(switch: Switch) -> None:
    message = wire.message(bytes((0, wire.MULTIPART_FLOW)) + bytes(6) + ECHO_REPLY, 8, wire.MULTIPART_REPLY)
    for at in (3, 12, 16):
        switch.given.clear()
        switch.say(message[:at])
        switch.say(message[at:])
        assert switch.given == [message[:at], message[at:]]
    switch.say(ECHO_REPLY)
    assert switch.text == message


def test_nothing_is_lost_or_told_in_another_order(poll: SwitchPoll) -> None:
    rng = random.Random(5)
    switches = [Switch(poll) for _ in range(10)]
    said = [b""] * len(switches)
    for switch in switches:
        switch.pause = lambda: shim.sleep(rng.choice([0, 0, 0.001, 0.003]))
    for _ in range(300):
        at = rng.randrange(len(switches))
        kinds = [COUNTERS, ECHO_REPLY, BARRIER, RULES, OTHER_ECHO, wire.message(bytes(3000), 1, 10)]
        data = b"".join(rng.choices(kinds, (6, 6, 1, 1, 1, 1), k=rng.randint(1, 8)))
        said[at] += data
        cut = rng.randrange(len(data) + 1)
        switches[at].there.sendall(data[:cut])
        shim.sleep(rng.choice([0, 0.0005]))
        switches[at].there.sendall(data[cut:])
        shim.sleep(rng.choice([0, 0, 0.001]))
    shim.sleep(0.1)
    for at, switch in enumerate(switches):
        # By now nothing else is worked on.
        said[at] += COUNTERS
        switch.say(COUNTERS)
        switch.there.shutdown(socket.SHUT_WR)
    for _ in range(2000):
        if all(switch.given[-1:] == [b""] for switch in switches):
            break
        shim.sleep(0.001)
    taken = 0
    for switch, data in zip(switches, said, strict=True):
        messages, given = _Frames().whole(data), _Frames().whole(switch.text)
        # What was given and what was taken are in order, and together all there was but for echoes.
        left = list(given)
        counters = list(switch.taken)
        for message in messages:
            if left and left[0] == message:
                left.pop(0)
            elif counters and counters[0] == message:
                counters.pop(0)
            else:
                assert message == ECHO_REPLY
        assert not left and not counters and switch.error is None
        taken += len(switch.taken)
        switch.there.close()
        switch.reads.close()
    assert taken >= len(switches) and not poll._reads


def test_a_flood_of_echoes_keeps_nobody_from_being_read(poll: SwitchPoll) -> None:
    loud, other = Switch(poll), Switch(poll)
    flood = ECHO_REPLY * (4 * READ_BYTES // len(ECHO_REPLY))
    for i in range(20):
        loud.there.setblocking(False)
        loud.there.send(flood)
        other.say(BARRIER)
        assert other.text == BARRIER * (i + 1)
    loud.there.shutdown(socket.SHUT_WR)
    shim.sleep(0.05)
    assert loud.given[-1] == b"" and not loud.text.replace(ECHO_REPLY, b"")
    for switch in (loud, other):
        switch.there.close()
        switch.reads.close()


def test_the_end_and_errors_reach_whoever_reads(poll: SwitchPoll) -> None:
    for how in ("end", "shut", "take", "wake"):
        switch = Switch(poll)
        if how == "end":
            switch.there.close()
        elif how == "shut":
            switch.reads.end()
        elif how == "wake":
            switch.reads.wake()
        else:
            switch.reads.take = lambda _: 1 // 0
            switch.there.sendall(COUNTERS)
        shim.sleep(0.01)
        kind = {"take": ZeroDivisionError, "wake": TimeoutError}.get(how, type(None))
        assert isinstance(switch.error, kind) and switch.given == [b""], how
        switch.reads.close()
        switch.there.close()


def test_what_was_handed_over_counts_as_not_read_until_it_is(switch: Switch) -> None:
    assert not switch.reads.has_unread()
    switch.there.sendall(BARRIER)
    assert switch.reads.has_unread()
    switch.reads.is_ready(ends=False)
    assert switch.reads.has_unread() and not switch.given
    shim.sleep(0)
    assert switch.given == [BARRIER] and not switch.reads.has_unread()


def test_nothing_is_sent_between_the_parts_of_a_message(switch: Switch) -> None:
    big = wire.message(bytes(60_000), 1)
    sent = 0
    while not (left := switch.reads.send_now(big)):
        sent += 1
    assert 0 < len(left) <= len(big)
    shim.spawn(switch.reads.sendall, left)
    shim.sleep(0)
    # The framework is sending.
    assert switch.reads.send_now(ECHO_REQUEST) == ECHO_REQUEST
    text, whole = b"", (sent + 1) * len(big)
    while len(text) < whole:
        shim.sleep(0)
        text += switch.there.recv(1 << 20)
    assert text == big * (sent + 1)
    shim.sleep(0.005)
    assert switch.reads.send_now(ECHO_REQUEST) == b"" and switch.there.recv(100) == ECHO_REQUEST


class Datapath:
    """What the shim needs of the framework's."""

    def __init__(self, reads: Any) -> None:
        self.socket, self.send_q, self.state = reads, shim.new_queue(16), shim.MAIN
        self.queued: list[bytes] = []
        self.closed = 0

    def send(self, data: bytes) -> bool:
        self.queued.append(data)
        return True

    def close(self) -> None:
        self.closed += 1


def test_silent_switches_are_asked_and_then_ended(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    class Framework:
        class Datapath:
            _echo_request_loop: Any = None

    monkeypatch.setattr(shim, "_controller", Framework)
    shim.look_after_switches(lambda _, message: switch.taken.append(message), ECHO_REQUEST, echo_s=0.04, dead_s=2.5)
    datapath = Datapath(switch.reads)
    Framework.Datapath._echo_request_loop(datapath)
    switch.there.setblocking(False)
    shim.sleep(0.06)
    with pytest.raises(BlockingIOError):
        switch.there.recv(100)
    switch.now_s = 1.0
    shim.sleep(0.05)
    assert switch.there.recv(8) == ECHO_REQUEST and not datapath.closed
    switch.say(ECHO_REPLY + COUNTERS)
    assert switch.reads.silence_s() == 0.0 and switch.taken == [COUNTERS]
    # Where something waits to be sent it goes after that.
    switch.now_s = 2.0
    datapath.send_q.put_nowait(b"x")
    shim.sleep(0.05)
    assert ECHO_REQUEST in datapath.queued and not datapath.closed
    switch.now_s = 4.0
    shim.sleep(0.06)
    assert datapath.closed == 1 and isinstance(switch.error, TimeoutError)
    shim.sleep(0.06)
    assert datapath.closed == 1
