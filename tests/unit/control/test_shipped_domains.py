"""What emulated radios tell of every network that comes with HyRoads gives the domains that its file declares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from hyroads.controller.access_point.emulated import EmulatedRadio, EstimateErrors, LinkState, MediumState, Peer
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.telemetry import RadioInterface, RadioNeighbour, RadioReport
from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.carrier_sensing_rule import implied_carrier_sensing
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.state import TopologyContext
from hyroads.mininet.access_points import interfaces_of
from hyroads.mininet.factory import factory_address
from hyroads.mininet.run_directory import discovered_names, network_document

NETWORKS = sorted((Path(__file__).resolve().parents[3] / "mininet" / "networks").glob("*.yaml"))


@dataclass
class Session:
    node: str
    hello: Hello
    rtt_ms: float | None = None

    def read(self) -> int:
        return 0


def radios(network: Network, addressing: Addressing, node: str, medium: MediumState) -> list[tuple[str, EmulatedRadio]]:
    return [
        (i["technology"], EmulatedRadio(i["name"], [Peer(**p) for p in i["peers"]], EstimateErrors(), lambda: medium))  # type: ignore[arg-type, attr-defined, misc]
        for i in interfaces_of(network, addressing, node)
    ]


def row(neighbour: object) -> RadioNeighbour:
    tx, rx = (mbps / 1000 or None for mbps in (neighbour.tx_capacity_kbps, neighbour.rx_capacity_kbps))  # type: ignore[attr-defined]
    return RadioNeighbour(neighbour.mac, tx, rx, 0.0, None, neighbour.last_heard_ms)  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", NETWORKS, ids=lambda file: file.stem)
@pytest.mark.parametrize("discover", [True, False], ids=["discovered", "declared"])
def test_domains(file: Path, discover: bool) -> None:
    network = read_file(file)
    addressing = Addressing.of(network)
    links = {link.id: LinkState(link.capacity_mbps, 0, 0, 0.0) for link in network.links}
    medium = MediumState(10.0, links, dict.fromkeys(addressing.interface_name.values(), 0.0))
    document = network_document(network, addressing, measured=True, discover=discover)
    context = TopologyContext.of(parse(document, "x", measured=True))
    now_s = 100.0
    ingest = TelemetryIngest(context, lambda: now_s)
    macs = {(node, k): factory_address(addressing, node, k) for node, k in addressing.interface_mac}
    ingest.use_addresses(context.addresses.with_reported(macs))
    sessions = {node: Session(node, Hello(node, "x", node, None, 0, "radio")) for node in addressing.dpid}
    readers = {node: radios(network, addressing, node, medium) for node in sessions}
    for session in sessions.values():
        ingest.radio_up(session)
    for _ in range(40):
        now_s += 0.1
        for node, session in sessions.items():
            read = [(k, radio.read(now_s)) for k, radio in readers[node]]
            report = [
                RadioInterface(k, r.busy_us, round(now_s * 1e6), tuple(row(n) for n in r.neighbours)) for k, r in read
            ]
            ingest.radio_report(session, RadioReport(None, now_s, tuple(report)))
        ingest.take(now_s)
    heard = ingest.heard()
    inferred = heard.interference or context.network.interference
    names = discovered_names(network, document) if discover else {link.id: link.id for link in network.links}
    at = [context.network.link_index[names[link.id]] for link in network.links]
    wrong = [
        (a.id, b.id)
        for i, a in enumerate(network.links)
        for j, b in enumerate(network.links)
        if network.interference.contends(i, j) != inferred.contends(at[i], at[j])
    ]
    assert wrong == []
    assert (heard.interference is not None) is discover
    # What is heard is what the emulated medium lets each port hear; plain clients do not tell.
    told = {
        interface: nodes
        for interface, nodes in implied_carrier_sensing(network).items()
        if interface[0] in addressing.dpid
        # On a medium that is not shared nobody is in the way of others, whoever is heard.
        and interface[1] not in network.unshared
    }
    if discover:
        assert {interface: heard.hears[interface] for interface in told} == told
