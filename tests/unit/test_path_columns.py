"""What agents count on all paths, as columns: the same as counter by counter, whatever is told and whatever changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from told_meter import Heard, OneByOne, counts, totals

from hyroads.controller.core import path_columns
from hyroads.controller.core.growth import FRESH_S, Counted, Growth, GrowthColumns
from hyroads.controller.core.mappings import patched
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.path_columns import MeteredFlows, MeteredPath
from hyroads.controller.core.traffic_meter import PATHS, TrafficMeter

NETWORK = load_text(
    """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: ap}}
links:
  - {id: ab, from: a, to: b, technology: plc, capacity_mbps: 10}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 20}
  - {id: ac-wifi, from: a, to: c, technology: wifi, capacity_mbps: 20}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 20}
  - {id: ca-wifi, from: c, to: a, technology: wifi, capacity_mbps: 20}
interference: {rule: technology}
""",
    "lab",
)
LINKS = [link.id for link in NETWORK.links]
FLOWS = [f"f{number}" for number in range(6)]


class Source:
    """A counter, as an agent tells of it: at times not at all, again, too late, or after a restart."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._last = rng, Counted(rng.uniform(0, 1e4), rng.randrange(10**9), rng.randrange(10**6))

    def told(self) -> Counted | None:
        """The next reading."""
        rng, last = self._rng, self._last
        kind = rng.random()
        if kind < 0.1:
            return None
        if kind < 0.2:
            return last
        step_s = rng.choice([-0.5, 0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 2.0])
        grown, frames = rng.choice([0, rng.randrange(10**6)]), rng.choice([0, rng.randrange(1000)])
        if kind < 0.3:
            # One of both may be larger than before.
            octets, count = rng.randrange(last.payload_bytes + 10), rng.randrange(last.frames + 10)
            self._last = Counted(last.time_s + step_s, octets, count)
        else:
            self._last = Counted(last.time_s + step_s, last.payload_bytes + grown, last.frames + frames)
        return self._last


class World:
    """A meter and what is compared with it, flows that come, go and change, and their counters."""

    def __init__(self, seed: int) -> None:
        self.rng, self.now_s = random.Random(seed), 100.0
        self.meter, self.wanted = TrafficMeter(NETWORK.links), OneByOne(NETWORK.links)
        self.flows: MeteredFlows = {}
        self._sources: dict[object, Source] = {}

    def paths(self) -> tuple[MeteredPath, ...]:
        rng, found = self.rng, []
        for number in rng.sample(range(1, 4), rng.choice([1, 1, 2, 3])):
            links = tuple(rng.sample([*LINKS, "unknown"], rng.choice([0, 1, 1, 2, 3])))
            leaves = None if not links or rng.random() < 0.2 else (rng.choice("abc"), links[0])
            found.append(MeteredPath(number, links, leaves))
        return tuple(found)

    def change(self) -> None:
        """Flows are not the same any more, in one of several ways."""
        rng, kind = self.rng, self.rng.randrange(5)
        flow = rng.choice(FLOWS)
        if kind == 0:
            self.flows = patched(self.flows, {}, [flow])
        elif kind == 1:
            order = rng.sample(list(self.flows), len(self.flows))
            self.flows = {name: self.flows[name] for name in order}
        elif kind == 2 and flow in self.flows:
            # Another object that says the same, or what it says in another order.
            paths = [MeteredPath(*path) for path in self.flows[flow]]
            self.flows = patched(self.flows, {flow: tuple(rng.sample(paths, len(paths)))})
        else:
            self.flows = patched(self.flows, {flow: self.paths()})

    def told(self, *of: object) -> Counted | None:
        return self._sources.setdefault(of, Source(self.rng)).told()

    def second(self) -> None:
        rng = self.rng
        self.now_s += rng.choice([0.5, 1.0, 1.0, 1.0, 2.0, FRESH_S + 0.5])
        keys = [(flow, path.id) for flow, paths in self.flows.items() for path in paths]
        heard = {
            key: Heard(self.told(key, "sent"), self.told(key, "received"), rng.choice([None, 2.5]))
            for key in keys
            if rng.random() < 0.95
        }
        ends = {}
        for flow in self.flows:
            delivered, lost = self.told(flow), self.told(flow, "lost")
            ends[flow] = None if delivered is None or lost is None else (delivered, rng.choice([0, lost.frames]))
        self.wanted.tell(self.flows, heard, ends, self.now_s)
        told = totals(self.flows, heard, ends)
        for _ in self.meter.agents(told, self.now_s):
            pass
        assert self.meter.sent_bytes(told) == self.wanted.sent_bytes

    def compare(self) -> None:
        for now_s in (self.now_s, self.now_s + self.rng.uniform(0, 2 * FRESH_S)):
            for flow in FLOWS:
                assert self.meter.flow_reading(flow, now_s) == self.wanted.flow_reading(flow, now_s)
                for number in range(5):
                    key = flow, number
                    assert self.meter.path_reading(key, now_s) == self.wanted.path_reading(key, now_s)
            links_mbps, now = self.wanted.links_mbps(now_s), self.meter.snapshot(now_s)
            assert set(now.paths) == set(links_mbps)
            for link in LINKS:
                mbps = now.reading(link).rate_mbps
                assert mbps == (None if links_mbps.get(link) is None else pytest.approx(links_mbps[link]))
        for link in LINKS:
            carried = self.wanted.carried.get(link)
            assert self.meter.link_bytes(link) == (None if carried is None else (carried, PATHS))
        assert set(self.meter.bytes_of_links()) == self.wanted.carried.keys() & set(LINKS)


@examples(300, quick=60)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.integers(0, 4), min_size=1, max_size=25))
def test_columns_say_what_each_counter_says_by_itself(seed: int, steps: list[int]) -> None:
    world = World(seed)
    for changes in steps:
        for _ in range(max(0, changes - 1)):
            world.change()
        world.second()
        world.compare()


@examples(100, quick=20)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 5), steps=st.integers(1, 20))
def test_each_column_grows_as_its_counter_does(seed: int, width: int, steps: int) -> None:
    rng = random.Random(seed)
    sources, growths, columns = [Source(rng) for _ in range(width)], [Growth() for _ in range(width)], GrowthColumns()
    columns.arrange(np.full(width, -1))
    for now_s in range(steps):
        told = [source.told() for source in sources]
        grown = columns.add(counts(told), now_s)
        wanted = [0 if one is None else growth.add(one, now_s) for growth, one in zip(growths, told, strict=True)]
        assert grown.tolist() == wanted
        rates = [growth.rate_mbps(now_s) for growth in growths]
        assert np.isnan(columns.rates_mbps(now_s)).tolist() == [rate is None for rate in rates]
        found = [columns.grown(column, now_s) for column in range(width)]
        assert [each and each.mbps for each in found] == rates


@pytest.mark.parametrize("column", ["time_s", "payload_bytes", "frames"])
def test_a_reading_of_which_a_part_is_missing_is_not_told(column: str) -> None:
    columns = GrowthColumns()
    columns.arrange(np.full(2, -1))
    for second in range(3):
        whole = counts([Counted(second, 1000 * second, second)] * 2)
        values = np.array(getattr(whole, column))
        values[1] = np.nan
        columns.add(replace(whole, **{column: values}), second)
    assert columns.grown(0, 2.0) == (1.0, 1000.0, 1.0) and columns.grown(1, 2.0) is None


def test_readers_see_whole_seconds_while_thousands_of_flows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_columns, "_TOGETHER", 2)
    meter, before = TrafficMeter(NETWORK.links), {"f": (MeteredPath(1, ("ab",)),)}
    for second in range(3):
        heard = {("f", 1): Heard(Counted(second, 125_000 * second, second), None)}
        list(meter.agents(totals(before, heard, {}), second))
    flows = {**{f"g{number}": (MeteredPath(1, ("ac-wifi",)),) for number in range(5)}, **before}
    pieces = meter.agents(totals(flows, {}, {}), 3.0)
    assert len([meter.path_reading(("f", 1), 3.0) for _ in pieces]) == 3 + 4
    assert meter.path_reading(("f", 1), 3.0).sent_mbps == 1.0


def looked_at(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> set[str]:
    """Which flows are looked at one by one."""
    seen: set[str] = set()
    make = path_columns._Layout.of

    def of(flows: MeteredFlows, *rest: object) -> object:
        seen.update(flows)
        return make(flows, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(path_columns._Layout, "of", of)
        act()
    return seen


def test_one_flow_more_is_looked_at_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = TrafficMeter(NETWORK.links)
    flows = patched({}, {f"f{number}": (MeteredPath(1, ("ab",)),) for number in range(50)})
    list(meter.agents(totals(flows, {}, {}), 0.0))
    assert not looked_at(monkeypatch, lambda: list(meter.agents(totals(flows, {}, {}), 1.0)))
    more = patched(flows, {"new": (MeteredPath(1, ("ac-wifi", "ca-wifi")),)})
    assert looked_at(monkeypatch, lambda: list(meter.agents(totals(more, {}, {}), 2.0))) == {"new"}
