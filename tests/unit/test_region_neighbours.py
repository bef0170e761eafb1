"""Controllers of three regions in a row, without devices: what each takes from its neighbours, and what it refuses."""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.app.region_messages import RegionError
from hyroads.controller.app.regions import Regions
from hyroads.controller.control.region_rates import RegionRatesError
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import parse
from hyroads.controller.framework.ryu_shim import Signal
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, initial
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.settings.controller import load
from hyroads.controller.settings.controller import parse as parse_settings
from hyroads.controller.settings.region import RegionSettings

NAMES = ("north", "middle", "south")
ROW: dict[str, Any] = {
    "nodes": {name: {"role": "ap"} for name in ("n1", "n2", "m1", "m2", "s1", "s2")},
    "links": [
        {"id": name, "from": source, "to": target, "technology": kind, "capacity_mbps": 20, "both": True}
        for name, source, target, kind in (
            ("n", "n1", "n2", "wifi-n"), ("m", "m1", "m2", "wifi-m"), ("s", "s1", "s2", "wifi-s"),
            ("nm", "n2", "m1", "ethernet"), ("ms", "m2", "s1", "ethernet"),
        )
    ],
    "interference": {"rule": "technology"},
    "regions": {"north": ["n1", "n2"], "middle": ["m1", "m2"], "south": ["s1", "s2"]},
    "flows": [{"id": "down", "from": "n1", "to": "s2"}, {"id": "up", "from": "s2", "to": "n1"}],
}  # fmt: skip


class Controllers:
    """One for each region, that speak when :meth:`tell` is called."""

    def __init__(self, folder: Path) -> None:
        network = parse(ROW, "row")
        (folder / "network.json").write_text(json.dumps(ROW))
        settings = load({"HYROADS_NETWORK": str(folder / "network.json"), "HYROADS_CONFIG": ""})
        self.now_s = 100.0
        self.regions: dict[str, Regions] = {}
        for name in NAMES:
            context = TopologyContext.of(network, "row", region=name)
            state = initial(context, [DeclaredFlow(flow, Origin.FILE) for flow in context.network.flows])
            loop = EventLoop(
                context, settings, state, Numbers(), clock=lambda: self.now_s, events=EventLog(time.time, Signal()),
                save=lambda *_: None,
            )  # fmt: skip
            loop.saver.begin = lambda: None  # type: ignore[method-assign]
            peers = {other: (Endpoint("127.0.0.1", 1),) for other in NAMES}
            self.regions[name] = Regions(loop, RegionSettings(name, peers), Endpoint("127.0.0.1", 0), "settings")
            loop._cycle()

    def take(self, sender: str, receiver: str, document: Any) -> list[Any]:
        """What is answered."""
        there, outbox = self.regions[receiver], deque[bytes]()
        there._take(there.neighbours[sender], json.loads(json.dumps(document)), outbox)
        there.loop._cycle()
        return [json.loads(line) for line in outbox]

    def tell(self, sender: str, receiver: str) -> None:
        document = self.regions[sender].neighbours[receiver].wanted.document(None)
        self.take(sender, receiver, document)

    def flows(self, region: str) -> set[str]:
        return set(self.regions[region].loop.state.flows)

    def has_told(self, receiver: str, sender: str) -> bool:
        return self.regions[receiver].neighbours[sender].has_told

    def settle(self, region: str) -> None:
        loop = self.regions[region].loop
        loop.settled = True
        loop._cycle()


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[Controllers]:
    found = Controllers(tmp_path)
    yield found
    for regions in found.regions.values():
        regions.links.listener.close()


def test_regions_that_start_together_tell_each_other_what_they_planned_from_the_ends_of_the_tree_on(
    controllers: Controllers,
) -> None:
    # The one in the middle cannot say yet what goes through it.
    controllers.tell("middle", "north")
    assert not controllers.has_told("north", "middle") and controllers.flows("north") == {"down"}
    controllers.tell("north", "middle")
    assert controllers.flows("middle") == {"down@north"}
    controllers.tell("middle", "south")
    assert controllers.flows("south") == {"down@north@middle", "up"}
    assert controllers.has_told("south", "middle") and not controllers.has_told("middle", "south")
    controllers.tell("south", "middle")
    controllers.tell("middle", "north")
    assert all(each.has_told for regions in controllers.regions.values() for each in regions.neighbours.values())
    assert controllers.flows("middle") == {"down@north", "up@south"}
    arriving = {name: regions.loop.state.arriving for name, regions in controllers.regions.items()}
    assert {name: {node: set(of) for node, of in found.items()} for name, found in arriving.items()} == {
        "north": {"n2": {"up@south@middle"}},
        "middle": {"m1": {"down@north"}, "m2": {"up@south"}},
        "south": {"s1": {"down@north@middle"}},
    }
    # Once devices are known, the same is said for good, and nothing changes by that.
    for name in NAMES:
        controllers.settle(name)
    for sender, receiver in itertools.permutations(NAMES, 2):
        if receiver in controllers.regions[sender].neighbours:
            controllers.tell(sender, receiver)
    assert {name: regions.loop.state.arriving for name, regions in controllers.regions.items()} == arriving


def test_one_that_starts_ends_nothing_at_a_neighbour_that_runs(controllers: Controllers) -> None:
    controllers.tell("north", "middle")
    controllers.settle("middle")
    before = controllers.regions["middle"].loop.state
    empty = {"type": "starting", "seq": 0, "segments": [], "silent": [], "away": []}
    controllers.take("north", "middle", empty)
    controllers.take("north", "middle", {"type": "starting", "seq": 0})
    assert controllers.regions["middle"].loop.state is before and "down@north" in before.flows


def test_refused_rates_are_shown_and_answer_nothing_else(controllers: Controllers) -> None:
    controllers.settle("north")
    far_end = controllers.regions["north"].neighbours["middle"].far_ends["m1"]
    answers: list[Any] = []
    far_end.answer, far_end.asked_in = answers.append, 1
    with pytest.raises(RegionError, match="our rates: too many"):
        controllers.take("middle", "north", {"type": "error", "of": "rates", "seq": 9, "message": "too many"})
    assert answers == []
    controllers.take("middle", "north", {"type": "error", "of": "wanted", "seq": 9, "message": "no such node"})
    assert answers == ["no such node"]


def test_who_follows_takes_what_is_wanted_and_confirms_it_once_it_leads(controllers: Controllers) -> None:
    middle, outbox, epochs = controllers.regions["middle"], deque[bytes](), [None, 7]
    controllers.settle("middle")
    middle.epoch = lambda: epochs[0]
    north = middle.neighbours["north"]
    middle._take(north, {"type": "wanted", "seq": 1, "segments": [], "silent": [], "away": []}, outbox)
    middle.follow()
    assert north.told is not None and north.told.seq == 1 and not outbox
    epochs.reverse()
    middle.follow()
    assert [json.loads(line) for line in outbox] == [{"type": "ok", "seq": 1, "node": "m1"}]


BESIDE_HA: dict[str, Any] = {
    "etcd": ["http://127.0.0.1:2379"],
    "name": "a",
    "advertise": {"rest": "http://127.0.0.1:8080", "peer": "127.0.0.1:6655"},
}


@pytest.mark.parametrize(
    ("region", "more", "problem"),
    [
        ({"peers": {"south": []}}, {}, "region.peers.south: expected 1 to 9 different controllers"),
        ({"peers": {"south": [{"port": 7000}, {"port": 7000}]}}, {}, "expected 1 to 9 different controllers"),
        ({"peers": {"south": [{"port": 7000}, {"port": 0}]}}, {}, r"region.peers.south\[1\].port"),
        ({"peers": {"south": [{"host": "192.0.2.1"}]}}, {}, r"region.peers.south\[0\]: beyond loopback needs"),
        ({"listen": {"host": "192.0.2.1"}}, {}, "region.listen: beyond loopback needs region.tls"),
        ({}, {"ha": BESIDE_HA}, "region: with ha needs listen"),
        ({"listen": {"port": 6655}}, {"ha": BESIDE_HA}, "region: with ha needs listen"),
    ],
)
def test_settings_of_several_controllers_that_cannot_be_are_refused(region: Any, more: Any, problem: str) -> None:
    document = {"network": "n.yaml", "region": {"name": "north", **region}, **more}
    with pytest.raises(ConfigError, match=problem):
        parse_settings(document, "hyroads.yaml", {})


def test_a_region_with_several_controllers_has_keys_of_its_own_in_etcd() -> None:
    peers = {"south": [{"port": 7000}, {"port": 7100}], "east": {"port": 7200}}
    region = {"name": "north", "peers": peers, "listen": {"port": 6658}}
    found = parse_settings({"network": "n.yaml", "region": region, "ha": BESIDE_HA}, "hyroads.yaml", {})
    assert found.region is not None and found.ha is not None
    assert {name: [each.port for each in of] for name, of in found.region.peers.items()} == {
        "south": [7000, 7100], "east": [7200]
    }  # fmt: skip
    network = parse(ROW, "row")
    prefixes = [found.ha.prefix(network, "row.yaml", name) for name in (None, "north", "south")]
    assert len({prefix.rstrip("/") for prefix in prefixes}) == 3
    assert not any(one != other and one.startswith(other) for one in prefixes for other in prefixes)


SEGMENT: dict[str, Any] = {
    "node": "m1",
    "end": {"number": 20, "paths": [3], "max_hold_ms": 100, "ordered": True},
    "flow": {"id": "f", "from": "n1", "to": "s2"},
}


@pytest.mark.parametrize(
    ("flow", "problem"),
    [
        ({"id": "f", "from": "n1", "to": "n2"}, "back"),
        ({"id": "f", "from": "m1", "to": "s2"}, "comes from"),
        ({"id": "f", "from": "s1", "to": "m2"}, "comes from"),
    ],
)
def test_a_neighbour_sends_only_flows_of_its_side_on(controllers: Controllers, flow: Any, problem: str) -> None:
    document = {"type": "wanted", "seq": 1, "segments": [{**SEGMENT, "flow": flow}], "silent": [], "away": []}
    with pytest.raises(RegionError, match=problem):
        controllers.take("north", "middle", document)
    assert controllers.flows("middle") == set()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"type": "wanted"},
        {"type": "wanted", "seq": None},
        {"type": "wanted", "seq": True},
        {"type": "wanted", "seq": 10**30, "segments": [], "silent": [], "away": []},
        {"type": "wanted", "seq": -1, "segments": [], "silent": [], "away": []},
        {"type": "wanted", "seq": 1, "segments": {}, "silent": []},
        {"type": "wanted", "seq": 1, "segments": [[]], "silent": []},
        {"type": "wanted", "seq": 1, "segments": [SEGMENT] * 10_001, "silent": []},
        {"type": "wanted", "seq": 1, "segments": [], "silent": "nm"},
        {"type": "wanted", "seq": 1, "segments": [], "silent": [], "away": [7]},
        {"type": "wanted", "seq": 1, "segments": [], "silent": ["x" * 10_000]},
        {"type": "wanted", "seq": 1, "segments": [{**SEGMENT, "flow": {**SEGMENT["flow"], "id": "x" * 10_000}}]},
        {"type": "changed", "seq": 2, "since": 1, "segments": [], "gone": [], "silent": []},
        {"type": "still", "seq": 7},
        {"type": "rates", "seq": 1},
        {"type": "rates", "seq": 1, "flows": {"down": [1, 2, 3]}},
        {"type": ["wanted"], "seq": 1},
        {"type": "starting", "seq": 0, "segments": 5},
        {"type": "nonsense", "seq": 1},
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(controllers: Controllers, document: Any) -> None:
    middle = controllers.regions["middle"]
    before = middle.loop.state, middle.neighbours["north"].told
    with pytest.raises((RegionError, RegionRatesError, ConfigError)):
        controllers.take("north", "middle", document)
    assert (middle.loop.state, middle.neighbours["north"].told) == before
