"""One flow, from a to b, in every state that its two agents and its first switch can be in: what each may do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import pytest

from hyroads.controller.agents.configs import AgentConfig, BranchFlow, EgressFlow, HelloConfig, IngressFlow, PathConfig
from hyroads.controller.control.flow_order import (
    Absent,
    AgentView,
    SwitchView,
    Views,
    pending_of,
    unconfirmed_at_absent,
)
from hyroads.controller.control.update_order import Orders, orders_of
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.model.pending_names import agent_name, switch_name
from hyroads.controller.model.plan import MULTIPATH, SINGLE, FlowPlan, Plan, PlannedPath

HELLO = HelloConfig(40, 140, (), ())
NOTHING = AgentConfig(HELLO)
F = frozenset({"f"})
COPIES = BranchFlow(1, "f", 1, (PathConfig(2, (2,), None, 1600),))


def begin(*ids: int, number: int = 1, rate_mbps: float = 1.0, branched: bool = False) -> IngressFlow:
    paths = tuple(PathConfig(i, (i,), rate_mbps, 1600) for i in ids)
    return IngressFlow(number, "f", "b", 60, paths, branches=(("c", COPIES),) if branched else ())


def end(*ids: int, number: int = 1) -> EgressFlow:
    return EgressFlow(number, "f", ids, 100)


def sends(*ids: int, number: int = 1) -> AgentConfig:
    return AgentConfig(HELLO, {"f": begin(*ids, number=number)})


def receives(*ids: int, number: int = 1) -> AgentConfig:
    return AgentConfig(HELLO, {}, {"f": end(*ids, number=number)})


def plan_of(*ids: int, branched: bool = False, mode: str = MULTIPATH) -> Plan:
    """Flow f, number 1, over these paths; no flow without paths."""
    nodes = dict.fromkeys("abc", NOTHING)
    if not ids:
        return Plan(1, {}, nodes, {}, Numbers())
    flow = FlowPlan(
        FlowSpec("f", "a", "b"),
        1,
        mode,
        None,
        "a",
        "b",
        tuple(PlannedPath(i, ("l",), (i,), 1.0) for i in ids),
        frozenset("ab"),
        branches=(("c", COPIES),) if branched else (),
    )
    if mode == MULTIPATH:
        nodes |= {"a": AgentConfig(HELLO, {"f": begin(*ids, branched=branched)}), "b": receives(*ids)}
        nodes |= {"c": AgentConfig(HELLO, branch={COPIES.key: COPIES})} if branched else {}
    return Plan(1, {"f": flow}, nodes, {}, Numbers())


@dataclass(frozen=True)
class Situation:
    """A state, and what may be sent then."""

    ids: tuple[int, ...]
    views: Views
    orders: Orders

    @property
    def first(self) -> AgentView:
        return self.views.agents["a"]

    @property
    def last(self) -> AgentView | None:
        return self.views.agents.get("b")

    @property
    def sure(self) -> set[int]:
        """Paths of flow number 1 that the last agent knows whichever of its configurations it runs."""
        if self.last is None or self.last.acked is None:
            return set()
        configs = [config for config in (self.last.acked, self.last.sent) if config is not None]
        ends = [config.egress.get("f") for config in configs]
        return set.intersection(*(set(e.paths) if e is not None and e.number == 1 else set() for e in ends))

    @property
    def switch(self) -> SwitchView:
        return self.views.switches.get("a", SwitchView(False))

    @property
    def beginning(self) -> IngressFlow | None:
        return self.orders.agents["a"].ingress.get("f")

    @property
    def running(self) -> IngressFlow | None:
        return self.first.acked.ingress.get("f") if self.first.acked is not None else None


FIRST = [None, NOTHING, sends(1), sends(2), sends(3, number=2)]
FIRST_SENT = [None, NOTHING, sends(2)]
LAST = [NOTHING, receives(1), receives(1, 2), receives(1, 2, number=2)]
SWITCHES = [
    None,
    SwitchView(True),
    SwitchView(True, frozenset(), F),
    SwitchView(True, F, F),
    SwitchView(False),
    SwitchView(False, F, F),
]


@cache
def situations() -> list[Situation]:
    lasts = [None, *(AgentView(*both) for both in product(LAST, [None, *LAST])), AgentView(None)]
    firsts = [AgentView(*both) for both in product(FIRST, FIRST_SENT)]
    found = []
    plans = [plan_of(), plan_of(1), plan_of(1, 2)]
    for plan, first, last, switch in product(plans, firsts, lasts, SWITCHES):
        agents = {"a": first} if last is None else {"a": first, "b": last}
        switches = {"b": SwitchView(True)} if switch is None else {"a": switch, "b": SwitchView(True)}
        views = Views(agents, switches)
        ids = tuple(path.id for path in plan.flows["f"].paths) if plan.flows else ()
        found.append(Situation(ids, views, orders_of(plan, views)))
    return found


def known_first() -> Iterator[Situation]:
    """Situations in which it is known what the first agent runs."""
    return (each for each in situations() if each.first.acked is not None)


def test_first_agent_takes_up_only_paths_that_the_last_agent_surely_keeps() -> None:
    for each in known_first():
        if each.ids and each.beginning is not None and each.beginning != each.running:
            assert {path.id for path in each.beginning.paths} <= each.sure, each


def test_first_agent_uses_every_planned_path_that_the_last_agent_surely_keeps() -> None:
    for each in known_first():
        usable = [path for path in each.ids if path in each.sure]
        if usable:
            assert each.beginning is not None and [path.id for path in each.beginning.paths] == usable, each
        elif each.ids:
            assert each.beginning == each.running, each


def test_first_agent_that_runs_something_unknown_gets_all_that_is_planned() -> None:
    for each in situations():
        if each.first.acked is None:
            paths = each.beginning.paths if each.beginning is not None else ()
            assert tuple(path.id for path in paths) == each.ids, each


def test_flow_ends_at_its_first_agent_once_no_rule_can_send_frames_into_it() -> None:
    for each in known_first():
        if not each.ids:
            stays = each.running is not None and "f" in each.switch.possible
            assert each.beginning == (each.running if stays else None), each


def test_last_agent_keeps_what_the_first_may_be_sending_and_nothing_else_that_is_not_planned() -> None:
    for each in situations():
        if each.last is None:
            continue
        configs = [config for config in (each.first.acked, each.first.sent) if config is not None]
        sending = {path.id for config in configs if "f" in config.ingress for path in config.ingress["f"].paths}
        known = each.last.acked.egress.get("f") if each.last.acked is not None else None
        ending = each.orders.agents["b"].egress.get("f")
        if each.ids:
            assert ending is not None and set(ending.paths) == {*each.ids, *sending}, each
        elif not sending or known is None:
            assert ending is None, each
        else:
            assert ending is not None and set(ending.paths) == {*known.paths, *sending}, each


def test_switch_hands_frames_only_to_an_agent_that_sends_and_keeps_them() -> None:
    for each in known_first():
        if "f" in each.orders.classified.get("a", ()):
            assert each.ids and each.running is not None and each.running.number == 1, each
            assert each.first.sent is None or "f" in each.first.sent.ingress, each
            assert each.last is not None, each


def test_rule_starts_if_and_only_if_the_labels_are_there_and_the_last_agent_surely_keeps_a_path() -> None:
    for each in known_first():
        if "f" in each.switch.possible or "a" not in each.views.switches:
            continue
        runs = each.running is not None and each.running.number == 1 and bool(each.ids)
        keeps = each.first.sent is None or "f" in each.first.sent.ingress
        starts = runs and keeps and each.switch.ready and bool(each.sure)
        assert ("f" in each.orders.classified["a"]) is starts, each


def test_rule_that_may_be_in_force_stays_as_long_as_both_agents_know_the_flow() -> None:
    for each in known_first():
        if "f" not in each.switch.possible or not each.ids:
            continue
        runs = each.running is not None and each.running.number == 1
        keeps = each.first.sent is None or "f" in each.first.sent.ingress
        arrives = each.last is not None and (each.last.acked is None or "f" in each.last.acked.egress)
        assert ("f" in each.orders.classified["a"]) is (runs and keeps and arrives), each


def test_rates_alone_wait_for_no_other_agent() -> None:
    plan, slower = plan_of(1), AgentConfig(HELLO, {"f": begin(1, rate_mbps=0.5)})
    orders = orders_of(plan, Views({"a": AgentView(slower), "b": AgentView(NOTHING)}))
    assert orders.agents["a"].ingress["f"] == begin(1)


# -- copies that branch on the way


@pytest.mark.parametrize(
    ("acked", "sent", "branches"),
    [
        (AgentConfig(HELLO, branch={COPIES.key: COPIES}), None, True),
        (AgentConfig(HELLO, branch={COPIES.key: COPIES}), AgentConfig(HELLO, branch={COPIES.key: COPIES}), True),
        (AgentConfig(HELLO, branch={COPIES.key: COPIES}), NOTHING, False),
        (NOTHING, AgentConfig(HELLO, branch={COPIES.key: COPIES}), False),
        (AgentConfig(HELLO, branch={COPIES.key: replace(COPIES, copies=())}), None, False),
        (None, None, False),
    ],
)
def test_copies_branch_only_where_the_agent_surely_makes_them(
    acked: AgentConfig | None, sent: AgentConfig | None, branches: bool
) -> None:
    plan = plan_of(1, 2, branched=True)
    agents = {"a": AgentView(plan.agents["a"]), "b": AgentView(receives(1, 2)), "c": AgentView(acked, sent)}
    orders = orders_of(plan, Views(agents, {node: SwitchView(True) for node in "ab"}))
    assert bool(orders.agents["a"].ingress["f"].branches) is branches
    assert ("f" in orders.classified["a"]) is branches


def test_agent_on_the_way_keeps_a_branch_while_copies_may_come_and_then_drops_it() -> None:
    plan, branching = plan_of(1, 2), AgentConfig(HELLO, branch={COPIES.key: COPIES})
    branched = AgentConfig(HELLO, {"f": begin(1, 2, branched=True)})
    others = {"b": AgentView(receives(1, 2)), "c": AgentView(branching)}
    for view in (AgentView(branched), AgentView(branched, plan.agents["a"]), AgentView(plan.agents["a"], branched)):
        assert orders_of(plan, Views({"a": view, **others})).agents["c"].branch == branching.branch
    assert not orders_of(plan, Views({"a": AgentView(plan.agents["a"]), **others})).agents["c"].branch


def test_branch_stays_until_no_ingress_uses_it_and_only_then_becomes_another() -> None:
    plan, fewer = plan_of(1, 2, branched=True), replace(COPIES, copies=())
    old = AgentConfig(HELLO, {"f": replace(begin(1, 2), branches=(("c", fewer),))})
    branching, alone = AgentConfig(HELLO, branch={COPIES.key: fewer}), AgentConfig(HELLO, {"f": begin(1, 2)})
    others = {"b": AgentView(receives(1, 2)), "c": AgentView(branching)}
    orders = orders_of(plan, Views({"a": AgentView(old), **others}))
    assert orders.agents["c"].branch == branching.branch and not orders.agents["a"].ingress["f"].branches
    for view in (AgentView(old, alone), AgentView(alone, old)):
        assert orders_of(plan, Views({"a": view, **others})).agents["c"].branch == branching.branch
    orders = orders_of(plan, Views({"a": AgentView(alone), **others}))
    assert orders.agents["c"].branch == {COPIES.key: COPIES} and not orders.agents["a"].ingress["f"].branches


# -- flows that an agent may be sending


def test_agent_may_be_sending_by_the_paths_and_branches_of_both_configurations() -> None:
    old, new = begin(1, 3, branched=True), begin(1, 2, rate_mbps=2.0)
    [joined] = AgentView(AgentConfig(HELLO, {"f": old}), AgentConfig(HELLO, {"f": new})).sending("f")
    assert joined.paths == (*new.paths, old.paths[1]) and joined.branches == old.branches
    [joined] = AgentView(AgentConfig(HELLO, {"f": new}), AgentConfig(HELLO, {"f": old})).sending("f")
    assert joined.paths == (*old.paths, new.paths[1]) and joined.branches == old.branches
    other = replace(new, branches=(("c", replace(COPIES, copies=())), ("d", COPIES)))
    [joined] = AgentView(AgentConfig(HELLO, {"f": old}), AgentConfig(HELLO, {"f": other})).sending("f")
    assert joined.branches == other.branches


def test_agent_may_be_sending_to_two_ends_while_a_flow_moves() -> None:
    moved = replace(begin(2), egress="c")
    view = AgentView(sends(1), AgentConfig(HELLO, {"f": moved}))
    assert set(view.sending("f")) == {begin(1), moved}
    [joined] = AgentView(sends(1), sends(2, number=2)).sending("f")
    assert {path.id for path in joined.paths} == {1, 2}, "a new number is no other end"
    assert AgentView(None).sending("f") == () == AgentView(NOTHING, NOTHING).sending("f")
    assert AgentView(NOTHING, sends(1)).sending("f") == (begin(1),) == AgentView(sends(1), NOTHING).sending("f")


# -- pending parts


def in_force() -> tuple[Plan, Views]:
    """Everything that is planned for a flow whose copies branch at c is confirmed."""
    plan = plan_of(1, 2, branched=True)
    agents = {node: AgentView(config) for node, config in plan.agents.items()}
    return plan, Views(agents, {"a": SwitchView(True, F, F), "b": SwitchView(True)})


def test_nothing_is_pending_once_everything_is_confirmed() -> None:
    plan, views = in_force()
    assert pending_of(plan, views, "f") == []
    rated = AgentConfig(HELLO, {"f": begin(1, 2, rate_mbps=7.0, branched=True)})
    assert pending_of(plan, replace(views, agents={**views.agents, "a": AgentView(rated)}), "f") == []


OTHER_LABELS = AgentConfig(HELLO, {"f": replace(begin(1, 2), paths=begin(1, 3).paths)})
COPIED = AgentConfig(HELLO, {"f": replace(begin(1, 2), copies=True)})


@pytest.mark.parametrize(
    ("node", "acked"),
    [
        *product("abc", [None, NOTHING]),
        ("a", sends(1)),
        ("a", OTHER_LABELS),
        ("a", COPIED),
        ("b", receives(1)),
        ("b", receives(1, 2, number=2)),
        ("c", AgentConfig(HELLO, branch={COPIES.key: replace(COPIES, copies=())})),
    ],
)
def test_agent_is_pending_until_it_confirms_its_part(node: str, acked: AgentConfig | None) -> None:
    plan, views = in_force()
    changed = replace(views, agents={**views.agents, node: AgentView(acked)})
    assert pending_of(plan, changed, "f") == [agent_name(node)]
    without = {name: view for name, view in views.agents.items() if name != node}
    assert pending_of(plan, replace(views, agents=without), "f") == [agent_name(node)]


@pytest.mark.parametrize(
    ("node", "view"),
    [("a", None), ("b", None), ("a", SwitchView(True, frozenset(), F)), ("b", SwitchView(False))],
)
def test_switch_is_pending_until_it_confirms_its_part(node: str, view: SwitchView | None) -> None:
    plan, views = in_force()
    switches = {name: each for name, each in views.switches.items() if name != node}
    switches |= {} if view is None else {node: view}
    assert pending_of(plan, replace(views, switches=switches), "f") == [switch_name(node)]


@pytest.mark.parametrize("mode", [None, SINGLE])
def test_flow_that_is_no_multipath_is_pending_wherever_a_part_of_it_may_be_left(mode: str | None) -> None:
    plan = plan_of() if mode is None else plan_of(1, mode=mode)
    branching = AgentConfig(HELLO, branch={COPIES.key: COPIES})
    for part in (sends(1), receives(1), branching):
        for view in (AgentView(part), AgentView(NOTHING, part)):
            assert pending_of(plan, Views({"a": AgentView(NOTHING), "b": view}), "f") == ["agent b"]
    switches = {"a": SwitchView(True, frozenset(), F), "b": SwitchView(True)}
    assert pending_of(plan, Views({}, switches), "f") == ["switch a"]
    assert pending_of(plan, Views({"a": AgentView(NOTHING, sends(1))}, switches), "other") == []


def test_flow_without_a_first_agent_is_pending_at_its_last_alone() -> None:
    plan, views = in_force()
    flow = replace(plan.flows["f"], branches=())
    for ends, left in (({"ingress": None}, []), ({"egress": None}, [])):
        moved = replace(plan, flows={"f": replace(flow, **ends)})
        nothing = Views({node: AgentView(NOTHING) for node in views.agents}, {"b": SwitchView(True)})
        assert pending_of(moved, nothing, "f") == left


# -- absent nodes


@pytest.mark.parametrize(
    ("planned", "last", "pending"),
    [
        (None, None, True),
        (None, SwitchView(True), False),
        (None, SwitchView(True, frozenset(), F), True),
        (SINGLE, None, True),
        (SINGLE, SwitchView(True), True),
        (MULTIPATH, None, False),
        (MULTIPATH, SwitchView(True), False),
        (MULTIPATH, SwitchView(True, frozenset(), F), True),
    ],
)
def test_absent_switch_is_pending_if_it_may_still_forward_the_flow(
    planned: str | None, last: SwitchView | None, pending: bool
) -> None:
    plan = plan_of() if planned is None else plan_of(1, mode=planned)
    assert unconfirmed_at_absent(plan, Absent({}, {"c": last}), "f") == ({"switch c"} if pending else set())


@pytest.mark.parametrize(
    ("planned", "last", "pending"),
    [
        *((None, last, True) for last in (None, AgentView(None), AgentView(NOTHING, sends(1)), AgentView(receives(1)))),
        *((SINGLE, last, True) for last in (None, AgentView(None), AgentView(sends(1), NOTHING))),
        *((MULTIPATH, last, False) for last in (None, AgentView(None), AgentView(NOTHING))),
        (None, AgentView(NOTHING), False),
        (SINGLE, AgentView(NOTHING), False),
        (MULTIPATH, AgentView(sends(1)), True),
    ],
)
def test_absent_agent_is_pending_if_it_may_still_run_a_part_of_the_flow(
    planned: str | None, last: AgentView | None, pending: bool
) -> None:
    plan = plan_of() if planned is None else plan_of(1, mode=planned)
    assert unconfirmed_at_absent(plan, Absent({"c": last}), "f") == ({"agent c"} if pending else set())
