"""Power-line adapters name each other, not the access points behind them."""

from __future__ import annotations

from hyroads.controller.agents.telemetry import PowerLineEnd, RadioInterface, RadioNeighbour
from hyroads.controller.control.adapters import Adapters

ADAPTER = {"a": "00:0b:3b:aa:00:0a", "b": "00:0b:3b:aa:00:0b"}
STRANGE = "02:99:99:99:99:99"


def reading(node: str, other: str, behind: str, tx_mbps: float = 10.0) -> RadioInterface:
    line = PowerLineEnd(ADAPTER[other], 0.01, (17.0, 18.0))
    row = RadioNeighbour(behind, tx_mbps, 9.0, 0.0, None, 0, line)
    return RadioInterface("plc", 0, 0, (row,), "counters", ADAPTER[node])


def test_neighbour_without_an_access_point_keeps_its_address() -> None:
    adapters = Adapters({("a", "plc"): "02:00:00:00:00:0a", ("b", "wifi"): "02:00:00:00:00:0b"})
    wanted = reading("a", "b", STRANGE)
    assert adapters.resolved("a", wanted) == wanted
    # An adapter of another technology's interface is another line.
    adapters.resolved("b", reading("b", "a", STRANGE)._replace(technology="wifi"))
    assert adapters.resolved("a", wanted).neighbours[0].mac == STRANGE


def test_same_rows_stay_the_same_object_until_an_adapter_moves() -> None:
    interfaces = {("a", "plc"): "02:00:00:00:00:0a", ("b", "plc"): "02:00:00:00:00:0b"}
    adapters = Adapters(interfaces)
    adapters.resolved("b", reading("b", "a", STRANGE))
    sent = reading("a", "b", STRANGE)
    first = adapters.resolved("a", sent)
    assert first.neighbours[0].mac == interfaces["b", "plc"]
    assert adapters.resolved("a", sent).neighbours is first.neighbours
    adapters.resolved("b", reading("b", "a", STRANGE)._replace(adapter="00:0b:3b:aa:00:0c"))
    assert adapters.resolved("a", sent).neighbours[0].mac == STRANGE


def test_adapter_that_two_nodes_claim_is_neither_node_s() -> None:
    interfaces = {(node, "plc"): f"02:00:00:00:00:0{node}" for node in "abc"}
    adapters = Adapters(interfaces)
    told = reading("a", "b", STRANGE)
    adapters.resolved("b", reading("b", "a", STRANGE))
    assert adapters.resolved("a", told).neighbours[0].mac == interfaces["b", "plc"]
    adapters.resolved("c", reading("b", "a", STRANGE))
    assert adapters.resolved("a", told).neighbours[0].mac == STRANGE
