"""Handovers from request to confirmed paths, against agents that do what they are told."""

from __future__ import annotations

import pytest
from handover_rig import Rig

from hyroads.controller.agents.markers import PathMarkers
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Place
from hyroads.controller.model.handover import Constrained
from hyroads.controller.services.mobility.requests import BUILT_IN
from hyroads.rest.contract import ConflictError, NotFoundError

A, B, PLC, LTE = Place("a", "wifi1"), Place("b", "wifi2"), Place("b", "plc"), Place("x", "lte")
LINK = {A: "ac-wifi1", B: "bc-wifi2", PLC: "bc-plc", LTE: "xc-lte"}
FLOWS = ("down", "up")


def at(*places: Place) -> Constrained:
    return Constrained(places, places)


def rig_at(place: Place) -> Rig:
    return Rig(before={("c", None): at(place)})


def ask(rig: Rig, to: Place, manager: str, **more: object) -> str:
    body = {"client": "c", "to": {"node": to.node, "technology": to.technology}, "manager": manager, **more}
    handover = rig.service.request(body)["id"]
    rig.step()
    return str(handover)


def phase(rig: Rig, handover: str) -> str:
    return str(rig.service.document(handover)["phase"])


def test_a_client_that_was_never_handed_over_uses_all_its_places():
    rig = Rig()
    assert rig.carry("down") == set(LINK.values())
    assert rig.receiver("down").keys() & {"hold", "late", "watch"} == set()


def test_hard_moves_both_directions_at_once():
    rig = rig_at(A)
    assert rig.carry("down") == rig.carry("up") == {LINK[A]}
    handover = ask(rig, B, "hard")
    assert phase(rig, handover) == "done"
    for flow in FLOWS:
        assert rig.carry(flow) == {LINK[B]}
        assert rig.configured(flow) == set(LINK.values()) and rig.receiver(flow)["late"] == "drop"
    document = rig.service.document(handover)
    assert (
        document["over"]
        and document["moved_after_s"] == 0.0
        and document["from"] == {"node": "a", "technology": "wifi1"}
    )
    assert rig.state.constrained == {("c", None): at(B)}


def test_a_place_where_the_client_is_already_needs_new_rates_alone():
    rig = rig_at(A)
    before = rig.plan.agents
    receivers = {flow: rig.receiver(flow) for flow in FLOWS}
    for place in (B, A, LTE):
        rig.told.clear()
        assert phase(rig, ask(rig, place, "hard")) == "done" and rig.carry("up") == {LINK[place]}
        assert sorted(rig.told) == [("c", "rates"), ("g", "rates")]
        assert {flow: rig.receiver(flow) for flow in FLOWS} == receivers
    # Nobody else's configuration was even made anew.
    assert {node for node, config in rig.plan.agents.items() if config is not before[node]} == {"c", "g"}
    assert all(config.revision == before[node].revision for node, config in rig.plan.agents.items())


def test_a_successor_wants_the_same_configurations():
    rig = rig_at(A)
    ask(rig, PLC, "hard")
    rig.after(1.0)
    after = Rig(before=rig.state.constrained).plan
    assert {n: c.revision for n, c in after.agents.items()} == {n: c.revision for n, c in rig.plan.agents.items()}


def test_places_stand_by_as_they_come_and_go():
    rig = rig_at(A)
    rig.link(LINK[B], False)
    assert rig.configured("down") == set(LINK.values()) - {LINK[B]}
    rig.link(LINK[B], True)
    rig.after(1.0)
    assert rig.configured("down") == rig.configured("up") == set(LINK.values())
    assert rig.carry("down") == rig.carry("up") == {LINK[A]}


def test_a_client_that_was_never_handed_over_has_places_that_stand_by_after_the_first_time():
    rig = Rig()
    ask(rig, B, "hard")
    rig.after(1.0)
    assert rig.carry("down") == {LINK[B]} and rig.configured("down") == set(LINK.values())
    rig.service.request({"client": "c", "to": None})
    rig.step()
    assert not any(plan.standby for plan in rig.plan.flows.values())


def test_rates_on_their_way_are_not_taken_for_what_was_before():
    rig = rig_at(A)
    rig.agents["g"].deaf = True
    handover = ask(rig, B, "hard")
    assert phase(rig, handover) == "switching" and rig.service.document(handover)["moved_after_s"] is None
    rig.constrain({("c", None): at(A)})
    assert not rig.carries(["down"])


@pytest.mark.parametrize("new", [B, PLC, LTE])
def test_hoolock_receivers_hold_until_the_old_place_has_drained(new):
    rig = rig_at(A)
    handover = ask(rig, new, "hoolock")
    assert phase(rig, handover) == "draining"
    for flow in FLOWS:
        assert rig.carry(flow) == {LINK[new]}
        receiver, plan = rig.receiver(flow), rig.plan.flows[flow]
        old = {path.id for path in plan.paths if LINK[A] in "".join(path.links)}
        assert receiver["hold"] == {"paths": sorted(old), "ms": 2000} and set(receiver["watch"]) == {
            p.id for p in plan.paths
        }
    rig.arrive("down", LINK[A], LINK[new])
    rig.arrive("up", LINK[A] + "~", arrived=False)
    assert phase(rig, handover) == "draining"  # nothing came by the new place upwards
    rig.arrive("up", LINK[A] + "~", LINK[new] + "~")
    assert phase(rig, handover) == "leaving"
    assert ("handover.leave", {"handover": handover, "client": "c", "node": "a", "technology": "wifi1"}) in rig.events
    rig.link(LINK[A], False)
    assert phase(rig, handover) == "done"
    for flow in FLOWS:
        assert rig.configured(flow) == set(LINK.values()) - {LINK[A]} and "hold" not in rig.receiver(flow)


def test_receivers_are_ready_before_packets_take_the_other_way():
    """The order in which agents were told: hold and watch at the receiver, then rates at the sender."""
    rig = rig_at(A)
    rig.told.clear()
    seen = []
    check = rig.check

    def look() -> None:
        check()
        for flow in FLOWS:
            if rig.plan.flows[flow].number in rig.agents[rig.plan.flows[flow].ingress].ingress:
                using, _ = rig.agents[rig.plan.flows[flow].ingress].sending(rig.plan.flows[flow].number)
                new = {p.id for p in rig.plan.flows[flow].paths if any(LINK[B] in link for link in p.links)}
                if using & new:
                    seen.append("hold" in rig.receiver(flow))

    rig.check = look
    ask(rig, B, "hoolock")
    assert seen and all(seen)


@pytest.mark.parametrize("new", [B, LTE])
def test_bicast_copies_until_the_client_has_left(new):
    rig = rig_at(A)
    handover = ask(rig, new, "bicast")
    assert phase(rig, handover) == "copying"
    for flow in FLOWS:
        assert rig.carry(flow) == {LINK[A], LINK[new]}
        plan = rig.plan.flows[flow]
        rates = [path.rate_mbps for path in plan.paths]
        assert rates[0] == rates[1] == plan.rate_mbps > 1.0  # the whole rate on each
        assert rig.agents[plan.ingress].sending(plan.number)[1]
    # Airtime of both is taken: no medium has more than there is.
    assert max(rig.live.loop.airtime().values()) <= 0.95 + 1e-6
    for flow, up in (("down", ""), ("up", "~")):
        rig.arrive(flow, LINK[A] + up, LINK[new] + up)
    assert phase(rig, handover) == "leaving"
    rig.link(LINK[A], False)
    assert phase(rig, handover) == "done" and rig.carry("down") == {LINK[new]}
    assert not rig.agents["g"].sending(rig.plan.flows["down"].number)[1]


def test_markers_of_before_do_not_count():
    rig = rig_at(A)
    handover = ask(rig, B, "hoolock")
    for flow in FLOWS:
        plan = rig.plan.flows[flow]
        before = rig.sent[plan.number] - 1
        paths = tuple(PathMarkers(path.id, before, before, paused=False) for path in plan.paths)
        rig.markers.paths_passed(plan.egress, plan.number, paths)
    rig.step()
    assert phase(rig, handover) == "draining"


@pytest.mark.parametrize("manager", ["hoolock", "bicast"])
def test_nothing_by_the_new_place_moves_nobody(manager):
    rig = rig_at(A)
    handover = ask(rig, B, manager)
    rig.after(2.1)
    assert phase(rig, handover) == "failed" and "nothing came" in rig.service.document(handover)["reason"]
    assert rig.carry("down") == {LINK[A]} and rig.state.constrained == {("c", None): at(A)}


def test_a_client_that_used_all_places_does_so_again_after_a_failure():
    rig = Rig()
    handover = ask(rig, B, "hoolock")
    rig.after(2.1)
    assert phase(rig, handover) == "failed"
    assert rig.state.constrained == {} and rig.carry("down") == set(LINK.values())


def test_the_client_joins_first():
    rig = rig_at(A)
    rig.link(LINK[B], False)
    handover = ask(rig, B, "hard")
    assert phase(rig, handover) == "associating" and rig.carry("down") == {LINK[A]}
    assert any(kind == "handover.join" for kind, _ in rig.events)
    rig.link(LINK[B], True)
    assert phase(rig, handover) == "done"


def test_it_does_not_wait_for_ever():
    rig = rig_at(A)
    rig.link(LINK[B], False)
    handover = ask(rig, B, "hard", timings={"associate_s": 3.0})
    rig.after(3.1)
    assert phase(rig, handover) == "failed" and "did not join" in rig.service.document(handover)["reason"]


def test_vertical_waits_for_a_place_that_is_steady():
    rig = rig_at(A)
    handover = ask(rig, LTE, "vertical")
    assert phase(rig, handover) == "warming" and rig.carry("down") == {LINK[A]}
    rig.after(0.6)
    assert phase(rig, handover) == "draining"


def test_the_new_place_goes_away_early():
    rig = rig_at(A)
    handover = ask(rig, B, "hoolock")
    rig.link(LINK[B], False)
    assert phase(rig, handover) == "failed" and rig.carry("down") == {LINK[A]}


def test_the_old_place_goes_away_early():
    rig = rig_at(A)
    handover = ask(rig, B, "bicast")
    rig.link(LINK[A], False)
    assert phase(rig, handover) == "done" and rig.carry("down") == {LINK[B]}


def test_a_second_request_cancels_what_has_not_moved_and_waits_for_what_has():
    rig = rig_at(A)
    rig.link(LINK[B], False)
    first = ask(rig, B, "hard")
    second = ask(rig, PLC, "hoolock")
    assert phase(rig, first) == "failed" and "cancelled" in rig.service.document(first)["reason"]
    assert phase(rig, second) == "draining"
    third, fourth = ask(rig, LTE, "hard"), ask(rig, A, "hard")
    assert phase(rig, third) == "failed" and phase(rig, fourth) == "waiting"
    for flow, up in (("down", ""), ("up", "~")):
        rig.arrive(flow, LINK[A] + up, LINK[PLC] + up)
    rig.after(5.1)  # the client does not leave: it is left
    assert phase(rig, second) == "done"
    rig.step()
    assert phase(rig, fourth) == "done" and rig.carry("up") == {LINK[A]}


def test_one_that_waited_for_a_place_where_the_client_then_is_fails():
    rig = rig_at(A)
    first, second = ask(rig, B, "hoolock"), ask(rig, B, "hard")
    assert phase(rig, second) == "waiting"
    rig.link(LINK[A], False)
    rig.step()
    assert phase(rig, first) == "done" and phase(rig, second) == "failed"
    assert "already" in rig.service.document(second)["reason"]


def test_cancel():
    rig = rig_at(A)
    handover = ask(rig, LTE, "vertical")
    assert rig.service.cancel(handover)["phase"] == "failed"
    with pytest.raises(ConflictError, match="is over"):
        rig.service.cancel(handover)
    draining = ask(rig, B, "hoolock")
    with pytest.raises(ConflictError, match="can't be cancelled"):
        rig.service.cancel(draining)
    with pytest.raises(NotFoundError):
        rig.service.cancel("nothing")


def test_only_some_flows():
    rig = rig_at(A)
    ask(rig, B, "hard", flows=["down"])
    assert rig.carry("down") == {LINK[B]} and rig.carry("up") == {LINK[A]}
    ask(rig, PLC, "hard")
    assert rig.carry("down") == rig.carry("up") == {LINK[PLC]}
    assert rig.state.constrained == {("c", None): at(PLC)}


def test_released():
    rig = rig_at(A)
    assert rig.service.request({"client": "c", "to": None})["phase"] == "done"
    rig.step()
    assert rig.carry("down") == set(LINK.values())
    with pytest.raises(ConflictError):
        rig.service.request({"client": "c", "to": None})


@pytest.mark.parametrize(
    ("body", "place", "what"),
    [
        ({"client": "nobody", "to": {"node": "a", "technology": "wifi1"}}, "client", "no node"),
        ({"client": "c", "to": {"node": "a", "technology": "plc"}}, "to", "expected one of a/wifi1"),
        ({"client": "c", "to": {"node": "b", "technology": "plc"}, "manager": "best"}, "manager", "expected one of"),
        ({"client": "c", "to": {"node": "b", "technology": "plc"}, "flows": ["f"]}, "flows", "no flow"),
    ],
)
def test_bad_requests(body, place, what):
    rig = rig_at(A)
    with pytest.raises(ConfigError, match=what) as error:
        rig.service.request(body)
    assert error.value.place == place
    assert not rig.events and rig.carry("down") == {LINK[A]}


def test_being_there_already_is_a_conflict():
    with pytest.raises(ConflictError, match="already"):
        ask(rig_at(A), A, "hard")


@pytest.mark.parametrize("manager", sorted(BUILT_IN))
def test_each_manager_leaves_nothing_behind(manager):
    rig = rig_at(A)
    for new, old in ((B, A), (PLC, B), (LTE, PLC), (A, LTE)):
        handover = ask(rig, new, manager)
        rig.after(0.6)
        for flow, up in (("down", ""), ("up", "~")):
            rig.arrive(flow, LINK[old] + up, LINK[new] + up)
        rig.after(5.1)
        assert phase(rig, handover) == "done", rig.service.document(handover)
        assert rig.carry("down") == rig.carry("up") == {LINK[new]}
    assert not rig.markers._markers and not rig.markers._waiting
    for flow in FLOWS:
        assert rig.receiver(flow).keys() & {"hold", "watch"} == set()
