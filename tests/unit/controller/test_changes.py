"""What differs between two settings and networks, and what of it a running controller can take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.netfile import parse as parse_network
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.model.state import DeclaredFlow, Origin
from hyroads.controller.runtime.reload import Steps, flow_edits
from hyroads.controller.settings.changes import Changes, Files, compare, same_domains
from hyroads.controller.settings.controller import parse

TOKEN, OTHER = "a-token-of-someone-01", "a-token-of-someone-02"
NETWORK: dict[str, Any] = {
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}, "d": {"role": "ap"}},
    "links": [
        {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10, "both": True},
        {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15, "both": True},
        {"id": "bc-wifi", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 30, "both": True},
        {"id": "dc-wifi", "from": "d", "to": "c", "technology": "wifi", "capacity_mbps": 20, "both": True},
    ],
    "interference": {"rule": "technology"},
    "flows": [{"id": "f1", "from": "a", "to": "c"}],
}


def files(settings: dict[str, Any] | None = None, **network: Any) -> Files:
    document = {"network": "net.yaml", **(settings or {})}
    return Files(parse(document, "hyroads.yaml", {}), parse_network({**NETWORK, **network}, "net.yaml"))


def links(**changed: Any) -> list[dict[str, Any]]:
    """The links with other values for ``ab-plc``."""
    first, *others = NETWORK["links"]
    return [{**first, **changed}, *others]


def test_the_same_files_differ_in_nothing() -> None:
    assert compare(files(), files()) == Changes()


# What each change is called, and whether a running controller takes it.
LIVE: dict[str, dict[str, Any]] = {
    "settings: margin": {"settings": {"margin": 0.1}},
    "settings: tcp_margin": {"settings": {"tcp_margin": 0.2}},
    "settings: agent_token": {"settings": {"agent_token": TOKEN}},
    "settings: api_tokens.ops": {"settings": {"api_tokens": {"ops": {"token": TOKEN, "role": "admin"}}}},
    "settings: api_limits.burst": {"settings": {"api_limits": {"burst": 7}}},
    "settings: clients.laptop": {"settings": {"clients": {"laptop": {"token": TOKEN}}}},
    "settings: policies": {"settings": {"policies": ["signal"]}},
    "settings: slices.research": {"settings": {"slices": {"research": {"wifi": 0.25}}}},
    "network: flows.f2": {"flows": [*NETWORK["flows"], {"id": "f2", "from": "b", "to": "a"}]},
    "network: flows.f1": {"flows": []},
    "network: margin": {"interference": NETWORK["interference"], "margin": 0.1},
    "network: interference": {"interference": {"domains": [["ab-wifi", "bc-wifi"]]}},
}
RESTART: dict[str, dict[str, Any]] = {
    "settings: listen.rest": {"settings": {"listen": {"rest": {"port": 9}}}},
    "settings: listen.openflow": {"settings": {"listen": {"openflow": {"port": 9}}}},
    "settings: slot_ms": {"settings": {"slot_ms": 200, "timings": {"report_ms": 100}}},
    "settings: timings.grace_s": {"settings": {"timings": {"grace_s": 1}}},
    "settings: api_limits.listeners": {"settings": {"api_limits": {"listeners": 7}}},
    "settings: state_file": {"settings": {"state_file": "state.json"}},
    "network: nodes.a.role": {"nodes": {**NETWORK["nodes"], "a": {"role": "ap"}}},
    "network: nodes.a.dpid": {"nodes": {**NETWORK["nodes"], "a": {"role": "gateway", "dpid": 77}}},
    "network: nodes.e: new": {"nodes": {**NETWORK["nodes"], "e": {"role": "ap"}}},
    "network: links.dc-wifi: removed": {"links": NETWORK["links"][:-1]},
    "network: links: in another order": {"links": NETWORK["links"][::-1]},
    "network: links.ab-plc.loss": {"links": links(loss=0.1)},
}


@pytest.mark.parametrize("place", LIVE)
def test_what_can_be_taken_is_named(place: str) -> None:
    assert compare(files(), files(**LIVE[place])) in {
        Changes((place,)),
        Changes((place,), interference=place == "network: interference"),
    }


@pytest.mark.parametrize("place", RESTART)
def test_what_needs_a_restart_is_named(place: str) -> None:
    assert place in compare(files(), files(**RESTART[place])).restart


def test_capacities_are_taken_unless_they_are_measured() -> None:
    other = links(capacity_mbps=12)
    places = ("network: links.ab-plc.capacity_mbps", "network: links.ab-plc~.capacity_mbps")
    assert compare(files(), files(links=other)) == Changes(places, capacities=True)
    measured = {"capacities": "measured"}
    assert compare(files(measured), files(measured, links=other)).restart == places


def test_capacities_that_move_a_plain_client_need_a_restart() -> None:
    changed = [*NETWORK["links"][:-1], {**NETWORK["links"][-1], "capacity_mbps": 90}]
    assert any("attached first" in place for place in compare(files(), files(links=changed)).restart)


def test_no_token_is_shown() -> None:
    found = compare(files({"agent_token": TOKEN}), files({"agent_token": OTHER}))
    assert found.live == ("settings: agent_token",) and TOKEN not in repr(found) and OTHER not in repr(found)


@given(st.lists(st.sampled_from(sorted(LIVE)), unique=True), st.lists(st.sampled_from(sorted(RESTART)), unique=True))
def test_differences_are_the_same_both_ways(live: list[str], restart: list[str]) -> None:
    """A place that differs differs whichever file is the older one, and nothing is both live and not."""
    settings: dict[str, Any] = {}
    network: dict[str, Any] = {}
    for place in [*live, *restart]:
        change = {**LIVE, **RESTART}[place]
        settings |= change.get("settings", {})
        network |= {key: value for key, value in change.items() if key != "settings"}
    if {"links", "nodes"} & network.keys():
        network.pop("interference", None)
    old, new = files(), files(settings, **network)
    there, back = compare(old, new), compare(new, old)
    assert {place.split(":")[1] for place in there.live} == {place.split(":")[1] for place in back.live}
    assert bool(there.restart) == bool(back.restart)
    assert not set(there.live) & set(there.restart)
    assert bool(there.live or there.restart) == bool(settings or network) or {"margin", "interference"} & network.keys()


def test_domains_are_compared_as_what_they_say() -> None:
    """Two rules that let the same links contend are one."""
    by_rule = files().network.interference
    wifi = [name for link in NETWORK["links"] for name in (link["id"], link["id"] + "~") if "wifi" in name]
    said = files(interference={"domains": [wifi, ["ab-plc", "ab-plc~"]]}).network.interference
    assert same_domains(by_rule, said) and same_domains(said, by_rule)
    assert not same_domains(by_rule, files(interference={"domains": [wifi]}).network.interference)


# -- flows


IDS = st.sampled_from(["f1", "f2", "f3"])
SPECS = st.builds(FlowSpec, IDS, st.just("a"), st.sampled_from(["b", "c"]), weight=st.sampled_from([1.0, 2.0]))
FLOWS = st.lists(SPECS, unique_by=lambda flow: flow.id).map(tuple)
DECLARED = st.lists(st.builds(DeclaredFlow, SPECS, st.sampled_from([Origin.FILE, Origin.API])), max_size=3).map(
    lambda flows: {flow.spec.id: flow for flow in flows}
)


def network_of(flows: tuple[FlowSpec, ...]) -> Network:
    return replace(files().network, flows=flows)


@given(FLOWS, FLOWS, DECLARED)
def test_flows_follow_the_file_and_spare_what_was_declared_over_rest(
    old: tuple[FlowSpec, ...], new: tuple[FlowSpec, ...], declared: dict[str, DeclaredFlow]
) -> None:
    edits = flow_edits(network_of(old), network_of(new), declared)
    after = {flow: each for flow, each in declared.items() if flow not in edits.gone}
    after |= {each.spec.id: each for each in edits.new}
    before, now = {flow.id: flow for flow in old}, {flow.id: flow for flow in new}
    for flow, spec in now.items():
        if before.get(flow) == spec:
            assert after.get(flow) == declared.get(flow), "what the file says as before stays as it is"
        elif not edits.problems:
            assert after[flow].spec == spec
    for flow, each in declared.items():
        if each.origin is Origin.API:
            assert after[flow].spec == each.spec
        elif flow in before and flow not in now:
            assert flow not in after
    if not edits.problems:
        again = flow_edits(network_of(new), network_of(new), after)
        assert not again.new and not again.gone


def test_steps_are_undone_in_reverse_and_once() -> None:
    done: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    steps = Steps()
    steps.do(lambda: done.append("one"), lambda: done.append("not one"))
    with pytest.raises(ZeroDivisionError):
        steps.do(fail, lambda: done.append("not two"))
    steps.undo()
    steps.undo()
    assert done == ["one", "not two", "not one"]
