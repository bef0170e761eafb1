"""Demo ``mptcp``: one TCP over the labelled multipath beside the kernel's MPTCP over the same two paths.

The network is that of the demo ``triangle``. MPTCP has two subflows, which differ in the port of the target; the
controller is told of two flows that match these ports, each fixed to one of the two paths that the planner chooses for
the multipath. The two kinds of traffic take turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import mean

from hyroads.controller.core.interface_graph import link_ids
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.planner import Planner
from hyroads.mininet.mptcp_stack import NO_MPTCP, PATH_MANAGER
from hyroads.mininet.mptcp_traffic import Hosts
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.stack_traffic import MPTCP, Transfer

from .checks import Check
from .triangle import TCP_AT_LEAST, await_multipath, udp_beside
from .verdict import Stage

NETWORK = "triangle"
PORTS = (7000, 7001)
IPV4 = 0x0800
ROUNDS = 2
START_S = 1.0
OURS, KERNELS = "TCP over the labelled multipath", "the kernel's MPTCP over the same paths"


def run(stage: Stage) -> None:
    """In turns: MPTCP, then one TCP."""
    if not PATH_MANAGER.exists():
        raise EmulationError(NO_MPTCP)
    flow = stage.declared.flows[0]
    hosts = Hosts(stage.emulation, flow.source, flow.target)
    plan = Planner(stage.declared, clients_relay=False).plan(flow.source, flow.target).multipath
    paths = [link_ids(stage.declared, path) for path in plan.links]
    measured: dict[str, list[float]] = {OURS: [], KERNELS: []}
    hosts.announce(PORTS[1])
    began_s = time.monotonic()
    for turn in range(1, ROUNDS + 1):
        stage.view.phase(f"{KERNELS}, turn {turn}")
        with _flows_of(stage, flow, paths):
            measured[KERNELS].append(_goodput(stage, hosts, MPTCP))
        stage.view.phase(f"{OURS}, turn {turn}")
        with _flows_of(stage, flow, []):
            await_multipath(stage, flow.id)
            measured[OURS].append(_goodput(stage, hosts, 0))
    judge(stage, flow, plan.total_mbps, mean(measured[OURS]), (began_s, time.monotonic()))
    stage.check(KERNELS, plan.total_mbps, mean(measured[KERNELS]))
    stage.check("labelled multipath beside MPTCP", 1.0, mean(measured[OURS]) / mean(measured[KERNELS]), "ratio", 1.0)


def judge(stage: Stage, flow: FlowSpec, total_mbps: float, mbps: float, during: tuple[float, float]) -> None:
    """TCP over the labelled multipath beside what the multipath carries of L2 payload."""
    planner = Planner(stage.declared, clients_relay=False)
    allocated = planner.plan(flow.source, flow.target, margin=stage.emulation.margin()).multipath.total_mbps

    def udp() -> Check:
        with _flows_of(stage, flow, []):
            await_multipath(stage, flow.id)
            return udp_beside(stage, OURS, allocated)()

    check = Check(OURS, total_mbps, mbps, at_least=TCP_AT_LEAST, at_most=1.0, during=during, adapts=True)
    stage.check_tcp(check, udp)


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


def _goodput(stage: Stage, hosts: Hosts, protocol: int) -> float:
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
