"""The library that reads devices' lines: it agrees with the Python parser, and keeps the order of what came."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hyroads.controller.agents.changes import DECODED, DecodedReport, DecodedReports, WholeReport
from hyroads.controller.agents.protocol import ProtocolError, parse_line
from hyroads.controller.agents.telemetry import WholeReading
from hyroads.controller.control.report_columns import ReportColumns
from hyroads.controller.native.messages import CHANGES, END, EVENT, LINE, PONG, MessageReader, Told, message_reader

MAX_LINE = 4096
LINKS = [{"link": "a", "up": True, "last_heard_ms": 1}]
WHOLE = {
    "type": "report", "time_s": 1.0, "revision": 5,
    "ingress": [
        {"number": 7, "queued": 3, "queued_bytes": 4500, "dropped": 0, "paths": [
            {"id": 0, "rate_mbps": 5.5, "sent_frames": 10, "sent_bytes": 14000},
            {"id": 1, "rate_mbps": None, "sent_frames": 0, "sent_bytes": 0}]},
        {"number": 8, "queued": 0, "dropped": 1, "paths": []},
    ],
    "egress": [{"number": 9, "paths": [{"id": 2, "received_bytes": 100, "received_frames": 1}]}],
    "links": LINKS,
}  # fmt: skip
READING = {"type": "radio", "seq": None, "time_s": 1.0, "interfaces": [
    {"technology": "w5", "busy_us": 1, "active_us": 2, "neighbours": []},
    {"technology": "w2", "busy_us": 3, "active_us": 4, "neighbours": [
        {"mac": "02:00:00:00:00:01", "tx_mbps": 5.0, "rx_mbps": None, "loss": 0.0, "last_heard_ms": 3}]},
]}  # fmt: skip


def line_of(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


Event = tuple[int, bytes, int, list[float]]
"""Kind, line, number of a pong or of wholes, and decoded numbers."""


def events_of(told: Told) -> list[Event]:
    return [
        (kind, told.line(i), (told.first if kind == PONG else told.count)[i],
         told.numbers(i).tolist() if kind >= CHANGES else [])
        for i, kind in enumerate(told.kinds)
    ]  # fmt: skip


class Wire:
    """A socket that the library reads."""

    def __init__(self, reader: MessageReader) -> None:
        self.reader = reader
        self.device, self.ours = socket.socketpair()
        self.number = reader.add(self.ours.fileno(), b"")
        self.whole, self.reading, self.wholes = WholeReport(), WholeReading(), 0

    def told(self, data: bytes, count: int = 1) -> list[Event]:
        """What comes of some bytes: so many events, those that are held the last ones."""
        self.device.sendall(data)
        return self.read(count)

    def read(self, count: int) -> list[Event]:
        found: list[Event] = []
        until_s = time.monotonic() + 5.0
        while len(found) < count and time.monotonic() < until_s:
            found += events_of(self.reader.take(100)[0])
            if len(found) < count and self.reader.is_holding(self.number):
                # What came before them is to be taken first.
                found += events_of(self.reader.take(100)[0]) + events_of(self.reader.held())
        lines = [event for event in found if event[0] == LINE]
        self.wholes = lines[-1][2] if lines else self.wholes
        return found

    def refer_to_report(self, report: dict[str, Any]) -> None:
        self.whole.take(parse_line(line_of(report)))
        assert self.whole.columns is not None
        self.reader.refer_to_report(self.number, *self.whole.columns[1:], wholes=self.wholes)

    def refer_to_reading(self) -> None:
        self.reading.take(parse_line(line_of(READING)))
        assert self.reading.technologies is not None
        self.reader.refer_to_reading(self.number, self.reading.technologies, wholes=self.wholes)


@pytest.fixture
def wire() -> Iterator[Wire]:
    reader = message_reader(MAX_LINE)
    if reader is None:
        pytest.skip("the library is not built")
    found = Wire(reader)
    yield found
    reader.remove(found.number)
    found.device.close()
    found.ours.close()


def changed(rng: random.Random) -> dict[str, Any]:
    """A message of changes, most of them right."""

    def some(*names: str) -> dict[str, Any]:
        values = (0, -1, 12, 2**53 + 1, 10**40, 1.5, 1e-7, 1.7e308, None, True, "x", -0.0)
        weights = (9, 2, 9, 2, 2, 9, 2, 1, 2, 1, 1, 1)
        return {name: rng.choices(values, weights)[0] for name in names if rng.random() < 0.4}

    def path(number: int, *names: str) -> dict[str, Any]:
        return {"id": number, **some(*names)}

    sent = [path(i, "sent_bytes", "sent_frames", "rate_mbps", "skipped") for i in (0, 1) if rng.random() < 0.7]
    ingress = [{"number": 7, **some("queued", "sent", "other"), **({"paths": sent} if sent else {})}]
    ingress += [{"number": 8, **some("dropped", "queued_bytes")}] * rng.choices((0, 1, 2), (5, 5, 1))[0]
    arrived = [path(2, "received_bytes", "received_frames", "delay_ms", "passed")]
    delivered = some("delivered_bytes", "delivered_frames", "lost", "late")
    egress = [{"number": rng.choices((9, 10), (20, 1))[0], "paths": arrived, **delivered}]
    parts = {"ingress": ingress, "egress": egress, **some("malformed", "cpu_s")}
    kept = {name: part for name, part in parts.items() if rng.random() < 0.7}
    return {"type": "changes", "time_s": rng.choice((2, 2.25, 1e9)), **kept}


def mutated(line: bytes, rng: random.Random) -> bytes:
    """One to three bytes are others, are missing or too many; never the end of a line."""
    text = bytearray(line)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        what = rng.random()
        if what < 0.4:
            text[at] = rng.choice(b'{}[],:"\\-+.0123456789eE truefalsn\xff')
        elif what < 0.7:
            del text[at]
        else:
            text.insert(at, rng.choice(b'{}[],:"-.0e9 '))
    return bytes(text) or b"x"


def columns_of(report: Any) -> list[float]:
    """What the columns of reports keep, from the parser's report."""
    sent = [path for flow in report["ingress"] for path in flow["paths"]]
    received = [path for flow in report["egress"] for path in flow["paths"]]
    rows = zip((report["ingress"], sent, received, report["egress"]), DECODED, strict=True)
    values = [entry[name] for entries, names in rows for name in names for entry in entries]
    return [float("nan") if value is None else float(value) for value in values]


def told_of(wire: Wire, lines: list[bytes], refer: Callable[[], None]) -> Iterator[tuple[bytes, Event]]:
    """What comes of each line. Many are sent together; after one that may be a whole one, changes refer to another."""
    between = b'{"type":"link"}'
    while lines:
        some = []
        while lines and len(some) < 100:
            some.append(lines.pop(0))
            if any(part in some[-1] for part in (b"report", b"\\", b'radio"')):
                break
        told = wire.told(b"".join(line + b"\n" + between + b"\n" for line in some), 2 * len(some))
        assert [line for _, line, *_ in told[1::2]] == [between] * len(some)
        yield from zip(some, told[::2], strict=True)
        refer()


@pytest.mark.parametrize("share_mutated", [0.0, 0.7])
def test_whatever_is_decoded_has_the_values_of_the_python_parser(wire: Wire, share_mutated: float) -> None:
    rng = random.Random(5)
    wire.refer_to_report(WHOLE)
    decoded = refused = 0
    lines = [line_of(changed(rng)) for _ in range(4000)]
    lines = [mutated(line, rng) if rng.random() < share_mutated else line for line in lines]
    for line, (kind, told, _, numbers) in told_of(wire, lines, lambda: wire.refer_to_report(WHOLE)):
        if kind == CHANGES:
            decoded += 1
            report, links = wire.whole.changed(parse_line(line))
            assert links == []
            assert not report["more"]
            np.testing.assert_array_equal(numbers, [report["time_s"], *columns_of(report)])
            assert DecodedReport(wire.whole, line, numbers[0]).report == report
        else:
            assert (kind, told) == (LINE, line)
            try:
                wire.whole.changed(parse_line(line))
            except (ProtocolError, KeyError):
                refused += 1
    assert decoded > 800
    assert refused > 300


def test_readings_that_are_decoded_are_those_of_the_python_parser(wire: Wire) -> None:
    rng = random.Random(6)
    wire.refer_to_reading()
    decoded, lines = 0, []
    for _ in range(4000):
        counters = [rng.choices((0, 17, 2**53 - 1, 2**53 + 1, 2**63), (9, 9, 9, 1, 1))[0] for _ in range(4)]
        rows = [{"technology": t, "busy_us": counters[i], "active_us": counters[i + 1]} for i, t in
                enumerate(("w5", "w2"))]  # fmt: skip
        line = line_of({"type": "radio-changes", "time_s": rng.choice((1.5, 7, 1e15)), "interfaces": rows})
        lines.append(mutated(line, rng) if rng.random() < 0.6 else line)
    for line, (kind, told, _, numbers) in told_of(wire, lines, wire.refer_to_reading):
        if kind == CHANGES:
            decoded += 1
            assert wire.reading.decoded(numbers) == wire.reading.changed(parse_line(line))
        else:
            assert told == line
    assert decoded > 300


def test_lines_and_the_end_keep_their_order(wire: Wire) -> None:
    wire.refer_to_report(WHOLE)
    down, answer = b'{"type":"link","link":"a","up":false}', b'{"type":"ok","seq":3}'
    first, second, third = (line_of({"type": "changes", "time_s": t}) for t in (2, 3, 4))
    lines = [first, down, second, third, answer, b'{"type": "pong", "seq": 9}', first, b""]
    told = wire.told(b"\n".join(lines), 6)
    assert [kind for kind, *_ in told] == [CHANGES, LINE, CHANGES, LINE, PONG, CHANGES]
    assert [line for kind, line, *_ in told if kind == LINE] == [down, answer]
    # The second was replaced by the third, the first was not: the link's state lies between.
    assert [numbers[0] for kind, _, _, numbers in told if kind == CHANGES] == [2, 4, 2]
    assert told[4][2] == 9
    wire.device.sendall(down + b"\n" + answer[:5])
    wire.device.close()
    assert [kind for kind, *_ in wire.read(2)] == [LINE, END]


def test_after_a_whole_report_nothing_is_decoded_by_the_old_one(wire: Wire) -> None:
    wire.refer_to_report(WHOLE)
    changes = line_of({"type": "changes", "time_s": 2})
    told = wire.told(line_of(WHOLE) + b"\n" + changes + b"\n", 2)
    assert [kind for kind, *_ in told] == [LINE, LINE]
    wire.refer_to_report(WHOLE)
    assert [kind for kind, *_ in wire.told(changes + b"\n")] == [CHANGES]


def test_the_thread_reads_while_the_interpreter_is_at_work(wire: Wire) -> None:
    wire.device.sendall(b'{"type":"link"}\n')
    sum(range(2_000_000))
    began_s = time.monotonic()
    assert len(wire.reader.take(10)[0]) == 1
    assert wire.reader.taken_until_s() >= began_s


def test_lines_come_whole_however_they_are_cut_and_long_ones_just_above_the_bound(wire: Wire) -> None:
    lines = [b'{"type":"link","link":"%d"}' % i for i in range(20)]
    data, found = b"\n".join([*lines, b""]), []
    rng = random.Random(1)
    while data:
        size = rng.randint(1, 30)
        found += [line for _, line, *_ in wire.told(data[:size], data[:size].count(b"\n"))]
        data = data[size:]
    assert found == lines
    ((kind, line, *_),) = wire.told(b"x" * (MAX_LINE + 40))
    assert (kind, len(line)) == (LINE, MAX_LINE + 1)


def test_columns_of_decoded_reports_are_those_of_parsed_ones(wire: Wire) -> None:
    rng = random.Random(9)
    wire.refer_to_report(WHOLE)
    whole = parse_line(line_of(WHOLE))
    ours, reference, nodes = ReportColumns(), ReportColumns(), [f"n{i}" for i in range(30)]
    last = dict.fromkeys(nodes, whole)
    for columns in (ours, reference):
        for node in nodes[:20]:
            columns.take(node, whole, None, 0.0, follows=False)
    for i in range(20):
        # One of them may report for the first time: rows of all others may move.
        some, follows = rng.sample(nodes[: 20 + min(i, 10)], 12), [rng.random() < 0.8 for _ in range(12)]
        lines = [line_of({**changed(rng), "time_s": 2.0 + i}) for _ in some]
        told = [wire.told(line + b"\n")[0] for line in lines]
        decoded = [at for at, event in enumerate(told) if event[0] == CHANGES]
        befores = [last[some[at]] for at in decoded]
        for at in decoded:
            node, report = some[at], wire.whole.changed(parse_line(lines[at]))[0]
            reference.take(node, report, last[node], float(i), follows=follows[at])
            last[node] = report
        numbers = [told[at][3] for at in decoded]
        counts, text = [len(each) for each in numbers], b"".join(lines[at] for at in decoded)
        ends = [len(lines[at]) for at in decoded]
        events = np.zeros(len(decoded), EVENT)
        events["kind"], events["count"], events["length"] = CHANGES, counts, ends
        events["first"], events["line"] = np.cumsum(counts) - counts, np.cumsum(ends) - ends
        which = np.array([nodes.index(some[at]) for at in decoded])
        wholes = np.full(len(decoded), wire.whole, dtype=object)
        shapes = np.full(len(decoded), rng.choice([0, wire.whole.shape]))
        batch = Told(events, np.concatenate(numbers), text)
        reports = DecodedReports(nodes, which, shapes, batch, np.arange(len(decoded)), wholes=wholes)
        assert reports.report(0).report == last[some[decoded[0]]]
        times_s = np.array([before["time_s"] for before in befores])
        ours.take_decoded(reports, times_s, befores.__getitem__, float(i), np.array([follows[at] for at in decoded]))
        found, expected = (columns.offers(float(i), 1.0).recent_mbps for columns in (ours, reference))
        np.testing.assert_array_equal(found, expected)
        assert_same_rows(ours, reference)


def assert_same_rows(ours: ReportColumns, reference: ReportColumns) -> None:
    """The same of all agents; where their rows are may differ."""
    for side in ("ingress", "egress"):
        for node, rows in reference.sides(side).items():
            own = ours.sides(side)[node]
            both = own, rows
            for tables, at, of in (("_flows", "flow_at", "row_of"), ("_paths", "path_at", "path_row_of")):
                mine, theirs = ([getattr(s, at) + row for row in getattr(s, of).values()] for s in both)
                for name in getattr(ours, tables).values:
                    values = [getattr(c, tables)[name] for c in (ours, reference)]
                    if name not in {"flow", "node"}:
                        np.testing.assert_array_equal(values[0][mine], values[1][theirs], err_msg=name)


def test_of_many_who_say_much_each_has_its_turn() -> None:
    reader = message_reader(MAX_LINE)
    if reader is None:
        pytest.skip("the library is not built")
    wires = {wire.number: wire for wire in (Wire(reader) for _ in range(40))}
    lines = [b'{"type":"link","link":"%d"}' % i for i in range(100)]
    try:
        for wire in wires.values():
            wire.device.sendall(b"\n".join([*lines, b""]))
        heard: dict[int, list[bytes]] = {number: [] for number in wires}
        until_s = time.monotonic() + 10.0
        while any(len(said) < len(lines) for said in heard.values()) and time.monotonic() < until_s:
            told, _ = reader.take(64)
            assert len(told) <= 64
            # Who is read goes on talking; the others are not kept waiting by that.
            for number in set(told.ids):
                wires[number].device.sendall(b'{"type":"ok"}\n')
            for i, number in enumerate(told.ids):
                heard[number].append(told.line(i))
        assert all(said[: len(lines)] == lines for said in heard.values())
    finally:
        for wire in wires.values():
            reader.remove(wire.number)
            wire.device.close()
            wire.ours.close()
