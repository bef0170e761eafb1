"""Places under 802.1X: nobody is there who is not authenticated, whatever is sent, said or was so before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.telemetry import AuthenticationEvent, StationEvent
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services import clients as core
from hyroads.controller.core.services.client_tables import Clients, Evidence, Happened, Limits
from hyroads.controller.model.state import TopologyContext, initial
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp.hosts import Barred, closed_port_of, is_learned
from hyroads.controller.ofp.intents import AccessPort
from hyroads.controller.ofp.pipeline import ETH_TYPE_EAPOL, Priority, Table
from hyroads.controller.ofp.port_meters import metered_access_port
from hyroads.controller.ofp.rules import port_rules
from hyroads.controller.runtime.address_book import AddressBook
from hyroads.controller.services.clients.locations import REFUSED_FOR_S, ClientService
from hyroads.controller.services.steering.stations import Steering
from hyroads.controller.settings.clients import AccessSettings
from hyroads.controller.settings.controller import parse

SHUT, OPEN, AIR = Place("a", WIRED), Place("b", WIRED), Place("a", "wifi")
ME, YOU = "02:00:00:00:00:01", "02:00:00:00:00:02"
STATE = Clients(
    limits=Limits(quiet_s=1.0, prove_s=10.0, forget_s=100.0), closed={SHUT: None, AIR: frozenset({"alice"})}
)


def where(state: Clients, mac: str) -> Place | None:
    return state.interfaces[mac].place if mac in state.interfaces else None


def test_frames_agents_and_handovers_bring_nobody_there() -> None:
    change = core.seen(STATE, ME, SHUT, 1.0)
    assert (change.allowed, change.notices, change.state) == (False, (), STATE)
    assert not core.handed_over(STATE, ME, SHUT, 1.0).allowed
    assert where(core.reported(STATE, "laptop", {ME: SHUT}, 1.0).state, ME) is None
    # One that is silent elsewhere is not even asked for it.
    elsewhere = core.seen(STATE, ME, OPEN, 1.0).state
    change = core.seen(elsewhere, ME, SHUT, 90.0)
    assert not change.allowed and not change.asks and where(change.state, ME) == OPEN


def test_who_is_authenticated_is_there_until_it_is_not() -> None:
    change = core.associated(STATE, ME, SHUT, 1.0, user="bob", vlan=20)
    assert [(n.what, n.user) for n in change.notices] == [(Happened.JOINED, "bob")]
    found = change.state.interfaces[ME]
    assert (found.place, found.evidence, found.user, found.vlan) == (SHUT, Evidence.ASSOCIATION, "bob", 20)
    assert core.seen(change.state, ME, SHUT, 2.0).allowed
    again = core.associated(change.state, ME, SHUT, 3.0, user="bob", vlan=20)
    assert not again.notices and again.state.interfaces[ME].since_s == 1.0
    other = core.associated(change.state, ME, SHUT, 3.0, user="carol")
    assert [(n.what, n.user) for n in other.notices] == [(Happened.AUTHENTICATED, "carol")]
    gone = core.left(other.state, ME, SHUT, 4.0)
    assert [(n.what, n.user) for n in gone.notices] == [(Happened.LEFT, "carol")]
    assert gone.state.interfaces[ME].user is None
    assert not core.seen(gone.state, ME, SHUT, 5.0).allowed


@pytest.mark.parametrize("user", [None, "bob", "Alice", "alice "])
def test_only_named_users_are_at_a_place_that_names_them(user: str | None) -> None:
    before = core.associated(STATE, ME, AIR, 1.0, user="alice").state
    for state in (STATE, before):
        change = core.associated(state, ME, AIR, 2.0, user=user)
        assert not change.allowed and where(change.state, ME) is None
        assert change.notices[-1].what is Happened.WRONG_USER
        assert change.notices[-1].user == user


def test_without_word_of_the_access_point_nobody_stays_for_long() -> None:
    here = core.associated(STATE, ME, SHUT, 1.0, user="bob").state
    there = core.associated(here, YOU, OPEN, 1.0).state
    silent = core.untold(there, "a", 5.0)
    assert where(core.expired(silent, 14.9).state, ME) == SHUT
    change = core.expired(silent, 15.0)
    assert [(n.what, n.mac, n.other) for n in change.notices] == [(Happened.LEFT, ME, SHUT)]
    assert where(change.state, YOU) == OPEN
    # Word in time keeps it, and so it is after a restart with what a switch had let in.
    assert where(core.expired(core.associated(silent, ME, SHUT, 9.0, user="bob").state, 50.0).state, ME) == SHUT
    restarted = core.found(STATE, ME, SHUT, 5.0).state
    assert core.seen(restarted, ME, SHUT, 6.0).allowed
    assert where(core.expired(restarted, 15.0).state, ME) is None
    assert where(core.expired(core.found(STATE, ME, OPEN, 5.0).state, 90.0).state, ME) == OPEN


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["seen", "handed", "reported", "left", "untold", "expired", "found", "down", "heard", "decided"]
        ),
        st.sampled_from([ME, YOU]),
        st.sampled_from([SHUT, OPEN, AIR]),
        st.floats(0.0, 20.0),
    ),
    max_size=30,
)


@given(STEPS)
def test_nothing_but_authentication_leads_there(steps: list[tuple[str, str, Place, float]]) -> None:
    """Whatever happens, in any order: who was never authenticated or found is at no such place."""
    state, now_s, found = STATE, 0.0, set()
    for what, mac, place, later_s in steps:
        now_s += later_s
        if what == "found":
            found.add((mac, place))
        made = {
            "seen": lambda s, m=mac, p=place, t=now_s: core.seen(s, m, p, t).state,
            "handed": lambda s, m=mac, p=place, t=now_s: core.handed_over(s, m, p, t).state,
            "reported": lambda s, m=mac, p=place, t=now_s: core.reported(s, "laptop", {m: p}, t).state,
            "left": lambda s, m=mac, p=place, t=now_s: core.left(s, m, p, t).state,
            "untold": lambda s, p=place, t=now_s: core.untold(s, p.node, t),
            "expired": lambda s, t=now_s: core.expired(s, t).state,
            "found": lambda s, m=mac, p=place, t=now_s: core.found(s, m, p, t).state,
            "down": lambda s, p=place, t=now_s: core.place_down(s, p, t).state,
            "heard": lambda s, m=mac, p=place, t=now_s: core.heard(s, p, [m], t),
            "decided": lambda s, t=now_s: core.decided(s, t).state,
        }[what]
        state = made(state)
        for interface in state.interfaces.values():
            if interface.place in state.closed:
                assert (interface.mac, interface.place) in found
                assert interface.until_s is not None


# -- rules


def test_a_port_under_8021x_lets_in_authentication_alone() -> None:
    port = AccessPort("h", (ME,), guarded=True, closed=True)
    rules = list(port_rules(100, port))
    assert not any(rule.match.eth_src == ME for rule in rules), "not even the node's own host"
    strangers = [rule for rule in rules if closed_port_of(rule) == 100]
    assert [(rule.actions, rule.goto) for rule in strangers] == [((), None)]
    # Nothing that a stranger sends reaches the controller, not even as a DHCP server or a router.
    others = [rule for rule in rules if rule.table == Table.PORT and rule.match.eth_type != ETH_TYPE_EAPOL]
    assert not any(isinstance(action, act.Output) for rule in others for action in rule.actions)
    serving = [rule for rule in rules if rule.table == Table.CHECK]
    assert {rule.actions for rule in serving} == {(act.Output(act.CONTROLLER),)} and len(serving) == 6
    ways = {rule.match.in_port: rule.actions for rule in rules if rule.match.eth_type == ETH_TYPE_EAPOL}
    assert ways == {100: (act.Output(act.LOCAL),), act.LOCAL: (act.Output(100),)}
    # What is said by 802.1X passes whoever is barred, and no rule of hosts is taken for one of these.
    assert all(rule.priority > Priority.BARRED_SOURCE for rule in rules if rule.match.eth_type == ETH_TYPE_EAPOL)
    assert not any(is_learned(rule.priority) for rule in rules)
    entry = metered_access_port(100, port, 0)
    assert [rule.match.eth_type for rule in entry.rules if rule.table == Table.PORT] == [ETH_TYPE_EAPOL]
    shown = [rule for rule in rules if any(isinstance(action, act.Output) for action in rule.actions)]
    plain = {(rule.table, rule.match): rule.priority for rule in shown if rule.match.in_port == 100}
    metered = {(rule.table, rule.match): rule.priority for rule in entry.rules}
    assert all(metered[key] > priority for key, priority in plain.items())
    closed = [rule for rule in port_rules(100, replace(port, closed=False)) if closed_port_of(rule) is not None]
    assert not any(not rule.actions for rule in closed)


# -- the settings

NETWORK = """
nodes: {a: {role: gateway, agent: false}, b: {role: ap, agent: false}, c: {role: client, agent: false}}
links:
  - {id: ab, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: ac, from: a, to: c, technology: wifi, capacity_mbps: 10, both: true}
interference: {rule: technology}
"""


def settings(access: Any) -> AccessSettings:
    return parse({"network": "n.yaml", "access": access}, "/etc/hyroads.yaml", {}).access


def context(access: Any) -> TopologyContext:
    read = settings(access)
    return TopologyContext.of(
        load_text(NETWORK, "lab"), guards=read.guard, dhcp=read.dhcp_servers, routers=read.routers, closed=read.closed
    )


def test_the_settings_name_places_and_users() -> None:
    found = settings({"dot1x": {"a": {}, "a/wifi": {"users": ["alice", "DOM\\bob"]}}}).closed
    assert found == {SHUT: None, AIR: frozenset({"alice", "DOM\\bob"})}
    made = context({"dot1x": {"a": {}}})
    assert made.closed_ports == {"a"}
    assert "a" not in made.dhcp and "a" not in made.routers, "though it is a gateway"
    assert "a" in context({}).dhcp


@pytest.mark.parametrize(
    ("access", "place"),
    [
        ({"dot1x": ["a"]}, "access.dot1x"),
        ({"dot1x": {"a": {"user": ["x"]}}}, "access.dot1x.a.user"),
        ({"dot1x": {"a": {"users": []}}}, "access.dot1x.a.users"),
        ({"dot1x": {"a": {"users": ["x\ny"]}}}, "access.dot1x.a.users"),
        ({"dot1x": {"a": {}, "a/host": {}}}, "each place once"),
        ({"dot1x": {"nowhere": {}}}, "access.dot1x"),
        ({"dot1x": {"c": {}}}, "access.dot1x"),
        ({"dot1x": {"b/wifi": {}}}, "access.dot1x"),
        ({"dot1x": {"a": {}}, "guard": False}, "access.dot1x"),
        ({"dot1x": {"a": {}}, "dhcp_servers": ["a"]}, "access.dhcp_servers"),
        ({"dot1x": {"a": {}}, "routers": ["a"]}, "access.routers"),
    ],
)
def test_wrong_settings_are_named(access: Any, place: str) -> None:
    with pytest.raises(ConfigError) as error:
        context(access)
    assert place in str(error.value)


# -- the service


class Controller:
    """What the service needs of the controller, and what it says of faults."""

    def __init__(self, context: TopologyContext) -> None:
        self.context, self.state, self.switches = context, initial(context), {}
        self.addresses = AddressBook(context.addresses)
        self.faults: list[tuple[str, str]] = []

    def place_client(self, client: str, place: Place) -> None:
        """It is somewhere else."""

    def fault(self, where: str, what: str) -> None:
        """Something is wrong."""
        self.faults.append((where, what))


class Lab:
    """The service alone, with access points that note what they are told."""

    def __init__(self) -> None:
        self.context = context({"dot1x": {"a": {"users": ["alice"]}, "a/wifi": {}}})
        self.now_s, self.told = 10.0, []
        self.events: list[tuple[str, Any]] = []
        controller: Any = Controller(self.context)
        self.service = ClientService(
            self.context, AccessSettings(), controller, self._publish, lambda: self.now_s, switch_grace_s=15.0
        )
        Steering(self.service, lambda: {"a": self}, self._publish, lambda: self.now_s)  # type: ignore[dict-item, return-value]
        self.controller = controller

    may_change = True

    def send(self, message: dict[str, Any]) -> None:
        """As an access point's session."""
        self.told.append(message)

    def _publish(self, kind: str, document: Any) -> None:
        self.events.append((kind, document))

    def says(self, event: str, mac: str = ME, technology: str = WIRED, **what: Any) -> None:
        self.service._station("a", StationEvent(technology, mac, event, None, **what))


def test_a_user_who_may_not_be_there_is_let_go_for_a_while() -> None:
    lab = Lab()
    lab.says("joined", user="mallory")
    assert lab.told == [{"type": "deauthenticate", "technology": WIRED, "mac": ME, "for_s": REFUSED_FOR_S}]
    assert [(kind, document["user"]) for kind, document in lab.events] == [("client.refused", "mallory")]
    assert where(lab.service.state, ME) is None


def test_who_loses_its_place_is_let_go_and_who_has_left_is_not_told_of() -> None:
    lab = Lab()
    lab.says("joined", user="alice")
    assert where(lab.service.state, ME) == SHUT and not lab.told
    assert lab.service.spot(ME, SHUT).node == "a" and ME in lab.service.tables
    lab.says("left")
    assert not lab.told and ME not in lab.service.tables
    lab.says("joined", user="alice")
    lab.service.forget(ME)
    assert lab.told == [{"type": "deauthenticate", "technology": WIRED, "mac": ME, "for_s": 0.0}]


def test_the_nodes_own_host_has_to_be_authenticated_and_can_be_nowhere_else() -> None:
    lab = Lab()
    own = lab.context.addressing.host_mac["a"]
    assert own not in lab.service.fixed
    assert not core.seen(lab.service.state, own, SHUT, 11.0).allowed
    assert core.seen(lab.service.state, own, OPEN, 11.0).notices[0].what is Happened.SPOOFED_MAC
    lab.says("joined", own, user="alice")
    assert where(lab.service.state, own) == SHUT


def test_a_plain_client_is_shut_out_while_it_is_not_authenticated() -> None:
    lab = Lab()
    mac = lab.context.addressing.host_mac["c"]
    port = lab.context.addressing.interface_name["a", "wifi"]
    assert where(lab.service.state, mac) == AIR, "where the file has it, for a moment"
    lab.now_s += 11.0
    lab.service.take(core.expired(lab.service.state, lab.now_s))
    assert where(lab.service.state, mac) is None
    tables = lab.service.tables
    rules = tables._rules(mac, "a", {port: 7})
    assert rules == Barred(mac, port).rules({port: 7})
    lab.says("joined", mac, "wifi", user="carol")
    assert where(lab.service.state, mac) == AIR
    assert not tables._rules(mac, "a", {port: 7})


def test_rejected_users_and_silent_servers_are_told_of_once() -> None:
    lab = Lab()
    rejected = AuthenticationEvent(WIRED, "rejected", ME, "alice", None)
    for _ in range(3):
        lab.service.closed.told("a", rejected)
    for what in ("silent", "bad-secret", "back"):
        lab.service.closed.told("a", AuthenticationEvent(WIRED, what, None, None, "10.0.0.5#1812"))
    kinds = [kind for kind, _ in lab.events]
    assert kinds == ["client.rejected", "radius.silent", "radius.bad_secret", "radius.back"]
    assert lab.events[0][1] == {"mac": ME, "user": "alice", "place": {"node": "a", "technology": WIRED}}
    assert "secret" in lab.events[1][1]["message"]
