"""Reports as columns say the same as report by report and entry by entry."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import reports_by_flow
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.control.reports import ReportRegistry
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.growth import Counts
from hyroads.controller.core.network import FlowSpec, Policy
from hyroads.controller.core.path_columns import MeteredPath, Totals
from hyroads.controller.model.handover import Use
from hyroads.controller.model.plan import MULTIPATH, SINGLE, FlowPlan, Plan, PlannedPath

NODES = "abc"


class World:
    """Agents that report what a random number generator says, and plans of the flows between them."""

    def __init__(self, seed: int) -> None:
        self.rng, self.now_s = random.Random(seed), 0.0
        self.registry = ReportRegistry(lambda: self.now_s)
        self.told: dict[str, list[dict[str, Any]]] = {}
        self.taken_s: dict[str, float] = {}
        self.plan = self.planned()

    def planned(self) -> Plan:
        flows = {}
        for number in self.rng.sample(range(16, 24), 5):
            ends = self.rng.sample(NODES, 2)
            ids = self.rng.sample(range(1, 5), self.rng.randint(1, 3))
            policy = self.rng.choice([Policy.AUTO, Policy.LATENCY])
            copies = self.rng.random() < 0.2
            of = {i: ids[0] if copies and i != ids[0] else None for i in ids}
            paths = tuple(PlannedPath(i, (f"l{i}", f"m{i}"), (i,), 1.0, copied_from=of[i]) for i in ids)
            use = Use(tuple(range(len(ids))), copies=True) if copies else None
            mode = self.rng.choice([MULTIPATH, MULTIPATH, MULTIPATH, SINGLE])
            name = f"f{number}"
            spec = FlowSpec(name, *ends, policy=policy)
            flows[name] = FlowPlan(spec, number, mode, None, *ends, paths, use=use)
        return Plan(1, flows, {}, {}, Numbers())

    def number(self, *, least: int = 0, most: int = 10**6) -> int | None:
        return None if self.rng.random() < 0.05 else self.rng.randint(least, most)

    def entry(self, side: str, number: int, before: dict[str, Any] | None) -> dict[str, Any]:
        known = {path["id"]: path for path in before["paths"]} if before else {}
        ids = list(known) if known and self.rng.random() < 0.8 else self.rng.sample(range(1, 5), self.rng.randint(1, 4))
        bytes_name = "sent_bytes" if side == "ingress" else "received_bytes"
        paths = []
        for i in ids:
            was = known.get(i, {}).get(bytes_name) or 0
            path: dict[str, Any] = {"id": i, bytes_name: self.number(least=was, most=was + 10**5)}
            if side == "ingress":
                frames = known.get(i, {}).get("sent_frames") or 0
                path["sent_frames"] = self.number(least=frames, most=frames + 500)
                path["rate_mbps"] = self.rng.choice([None, 0.0, 1.5, 20.25])
            else:
                path |= {"received_frames": self.number(), "delay_ms": self.rng.choice([None, 0.0, 2.5])}
            paths.append(path)
        names = ("queued", "queued_bytes", "dropped")
        if side == "egress":
            names = ("delivered_bytes", "delivered_frames", "lost")
        most = {"queued": 30, "queued_bytes": 9000, "dropped": 3}
        return {"number": number, "paths": paths, **{name: self.number(most=most.get(name, 10**6)) for name in names}}

    def report(self, node: str) -> None:
        before = self.told.get(node, [{}])[-1]
        report: dict[str, Any] = {"time_s": self.now_s + 1000.0, "more": False, "links": []}
        for side in ("ingress", "egress"):
            last = {entry["number"]: entry for entry in before.get(side, ())}
            again = last and self.rng.random() < 0.7
            numbers = list(last) if again else self.rng.sample(range(16, 24), self.rng.randint(0, 6))
            report[side] = [self.entry(side, number, last.get(number)) for number in numbers]
        self.told.setdefault(node, []).append(report)
        self.taken_s[node] = self.now_s
        self.registry.take(node, report)

    def happen(self, kind: str) -> None:
        node = self.rng.choice(NODES)
        if kind == "forget":
            self.registry.forget(node)
            self.told.pop(node, None)
        elif kind == "plan":
            self.plan = self.planned()
        elif kind == "rates":
            flows = {name: replace(flow, paths=tuple(replace(p, rate_mbps=2.0) for p in flow.paths))
                     for name, flow in self.plan.flows.items()}  # fmt: skip
            self.plan = replace(self.plan, flows=flows)
        elif kind == "turn":
            flows = {name: replace(flow, ingress=flow.egress, egress=flow.ingress)
                     for name, flow in self.plan.flows.items()}  # fmt: skip
            self.plan = replace(self.plan, flows=flows, structure=object())
        else:
            self.now_s += {"report": 0.1, "soon": 0.0004, "late": 1.5}[kind]
            self.report(node)


KINDS = st.lists(st.sampled_from(["report"] * 6 + ["soon", "late", "forget", "plan", "rates", "turn"]), max_size=40)


@examples(120, quick=20)
@given(seed=st.integers(0, 2**32), kinds=KINDS)
def test_columns_say_what_the_entries_say(seed: int, kinds: list[str]) -> None:
    world = World(seed)
    for kind in kinds:
        world.happen(kind)
        found = world.registry.measured(world.plan)
        wanted = reports_by_flow.measured(world.registry, world.plan)
        assert dict(found.path_mbps) == dict(wanted.path_mbps)
        assert dict(found.offers) == dict(wanted.offers)
        assert dict(found.frame_bytes) == dict(wanted.frame_bytes)
        told = world.registry.totals(1.0)
        assert counters(told) == {key: total for key, total in entries(world).items() if total is not None}
        assert list(told.flows) == [name for name, flow in world.plan.flows.items() if flow.mode == MULTIPATH]
        assert all(paths == metered(world.plan.flows[name]) for name, paths in told.flows.items())


def test_rows_move_when_there_is_no_room() -> None:
    world = World(1)
    for _ in range(300):
        world.happen("report")
    assert (
        dict(world.registry.measured(world.plan).path_mbps)
        == reports_by_flow.measured(world.registry, world.plan).path_mbps
    )


Key = tuple[str, str, int]
"""Flow, side, path; path 0 stands for what the flow delivered."""
Total = tuple[float, float, float, float | None]
"""The agent's clock, bytes, frames, and the delay of a path or how many frames of a flow are lost."""
NAMES = {"ingress": ("sent_bytes", "sent_frames", ""), "egress": ("received_bytes", "received_frames", "delay_ms")}


def counters(told: Totals) -> dict[Key, Total]:
    """What the traffic meter is told of all flows and paths."""
    paths = [(flow, path.id) for flow, of in told.flows.items() for path in of]
    nothing = [None] * len(paths)
    delays = [None if value != value else value for value in told.delay_ms.tolist()]
    sides = [
        ([(flow, "ingress", path) for flow, path in paths], told.sent, nothing),
        ([(flow, "egress", path) for flow, path in paths], told.received, delays),
        ([(flow, "egress", 0) for flow in told.flows], told.delivered, told.lost.frames.tolist()),
    ]
    assert told.lost.told.tolist() == told.delivered.told.tolist()
    return {key: total for each in sides for key, total in _told(*each)}


def _told(keys: list[Key], of: Counts, others: list[Any]) -> list[tuple[Key, Total]]:
    values = zip(keys, *of.rows.tolist(), others, of.told.tolist(), strict=True)
    return [(key, tuple(total)) for key, *total, is_told in values if is_told]  # type: ignore[misc]


def entries(world: World) -> dict[Key, Total | None]:
    """The same from the last reports."""
    found: dict[Key, Total | None] = {}
    for name, plan in world.plan.flows.items():
        for side, node in (("ingress", plan.ingress), ("egress", plan.egress)):
            if plan.mode != MULTIPATH or world.taken_s.get(node or "", -1.0) < world.now_s - 1.0:
                continue
            report = world.told.get(node or "", [{"time_s": 0.0, side: ()}])[-1]
            flow = next((flow for flow in report[side] if flow["number"] == plan.number), {"paths": ()})
            planned = {path.id for path in plan.paths}
            for path in (path for path in flow["paths"] if path["id"] in planned):
                found[name, side, path["id"]] = total(report["time_s"], path, NAMES[side])
            if side == "egress" and flow.get("lost") is not None:
                found[name, side, 0] = total(report["time_s"], flow, ("delivered_bytes", "delivered_frames", "lost"))
    return found


def total(time_s: float, entry: dict[str, Any], names: tuple[str, str, str]) -> Total | None:
    octets, frames, other = (entry.get(name) for name in names)
    return None if octets is None or frames is None else (time_s, octets, frames, other)


def metered(plan: FlowPlan) -> tuple[MeteredPath, ...]:
    node, paths = plan.ingress or "", zip(plan.paths, plan.separate_links, strict=True)
    return tuple(
        MeteredPath(path.id, links, None if path.copied_from is not None else (node, path.links[0]))
        for path, links in paths
    )


def test_totals_stay_as_they_were_while_reports_come() -> None:
    world = World(3)
    for _ in range(30):
        world.happen("report")
    assert not world.registry.totals(1.0).flows, "nothing is measured yet"
    world.registry.measured(world.plan)
    told = world.registry.totals(1.0)
    before = counters(told)
    assert before
    for kind in ["report"] * 20 + ["forget", "report", "forget", "plan"]:
        world.happen(kind)
    # What is worked out of the columns is kept; it is worked out again.
    again = Totals(told.flows, *(replace(of) for of in (told.sent, told.received)), told.delay_ms,
                   *(replace(of) for of in (told.delivered, told.lost)))  # fmt: skip
    assert counters(again) == before
