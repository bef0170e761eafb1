"""The policy ``placement``: radios go where their flows get most together, and stay there."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from handover_rig import Rig

from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import parse as parse_network
from hyroads.controller.core.network import ClientMode, Network, Place
from hyroads.controller.core.services.view import ClientView, NetworkView, Option, Radios
from hyroads.controller.model.handover import Constrained
from hyroads.controller.services.steering import actuators, placements
from hyroads.controller.services.steering.actuators import CONFIRM_S, HOLD_S, HandoverActuator, network_view
from hyroads.controller.services.steering.placements import (
    AHEAD_S,
    AT_ONCE,
    RadioPlacements,
    Trends,
    clear_slope,
    radios_of,
)
from hyroads.controller.services.steering.policies import LocalPolicy, PolicyService
from hyroads.controller.settings.controller import parse as parse_settings
from hyroads.plugins.codec import decode, encode
from hyroads.plugins.policies.placement import POLICY, Placement
from hyroads.rest.contract import ConflictError

A2, A5, B2, B5 = (Place(ap, band) for ap in "ab" for band in ("wifi2", "wifi5"))


def network(**metered: bool) -> Network:
    """Two access points, each with both bands (40 and 50 Mb/s) behind a wire of 60 Mb/s."""
    links = [
        {"id": f"{ap}-{band}", "from": ap, "to": "c", "technology": band, "capacity_mbps": mbps, "both": True}
        for ap in "ab"
        for band, mbps in (("wifi2", 40), ("wifi5", 50))
    ]
    links += [
        {"id": f"g{ap}", "from": "g", "to": ap, "technology": "ethernet", "capacity_mbps": 60, "both": True}
        for ap in "ab"
    ]
    document = {
        "nodes": {"g": {"role": "gateway"}, "a": {"role": "ap"}, "b": {"role": "ap"}, "c": {"role": "client"}},
        "links": links,
        "interference": {"rule": "technology"},
        "flows": [{"id": "down", "from": "g", "to": "c"}, {"id": "up", "from": "c", "to": "g"}],
    }
    media = {"technologies": {name: {"metered": value} for name, value in metered.items()}}
    return parse_network({**document, **media} if metered else document, "two-aps")


OPTIONS = tuple(Option(place, place.technology, 40.0) for place in (A2, A5, B2, B5))


def seen(time_s: float, best_mbps: float, *attached: Place, best=(A2, B5), since_s=-100.0) -> NetworkView:
    radios = Radios(best, best_mbps, 60.0)
    return NetworkView(time_s, clients={"c": ClientView("c", None, since_s, OPTIONS, 9e9, attached, radios)})


def wishes_over(policy, views):
    memory, found = policy.fresh(), []
    for view in views:
        memory, wishes = policy.decide(memory, view)
        found += wishes
    return found


def test_radios_move_together_once_others_have_been_better_for_long_enough():
    views = [seen(t, 90.0, A2, A5) for t in range(3)]
    (wish,) = wishes_over(POLICY, views)
    assert (wish.client, wish.places, wish.copies) == ("c", (A2, B5), False)
    assert "90.0 Mb/s there, 60.0 here" in wish.reason
    assert not wishes_over(POLICY, views[:2])
    # A gain too small, the same attachments in another order, and a moment in which others are best.
    assert not wishes_over(POLICY, [seen(t, 65.0, A2, A5) for t in range(9)])
    assert not wishes_over(POLICY, [seen(t, 90.0, B5, A2) for t in range(9)])
    assert not wishes_over(POLICY, [views[0], seen(1, 90.0, A2, A5, best=(B2, A5)), views[2]])
    # One that has just come stays; one that uses all its links at once has never been placed.
    assert not wishes_over(POLICY, [seen(t, 90.0, A2, A5, since_s=-5.0) for t in range(4)])
    assert wishes_over(POLICY, [seen(t, 90.0, since_s=-1.0) for t in range(3)])


def test_a_turn_without_news_forgets_nothing_and_gone_clients_are_forgotten():
    views = [seen(t, 90.0, A2, A5) for t in range(3)]
    without = replace(views[1], clients={"c": replace(views[1].clients["c"], radios=None)})
    assert len(wishes_over(POLICY, [views[0], without, views[2]])) == 1
    memory, _ = POLICY.decide(POLICY.fresh(), views[0])
    assert POLICY.decide(memory, NetworkView(1.0))[0] == {}


def test_noise_between_two_equal_attachments_moves_at_most_once_in_stay_s():
    rng, attached, since_s, moves, memory = random.Random(5), (A2, B5), -100.0, [], POLICY.fresh()
    for second in range(1200):
        best = rng.choice([(A2, B5), (B2, A5)])
        radios = Radios(best, rng.gauss(90, 9), rng.gauss(90, 9))
        client = ClientView("c", None, since_s, OPTIONS, 9e9, attached, radios)
        memory, wishes = POLICY.decide(memory, NetworkView(float(second), clients={"c": client}))
        for wish in wishes:
            attached, since_s = wish.places, float(second)
            moves.append(second)
    assert all(later - earlier >= POLICY.stay_s for earlier, later in itertools.pairwise(moves))
    assert len(moves) < 20


def test_a_view_with_radios_goes_to_a_foreign_policy_and_back():
    view = seen(1.0, 90.0, A2, A5)
    assert decode(NetworkView, encode(view)) == view


def at(*attached: Place, options=OPTIONS) -> ClientView:
    return ClientView("c", None, 0.0, options, 9e9, attached)


@pytest.mark.parametrize(
    ("mode", "attached", "expected"),
    [
        (ClientMode.FULL_SPEED, (A2, A5), Radios((A2, B5), 90.0, 60.0)),
        (ClientMode.FULL_SPEED, (A2, B2), Radios((A2, B5), 90.0, 0.0)),
        (ClientMode.FULL_SPEED, (), Radios((A2, B5), 90.0, 0.0)),
        (ClientMode.HIGH_ROBUSTNESS, (A2, B5), Radios((A2, B5), 40.0, 40.0, copies=True)),
        (ClientMode.HIGH_ROBUSTNESS, (A2, A5), Radios((A2, B5), 40.0, 0.0, copies=True)),
    ],
)
def test_present_and_best_attachments_are_rated_by_mode(mode, attached, expected):
    found = radios_of(network(), at(*attached), "g", mode)
    assert found is not None
    assert (found.best, found.copies) == (expected.best, expected.copies)
    assert (found.best_mbps, found.attached_mbps) == pytest.approx((expected.best_mbps, expected.attached_mbps))


def test_backups_carry_nothing_and_metered_radios_count_alone_where_there_is_nothing_else():
    found = radios_of(network(wifi5=True), at(A2, A5), "g", ClientMode.COST_EFFICIENT)
    assert found is not None and found.best == (A2,) and found.attached_mbps == 0.0
    unmetered = radios_of(network(wifi5=True), at(A2), "g", ClientMode.COST_EFFICIENT)
    assert unmetered is not None and unmetered.attached_mbps == pytest.approx(40)
    metered = radios_of(network(wifi5=True), at(A5, options=OPTIONS[1::2]), "g", ClientMode.COST_EFFICIENT)
    assert metered is not None and metered.best == (A5,) and metered.attached_mbps == pytest.approx(50)


def test_only_options_count_and_without_a_path_nobody_is_placed():
    found = radios_of(network(), at(A2, options=OPTIONS[:2]), "g", ClientMode.FULL_SPEED)
    # Both at one access point add 20 Mb/s; b may not be asked for.
    assert found is not None and found.best == (A2, A5) and found.best_mbps == pytest.approx(60)
    cut = network().with_capacities({"ga": 0.0, "gb": 0.0})
    assert radios_of(cut, at(A2), "g", ClientMode.FULL_SPEED) is None


class World:
    """The service of policies on a controller whose agents do what they are told."""

    def __init__(self, policy: Placement = POLICY, attached=(A2, A5), net: Network | None = None) -> None:
        before = {("c", None): Constrained(tuple(attached), tuple(attached))} if attached else None
        self.rig = Rig(before=before, network=net or network())
        self.told: list[tuple[str, dict[str, object]]] = []
        ingest = TelemetryIngest(self.rig.context, self.rig.clock)
        self.actuator = HandoverActuator(self.rig.service, self.rig, ingest)
        self.policies = {"placement": LocalPolicy(policy)}
        self.placements = RadioPlacements(self.rig, lambda: policy.mode)
        self.service = PolicyService(
            lambda: self.policies,
            lambda: network_view(self.rig),
            lambda kind, document: self.told.append((kind, dict(document))),
            self.rig.clock,
            self.placements,
        )
        self.service.actuators.append(self.actuator)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.service.turn()
            for _ in range(4):
                self.rig.after(0.25)
                self.actuator.advance()

    @property
    def constrained(self) -> Constrained | None:
        return self.rig.state.constrained.get(("c", None))


def test_two_radios_at_one_access_point_are_moved_apart_once():
    world = World()
    world.run(60)
    assert world.constrained == Constrained((A2, B5), (A2, B5))
    assert world.rig.carry("down") == world.rig.carry("up") == {"a-wifi2", "b-wifi5"}
    (event,) = world.told
    assert event[0] == "policy.moves" and event[1]["policy"] == "placement"
    assert event[1]["to"] == {"node": "a", "technology": "wifi2"}
    assert event[1]["also"] == [{"node": "b", "technology": "wifi5"}]


def test_radios_follow_what_is_measured_with_hysteresis():
    world = World(attached=(A2, B5))
    world.run(20)
    assert world.told == []
    # The wire of b dies: a carries both, which is more than one.
    world.rig.link("gb", up=False)
    world.run(6)
    assert world.constrained == Constrained((A2, A5), (A2, A5))
    world.rig.link("gb", up=True)
    world.run(6)
    assert len(world.told) == 1  # it has just come
    world.run(12)
    assert world.constrained == Constrained((A2, B5), (A2, B5)) and len(world.told) == 2


def test_copies_go_by_all_radios():
    world = World(replace(POLICY, mode="high-robustness"))
    world.run(15)
    assert world.constrained == Constrained((A2, B5), (A2, B5), copies=True)
    assert world.rig.carry("down") == {"a-wifi2", "b-wifi5"}


def test_a_metered_radio_carries_no_more_once_others_do():
    world = World(replace(POLICY, mode="cost-efficient"), attached=(A2, A5), net=network(wifi5=True))
    world.run(15)
    (event,) = world.told
    assert "also" not in event[1] and world.constrained == Constrained((A2,), (A2,))
    assert world.rig.carry("down") == {"a-wifi2"}


def test_a_client_with_one_radio_in_use_is_handed_over():
    net = network(wifi5=True).with_capacities({"a-wifi2": 10.0})
    world = World(replace(POLICY, mode="cost-efficient"), attached=(A2,), net=net)
    world.run(13)
    (event,) = world.told
    assert world.rig.service.document(str(event[1]["handover"]))["to"] == {"node": "b", "technology": "wifi2"}


def test_what_agents_do_not_confirm_is_a_refusal_and_is_not_asked_again_at_once():
    world = World()
    world.run(2)
    for agent in world.rig.agents.values():
        agent.deaf = True
    world.run(int(CONFIRM_S) + 12)
    assert len(world.told) == 1
    entry = world.service.refusals.entries["c", B5]
    assert "did not confirm" in entry.status and entry.until_s > world.rig.clock()


def steps_of(world: World) -> list[Constrained]:
    """What the client is constrained to from now on, as it comes."""
    steps, constrain = [], world.rig.constrain

    def noted(changes):
        steps.append(changes["c", None])
        constrain(changes)

    world.rig.constrain = noted
    return steps


def test_both_ends_listen_at_all_places_before_anything_is_sent_by_the_new_ones():
    world = World()
    steps = steps_of(world)
    move = world.actuator.move_radios("c", (B2, B5), copies=False)
    listening = Constrained((A2, A5, B2, B5), (A2, A5), False, (A2, A5), HOLD_S)
    assert steps == [listening]
    world.rig.after(0.01)
    assert world.actuator.outcome(move) is None
    assert steps[1:] == [replace(listening, carry=(B2, B5))], "what is in flight is waited for"
    for flow in ("down", "up"):
        world.rig.arrive(flow, "a-wifi2", "a-wifi5", "a-wifi2~", "a-wifi5~")
    assert world.actuator.outcome(move) is None
    world.rig.after(0.01)
    assert world.actuator.outcome(move).failure is None
    assert steps[2:] == [Constrained((B2, B5), (B2, B5))]
    assert world.rig.carry("down") == world.rig.carry("up") == {"b-wifi2", "b-wifi5"}


def test_what_never_arrives_by_the_old_places_is_not_waited_for_long():
    world = World()
    steps, began_s = steps_of(world), world.rig.clock()
    move = world.actuator.move_radios("c", (B2, B5), copies=False)
    while world.actuator.outcome(move) is None:
        world.rig.after(0.05)
    assert HOLD_S <= world.rig.clock() - began_s <= HOLD_S + 0.3
    assert steps[-1] == Constrained((B2, B5), (B2, B5))


def test_a_clear_trend_goes_on_and_noise_is_none():
    falling = [(x, 40.0 + 3.0 * x + 0.2 * (-1) ** x) for x in (-3, -2, -1, 0)]
    assert clear_slope(falling) == pytest.approx(-clear_slope([(x, -y) for x, y in falling]))
    assert clear_slope(falling) == pytest.approx(3.0, abs=0.2)
    assert clear_slope(falling[1:]) == clear_slope([(0, 1.0)] * 9) == 0.0
    rng = random.Random(3)
    noise = [clear_slope([(x, rng.gauss(40, 4)) for x in range(4)]) for _ in range(500)]
    assert sum(slope != 0.0 for slope in noise) < 75
    trends = Trends()
    for second in range(30):
        ahead = trends.ahead({"falls": 90.0 - 3 * second, "steady": 40.0, "cut": 0.0}, float(second))
    assert ahead == {"falls": pytest.approx(3.0 - 3 * AHEAD_S) if AHEAD_S < 1 else 0.0}


def test_radios_leave_an_access_point_before_it_is_worse(monkeypatch):
    world = World(replace(POLICY, hold_s=0.0, stay_s=1.0), attached=(A2, A5))
    mbps = {link.id: link.capacity_mbps for link in world.rig.context.network.links}
    for module in (actuators, placements):
        monkeypatch.setattr(module, "usable_mbps", lambda _: dict(mbps))
    moved = None
    for second in range(30):
        near, far = 40.0 - second, 10.0 + second
        for ap, value in (("a", near), ("b", far)):
            mbps |= {f"{ap}-{band}{end}": value for band in ("wifi2", "wifi5") for end in ("", "~")}
        world.run(1)
        if moved is None and world.told:
            moved = near, far
    assert moved is not None and moved[1] < 1.1 * moved[0]
    assert len(world.told) == 1


def test_a_handover_in_between_ends_the_move_and_while_one_runs_none_begins():
    world = World()
    move = world.actuator.move_radios("c", (A2, B5), copies=False)
    world.rig.constrain({("c", None): Constrained((B2,), (B2,))})
    failures = [world.actuator.outcome(move).failure for _ in range(2)]
    assert failures == ["another handover was asked for", "nobody knows of it any more"]
    for agent in world.rig.agents.values():
        agent.deaf = True
    world.rig.service.request({"client": "c", "to": {"node": "a", "technology": "wifi5"}, "manager": "hard"})
    with pytest.raises(ConflictError, match="handed over"):
        world.actuator.move_radios("c", (A2, B5), copies=False)


def test_clients_have_their_turns():
    world = World()
    clients = {f"c{i}": replace(at(A2), id="c") for i in range(AT_ONCE + 2)}
    first, second = world.placements(clients), world.placements(clients)
    assert [name for name, client in first.items() if client.radios] == [f"c{i}" for i in range(AT_ONCE)]
    assert {f"c{AT_ONCE}", f"c{AT_ONCE + 1}"} <= {name for name, client in second.items() if client.radios}


def test_settings_of_the_policy_are_checked():
    def settings(placement):
        return parse_settings({"network": "n.yaml", "placement": placement, "policies": ["placement"]}, "s.yaml", {})

    assert settings(None).placement == POLICY
    found = settings({"mode": "cost-efficient", "gain": 0.2, "hold_s": 1, "stay_s": 30}).placement
    assert found == Placement(mode="cost-efficient", gain=0.2, hold_s=1.0, stay_s=30.0)
    for wrong in ({"mode": "fast"}, {"gain": -1}, {"hold_s": "x"}, {"stay": 3}):
        with pytest.raises(ConfigError, match="placement"):
            settings(wrong)
