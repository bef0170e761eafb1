"""A new controller goes on with the paths that flows had, on the same network only."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from hyroads.controller.control.live_network import Cache, LiveNetwork
from hyroads.controller.control.restored_routes import (
    RouteObjects,
    fingerprint,
    paths_in,
    restored_routes,
    routes_by,
    routes_document,
)
from hyroads.controller.control.routes import FlowRoute, asked, make_routes
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.network import FlowSpec, Policy
from hyroads.controller.core.topologies import campus
from hyroads.controller.model import state as model
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext

CONTEXT = TopologyContext.of(campus(random.Random(3), 12, building=4))
NODES = list(CONTEXT.network.nodes)
PRINT = fingerprint(CONTEXT.network)


def specs() -> list[FlowSpec]:
    rng = random.Random(5)
    policies = (Policy.THROUGHPUT, Policy.SINGLE, Policy.PRIVATE, Policy.LATENCY, Policy.HYMAB)
    ends = [rng.sample(NODES, 2) for _ in range(20)]
    return [FlowSpec(f"f{i}", *pair, policy=policies[i % len(policies)]) for i, pair in enumerate(ends)]


class World:
    """A controller's state and routes; ``before`` are those that it begins with."""

    def __init__(self, before: dict[str, FlowRoute] | None = None) -> None:
        state = model.initial(CONTEXT, [DeclaredFlow(spec, Origin.API) for spec in specs()])
        for node in CONTEXT.addressing.agents:
            state = model.agent_up(state, CONTEXT, node, fresh=False, now_s=0.0)
        self.state, self.cache = state, Cache(CONTEXT)
        self.live = self.cache.live(state)
        self.routes = make_routes(state, self.live, before)
        numbers = Numbers().with_flows(self.routes)
        self.numbers = numbers.with_paths({flow: route.known for flow, route in self.routes.items()})

    def saved(self, network: str = PRINT) -> Any:
        return json.loads(json.dumps(routes_document(network, self.routes, self.numbers)))


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_flows_have_the_paths_that_they_had_and_are_not_planned_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored = restored_routes(world.saved(), PRINT, specs(), world.numbers)
    planned = [flow for flow, route in world.routes.items() if route.reason is None]
    assert sorted(restored) == sorted(planned) and len(planned) > 5
    sources: list[str] = []
    multipath = LiveNetwork._best
    monkeypatch.setattr(LiveNetwork, "_best", lambda self, *a: (sources.append(a[0]), multipath(self, *a))[1])
    again = World(restored)
    assert again.routes == world.routes
    # One that is private and has no way, or has a technology less than it could, looks for more.
    may_ask = {spec.source for spec in specs() if spec.policy in (Policy.LATENCY, Policy.PRIVATE)}
    assert set(sources) <= may_ask
    learning = [again.routes[spec.id].arms for spec in specs() if spec.policy.learns and spec.id in restored]
    assert len(learning) > 1 and all(learning)
    _, found = asked(Cache(CONTEXT).live(again.state), (spec for spec in specs() if spec.id in restored), restored)
    assert {spec.source for spec in found} <= may_ask


def test_a_path_that_is_dead_is_planned_anew(world: World) -> None:
    restored = restored_routes(world.saved(), PRINT, specs(), world.numbers)
    flow = next(flow for flow, route in restored.items() if route.spec.policy is Policy.THROUGHPUT)
    state = replace(world.state, silent=frozenset(link for path in restored[flow].paths for link in path))
    route = make_routes(state, world.cache.live(state), restored)[flow]
    assert not {link for path in route.paths for link in path} & state.silent


def test_of_another_network_nothing_is_taken_over(world: World) -> None:
    slower = CONTEXT.network.with_capacities({CONTEXT.network.links[0].id: 1.0})
    assert fingerprint(slower) != PRINT == fingerprint(campus(random.Random(3), 12, building=4))
    assert restored_routes(world.saved(fingerprint(slower)), PRINT, specs(), world.numbers) == {}


@pytest.mark.parametrize(
    "document",
    [None, 7, [], {}, {"network": PRINT}, {"network": PRINT, "paths": [1]}, {"network": PRINT, "paths": {"f0": 1}}]
    + [{"network": PRINT, "paths": {"f0": ids}} for ids in ([], [True], ["1"], [-1], [999], [[1]], [None])]
    # Flow f4 has a bandit, f0 has none.
    + [{"network": PRINT, "paths": {"f4": {"paths": [0], "arms": arms}}} for arms in (None, [], [[]], [[1]], [[True]])]
    + [{"network": PRINT, "paths": {"f4": [0]}}, {"network": PRINT, "paths": {"f0": {"paths": [0], "arms": [[0]]}}}],
)
def test_what_makes_no_sense_is_left_out(world: World, document: Any) -> None:
    assert restored_routes(document, PRINT, specs(), world.numbers) == {}


def test_what_is_measured_to_be_as_the_file_says_is_the_network_of_the_file(world: World) -> None:
    capacities = tuple(link.capacity_mbps for link in CONTEXT.network.links)
    measured = model.measured(world.state, capacities, None)
    assert world.cache.live(measured) is world.live
    other = model.measured(world.state, (capacities[0] / 2, *capacities[1:]), None)
    assert world.cache.live(other) is not world.live


def test_an_object_for_each_flow_says_the_same(world: World) -> None:
    document = world.saved()
    found = RouteObjects().of(document)
    services = json.loads(json.dumps({**found, "routes": list(found["routes"].of.values())}))
    assert [one["flow"] for one in services["routes"]] == list(document["paths"])
    assert paths_in(services, PRINT) == paths_in({"routes": document}, PRINT) == document["paths"]
    assert paths_in(services, "of another network") == {}
    whole = restored_routes(document, PRINT, specs(), world.numbers)
    assert routes_by(paths_in(services, PRINT), specs(), world.numbers) == whole and whole


@pytest.mark.parametrize(
    "services",
    [
        {},
        {"routes": 5, "routes_of": PRINT},
        {"routes": [{"flow": "f0", "paths": [1]}], "routes_of": 7},
        {"routes": [5, None, {"flow": 3}, {"flow": "f0"}, {"flow": "f0", "paths": 5}], "routes_of": PRINT},
        {"routes": [{"flow": "f0", "paths": [True, "1"]}, {"flow": "f5", "paths": [10**9]}], "routes_of": PRINT},
    ],
)
def test_objects_that_make_no_sense_are_no_routes(world: World, services: dict[str, Any]) -> None:
    assert routes_by(paths_in(services, PRINT), specs(), world.numbers) == {}


def test_objects_of_flows_that_stay_are_those_of_before() -> None:
    objects, paths = RouteObjects(), {f"f{number}": [number] for number in range(5)}
    before = objects.of({"network": PRINT, "paths": paths})["routes"].of
    fewer = {flow: ids for flow, ids in paths.items() if flow != "f3"}
    after = objects.of({"network": PRINT, "paths": {**fewer, "f1": [7], "f9": [9]}})["routes"].of
    assert list(after) == ["f0", "f1", "f2", "f4", "f9"]
    assert after["f1"] == {"flow": "f1", "paths": [7]} and before["f1"] == {"flow": "f1", "paths": [1]}
    assert all(after[flow] is before[flow] for flow in ("f0", "f2", "f4"))
