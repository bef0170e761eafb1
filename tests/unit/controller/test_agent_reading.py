"""The agents' port with and without the compiled library: over real sockets both tell listeners the same."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from hyroads.controller.agents.clients import ClientAccess
from hyroads.controller.agents.listeners import Radios
from hyroads.controller.agents.markers import SequenceMarkers
from hyroads.controller.agents.protocol import ProtocolError
from hyroads.controller.agents.server import MAX_LINE, AgentServer
from hyroads.controller.core.identity import DeviceTokens
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework import shared_poll
from hyroads.controller.native.messages import MessageReader, message_reader
from hyroads.controller.settings.controller import Timings

HELLO = {"type": "hello", "version": 1, "node": "a", "program": "test 1", "boot": "1", "token": None, "revision": 0,
         "changes": True}  # fmt: skip
PATHS = [{"id": 0, "rate_mbps": 5.5, "sent_frames": 10, "sent_bytes": 14000}, {"id": 1, "sent_bytes": 0}]
WHOLE = {"type": "report", "time_s": 1.0, "revision": 5, "links": [{"link": "l", "up": True}],
         "ingress": [{"number": 7, "queued": 3, "paths": PATHS}, {"number": 8, "paths": []}],
         "egress": [{"number": 9, "paths": [{"id": 2, "received_bytes": 100}]}]}  # fmt: skip
NEIGHBOUR = {"mac": "02:00:00:00:00:01", "tx_mbps": 5.0, "loss": 0.0, "last_heard_ms": 3}
READING = {"type": "radio", "seq": None, "time_s": 1.0, "interfaces": [
    {"technology": "w5", "busy_us": 1, "active_us": 2, "neighbours": []},
    {"technology": "w2", "busy_us": 3, "active_us": 4, "neighbours": [NEIGHBOUR]}]}  # fmt: skip
PAD = b"x" * 40
WITHIN_S = 5.0


class Listener:
    """Writes down what it is told; of reports all that they say."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.is_starting = False

    def agent_report(self, _session: Any, report: Mapping[str, Any]) -> None:
        self.told.append(("report", dict(report)))

    def agent_reports(self, reports: Any) -> None:
        for i in range(len(reports)):
            self.agent_report(None, reports.report(i))

    def agent_links(self, _session: Any, up: Mapping[str, bool]) -> None:
        self.told.append(("links", dict(up)))

    def agent_misbehaved(self, _peer: str, what: str) -> None:
        self.told.append(("misbehaved", what))

    def radio_report(self, _session: Any, report: Any) -> None:
        self.told.append(("reading", report))

    def radio_readings(self, readings: Any) -> None:
        for i in range(len(readings)):
            self.radio_report(None, readings.report(i))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.told.append(name)


class Port:
    """A server that listens, with one device that has said hello."""

    def __init__(self, hello: Mapping[str, Any], *, seals_links: bool = False) -> None:
        self.now_s = 0.0
        self.listener: Any = Listener()
        self.device: Any = None
        self.server = AgentServer(
            self.listener, frozenset("a"), Timings(), DeviceTokens(), lambda: self.now_s,
            radios=Radios(self.listener, self.listener, frozenset("a"), 100), markers=SequenceMarkers(),
            clients=ClientAccess(self.listener, {}), seals_links=seals_links,
        )  # fmt: skip
        self.hello = hello

    def dial(self) -> None:
        """A session after its welcome."""
        if self.device is not None:
            self.device.close()
        here, self.device = shim.socket_pair()
        place = self.server._connections.enter(here, ("test", 1))
        shim.spawn(self.server._serve_one, here, place)
        self.say(json.dumps(self.hello).encode() + b"\n")

    @property
    def session(self) -> Any:
        known = self.server.radios if self.hello.get("role") == "radio" else self.server.sessions
        return known.get("a")

    def say(self, data: bytes) -> None:
        """At once; returns when all of it is read, and what comes of it is done."""
        told = len(self.listener.told)
        self.device.sendall(data)
        until_s = time.monotonic() + WITHIN_S
        while time.monotonic() < until_s:
            session = self.session
            shim.sleep(0)
            # What is held would be taken a little later.
            self.server._poll.flush()
            if (len(self.listener.told) > told) if session is None else not session.has_unread():
                break
        for _ in range(4):
            shim.sleep(0)

    def close(self) -> None:
        if self.device is not None:
            self.device.close()
        shim.sleep(0.005)


Ports = Callable[..., tuple[Port, Port]]


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ports]:
    """Two ports that differ in who reads: the library, Python."""
    made: list[Port] = []
    # These sockets are not of TCP: what is sent can be read at once.
    monkeypatch.setattr(shim, "no_delay", lambda _: None)

    def make(**hello: Any) -> tuple[Port, Port]:
        if message_reader(MAX_LINE) is None:
            pytest.skip("the library is not built")
        made.append(Port({**HELLO, **hello}))
        monkeypatch.setattr(shared_poll, "message_reader", lambda _: None)
        made.append(Port({**HELLO, **hello}))
        return made[0], made[1]

    yield make
    for port in made:
        port.close()


def line_of(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def agent_line(rng: random.Random, i: int) -> bytes:
    """Most of what an agent says is right, some is not; the time grows."""
    counter = rng.choice([5, 1.25, None, 0, 2**53 + 1]) if rng.random() < 0.9 else rng.choice(["x", True, 1e301])
    flow = {"number": rng.choice([7] * 8 + [8, 6]), "queued": counter, "paths": [{"id": 1, "sent_bytes": counter}]}
    changes = {"type": "changes", "time_s": 2.0 + i, "ingress": [flow], "egress": [{"number": 9, "paths": [{"id": 2}]}]}
    return rng.choice([
        *[line_of(changes)] * 6, *[line_of({"type": "pong", "seq": i})] * 2, line_of({**WHOLE, "time_s": 2.0 + i}),
        line_of({**changes, "links": [{"link": "l", "up": False}]}), line_of({"type": "link", "link": "l", "up": True}),
        b'{"type": "pong", "seq": %d, "epoch": 3}' % i, b'{"type":"ok","seq":null}', b'{"type":"something"}',
        line_of({**WHOLE, "seq": 4, "time_s": 2.0 + i}), line_of({**WHOLE, "more": True}),
    ])  # fmt: skip


def radio_line(rng: random.Random, i: int) -> bytes:
    """The same of radios."""
    rows = [{"technology": name, "busy_us": rng.choice([i, 2**53 + 1]), "active_us": i} for name in ("w5", "w2")]
    changes = {"type": "radio-changes", "time_s": 2.0 + i, "interfaces": rows}
    odd = {**changes, "interfaces": rows[: rng.randint(0, 2)]}
    heard = {**changes, "interfaces": [rows[0], {**rows[1], "neighbours": [NEIGHBOUR]}]}
    return rng.choice([
        *[line_of(changes)] * 6, *[line_of({"type": "pong", "seq": i})] * 2, line_of({**READING, "time_s": 2.0 + i}),
        line_of(odd), line_of(heard), line_of({**READING, "seq": i, "time_s": 2.0 + i}),
    ])  # fmt: skip


def hostile(line: bytes, rng: random.Random) -> bytes:
    """A line, with bytes changed, cut off or added."""
    text = bytearray(line)
    for _ in range(rng.randint(1, 3)):
        at, what = rng.randrange(len(text)), rng.random()
        if what < 0.5:
            text[at] = rng.choice(b'{}[],:"\\-+.019eE tn\xff\0')
        elif what < 0.75:
            del text[at:]
            text += b"}"
        else:
            text.insert(at, rng.choice(b'{}[],:"-.0e9 '))
    return bytes(text)


def newest_of(told: list[Any]) -> list[Any]:
    """Without counters that newer ones follow, perhaps such that are refused: the library leaves those out, unless
    something else lies between. Links, which whole reports tell, and pongs do not.
    """
    found: list[Any] = []
    next_kind = ""
    for each in reversed(told):
        kind = each[0] if type(each) is tuple else each
        is_replaced = kind in {"report", "reading"} and next_kind in {kind, "misbehaved"}
        if is_replaced or (kind == "links" and found[-1:] == [each]):
            continue
        found.append(each)
        next_kind = next_kind if kind == "links" else kind
    return found[::-1]


def is_same(ours: Port, reference: Port) -> bool:
    """Compares what was told since the last time; whether the session lives."""
    until_s = time.monotonic() + WITHIN_S
    while time.monotonic() < until_s:
        # On a busy machine one of them has read all of it, and has not taken all of it yet.
        is_done = newest_of(ours.listener.told) == newest_of(reference.listener.told)
        if is_done and (ours.session is None) == (reference.session is None):
            break
        shim.sleep(0)
    # A report that does not name a counter that is None is the same.
    assert newest_of(ours.listener.told) == newest_of(reference.listener.told)
    for port in (ours, reference):
        port.listener.told.clear()
    assert (ours.session is None) == (reference.session is None)
    if ours.session is None:
        return False
    assert ours.session.rtt_ms == reference.session.rtt_ms
    assert ours.session.heard_s == reference.session.heard_s
    return True


@pytest.mark.parametrize("role", ["agent", "radio"])
@pytest.mark.parametrize("share_hostile", [0.0, 0.1])
def test_listeners_are_told_the_same_in_the_same_order(ports: Ports, role: str, share_hostile: float) -> None:
    rng = random.Random(7)
    both = ports(**({} if role == "agent" else {"role": role}))
    first, say = (WHOLE, agent_line) if role == "agent" else (READING, radio_line)
    reports, refused, i = 0, 0, 0
    for _ in range(60):
        for port in both:
            port.dial()
            port.say(line_of(first) + b"\n")
        assert is_same(*both), both
        assert both[0].server._poll._library_reads and not both[0].server._poll._reads
        assert both[1].server._poll._reads and not both[1].server._poll._library_reads
        rest = b""
        for _ in range(8):
            lines = []
            for _ in range(rng.randint(1, 6)):
                i += 1
                line = say(rng, i)
                lines.append(hostile(line, rng) if rng.random() < share_hostile else line)
            data = rest + b"\n".join(lines) + b"\n"
            end = len(data) - rng.choice([0, 0, rng.randrange(len(lines[-1]) + 1)])
            data, rest = data[:end], data[end:]
            for port in both:
                port.now_s += 0.01
                if port.session is not None:
                    port.session.ping()
                port.say(data)
            reports += sum(told[0] in {"report", "reading"} for told in both[1].listener.told)
            refused += sum(told[0] == "misbehaved" for told in both[1].listener.told)
            if not is_same(*both):
                break
    assert reports > 100 and refused > 3


def test_what_comes_often_is_decoded_by_the_library_and_nothing_else(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = ports()
    taken: list[bytes] = []
    take = ours.server._take
    monkeypatch.setattr(ours.server, "_take", lambda session, line: (taken.append(line), take(session, line)))
    ours.dial()
    link = b'{"type":"link","link":"l","up":true}'
    ours.say(b"\n".join([line_of(WHOLE), b'{"type":"changes","time_s":2}', b'{"type": "pong", "seq": 1}', link, b""]))
    # Changes that come with the whole report that they refer to are not, later ones are.
    assert taken == [line_of(WHOLE), b'{"type":"changes","time_s":2}', link]
    ours.say(b'{"type":"changes","time_s":3}\n')
    assert len(taken) == 3
    assert [told[1]["time_s"] for told in ours.listener.told if told[0] == "report"] == [1.0, 2, 3]
    # A whole one in which counters alone are others, and changes that refer to it.
    again = {**WHOLE, "time_s": 4.0, "egress": [{"number": 9, "paths": [{"id": 2, "received_bytes": 300}]}]}
    ours.say(line_of(again) + b'\n{"type":"changes","time_s":5}\n')
    assert len(taken) == 3
    *_, links, (_, changed) = ours.listener.told
    assert links == ("links", {"l": True})
    assert (changed["time_s"], changed["egress"][0]["paths"][0]["received_bytes"]) == (5, 300)
    ours.say(line_of({**again, "links": [{"link": "l", "up": False}]}) + b"\n")
    assert len(taken) == 4


def test_what_goes_wrong_with_a_whole_report_ends_its_session(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the counters of all sessions that came with it would be lost, each time."""
    ours, _ = ports()
    ours.dial()
    ours.say(line_of(WHOLE) + b"\n")

    def refused(_session: Any, _up: Mapping[str, bool]) -> None:
        raise ProtocolError("no such link")

    monkeypatch.setattr(ours.listener, "agent_links", refused, raising=False)
    ours.say(line_of({**WHOLE, "time_s": 2.0}) + b"\n")
    assert ours.session is None and ("misbehaved", "no such link") in ours.listener.told


@pytest.mark.parametrize("ended", [b"\n", b"x"])
def test_a_line_over_the_limit_ends_the_session_in_both(ports: Ports, ended: bytes) -> None:
    both = ports()
    for port in both:
        port.dial()
        data = PAD * (MAX_LINE // len(PAD) + 1)
        for at in range(0, len(data), 1 << 15):
            port.say(data[at : at + (1 << 15)])
        if port.session is not None:
            port.say(ended)
    assert both[0].session is None and both[1].session is None
    assert both[0].listener.told == both[1].listener.told
    assert ("misbehaved", f"a line has more than {MAX_LINE} bytes") in both[0].listener.told


def test_nothing_is_told_of_a_session_after_it_is_closed_amid_what_came_together(ports: Ports) -> None:
    both = ports()
    for port in both:
        port.listener.agent_links = lambda session, _: session.close("test")
        port.dial()
        port.say(b'{"type":"link","link":"l","up":false}\n' + line_of(WHOLE) + b'\n{"type":"changes","time_s":2}\n')
        shim.sleep(0.02)
    assert both[0].listener.told == both[1].listener.told == ["agent_up", "agent_down"]


def test_while_all_come_back_both_leave_out_the_same(ports: Ports) -> None:
    both = ports()
    for port in both:
        port.dial()
        port.say(line_of(WHOLE) + b"\n")
        port.listener.is_starting = True
    for i in range(30):
        for port in both:
            port.now_s += 0.1
            port.say(b'{"type":"changes","time_s":%d}\n{"type":"link","link":"l","up":true}\n' % (i + 2))
        assert is_same(*both), both


def test_messages_of_stations_overtake_readings_with_rows_and_the_newest_reading_counts(ports: Ports) -> None:
    station = {"type": "station", "technology": "host", "mac": NEIGHBOUR["mac"].replace("02:", "04:", 1),
               "event": "joined"}  # fmt: skip
    for port in ports(role="radio"):
        port.dial()
        port.say(line_of(READING) + b"\n")
        port.listener.told.clear()
        row = {**READING["interfaces"][1], "neighbours": [{**NEIGHBOUR, "tx_mbps": 9.0}]}
        changes = {"type": "radio-changes", "interfaces": [{"technology": "w5", "busy_us": 1, "active_us": 2}, row]}
        lines = [line_of({**changes, "time_s": 2.0}), line_of({"type": "pong", "seq": 1}),
                 line_of({**changes, "time_s": 3.0}), line_of(station)]  # fmt: skip
        port.say(b"\n".join(lines) + b"\n")
        kinds = [each if isinstance(each, str) else each[0] for each in port.listener.told]
        assert kinds == ["station", "reading"]
        reading = port.listener.told[1][1]
        assert (reading.time_s, reading.interfaces[1].neighbours[0].tx_mbps) == (3.0, 9.0)


def test_a_malformed_reading_that_waits_ends_its_session_once(ports: Ports) -> None:
    for port in ports(role="radio"):
        port.dial()
        bad = b'{"type":"radio-changes","time_s":"x"}'
        port.say(b"\n".join([bad, b'{"type":"pong","seq":1}', b'{"type":"radio"}']) + b"\n")
        assert [each[0] for each in port.listener.told if type(each) is tuple] == ["misbehaved"]
        assert port.session is None


def test_many_sockets_end_and_others_get_their_descriptors(ports: Ports) -> None:
    ours, _ = ports()
    for i in range(40):
        ours.dial()
        ours.say(line_of({**WHOLE, "time_s": 1.0 + i}) + b'\n{"type":"changes","time_s":%d}\n{"ty' % (i + 2))
    times = [told[1]["time_s"] for told in ours.listener.told if told[0] == "report"]
    assert times == [t for i in range(40) for t in (1.0 + i, i + 2)]
    ours.device.close()
    shim.sleep(0.02)
    assert not ours.server._poll._library_reads
    assert isinstance(ours.server._poll.library, MessageReader)


def lines_of(port: Port) -> list[dict[str, Any]]:
    """What the device is sent in the next moment."""
    text, until_s = b"", time.monotonic() + 0.02
    port.device.setblocking(False)
    while time.monotonic() < until_s or not text.endswith(b"\n"):
        shim.sleep(0.001)
        assert time.monotonic() < until_s + WITHIN_S
        try:
            text += port.device.recv(1 << 20)
        except BlockingIOError:
            if not text and time.monotonic() > until_s:
                break
    port.device.setblocking(True)
    return [json.loads(line) for line in text.splitlines()]


def look_after(port: Port, after_s: float) -> None:
    """After a time at whose end the device says something."""
    port.now_s += after_s
    port.say(b'{"type":"ok","seq":null}\n')
    port.server._look_after_all(0.2)


@pytest.mark.parametrize("more", [b"", b',"epoch":0', b',"epoch":5,"heard_ms":3'])
def test_whoever_sends_pings_they_are_sent_and_answered_alike(ports: Ports, more: bytes) -> None:
    for port in ports():
        port.dial()
        lines_of(port)
        look_after(port, 1.0)
        seqs = [line["seq"] for line in lines_of(port) if line["type"] == "ping"]
        assert len(seqs) == 1
        for _ in range(3):
            # The second answer is to nobody's question.
            for is_first in (True, False):
                port.now_s += 0.01
                port.session.rtt_ms = None
                port.say(b'{"type":"pong","seq":%d%b}\n' % (seqs[0], more))
                assert (port.session.rtt_ms is not None) == is_first and port.session.heard_s == port.now_s
            look_after(port, 0.05)
            assert lines_of(port) == []
            look_after(port, 1.0)
            seqs = [line["seq"] for line in lines_of(port)]
            assert len(seqs) == 1
        assert max(port.server._shown.values(), default=0) == (5 if more.endswith(b"3") else 0)


def test_a_device_that_does_not_read_is_sent_whole_lines_and_then_closed(ports: Ports) -> None:
    for port in ports():
        port.dial()
        lines_of(port)
        session, sent = port.session, 0
        while not session._outbox.qsize():
            session.send({"type": "filler", "text": "x" * 997})
            sent += 1
        shim.sleep(0)
        for _ in range(5):
            # Also while only a ping found no room.
            look_after(port, 1.0)
        assert not session.closed
        lines = lines_of(port)
        assert [line["type"] for line in lines] == ["filler"] * sent + ["ping"] * 5
        assert [line["seq"] for line in lines[sent:]] == sorted({line["seq"] for line in lines[sent:]})
        for _ in range(10_000):
            if session.closed:
                break
            look_after(port, 1.0)
        assert session.closed and session._outbox.full()


def test_a_ping_without_room_is_sent_before_what_follows(ports: Ports) -> None:
    ours, _ = ports()
    ours.dial()
    lines_of(ours)
    session = ours.session
    # All the room there is, to the byte, while nothing of it waits in Python.
    whole = b'{"type":"filler"}\n'
    sent = 0
    for most in (1 << 16, 1):
        with pytest.raises(BlockingIOError):
            while True:
                sent += session._socket.fd.send((whole * 4096)[sent % len(whole) :][:most])
    rest = whole[sent % len(whole) :] if sent % len(whole) else b""
    look_after(ours, 1.0)
    shim.sleep(0.01)
    assert not session._outbox.qsize()
    text = ours.device.recv(1 << 20, 0)
    session._socket.fd.send(rest)
    session.send({"type": "after"})
    found = text
    while not found.endswith(b'{"type":"after"}\n'):
        shim.sleep(0)
        found += ours.device.recv(1 << 20)
    types = [json.loads(line)["type"] for line in found.splitlines()]
    assert set(types[:-2]) == {"filler"} and types[-2:] == ["ping", "after"]


class Calm:
    """Something is urgent until the test says that it is not."""

    def __init__(self) -> None:
        self.goes_first = False
        self._over = shim.Signal()

    def wait_for_flows(self) -> None:
        while self.goes_first:
            self._over.wait(WITHIN_S)

    def end(self) -> None:
        self.goes_first = False
        self._over.notify()


def amid_something_urgent(port: Port) -> Calm:
    """A session that has told a whole report before it began."""
    calm = port.server._later._urgent = Calm()
    port.dial()
    port.say(line_of(WHOLE) + b"\n")
    calm.goes_first = True
    return calm


def test_whole_reports_wait_for_what_is_urgent_and_so_does_what_follows_them(ports: Ports) -> None:
    both = ports()
    for port in both:
        calm = amid_something_urgent(port)
        told, answers = len(port.listener.told), []
        port.session.request({"type": "rates"}, answers.append)
        seq = next(line["seq"] for line in lines_of(port) if line["type"] == "rates")
        other = {**WHOLE, "time_s": 2.0, "ingress": []}
        port.device.sendall(
            line_of(other)
            + b'\n{"type":"changes","time_s":3}\n{"type":"ok","seq":%d}\n' % seq
            + b'{"type":"link","link":"l","up":false}\n'
        )
        shim.sleep(0.05)
        assert answers == [None] and len(port.listener.told) == told
        calm.end()
        shim.sleep(0.05)
        # In their order, and what comes later refers to the new one.
        port.say(b'{"type":"changes","time_s":4}\n')
        reports = [one[1] for one in port.listener.told[told:] if one[0] == "report"]
        assert [report["time_s"] for report in reports] == [2.0, 3, 4]
        assert all(report["ingress"] == [] for report in reports)
        assert [one for one in port.listener.told[told:] if one[0] == "links"][-1] == ("links", {"l": False})
    assert is_same(*both), both


def test_what_is_wrong_with_a_line_that_waited_ends_its_session(ports: Ports) -> None:
    both = ports()
    for port in both:
        calm = amid_something_urgent(port)
        port.device.sendall(line_of({**WHOLE, "ingress": 3}) + b"\n")
        shim.sleep(0.05)
        assert port.session is not None
        calm.end()
        shim.sleep(0.05)
        assert port.session is None
        assert any(one[0] == "misbehaved" for one in port.listener.told if type(one) is tuple)


@pytest.mark.parametrize("seals", [True, False])
def test_agent_that_cannot_seal_links_is_refused_where_links_are_sealed(
    monkeypatch: pytest.MonkeyPatch, seals: bool
) -> None:
    monkeypatch.setattr(shim, "no_delay", lambda _: None)
    port = Port({**HELLO, "seals_links": seals}, seals_links=True)
    port.dial()
    try:
        assert (port.session is not None) == seals
        assert (b"can not seal what its switch sends" in port.device.recv(65536)) != seals
    finally:
        port.close()
