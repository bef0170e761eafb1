"""The steps between two wishes of a manager, and what they mean for a flow's paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Place
from hyroads.controller.core.services.mobility import DesiredState
from hyroads.controller.model.handover import (
    Constrained,
    Ends,
    PathConstraint,
    Use,
    by_path,
    drained,
    ends_of,
    links_at,
    next_step,
    path_groups,
    places_of,
    reached,
    separate_links,
)

NETWORK = parse(
    {
        "nodes": {
            **{"g": {"role": "gateway"}, "a": {"role": "ap"}, "b": {"role": "ap"}},
            "c": {"role": "client", "agent": True},
        },
        "links": [
            {"id": "ga", "from": "g", "to": "a", "technology": "ethernet", "capacity_mbps": 100, "both": True},
            {"id": "gb", "from": "g", "to": "b", "technology": "ethernet", "capacity_mbps": 100, "both": True},
            {"id": "ac", "from": "a", "to": "c", "technology": "wifi", "capacity_mbps": 20, "both": True},
            {"id": "bc", "from": "b", "to": "c", "technology": "wifi2", "capacity_mbps": 20, "both": True},
            {"id": "bp", "from": "b", "to": "c", "technology": "plc", "capacity_mbps": 10, "both": True},
        ],
        "interference": {"rule": "technology"},
    },
    "x",
)  # fmt: skip
A, B, P = Place("a", "wifi"), Place("b", "wifi2"), Place("b", "plc")
BY_A, BY_B, BY_P = ("ga", "ac"), ("gb", "bc"), ("gb", "bp")
DOWN, UP = FlowSpec("down", "g", "c"), FlowSpec("up", "c", "g")

places = st.lists(st.sampled_from([A, B, P]), unique=True, min_size=1).map(tuple)


@st.composite
def wishes(draw):
    known = draw(places)
    carry = tuple(draw(st.lists(st.sampled_from(known), unique=True, min_size=1)))
    return DesiredState(known, carry, draw(st.booleans()), draw(st.sampled_from([None, 2.0])))


@given(row=st.lists(wishes(), min_size=1, max_size=8))
def test_every_wish_is_reached_and_receivers_are_ready_first(row):
    now = None
    for wanted in row:
        for _ in range(4):
            if reached(now, wanted):
                break
            step = next_step(now, wanted)
            if now is not None and wanted.hold_s is not None and set(step.carry) != set(now.carry):
                # Before packets take another way, receivers know it and what to wait for: the step before this.
                assert set(step.carry) <= set(now.known)
                assert set(now.waits) == set(now.carry) & set(wanted.known)
            if (set(step.carry), step.copies) == (set(wanted.carry), wanted.copies):
                assert step.known == wanted.known, "old places are forgotten as soon as packets leave them"
            assert set(step.carry) <= set(step.known) and set(step.waits) <= set(step.known)
            now = step
        assert reached(now, wanted)
        assert (set(now.known), set(now.carry), now.copies) == (set(wanted.known), set(wanted.carry), wanted.copies)
        assert reached(drained(now), wanted) and not drained(now).waits


def test_without_a_time_to_hold_there_is_one_step():
    assert next_step(Constrained((A,), (A,)), DesiredState((B,), (B,))) == Constrained((B,), (B,))


def test_hoolock_in_steps():
    now = Constrained((A, B), (A,))
    wanted = DesiredState((A, B), (B,), hold_s=2.0)
    listening = next_step(now, wanted)
    assert listening == Constrained((A, B), (A,), waits=(A,), hold_s=2.0)
    assert next_step(listening, wanted) == Constrained((A, B), (B,), waits=(A,), hold_s=2.0)


def test_paths_of_a_constrained_flow():
    down = Ends(target=Constrained((A, B), (B,), waits=(A,), hold_s=2.0))
    use = Use.of(NETWORK, [BY_A, BY_B], down)
    assert use == Use(carry=(1,), copies=False, waits=(0,), hold_ms=2000, is_moving=True)
    up = Ends(source=Constrained((A, P), (P,)))
    assert Use.of(NETWORK, [("ac~", "ga~"), ("bp~", "gb~")], up).carry == (1,)
    # Where nothing that shall carry is live, what there is carries.
    assert Use.of(NETWORK, [BY_A], Ends(target=Constrained((A, B), (B,)))).carry == (0,)


def test_copies_go_by_one_path_a_place():
    longer = ("ga", "ga~", "ga", "ac")
    ends = Ends(target=Constrained((A, B), (A, B), copies=True))
    assert Use.of(NETWORK, [BY_A, longer, BY_B], ends).carry == (0, 2)


def test_a_path_may_stand_for_itself():
    ends = Ends(target=Constrained((BY_B, BY_P), (BY_P,)))
    assert Use.of(NETWORK, [BY_B, BY_P], ends).carry == (1,)
    assert [constraint.path for constraint in ends.constraints()] == [BY_B, BY_P]


def test_both_ends_count():
    ends = Ends(Constrained((A,), (A,)), Constrained((B, P), (P,)))
    assert ends.constraints() == [PathConstraint(A, B), PathConstraint(A, P)]


def test_what_is_said_of_a_flow_goes_before_what_is_said_of_its_client():
    here, there = Constrained((A,), (A,)), Constrained((B,), (B,))
    constrained = {("c", None): here, ("c", "up"): there}
    assert ends_of(DOWN, constrained) == Ends(target=here)
    assert ends_of(UP, constrained) == Ends(source=there)
    assert not ends_of(FlowSpec("other", "g", "a"), constrained) and not ends_of(DOWN, {})


def test_constraints_close_the_other_links_of_the_client():
    assert PathConstraint(last=B).closed(NETWORK, "g", "c") == {"ac", "bp"}
    assert PathConstraint(first=A).closed(NETWORK, "c", "g") == {"bc~", "bp~"}
    assert PathConstraint().closed(NETWORK, "g", "c") == frozenset()


def test_places_of_a_client():
    assert set(places_of(NETWORK, "c")) == {A, B, P}
    assert links_at(NETWORK, "c", B) == ("bc", "bc~")


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (None, ((0,), (1,), (2,))),
        (Use((1, 2)), ((1,), (2,))),
        (Use((0, 2), copies=True), ((0, 2),)),
    ],
)
def test_lanes(use, expected):
    assert path_groups(use, 3) == expected


def test_rates_of_lanes_are_rates_of_paths():
    assert by_path((5.0,), ((0, 2),), 3) == (5.0, 0.0, 5.0)
    assert by_path((5.0, 1.0), ((2,), (0,)), 3) == (1.0, 0.0, 5.0)


@pytest.mark.parametrize("known", [(A,), (B,), (A, B), (B, P)])
@pytest.mark.parametrize("hold_s", [None, 2.0])
def test_receivers_wait_on_for_known_places_alone_while_nothing_moves(known, hold_s):
    draining = Constrained((A, B, P), known, waits=(A, B), hold_s=3.0)
    step = next_step(draining, DesiredState(known, known, hold_s=hold_s))
    waits = tuple(via for via in (A, B) if via in known) if hold_s else ()
    assert step == Constrained(known, known, waits=waits, hold_s=hold_s if waits else 0.0)
    assert next_step(step, DesiredState(known, known, hold_s=hold_s)) == step


@pytest.mark.parametrize("branching", [True, False])
def test_copies_share_their_first_links_also_beside_one_that_shares_none(branching):
    """Two of three paths are one as far as the node b."""
    paths = [BY_A, BY_B, BY_P]
    ends = Ends(target=Constrained(tuple(paths), tuple(paths), copies=True))
    use = Use.of(NETWORK, paths, ends, lambda node: branching and node == "b")
    assert use.carry == (0, 1, 2)
    assert bool(use.legs) is branching
    assert separate_links(use, paths) == (BY_A, BY_B, ("bp",) if branching else BY_P)
    part = Use.of(NETWORK, [BY_P, BY_A], ends, lambda node: True)
    assert not part.legs and separate_links(part, [BY_P, BY_A]) == (BY_P, BY_A), "nothing is shared"


def test_who_is_told_of_no_time_waits_for_nothing():
    """An n-cast that ends while the way that goes on is still waited for: agents refuse a hold of 0 ms."""
    draining = Constrained((A, B), (A,), waits=(A, B), hold_s=2.0)
    closed = next_step(draining, DesiredState((A,), (A,)))
    assert closed == Constrained((A,), (A,)) and reached(closed, DesiredState((A,), (A,)))


constraints = st.builds(
    lambda known, carry, copies, waits: Constrained(known, carry, copies, waits, 2.0 if waits else 0.0),
    places, places, st.booleans(), st.lists(st.sampled_from([A, B, P]), unique=True).map(tuple),
)  # fmt: skip
PLACE_OF = {BY_A: A, BY_B: B, BY_P: P}


@given(end=constraints, live=st.lists(st.sampled_from([BY_A, BY_B, BY_P]), unique=True, min_size=1), up=st.booleans())
def test_paths_are_used_as_their_places_say(end, live, up):
    """Of paths by one place each; the flow goes to the client, or comes from it."""
    paths = [tuple(f"{link}~" for link in reversed(path)) if up else path for path in live]
    use = Use.of(NETWORK, paths, Ends(source=end) if up else Ends(target=end))
    carry = tuple(i for i, path in enumerate(live) if PLACE_OF[path] in end.carry)
    waits = tuple(i for i, path in enumerate(live) if PLACE_OF[path] in end.waits)
    assert use.carry == (carry or tuple(range(len(live)))), "all, if none of those is live"
    assert (use.copies, use.waits, use.legs) == (end.copies, waits, ())
    assert use.hold_ms == (2000 if waits else 0), "agents refuse a time to wait for nothing"
    assert use.is_moving == (end.copies or bool(end.waits) or set(end.known) != set(end.carry))


@given(first=st.none() | constraints, second=st.none() | constraints)
def test_flow_is_constrained_as_both_ends_say(first, second):
    ends, there = Ends(first, second), [end for end in (first, second) if end is not None]
    assert bool(ends) == bool(there)
    assert ends.copies == any(end.copies for end in there)
    assert ends.is_moving == any(end.is_moving for end in there)
    assert ends.hold_s == max((end.hold_s for end in there if end.waits), default=0.0)
    assert not ends.is_of_paths
    sides = [[None] if end is None else end.known for end in (first, second)]
    assert ends.constraints() == [PathConstraint(a, b) for a in sides[0] for b in sides[1]]
    # Of a path from a client to a client at these places.
    for path, here, there_at in ((("ac~", "ga~", "gb", "bc"), A, B), (("bp~", "bc"), P, B)):
        places_at = ((first, here), (second, there_at))
        assert ends.carries(NETWORK, path) == all(end is None or at in end.carry for end, at in places_at)
        assert ends.waits(NETWORK, path) == any(end is not None and at in end.waits for end, at in places_at)
        for constraint in ends.constraints():
            fits = constraint.first in (None, here) and constraint.last in (None, there_at)
            assert constraint.has(NETWORK, path) == fits


@pytest.mark.parametrize(
    ("known", "carry", "copies", "waits", "moves"),
    [
        ((A,), (A,), False, (), False), ((A,), (A,), False, (A,), True), ((A,), (A,), True, (), True),
        ((A, B), (A,), False, (), True), ((A, B), (B, A), False, (), False), ((A, B), (B,), True, (A,), True),
    ],
)  # fmt: skip
def test_change_is_under_way_by_each_of_its_signs(known, carry, copies, waits, moves):
    assert Constrained(known, carry, copies, waits, 1.0).is_moving is moves


paths_of_copies = st.lists(st.sampled_from([BY_A, BY_B, BY_P]), unique=True, min_size=1)


@given(paths=paths_of_copies, wanted=paths_of_copies, branching=st.booleans())
def test_legs_of_copies_lead_along_each_path_once(paths, wanted, branching):
    """Whatever else is live, and in whatever order: put together, the legs to each end are one of the paths."""
    ends = Ends(target=Constrained(tuple(wanted), tuple(wanted), copies=True))
    use = Use.of(NETWORK, paths, ends, lambda node: branching)
    carry = [i for i, path in enumerate(paths) if path in wanted] or list(range(len(paths)))

    def ways(leg, before=()):
        way = before + paths[leg.path][leg.start : leg.end]
        return [way] if not leg.onward else [each for onward in leg.onward for each in ways(onward, way)]

    is_shared = branching and {BY_B, BY_P} <= {paths[i] for i in carry}
    assert bool(use.legs) is is_shared
    found = [way for leg in use.legs for way in ways(leg)]
    assert sorted(found) == (sorted(paths[i] for i in carry) if is_shared else [])
    sent = [link for i in carry for link in separate_links(use, paths)[i]]
    assert len(set(sent)) == len(sent) if branching else sent == [link for i in carry for link in paths[i]]


@given(known=st.lists(st.sampled_from([A, B, P, BY_A, BY_B]), unique=True), used_bits=st.integers(0, 31))
def test_flow_stays_at_the_last_place_in_use(known, used_bits):
    used = tuple(via for i, via in enumerate(known) if used_bits >> i & 1)
    places = [via for via in used if via in (A, B, P)]
    now = Constrained(tuple(known), used)
    assert now.stays == (places[-1] if places else None)
    assert now.is_of_paths is any(via in (BY_A, BY_B) for via in known)
