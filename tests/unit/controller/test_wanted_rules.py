"""Rules that are kept from one goal to the next: always those that would be made from nothing, and one flow more costs
that flow. The deployer and the sessions are real, the switches are models that carry out what they are sent.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
from examples import seeds
from silent_switch import SilentSwitch, reply, xid_of

from hyroads.controller.control.update_order import Orders
from hyroads.controller.core.errors import OpenFlowError
from hyroads.controller.ofp import rule as rule_module
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import is_access
from hyroads.controller.ofp.diff import Change, Installed, difference
from hyroads.controller.ofp.hosts import is_learned
from hyroads.controller.ofp.intents import AccessPort, AgentPorts, ClassifiedFlow, Hop, SwitchIntent, TreeBranch
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.rule import GroupEntry, RuleKey, is_ours
from hyroads.controller.ofp.rules import flow_rules, rules_for
from hyroads.controller.ofp.vlan_tags import TagRules
from hyroads.controller.runtime.deployer import Deployer
from hyroads.controller.switches.host_layer import RETRY_REFUSED_S
from hyroads.controller.switches.sessions import SwitchSession

NODES = ("a", "b")
MACS = {"plc": "02:00:01:02:00:01", "wifi": "02:00:01:01:00:01"}
PORTS = ("host", "wifi", "plc", "agent", "agent-net")
PARENT = Hop("wifi", "02:00:01:01:00:09")
COPIES = (Hop("plc", "02:00:01:02:00:02"), Hop("wifi", "02:00:01:01:00:03"))
HOST = "02:00:00:00:00:0%d"
_FLOW_MOD = struct.Struct("!QQBBHHHIIIH2x")
_FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQ")


def _plain(fields: bytes) -> bytes:
    """Fields without masks that say nothing, as a switch understands them, in order."""
    parts, at = [], 0
    while at < len(fields):
        header, end = fields[at : at + 4], at + 4 + fields[at + 3]
        value, half = fields[at + 4 : end], fields[at + 3] // 2
        if header[2] & 1 and value[half:] == b"\xff" * half:
            header, value = header[:2] + bytes((header[2] & 0xFE, half)), value[:half]
        parts.append(header + value)
        at = end
    return b"".join(sorted(parts))


def as_we_do(fields: bytes) -> bytes:
    return fields


def in_another_way(fields: bytes) -> bytes:
    """With a mask of the source address that says nothing."""
    at = fields.find(bytes.fromhex("80000806"))
    if at < 0:
        return fields
    return fields[:at] + bytes.fromhex("8000090c") + fields[at + 4 : at + 10] + b"\xff" * 6 + fields[at + 10 :]


class Switch(SilentSwitch):
    """Carries out what it was sent once it is asked to; ``writes`` is how it writes fields when it is read."""

    def __init__(self, names: tuple[str, ...], writes: Callable[[bytes], bytes]) -> None:
        super().__init__(1, names)
        self.rules: dict[RuleKey, int] = {}
        """Key -> cookie."""
        self.groups: set[int] = set()
        self.writes = writes

    def change(self, message: bytes) -> None:
        if message[1] == wire.GROUP_MOD:
            command, group = struct.unpack_from("!H2xI", message, 8)
            (self.groups.discard if command == wire.GROUP_DELETE else self.groups.add)(group)
            return
        cookie, mask, table, command, _, _, priority, *_ = _FLOW_MOD.unpack_from(message, 8)
        key = table, priority, _plain(message[52 : 48 + int.from_bytes(message[50:52], "big")])
        if command == wire.ADD:
            self.rules[key] = cookie
        elif command == wire.DELETE_STRICT:
            if self.rules.get(key, ~cookie) & mask == cookie & mask:
                self.rules.pop(key, None)
        else:
            self.rules = {k: c for k, c in self.rules.items() if c & mask != cookie & mask or table not in {k[0], 0xFF}}

    def told(self) -> bytes:
        entries = []
        for (table, priority, fields), cookie in self.rules.items():
            match = wire.match_struct(self.writes(fields))
            size = _FLOW_STATS.size + len(match)
            entries.append(_FLOW_STATS.pack(size, table, 0, 0, priority, 0, 0, 0, cookie, 0, 0) + match)
        return b"".join(entries)

    def ours(self) -> dict[RuleKey, int]:
        """Rules of ours but those of layers of their own."""
        return {
            key: cookie
            for key, cookie in self.rules.items()
            if is_ours(cookie) and not is_access(key[0], key[1]) and not is_learned(key[1])
        }


def flow_of(name: str, number: int, version: int) -> ClassifiedFlow:
    match = Match(eth_src=HOST % (number % 4), eth_dst=HOST % 5, eth_type=0x0800, ip_proto=6, tcp_dst=1000 + number)
    return ClassifiedFlow(name, number + 1000 * version, match, precedence=number % 7 * 2)


class Rig:
    """Deployer, sessions and switches of some nodes. Each difference that a session takes is compared with the one of
    all rules, made from nothing.
    """

    def __init__(self, nodes: tuple[str, ...] = NODES, writes: Callable[[bytes], bytes] = as_we_do) -> None:
        self.now_s, self.reports = 0.0, cast("list[str]", [])
        agent = AgentPorts("agent", "agent-net", 77)
        access = (AccessPort("host", (HOST % 1,)),)
        self.intents = {n: SwitchIntent(n, 1, 100, 101, macs=MACS, access=access, agent=agent) for n in nodes}
        self.plan = SimpleNamespace(classified={}, flows={})
        self.permitted: dict[str, frozenset[str]] = {}
        self.registry = SimpleNamespace(sessions={}, touched=set())
        live = SimpleNamespace(plan=self.plan, in_force=self.plan, network=SimpleNamespace(intents=self.intents))
        self.live = live
        self.deployer = Deployer(cast(Any, live), cast(Any, None), cast(Any, self.registry), lambda: False)
        self.switches = {node: Switch(PORTS, writes) for node in nodes}
        self.compared, self.in_part = 0, 0
        """Differences, and those that were taken of what changed alone."""
        for node in nodes:
            self.connect(node)

    def session(self, node: str) -> SwitchSession:
        return cast("SwitchSession", self.registry.sessions[node])

    def connect(self, node: str, tags: TagRules | None = None) -> None:
        """A new connection: the switch is read."""
        switch, touched = self.switches[node], self.registry.touched
        switch.sent = []
        session = SwitchSession(
            node, cast(Any, switch), lambda: self.now_s, self.reports.append, lambda: None,
            touched=lambda: touched.add(node),
        )  # fmt: skip
        session.tags = tags
        self.registry.sessions[node] = session
        touched.add(node)
        self._compare(node, session)
        session.start()
        rules, groups = switch.take()[2:4]
        session.on_flow_stats(reply(rules, switch.told()))
        described = b"".join(struct.pack("!HBxI", 8, 0, group) for group in sorted(switch.groups))
        session.on_groups(reply(groups, described))
        assert session.is_read

    def wanted(self, session: SwitchSession) -> tuple[dict[RuleKey, int], tuple[GroupEntry, ...]]:
        """What its goal means, from nothing."""
        goal = session._goal
        assert goal is not None
        intent = replace(goal.wanted.intent, flows=tuple(goal.wanted.flows.values()))
        made = rules_for(intent, dict(goal.ports), goal.tags)
        return {rule.key: rule.cookie for rule in made.rules}, made.groups

    def _compare(self, node: str, session: SwitchSession) -> None:
        change = session._wanted.change

        def compared(installed: dict[RuleKey, Installed], groups: set[int]) -> Change:
            self.in_part += not session._wanted._is_whole
            found, goal = change(installed, groups), session._goal
            assert goal is not None
            intent = replace(goal.wanted.intent, flows=tuple(goal.wanted.flows.values()))
            made = rules_for(intent, dict(goal.ports), goal.tags)
            whole = difference(made.rules, installed.values(), made.groups, groups)
            for name in ("adds", "deletes", "group_adds", "group_deletes", "conflicts"):
                assert set(getattr(found, name)) == set(getattr(whole, name)), (node, name)
            self.compared += 1
            return found

        session._wanted.change = compared  # type: ignore[method-assign,assignment]

    def push(self) -> None:
        """As the event loop does, with the flows that the update ordering permits."""
        self.live.in_force, self.live.network = self.plan, SimpleNamespace(intents=self.intents)
        self.deployer._look()
        nodes = [node for node, session in self.registry.sessions.items() if session.is_read]
        self.deployer._push_switches(Orders({}, {node: self.permitted.get(node, frozenset()) for node in nodes}))
        self.deployer._look()

    def plan_is(self, flows: dict[str, tuple[str, ClassifiedFlow]]) -> None:
        """Flow -> its first edge, and how it is told from others."""
        made = {name: SimpleNamespace(ingress=node) for name, (node, _) in flows.items()}
        self.plan = SimpleNamespace(classified={name: flow for name, (_, flow) in flows.items()}, flows=made)

    def answer(self, node: str, refuses: Callable[[bytes], bool] = lambda message: False, most: int = 10**6) -> None:
        """The switch carries out at most so many messages, those that it does not refuse."""
        session, switch = self.session(node), self.switches[node]
        taken, switch.sent = switch.sent[:most], switch.sent[most:]
        for message in taken:
            if message[1] in {wire.FLOW_MOD, wire.GROUP_MOD}:
                if refuses(message):
                    session.on_error(wire.message(struct.pack("!HH", 5, 1) + message[:64], xid_of(message), wire.ERROR))
                else:
                    switch.change(message)
            elif message[1] == wire.BARRIER_REQUEST:
                session.on_barrier(xid_of(message))

    def settle(self) -> None:
        """Everything that was planned is permitted, sent and carried out, also what was refused before."""
        planned = ((name, each.ingress) for name, each in self.plan.flows.items())
        at: dict[str, set[str]] = {node: set() for node in self.intents}
        for name, node in planned:
            at[node].add(name)
        self.permitted = {node: frozenset(names) for node, names in at.items()}
        for _ in range(20):
            self.push()
            for node in self.intents:
                self.answer(node)
            if not any(switch.sent for switch in self.switches.values()):
                self.now_s += RETRY_REFUSED_S + 1
                for node in self.intents:
                    self.session(node).tick()
            if all(s.synced for s in self.registry.sessions.values()) and not self.registry.touched:
                return
        raise AssertionError("it does not come to rest")

    def check_views(self) -> None:
        """What is said to be in force is, and what may be is said to."""
        for node, session in self.registry.sessions.items():
            if node not in self.deployer._wanted:
                continue
            wanted, there = self.deployer._wanted[node], set(self.switches[node].rules.values())
            view = session.view(wanted)
            number = session.ports.get("agent")
            flows = {**session._told, **wanted.flows}
            made = {} if number is None else {f: flow_rules(c, number, tags=session.tags)[0] for f, c in flows.items()}
            present = {flow for flow, rule in made.items() if rule.cookie in there}
            assert view.confirmed <= present <= view.possible
            if session._batch is None:
                assert view.confirmed == view.possible

    def check_settled(self, foreign: dict[str, dict[RuleKey, int]]) -> None:
        flows_at: dict[str, dict[str, ClassifiedFlow]] = {node: {} for node in self.intents}
        for name, flow in self.plan.classified.items():
            flows_at[self.plan.flows[name].ingress][name] = flow
        for node, session in self.registry.sessions.items():
            goal, switch = session._goal, self.switches[node]
            assert goal is not None
            assert goal.wanted.intent == self.intents[node] and dict(goal.wanted.flows) == flows_at[node]
            assert self.deployer._flows_at.get(node, {}) == flows_at[node]
            assert (dict(goal.ports), goal.tags) == (session.ports, session.tags)
            wanted, groups = self.wanted(session)
            assert switch.ours() == {key: cookie for key, cookie in wanted.items() if key not in foreign[node]}
            assert foreign[node].items() <= switch.rules.items()
            assert switch.groups == {group.id for group in groups}
            there = set(flows_at[node]) if "agent" in session.ports else set()
            # A foreign rule in the place of ours keeps a flow out.
            kept_out = {
                f for f in there if flow_rules(flows_at[node][f], session.ports["agent"])[0].key in foreign[node]
            }
            assert session.view(goal.wanted).confirmed == there - kept_out


def _always_done(message: bytes) -> bool:
    """No switch refuses to delete a group; one that refuses rules for tags is never told of them again."""
    if message[1] == wire.GROUP_MOD:
        return message[8:10] == wire.GROUP_DELETE.to_bytes(2, "big")
    return message[24] >= Table.UNTAG_INNER


class Story:
    """Random changes; ``rng`` decides."""

    def __init__(self, rig: Rig, rng: random.Random) -> None:
        self.rig, self.rng, self.version = rig, rng, 0
        self.flows: dict[str, tuple[str, ClassifiedFlow]] = {}
        self.foreign: dict[str, dict[RuleKey, int]] = {node: {} for node in rig.intents}

    def step(self) -> None:
        if self.rng.random() < 0.05:
            self.rng.choice((self.ports, self.tags, self.intent, self.sessions))()
        elif self.rng.random() < 0.5:
            self.rng.choice((self.declare, self.declare, self.remove, self.change))()
        else:
            often = self.permit, self.permit, self.answer, self.answer, self.late, self.late, self.fail
            (self.lose if self.rng.random() < 0.08 else self.rng.choice(often))()
        self.rig.plan_is(self.flows)
        self.rig.push()
        self.rig.check_views()

    def _node(self) -> str:
        return self.rng.choice(list(self.rig.intents))

    def declare(self) -> None:
        number = self.rng.randrange(40)
        self.flows.setdefault(f"f{number}", (self._node(), flow_of(f"f{number}", number, 0)))

    def remove(self) -> None:
        if self.flows:
            del self.flows[self.rng.choice(sorted(self.flows))]

    def change(self) -> None:
        """A flow gets another number, and perhaps begins at another node."""
        if self.flows:
            self.version += 1
            name = self.rng.choice(sorted(self.flows))
            self.flows[name] = self._node(), flow_of(name, int(name[1:]), self.version % 90)

    def ports(self) -> None:
        node = self._node()
        names = [*PORTS, "spare"]
        self.rng.shuffle(names)
        self.rig.switches[node].names = tuple(names[: self.rng.randint(3, len(names))])
        self.rig.session(node).on_ports()

    def tags(self) -> None:
        self.rig.session(self._node()).carry(self.rng.choice((None, TagRules(True), TagRules(False))))

    def intent(self) -> None:
        """Hosts move, or what comes out of the agent may be of its own flows."""
        node = self._node()
        hosts = tuple(HOST % i for i in range(self.rng.randint(0, 3)))
        intent = replace(self.rig.intents[node], access=(AccessPort("host", hosts),), relays=self.rng.random() < 0.5)
        self.rig.intents = {**self.rig.intents, node: intent}

    def sessions(self) -> None:
        node = self._node()
        labels = self.rng.sample(range(5000, 5004), self.rng.randint(0, 2))
        branches = tuple(TreeBranch(label, PARENT, copies=COPIES) for label in labels)
        self.rig.intents = {**self.rig.intents, node: replace(self.rig.intents[node], branches=branches)}

    def permit(self) -> None:
        node = self._node()
        self.rig.permitted[node] = frozenset(name for name in self.flows if self.rng.random() < 0.8)

    def answer(self) -> None:
        self.rig.answer(self._node())

    def late(self) -> None:
        """A part of what was sent is carried out, and the next change comes meanwhile."""
        self.rig.answer(self._node(), most=self.rng.choice((1, 1, 2, 3, 6)))

    def fail(self) -> None:
        self.rig.answer(self._node(), lambda message: self.rng.random() < 0.3 and not _always_done(message))
        if self.rng.random() < 0.5 and not any(switch.sent for switch in self.rig.switches.values()):
            self.rig.now_s += RETRY_REFUSED_S + 1
            for session in self.rig.registry.sessions.values():
                session.tick()

    def lose(self) -> None:
        """The connection ends in the middle, and the switch dials again."""
        node = self._node()
        self.late()
        if self.rng.random() < 0.5 and self.rig.switches[node].writes is as_we_do:
            # Somebody else's rule is in the place that a flow's has, and is seen to be in it.
            number = self.rng.randrange(40)
            rule = flow_rules(flow_of(f"f{number}", number, 0), 1)[0]
            if rule.key not in self.rig.switches[node].rules:
                self.foreign[node][rule.key] = self.rig.switches[node].rules[rule.key] = 0x1234
        self.rig.connect(node, self.rig.session(node).tags)


def story(seed: int, writes: Callable[[bytes], bytes]) -> Rig:
    """A story to its end."""
    rig = Rig(writes=writes)
    told = Story(rig, random.Random(seed))
    for i in range(1, 49):
        told.step()
        if i % 12 == 0:
            rig.settle()
            rig.check_views()
            rig.check_settled(told.foreign)
    return rig


@pytest.mark.parametrize("writes", [as_we_do, in_another_way])
@pytest.mark.parametrize("first", seeds(10))
def test_rules_are_those_made_from_nothing_whatever_happened(first: int, writes: Callable[[bytes], bytes]) -> None:
    rigs = [story(seed, writes) for seed in (2 * first, 2 * first + 1)]
    assert sum(rig.compared for rig in rigs) > 20 and sum(rig.in_part for rig in rigs) > 2


def test_what_is_refused_is_tried_again_and_what_replaces_it_at_once() -> None:
    rig, flows = of_many(3)
    session = rig.session("a")
    for number in (50, 51):
        flows = {**flows, "new": ("a", flow_of("new", number, 0))}
        rig.plan_is(flows)
        rig.permitted = {"a": frozenset(flows)}
        rig.push()
        assert {message[1] for message in rig.switches["a"].sent} == {wire.FLOW_MOD, wire.BARRIER_REQUEST}
        rig.answer("a", refuses=lambda message: True)
        rig.push()
        assert "new" not in session.view(rig.deployer._wanted["a"]).possible and not session.synced
        assert rig.reports[-1] == f"refused: table 1 priority {1000 + number % 7 * 2}: flow-mod failed, code 1"
        assert not rig.switches["a"].sent
    rig.now_s += RETRY_REFUSED_S + 1
    session.tick()
    rig.answer("a")
    assert session.synced
    rig.check_settled({"a": {}})


def test_while_a_rule_is_replaced_or_deleted_it_is_not_sure() -> None:
    rig, flows = of_many(3)
    session = rig.session("a")
    rig.plan_is({"f1": ("a", flow_of("f1", 1, 5)), "f2": flows["f2"]})
    rig.push()
    view = session.view(rig.deployer._wanted["a"])
    assert (view.confirmed, view.possible) == ({"f2"}, {"f0", "f1", "f2"})
    rig.answer("a")
    rig.push()
    view = session.view(rig.deployer._wanted["a"])
    assert (view.confirmed, view.possible) == ({"f1", "f2"}, {"f1", "f2"})


def of_many(count: int) -> tuple[Rig, dict[str, tuple[str, ClassifiedFlow]]]:
    """One switch that classifies so many flows, with everything in force."""
    rig = Rig(("a",))
    flows = {f"f{number}": ("a", flow_of(f"f{number}", number, 0)) for number in range(count)}
    rig.plan_is(flows)
    rig.settle()
    rig.check_settled({"a": {}})
    # What is counted is the session's own work.
    rig.session("a")._wanted.__dict__.pop("change")
    return rig, flows


def one_more(rig: Rig, flows: dict[str, tuple[str, ClassifiedFlow]]) -> None:
    """A flow is declared: it is planned, permitted and in force. Then it goes again."""
    for more in ({"new": ("a", flow_of("new", 900, 0))}, {}):
        rig.plan_is({**flows, **more})
        rig.push()
        rig.permitted = {"a": frozenset((*flows, *more))}
        rig.push()
        rig.answer("a")
        rig.push()
        assert rig.session("a").synced


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How many rules were encoded, and how many were looked up by what a switch had told."""
    counts = {"made": 0, "looked up": 0}
    cookie_of, canonical = rule_module.cookie_of, wire.canonical_fields

    def makes(*arguments: Any) -> int:
        counts["made"] += 1
        return cookie_of(*arguments)

    def looks_up(fields: bytes) -> bytes:
        counts["looked up"] += 1
        return canonical(fields)

    monkeypatch.setattr(rule_module, "cookie_of", makes)
    monkeypatch.setattr(wire, "canonical_fields", looks_up)
    yield counts


def test_one_flow_more_makes_one_rule(counted: dict[str, int]) -> None:
    rig, flows = of_many(300)
    assert counted["made"] > 300
    counted.update(dict.fromkeys(counted, 0))
    one_more(rig, flows)
    assert counted["made"] == 1 and counted["looked up"] < 10


def steps(work: Callable[[], None]) -> int:
    """Instructions of the interpreter in the deployer and below it; what compiled code does is not counted."""
    found, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal found
        if not any(part in frame.f_code.co_filename for part in ("runtime/deployer", "switches/", "/ofp/")):
            return None
        frame.f_trace_opcodes = True
        found += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return found


def test_one_flow_more_takes_as_many_steps_on_a_switch_with_many() -> None:
    few, many = (steps(partial(one_more, *of_many(count))) for count in (20, 400))
    assert 1000 < many < 1.1 * few


def test_two_flows_with_the_same_frames_are_named_and_all_is_well_without_one() -> None:
    rig, flows = of_many(3)
    rig.plan_is({**flows, "twin": ("a", replace(flows["f1"][1], id="twin", number=99))})
    rig.permitted = {"a": frozenset((*flows, "twin"))}
    for _ in range(2):
        with pytest.raises(OpenFlowError, match="same match"):
            rig.push()
    assert not rig.session("a").synced
    # The very same rule twice is one rule, which stays until nobody wants it.
    twin = {"twin": ("a", replace(flows["f1"][1], id="twin"))}
    for planned in ({**flows, **twin}, {name: flow for name, flow in flows.items() if name != "f1"} | twin, flows, {}):
        rig.plan_is(planned)
        rig.settle()
        rig.check_settled({"a": {}})
