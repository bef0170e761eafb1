"""Probes of interfering flows never overlap, nobody starves, and what can run does."""

from __future__ import annotations

from itertools import pairwise

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.bandit.probe_schedule import (
    ProbeRequest,
    ProbeSlot,
    ScheduleError,
    flow_conflicts,
    schedule,
)
from hyroads.controller.core.netfile import load_text

FLOWS = [f"f{i}" for i in range(7)]
pairs = st.sets(st.tuples(st.sampled_from(FLOWS), st.sampled_from(FLOWS)).filter(lambda p: p[0] < p[1]))


def graph(edges: set[tuple[str, str]]) -> dict[str, set[str]]:
    near: dict[str, set[str]] = {flow: set() for flow in FLOWS}
    for a, b in edges:
        near[a].add(b)
    return near


def clashes(edges: set[tuple[str, str]], probes: list[ProbeSlot]) -> list[tuple[ProbeSlot, ProbeSlot]]:
    both = edges | {(b, a) for a, b in edges}
    return [
        (p, q)
        for i, p in enumerate(probes)
        for q in probes[i + 1 :]
        if ((p.flow, q.flow) in both or p.flow == q.flow) and p.start < q.end and q.start < p.end
    ]


def test_interfering_flows_take_turns_oldest_first_and_others_run_beside() -> None:
    requests = [ProbeRequest("a", 3), ProbeRequest("b", 1), ProbeRequest("c", 2)]
    plan = schedule({"a": {"b"}}, requests, first=4, slots=5)
    assert {(p.flow, p.start) for p in plan} == {("b", 4), ("c", 4), ("a", 5)}


def test_a_younger_request_fills_a_gap_but_does_not_delay_an_older_one() -> None:
    running = [ProbeSlot("r", 0, 3)]
    conflicts = {"old": {"r", "young", "short"}}
    requests = [ProbeRequest("old", 0), ProbeRequest("short", 1, 2), ProbeRequest("young", 1, 3)]
    starts = {p.flow: p.start for p in schedule(conflicts, requests, 1, 9, running)}
    assert starts == {"short": 1, "old": 3, "young": 4}


def test_contradictory_requests_are_refused() -> None:
    with pytest.raises(ScheduleError):
        schedule({}, [ProbeRequest("a", 0), ProbeRequest("a", 1)], 0, 1)
    with pytest.raises(ScheduleError):
        schedule({}, [ProbeRequest("a", 0, 0)], 0, 1)


requests_of = st.dictionaries(st.sampled_from(FLOWS), st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1)


@examples(300)
@given(pairs, requests_of, st.dictionaries(st.sampled_from(FLOWS), st.integers(1, 4), max_size=2))
def test_never_overlapping_and_bounded_waiting(edges, wanted, busy) -> None:
    running = [ProbeSlot(flow, 0, length) for flow, length in busy.items()]
    if clashes(edges, running):
        running = running[:1]
    requests = [ProbeRequest(flow, since, length) for flow, (since, length) in wanted.items()]
    plan = list(schedule(graph(edges), requests, 0, 100, running))
    assert not clashes(edges, plan + running)
    assert {p.flow for p in plan} == set(wanted)
    starts = {p.flow: p.start for p in plan}
    rest = max((p.end for p in running), default=0)
    for request in requests:
        before = sum(r.slots for r in requests if (r.since, r.flow) < (request.since, request.flow))
        assert request.since <= starts[request.flow] <= max(rest, request.since) + before


@examples(200)
@given(pairs, st.dictionaries(st.sampled_from(FLOWS), st.integers(0, 5), min_size=1))
def test_probes_of_one_slot_wait_for_older_interfering_ones_only(edges, since) -> None:
    requests = [ProbeRequest(flow, at) for flow, at in since.items()]
    both = edges | {(b, a) for a, b in edges}
    for probe in schedule(graph(edges), requests, 0, 50):
        mine = (since[probe.flow], probe.flow)
        older = [f for f, at in since.items() if (at, f) < mine and (probe.flow, f) in both]
        assert probe.start - since[probe.flow] <= len(older)


@examples(50)
@given(pairs, st.integers(1, 3))
def test_flows_that_always_want_to_probe_get_fair_turns(edges, length) -> None:
    """Everyone asks again as soon as its probe is over; nobody gets more than one turn while a rival waits."""
    since = dict.fromkeys(FLOWS, 0)
    running: list[ProbeSlot] = []
    turns: list[ProbeSlot] = []
    for now in range(60):
        running = [p for p in running if p.end > now]
        requests = [ProbeRequest(f, since[f], length) for f in FLOWS if f not in {p.flow for p in running}]
        for probe in schedule(graph(edges), requests, now, 1, running):
            running.append(probe)
            turns.append(probe)
            since[probe.flow] = probe.end
    assert not clashes(edges, turns)
    for flow in FLOWS:
        starts = [p.start for p in turns if p.flow == flow]
        assert max(b - a for a, b in pairwise(starts)) <= length * (len(FLOWS) + 1)


def test_conflicts_of_flows_follow_from_the_links_they_use() -> None:
    network = load_text(
        """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: client}}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 15}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 30}
interference: {rule: technology}
""",
        "test",
    )
    found = flow_conflicts(network, {"plc": [0], "hybrid": [0, 2], "wifi": [1]})
    assert found == {"plc": {"hybrid"}, "hybrid": {"plc", "wifi"}, "wifi": {"hybrid"}}
