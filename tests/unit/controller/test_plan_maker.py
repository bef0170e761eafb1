"""A plan that shares what did not change with the one before is the plan that is made from nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from campus_loop import CampusLoop
from examples import examples
from handover_rig import NO_REPORTS, Rig
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.configs import AgentConfig
from hyroads.controller.control.plan_maker import PlanMaker
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.mappings import differing
from hyroads.controller.core.network import Place
from hyroads.controller.model.handover import Constrained
from hyroads.controller.model.plan import Options

PLACES = {
    "ac-wifi1": Place("a", "wifi1"),
    "bc-wifi2": Place("b", "wifi2"),
    "bc-plc": Place("b", "plc"),
    "xc-lte": Place("x", "lte"),
}

events = st.lists(
    st.one_of(
        st.tuples(st.just("go"), st.sampled_from(sorted(PLACES))),
        st.tuples(st.sampled_from(["cut", "mend"]), st.sampled_from(sorted(PLACES))),
        st.tuples(st.just("rest"), st.just("")),
        st.tuples(st.just("release"), st.just("")),
    ),
    max_size=8,
)


def happen(rig: Rig, kind: str, link: str) -> None:
    if kind == "go":
        rig.constrain({("c", None): Constrained((PLACES[link],), (PLACES[link],))})
    elif kind == "release":
        rig.constrain({("c", None): None})
    elif kind == "rest":
        rig.after(1.0)
    else:
        rig.link(link, kind == "mend")
    rig.step()


def from_nothing(rig: Rig):
    live = rig.live
    maker = PlanMaker(rig.context, Options())
    return maker.plan(rig.plan.version, live.network, live.loop.routes, live.loop.rates, rig.plan.numbers, None)


@examples(30)
@given(row=events)
def test_sharing_changes_nothing(row):
    rig = Rig()
    for kind, link in row:
        happen(rig, kind, link)
        fresh = from_nothing(rig)
        assert rig.plan.flows == fresh.flows and rig.plan.classified == fresh.classified
        assert rig.plan.agents == fresh.agents
        for config in rig.plan.agents.values():
            assert (
                config.revision == AgentConfig(config.hello, config.ingress, config.egress, media=config.media).revision
            )


@examples(20)
@given(row=events, keep=st.integers(0, 3), shift=st.sampled_from([0, 1, 100]))
def test_numbers_of_another_controller_are_taken_also_where_they_lack_paths(row, keep, shift):
    """A leader may have saved a flow before it had its paths; whoever follows has planned them."""
    rig = Rig()
    for kind, link in row:
        happen(rig, kind, link)
    numbers = rig.plan.numbers
    paths = {
        flow: {path: number + shift for path, number in list(ids.items())[:keep]}
        for flow, ids in numbers.paths.items()
        if keep
    }
    adopted = Numbers({flow: number + shift for flow, number in numbers.flows.items()}, paths)
    rig.live.adopt_numbers(adopted)
    plan = rig.live.replan(replace(rig.state, version=rig.state.version + 1), NO_REPORTS, rig.now_s)
    live = rig.live
    maker = PlanMaker(rig.context, Options())
    fresh = maker.plan(plan.version, live.network, live.loop.routes, live.loop.rates, adopted, None)
    assert plan.flows == fresh.flows and plan.agents == fresh.agents and plan.classified == fresh.classified
    for flow, ids in paths.items():
        assert ids.items() <= plan.numbers.paths[flow].items()


def test_switches_are_asked_nothing_new_when_a_client_moves():
    rig = Rig()
    before = rig.plan.classified
    happen(rig, "go", "ac-wifi1")
    happen(rig, "go", "xc-lte")
    assert rig.plan.classified is before


@pytest.mark.parametrize("value", [None, 2.0])
def test_a_path_that_is_shaped_or_not_is_another_configuration(value):
    flow = next(flow for config in Rig().plan.agents.values() for flow in config.ingress.values())
    now = {path.id: 1.0 for path in flow.paths}
    other = flow.with_rates({**now, flow.paths[0].id: value})
    assert flow.with_rates(now).is_like(other) == (value is not None)


VALUES = [object() for _ in range(3)]
mappings = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(VALUES))


@examples(200)
@given(before=mappings, after=mappings)
def test_what_differs_is_what_one_has_or_both_have_otherwise(before, after):
    expected = {key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)}
    assert differing(before, after) == expected


def test_rates_that_slots_gave_are_kept_by_the_next_plan(tmp_path: Path):
    """However rates came into force, with slots or with plans, a plan has those of the loop."""
    campus = CampusLoop(tmp_path, 33, 60)
    campus.settle()
    live, rng = campus.loop.live, random.Random(7)
    for spec in campus.specs(4, random.Random(3), "new", 30_000):
        campus.slot()
        link = rng.choice(campus.used())
        campus.cut(link)
        campus.slot()
        campus.declare(spec)
        campus.cut(link, up=True)
        # New flows have first rates until the next slot.
        campus.slot()
        rates, plan = live.loop.rates, live.in_force
        shown = {flow: tuple(path.rate_mbps for path in plan.flows[flow].paths) for flow in rates}
        assert shown == {flow: tuple(given) for flow, given in rates.items()}
        pushed = live.loop.state.pushed
        assert rates == {flow: live.loop._by_path(flow, pushed[flow]) for flow in pushed if flow in rates}
        fresh = PlanMaker(campus.context, Options()).plan(
            plan.version, live.network, live.routes, rates, plan.numbers, None
        )
        assert {flow: made.paths for flow, made in fresh.flows.items()} == {
            flow: made.paths for flow, made in plan.flows.items()
        }
