"""Counters of many sessions taken at once give the same as those of each by itself, in any order of events."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hyroads.controller.agents.changes import DECODED, DecodedReports, WholeReport
from hyroads.controller.agents.clients import ClientAccess
from hyroads.controller.agents.listeners import Radios
from hyroads.controller.agents.markers import SequenceMarkers
from hyroads.controller.agents.protocol import Hello, parse_line
from hyroads.controller.agents.server import STARTING_S, AgentServer
from hyroads.controller.agents.sessions import Session, SessionColumns
from hyroads.controller.agents.telemetry import DecodedReadings, RadioReport, WholeReading
from hyroads.controller.control.radio_table import RadioTable
from hyroads.controller.control.reports import TOGETHER_S, ReportRegistry
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.identity import DeviceTokens
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.framework.shared_poll import _Owners
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan, PlannedPath
from hyroads.controller.native.messages import CHANGES, EVENT, WHOLE, Told
from hyroads.controller.settings.controller import Timings

NODES = tuple(f"n{i}" for i in range(9))
TECHNOLOGIES = ("wifi", "plc", "laser")
MOST = 2**53 - 1
NEIGHBOUR = {"mac": "02:00:00:00:00:01", "loss": 0.0, "last_heard_ms": 3}


def told_of(events: Sequence[tuple[int, bytes, Sequence[float]]], owners: Sequence[int] | None = None) -> Told:
    """As the library gives it: of each event its kind, its line and its numbers."""
    columns = np.zeros(len(events), EVENT)
    counts, lengths = [len(numbers) for *_, numbers in events], [len(line) for _, line, _ in events]
    columns["kind"], columns["count"], columns["length"] = [kind for kind, *_ in events], counts, lengths
    columns["first"], columns["line"] = np.cumsum(counts) - counts, np.cumsum(lengths) - lengths
    columns["id"] = range(len(events)) if owners is None else owners
    values = np.array([value for *_, numbers in events for value in numbers], dtype=float)
    return Told(columns, values, b"".join(line for _, line, _ in events))


class Radio:
    """What a radio of one node says, with all that can be wrong with it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.reading = rng, WholeReading()
        self.time_s = rng.choice([0.0, 1000.0, 1e15 - 1e3])
        self.counters = dict.fromkeys(TECHNOLOGIES, (0, 0))

    def message(self, kind: str) -> dict[str, Any]:
        rng = self.rng
        step_s = rng.choices([0.1, 0.0, 3.0, -5.0, 1e6], [50, 2, 2, 1, 1])[0]
        self.time_s = min(1e15, max(0.0, self.time_s + step_s))
        for technology, (busy, active) in self.counters.items():
            us = rng.choices([100_000, 0, 10**12, -busy], [30, 2, 1, 1])[0]
            more = (round(us * rng.choices([0.5, 1.5], [9, 1])[0]), us)
            grown = (min(MOST, max(0, busy + more[0])), min(MOST, max(0, active + more[1])))
            self.counters[technology] = rng.choices([grown, (busy, active), (MOST, MOST)], [30, 3, 1])[0]
        of = [each.technology for each in self.reading.whole.interfaces] if self.reading.whole is not None else []
        if kind == "radio":
            of = list(rng.choice([*[TECHNOLOGIES[:2]] * 7, TECHNOLOGIES[:1], TECHNOLOGIES[1:], ()]))
        rows = [{"technology": k, "busy_us": self.counters[k][0], "active_us": self.counters[k][1]} for k in of]
        told = [{**row, "neighbours": [NEIGHBOUR]} for row in rows]
        return {"type": kind, "seq": None, "time_s": self.time_s, "interfaces": told if kind == "radio" else rows}

    def decoded(self) -> list[float]:
        message = self.message("radio-changes")
        counters = [float(row[key]) for row in message["interfaces"] for key in ("busy_us", "active_us")]
        return [message["time_s"], *counters]


def radios_say(table: RadioTable, radios: Mapping[str, Radio], now_s: float) -> list[Any]:
    """All that a table says."""
    table.judge(0.0)
    places = [(node, technology) for node in NODES for technology in TECHNOLOGIES]
    return [
        [set(table.flags(node, now_s)) for node in NODES],
        [
            (table.readings(at), table.neighbours(at), table.age_s(at, now_s), table.is_fresh(at, now_s))
            for at in places
        ],
    ]


@pytest.mark.parametrize("seed", range(4))
def test_readings_taken_at_once_are_those_taken_one_by_one(seed: int) -> None:
    rng, now_s = random.Random(seed), 0.0
    declared = frozenset((node, technology) for node in NODES[:8] for technology in TECHNOLOGIES[:2])
    ours, reference = RadioTable(declared), RadioTable(declared)
    radios: dict[str, Radio] = {}
    at_once = usual = 0
    for _ in range(60):
        now_s += rng.choice([0.01, 0.1, 0.1, 0.7])
        for node in NODES:
            what = rng.random()
            if what < 0.03 or node not in radios:
                if rng.random() < 0.3:
                    continue
                radios[node], boot = Radio(rng), rng.choice(["a", "a", "b"])
                for table in (ours, reference):
                    table.up(node, boot, now_s)
            elif what < 0.04:
                for table in (ours, reference):
                    table.down(node, now_s)
            if radios[node].reading.whole is None or what > 0.97:
                report: RadioReport = radios[node].reading.take(
                    parse_line(json.dumps(radios[node].message("radio")).encode())
                )
                for table in (ours, reference):
                    table.report(node, report, now_s)
            elif what > 0.93:
                # Neighbours that differ from the whole reading; those of the next message do not.
                message = radios[node].message("radio-changes")
                for row in message["interfaces"]:
                    row["neighbours"] = [{**NEIGHBOUR, "last_heard_ms": 77}]
                report = radios[node].reading.changed(parse_line(json.dumps(message).encode()))
                for table in (ours, reference):
                    table.report(node, report, now_s)
        some = [node for node in rng.sample(NODES, rng.randint(1, len(NODES))) if node in radios]
        numbers = [radios[node].decoded() for node in some]
        for node, each in zip(some, numbers, strict=True):
            reference.report(node, radios[node].reading.decoded(each), now_s)
        readings = DecodedReadings(
            NODES, np.array([NODES.index(node) for node in some], dtype=np.intp),
            np.array([radios[node].reading.shape for node in some], dtype=np.int64),
            told_of([(CHANGES, b"", each) for each in numbers]), np.arange(len(some)),
            reading=lambda i: radios[some[i]].reading,  # noqa: B023 - asked for at once
        )  # fmt: skip
        known = [ours._nodes[node].number for node in some]
        usual += int((ours._shapes[known] == readings.shapes).sum())
        at_once += len(some)
        ours.readings_came(readings, now_s)
        assert radios_say(ours, radios, now_s) == radios_say(reference, radios, now_s)
        if rng.random() < 0.5:
            assert [str(fresh) for fresh in ours.take(now_s)] == [str(fresh) for fresh in reference.take(now_s)]
    # Most are what the columns are for, and by far not all.
    assert 0.4 < usual / at_once < 0.9


class Agent:
    """What the agent of one node says."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.time_s = rng, rng.choice([1.0, 1e9])
        self.whole = WholeReport()
        self.document: dict[str, Any] = {}

    def _counter(self) -> float | None:
        counters = [self.rng.randrange(10**6), None, 2**53 + 1, 1e300, 0, 1.5]
        return self.rng.choices(counters, [30, 1, 1, 1, 2, 2])[0]

    def _path(self, number: int, *names: str) -> dict[str, Any]:
        return {"id": number, **{name: self._counter() for name in names}}

    def _side(self, side: str, shape: Sequence[tuple[int, Sequence[int]]]) -> list[dict[str, Any]]:
        names = ("sent_bytes", "sent_frames", "rate_mbps") if side == "ingress" else ("received_bytes",)
        counters = ("queued", "queued_bytes", "dropped") if side == "ingress" else ()
        return [
            {"number": number, **{name: self._counter() for name in counters},
             "paths": [self._path(path, *names) for path in paths]}
            for number, paths in shape
        ]  # fmt: skip

    def report(self, *, as_before: bool) -> dict[str, Any]:
        """A whole one, about the same flows and paths as before or others."""
        rng = self.rng
        self.time_s += rng.choices([0.1, 0.0004, 0.0, -3.0], [20, 2, 1, 1])[0]
        sides = {}
        for side in ("ingress", "egress"):
            shape = [(flow["number"], [path["id"] for path in flow["paths"]]) for flow in self.document.get(side, ())]
            if not as_before:
                numbers = rng.sample(range(16, 20), rng.randint(0, 3))
                shape = [(number, rng.sample(range(1, 5), rng.randint(0, 3))) for number in numbers]
            sides[side] = self._side(side, shape)
        self.document = {"type": "report", "seq": None, "time_s": self.time_s, "revision": 5, "links": [], **sides}
        return parse_line(json.dumps(self.document).encode())

    def changes(self) -> bytes:
        before = self.document
        report = self.report(as_before=True)
        # Changes refer to the last whole one.
        self.document = before
        sides = {side: report[side] for side in ("ingress", "egress")}
        return json.dumps({"type": "changes", "time_s": self.time_s, **sides}).encode()


def numbers_of(report: Mapping[str, Any]) -> list[float]:
    """What the library decodes of a report."""
    sent, received = ([path for flow in report[side] for path in flow["paths"]] for side in ("ingress", "egress"))
    rows = zip((report["ingress"], sent, received, report["egress"]), DECODED, strict=True)
    values = [entry[name] for entries, names in rows for name in names for entry in entries]
    return [float("nan") if value is None else float(value) for value in (report["time_s"], *values)]


def plan_of(rng: random.Random) -> Plan:
    flows = {}
    for number in range(16, 20):
        source, target = rng.sample(NODES, 2)
        paths = tuple(PlannedPath(i, (f"l{i}", f"m{i}"), (i,), 1.0) for i in range(1, 4))
        name = f"f{number}"
        flows[name] = FlowPlan(FlowSpec(name, source, target), number, MULTIPATH, None, source, target, paths)
    return Plan(1, flows, {}, {}, Numbers())


def totals(registry: ReportRegistry) -> list[object]:
    """What the traffic meter is told of the plan that was measured."""
    told = registry.totals(1.0)
    counts = told.sent, told.received, told.delivered, told.lost
    return [list(told.flows.items()), told.delay_ms.tolist(), *(each.rows.tolist() for each in counts)]


def registry_says(registry: ReportRegistry, plan: Plan) -> str:
    """All that it says of reports; nan and None are told apart."""
    document = registry.document(plan)
    latest = [(node, age_s, dict(report)) for node, age_s, report in registry.latest()]
    sides = [
        registry.side(node, side, number) for node in NODES for side in ("ingress", "egress") for number in (16, 17)
    ]
    both = [({**(side.entry or {})}, {**(side.before or {})}, side.elapsed_s) for side in sides]
    return repr((document, latest, both, totals(registry)))


@pytest.mark.parametrize("seed", range(4))
def test_reports_taken_at_once_are_those_taken_one_by_one(seed: int) -> None:
    rng, now = random.Random(seed), [0.0]
    ours, reference = (ReportRegistry(lambda: now[0]) for _ in range(2))
    agents = {node: Agent(rng) for node in NODES}
    plan = plan_of(rng)
    for turn in range(40):
        now[0] += rng.choice([0.001, 0.1, 0.1, 1.3])
        for node, agent in agents.items():
            what = rng.random()
            if not agent.document or what < 0.05:
                report = agent.report(as_before=bool(agent.document) and rng.random() < 0.3)
                agent.whole = WholeReport()
                agent.whole.take(report)
                assert agent.whole.shape > 0
                for registry in (ours, reference):
                    registry.take(node, report)
            elif what < 0.07:
                for registry in (ours, reference):
                    registry.forget(node)
            elif what < 0.1:
                # One that was asked for: changes go on to refer to the last one that was not.
                before = agent.document
                asked, agent.document = agent.report(as_before=rng.random() < 0.5), before
                for registry in (ours, reference):
                    registry.take(node, asked)
            elif what < 0.12:
                part = {**agent.report(as_before=True), "more": True}
                # What is told at the same time would be the rest of it.
                agent.time_s += 5.0
                for registry in (ours, reference):
                    registry.take(node, part)
        some, events, shapes = rng.sample(NODES, rng.randint(1, len(NODES))), [], []
        for node in some:
            agent = agents[node]
            if rng.random() < 0.2:
                report = agent.report(as_before=True)
                line, kind = json.dumps(agent.document).encode(), WHOLE
                agent.whole = agent.whole.again(line)
            else:
                line, kind = agent.changes(), CHANGES
                report = agent.whole.changed(parse_line(line))[0]
            reference.take(node, report)
            events.append((kind, line, numbers_of(report)))
            shapes.append(agent.whole.shape if rng.random() < 0.95 else 0)
        wholes = np.full(len(some), None, dtype=object)
        wholes[:] = [agents[node].whole for node in some]
        places = np.array([NODES.index(node) for node in some], dtype=np.intp)
        ours.take_decoded(
            DecodedReports(
                NODES, places, np.array(shapes, dtype=np.int64), told_of(events), np.arange(len(some)), wholes=wholes
            )
        )
        rates, wanted = (registry.measured(plan) for registry in (ours, reference))
        assert dict(rates.path_mbps) == dict(wanted.path_mbps)
        assert dict(rates.offers) == dict(wanted.offers) and dict(rates.frame_bytes) == dict(wanted.frame_bytes)
        if turn % 3 == 0:
            assert registry_says(ours, plan) == registry_says(reference, plan)
            for node, _, report in ours.latest():
                for number in (flow["number"] for flow in report["ingress"]):
                    assert ours.side(node, "ingress", number).entry in report["ingress"]


def test_a_silent_agent_keeps_nothing_of_others() -> None:
    """Else what each of thousands has said last would keep the reports of all others that came with it."""
    rng, now = random.Random(3), [0.0]
    registry, agents = ReportRegistry(lambda: now[0]), {node: Agent(rng) for node in NODES[:3]}
    for node, agent in agents.items():
        agent.whole.take(agent.report(as_before=False))
        registry.take(node, agent.whole.complete())

    def say(*nodes: str) -> None:
        events = [(CHANGES, line, numbers_of(agents[node].whole.changed(parse_line(line))[0]))
                  for node, line in ((node, agents[node].changes()) for node in nodes)]  # fmt: skip
        wholes = np.full(len(nodes), None, dtype=object)
        wholes[:] = [agents[node].whole for node in nodes]
        places, shapes = [NODES.index(node) for node in nodes], [agents[node].whole.shape for node in nodes]
        registry.take_decoded(
            DecodedReports(
                NODES, np.array(places), np.array(shapes), told_of(events), np.arange(len(nodes)), wholes=wholes
            )
        )

    say("n0", "n1")
    say("n0", "n1")
    for _ in range(5):
        now[0] += TOGETHER_S / 4
        say("n1")
    reports = registry._reports
    assert not any(isinstance(each, DecodedReports) for each in (reports._last[0], reports._before[0]))
    assert isinstance(reports._last[1], DecodedReports)
    assert registry.side("n0", "ingress", 16).before == reports.flows_before(0).get(("ingress", 16))


class Listener:
    """Writes down what the server says of decoded numbers; what agents say of links may end sessions."""

    def __init__(self, rng: random.Random) -> None:
        self.told: list[Any] = []
        self.is_starting, self._rng = False, rng

    def agent_misbehaved(self, peer: str, what: str) -> None:
        raise AssertionError(what)

    def agent_links(self, session: Session, up: Mapping[str, bool]) -> None:
        self.told.append(("links", session.node))
        if session.peer == "refused":
            raise ValueError("no such link")
        if session.peer == "ended":
            session.close("test")

    def agent_up(self, session: Session) -> None:
        self.told.append(("up", session.node))

    def agent_reports(self, reports: DecodedReports) -> None:
        self.told.append([
            (node, time_s, reports.numbers(i).tolist(), reports.told.kinds[reports.events[i]], shape, whole._line)
            for i, (node, time_s, shape, whole) in enumerate(
                zip(reports.nodes, reports.times_s.tolist(), reports.shapes.tolist(), reports.wholes, strict=True)
            )
        ])  # fmt: skip

    def radio_readings(self, readings: DecodedReadings) -> None:
        self.told.append([(node, readings.numbers(i).tolist(), readings.reading(i).shape == readings.shapes[i])
                          for i, node in enumerate(readings.nodes)])  # fmt: skip


class Room:
    """Sessions of agents and radios that the library reads, all of them in any state."""

    def __init__(self, seed: int) -> None:
        self.rng, self.now_s = random.Random(seed), 5.0
        self.listener: Any = Listener(self.rng)
        self.server = AgentServer(
            self.listener, frozenset(NODES), Timings(), DeviceTokens(), lambda: self.now_s,
            radios=Radios(self.listener, self.listener, frozenset(NODES), 100), markers=SequenceMarkers(),
            clients=ClientAccess(self.listener, {}),
        )  # fmt: skip
        self.failed: list[str] = []
        self.sessions = [self._session(node, role) for node in NODES for role in ("agent", "radio")]
        self.rng.shuffle(self.sessions)
        columns, place_of = self.server._columns, self.server._place_of
        self.inside = [session.among(columns, place_of[session.node]) for session in self.sessions]
        self.rows = [each.__enter__() for each in self.inside]

    def _session(self, node: str, role: str) -> Session:
        peer = self.rng.choices(["fine", "refused", "ended"], [8, 1, 1])[0]
        connection = SimpleNamespace(shutdown=lambda how: None, close=lambda: None)
        session = Session(Hello(node, "x", node, None, 0, role), peer, connection, lambda: self.now_s)
        session.fail = lambda end, error: self.failed.append(node)  # type: ignore[method-assign]
        if self.rng.random() < 0.8:
            session.join()
        if role == "agent":
            agent = Agent(self.rng)
            session.whole.take(agent.report(as_before=False))
            session.use_shape(session.whole.shape)
        else:
            session.reading.take(parse_line(json.dumps(Radio(self.rng).message("radio")).encode()))
            session.use_shape(session.reading.shape)
        if self.rng.random() < 0.1:
            session.close("test")
        return session

    def one_by_one(self, told: Told, rows: Sequence[int]) -> list[Any]:
        """What the server is to say, and to do to sessions: the reference."""
        by_row = dict(zip(self.rows, self.sessions, strict=True))
        readings, reports, links, ups = [], [], [], []
        closed, sheds = {row for row in rows if by_row[row].closed}, self.listener.is_starting
        heard, skips = {}, {row: session.skip_until_s for row, session in by_row.items()}
        lines: dict[int, bytes | None] = {}
        for i, row in enumerate(rows):
            session, kind = by_row[row], told.kinds[i]
            if row in closed:
                continue
            heard[row] = self.now_s
            if sheds and kind == CHANGES:
                if self.now_s < skips[row]:
                    continue
                skips[row] = self.now_s + STARTING_S
            if session.is_radio:
                readings.append((session.node, told.numbers(i).tolist(), True))
                continue
            if kind == WHOLE:
                links.append(("links", session.node))
                lines[row] = told.line(i)
                closed |= {row} if session.peer == "ended" else set()
                if session.peer == "refused" or list(rows[i + 1 : i + 2]) == [row]:
                    continue
            reports.append((i, row))
        told_of_reports = [
            (
                by_row[row].node,
                told.numbers(i)[0],
                told.numbers(i).tolist(),
                told.kinds[i],
                by_row[row].whole.shape,
                lines.get(row),
            )
            for i, row in reports
        ]
        for _, row in reports:
            if not by_row[row].joined and row not in closed:
                ups.append(("up", by_row[row].node))
        said = [*links, *([readings] if readings else []), *([told_of_reports] if reports else []), *ups]
        return [said, heard, skips]


@pytest.mark.parametrize("seed", range(6))
def test_the_server_tells_of_many_at_once_what_it_would_tell_of_each(seed: int) -> None:
    room = Room(seed)
    columns, rng = room.server._columns, room.rng
    for turn in range(12):
        room.now_s += rng.choice([0.1, 0.3, 0.6])
        room.listener.is_starting = turn % 3 == 2
        events, rows = [], []
        for session, row in rng.sample(list(zip(room.sessions, room.rows, strict=True)), rng.randint(1, 12)):
            kinds = [CHANGES] if session.is_radio else rng.choice([[CHANGES], [CHANGES], [WHOLE], [WHOLE, CHANGES]])
            for kind in kinds:
                events.append((kind, b'{"%d": %d}' % (turn, row), [room.now_s + kind, *[1.0] * rng.randint(0, 3)]))
                rows.append(row)
        told = told_of(events, rows)
        # Nobody asks here for more of whole reports than which they are.
        for session in room.sessions:
            session.whole._line = None
        said, heard, skips = room.one_by_one(told, rows)
        before = {row: columns.heard_s.item(row) for row in room.rows}
        room.server._take_numbers(np.array(rows, dtype=np.intp), told)
        assert room.listener.told == said
        assert {row: columns.heard_s.item(row) for row in room.rows} == {**before, **heard}
        assert {row: session.skip_until_s for row, session in zip(room.rows, room.sessions, strict=True)} == skips
        room.listener.told.clear()
    for each in room.inside:
        each.__exit__(None, None, None)
    assert all(session.columns is not columns for session in room.sessions)
    assert set(columns.whole.tolist()) == set(columns.session.tolist()) == {None}


def test_a_session_takes_with_it_what_is_known_of_it_and_its_row_is_used_again() -> None:
    columns, now_s = SessionColumns(), 3.0
    sessions = [Session(Hello(node, "x", node, None, 0), "p", SimpleNamespace(), lambda: now_s) for node in NODES]
    for session in sessions:
        session.heard_s, session.skip_until_s = 1.5, 2.5
        whole = session.whole
        with session.among(columns, 7) as row:
            assert session.heard_s == columns.heard_s[row] == 1.5 and columns.place[row] == 7
            assert columns.session[row] is session and columns.whole[row] is whole is session.whole
            columns.heard_s[row] = 2.0
            session.join()
            session.finish()
            assert columns.is_joined[row] and columns.is_closed[row]
        assert session.heard_s == 2.0 and session.skip_until_s == 2.5 and session.whole is whole
        assert row == 0 and len(columns.heard_s) == 1
    stack = [session.among(columns, 0) for session in sessions]
    assert sorted(each.__enter__() for each in stack) == list(range(len(sessions)))


def test_owners_are_found_by_the_numbers_of_sockets() -> None:
    rng, owners, known = random.Random(2), _Owners(), dict[int, int]()
    assert owners.of(np.array([1, 2])).tolist() == [-1, -1]
    for number in range(1, 60):
        owners.add(number, rng.randrange(9))
        known[number] = int(owners._owners[-1])
        if rng.random() < 0.4:
            gone = rng.choice(list(known))
            owners.remove(gone)
            del known[gone]
        asked = [rng.randrange(0, 70) for _ in range(20)]
        assert owners.of(np.array(asked)).tolist() == [known.get(each, -1) for each in asked]
