"""The library that reads devices' lines: it agrees with the Python parser, and keeps the order of what came."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hyroads.controller.agents.changes import WholeReport
from hyroads.controller.agents.protocol import ProtocolError, parse_line
from hyroads.controller.agents.telemetry import WholeReading
from hyroads.controller.control.report_columns import ReportColumns
from hyroads.controller.native.messages import CHANGES, END, LINE, PONG, MessageReader, message_reader

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


class Wire:
    """A socket that the library reads."""

    def __init__(self, reader: MessageReader) -> None:
        self.reader = reader
        self.device, self.ours = socket.socketpair()
        reader.add(self.ours.fileno(), b"")
        self.whole, self.reading = WholeReport(), WholeReading()

    def told(self, data: bytes) -> list[tuple[int, bytes, int, list[float]]]:
        self.device.sendall(data)
        return self.read()

    def read(self) -> list[tuple[int, bytes, int, list[float]]]:
        _, events = self.reader.poll()
        return [(kind, line, number, numbers.tolist()) for _, kind, line, number, numbers in events]

    def refer_to_report(self, report: dict[str, Any]) -> None:
        self.whole.take(parse_line(line_of(report)))
        assert self.whole.columns is not None
        self.reader.refer_to_report(self.ours.fileno(), *self.whole.columns[1:])

    def refer_to_reading(self) -> None:
        self.reading.take(parse_line(line_of(READING)))
        assert self.reading.technologies is not None
        self.reader.refer_to_reading(self.ours.fileno(), self.reading.technologies)


@pytest.fixture
def wire() -> Iterator[Wire]:
    reader = message_reader(MAX_LINE)
    if reader is None:
        pytest.skip("the library is not built")
    found = Wire(reader)
    yield found
    reader.remove(found.ours.fileno())
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
    egress = [{"number": rng.choices((9, 10), (20, 1))[0], "paths": [path(2, "received_bytes", "delay_ms", "passed")]}]
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
    rows = [(report["ingress"], ("queued", "queued_bytes", "dropped"))]
    rows += [(sent, ("sent_bytes", "sent_frames", "rate_mbps")), (received, ("received_bytes",))]
    values = [entry[name] for entries, names in rows for name in names for entry in entries]
    return [float("nan") if value is None else float(value) for value in values]


@pytest.mark.parametrize("share_mutated", [0.0, 0.7])
def test_whatever_is_decoded_has_the_values_of_the_python_parser(wire: Wire, share_mutated: float) -> None:
    rng = random.Random(5)
    wire.refer_to_report(WHOLE)
    decoded = refused = 0
    for _ in range(4000):
        line = line_of(changed(rng))
        if rng.random() < share_mutated:
            line = mutated(line, rng)
        ((kind, told, _, numbers),) = wire.told(line + b"\n")
        if kind == CHANGES:
            decoded += 1
            report, links = wire.whole.changed(parse_line(line))
            assert links == []
            assert not report["more"]
            np.testing.assert_array_equal(numbers, [report["time_s"], *columns_of(report)])
            assert wire.whole.decoded(line, np.array(numbers)).report == report
        else:
            assert (kind, told) == (LINE, line)
            try:
                wire.whole.changed(parse_line(line))
            except (ProtocolError, KeyError):
                refused += 1
            if b"report" in line or b"\\" in line or b'radio"' in line:
                wire.refer_to_report(WHOLE)
    assert decoded > 800
    assert refused > 300


def test_readings_that_are_decoded_are_those_of_the_python_parser(wire: Wire) -> None:
    rng = random.Random(6)
    wire.refer_to_reading()
    decoded = 0
    for _ in range(4000):
        counters = [rng.choices((0, 17, 2**53 - 1, 2**53 + 1, 2**63), (9, 9, 9, 1, 1))[0] for _ in range(4)]
        rows = [{"technology": t, "busy_us": counters[i], "active_us": counters[i + 1]} for i, t in
                enumerate(("w5", "w2"))]  # fmt: skip
        line = line_of({"type": "radio-changes", "time_s": rng.choice((1.5, 7, 1e15)), "interfaces": rows})
        if rng.random() < 0.6:
            line = mutated(line, rng)
        ((kind, told, _, numbers),) = wire.told(line + b"\n")
        if kind == CHANGES:
            decoded += 1
            assert wire.reading.decoded(numbers) == wire.reading.changed(parse_line(line))
        else:
            assert told == line
            wire.refer_to_reading()
    assert decoded > 300


def test_lines_and_the_end_keep_their_order(wire: Wire) -> None:
    wire.refer_to_report(WHOLE)
    down, answer = b'{"type":"link","link":"a","up":false}', b'{"type":"ok","seq":3}'
    first, second, third = (line_of({"type": "changes", "time_s": t}) for t in (2, 3, 4))
    told = wire.told(b"\n".join([first, down, second, third, answer, b'{"type": "pong", "seq": 9}', first, b""]))
    assert [kind for kind, *_ in told] == [CHANGES, LINE, CHANGES, LINE, PONG, CHANGES]
    assert [line for kind, line, *_ in told if kind == LINE] == [down, answer]
    # The second was replaced by the third, the first was not: the link's state lies between.
    assert [numbers[0] for kind, _, _, numbers in told if kind == CHANGES] == [2, 4, 2]
    assert told[4][2] == 9
    wire.device.sendall(down + b"\n" + answer[:5])
    wire.device.close()
    assert [kind for kind, *_ in wire.read() + wire.read()] == [LINE, END]


def test_after_a_whole_report_nothing_is_decoded_by_the_old_one(wire: Wire) -> None:
    wire.refer_to_report(WHOLE)
    changes = line_of({"type": "changes", "time_s": 2})
    told = wire.told(line_of(WHOLE) + b"\n" + changes + b"\n")
    assert [kind for kind, *_ in told] == [LINE, LINE]
    wire.refer_to_report(WHOLE)
    assert [kind for kind, *_ in wire.told(changes + b"\n")] == [CHANGES]


def test_lines_come_whole_however_they_are_cut_and_long_ones_just_above_the_bound(wire: Wire) -> None:
    lines = [b'{"type":"link","link":"%d"}' % i for i in range(20)]
    data, found = b"\n".join([*lines, b""]), []
    rng = random.Random(1)
    while data:
        size = rng.randint(1, 30)
        found += [line for _, line, *_ in wire.told(data[:size])]
        data = data[size:]
    assert found == lines
    ((kind, line, *_),) = wire.told(b"x" * (MAX_LINE + 40))
    assert (kind, len(line)) == (LINE, MAX_LINE + 1)


def test_columns_are_the_same_from_decoded_and_from_parsed_reports(wire: Wire) -> None:
    rng = random.Random(8)
    wire.refer_to_report(WHOLE)
    whole = parse_line(line_of(WHOLE))
    ours, reference = ReportColumns(), ReportColumns()
    before: tuple[Any, Any] = (whole, whole)
    for columns in (ours, reference):
        columns.take("a", whole, None, 0.0, follows=False)
    taken = 0
    for i in range(300):
        line = line_of({**changed(rng), "time_s": 2.0 + i})
        ((kind, _, _, numbers),) = wire.told(line + b"\n")
        if kind != CHANGES:
            continue
        taken += 1
        reports = wire.whole.decoded(line, np.array(numbers)), wire.whole.changed(parse_line(line))[0]
        for columns, report, old in zip((ours, reference), reports, before, strict=True):
            columns.take("a", report, old, float(i), follows=True)
        before = reports
        np.testing.assert_array_equal(ours.path_rates(float(i), 1.0), reference.path_rates(float(i), 1.0))
        for side in ("_paths", "_flows"):
            for name, column in getattr(ours, side).values.items():
                np.testing.assert_array_equal(column, getattr(reference, side)[name], err_msg=name)
    assert taken > 50


def test_columns_of_many_agents_at_once_are_those_of_one_after_the_other(wire: Wire) -> None:
    rng = random.Random(9)
    wire.refer_to_report(WHOLE)
    whole = parse_line(line_of(WHOLE))
    ours, reference, nodes = ReportColumns(), ReportColumns(), [f"n{i}" for i in range(30)]
    last = dict.fromkeys(nodes, (whole, whole))
    for columns in (ours, reference):
        for node in nodes[:20]:
            columns.take(node, whole, None, 0.0, follows=False)
    for i in range(12):
        # Ten of them report for the first time: rows of all others move.
        some, many = rng.sample(nodes[: 20 + i], 12), []
        for node in some:
            line, follows = line_of({"type": "changes", "time_s": 2.0 + i, "egress": []}), rng.random() < 0.8
            line = line_of({**json.loads(line), "ingress": [{"number": 7, "queued": rng.randrange(99)}]})
            ((kind, _, _, numbers),) = wire.told(line + b"\n")
            assert kind == CHANGES
            reports = wire.whole.decoded(line, np.array(numbers)), wire.whole.changed(parse_line(line))[0]
            many.append((node, reports[0], last[node][0], float(i), follows))
            reference.take(node, reports[1], last[node][1], float(i), follows=follows)
            last[node] = reports
        ours.take_decoded(many)
        for side in ("ingress", "egress"):
            for node, rows in reference.sides(side).items():
                own, numbers_of = ours.sides(side)[node], (rows.row_of, rows.path_row_of)
                for mine, theirs, tables in zip(
                    (own.row_of, own.path_row_of), numbers_of, ("_flows", "_paths"), strict=True
                ):
                    for name in getattr(ours, tables).values:
                        values = [getattr(c, tables)[name] for c in (ours, reference)]
                        if name not in {"flow", "node"}:
                            np.testing.assert_array_equal(
                                values[0][list(mine.values())], values[1][list(theirs.values())], err_msg=name
                            )


def test_of_many_who_say_much_each_has_its_turn() -> None:
    reader = message_reader(MAX_LINE)
    if reader is None:
        pytest.skip("the library is not built")
    wires = [Wire(reader) for _ in range(40)]
    lines = [b'{"type":"link","link":"%d"}' % i for i in range(100)]
    try:
        for wire in wires:
            wire.device.sendall(b"\n".join([*lines, b""]))
        heard: dict[int, list[bytes]] = {wire.ours.fileno(): [] for wire in wires}
        batches = 0
        while (polled := reader.poll())[0]:
            told = list(polled[1])
            batches += 1
            # Who is read goes on talking; the others are not kept waiting by that.
            for descriptor in {event[0] for event in told}:
                next(wire for wire in wires if wire.ours.fileno() == descriptor).device.sendall(b'{"type":"ok"}\n')
            assert len(told) <= 256 + len(lines)
            for descriptor, _, line, *_ in told:
                heard[descriptor].append(line)
            if batches == 14:
                break
        assert all(said[: len(lines)] == lines for said in heard.values())
    finally:
        for wire in wires:
            reader.remove(wire.ours.fileno())
            wire.device.close()
            wire.ours.close()
