"""Which numbers and tables each slice has on each switch.

Table 0 of a switch is the classifier; behind it every slice that owns something there has a block of consecutive
tables. A slice keeps its number everywhere and its block on a switch as long as it needs as many tables, so changing
one slice never moves another. The top 16 of the usable metadata bits say the slice's number, the others are the
guest's; a slicer behind a slicer is given fewer bits and tables and divides them in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .errors import AllocationError
from .model import PRODUCTION, SliceModel

CLASSIFIER_TABLE = 0
PRODUCTION_NUMBER = 1
NUMBER_BITS = 16
_MAX_NUMBER = (1 << NUMBER_BITS) - 1


@dataclass(frozen=True, slots=True)
class Layout:
    """What a switch offers: Open vSwitch has 254 tables."""

    tables: int = 254
    metadata_bits: int = 64

    @property
    def slice_shift(self) -> int:
        """Where the slice's number starts in the metadata."""
        return self.metadata_bits - NUMBER_BITS

    @property
    def guest_metadata_mask(self) -> int:
        """The metadata bits that guests may use."""
        return (1 << self.slice_shift) - 1

    @property
    def slice_metadata_mask(self) -> int:
        """The metadata bits that say the slice's number."""
        return _MAX_NUMBER << self.slice_shift


OPEN_VSWITCH = Layout()


@dataclass(frozen=True, slots=True)
class Block:
    """Tables ``first`` .. ``first + count - 1`` of a switch, of the slice with this number."""

    number: int
    first: int
    count: int
    metered: bool = False
    """Whether what leads here has the slice's meter (``classifier``)."""

    @property
    def tables(self) -> range:
        """The switch's numbers of its tables."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class Allocation:
    """Numbers by slice, and blocks by datapath id and slice."""

    numbers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    blocks: Mapping[int, Mapping[str, Block]] = field(default_factory=lambda: MappingProxyType({}))


NOTHING = Allocation()


def allocate(
    model: SliceModel,
    switches: Collection[int],
    previous: Allocation = NOTHING,
    names: Iterable[str] | None = None,
    layout: Layout = OPEN_VSWITCH,
    *,
    busy: Collection[int] = (),
) -> Allocation:
    """The allocation for ``switches``; only the named slices (default: all) are looked at on switches known before.

    No slice that is new gets one of the numbers ``busy``: some switch still has them for slices that are gone.
    :class:`AllocationError` when a switch has too few tables; nothing has changed then.
    """
    numbers = _numbers(model, previous, busy)
    known = frozenset(switches)
    looked_at = frozenset(model.slices if names is None else names) | (previous.numbers.keys() - model.slices.keys())
    homes = {name: model.slices[name].switches(known) for name in looked_at if name in model.slices}
    blocks: dict[int, Mapping[str, Block]] = {}
    for dpid in known:
        before = previous.blocks.get(dpid)
        if before is None and len(looked_at) < len(model.slices):
            homes = {name: each.switches(known) for name, each in model.slices.items()}
        mine = {
            name: block
            for name, block in (before or {}).items()
            if name not in looked_at or (dpid in homes.get(name, ()) and block.count == _tables_of(model, name))
        }
        waiting = [name for name in homes if dpid in homes[name] and name not in mine]
        # Production first, then the large ones, so that they find room.
        for name in sorted(waiting, key=lambda n: (n != PRODUCTION, -_tables_of(model, n), numbers[n])):
            count, taken = _tables_of(model, name), list(mine.values())
            # If possible where no other had its tables just now.
            start = _first_fit([*taken, *(before or {}).values()], count, layout) or _first_fit(taken, count, layout)
            if start is None:
                raise AllocationError(
                    f"switch {dpid:#x} has {layout.tables} tables: no {count} in a row are left for slice {name} "
                    "(lower the limit tables of this slice or another)"
                )
            mine[name] = Block(numbers[name], start, count)
        blocks[dpid] = MappingProxyType(mine)
    return Allocation(MappingProxyType(numbers), MappingProxyType(blocks))


def _numbers(model: SliceModel, previous: Allocation, busy: Collection[int]) -> dict[str, int]:
    """Those of before stay; new ones are the lowest that nobody has or had just now."""
    numbers = {name: previous.numbers[name] for name in model.slices if name in previous.numbers}
    numbers[PRODUCTION] = PRODUCTION_NUMBER
    taken = {*numbers.values(), *previous.numbers.values(), *busy}
    free = PRODUCTION_NUMBER + 1
    for name in sorted(model.slices.keys() - numbers.keys()):
        while free in taken:
            free += 1
        numbers[name] = free
        taken.add(free)
    return numbers


def _tables_of(model: SliceModel, name: str) -> int:
    return model.slices[name].limits.tables


def _first_fit(taken: list[Block], count: int, layout: Layout) -> int | None:
    start = CLASSIFIER_TABLE + 1
    for block in sorted(taken, key=lambda block: block.first):
        if block.first - start >= count:
            break
        start = max(start, block.first + block.count)
    return start if start + count <= layout.tables else None
