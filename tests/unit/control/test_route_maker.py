"""Routes that are made from what changed are those that are made from all flows."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.control.live_network import Cache
from hyroads.controller.control.route_maker import RouteMaker
from hyroads.controller.control.routes import FlowRoute, make_routes
from hyroads.controller.core.mappings import patched
from hyroads.controller.core.network import FlowSpec, Policy, Traffic
from hyroads.controller.core.topologies import campus
from hyroads.controller.model import state as model
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext

CONTEXT = TopologyContext.of(campus(random.Random(3), 12, building=4))
NODES, LINKS = list(CONTEXT.network.nodes), [link.id for link in CONTEXT.network.links]


class World:
    """A state to which things happen, with the routes that were made of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state = model.initial(CONTEXT)
        for node in CONTEXT.addressing.agents:
            self.state = model.agent_up(self.state, CONTEXT, node, fresh=False, now_s=0.0)
        self.maker, self.cache = RouteMaker(), Cache(CONTEXT)
        self.live = self.cache.live(self.state)
        self.routes: Mapping[str, FlowRoute] = {}

    def spec(self) -> FlowSpec:
        source, target = self.rng.sample(NODES, 2)
        policy = self.rng.choice(list(Policy))
        traffic = self.rng.choice([Traffic.ANY, Traffic.ANY, Traffic.PROBE])
        # Few ports, so that flows match the same frames now and then.
        match = {"eth_type": 0x0800, "ip_proto": 17, "udp_dst": self.rng.randint(1, 2)}
        group = "g" if self.rng.random() < 0.05 else None
        name = f"f{self.rng.randint(1, 12)}"
        return FlowSpec(name, source, target, policy=policy, traffic=traffic, match=match, group=group)

    def happen(self, kind: str) -> None:
        if kind == "declare":
            self.state = model.flow_declared(self.state, DeclaredFlow(self.spec(), Origin.API))
        elif kind == "remove":
            self.state = model.flow_removed(self.state, f"f{self.rng.randint(1, 12)}")
        elif kind == "leader":
            self.hear_of_leader()
        elif kind == "agent":
            node = self.rng.choice(NODES)
            is_up = self.state.agents[node] is model.Presence.UP
            self.state = (
                model.agent_down(self.state, CONTEXT, node)
                if is_up
                else model.agent_up(self.state, CONTEXT, node, fresh=False, now_s=0.0)
            )
        else:
            used = [link for route in self.routes.values() for path in route.paths for link in path]
            link = (
                self.rng.choice(used or LINKS) if kind == "cut" else self.rng.choice([*self.state.silent, *LINKS[:1]])
            )
            target = CONTEXT.network.links[CONTEXT.network.link_index[link]].target
            self.state = model.links_heard(self.state, CONTEXT, target, {link: kind == "heal"}, 99.0)

    def hear_of_leader(self) -> None:
        """Another controller has other paths of some flows, and those of flows that are declared with that."""
        declared = [flow for flow in self.routes if self.rng.random() < 0.3]
        other = {flow: replace(self.routes[flow], paths=self.routes[flow].paths[::-1]) for flow in declared}
        other |= {flow: replace(route, reason=None) for flow, route in other.items() if self.rng.random() < 0.2}
        self.happen("declare")
        network = self.cache.live(self.state) if self.rng.random() < 0.5 else self.live
        made = make_routes(self.state, network, dict(self.routes))
        other |= {flow: made[flow] for flow in made if flow not in self.routes}
        self.routes = patched(self.routes, other)
        self.maker.adopt(self.routes, other)


HAPPENS = ["declare"] * 4 + ["cut"] * 3 + ["leader", "leader", "remove", "heal", "heal", "agent"]
KINDS = st.lists(st.sampled_from(HAPPENS), max_size=40)


@examples(60, quick=12)
@given(seed=st.integers(0, 2**32), kinds=KINDS)
def test_routes_of_what_changed_are_those_of_all(seed: int, kinds: list[str]) -> None:
    world = World(seed)
    for kind in kinds:
        world.happen(kind)
        live = world.cache.live(world.state)
        same = live is world.live
        wanted = make_routes(world.state, live, dict(world.routes), same_network=same)
        routes = world.maker.make(world.state, live, world.routes, same_network=same)
        assert list(routes) == list(wanted) and routes == wanted
        world.live, world.routes = live, routes
