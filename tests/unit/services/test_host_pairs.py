"""Which hosts talk to which: pairs come with the first frame, follow hosts that move, and end when they are idle."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rings import ring
from switch_model import port_numbers

from hyroads.controller.control.live_network import Basis, LiveNetwork
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.topologies import campus
from hyroads.controller.model.plan import SINGLE
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.diff import Installed
from hyroads.controller.ofp.hosts import There
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.ofp.match import Match, SetMplsLabel
from hyroads.controller.ofp.pipeline import Priority, Table
from hyroads.controller.ofp.readback import FlowStat
from hyroads.controller.ofp.rule import Rule
from hyroads.controller.ofp.rules import rules_for
from hyroads.controller.services.clients import pairs as module
from hyroads.controller.services.clients.pairs import COUNT_EVERY_S, IDLE_S, HostPairs
from hyroads.controller.switches.host_tables import FOLLOW_S, HostTables, Spot

LEARNED = "02:aa:00:00:00:01"


def flow_mods(before: Iterable[Rule], after: Iterable[Rule]) -> int:
    """How many change one into the other: an add overwrites the rule with its key."""
    old, new = {rule.key: rule.cookie for rule in before}, {rule.key: rule.cookie for rule in after}
    adds = sum(old.get(key) != cookie for key, cookie in new.items())
    return adds + len(old.keys() - new.keys())


class Hosts:
    """The layer of learned hosts of a switch that does at once what it is told."""

    def __init__(self) -> None:
        self.rules: dict[str, tuple[Rule, ...]] = {}
        self.elsewhere: list[str] = []
        self.flow_mods = 0

    def want(self, host: str, rules: tuple[Rule, ...]) -> None:
        self.flow_mods += flow_mods(self.rules.get(host, ()), rules)
        self.rules[host] = rules
        if not rules:
            del self.rules[host]

    def flush(self) -> None: ...

    def is_confirmed(self, _host: str) -> bool:
        return True

    def remote(self) -> list[str]:
        return self.elsewhere


class Session:
    """A switch's session; ``intent`` is what it has confirmed."""

    def __init__(self, rig: Rig, node: str) -> None:
        self.rig, self.node = rig, node
        self.is_read, self.hosts = True, Hosts()
        self.ports = port_numbers(rig.context.network, rig.context.addressing, node)
        self.intent: SwitchIntent | None = None
        self.packets: dict[str, int] = {}
        self.installed: tuple[Installed, ...] = ()
        self.asked = 0

    @property
    def confirmed(self):
        return None if self.intent is None else SimpleNamespace(intent=self.intent)

    def rules(self) -> tuple[Rule, ...]:
        assert self.intent is not None
        learned = tuple(rule for rules in self.hosts.rules.values() for rule in rules)
        return rules_for(self.intent, self.ports).rules + learned

    def ask_uses(self, told) -> None:
        self.asked += 1
        for rule in self.rules():
            if rule.table == Table.FORWARD:
                installed = Installed(rule.table, rule.priority, rule.match_fields, rule.cookie)
                told(FlowStat(installed, self.packets.get(rule.match.eth_dst or "", 0), 0))


class Rig:
    """A controller whose switches confirm at the next turn what they are told, unless they are ``deaf``."""

    def __init__(self, network: int | Network = 2, *, is_alone: bool = False, **how) -> None:
        network = ring(network, **how) if isinstance(network, int) else network
        self.context = TopologyContext.of(network, all_routes_nodes=0)
        self.live = SimpleNamespace(network=LiveNetwork(self.context, Basis(frozenset())))
        self.plan = SimpleNamespace(version=0, flows={})
        self.now_s = 100.0
        self.deaf: set[str] = set()
        self.flow_mods = 0
        nodes = () if is_alone else self.context.addressing.dpid
        self.switches = {node: Session(self, node) for node in nodes}
        self.tables = HostTables(self.switches, lambda: self.now_s)
        self.tables.are_all_known = not is_alone
        self.pairs = HostPairs(self, self.tables, lambda: self.now_s, switch_grace_s=15.0)
        self.turn()

    def wake(self, *, now: bool = False) -> None: ...

    def turn(self) -> None:
        self.pairs.follow()
        for node, session in self.switches.items():
            if node not in self.deaf:
                before, session.intent = session.intent, self.pairs.added_to(node, self.live.network.intents[node])
                if before is not None and before is not session.intent:
                    self.flow_mods += flow_mods(*(rules_for(i, session.ports).rules for i in (before, session.intent)))
        self.tables.advance()

    def turns(self, count: int = 6) -> None:
        for _ in range(count):
            self.turn()

    def after(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 1.0
            self.turn()

    def miss(self, node: str, mac: str) -> None:
        """A frame for a host comes from a switch's table FORWARD."""
        frame = bytes.fromhex(mac.replace(":", "")) + bytes(6) + b"\x08\x00" + bytes(46)
        match = struct.pack("!HHIIxxxx", 1, 12, 0x8000_0004, 1)
        body = struct.pack("!IHBBQ", 0xFFFF_FFFF, len(frame), 0, Table.FORWARD, 0) + match + bytes(2) + frame
        self.pairs.packet_in(self.switches[node], struct.pack("!BBHI", 4, 10, 8 + len(body), 0) + body)

    def place(self, node: str) -> None:
        access = self.context.addressing.access_port[node]
        self.tables.place(LEARNED, Spot(node, access, self.context.labels.node[node]))

    def label_for(self, node: str, mac: str) -> int | None:
        """Behind which label a switch sends a host's frames; None: it floods them, or the host is there."""
        for rule in self.switches[node].rules():
            if rule.table == Table.FORWARD and rule.match.eth_dst == mac and rule.match.in_port is None:
                labels = [action.label for action in rule.actions if isinstance(action, SetMplsLabel)]
                return labels[0] if labels else None
        return None

    def mac(self, host: str) -> str:
        return self.context.addressing.host_mac[host]

    def leads(self, node: str, label: int) -> str:
        """Where frames behind a label end."""
        name_of = {label: name for name, label in self.context.labels.node.items()}
        for _ in range(20):
            routes = {route.label: route for route in self.switches[node].intent.routes}
            if label not in routes:
                assert name_of[label] == node or self.live.network.places[name_of[label]].node == node
                return node
            mac_of = {mac: n for (n, _), mac in self.context.addressing.interface_mac.items()}
            node = mac_of[routes[label].hop.mac]
        raise AssertionError("frames go round")


def test_the_first_switch_is_told_once_all_others_on_the_route_have_confirmed() -> None:
    rig = Rig(2, clients=0)
    rig.deaf = set(rig.switches) - {"n0"}
    rig.miss("n0", rig.mac("n3"))
    rig.turns()
    assert rig.label_for("n0", rig.mac("n3")) is None
    rig.deaf = set()
    rig.turns(3)
    assert rig.label_for("n0", rig.mac("n3")) == rig.context.labels.node["n3"]
    assert rig.leads("n0", rig.context.labels.node["n3"]) == "n3"


@examples(30)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_whoever_talked_has_routes_and_nobody_else(seed: int, data: st.DataObject) -> None:
    rig = Rig(seed, size=5, clients=2)
    hosts = [*rig.context.addressing.dpid, *rig.live.network.places]
    nodes = list(rig.switches)
    asked = data.draw(st.lists(st.tuples(st.sampled_from(nodes), st.sampled_from(hosts)), max_size=8))
    for node, host in asked:
        rig.miss(node, rig.mac(host))
    rig.turns()
    homes = {host: rig.live.network.places[host].node if host not in rig.switches else host for host in hosts}
    wanted = {(node, host) for node, host in asked if homes[host] != node}
    for node in nodes:
        for host in hosts:
            label = rig.label_for(node, rig.mac(host))
            assert (label is not None) == ((node, host) in wanted)
            assert label is None or rig.leads(node, label) == homes[host]
    rig.after(IDLE_S + 3 * COUNT_EVERY_S)
    assert not rig.pairs.pairs
    assert {node: session.intent for node, session in rig.switches.items()} == rig.live.network.intents


def test_a_pair_stays_as_long_as_its_rule_is_used() -> None:
    rig = Rig(2, clients=0)
    rig.miss("n0", rig.mac("n3"))
    for _ in range(20):
        rig.switches["n0"].packets[rig.mac("n3")] = rig.switches["n0"].packets.get(rig.mac("n3"), 0) + 1
        rig.after(IDLE_S / 4)
    assert rig.label_for("n0", rig.mac("n3")) is not None
    rig.after(IDLE_S + 3 * COUNT_EVERY_S)
    assert rig.label_for("n0", rig.mac("n3")) is None
    asked = rig.switches["n0"].asked
    rig.after(100)
    assert rig.switches["n0"].asked == asked, "a switch without pairs is asked for nothing"


def test_strangers_have_no_pairs_and_a_switch_has_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAIRS_PER_NODE", 2)
    rig = Rig(2, clients=0)
    rig.miss("n0", "02:bb:00:00:00:01")
    for target in ("n0", "n1", "n2", "n3", "n4"):
        rig.miss("n0", rig.mac(target))
    rig.turns()
    assert len(rig.pairs.pairs["n0"]) == 2
    assert rig.pairs.counters["refused"] == 2
    assert rig.pairs.counters["unknown"] == 1


def test_a_learned_host_that_moves_takes_those_along_who_talk_to_it_and_few_rules_change() -> None:
    rig = Rig(3, size=8, clients=0)
    rig.place("n1")
    rig.turns()
    rig.miss("n4", LEARNED)
    rig.miss("n5", LEARNED)
    rig.turns()
    assert {node for node in rig.switches if LEARNED in rig.switches[node].hosts.rules} == {"n1", "n4", "n5"}
    rig.place("n2")
    rig.turns()
    rig.now_s += FOLLOW_S
    rig.turns()
    for node in ("n4", "n5"):
        assert rig.leads(node, rig.label_for(node, LEARNED)) == "n2"
    assert {node for node in rig.switches if LEARNED in rig.switches[node].hosts.rules} == {"n2", "n4", "n5"}
    rig.tables.remove(LEARNED)
    rig.turns()
    assert not any(LEARNED in session.hosts.rules for session in rig.switches.values())
    rig.place("n6")
    rig.turns()
    assert rig.leads("n4", rig.label_for("n4", LEARNED)) == "n6", "who talks to it goes on when it is back"


@pytest.mark.parametrize("nodes", [40, 160])
@pytest.mark.parametrize("shared", [False, True])
def test_a_move_costs_what_lies_on_the_paths_of_those_who_talk_to_the_host(nodes: int, *, shared: bool) -> None:
    """Whatever the size of the network: a handful at the two homes and one for who talks to the host; for each switch
    on the old and new paths the rules of a label, unless other hosts at the homes use it too (``shared``).
    """
    rig = Rig(campus(random.Random(1), nodes))
    homes = ("b1-2", "b1-5")
    rig.place(homes[0])
    rig.turns()
    rig.miss("b2-3", LEARNED)
    for home in homes if shared else ():
        rig.miss("b2-3", rig.mac(home))
        rig.miss("b1-2", rig.mac("b1-5"))
    rig.turns()

    def all_flow_mods() -> int:
        return rig.flow_mods + sum(session.hosts.flow_mods for session in rig.switches.values())

    def on_paths() -> int:
        return sum(any(r.node in homes for r in s.intent.routes) for s in rig.switches.values())

    before, passed = all_flow_mods(), on_paths()
    rig.place(homes[1])
    rig.turns()
    rig.now_s += FOLLOW_S
    rig.turns()
    moved = all_flow_mods() - before
    assert rig.leads("b2-3", rig.label_for("b2-3", LEARNED)) == homes[1]
    assert moved <= 8 if shared else moved <= 8 + 4 * (passed + on_paths())


def test_flows_on_the_single_path_need_no_first_frame_and_never_age() -> None:
    rig = Rig(2, clients=0)
    flow = SimpleNamespace(spec=FlowSpec("f", "n0", "n3"), mode=SINGLE)
    rig.plan = SimpleNamespace(version=1, flows={"f": flow})
    rig.turns()
    assert rig.label_for("n0", rig.mac("n3")) is not None
    rig.after(2 * IDLE_S)
    assert rig.label_for("n0", rig.mac("n3")) is not None
    rig.plan = SimpleNamespace(version=2, flows={})
    rig.after(IDLE_S + 3 * COUNT_EVERY_S)
    assert rig.label_for("n0", rig.mac("n3")) is None


@examples(20)
@given(seed=st.integers(0, 10**6))
def test_a_new_controller_wants_what_switches_have_whatever_the_order_in_which_they_are_read(seed: int) -> None:
    rig = Rig(seed, size=6, clients=2)
    hosts = [*rig.context.addressing.dpid, *rig.live.network.places]
    for i, node in enumerate(rig.switches):
        rig.miss(node, rig.mac(hosts[(i * 3 + seed) % len(hosts)]))
    rig.turns()
    before = {node: set(session.rules()) for node, session in rig.switches.items()}
    again = Rig(seed, is_alone=True, size=6, clients=2)
    for node in sorted(before, reverse=seed % 2 == 0):
        again.switches[node] = session = Session(again, node)
        session.installed = tuple(Installed(r.table, r.priority, r.match_fields, r.cookie) for r in before[node])
        again.turn()
        assert set(session.rules()) == before[node]
    again.tables.are_all_known = True
    again.after(30)
    assert {node: set(session.rules()) for node, session in again.switches.items()} == before


def test_a_new_controller_keeps_routes_to_learned_hosts_until_it_knows_where_these_are() -> None:
    rig, again = Rig(3, size=8, clients=0), Rig(3, is_alone=True, size=8, clients=0)
    rig.place("n1")
    rig.turns()
    rig.miss("n4", LEARNED)
    rig.turns()
    label = rig.label_for("n4", LEARNED)
    before = {node: rules_for(session.intent, session.ports).rules for node, session in rig.switches.items()}
    for node, rules in before.items():
        again.switches[node] = session = Session(again, node)
        session.installed = tuple(Installed(r.table, r.priority, r.match_fields, r.cookie) for r in rules)
    again.switches["n4"].hosts.elsewhere = [LEARNED]
    again.turns()
    assert again.leads("n4", label) == "n1"
    again.place("n1")
    again.tables.are_all_known = True
    again.turns()
    assert {node: rules_for(session.intent, session.ports).rules for node, session in again.switches.items()} == before


def test_who_followed_takes_pairs_over_that_it_only_waited_for() -> None:
    """A standby knows the flows and hears nothing confirmed, as it may tell switches nothing."""
    flows = {"f": SimpleNamespace(spec=FlowSpec("f", "n0", "n3"), mode=SINGLE)}
    leader, standby = Rig(2, clients=0), Rig(2, clients=0)
    standby.deaf = set(standby.switches)
    for rig in (leader, standby):
        rig.plan = SimpleNamespace(version=1, flows=flows)
        rig.turns()
    before = {node: set(session.rules()) for node, session in leader.switches.items()}
    assert leader.label_for("n0", leader.mac("n3")) is not None
    # It leads, and reads all switches again.
    standby.deaf = set()
    for node, rules in before.items():
        standby.switches[node] = session = Session(standby, node)
        session.installed = tuple(Installed(r.table, r.priority, r.match_fields, r.cookie) for r in rules)
    standby.turn()
    assert {node: set(session.rules()) for node, session in standby.switches.items()} == before


def test_switches_that_are_all_read_have_each_tree_made_once() -> None:
    rig = Rig(7, size=12, clients=0)
    nodes = list(rig.switches)
    for node in nodes:
        for target in nodes[:4]:
            rig.miss(node, rig.mac(target))
    rig.turns()
    again = Rig(7, is_alone=True, size=12, clients=0)
    for node, session in rig.switches.items():
        again.switches[node] = other = Session(again, node)
        other.installed = tuple(Installed(r.table, r.priority, r.match_fields, r.cookie) for r in session.rules())
    again.turn()
    assert {n: set(s.rules()) for n, s in again.switches.items()} == {
        n: set(s.rules()) for n, s in rig.switches.items()
    }
    assert again.pairs.routes.made == 4


def test_rules_of_switches_that_lead_nowhere_any_more_are_taken_for_what_they_are() -> None:
    """Someone else's label or host is not adopted."""
    rig = Rig(2, clients=0)
    session = Session(rig, "n0")
    strange = Rule(Table.LABEL, Priority.UNICAST, Match(eth_type=0x8847, mpls_label=77, mpls_bos=1))
    there = There("02:cc:00:00:00:01", 99).rules({})[0]
    session.installed = tuple(Installed(r.table, r.priority, r.match_fields, r.cookie) for r in (strange, there))
    rig.switches["n0"] = session
    rig.turns()
    assert session.intent == rig.live.network.intents["n0"]
