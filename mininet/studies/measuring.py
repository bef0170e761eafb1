"""What live studies do on a network: flows on fixed paths, load, what arrives, and sources without control."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyroads.controller.core.network import Link, Traffic
from hyroads.controller.study.framework import Settings
from hyroads.mininet.control_sockets import EdgeClient
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.programs import EmulationError, run, wait_until
from hyroads.mininet.udp_load import PAYLOAD_BYTES, UdpLoad

from .floor import Pair, Paths

FLOW = "f"
ANY = Traffic.ANY.value
IPV4 = 0x0800
MARGIN = 0.05
OVERLOAD = 1.3
IP_SHARE = (PAYLOAD_BYTES + 28) / (PAYLOAD_BYTES + 28 + 14 + 12 + 8)
"""IP bytes of a byte of L2 payload: a frame has an Ethernet header, two labels and a shim besides."""
LEAST = 0.9
"""Less of what theory says makes a row doubtful: it counts only if the machine was fast enough to be believed."""
# So much faster than the media that nothing is held back; what matters is the proportion.
UNPACED = 1000.0
_READY_WITHIN_S = 15.0
_CHECK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Times:
    """How long a live study measures, and how long it waits before that, in seconds."""

    measure_s: float
    settle_s: float

    def __str__(self) -> str:
        return f"{self.measure_s:g} s after {self.settle_s:g} s"


def times_of(settings: Settings, whole: Times, quick: Times) -> Times:
    """Those of a run."""
    return quick if settings.quick else whole


def received_bytes(emulation: Emulation, node: str) -> int:
    """IP bytes that the host of a node has received so far, from its kernel."""
    lines = Path(f"/proc/{emulation.node(node).pid}/net/netstat").read_text(encoding="ascii").splitlines()
    names, values = (line.split() for line in lines if line.startswith("IpExt:"))
    return int(values[names.index("InOctets")])


def pause(emulation: Emulation, seconds: float) -> None:
    """Lets traffic run; EmulationError if the network breaks meanwhile."""
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, _CHECK_EVERY_S))
        emulation.check()


def arriving_mbps(emulation: Emulation, node: str, seconds: float) -> float:
    """What the host of a node receives from now on for a time: Mb/s of IP packets."""
    began_s, before = time.monotonic(), received_bytes(emulation, node)
    pause(emulation, seconds)
    return (received_bytes(emulation, node) - before) * 8e-6 / (time.monotonic() - began_s)


def declare(emulation: Emulation, pair: Pair, paths: Paths, name: str = FLOW, traffic: str = ANY, **more: Any) -> None:
    """A flow on these paths (without any: on those that the planner chooses); in force when this returns. ``more`` as
    for ``Client.declare_flow``.
    """
    fixed: dict[str, Any] = {"paths": [list(path) for path in paths]} if paths else {}
    emulation.rest.declare_flow(name, pair[0], pair[1], traffic=traffic, **fixed, **more)
    in_force(emulation, name)


@contextmanager
def declared(
    emulation: Emulation, pair: Pair, paths: Paths, name: str = FLOW, traffic: str = ANY, **more: Any
) -> Iterator[None]:
    """:func:`declare`, while this is entered."""
    declare(emulation, pair, paths, name, traffic, **more)
    yield
    emulation.rest.remove_flow(name)


def in_force(emulation: Emulation, name: str = FLOW) -> None:
    """Waits until a flow's packets take its multipath."""
    wait_until(
        f"multipath of flow {name}",
        lambda: bool(emulation.rest.flow(name)["state"] == "multipath"),
        _READY_WITHIN_S,
        interval_s=0.05,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """UDP from one node's host to another's, for the flow ``FLOW``."""

    emulation: Emulation
    udp: UdpLoad
    pair: Pair

    def carried_mbps(self, paths: Paths, offer_mbps: float, times: Times) -> float:
        """What a flow on these paths carries of an offer, in Mb/s of IP packets."""
        with declared(self.emulation, self.pair, paths):
            self.udp.set_rate(FLOW, offer_mbps)
            pause(self.emulation, times.settle_s)
            found = arriving_mbps(self.emulation, self.pair[1], times.measure_s)
            self.udp.set_rate(FLOW, 0.0)
        return found

    def best_of_steps_mbps(self, offers_mbps: Sequence[float], each_s: float) -> float:
        """The most that arrives while the offer is raised step by step, in Mb/s of IP packets."""
        most = 0.0
        for offer_mbps in offers_mbps:
            self.udp.set_rate(FLOW, offer_mbps)
            most = max(most, arriving_mbps(self.emulation, self.pair[1], each_s))
        self.udp.set_rate(FLOW, 0.0)
        return most


def without_control(emulation: Emulation, flows: Sequence[str]) -> None:
    """The controller goes, and with it every limit; flows keep their paths, and split by what each carries alone."""
    links = {link.id: link for link in emulation.network.links}
    described = [emulation.rest.flow(name) for name in flows]
    emulation.controller.stop()
    for flow in described:
        rates = {
            str(path["id"]): UNPACED * alone_mbps(emulation, [links[link] for link in path["links"]])
            for path in flow["multipath"]
        }
        with EdgeClient(emulation.directory / f"edge-{flow['ingress']}.sock") as agent:
            agent.request({"type": "rates", "rates": {str(flow["number"]): rates}, "fill": {}})


def alone_mbps(emulation: Emulation, path: Sequence[Link]) -> float:
    """What a path carries alone: the airtime of all its links that a domain holds fits into it."""
    network = emulation.network
    index = {network.link_index[link.id]: link for link in path}
    domains = ({number, *network.interference.domain(number).tolist()} for number in index)
    return 1 / max(sum(1 / index[other].capacity_mbps for other in domain & index.keys()) for domain in domains)


def forget_metrics(emulation: Emulation) -> None:
    """What one connection of TCP learns about a path does not shape the next."""
    for node in emulation.network.nodes:
        run(*emulation.inside(node), "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")


def set_margins(emulation: Emulation, margin: float, tcp_margin: float) -> None:
    """Other shares of airtime to leave free, by the settings file and ``POST /reload``."""
    path = emulation.directory / "controller.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "margin": margin, "tcp_margin": tcp_margin}), encoding="utf-8")
    emulation.rest.reload()


def path_bytes(emulation: Emulation, flow: str) -> dict[str, int]:
    """L2 payload that the last agent of a flow has received so far by each of its paths, named by its links."""
    described = emulation.rest.flow(flow)
    names = {path["id"]: "+".join(path["links"]) for path in described["multipath"]}
    if described["egress"] is None:
        raise EmulationError(f"flow {flow} has no last agent: it is {described['state']}")
    return {
        names[path["id"]]: path["received_bytes"]
        for each in emulation.agent_report(described["egress"])["egress"]
        if each["number"] == described["number"]
        for path in each["paths"]
        if path["id"] in names
    }
