"""A controller without sockets for handovers: state, plans, update ordering, agents that do at once what they are
told.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from instant_saver import instant_saver
from planning import NO_REPORTS, live_of

from hyroads.controller.agents.configs import AgentConfig
from hyroads.controller.agents.markers import PathMarkers, SequenceMarkers
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.app.wiring import RestoredState, ready
from hyroads.controller.control.flow_order import SwitchView, Views, pending_of
from hyroads.controller.control.update_order import orders_of
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.controller.files.state import text_of
from hyroads.controller.model.handover import Constrained, Key
from hyroads.controller.model.plan import MULTIPATH, Options, hello_configs
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    TopologyContext,
    agent_up,
    constrained,
    initial,
    links_heard,
)
from hyroads.controller.runtime.address_book import AddressBook
from hyroads.controller.runtime.agent_deployer import AgentDeployer
from hyroads.controller.runtime.persistence import FORMAT, Encoder, decode, to_save
from hyroads.controller.services.mobility.handovers import HandoverService
from hyroads.controller.services.mobility.ncasts import NCastService
from hyroads.controller.services.mptcp_saved import SavedConnections

ROAMING = Path(__file__).resolve().parents[2] / "mininet" / "networks" / "roaming.yaml"


class Agent:
    """What ``hyroads-edge`` runs, from what it was told; numbers are given as it gives them."""

    def __init__(self, node: str, rig: Rig) -> None:
        self.node, self._rig = node, rig
        self.hello = Hello(node, "x", node, None, 0)
        self.closed = False
        self.ingress: dict[int, dict[str, Any]] = {}
        self.egress: dict[int, dict[str, Any]] = {}
        self.deaf = False

    def request(self, document: Mapping[str, Any] | str, answer: Any) -> None:
        document = json.loads(document) if isinstance(document, str) else document
        document = json.loads(json.dumps(document))
        if self.deaf:
            return
        before = {number: self.sending(number) for number in self.ingress}
        if document["type"] == "config":
            self.hello = replace(self.hello, revision=document["revision"])
            self.ingress = {flow["number"]: flow for flow in document["ingress"]}
            self.egress = {flow["number"]: flow for flow in document["egress"]}
        else:
            for number, rates in document["rates"].items():
                for path in self.ingress[int(number)]["paths"]:
                    path["rate_mbps"] = rates.get(str(path["id"]), path["rate_mbps"])
        first = {}
        for number in self.ingress:
            self._rig.sent.setdefault(number, 1000)
            if before.get(number) != self.sending(number):
                first[number] = self._rig.sent[number]
        self._rig.told.append((self.node, document["type"]))
        self._rig.check()
        if first:
            self._rig.markers.first_numbers(self.node, first)
        answer(None)

    def sending(self, number: int) -> tuple[frozenset[int], bool]:
        flow = self.ingress[number]
        return frozenset(p["id"] for p in flow["paths"] if p["rate_mbps"]), "split" in flow


class NoPlainClients:
    """A network whose clients all have agents."""

    def places(self, client: str) -> tuple[()]:
        return ()

    def refusal(self, client: str) -> None:
        return None


class Rig:
    """See the module. ``step`` brings what is wanted into force; time is the test's. ``after``: this is the next
    controller on the agents of that one, with what it left in the state file.
    """

    def __init__(
        self,
        *,
        before: Mapping[Key, Constrained] | None = None,
        after: Rig | None = None,
        network: Network | None = None,
    ) -> None:
        self.context = TopologyContext.of(network or read_file(ROAMING))
        self.addresses = AddressBook(self.context.addresses)
        self.now_s = 100.0
        self.unsaved = 0
        self.leads = True
        self.saver = instant_saver(clock=lambda: self.now_s)[0]
        self.told: list[tuple[str, str]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.sent: dict[int, int] = {} if after is None else after.sent
        self.markers = SequenceMarkers()
        self.counters: Counter[str] = Counter()
        self.deployer = AgentDeployer(lambda: self.now_s, self.counters, self._fault, lambda: None)
        restored = self._restored(after, before)
        self.state = initial(self.context, restored.flows, restored.constrained)
        self.live = live_of(self.context, restored.numbers)
        nodes = sorted(self.context.addressing.agents)
        self.agents = {node: Agent(node, self) for node in nodes} if after is None else after.agents
        for node, agent in self.agents.items():
            agent._rig = self
            self.state = agent_up(self.state, self.context, node, fresh=False, now_s=0.0)
            hello = AgentConfig(hello_configs(self.context, Options())[node])
            if after is None:
                agent.hello = replace(agent.hello, revision=hello.revision)
            self.deployer.joined(agent, hello if after is None else None)  # type: ignore[arg-type]
        self.service = HandoverService(self, self._publish, lambda: self.now_s, lambda: 0.0, plain=NoPlainClients())
        self.ncasts = NCastService(self, self._publish, lambda: self.now_s)
        self.ncasts.restore(restored.ncasts)
        self.plan = self.live.replan(self.state, NO_REPORTS, self.now_s)
        self.step()

    def _restored(self, after: Rig | None, before: Mapping[Key, Constrained] | None) -> RestoredState:
        network = self.context.network
        flows = [DeclaredFlow(flow, Origin.FILE) for flow in network.flows]
        if after is None:
            return RestoredState(flows, Numbers(), before or {}, {}, [], [], {})
        services = {"ncasts": after.ncasts.to_save()}
        declared = after.state.flows.values()
        state = to_save(network, declared, after.live.numbers, after.state.constrained, services)
        text = text_of(FORMAT, Encoder().encode(state))
        saved, _ = decode(json.loads(text), "state file", network)
        restored, problems = ready(saved, self.context, SavedConnections(0))
        assert not problems
        return restored

    def _fault(self, where: str, what: str) -> None:
        raise AssertionError(f"{where}: {what}")

    def _publish(self, kind: str, document: Mapping[str, Any]) -> None:
        self.events.append((kind, json.loads(json.dumps(document))))

    # -- what happens

    def step(self) -> None:
        """Until nothing changes any more."""
        for _ in range(30):
            before = len(self.told), self.state.version
            if self.plan.version != self.state.version:
                self.plan = self.live.replan(self.state, NO_REPORTS, self.now_s)
            self.plan = self.live.improve(NO_REPORTS, self.now_s) or self.plan
            self.deployer.push(self.plan, orders_of(self.plan, self.views()))
            self.service.advance()
            self.ncasts.advance()
            if before == (len(self.told), self.state.version):
                return
        raise AssertionError("it does not come to rest")

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.step()

    def link(self, link: str, up: bool) -> None:
        """Both directions of a link come or go."""
        network = self.context.network
        for name in (link, link + "~"):
            target = network.links[network.link_index[name]].target
            self.state = links_heard(self.state, self.context, target, {name: up}, self.now_s)
        self.step()

    def arrive(self, flow: str, *links: str, arrived: bool = True) -> None:
        """All that was sent has come by the paths over these links; the receiver tells of it."""
        plan = self.plan.flows[flow]
        self.sent[plan.number] += 10
        number = self.sent[plan.number]
        used = [path for path in plan.paths if set(links) & set(path.links)]
        paths = tuple(PathMarkers(path.id, number, number if arrived else None, paused=False) for path in used)
        self.markers.paths_passed(plan.egress, plan.number, paths)
        self.step()

    # -- what is so

    def check(self) -> None:
        """Nobody sends by a path that the receiver does not know."""
        for agent in self.agents.values():
            for number, flow in agent.ingress.items():
                receiver = next((a for a in self.agents.values() if number in a.egress), None)
                used = {path["id"] for path in flow["paths"]}
                assert receiver is not None and used <= set(receiver.egress[number]["paths"])

    def carry(self, flow: str) -> set[str]:
        """The last or first hops by which a flow's sender sends, from what its agent runs."""
        plan = self.plan.flows[flow]
        number = plan.number
        using, _ = self.agents[plan.ingress or ""].sending(number)
        names = {path.id: path.links[-1] if plan.spec.target == "c" else path.links[0] for path in plan.paths}
        return {names[path].removesuffix("~") for path in using}

    def receiver(self, flow: str) -> dict[str, Any]:
        plan = self.plan.flows[flow]
        return self.agents[plan.egress or ""].egress[plan.number]

    def configured(self, flow: str) -> set[str]:
        """The last or first hops of all paths that a flow's receiver is configured for."""
        plan = self.plan.flows[flow]
        names = {path.id: path.links[-1] if plan.spec.target == "c" else path.links[0] for path in plan.known}
        return {names[path].removesuffix("~") for path in self.receiver(flow)["paths"]}

    def views(self) -> Views:
        switches = {
            node: SwitchView(ready=True, confirmed=frozenset(self.plan.flows), possible=frozenset(self.plan.flows))
            for node in self.context.addressing.dpid
        }
        return Views(self.deployer.views(), switches)

    # -- services.port.ControllerPort

    def clock(self) -> float:
        return self.now_s

    @property
    def progress(self) -> Rig:
        return self

    def confinements(self):
        return self.state.constrained

    def constrain(self, changes: Mapping[Key, Constrained | None]) -> None:
        self.state = constrained(self.state, changes)
        self.plan = self.live.replan(self.state, NO_REPORTS, self.now_s)

    def carries(self, flows: Iterable[str]) -> bool:
        return all(self.deployer.carries(self.plan.flows[flow]) for flow in flows)

    def carried_out(self, flows: Iterable[str]) -> bool:
        plans = [self.plan.flows[flow] for flow in flows]
        waiting = any(pending_of(self.plan, self.views(), plan.spec.id) for plan in plans)
        return not waiting and all(plan.mode != MULTIPATH or self.deployer.carries(plan) for plan in plans)

    def unconfirmed(self, flows: Iterable[str], *, at: Iterable[str] = ()) -> list[str]:
        return sorted({who for flow in flows for who in pending_of(self.plan, self.views(), flow)})

    def note_unsaved(self) -> None:
        self.unsaved += 1

    def wait(self, timeout_s: float) -> None:
        self.after(timeout_s)
        self.saver.once()
