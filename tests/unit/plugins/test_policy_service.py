"""Policies live: wishes become moves, refusals are respected, foreign policies are held to the rules."""

from dataclasses import replace

import pytest
from plugin_rig import Rig, eventually

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.netfile import parse as parse_network
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.view import ClientView, NetworkView, Option, options_of
from hyroads.controller.services.steering.policies import LocalPolicy, Outcome, PolicyService
from hyroads.plugins.kinds import Kind
from hyroads.plugins.policies import load, signal

A, B = Place("a", "wifi"), Place("b", "wifi")


class World:
    """Clients between two access points; a move takes a second, and some refuse."""

    def __init__(self, *policies, refuses=()):
        self.now_s, self.told, self.refuses = 100.0, [], set(refuses)
        self.at = {}
        self.signals = {}
        self.moves = {}
        self.asked = []
        self.policies = {policy.name: LocalPolicy(policy) for policy in policies}
        self.service = PolicyService(
            lambda: self.policies,
            lambda: NetworkView(self.now_s),
            lambda kind, document: self.told.append((kind, document)),
            lambda: self.now_s,
        )
        self.service.actuators.append(self)

    def put(self, client, place, a_dbm, b_dbm):
        self.at[client] = place, self.at.get(client, (None, 0.0))[1]
        self.signals[client] = a_dbm, b_dbm

    def clients(self, now_s):
        return {
            name: ClientView(
                name, place, since_s,
                (Option(A, "ch1", 20.0, self.signals[name][0]), Option(B, "ch6", 20.0, self.signals[name][1])),
            )
            for name, (place, since_s) in self.at.items()
        }  # fmt: skip

    def move(self, client, place):
        if client in self.refuses:
            raise HyroadsError("no thanks")
        self.asked.append((self.now_s, client, place))
        self.moves[f"m{len(self.asked)}"] = client, place, self.now_s
        return f"m{len(self.asked)}"

    def outcome(self, move):
        client, place, began_s = self.moves[move]
        if self.now_s - began_s < 1.0:
            return None
        if client in self.refuses:
            return Outcome("it did not come")
        self.at[client] = place, self.now_s
        return Outcome(None)

    def run(self, seconds):
        for _ in range(seconds):
            self.service.turn()
            self.now_s += 1.0


def test_a_client_with_a_weak_signal_is_moved_once():
    world = World(signal.POLICY)
    world.put("c", A, -80, -55)
    world.put("d", B, -80, -55)
    world.run(30)
    assert [(client, place) for _, client, place in world.asked] == [("c", B)]
    kind, document = world.told[0]
    assert kind == "policy.moves" and document["policy"] == "signal" and document["handover"] == "m1"
    assert document["to"] == {"node": "b", "technology": "wifi"} and "dBm" in document["reason"]
    assert world.at["c"][0] == B


def test_who_refuses_is_asked_again_later_and_later():
    world = World(signal.POLICY, refuses=["c"])
    world.put("c", A, -80, -55)
    world.run(300)
    refused = [document for kind, document in world.told if kind == "policy.refused"]
    assert 3 <= len(refused) <= 5 and refused[0]["status"] == "no thanks" and world.at["c"][0] == A
    world.refuses.clear()
    world.run(600)
    assert [(client, place) for _, client, place in world.asked] == [("c", B)]


def test_clients_of_a_crowded_access_point_spread_and_then_stay():
    world = World(load.POLICY)
    for number in range(6):
        world.put(f"c{number}", A, -50, -50)
    world.run(60)
    assert sorted(place for place, _ in world.at.values()) == [A] * 3 + [B] * 3
    moved = len(world.asked)
    world.run(60)
    assert len(world.asked) == moved == 3


def test_nothing_is_asked_of_anybody_while_no_policy_is_on():
    world = World()
    world.put("c", A, -80, -55)
    world.service.actuators.append(None)  # it would fail if it were asked
    world.run(5)
    assert world.asked == []


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    if rig.service is not None:
        rig.service.stop()


FOREIGN = """
class All:
    name = "{name}"
    def fresh(self): return 0
    def decide(self, memory, view):
        assert memory < 100
        return memory + 1, tuple(Wish(name, {place}, f"call {{memory}}") for name in view.clients)
POLICY = All
"""


def foreign(rig, **code):
    service = rig.run([rig.found(name, text, kind=Kind.POLICY) for name, text in code.items()])
    eventually(lambda: set(service.policies()) >= set(code))
    return service.policies()


def test_a_foreign_policy_remembers_in_its_process(rig):
    policy = foreign(rig, all=FOREIGN.format(name="all", place="Place('b', 'wifi')"))["all"]
    world = World()
    world.put("c", A, -50, -50)
    view = NetworkView(1.0, clients=world.clients(1.0))
    assert [policy.wishes(view)[0].reason for _ in range(3)] == ["call 0", "call 1", "call 2"]
    world.policies["all"] = policy
    world.run(3)
    assert world.asked[0][1:] == ("c", B) and rig.faults("all") == []


@pytest.mark.parametrize(
    ("place", "kind"), [("Place('x', 'wifi')", "wrong answer"), ("7", "wrong answer"), ("1 / 0", "raised")]
)
def test_a_foreign_policy_that_does_something_wrong_moves_nobody(rig, place, kind):
    policy = foreign(rig, bad=FOREIGN.format(name="bad", place=place))["bad"]
    world = World()
    world.put("c", A, -50, -50)
    assert policy.wishes(NetworkView(1.0, clients=world.clients(1.0))) == ()
    assert [fault[0] for fault in rig.faults("bad")] == [kind]
    for _ in range(2):
        policy.wishes(NetworkView(1.0, clients=world.clients(1.0)))
    assert "bad" not in {name for name in rig.service.policies() if rig.service.document(name)["state"] == "running"}


def test_built_in_policies_are_switched_by_hand(rig):
    service = rig.run([])
    assert service.document("signal")["state"] == "off" and service.policies() == {}
    assert service.enable("signal")["state"] == "running" and set(service.policies()) == {"signal"}
    assert service.disable("signal")["state"] == "off" and service.policies() == {}


def test_options_are_places_heard_both_ways():
    network = parse_network({
        "nodes": {"a": {"role": "ap"}, "b": {"role": "ap"}, "c": {"role": "client"}},
        "links": [
            {"id": "aw", "from": "a", "to": "c", "technology": "wifi", "capacity_mbps": 10, "both": True},
            {"id": "ap", "from": "a", "to": "c", "technology": "plc", "capacity_mbps": 5, "both": True},
            {"id": "bw", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 8},
        ],
        "interference": {"rule": "technology"},
    }, "test")  # fmt: skip
    rates = {link.id: link.capacity_mbps for link in network.links}
    found = options_of(network, "c", {**rates, "aw~": 4.0}, network.interference, {A: -60.0}.get)
    assert [(option.place, option.rate_mbps, option.signal_dbm) for option in found] == [
        (A, 4.0, -60.0),
        (Place("a", "plc"), 5.0, None),
    ]
    assert found[0].medium != found[1].medium
    gone = options_of(network, "c", {**rates, "aw": 0.0}, network.interference)
    assert [option.place.technology for option in gone] == ["plc"]
    assert replace(found[0], signal_dbm=None) not in gone
