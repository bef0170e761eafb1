"""Access rules: what wins, what never is caught, who may make which, and what switches are told of a change."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from instant_saver import full_disk, instant_saver
from switch_model import Frame, ModelSwitch

from hyroads.controller.core.access_rules import AccessRule, Action, overlap, parse_rule
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import load_text
from hyroads.controller.model.pending_names import switch_name
from hyroads.controller.model.state import Presence
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import METER_FIRST, METERS, PROTECTION, entry_of, is_access
from hyroads.controller.ofp.diff import as_installed
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import Priority, Table
from hyroads.controller.ofp.rule import Rule
from hyroads.controller.services.access_rules import AccessRuleService
from hyroads.controller.services.owners import Kind, OwnerService
from hyroads.controller.switches.access_layer import ANSWER_WITHIN_S, RETRY_REFUSED_S, AccessLayer
from hyroads.rest import access_rules
from hyroads.rest.api import create_app
from hyroads.rest.contract import NotConfirmedError, NotSavedError, Token

NET = """
nodes: {a: {role: ap, agent: false}, b: {role: ap, agent: false}, c: {role: client}, d: {role: client}}
links:
  - {id: ab, from: a, to: b, technology: plc, capacity_mbps: 20, both: true}
  - {id: ac, from: a, to: c, technology: wifi, capacity_mbps: 20, both: true}
  - {id: bc, from: b, to: c, technology: wifi, capacity_mbps: 10, both: true}
  - {id: bd, from: b, to: d, technology: wifi, capacity_mbps: 20, both: true}
interference: {rule: technology}
"""
ADMIN = Token("ops", "admin-token-0123456789", "admin")
APP = Token("video", "video-token-0123456789", "application", clients=frozenset({"c"}), access_rules=2)
OTHER = Token("mail", "mail-token-0123456789", "application", clients=frozenset({"d"}))
ACCESS = "/api/v1/access-rules"


class Switch:
    """A switch that carries out what it is sent, when it is told to."""

    def __init__(self, node: str, clock: Any) -> None:
        self.node, self.is_read, self.ports = node, True, {}
        self.xid = 0
        self.sent: list[bytes] = []
        self.rules: dict[tuple[int, int, bytes], bytes] = {}
        self.meters: dict[int, int] = {}
        self.refuses = False
        self.access = AccessLayer(self.send, self.next_xid, clock, lambda what: None)
        self.access.start([])

    def next_xid(self, count: int) -> int:
        self.xid += count
        return self.xid - count + 1

    def send(self, data: bytes) -> bool:
        while data:
            length = int.from_bytes(data[2:4], "big")
            self.sent.append(data[:length])
            data = data[length:]
        return True

    def work(self) -> int:
        """Do what came; how many flow-mods that were."""
        count = 0
        while self.sent:
            message = self.sent.pop(0)
            kind, xid = message[1], int.from_bytes(message[4:8], "big")
            if kind == wire.BARRIER_REQUEST:
                assert self.access.on_barrier(xid)
            elif kind == wire.METER_MOD:
                self._meter(message, xid)
            else:
                count += 1
                self._flow(message, xid)
        return count

    def _meter(self, message: bytes, xid: int) -> None:
        command, number = int.from_bytes(message[8:10], "big"), int.from_bytes(message[12:16], "big")
        if command == wire.METER_DELETE:
            self.meters.pop(number, None)
        elif (command == wire.METER_ADD) == (number in self.meters):
            assert self.access.on_error(xid, 12, 1)
        else:
            self.meters[number] = int.from_bytes(message[20:24], "big")

    def _flow(self, message: bytes, xid: int) -> None:
        if self.refuses:
            assert self.access.on_error(xid, 5, 0)
            return
        table, command = message[24], message[25]
        length = int.from_bytes(message[50:52], "big")
        key = (table, int.from_bytes(message[30:32], "big"), wire.canonical_fields(message[52 : 48 + length]))
        if command == wire.ADD:
            self.rules[key] = message[8:16]
        else:
            del self.rules[key]


class World:
    def __init__(self, guarded: bool = True, save: Any = lambda: None) -> None:
        self.now_s = 1000.0
        self.network = load_text(NET, "net")
        self.addressing = Addressing.of(self.network)
        self.switches = {node: Switch(node, lambda: self.now_s) for node in self.addressing.dpid}
        self.events: list[tuple[str, dict[str, Any]]] = []
        progress = SimpleNamespace(wait=lambda _: self.work(), notify=lambda: None)
        port: Any = SimpleNamespace(
            clock=lambda: self.now_s,
            context=SimpleNamespace(addressing=self.addressing, own_switches=tuple(self.addressing.dpid)),
            state=SimpleNamespace(switches={}),
            switches=self.switches,
            saver=instant_saver(save)[0],
            progress=progress,
            leads=True,
            note_unsaved=lambda: None,
            events=SimpleNamespace(publish=lambda kind, document: self.events.append((kind, document))),
        )
        self.port = port
        self.service = self.started()
        service = self.service
        owners = OwnerService([], {"access_rules": Kind(lambda name: service.owner(name) is not None, service.owner)})
        resources = [access_rules.blueprint(self.service)]
        self.web = create_app(None, [ADMIN, APP, OTHER], resources=resources, owners=owners).test_client()

    def started(self, *tokens: Token, guarded: bool = True) -> AccessRuleService:
        return AccessRuleService(
            self.port, tokens=tokens or (ADMIN, APP, OTHER), guarded=guarded, clock=lambda: self.now_s
        )

    def work(self) -> int:
        self.now_s += 0.01
        return sum(switch.work() for switch in self.switches.values())

    def follow(self) -> None:
        self.service.follow()
        self.work()

    def ask(self, method: str, path: str = "", body: Any = None, who: Token = ADMIN) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {who.token}"}
        answer = self.web.open(ACCESS + path, method=method, json=body, headers=headers)
        return answer.status_code, answer.get_json(silent=True)


@pytest.fixture
def world() -> World:
    made = World()
    made.follow()
    return made


def test_switches_that_are_named_are_told_of_all_rules_and_no_others() -> None:
    world = World()
    world.service.changed_nodes = changed = set()
    told: list[str] = []
    for node, switch in world.switches.items():
        switch.access.want_all = lambda _, node=node: told.append(node)  # type: ignore[method-assign]
    first, *others = world.switches
    world.service.follow()
    assert not told
    changed.update((first, "gone"))
    world.service.follow()
    world.service.follow()
    assert told == [first] and not changed
    changed.update(world.switches)
    world.service.follow()
    assert sorted(told) == sorted(world.switches)
    # A new session of the same node, and rules of another controller.
    told.clear()
    world.service._ready[first] = world.switches[others[0]]  # type: ignore[assignment]
    changed.add(first)
    world.service.follow()
    assert told == [first]
    world.service.become([])
    world.service.follow()
    assert sorted(told[1:]) == sorted(world.switches)


# -- what rules mean, on a model switch

HOSTS = ["02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"]
FIELDS = st.sampled_from(
    [{}, {"eth_type": 0x0800}, {"eth_type": 0x0800, "ipv4_dst": "10.0.0.0/8"}, {"eth_type": 0x86DD},
     {"eth_type": 0x0800, "ip_proto": 17}, {"eth_type": 0x0800, "ip_proto": 17, "udp_dst": 67},
     {"eth_type": 0x0806}, {"eth_type": 0x86DD, "ip_proto": 58}, {"eth_type": 0x86DD, "ip_proto": 6, "tcp_dst": 25}]
)  # fmt: skip
V4, V6 = {"ipv4_dst": "10.0.0.3"}, {"ipv6_dst": "fd00::3"}
FRAMES = [
    (0x0800, {**V4, "ip_proto": 1}), (0x0800, {**V4, "ip_proto": 17, "udp_dst": 5004}),
    (0x0800, {**V4, "ip_proto": 17, "udp_dst": 67}), (0x0800, {**V4, "ip_proto": 17, "udp_dst": 68}),
    (0x0806, {}), (0x88B7, {}), (0x86DD, {**V6, "ip_proto": 58, "icmpv6_type": 135}),
    (0x86DD, {**V6, "ip_proto": 58, "icmpv6_type": 128}), (0x86DD, {**V6, "ip_proto": 6, "tcp_dst": 25}),
    (0x86DD, {**V6, "ip_proto": 17, "udp_dst": 547}),
]  # fmt: skip
RULES = st.builds(
    AccessRule,
    st.just("r"), st.sampled_from(Action), st.just("o"), st.just(True), st.integers(0, 3), FIELDS,
    st.sampled_from([None, *HOSTS[:2]]), st.sampled_from([None, HOSTS[2]]),
)  # fmt: skip


def is_control(eth_type: int, upper: dict[str, Any]) -> bool:
    """ARP, neighbour discovery, DHCP."""
    if upper.get("ip_proto") == 58:
        return 133 <= upper["icmpv6_type"] <= 136
    return eth_type == 0x0806 or upper.get("udp_dst") in (67, 68, 546, 547)


def concerns(rule: AccessRule, frame: Frame) -> bool:
    """By the words of the page, not by OpenFlow."""
    if rule.names_control != is_control(frame.eth_type, dict(frame.upper)):
        return False
    if rule.client not in (None, frame.src) or rule.to not in (None, frame.dst):
        return False
    for name, value in rule.match.items():
        there = frame.eth_type if name == "eth_type" else frame.upper.get(name)
        if there != value and not (value == "10.0.0.0/8" and there == "10.0.0.3"):
            return False
    return True


@given(st.lists(RULES, max_size=6), st.sampled_from(FRAMES), st.sampled_from(HOSTS[:2]))
def test_the_highest_priority_decides_then_deny_before_limit_before_allow(rules, kind, src):
    frame = Frame(src, HOSTS[2], kind[0], upper=kind[1])
    found, limits = {}, {}
    for number, rule in enumerate(rules):
        limited = replace(rule, rate_mbps=2.0 if rule.action is Action.LIMIT else None)
        meter = METER_FIRST + number if rule.action is Action.LIMIT else None
        for one in entry_of(limited, rule.client, rule.to, meter).rules:
            assert is_access(one.table, one.priority)
            found[one.key] = one
            limits[one.key] = rule.action
    for one in PROTECTION.rules:
        found[one.key] = one
    base = [
        Rule(Table.PORT, 1, Match(), goto=Table.ACCESS),
        Rule(Table.ACCESS, Priority.DEFAULT, Match(), (act.Resubmit(Table.CLASSIFY),)),
        Rule(Table.CLASSIFY, 1, Match(), (act.Output(2),)),
    ]
    switch = ModelSwitch([*base, *found.values()])
    passed = bool(switch.receive(frame, 1))
    order = {Action.ALLOW: 0, Action.LIMIT: 1, Action.DENY: 2}
    about = [rule for rule in rules if concerns(rule, frame)]
    decides = max(about, key=lambda rule: (rule.priority, order[rule.action]), default=None)
    assert passed == (decides is None or decides.action is not Action.DENY)
    metered = any(rule.meter is not None for rule in switch.used)
    assert metered == (decides is not None and decides.action is Action.LIMIT)


@given(RULES, RULES, st.sampled_from(FRAMES), st.sampled_from(HOSTS[:2]))
def test_rules_that_catch_the_same_frame_overlap(one, other, kind, src):
    frame = Frame(src, HOSTS[2], kind[0], upper=kind[1])
    if concerns(one, frame) and concerns(other, frame):
        assert overlap(one, other) and overlap(other, one)


@given(
    RULES.map(lambda r: replace(r, rate_mbps=3.5 if r.action is Action.LIMIT else None)),
    st.sampled_from([None, 5e9]),
)
def test_what_is_saved_is_read_again(rule, expires_s):
    rule = replace(rule, expires_s=expires_s)
    assert parse_rule(rule.document(), "state file", {}) == rule


# -- over REST


def test_a_rule_goes_to_where_its_client_may_enter_and_costs_no_more_than_itself(world):
    assert world.ask("POST", "", {"id": "all", "action": "deny", "match": {"eth_type": 2048}})[0] == 201
    assert {len(switch.rules) for switch in world.switches.values()} == {1 + len(PROTECTION.rules)}
    before = {node: dict(switch.rules) for node, switch in world.switches.items()}
    status, rule = world.ask("POST", "", {"id": "c-only", "action": "deny", "client": "c"})
    assert (status, rule["state"], rule["owner"], rule["priority"]) == (201, "active", "ops", 1000)
    # It may come by both, and one flow-mod at each is all that is sent.
    assert [len(s.rules.keys() - before[n].keys()) for n, s in world.switches.items()] == [1, 1]
    world.ask("POST", "?wait=false", {"id": "d-only", "action": "deny", "client": "d"})
    assert [len([m for m in s.sent if m[1] == wire.FLOW_MOD]) for s in world.switches.values()] == [0, 1]
    world.work()
    for name in ("c-only", "d-only", "all"):
        assert world.ask("DELETE", f"/{name}")[0] == 204
    assert all(not switch.rules for switch in world.switches.values())
    assert [kind for kind, _ in world.events] == ["access_rule.made"] * 3 + ["access_rule.removed"] * 3


def test_limits_have_meters_which_change_and_go(world):
    body = {"id": "slow", "action": "limit", "client": "d", "rate_mbps": 2.0}
    assert world.ask("POST", "", body)[0] == 201
    assert list(world.switches["b"].meters.values()) == [2000] and not world.switches["a"].meters
    # The same frames, the same priority: chance would decide.
    assert world.ask("POST", "", {**body, "id": "two", "to": "c"})[0] == 409
    assert world.ask("POST", "", {**body, "id": "two", "to": "c", "priority": 1001})[0] == 201
    assert world.ask("PATCH", "/two", {"priority": 1000})[0] == 409
    assert world.ask("PATCH", "/slow", {"rate_mbps": 3})[1]["rate_mbps"] == 3
    assert sorted(world.switches["b"].meters.values()) == [2000, 3000]
    assert world.ask("DELETE", "/slow")[0] == world.ask("DELETE", "/two")[0] == 204
    assert not world.switches["b"].meters and not world.switches["b"].rules


def test_an_owner_makes_rules_for_its_clients_alone_and_changes_only_its_own(world):
    mine = {"id": "mine", "action": "deny", "client": "c", "match": {"eth_type": 2048, "udp_dst": 53}}
    status, made = world.ask("POST", "", mine, APP)
    assert (status, made["owner"], made["priority"]) == (201, "video", 100)
    refused: list[Any] = [
        {**mine, "id": "x", "client": "d"}, {**mine, "id": "x", "client": None},
        {**mine, "id": "x", "client": "d", "to": "c"}, {**mine, "id": "x", "priority": 1000},
        {**mine, "id": "x", "client": world.addressing.host_mac["d"]},
    ]  # fmt: skip
    assert [world.ask("POST", "", body, APP)[0] for body in refused] == [403] * len(refused)
    assert world.ask("DELETE", "/mine", None, OTHER)[0] == 403
    assert world.ask("PATCH", "/mine", {"expires_in_s": 5}, OTHER)[0] == 403
    assert world.ask("PATCH", "/mine", {"priority": 1000}, APP)[0] == 403
    # By its MAC address it is the same client; and two rules are all that it may have.
    by_mac = {**mine, "id": "two", "client": world.addressing.host_mac["c"]}
    assert world.ask("POST", "", by_mac, APP)[0] == 201
    assert world.ask("POST", "", {**mine, "id": "three", "priority": 5}, APP)[0] == 503
    # What two rules say alike goes with the last of them: one rule for the port, one for fragments.
    assert world.ask("DELETE", "/two", None, ADMIN)[0] == 204
    assert len(world.switches["a"].rules) == 2 + len(PROTECTION.rules)
    assert world.ask("DELETE", "/mine", None, APP)[0] == 204 and not world.switches["a"].rules
    assert world.ask("DELETE", "/mine", None, APP)[0] == 404


def test_rules_of_who_has_lost_its_right_are_suspended_and_come_back(world):
    world.ask("POST", "", {"id": "mine", "action": "deny", "client": "c"}, APP)
    world.ask("POST", "", {"id": "ops", "action": "deny", "client": "c", "to": "d"})
    world.service.use([replace(APP, clients=frozenset({"d"}))])
    world.work()
    assert [rule["state"] for rule in world.ask("GET")[1]["access_rules"]] == ["suspended", "active"]
    assert len(world.switches["a"].rules) == 1 + len(PROTECTION.rules)
    world.service.use([APP])
    world.work()
    assert len(world.switches["a"].rules) == 2 + len(PROTECTION.rules)


def test_bad_input_is_named_and_changes_nothing(world):
    good = {"id": "r", "action": "deny"}
    bad: list[tuple[dict[str, Any], str]] = [
        ({"action": "drop"}, "action"), ({"id": ""}, "id"), ({"id": " x"}, "id"), ({"priority": 2000}, "priority"),
        ({"client": "nobody"}, "client"), ({"to": "01:00:5e:00:00:01"}, "to"), ({"owner": "x"}, "owner"),
        ({"match": {"eth_src": 1}}, "match.eth_src"), ({"rate_mbps": 5}, "rate_mbps"), ({"priority": True}, "priority"),
        ({"action": "limit"}, "rate_mbps"), ({"action": "limit", "rate_mbps": 0}, "rate_mbps"),
        ({"expires_in_s": -1}, "expires_in_s"), ({"expires_s": 5}, "expires_s"),
        ({"expires_in_s": 1e300}, "expires_in_s"), ({"expires_in_s": 5, "expires_s": 5000}, "expires_in_s"),
    ]  # fmt: skip
    for more, place in bad:
        status, problem = world.ask("POST", "", {**good, **more})
        assert status == 422 and place in problem["errors"], (more, problem)
    assert world.ask("GET")[1]["access_rules"] == [] and not any(s.rules for s in world.switches.values())


def test_rules_end_by_themselves_and_an_end_can_be_put_off(world):
    world.ask("POST", "", {"id": "short", "action": "deny", "client": "c", "expires_in_s": 60})
    world.ask("POST", "", {"id": "timed", "action": "deny", "client": "d", "expires_s": world.now_s + 60})
    assert 59 < world.ask("GET", "/short")[1]["expires_in_s"] <= 60
    world.ask("PATCH", "/short", {"expires_in_s": 600})
    world.now_s += 100
    world.follow()
    assert [rule["id"] for rule in world.ask("GET")[1]["access_rules"]] == ["short"]
    assert world.events[-1] == ("access_rule.removed", {"id": "timed", "reason": "expired"})
    world.ask("PATCH", "/short", {"expires_s": None})
    world.now_s += 10_000
    world.follow()
    assert world.ask("GET", "/short")[1]["expires_s"] is None


def test_what_is_saved_comes_back_and_what_ended_meanwhile_does_not(world):
    world.ask("POST", "", {"id": "slow", "action": "limit", "client": "d", "rate_mbps": 2.0})
    world.ask("POST", "", {"id": "short", "action": "deny", "client": "c", "expires_in_s": 60}, APP)
    world.ask("POST", "", {"id": "on", "action": "deny", "client": "c", "to": "d"})
    saved = world.service.to_save()
    world.now_s += 100
    # The same switches, as they are.
    for switch in world.switches.values():
        rules, meters = switch.rules, switch.meters
        layer = switch.access
        switch.access = AccessLayer(switch.send, switch.next_xid, lambda: world.now_s, lambda what: None)
        switch.access.start(layer._installed.values())
        assert switch.rules is rules and switch.meters is meters
    new = world.started()
    assert new.restore([*saved, "x", {"id": "bad"}, saved[0]]) != []
    assert new.names() == ("slow", "on")
    new.follow()
    # One rule goes; nothing that stays is touched.
    assert world.work() == 2
    assert [len(s.rules) - len(PROTECTION.rules) for s in world.switches.values()] == [1, 2]
    assert list(world.switches["b"].meters.values()) == [2000]


def test_a_full_disk_takes_a_rule_back():
    made = World()
    made.follow()
    made.port.saver = instant_saver(full_disk)[0]
    with pytest.raises(NotSavedError):
        made.service.make({"id": "r", "action": "deny"}, ADMIN, wait=True)
    made.work()
    assert made.service.names() == () and not any(switch.rules for switch in made.switches.values())


def test_a_switch_that_refuses_is_named_and_asked_again(world):
    world.switches["a"].refuses = True
    status, operation = world.ask("POST", "", {"id": "r", "action": "deny"})
    assert status == 202 and operation["pending"] == ["switch a"]
    world.switches["a"].refuses = False
    world.now_s += RETRY_REFUSED_S + 1
    assert not world.switches["a"].access.is_late()
    world.work()
    assert world.ask("GET", "/r")[1]["state"] == "active"


def test_two_rules_share_a_rule_for_fragments_until_the_last_one_ends(world):
    for port in (53, 54):
        body = {"id": f"no-{port}", "action": "deny", "client": "d", "match": {"eth_type": 0x0800, "udp_dst": port}}
        assert world.ask("POST", "", body)[0] == 201
    switch = world.switches["b"]
    assert len(switch.rules) == 3 + len(PROTECTION.rules)
    assert world.ask("DELETE", "/no-53")[0] == 204 and len(switch.rules) == 2 + len(PROTECTION.rules)
    assert world.ask("DELETE", "/no-54")[0] == 204 and not switch.rules


def test_a_switch_that_does_not_answer_is_late(world):
    world.ask("POST", "?wait=false", {"id": "r", "action": "deny"})
    world.now_s += ANSWER_WITHIN_S + 1
    assert world.switches["a"].access.is_late()


def test_without_a_guard_a_client_may_enter_anywhere(world):
    service = world.started(guarded=False)
    rule = parse_rule({"id": "r", "action": "deny", "client": "d"}, "test", world.addressing.host_mac)
    assert service._nodes(rule) == {"a", "b"} and world.service._nodes(rule) == {"b"}


def test_a_burst_is_at_least_what_a_host_sends_at_once():
    entry = entry_of(parse_rule({"id": "r", "action": "limit", "rate_mbps": 0.5}, "t", {}), None, None, METER_FIRST)
    assert entry.meter is not None and entry.meter.messages[0][12:20] == (500).to_bytes(4) + (600).to_bytes(4)
    assert (
        as_installed(entry.rules)[0].cookie
        != as_installed(entry_of(parse_rule({"id": "r", "action": "allow"}, "t", {}), None, None, None).rules)[0].cookie
    )
    assert METERS <= 1024


def test_a_rule_that_is_none_is_refused():
    with pytest.raises(ConfigError):
        parse_rule(["x"], "test", {})


@pytest.mark.parametrize("away", [{"a"}, {"b"}, {"a", "b"}])
def test_change_and_end_of_a_rule_wait_for_absent_switches_however_long(world: World, away: set[str]) -> None:
    assert world.ask("POST", "", {"id": "r", "action": "limit", "rate_mbps": 2.0})[0] == 201
    gone = {node: world.switches.pop(node) for node in away}
    world.port.state.switches.update(dict.fromkeys(away, Presence.DOWN))
    world.follow()
    world.now_s += 3600.0
    for method, body in (("PATCH", {"rate_mbps": 3.0}), ("DELETE", None)):
        status, operation = world.ask(method, "/r", body)
        assert status == 202 and operation["pending"] == [switch_name(node) for node in sorted(away)]
    status, operation = world.ask("POST", "", {"id": "s", "action": "deny"})
    assert status == 202 and operation["pending"] == [switch_name(node) for node in sorted(away)]
    # They are back with the rules that they had, and nothing is confirmed before these are gone.
    for node, switch in gone.items():
        left = switch.access._installed.values()
        switch.access = AccessLayer(switch.send, switch.next_xid, lambda: world.now_s, lambda what: None)
        switch.access.start(left)
        world.switches[node] = switch
    world.service.follow()
    assert world.service.pending("r") == world.service.pending("s") == [switch_name(node) for node in sorted(away)]
    world.work()
    assert world.service.pending("r") == world.service.pending("s") == []
    assert len({frozenset(switch.rules) for switch in world.switches.values()}) == 1


def test_rule_waits_for_switch_that_has_not_connected_since_the_start(world: World) -> None:
    del world.switches["b"]
    service = world.started()
    service.follow()
    with pytest.raises(NotConfirmedError):
        service.make({"id": "r", "action": "deny"}, ADMIN, wait=True)
    assert service.document("r")["state"] == "activating" and service.pending("r") == ["switch b"]
    with pytest.raises(NotConfirmedError):
        service.remove("r", wait=True)
