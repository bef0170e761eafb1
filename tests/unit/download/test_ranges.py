"""Which interface asks for which bytes: laws that hold whatever rates, delays and outages there are."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.fair.maxmin import Flow, Shares, allocate
from hyroads.controller.download.intervals import Intervals
from hyroads.controller.download.ranges import LEAST_BYTES, MOST_BYTES, Piece, RangeScheduler

STEP_S = 0.005
ABANDON_S = 1.5


@dataclass
class Link:
    """An interface with two connections that share its rate; ``dead`` are times at which nothing comes."""

    mbps: float
    latency_s: float = 0.01
    dead: list[tuple[float, float]] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    credit: float = 0.0

    def carries(self, now_s: float) -> bool:
        return not any(begin <= now_s < end for begin, end in self.dead)


class Simulation:
    """Files over links, in small steps of time; ``got`` counts how often each block of 1 KiB came."""

    def __init__(self, links: list[Link]) -> None:
        self.links, self.now_s = links, 0.0
        self.scheduler = RangeScheduler(len(links))
        self.bytes: dict[tuple[int, int], int] = {}
        self.accepts: dict[int, set[int]] = {}
        self.windows: dict[int, int | None] = {}
        self.lengths: dict[int, int] = {}

    def add(self, length: int, accepts: set[int], weight: float = 1.0, window: int | None = None) -> int:
        number = self.scheduler.add_flow(length, weight, accepts, window=window)
        self.accepts[number], self.windows[number], self.lengths[number] = accepts, window, length
        return number

    def step(self) -> None:
        self.now_s += STEP_S
        self.scheduler.offer_silent(self.now_s)
        for k, link in enumerate(self.links):
            self._ask(k, link)
            if link.carries(self.now_s):
                self._receive(k, link)
        for number, window in self.windows.items():
            if window is not None:
                self.scheduler.delivered(number, self.scheduler.done(number).covered_to(0), self.now_s)

    def _ask(self, k: int, link: Link) -> None:
        for piece in [*link.pieces]:
            if piece.over or self.now_s - piece.moved_s > ABANDON_S:
                self.scheduler.give_back(piece)
                link.pieces.remove(piece)
        if link.carries(self.now_s):
            self.scheduler.answered(k)
        while len(link.pieces) < 2 and (piece := self.scheduler.ask(k, self.now_s)) is not None:
            assert k in self.accepts[piece.flow], "over an interface that the flow does not accept"
            assert 0 <= piece.begin < piece.end <= self.lengths[piece.flow]
            window = self.windows[piece.flow]
            if window is not None:
                assert piece.end <= self.scheduler.done(piece.flow).covered_to(0) + window, "beyond the window"
            link.pieces.append(piece)

    def _receive(self, k: int, link: Link) -> None:
        """What the link carries in a step, shared by the pieces whose first byte can be there."""
        link.credit = min(link.credit, 1.0) + link.mbps * 125_000 * STEP_S
        while link.credit >= 1:
            ready = [p for p in link.pieces if self.now_s - p.asked_s >= link.latency_s and not p.over]
            if not ready:
                return
            share = max(1, int(link.credit / len(ready)))
            for piece in ready:
                if piece.over:
                    # What came just now was the last that this piece waited for; _ask has removed it.
                    continue
                count = min(share, piece.end - piece.at)
                link.credit -= count
                self.bytes[piece.flow, k] = self.bytes.get((piece.flow, k), 0) + count
                if not self.scheduler.received(piece, count, self.now_s):
                    link.pieces.remove(piece)
                    self._ask(k, link)

    def run(self, number: int, most_s: float) -> float:
        while not self.scheduler.complete(number):
            self.step()
            assert self.now_s < most_s, f"{self.scheduler.done(number).total} of {self.lengths[number]} bytes"
        return self.now_s


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 40)), max_size=30))
def test_intervals_are_a_set(steps: list[tuple[bool, int, int]]) -> None:
    intervals, model = Intervals(), set[int]()
    for adds, begin, end in steps:
        (intervals.add if adds else intervals.remove)(begin, end)
        model = model | set(range(begin, end)) if adds else model - set(range(begin, end))
        pairs = list(intervals)
        assert {n for b, e in pairs for n in range(b, e)} == model
        assert all(b < e for b, e in pairs) and all(e < b for (_, e), (b, _) in itertools.pairwise(pairs))
        assert intervals.total == len(model)
        for at in range(0, 41, 5):
            gap = intervals.first_gap(at, 41)
            free = [n for n in range(at, 41) if n not in model]
            assert (gap[0] if gap else None) == (free[0] if free else None)
            assert intervals.covered_to(at) == next(n for n in range(at, 82) if n not in model)


@pytest.mark.parametrize(
    ("mbps", "megabytes", "share"),
    [
        ([20, 30], 30, 0.98),
        ([*range(3, 33, 3)], 60, 0.96),
        ([1, 100], 40, 0.97),
        ([5], 4, 0.97),
        ([8, 8, 8, 8], 20, 0.97),
    ],
)
def test_all_interfaces_work_until_the_end(mbps: list[float], megabytes: int, share: float) -> None:
    simulation = Simulation([Link(each) for each in mbps])
    number = simulation.add(megabytes * 1_000_000, set(range(len(mbps))))
    ideal_s = megabytes * 8 / sum(mbps)
    assert ideal_s / simulation.run(number, 3 * ideal_s + 5) >= share


@given(st.integers(0, 10**9))
def test_whatever_dies_all_bytes_arrive_as_long_as_one_interface_lives(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 5)
    links = [Link(rng.choice([2.0, 8.0, 30.0, 60.0]), rng.choice([0.005, 0.05, 0.2])) for _ in range(count)]
    for link in links[1:]:
        begin_s = rng.uniform(0, 3)
        link.dead = [(begin_s, begin_s + rng.choice([0.3, 2.0, 1e9]))]
    simulation = Simulation(links)
    window = rng.choice([None, 1 << 20, 4 << 20])
    number = simulation.add(rng.randint(1, 6_000_000), set(range(count)), window=window)
    simulation.run(number, 6 * 8 / links[0].mbps + 10)
    assert list(simulation.scheduler.done(number)) == [(0, simulation.lengths[number])]


def test_a_dead_interface_delays_by_its_silence_only_and_comes_back() -> None:
    links = [Link(20), Link(20, dead=[(2.0, 6.0)])]
    simulation = Simulation(links)
    number = simulation.add(40_000_000, {0, 1})
    # 40 Mb/s for all the time but 4 s at half of it: 80 Mbit less, so 2 s more, and a second until it is believed.
    assert simulation.run(number, 30) <= 8.0 + 2.0 + 1.0
    assert simulation.bytes[number, 1] > 0.3 * 40e6, "it is used again"


def test_a_piece_that_is_silent_is_offered_and_its_interface_gets_no_other() -> None:
    scheduler = RangeScheduler(2)
    scheduler.add_flow(LEAST_BYTES * 4, 1.0, (0, 1))
    piece = scheduler.ask(0, 0.0)
    assert piece is not None and not scheduler.offer_silent(0.4)
    assert scheduler.offer_silent(0.6) and piece.offered
    assert scheduler.ask(0, 0.6) is None
    other = scheduler.ask(1, 0.6)
    assert other is not None and other.begin == piece.begin
    assert scheduler.received(piece, 1000, 0.7), "it goes on if it can"
    assert scheduler.ask(0, 0.7) is not None


@pytest.mark.parametrize(
    ("mbps", "flows"),
    [
        ((20.0, 30.0), {"a": (1.0, {0}), "b": (1.0, {0, 1}), "c": (1.0, {1})}),
        ((30.0, 10.0), {"a": (1.0, {0}), "b": (1.0, {0, 1}), "c": (1.0, {1})}),
        ((6.0, 10.0), {"a": (1.0, {0}), "b": (1.0, {0, 1}), "c": (1.0, {1})}),
        ((20.0, 20.0, 40.0), {"a": (1.0, {0, 1, 2}), "b": (2.0, {2}), "c": (1.0, {0, 1, 2})}),
        ((15.0,), {"a": (1.0, {0}), "b": (3.0, {0})}),
    ],
)
def test_downloads_share_by_weight_and_preference(mbps, flows) -> None:
    simulation = Simulation([Link(each) for each in mbps])
    numbers = {name: simulation.add(10**9, accepts, weight) for name, (weight, accepts) in flows.items()}
    names = [f"if{k}" for k in range(len(mbps))]
    fair = allocate(
        Shares(
            dict(zip(names, mbps, strict=True)),
            {name: Flow(weight, frozenset(names[k] for k in accepts)) for name, (weight, accepts) in flows.items()},
        )
    )
    while simulation.now_s < 2:
        simulation.step()
    before = {name: simulation.scheduler.done(number).total for name, number in numbers.items()}
    while simulation.now_s < 12:
        simulation.step()
    for name, number in numbers.items():
        rate = (simulation.scheduler.done(number).total - before[name]) * 8e-6 / 10
        assert rate == pytest.approx(fair.rate_mbps[name], rel=0.06), name


def test_pieces_follow_the_rate_of_their_interface() -> None:
    simulation = Simulation([Link(4), Link(400)])
    simulation.add(10**9, {0, 1})
    sizes: dict[int, list[int]] = {0: [], 1: []}
    while simulation.now_s < 4:
        simulation.step()
        for piece in simulation.scheduler.pieces:
            if simulation.now_s > 2 and piece.at == piece.begin:
                sizes[piece.interface].append(piece.end - piece.begin)
    assert all(LEAST_BYTES / 2 <= size <= 1.3 * 0.25 * 4 * 125_000 for size in sizes[0])
    assert all(0.4 * MOST_BYTES <= size <= MOST_BYTES + LEAST_BYTES for size in sizes[1])


@pytest.mark.parametrize(
    ("mbps", "share"), [([20, 30], 0.96), ([3, 30], 0.96), ([10, 10, 10], 0.96), ([100, 400], 0.85)]
)
def test_delivery_in_order_costs_little(mbps: list[float], share: float) -> None:
    simulation = Simulation([Link(each) for each in mbps])
    megabytes = sum(mbps)
    number = simulation.add(int(megabytes * 1_000_000), set(range(len(mbps))), window=5 << 20)
    ideal_s = megabytes * 8 / sum(mbps)
    assert ideal_s / simulation.run(number, 3 * ideal_s) >= share
