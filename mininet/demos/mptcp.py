"""Demo ``mptcp``: one TCP over the labelled multipath beside the kernel's MPTCP over the same two paths.

The network is that of the demo ``triangle``. MPTCP has two subflows, which differ in the port of the target; the
controller is told of two flows that match these ports, each fixed to one of the two paths that the planner chooses for
the multipath. The two kinds of traffic take turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import mean

from hyroads.controller.core.interface_graph import link_ids
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.planner import Planner
from hyroads.mininet import programs
from hyroads.mininet.mptcp_stack import NO_MPTCP, PATH_MANAGER
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.stack_traffic import MPTCP, Transfer

from .triangle import await_multipath
from .verdict import Stage

NETWORK = "triangle"
PORTS = (7000, 7001)
IPV4 = 0x0800
ROUNDS = 2
START_S = 1.0
OURS, KERNELS = "TCP over the labelled multipath", "the kernel's MPTCP over the same paths"


@dataclass(frozen=True)
class _Hosts:
    """Two hosts of the emulation, by the names that traffic gives them."""

    stage: Stage
    source: str
    target: str

    def namespace(self, role: str) -> str:
        emulation = self.stage.emulation
        return f"/proc/{emulation.node(self.source if role == 'client' else self.target).pid}/ns/net"

    def address(self, role: str, version: int) -> str:
        assert (role, version) == ("server", 4)  # noqa: S101 - there are no others
        return self.stage.emulation.addressing.host_ip[self.target]


def run(stage: Stage) -> None:
    """In turns: MPTCP, then one TCP."""
    if not PATH_MANAGER.exists():
        raise EmulationError(NO_MPTCP)
    flow = stage.declared.flows[0]
    hosts = _Hosts(stage, flow.source, flow.target)
    plan = Planner(stage.declared, clients_relay=False).plan(flow.source, flow.target).multipath
    paths = [link_ids(stage.declared, path) for path in plan.links]
    measured: dict[str, list[float]] = {OURS: [], KERNELS: []}
    _allow_subflows(stage, flow)
    for turn in range(1, ROUNDS + 1):
        stage.view.phase(f"{KERNELS}, turn {turn}")
        with _flows_of(stage, flow, paths):
            measured[KERNELS].append(_goodput(stage, hosts, MPTCP))
        stage.view.phase(f"{OURS}, turn {turn}")
        with _flows_of(stage, flow, []):
            await_multipath(stage, flow.id)
            measured[OURS].append(_goodput(stage, hosts, 0))
    for what, found in measured.items():
        stage.check(what, plan.total_mbps, mean(found))
    stage.check("labelled multipath beside MPTCP", 1.0, mean(measured[OURS]) / mean(measured[KERNELS]), "ratio", 1.0)


def _allow_subflows(stage: Stage, flow: FlowSpec) -> None:
    """The target announces its second port; the kernel's own path manager of the source joins there."""
    address = stage.emulation.addressing.host_ip[flow.target]
    for node in (flow.source, flow.target):
        limits = ("ip", "mptcp", "limits", "set", "subflows", "2", "add_addr_accepted", "2")
        programs.run(*stage.emulation.inside(node), *limits)
    second = ("ip", "mptcp", "endpoint", "add", address, "port", str(PORTS[1]), "signal")
    programs.run(*stage.emulation.inside(flow.target), *second)


@contextmanager
def _flows_of(stage: Stage, flow: FlowSpec, paths: list[list[str]]) -> Iterator[None]:
    """While this is entered: a flow for each of these paths, with a port of its own; without any, one for them all."""
    flows = [replace(flow, id=f"{flow.id}-{port}") for port, _ in zip(PORTS, paths, strict=False)] or [flow]
    for number, each in enumerate(flows):
        fixed = {"paths": [paths[number]], "match": {"eth_type": IPV4, "tcp_dst": PORTS[number]}} if paths else {}
        stage.declare(each, **fixed)
    yield
    for each in flows:
        stage.emulation.rest.remove_flow(each.id)


def _goodput(stage: Stage, hosts: _Hosts, protocol: int) -> float:
    """Mb/s that arrive after the start."""
    with Transfer(hosts, port=PORTS[0], protocol=protocol) as transfer:
        stage.pause(START_S)
        from_s = time.monotonic()
        stage.pause(stage.hold_s)
        mbps = transfer.mbps(from_s, time.monotonic())
        transfer.finish()
    if not transfer.exact:
        raise EmulationError("bytes were lost or changed")
    return mbps
