"""Rules of learned hosts on all switches, whatever the order in which these confirm."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.ofp.hosts import (
    Barred,
    Claims,
    Here,
    Serving,
    There,
    host_of,
    host_rules,
    is_learned,
    source_of,
)
from hyroads.controller.ofp.match import SetMplsLabel
from hyroads.controller.ofp.pipeline import Priority, Table
from hyroads.controller.ofp.rule import Rule
from hyroads.controller.switches.host_tables import FOLLOW_S, HostTables, Spot

MAC = "02:aa:00:00:00:01"
NODES = ("a", "b", "c")
LABEL = {"a": 100, "b": 200, "c": 300}


@dataclass
class Layer:
    """The rules of a switch as it has them, and as they are on their way to it."""

    installed: dict[str, tuple[Rule, ...]] = field(default_factory=dict)
    wanted: dict[str, tuple[Rule, ...]] = field(default_factory=dict)
    sent: dict[str, tuple[Rule, ...]] | None = None

    def want(self, host: str, rules: tuple[Rule, ...]) -> None:
        self.wanted[host] = rules

    def flush(self) -> None:
        if self.sent is None and self.wanted:
            self.sent, self.wanted = self.wanted, {}

    def is_confirmed(self, host: str) -> bool:
        return host not in self.wanted and host not in (self.sent or {})

    def confirm(self) -> None:
        if self.sent is not None:
            self.installed.update(self.sent)
            self.sent = None
            self.flush()


@dataclass
class Switch:
    ports: dict[str, int] = field(default_factory=lambda: {"access": 100})
    hosts: Layer = field(default_factory=Layer)


class Net:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.switches = {node: Switch() for node in NODES}
        self.tables = HostTables(self.switches, lambda: self.now_s)

    def place(self, node: str) -> None:
        self.tables.place(MAC, Spot(node, "access", LABEL[node]))
        self.tables.advance()

    def settle(self) -> None:
        for _ in range(8):
            for switch in self.switches.values():
                switch.hosts.confirm()
            self.now_s += FOLLOW_S
            self.tables.advance()

    def of(self, node: str, table: Table) -> list[Rule]:
        rules = self.switches[node].hosts.installed.get(MAC, ())
        return [rule for rule in rules if rule.table == table and rule.match.eth_dst == MAC]

    def way(self, node: str) -> list[str]:
        """Nodes that a frame for the host passes from one on, as the rules are now."""
        passed, table = [node], Table.FORWARD
        while len(passed) < 10:
            found = self.of(passed[-1], table)
            if found and found[0].goto == Table.DELIVER:
                found = self.of(passed[-1], Table.DELIVER)
            labels = [action.label for rule in found for action in rule.actions if isinstance(action, SetMplsLabel)]
            if not labels:
                return passed
            passed.append(next(node for node, label in LABEL.items() if label == labels[0]))
            table = Table.DELIVER
        return passed


@given(st.lists(st.one_of(st.sampled_from([f"to {node}" for node in NODES]), st.sampled_from(NODES), st.just("time"))))
def test_frames_never_go_round_and_end_where_the_host_is(events):
    net, home = Net(), None
    for event in events:
        if event.startswith("to "):
            home = event[3:]
            net.place(home)
        elif event == "time":
            net.now_s += FOLLOW_S
        else:
            net.switches[event].hosts.confirm()
        net.tables.advance()
        for node in NODES:
            way = net.way(node)
            assert len(way) == len(set(way)), f"frames for the host go round: {way}"
    net.settle()
    for node in NODES:
        spot = Spot(home, "access", LABEL[home]) if home else None
        expected = () if spot is None else (Here(MAC, "access") if node == home else There(MAC, LABEL[home]),)
        intents = expected if isinstance(expected, tuple) else (expected,)
        assert net.switches[node].hosts.installed.get(MAC, ()) == host_rules(intents, {"access": 100})
    assert home is None or not net.tables.pending(MAC)


class Routes:
    """Routes on demand; those to ``missing`` are not in force."""

    def __init__(self) -> None:
        self.held: set[tuple[str, str, object]] = set()
        self.missing: set[str] = set()

    def hold(self, source: str, destination: str, holder: object) -> None:
        self.held.add((source, destination, holder))

    def release(self, source: str, destination: str, holder: object) -> None:
        self.held.discard((source, destination, holder))

    def is_ready(self, source: str, destination: str) -> bool:
        assert (source, destination, MAC) in self.held, "nobody waits for what nobody makes"
        return destination not in self.missing


def on_demand() -> tuple[Net, Routes]:
    net, routes = Net(), Routes()
    net.tables.routes = routes
    return net, routes


EVENTS = st.one_of(
    st.sampled_from([f"{what} {node}" for what in ("to", "use", "unuse", "routes") for node in NODES]),
    st.sampled_from(NODES),
    st.just("time"),
)


@given(st.lists(EVENTS))
def test_on_demand_those_who_send_to_a_host_and_no_others_know_it_whatever_the_order(events):
    (net, routes), home, users = on_demand(), None, set()
    for event in events:
        what, _, node = event.partition(" ")
        if what == "to":
            home = node
            net.place(home)
        elif what == "use":
            users.add(node)
            net.tables.use(node, MAC)
        elif what == "unuse":
            users.discard(node)
            net.tables.unuse(node, MAC)
        elif what == "routes":
            routes.missing ^= {node}
        elif what == "time":
            net.now_s += FOLLOW_S
        else:
            net.switches[what].hosts.confirm()
        net.tables.advance()
        for start in NODES:
            way = net.way(start)
            assert len(way) == len(set(way)), f"frames for the host go round: {way}"
    net.settle()
    for node in NODES:
        if home is None:
            expected = ()
        elif node == home:
            expected = (Here(MAC, "access"),)
        else:
            expected = (There(MAC, LABEL[home]),) if node in users else ()
        assert net.switches[node].hosts.installed.get(MAC, ()) == host_rules(expected, {"access": 100})
    wanted = {(node, home, MAC) for node in users - {home}} if home else set()
    assert routes.held == wanted, "nothing is held for ever"


def test_on_demand_nobody_is_sent_to_a_new_home_before_the_route_is_in_force():
    net, routes = on_demand()
    net.tables.use("c", MAC)
    net.place("a")
    net.settle()
    assert net.way("c") == ["c", "a"]
    routes.missing = {"b"}
    net.place("b")
    net.switches["b"].hosts.confirm()
    net.tables.advance()
    assert net.switches["c"].hosts.sent is None
    routes.missing = set()
    net.tables.advance()
    net.switches["c"].hosts.confirm()
    assert net.way("c") == ["c", "b"]


def test_the_new_home_comes_first_and_the_old_one_sends_after_the_host_for_a_while():
    net = Net()
    net.place("a")
    net.settle()
    net.place("b")
    assert net.switches["c"].hosts.sent is None
    assert net.way("c") == ["c", "a"]
    net.switches["b"].hosts.confirm()
    net.tables.advance()
    net.switches["a"].hosts.confirm()
    assert net.way("c") == ["c", "a", "b"]
    net.settle()
    assert net.way("c") == ["c", "b"]
    assert not net.of("a", Table.DELIVER)


def test_whoever_waits_is_told_when_the_host_is_let_in():
    net, told = Net(), []
    net.tables.place(MAC, Spot("a", "access", 100), lambda: told.append(1))
    net.tables.advance()
    assert not told
    net.switches["a"].hosts.confirm()
    net.tables.advance()
    assert told == [1]


def test_a_bar_ends_with_its_time_and_with_the_host_coming():
    net = Net()
    net.place("a")
    net.settle()
    net.tables.bar("b", Barred(MAC, "access"), 1.0)
    net.settle()
    assert all(rule.priority != Priority.BARRED_SOURCE for rule in net.switches["b"].hosts.installed[MAC])
    net.tables.bar("b", Barred(MAC, "access"), 1e9)
    net.tables.advance()
    net.switches["b"].hosts.confirm()
    assert any(rule.priority == Priority.BARRED_SOURCE for rule in net.switches["b"].hosts.installed[MAC])
    net.place("b")
    net.settle()
    assert all(rule.priority != Priority.BARRED_SOURCE for rule in net.switches["b"].hosts.installed[MAC])


def test_a_host_that_is_removed_leaves_nothing():
    net = Net()
    net.place("a")
    net.place("b")
    net.tables.remove(MAC)
    net.tables.advance()
    net.settle()
    assert all(not switch.hosts.installed.get(MAC) for switch in net.switches.values())


def test_the_rules_of_a_host_tell_whose_they_are():
    rules = host_rules((Here(MAC, "access", hairpin=True),), {"access": 7})
    assert all(is_learned(rule.priority) and host_of(rule.match_fields) == MAC for rule in rules)
    sources = [source_of(rule) for rule in rules]
    assert [source for source in sources if source] == [(7, MAC)]
    assert host_rules((Here(MAC, "access"),), {}) == ()


def test_what_a_station_has_learned_is_where_it_is_and_bars_end_there() -> None:
    net, called = Net(), []
    claims = Claims(MAC, "access", ("10.0.0.7",))
    net.tables.bar("a", Barred(MAC, "access", "10.0.0.7"), 100.0)
    net.tables.bar("a", Barred(MAC, "access", serving=Serving.ROUTER, is_station=True), 100.0)
    net.tables.place_station("a", claims, lambda: called.append(net.now_s))
    net.tables.advance()
    assert not called, "not before the switch has confirmed"
    net.settle()
    assert called
    rules = net.switches["a"].hosts.installed[MAC]
    passing = host_rules((claims,), {"access": 100})
    assert set(passing) < set(rules)
    assert {rule.priority for rule in set(rules) - set(passing)} == {Priority.BARRED_SERVER}
    assert {rule.table for rule in rules} == {Table.CHECK}
    net.tables.place_station("b", claims)
    net.settle()
    assert net.switches["b"].hosts.installed[MAC] == passing
    assert not set(passing) & set(net.switches["a"].hosts.installed[MAC])
    assert MAC in net.tables.known_at("b") and MAC not in net.tables.known_at("a")
    net.tables.switch_ready("b")
    net.tables.remove_station(MAC)
    net.settle()
    assert not net.switches["b"].hosts.installed[MAC] and not net.tables.known_at("b")
