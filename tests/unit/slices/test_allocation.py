"""Numbers and tables of slices through any row of changes, against a search of every place."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

import pytest
from swarm import events, swarm

from hyroads.slices.core.allocation import NOTHING, PRODUCTION_NUMBER, Allocation, Layout, allocate
from hyroads.slices.core.errors import AllocationError
from hyroads.slices.core.model import EMPTY, PRODUCTION, FlowspaceRule, Limits, Slice, SliceModel

LAYOUT = Layout(tables=32)
KINDS = (
    "many limits",
    "put",
    "other limit",
    "other switches",
    "remove",
    "replace",
    "switch comes",
    "switch goes",
    "busy",
    "all anew",
)


def expected_numbers(model: SliceModel, before: Allocation, busy: Collection[int]) -> dict[str, int]:
    """Known slices keep theirs; each new one, by name, gets the least that no slice has, had before, or is busy."""
    numbers = {name: number for name, number in before.numbers.items() if name in model.slices}
    numbers[PRODUCTION] = PRODUCTION_NUMBER
    used = {0, *numbers.values(), *before.numbers.values(), *busy}
    for name in sorted(model.slices.keys() - numbers.keys()):
        numbers[name] = next(number for number in range(1, 1000) if number not in used)
        used.add(numbers[name])
    return numbers


def expected_blocks(
    model: SliceModel, dpid: int, before: Allocation, numbers: dict[str, int], tables: int
) -> dict[str, range] | None:
    """Blocks that still fit stay. The others, production and then the largest first, get the first place that was
    free before, too, else the first one that is free now. None: one of them finds no place.
    """
    wanted = {name: each.limits.tables for name, each in model.slices.items() if each.switches(frozenset({dpid}))}
    old = {name: block.tables for name, block in before.blocks.get(dpid, {}).items()}
    found = {name: old[name] for name in wanted if name in old and len(old[name]) == wanted[name]}
    waiting = sorted(wanted.keys() - found.keys(), key=lambda n: (n != PRODUCTION, -wanted[n], numbers[n]))
    for name in waiting:
        places = [range(first, first + wanted[name]) for first in range(1, tables - wanted[name] + 1)]
        free = [place for place in places if all(_apart(place, other) for other in found.values())]
        untouched = [place for place in free if all(_apart(place, other) for other in old.values())]
        if not free:
            return None
        found[name] = (untouched or free)[0]
    return found


def _apart(one: range, other: range) -> bool:
    return one.stop <= other.start or other.stop <= one.start


class Changing:
    """Slices and switches that come and go."""

    def __init__(self) -> None:
        self.model, self.allocation, self.switches = EMPTY, NOTHING, {1, 2}
        self.busy: set[int] = set()

    def change(self, kind: str, rng: random.Random) -> None:
        slices, names = dict(self.model.slices), set[str]()
        there = sorted(slices.keys() - {PRODUCTION})
        self.busy = {rng.randrange(1, 9) for _ in range(rng.randrange(4))} if kind == "busy" else self.busy
        if kind == "switch comes":
            self.switches.add(rng.randrange(1, 5))
        elif kind == "switch goes":
            self.switches.discard(rng.choice(sorted(self.switches or {0})))
        elif kind in {"put", "replace", "busy"}:
            if kind == "replace" and there:
                names.add(rng.choice(there))
                del slices[min(names)]
            added = {rng.choice("abcdefgh") for _ in range(rng.randrange(1, 3))}
            slices |= {name: some_slice(name, rng) for name in added}
            names |= added
        elif kind == "many limits":
            # Blocks that grow over those that were there, where nothing else is free.
            names = {name for name in slices if rng.random() < 0.7}
            limits = {name: Limits(tables=rng.choice([1, 2, 3, 5, 10, 14])) for name in names}
            slices |= {name: replace(slices[name], limits=limits[name]) for name in sorted(names)}
        elif there:
            name = rng.choice(there)
            names.add(name)
            if kind == "remove":
                del slices[name]
            else:
                slices[name] = some_slice(name, rng)
        self.check(SliceModel(slices), None if kind == "all anew" or rng.random() < 0.3 else names)

    def check(self, model: SliceModel, names: set[str] | None) -> None:
        numbers = expected_numbers(model, self.allocation, self.busy)
        expected = {
            dpid: expected_blocks(model, dpid, self.allocation, numbers, LAYOUT.tables) for dpid in self.switches
        }
        if None in expected.values():
            with pytest.raises(AllocationError):
                allocate(model, self.switches, self.allocation, names, LAYOUT, busy=self.busy)
            return
        found = allocate(model, self.switches, self.allocation, names, LAYOUT, busy=self.busy)
        assert found.numbers == numbers
        assert {
            dpid: {name: block.tables for name, block in of.items()} for dpid, of in found.blocks.items()
        } == expected
        assert all(block.number == numbers[name] for of in found.blocks.values() for name, block in of.items())
        self.model, self.allocation = model, found


def some_slice(name: str, rng: random.Random) -> Slice:
    switches = rng.choice([None, frozenset({1}), frozenset({1, 2}), frozenset({3}), frozenset({2, 4})])
    return Slice(name, (FlowspaceRule((), switches=switches),), limits=Limits(tables=rng.choice([1, 2, 3, 5, 10])))


def play(_: int, row: list[tuple[str, int]]) -> None:
    changing = Changing()
    for kind, choice in row:
        changing.change(kind, random.Random(choice))


def test_numbers_and_tables_are_the_first_that_are_free_through_any_row_of_changes() -> None:
    swarm(500, lambda rng: events(rng, KINDS, 15, ("put",)), play)


@pytest.mark.parametrize("tables", [8 + 1, 8 + 2])
def test_last_table_of_a_switch_is_used_and_none_behind_it(tables: int) -> None:
    model = SliceModel({"a": Slice("a", (FlowspaceRule(()),), limits=Limits(tables=1))})
    if tables == 8 + 1:
        with pytest.raises(AllocationError):
            allocate(model, (1,), layout=Layout(tables=tables))
    else:
        assert allocate(model, (1,), layout=Layout(tables=tables)).blocks[1]["a"].tables == range(9, 10)
