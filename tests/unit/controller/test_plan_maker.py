"""A plan that shares what did not change with the one before is the plan that is made from nothing."""

from __future__ import annotations

import pytest
from examples import examples
from handover_rig import Rig
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.protocol import AgentConfig
from hyroads.controller.control.plan_maker import PlanMaker
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
            assert config.revision == AgentConfig(config.hello, config.ingress, config.egress).revision


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
