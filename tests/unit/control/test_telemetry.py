"""What access points say becomes samples, busy shares and hearing; what contradicts is shown and not believed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from hyroads.controller.agents.al_devices import AlDevice, AlDevices, AlLink, HeardInterface
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.telemetry import PowerLineEnd, RadioInterface, RadioNeighbour, RadioReport
from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.closed_loop import Measurements
from hyroads.controller.core.estimate.link_estimate import Source
from hyroads.controller.core.netfile import parse
from hyroads.controller.measure.samples import InterfaceSample, NeighbourSample, NodeSample, Silence
from hyroads.controller.model.state import TopologyContext
from hyroads.rest.measurement_schemas import MeasurementsSchema

NODES = {
    "a": {"role": "gateway", "technologies": ["wifi", "plc"]},
    "b": {"role": "ap", "technologies": ["wifi", "plc"]},
    "c": {"role": "ap", "technologies": ["wifi"]},
    "m": {"role": "client", "technologies": ["wifi"], "attached_to": "b"},
}
DISCOVER = {"nodes": NODES, "links": "discover", "interference": {"rule": "hearing"}}


@dataclass
class Session:
    node: str
    hello: Hello
    rtt_ms: float | None = None
    asked: int = 0

    def read(self) -> int:
        self.asked += 1
        return self.asked


@dataclass
class Air:
    """Access points that say what they are told to have heard: (node, technology) -> {other: (tx, rx)}."""

    document: dict[str, Any] = field(default_factory=lambda: DISCOVER)
    now_s: float = 100.0
    busy_source: str = ""

    def __post_init__(self) -> None:
        self.context = TopologyContext.of(parse(self.document, "x", measured=True))
        self.ingest = TelemetryIngest(self.context, lambda: self.now_s)
        self.heard: dict[tuple[str, str], dict[str, tuple[float | None, float | None]]] = {}
        self.busy: dict[tuple[str, str], float] = {}
        self.counters: dict[tuple[str, str], tuple[int, int]] = {}
        self.sessions: dict[str, Session] = {}

    def mac(self, node: str, technology: str) -> str:
        return self.context.addressing.interface_mac[node, technology]

    def up(self, *nodes: str) -> None:
        for node in nodes:
            self.sessions[node] = Session(node, Hello(node, "x", f"boot-{node}", None, 0, "radio"))
            self.ingest.radio_up(self.sessions[node])

    def slot(self, *, silent: tuple[str, ...] = (), last_heard_ms: int = 20) -> Measurements:
        self.now_s += 0.1
        for node, session in self.sessions.items():
            if node not in silent:
                self.ingest.radio_report(
                    session, RadioReport(None, self.now_s, tuple(self._interfaces(node, last_heard_ms)))
                )
        return self.ingest.take(self.now_s)

    def _interfaces(self, node: str, last_heard_ms: int) -> Any:
        for interface, rows in self.heard.items():
            if interface[0] == node:
                busy, active = self.counters.get(interface, (0, 0))
                busy, active = busy + round(1e5 * self.busy.get(interface, 0.0)), active + 100_000
                self.counters[interface] = (busy, active)
                yield RadioInterface(
                    interface[1],
                    busy,
                    active,
                    tuple(self._row(interface[1], *row, last_heard_ms) for row in rows.items()),
                    busy_source=self.busy_source,
                )

    def _row(
        self, technology: str, other: str, rates: tuple[float | None, float | None], last_heard_ms: int
    ) -> RadioNeighbour:
        mac = self.mac(other, technology) if other in NODES else other
        return RadioNeighbour(mac, *rates, 0.0, -60, last_heard_ms)


def samples(measured: Measurements) -> dict[str, float]:
    assert all(sample.source is Source.MODULATION for sample in measured.samples)
    found = {sample.link: sample.capacity_mbps for sample in measured.samples}
    assert len(found) == len(measured.samples)
    return found


@pytest.fixture
def air() -> Air:
    air = Air()
    air.up("a", "b", "c")
    air.heard = {
        ("a", "wifi"): {"b": (15.0, 14.0)},
        ("b", "wifi"): {"a": (13.0, 15.5), "c": (30.0, 29.0), "m": (25.0, 24.0)},
        ("c", "wifi"): {"b": (31.0, 30.5)},
        ("a", "plc"): {"b": (10.0, 9.0)},
        ("b", "plc"): {"a": (9.5, 10.5)},
    }
    return air


def test_links_are_found_and_measured_at_their_sender(air: Air) -> None:
    air.slot()  # the first tables
    assert samples(air.slot()) == {
        "a-b-wifi": 15.0, "b-a-wifi": 13.0, "b-c-wifi": 30.0, "c-b-wifi": 31.0, "a-b-plc": 10.0, "b-a-plc": 9.5,
        # A plain client says nothing: what its access point receives counts.
        "b-m-wifi": 25.0, "m-b-wifi": 24.0,
    }  # fmt: skip


def test_capacities_of_a_power_line_are_found_by_the_adapters_of_access_points(air: Air) -> None:
    adapter = {"a": "00:0b:3b:aa:00:0a", "b": "00:0b:3b:aa:00:0b"}
    for _ in range(2):
        air.now_s += 0.1
        for node, other, tx_mbps in (("a", "b", 10.0), ("b", "a", 11.0)):
            # What an adapter has heard behind another one is the address of some host.
            line = PowerLineEnd(adapter[other], 0.01, (17.0, 18.0))
            row = RadioNeighbour("02:99:99:99:99:99", tx_mbps, 9.0, 0.0, None, 0, line)
            interface = RadioInterface("plc", 0, 0, (row,), "counters", adapter[node])
            air.ingest.radio_report(air.sessions[node], RadioReport(None, air.now_s, (interface,)))
        found = samples(air.ingest.take(air.now_s))
    assert found == {"a-b-plc": 10.0, "b-a-plc": 11.0}
    (radio,) = (radio for radio in air.ingest.document()["radios"] if radio["node"] == "a")
    (shown,) = (i for i in radio["interfaces"] if i["technology"] == "plc")
    (neighbour,) = shown["neighbours"]
    assert (neighbour["node"], neighbour["mac"]) == ("b", air.mac("b", "plc"))
    assert neighbour["plc"] == {"adapter": adapter["b"], "block_errors": 0.01, "slot_ble_mbps": [17.0, 18.0]}
    assert not MeasurementsSchema(only=["radios"]).validate({"radios": [radio]})


def test_no_estimate_is_no_sample_and_then_the_other_end_is_asked(air: Air) -> None:
    air.heard["a", "wifi"] = {"b": (None, 14.0)}
    air.slot()
    assert samples(air.slot())["a-b-wifi"] == 15.5  # what b receives
    air.heard["b", "wifi"]["a"] = (13.0, None)
    assert "a-b-wifi" not in samples(air.slot())


def test_what_only_one_end_hears_is_no_link_but_counts_for_interference(air: Air) -> None:
    air.heard["a", "wifi"] = {}
    for _ in range(30):
        found = samples(air.slot())
    assert not found.keys() & {"a-b-wifi", "b-a-wifi"} and "b-c-wifi" in found
    assert air.ingest.heard().hears["a", "wifi"] == {"b"}


def test_neighbours_heard_long_ago_give_no_sample(air: Air) -> None:
    air.slot()
    assert samples(air.slot(last_heard_ms=4000)) == {}


def test_domains_follow_from_who_hears_whom(air: Air) -> None:
    network = air.context.network
    before = air.ingest.heard()
    for _ in range(8):
        air.slot()
    heard = air.ingest.heard()
    assert heard is not before and heard.interference is not None
    index = network.link_index

    def contend(first: str, second: str) -> bool:
        return heard.interference.contends(index[first], index[second])

    assert contend("a-b-wifi", "b-c-wifi") and contend("a-b-plc", "b-a-plc") and not contend("a-b-wifi", "a-b-plc")
    # a and c don't hear each other, and neither end of these links hears one of the other.
    air.heard = {("a", "wifi"): {"m": (9.0, 9.0)}, ("b", "wifi"): {"c": (8.0, 8.0)}, ("c", "wifi"): {"b": (8.0, 8.0)},
                 ("a", "plc"): {}, ("b", "plc"): {}}  # fmt: skip
    for _ in range(70):
        air.slot()
    heard = air.ingest.heard()
    assert not contend("a-m-wifi", "b-c-wifi") and not contend("m-a-wifi", "c-b-wifi")
    same = air.ingest.heard()
    for _ in range(20):
        air.slot()
    assert air.ingest.heard() is same


def test_domains_wait_for_the_first_words_of_all(air: Air) -> None:
    c = air.heard.pop(("c", "wifi"))
    for _ in range(15):
        air.slot()
    assert air.ingest.heard().interference is None and not air.ingest.complete()
    for _ in range(12):
        air.slot()
    assert air.ingest.heard().interference is not None
    assert not air.ingest.complete()
    air.heard["c", "wifi"] = c
    air.slot()
    assert air.ingest.complete()


def test_busy_shares_come_from_the_counters_of_each_interface(air: Air) -> None:
    air.busy = {("a", "wifi"): 0.25, ("b", "plc"): 1.0}
    air.slot()
    busy = air.slot().busy
    assert busy == {("a", "wifi"): 0.25, ("b", "wifi"): 0, ("c", "wifi"): 0, ("a", "plc"): 0, ("b", "plc"): 1}
    air.slot(silent=("a",))
    for _ in range(10):
        air.slot()
    assert set(air.ingest.heard().observers) == set(busy)


def test_declared_rules_stay_and_declared_links_need_no_second_ear() -> None:
    declared = {
        "nodes": {name: {k: v for k, v in node.items() if k != "technologies"} for name, node in NODES.items()},
        "links": [{"id": "one-way", "from": "a", "to": "b", "technology": "wifi"},
                  {"id": "bm", "from": "b", "to": "m", "technology": "wifi", "capacity_mbps": 9},
                  {"id": "bc", "from": "b", "to": "c", "technology": "plc"}],
        "interference": {"rule": "technology"},
    }  # fmt: skip
    air = Air(declared)
    air.up("a", "b")
    air.heard = {("a", "wifi"): {}, ("b", "wifi"): {"a": (None, 12.0), "m": (20.0, None)}}
    first = air.slot()
    assert [(s.link, s.capacity_mbps) for s in first.samples if s.source is Source.CONFIGURED] == [("bm", 9)]
    assert samples(air.slot()) == {"one-way": 12.0, "bm": 20.0}
    for _ in range(30):
        air.slot()
    heard = air.ingest.heard()
    # All contend, so all hear all who send.
    assert heard.interference is None and heard.observers
    assert heard.hears is not None and heard.hears["a", "wifi"] == {"b"}


FACTORY, ADAPTER = "b8:27:eb:41:c0:a1", "00:0b:3b:00:00:02"


def test_neighbour_tables_are_read_with_the_addresses_that_boxes_report(air: Air) -> None:
    air.heard["a", "wifi"] = {FACTORY: (15.0, 14.0)}
    air.slot()
    assert "a-b-wifi" not in samples(air.slot())
    air.ingest.use_addresses(air.context.addresses.with_reported({("b", "wifi"): FACTORY}))
    assert samples(air.slot())["a-b-wifi"] == 15.0
    shown = neighbours_of(air, "a", "wifi")
    assert [(row["node"], row["guess"]) for row in shown] == [("b", None)]
    for _ in range(40):
        air.slot()
    assert air.ingest._sensing.hears(("a", "wifi")) == {"b"}
    # Another box has it now, and this one is heard no more.
    air.ingest.use_addresses(air.context.addresses.with_reported({("c", "wifi"): FACTORY}))
    assert "a-b-wifi" not in samples(air.slot())
    assert [row["node"] for row in neighbours_of(air, "a", "wifi")] == ["c"]


def test_adapter_of_an_interface_with_a_factory_address_is_found(air: Air) -> None:
    line = PowerLineEnd(ADAPTER, None, ())
    air.ingest.use_addresses(air.context.addresses.with_reported({("b", "plc"): FACTORY}))

    def slot(*claimants: str) -> dict[str, float]:
        air.now_s += 0.1
        heard = {
            "a": RadioNeighbour("02:99:99:99:99:99", 12.0, None, 0.0, None, 0, line),
            "b": RadioNeighbour(air.mac("a", "plc"), 9.0, None, 0.0, None, 0),
        }
        for node, row in heard.items():
            plc = RadioInterface("plc", 0, 0, (row,), "none", ADAPTER if node in claimants else "")
            air.ingest.radio_report(air.sessions[node], RadioReport(None, air.now_s, (plc,)))
        return samples(air.ingest.take(air.now_s))

    slot()
    assert "a-b-plc" not in slot()
    slot("b")
    assert slot("b")["a-b-plc"] == 12.0
    assert [(row["node"], row["mac"]) for row in neighbours_of(air, "a", "plc")] == [("b", FACTORY)]


def test_busy_time_of_other_owners_counts_only_where_none_is_measured(air: Air) -> None:
    name, mac = air.context.addressing.interface_name["a", "plc"], "00:00:00:00:00:98"
    link = AlLink(mac, "42:00:00:00:00:01", "00:00:00:00:00:01", 0x0201, 90.0, 0.6)
    device = AlDevice("42:00:00:00:00:99", (HeardInterface(name, mac),), (link,))

    def say() -> None:
        air.ingest.radio_devices(air.sessions["a"], AlDevices("42:00:00:00:00:01", (device,)))

    say()
    air.busy["a", "plc"] = 0.2
    for _ in range(3):
        measured = air.slot()
    assert measured.busy["a", "plc"] == pytest.approx(0.2)
    # The adapter is not read any more.
    rows = air.heard.pop(("a", "plc"))
    for _ in range(40):
        measured = air.slot()
    assert measured.busy["a", "plc"] == pytest.approx(0.6)
    air.ingest.radio_devices(air.sessions["a"], AlDevices("42:00:00:00:00:01", ()))
    assert ("a", "plc") not in air.slot().busy
    # A device of another owner can say neither less nor more than what is measured; counters miss its traffic.
    air.heard["a", "plc"] = rows
    say()
    for source, busy in (("sniffer", 0.2), ("counters", 0.6), ("", 0.2)):
        air.busy_source = source
        for _ in range(3):
            measured = air.slot()
        assert measured.busy["a", "plc"] == pytest.approx(busy)


def neighbours_of(air: Air, node: str, technology: str) -> list[dict[str, Any]]:
    (radio,) = (each for each in air.ingest.document()["radios"] if each["node"] == node)
    (interface,) = (each for each in radio["interfaces"] if each["technology"] == technology)
    found: list[dict[str, Any]] = interface["neighbours"]
    return found


def test_strangers_are_shown(air: Air) -> None:
    air.heard["c", "wifi"]["02:99:00:00:00:01"] = (50.0, 50.0)
    air.slot()
    assert len(samples(air.slot())) == 8
    document = {entry["node"]: entry for entry in air.ingest.document()["radios"]}
    assert document["c"]["flags"] == ["unknown-neighbour"] and document["a"]["flags"] == []
    rows = document["c"]["interfaces"][0]["neighbours"]
    assert {row["node"] for row in rows} == {"b", None}


def polled(air: Air, node: str, technology: str, rates: dict[str, float], flags: tuple[str, ...] = ()) -> NodeSample:
    rows = tuple(NeighbourSample(air.mac(o, technology), o, r, r, 0.0, -50, 10, "HT") for o, r in rates.items())
    interface = InterfaceSample(1, "x", technology, "m", True, 0.4, 1.0, 1.0, 1.0, 6.0, rows)
    return NodeSample(node, node, air.now_s, air.now_s, (interface,), flags)


def test_snmp_takes_over_when_the_channel_is_silent(air: Air) -> None:
    for _ in range(3):
        air.slot()
    air.ingest.snmp_event(polled(air, "a", "wifi", {"b": 16.0}))
    assert samples(air.slot())["a-b-wifi"] == 15.0
    for _ in range(15):
        air.slot(silent=("a",))
    assert "silent" in air.ingest.radios.flags("a", air.now_s)
    air.ingest.snmp_event(polled(air, "a", "wifi", {"b": 16.0}))
    measured = air.slot(silent=("a",))
    assert samples(measured)["a-b-wifi"] == 16.0 and measured.busy["a", "wifi"] == 0.4
    entry = next(e for e in air.ingest.document()["radios"] if e["node"] == "a")
    assert next(i for i in entry["interfaces"] if i["technology"] == "wifi")["via"] == "snmp"
    others: dict[str, Any] = {name: [] for name in ("flows", "links", "agents", "interfaces", "slices")}
    assert MeasurementsSchema().validate({"time_s": 1.0, **others, **air.ingest.document()}) == {}
    air.ingest.snmp_event(polled(air, "a", "wifi", {"b": 16.0}, ("frozen",)))
    assert "a-b-wifi" not in samples(air.slot(silent=("a",)))


def test_two_that_disagree_for_long_are_shown_and_the_smaller_counts(air: Air) -> None:
    for count in range(4):
        for _ in range(10):
            found = samples(air.slot())
        assert found["a-b-wifi"] == (15.0 if count < 3 else 5.0)
        air.ingest.snmp_event(polled(air, "a", "wifi", {"b": 5.0}))
    flags = {entry["node"]: entry["flags"] for entry in air.ingest.document()["radios"]}
    assert flags["a"] == ["disagrees-with-snmp"] and flags["b"] == []
    air.ingest.snmp_event(polled(air, "a", "wifi", {"b": 14.0}))
    for _ in range(40):
        found = samples(air.slot())
    assert found["a-b-wifi"] == 15.0


def test_a_silent_target_is_shown_until_it_answers(air: Air) -> None:
    air.ingest.snmp_event(polled(air, "a", "wifi", {}))
    air.ingest.snmp_event(Silence("a", air.now_s, 3, 8.0, "no answer"))
    (target,) = air.ingest.document()["snmp"]
    assert (target["up"], target["failures"], target["reason"]) == (False, 3, "no answer")
    air.ingest.snmp_event(replace(polled(air, "a", "wifi", {}), flags=("restarted",)))
    (target,) = air.ingest.document()["snmp"]
    assert target["up"] and target["flags"] == ["restarted"]


def test_a_reading_can_be_asked_for(air: Air) -> None:
    assert air.ingest.read_now("a") == 1 and air.sessions["a"].asked == 1
    air.ingest.radio_down(air.sessions["a"])
    assert air.ingest.read_now("a") is None and air.ingest.read_now("m") is None
