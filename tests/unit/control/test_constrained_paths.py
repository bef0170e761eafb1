"""Which paths a constrained flow is configured for: those in use, and those that stand by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.control.live_network import Basis, LiveNetwork
from hyroads.controller.control.routes import MOST_PATHS, constrained_paths, filled, lives, standing_by
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Place
from hyroads.controller.model.handover import Constrained, Ends, PathConstraint
from hyroads.controller.model.state import TopologyContext

PLACES = 5
BOTH = {"capacity_mbps": 20, "both": True}
NETWORK = parse(
    {
        "nodes": {
            "g": {"role": "gateway"},
            **{f"a{i}": {"role": "ap"} for i in range(PLACES)},
            "c": {"role": "client", "agent": True},
        },
        "links": [
            *({"id": f"g{i}", "from": "g", "to": f"a{i}", "technology": "ethernet", **BOTH} for i in range(PLACES)),
            *({"id": f"c{i}", "from": f"a{i}", "to": "c", "technology": f"wifi{i}", **BOTH} for i in range(PLACES)),
        ],
        "interference": {"rule": "technology"},
    },
    "x",
)
CONTEXT = TopologyContext.of(NETWORK)
DOWN, UP = FlowSpec("down", "g", "c"), FlowSpec("up", "c", "g")
WAYS = {f"a{i}": Place(f"a{i}", f"wifi{i}") for i in range(PLACES)}

ways = st.sets(st.sampled_from(sorted(WAYS)), min_size=1).map(lambda names: tuple(WAYS[name] for name in sorted(names)))
dead = st.sets(st.sampled_from([link.id for link in NETWORK.links])).map(frozenset)


def live_without(*links: str) -> LiveNetwork:
    return LiveNetwork(CONTEXT, Basis(frozenset(links)))


def ends_at(spec: FlowSpec, known: tuple[Place, ...]) -> Ends:
    constrained = Constrained(known, known)
    return Ends(target=constrained) if spec is DOWN else Ends(source=constrained)


def constraint(spec: FlowSpec, place: Place) -> PathConstraint:
    return PathConstraint(last=place) if spec is DOWN else PathConstraint(first=place)


@given(spec=st.sampled_from([DOWN, UP]), known=ways, cut=dead)
def test_all_places_that_live_are_in_use_or_stand_by_and_no_other(spec, known, cut):
    live, ends = live_without(*cut), ends_at(spec, known)
    paths = constrained_paths(live, spec, ends, ())
    standby = filled(live, spec, ends, paths, ())
    assert not set(paths) & set(standby) and all(lives(live, path) for path in (*paths, *standby))
    end = "" if spec is DOWN else "~"
    for i, place in enumerate(WAYS.values()):
        is_live = not {f"g{i}{end}", f"c{i}{end}"} & cut
        leads = constraint(spec, place).has
        assert any(leads(NETWORK, path) for path in paths) == (is_live and place in known)
        assert any(leads(NETWORK, path) for path in standby) == (is_live and place not in known)


@given(first=ways, then=ways, cut=dead)
def test_what_was_in_use_stands_by_unless_it_is_dead_or_in_use_still(first, then, cut):
    before = constrained_paths(live_without(), DOWN, ends_at(DOWN, first), ())
    live, ends = live_without(*cut), ends_at(DOWN, then)
    paths = constrained_paths(live, DOWN, ends, before)
    standby = standing_by(live, ends, paths, before)
    assert set(standby) == {path for path in before if lives(live, path) and path not in paths}


def test_edges_are_not_configured_for_more_and_more():
    many = tuple((f"g{i}", f"x{n}", f"c{i}") for n in range(MOST_PATHS) for i in range(1, PLACES))
    live = live_without()
    live.__dict__["lives"] = frozenset(link for path in many for link in path).__contains__
    ends = ends_at(DOWN, (WAYS["a0"],))
    kept = standing_by(live, ends, [("g0", "c0")], many)
    assert kept == many[: MOST_PATHS - 1]


def test_copies_have_nothing_that_stands_by():
    ends = Ends(target=Constrained((("g0", "c0"),), (("g0", "c0"),)))
    live = live_without()
    assert standing_by(live, ends, [("g0", "c0")], [("g1", "c1")]) == ()
    assert filled(live, DOWN, ends, [("g0", "c0")], ()) == ()


@pytest.mark.parametrize(("spec", "places"), [(DOWN, "arrivals"), (UP, "departures")])
def test_where_a_client_is_now_is_asked_by_direction(spec, places):
    live = live_without("c1", "c2~")
    found = getattr(live, places)["c"]
    missing = "a1" if spec is DOWN else "a2"
    assert set(found) == {place for name, place in WAYS.items() if name != missing}
