"""Link events are the difference of what REST shows of links, whatever changes, and cost what changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from silent_loop import TRIANGLE, Rig

from hyroads.controller.api.service import ControllerService
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.files.documents import read_file
from hyroads.controller.model import state as model
from hyroads.controller.model.events import Event
from hyroads.controller.model.state import DeclaredFlow, Origin, State, TopologyContext
from hyroads.controller.runtime.garbage import Garbage
from hyroads.controller.runtime.link_states import LinkStates
from hyroads.controller.settings.controller import load
from hyroads.rest.api import create_app

CONTEXT = TopologyContext.of(read_file(TRIANGLE))
LINKS = tuple(link.id for link in CONTEXT.network.links)
NODE, LINK = st.sampled_from("ab"), st.sampled_from(LINKS)
CAPACITIES = st.lists(st.sampled_from([0.0, 5.0]), min_size=len(LINKS), max_size=len(LINKS)).map(tuple)
STEPS = st.one_of(
    st.tuples(st.just("switch"), NODE, st.booleans()),
    st.tuples(st.just("agent"), NODE, st.booleans()),
    st.tuples(st.just("port"), NODE, st.integers(0, 4), st.booleans()),
    st.tuples(st.just("heard"), LINK, st.booleans()),
    st.tuples(st.just("passes"), st.sampled_from([0.1, 2.0, 20.0, 3600.0])),
    st.tuples(st.just("measured"), st.none() | CAPACITIES),
    st.tuples(st.just("declared"), st.sampled_from(["f1", "f2"])),
)
Shown = dict[str, tuple[bool, str | None]]


@pytest.fixture(autouse=True)
def garbage_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Garbage, "begin", lambda self, now_s: None)


class Devices(Rig):
    """Switches and agents of the triangle that come and go; none is connected at first."""

    def __init__(self) -> None:
        super().__init__(load({"HYROADS_NETWORK": str(TRIANGLE), "HYROADS_CONFIG": ""}))
        self.here: dict[tuple[str, str], Any] = {}
        self.keys = iter(range(1000))
        service = ControllerService(self.event_loop, "triangle")
        self.client = create_app(service).test_client()

    def agent(self, node: str) -> Any:
        """None: tests connect agents and switches themselves."""

    def switch(self, node: str, key: int) -> Any:
        """As :meth:`agent`."""

    def shown(self) -> Shown:
        links = self.client.get("/api/v1/links?limit=1000").get_json()["links"]
        return {link["id"]: (link["up"], link["reason"]) for link in links}

    def take(self, what: str, *how: Any) -> None:
        getattr(self, f"_{what}")(*how)

    def _switch(self, node: str, comes: bool) -> None:
        known = self.here.pop(("switch", node), None)
        if known is not None:
            self.event_loop.switch_gone(known)
        if comes:
            self.here["switch", node] = super().switch(node, next(self.keys))

    def _agent(self, node: str, comes: bool) -> None:
        known = self.here.pop(("agent", node), None)
        if known is not None:
            self.event_loop.agent_down(known)
        if comes:
            self.here["agent", node] = super().agent(node)

    def _port(self, node: str, number: int, is_up: bool) -> None:
        connection = self.here.get(("switch", node))
        if connection is not None:
            names = sorted({*connection.names, *self.event_loop.context.addressing.interface_name.values()})
            others = [name for name in connection.names if name != names[number]]
            connection.names = [*others, names[number]] if is_up else others
            self.event_loop.switch_ports(connection)

    def _heard(self, link: str, is_up: bool) -> None:
        agent = self.here.get(("agent", CONTEXT.network.links[CONTEXT.network.link_index[link]].target))
        if agent is not None:
            self.event_loop.agent_links(agent, {link: is_up})

    def _passes(self, seconds: float) -> None:
        self.after(seconds)
        self.event_loop._cycle()

    def _measured(self, capacity_mbps: tuple[float, ...] | None) -> None:
        self.event_loop.change(partial(model.measured, capacity_mbps=capacity_mbps, interference=None))

    def _declared(self, flow: str) -> None:
        self.event_loop.declare(DeclaredFlow(FlowSpec(flow, "a", "b"), Origin.API))


def replayed(known: Shown, events: Iterable[Event]) -> Shown:
    """What a subscriber knows of links that had read them before these events."""
    known = dict(known)
    for event in events:
        if event.kind in ("link.up", "link.down"):
            new = event.kind == "link.up", event.document["reason"]
            assert known[event.document["link"]] != new, "an event without a change"
            known[event.document["link"]] = new
    return known


@given(st.lists(STEPS, max_size=25))
def test_replayed_link_events_give_the_links_that_rest_shows(steps: list[tuple[Any, ...]]) -> None:
    devices = Devices()
    known, last = devices.shown(), devices.event_loop.events.last
    assert not any(up for up, _ in known.values())
    for step in steps:
        devices.take(*step)
        events = devices.event_loop.events.since(last)
        known, last = replayed(known, events), devices.event_loop.events.last
        assert known == devices.shown(), step


def test_subscriber_hears_link_down_when_switch_or_agent_leaves() -> None:
    devices = Devices()
    for what in ("switch", "agent"):
        for node in "ab":
            devices.take(what, node, True)
    for what in ("switch", "agent"):
        last = devices.event_loop.events.last
        devices.take(what, "b", False)
        told = [(each.kind, each.document["link"]) for each in devices.event_loop.events.since(last)
                if each.kind.startswith("link.")]  # fmt: skip
        assert ("link.down", "ab-plc") in told and not devices.shown()["ab-plc"][0]
        devices.take(what, "b", True)
        assert devices.shown()["ab-plc"] == (True, None)


class Counting(State):
    """Notes the links that are looked at."""

    looked: ClassVar[list[str]] = []

    def link_fault(self, context: TopologyContext, link: Any) -> str | None:
        self.looked.append(link.id)
        return super().link_fault(context, link)


def test_change_looks_only_at_the_links_that_it_concerns() -> None:
    state = Counting(**vars(model.initial(CONTEXT)))
    switches: set[str] = set("abc")
    states = LinkStates(CONTEXT, state, switches, "abc", lambda kind, document: None)
    count = len(LINKS)
    measured = replace(state, capacity_mbps=(5.0,) * count)
    cases = [
        (replace(state, silent=frozenset({"ab-plc"})), {"ab-plc"}),
        (state, {"ab-plc"}),
        (replace(state, flows={}, version=7), set()),
        (measured, set()),
        (replace(measured, capacity_mbps=(6.0,) * count), set()),
        (replace(measured, capacity_mbps=(6.0, 0.0, *[6.0] * (count - 2))), {LINKS[1]}),
        (measured, {LINKS[1]}),
    ]
    for after, concerned in cases:
        Counting.looked.clear()
        states.follow(after)
        assert set(Counting.looked) == concerned and len(Counting.looked) == len(concerned)
    switches.discard("a")
    Counting.looked.clear()
    states.look_at("a")
    at_a = set(CONTEXT.links_at["a"])
    assert sorted(Counting.looked) == sorted(at_a) and at_a < set(LINKS)
    assert set(states.down) == at_a
