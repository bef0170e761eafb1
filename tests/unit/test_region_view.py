"""What one region's controller sees of a network, and that the regions' views fit together."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from hyroads.controller.app.region_messages import RegionError, SegmentMaker, Told, Wanted, parse_wanted
from hyroads.controller.app.region_rates import crossing_of
from hyroads.controller.control.live import Live
from hyroads.controller.control.live_network import Cache
from hyroads.controller.control.loop import LiveLoop
from hyroads.controller.control.reports import ReportRegistry
from hyroads.controller.control.source import ConfiguredSource
from hyroads.controller.core.addressing import FIRST_FLOW, LAST_FLOW, Numbers
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.model import state as model
from hyroads.controller.model.plan import Options
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext

REGIONS = ("north", "middle", "south")
CHAIN: dict[str, Any] = {
    "nodes": {name: {"role": "ap"} for name in ("n1", "n2", "m1", "m2", "s1", "s2")},
    "links": [
        {"id": "n", "from": "n1", "to": "n2", "technology": "wifi-n", "capacity_mbps": 20, "both": True},
        {"id": "m", "from": "m1", "to": "m2", "technology": "wifi-m", "capacity_mbps": 20, "both": True},
        {"id": "s", "from": "s1", "to": "s2", "technology": "wifi-s", "capacity_mbps": 20, "both": True},
        {"id": "nm", "from": "n2", "to": "m1", "technology": "ethernet", "capacity_mbps": 100, "both": True},
        {"id": "nm-slow", "from": "n1", "to": "m2", "technology": "ethernet", "capacity_mbps": 10, "both": True},
        {"id": "ms", "from": "m2", "to": "s1", "technology": "ethernet", "capacity_mbps": 100, "both": True},
    ],
    "interference": {"rule": "technology"},
    "regions": {"north": ["n1", "n2"], "middle": ["m1", "m2"], "south": ["s1", "s2"]},
    "flows": [{"id": "f", "from": "n1", "to": "s2"}, {"id": "local", "from": "s1", "to": "s2"}],
}


def network(**changes: Any) -> Network:
    return parse({**CHAIN, **changes}, "chain")


def contexts(of: Network | None = None) -> dict[str, TopologyContext]:
    of = of or network()
    return {region: TopologyContext.of(of, "chain", region=region) for region in of.regions}


def test_addresses_and_labels_are_those_of_the_whole_network():
    whole = TopologyContext.of(network())
    for context in contexts().values():
        assert (context.addressing, context.labels) == (whole.addressing, whole.labels)


def test_each_node_is_commanded_by_one_controller_and_each_number_given_by_one():
    seen = contexts().values()
    assert sorted(node for context in seen for node in context.own_switches) == sorted(network().nodes)
    assert sorted(node for context in seen for node in context.own_agents) == sorted(network().nodes)
    spans = sorted(context.numbers for context in seen)
    assert all(first[1] < second[0] for first, second in itertools.pairwise(spans))
    assert spans[0][0] >= FIRST_FLOW and spans[-1][1] <= LAST_FLOW
    given = [Numbers().with_flows([f"f{i}" for i in range(500)], span).flows.values() for span in spans]
    assert len({number for numbers in given for number in numbers}) == 1500


def test_a_number_of_another_range_is_not_kept():
    first, second = (context.numbers for context in list(contexts().values())[:2])
    had = Numbers().with_flows(["f"], first)
    assert second[0] <= had.with_flows(["f"], second).flows["f"] <= second[1]
    assert had.with_flows(["f"], first) is had


def single_mbps(context: TopologyContext, **changes: Any) -> dict[str, float]:
    network = Cache(context).live(replace(model.initial(context), **changes)).single
    return {link.id: link.capacity_mbps for link in network.links}


def test_one_pair_of_links_carries_single_paths_the_fastest_that_lives_and_the_same_for_all():
    seen = contexts()
    for context in seen.values():
        capacity = single_mbps(context)
        assert (capacity["nm"], capacity["nm~"], capacity["ms"]) == (100, 100, 100)
    for region in ("north", "middle"):
        capacity = single_mbps(seen[region])
        assert (capacity["nm-slow"], capacity["nm-slow~"]) == (0, 0)
        # One direction is enough.
        capacity = single_mbps(seen[region], silent=frozenset({"nm~"}))
        assert (capacity["nm"], capacity["nm~"], capacity["nm-slow"], capacity["nm-slow~"]) == (0, 0, 10, 10)


def test_flows_are_planned_over_links_of_the_own_region_alone():
    for region, context in contexts().items():
        live = Cache(context).live(model.initial(context))
        of = context.view.region_of
        assert {of[link.source] for link in live.plannable.links if link.capacity_mbps > 0} == {region}


def test_a_flow_leaves_by_the_link_of_least_time_per_bit_that_lives():
    view = contexts()["north"].view
    spec = FlowSpec("f", "n1", "s2")
    # 20 Mb/s and 100 Mb/s one after the other are faster than 10 Mb/s.
    assert view.exit_of(spec).id == "nm"
    assert view.exit_of(spec, {"nm"}).id == "nm-slow"
    assert view.exit_of(spec, {"nm", "nm-slow"}).id in {"nm", "nm-slow"}
    assert view.exit_of(FlowSpec("g", "n1", "n2")) is None


def test_links_of_the_same_cost_share_the_flows_and_only_those_of_a_dead_link_move():
    links = [{**link, "capacity_mbps": 100} for link in CHAIN["links"]]
    links = [link for link in links if link["id"] != "nm-slow"]
    links += [
        {"id": f"nm{k}", "from": "n2", "to": m, "technology": f"ethernet-{k}", "capacity_mbps": 100, "both": True}
        for k, m in (("2", "m1"), ("3", "m2"))
    ]
    view = contexts(network(links=links))["north"].view
    specs = [FlowSpec(f"f{i}", "n1", "m2") for i in range(300)]
    before = {spec.id: view.exit_of(spec).id for spec in specs}
    counts = [list(before.values()).count(link) for link in ("nm", "nm2", "nm3")]
    assert min(counts) > 60
    after = {spec.id: view.exit_of(spec, {"nm2"}).id for spec in specs}
    assert {flow for flow in before if before[flow] != after[flow]} == {
        f for f, link in before.items() if link == "nm2"
    }


@pytest.mark.parametrize("lost", [{"silent": frozenset({"nm"})}, {"away": frozenset({"m1"})}])
def test_flows_leave_by_another_link_when_theirs_or_the_agent_beyond_it_is_gone(lost):
    context = contexts()["north"]
    declared = [DeclaredFlow(flow, Origin.FILE) for flow in context.network.flows]
    live = Live(context, Numbers(), Options(), LiveLoop(context.network, ConfiguredSource(context.network)))
    state = model.initial(context, declared)
    reports = ReportRegistry(lambda: 0.0)
    assert live.replan(state, reports, 0.0).flows["f"].egress == "m1"
    moved = live.replan(replace(state, **lost, version=1), reports, 1.0).flows["f"]
    assert (moved.mode, moved.egress) == ("multipath", "m2")
    assert {path.links for path in moved.paths} == {("nm-slow",)}
    assert live.replan(replace(state, version=2), reports, 2.0).flows["f"].egress == "m1"


@pytest.mark.parametrize("seed", range(20))
def test_regions_are_joined_by_a_tree(seed):
    rng = random.Random(seed)
    names = [f"r{i}" for i in range(rng.randint(2, 7))]
    nodes = {f"{region}-{i}": {"role": "ap"} for region in names for i in range(2)}
    links = [(f"{region}-0", f"{region}-1", f"wifi-{region}") for region in names]
    pairs = [pair for pair in itertools.combinations(nodes, 2) if pair[0][:2] != pair[1][:2]]
    links += [(*pair, "ethernet") for pair in rng.sample(pairs, min(len(pairs), 3 * len(names)))]
    of = network(
        nodes=nodes,
        links=[
            {"id": f"l{i}", "from": a, "to": b, "technology": k, "capacity_mbps": rng.choice([10, 100]), "both": True}
            for i, (a, b, k) in enumerate(links)
        ],
        regions={region: [f"{region}-0", f"{region}-1"] for region in names},
        flows=[],
    )
    seen = contexts(of)
    views = {region: context.view for region, context in seen.items()}
    for source, target in itertools.permutations(names, 2):
        here, way = source, [source]
        while here != target and (beside := views[here].exits.get(target)) is not None:
            for link, back in views[here].pairs[beside]:
                assert (views[here].region_of[link.source], views[here].region_of[link.target]) == (here, beside)
                assert (link.source, link.target) == (back.target, back.source)
            here = beside
            assert here not in way
            way.append(here)
        # Both directions find a way, or neither does.
        assert (here == target) == (source in views[target].exits)
    # What all switches flood to is a tree: each edge is known at both ends, and there is one edge less than nodes.
    hops = {
        node: intent.tree
        for context in seen.values()
        for node, intent in Cache(context).live(model.initial(context)).intents.items()
    }
    parts = len({frozenset({region, *views[region].exits}) for region in names})
    assert sum(map(len, hops.values())) == 2 * (len(nodes) - parts)


def test_a_flow_over_three_regions_is_a_chain_of_segments_that_meet():
    seen = contexts()
    (spec,) = seen["north"].network.flows
    assert [flow.id for flow in seen["south"].network.flows] == ["local"]
    mac = seen["north"].addressing.host_mac
    node_of_mac = {address: node for node, address in mac.items()}
    here, segments = spec, [seen["north"].view.segment(spec, mac)]
    for sender, region in itertools.pairwise(REGIONS):
        whole = seen[sender].view.whole(here, node_of_mac)
        here = seen[region].view.onward(whole, sender, segments[-1].target, mac)
        segments.append(seen[region].view.segment(here, mac))
    assert [(each.id, each.source, each.target) for each in segments] == [
        ("f", "n1", "m1"),
        ("f:m1@north", "m1", "s1"),
        ("f:m1@north@middle", "s1", "s2"),
    ]
    # Whatever the ends of a segment, it takes the frames between the hosts of the whole flow.
    assert {(each.match["eth_src"], each.match["eth_dst"]) for each in segments} == {(mac["n1"], mac["s2"])}


def test_regions_call_a_crossing_flow_by_one_name_between_them_and_know_it_by_one_version():
    seen = contexts()
    mac = seen["north"].addressing.host_mac
    node_of_mac = {address: node for node, address in mac.items()}
    # A name with what regions put between names: nothing but what a region added is taken away again.
    spec = FlowSpec("g:m1", "n1", "s2", weight=3.0)
    here, found = DeclaredFlow(spec, Origin.API), []
    for region, ingress in zip(REGIONS, ("m1", "s1", None), strict=True):
        view = seen[region].view
        (crossing,) = crossing_of({here.spec.id: here}, view, node_of_mac).values()
        found.append(crossing)
        if ingress is not None:
            whole, beside = view.whole(here.spec, node_of_mac), REGIONS[REGIONS.index(region) + 1]
            here = DeclaredFlow(seen[beside].view.onward(whole, region, ingress, mac), Origin.REGION)
    north, middle, south = found
    assert north.name_with("middle") == middle.name_with("north") == "g:m1"
    assert middle.name_with("south") == south.name_with("middle") == "g:m1:m1@north"
    assert (north.before, south.after, middle.before, middle.after) == (None, None, "north", "south")
    assert len({each.version for each in found}) == 1


def test_a_flow_within_a_region_is_what_it_was():
    context = contexts()["south"]
    (spec,) = context.network.flows
    assert context.view.segment(spec, context.addressing.host_mac) is spec


def test_a_live_network_has_a_way_to_hosts_of_other_regions():
    context = contexts()["north"]
    live = Cache(context).live(model.initial(context))
    assert set(live.intents) == {"n1", "n2"}
    routes = {route.node: route.hop.port for route in live.intents["n2"].routes}
    assert {routes[node] for node in ("m1", "m2", "s1", "s2")} == {context.addressing.interface_name["n2", "ethernet"]}
    assert live.intents["n2"].relays and live.intents["n1"].relays


@pytest.mark.parametrize(
    ("changes", "region", "problem"),
    [
        ({}, "west", "is no region"),
        ({"regions": {"one": ["n1", "s1"], "two": ["n2", "m1", "m2", "s2"]}}, "one", "connected within the region"),
        ({"regions": {}}, "north", "is no region"),
    ],
)
def test_regions_that_can_not_be_run_are_refused(changes, region, problem):
    with pytest.raises(ConfigError, match=problem):
        TopologyContext.of(network(**changes), "chain", region=region)


def test_a_client_hangs_on_a_switch_of_its_own_region():
    nodes = {**CHAIN["nodes"], "c": {"role": "client", "agent": False}}
    link = {"id": "c", "technology": "wifi-c", "capacity_mbps": 5, "both": True}
    links = [*CHAIN["links"], {**link, "from": "n1", "to": "c"}, {**link, "id": "d", "from": "m1", "to": "c"}]
    regions = {**CHAIN["regions"], "middle": ["m1", "m2", "c"]}
    with pytest.raises(ConfigError, match="on whose switch it hangs"):
        TopologyContext.of(network(nodes=nodes, links=links, regions=regions), "chain", region="north")


# -- what a neighbour says

SEGMENT: dict[str, Any] = {
    "node": "m1",
    "end": {"number": 20, "paths": [3, 209], "max_hold_ms": 100, "ordered": True},
    "flow": {"id": "f", "from": "n1", "to": "s2", "match": {"eth_type": 0x0800, "udp_dst": 5001}},
}


def told(segment: object = SEGMENT, silent: object = ()) -> Any:
    context = contexts()["middle"]
    document = {"segments": [segment], "silent": list(silent) if isinstance(silent, tuple) else silent}
    return parse_wanted(document, "north", context, model.initial(context))


def test_what_a_neighbour_wants_becomes_an_end_and_a_flow():
    found = told(silent=("nm~",))
    (flow,) = found.flows.values()
    assert (flow.origin, flow.spec.id, flow.spec.source, flow.spec.target) == (Origin.REGION, "f:m1@north", "m1", "s2")
    assert found.arriving["m1"]["f:m1@north"].paths == (3, 209)
    assert found.silent == {"nm~"}


def test_the_link_that_a_neighbour_does_not_hear_is_ours_or_nothing():
    assert told(silent=("m", "ms~", "nm")).silent == frozenset()


@pytest.mark.parametrize(
    "change",
    [
        {"node": "m2x"},
        {"node": "n2"},
        {"node": 7},
        {"end": {**SEGMENT["end"], "number": 60_000}},
        {"end": {**SEGMENT["end"], "number": True}},
        {"end": {**SEGMENT["end"], "paths": [1000]}},
        {"end": {**SEGMENT["end"], "paths": list(range(256)) * 2}},
        {"end": {**SEGMENT["end"], "max_hold_ms": -1}},
        {"end": {}},
        {"flow": {"id": "f", "from": "n1", "to": "nowhere"}},
        {"flow": {"id": "f", "from": "n1", "to": "s2", "match": {"eth_src": "x"}}},
        {"flow": []},
    ],
)
def test_what_a_neighbour_may_not_say(change):
    with pytest.raises((RegionError, ConfigError)):
        told({**SEGMENT, **change})


@pytest.mark.parametrize("silent", ["nm", [1], ["no-link"], {}])
def test_silent_links_are_ids_of_links(silent):
    with pytest.raises(RegionError):
        told(silent=silent)


MAC = "b8:27:eb:41:c0:a1"


def test_addresses_at_the_border_reach_the_neighbour():
    north, middle = contexts()["north"], contexts()["middle"]
    (link,) = [link for link in north.network.links if link.id == "nm"]
    said = Wanted(1, {}, starting=False, addresses=((link.source, link.technology, MAC),)).document(None)
    found = parse_wanted(said, "north", middle, model.initial(middle))
    assert found.addresses == {(link.source, link.technology): MAC}
    state = model.region_told(
        model.initial(middle), sender="north", flows=[], arriving={}, silent=[], links=[], reported=found.addresses
    )
    # The switch at the other end of the link sends to that address.
    name = middle.addressing.interface_mac[link.source, link.technology]
    assert middle.addresses.with_reported(state.reported).translation(link.target) == {name: MAC}


@pytest.mark.parametrize(
    "entry", ["m1", ["n1"], ["m1", "ethernet", MAC], ["nobody", "ethernet", MAC], ["n2", "x", MAC], [1, 2, 3], {}]
)
def test_a_neighbour_may_name_addresses_of_its_own_interfaces_at_the_border_alone(entry):
    context = contexts()["middle"]
    with pytest.raises(RegionError):
        parse_wanted({"segments": [], "silent": [], "addresses": [entry]}, "north", context, model.initial(context))


def test_a_flow_that_is_declared_here_is_not_replaced():
    context = contexts()["middle"]
    ours = DeclaredFlow(FlowSpec("f:m1@north", "m1", "m2"), Origin.API)
    with pytest.raises(RegionError, match="is declared here"):
        parse_wanted({"segments": [SEGMENT], "silent": []}, "north", context, model.initial(context, [ours]))


def test_a_neighbour_changes_only_what_it_has_asked_for():
    context = contexts()["middle"]
    ours = DeclaredFlow(FlowSpec("mine@north", "m1", "m2"), Origin.API)
    state = model.initial(context, [ours])
    found = told(silent=("nm~",))

    def after(before: model.State, sender: str, what: Any) -> model.State:
        return model.region_told(
            before, sender=sender, flows=what.flows.values(), arriving=what.arriving, silent=what.silent, links=["nm~"]
        )

    once = after(state, "north", found)
    assert set(once.flows) == {"mine@north", "f:m1@north"} and once.silent == {"nm~"}
    assert after(once, "north", found) is once
    nothing = replace(found, flows={}, arriving={}, silent=frozenset())
    assert set(after(once, "south", replace(nothing, silent=frozenset({"nm~"}))).flows) == {"mine@north", "f:m1@north"}
    gone = after(once, "north", nothing)
    assert set(gone.flows) == {"mine@north"} and not gone.arriving and not gone.silent


def test_a_flow_that_was_declared_here_meanwhile_stays():
    context = contexts()["middle"]
    ours = DeclaredFlow(FlowSpec("f:m1@north", "m1", "m2"), Origin.API)
    found = told()
    told_again = model.region_told(
        model.initial(context, [ours]),
        sender="north", flows=found.flows.values(), arriving=found.arriving, silent=(), links=(),
    )  # fmt: skip
    assert told_again.flows["f:m1@north"] is ours


def test_an_agent_that_is_away_says_nothing_of_its_links():
    context = contexts()["north"]
    heard = replace(model.initial(context), silent=frozenset({"nm~", "n"}))
    away = model.region_told(
        heard, sender="middle", flows=(), arriving={}, silent=(), links=["nm", "nm-slow"], away=["m1"],
        border={"nm~": "m1", "nm-slow~": "m2"},
    )  # fmt: skip
    assert (away.silent, away.away) == ({"n"}, {"m1"})
    assert model.links_heard(away, context, "n2", {"nm~": False}, 9.0).silent == {"n"}


# -- what is told of what changed


def end(number: int, *paths: int) -> dict[str, Any]:
    return {"number": number, "paths": list(paths), "max_hold_ms": 100, "reorder": True}


def many(count: int) -> tuple[TopologyContext, dict[str, Any], dict[str, DeclaredFlow]]:
    flows = {
        f"f{i}": DeclaredFlow(
            FlowSpec(f"f{i}", "n1", "s2", match={"eth_type": 0x0800, "ip_proto": 17, "udp_dst": i}), Origin.API
        )
        for i in range(1, count + 1)
    }
    return contexts()["north"], {flow: end(20 + i, 0) for i, flow in enumerate(flows)}, flows


def test_one_changed_flow_of_a_thousand_costs_one_flow_and_is_told_alone():
    context, ends, flows = many(1000)
    maker = SegmentMaker(context)
    first = Wanted(1, maker.segments("m1", ends, flows), starting=False)
    assert maker.made == 1000 and len(first.document(None)["segments"]) == 1000
    # Nothing changed.
    assert maker.segments("m1", ends, flows)["m1"] is first.segments["m1"] and maker.made == 1000
    # A configuration is a document of its own each time.
    ends = {flow: dict(each) for flow, each in ends.items()} | {"f7": end(26, 0, 1)}
    second = Wanted(2, maker.segments("m1", ends, flows), starting=False)
    assert maker.made == 1001
    said = second.document(first)
    assert [each["flow"]["id"] for each in said["segments"]] == ["f7"] and (said["since"], said["gone"]) == (1, [])
    # A flow is declared anew, another one is removed: told as it was until its end is gone.
    flows = {**flows, "f9": replace(flows["f9"], spec=replace(flows["f9"].spec, weight=2.0))}
    del flows["f8"]
    third = Wanted(3, maker.segments("m1", ends, flows), starting=False)
    assert maker.made == 1003
    assert [each["flow"]["id"] for each in third.document(second)["segments"]] == ["f9"]
    left = {flow: each for flow, each in ends.items() if flow != "f8"}
    fourth = Wanted(4, maker.segments("m1", left, flows), starting=False)
    assert maker.made == 1003 and fourth.document(third)["gone"] == [["m1", "f8"]]


def test_what_changed_adds_up_to_the_whole():
    context, ends, flows = many(30)
    there, rng = contexts()["middle"], random.Random(5)
    state, maker, before, heard = model.initial(there), SegmentMaker(context), None, None
    for seq in range(1, 40):
        for flow in rng.sample(list(flows), 3):
            ends = {f: e for f, e in ends.items() if f != flow} if flow in ends else {**ends, flow: end(20 + seq, 0)}
        node_ends = {"m1": ends, "m2": {f: e for f, e in ends.items() if int(f[1:]) % 5 == seq % 5}}
        segments = {node: maker.segments(node, of, flows)[node] for node, of in node_ends.items()}
        wanted = Wanted(seq, segments, starting=False)
        heard = parse_wanted(wanted.document(before), "north", there, state, heard)
        whole = parse_wanted(wanted.document(None), "north", there, state)
        assert heard == whole
        before = wanted


def test_what_changed_since_something_else_is_refused():
    context = contexts()["middle"]
    changed = {"type": "changed", "since": 6, "seq": 7, "segments": [], "gone": [], "silent": []}
    for before in (None, Told(5, {}, {}, frozenset())):
        with pytest.raises(RegionError, match="expected all that is wanted"):
            parse_wanted(changed, "north", context, model.initial(context), before)
    with pytest.raises(RegionError, match="gone segments"):
        parse_wanted(
            {**changed, "gone": [["m1"]]}, "north", context, model.initial(context), Told(6, {}, {}, frozenset())
        )


def test_ends_of_one_flow_at_two_nodes_have_names_of_their_own_while_it_moves():
    context = contexts()["middle"]
    segments = [SEGMENT, {**SEGMENT, "node": "m2", "end": {**SEGMENT["end"], "paths": [1]}}]
    found = parse_wanted({"segments": segments, "silent": []}, "north", context, model.initial(context))
    assert {flow: declared.spec.source for flow, declared in found.flows.items()} == {
        "f:m1@north": "m1",
        "f:m2@north": "m2",
    }
    assert {node: set(ends) for node, ends in found.arriving.items()} == {"m1": {"f:m1@north"}, "m2": {"f:m2@north"}}
    # Where segments can end at one node only, nothing has to tell two of them apart.
    assert contexts()["south"].view.imported_id("f", "middle", "s1") == "f@middle"
