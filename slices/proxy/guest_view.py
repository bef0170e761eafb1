"""What a slice sees of one switch: its tables, ports, groups, meters and flowspace."""

from __future__ import annotations

from dataclasses import dataclass, field

from hyroads.slices.allocation import OPEN_VSWITCH, Block, Layout
from hyroads.slices.errors import SliceError
from hyroads.slices.proxy.discovery import Arrivals
from hyroads.slices.proxy.ids import IdMap
from hyroads.slices.proxy.refusal import FLOW_MOD_FAILED, Refused
from hyroads.slices.proxy.region import Regions

ALL_TABLES = 0xFF
FLOOD_GROUPS = 0xFF00_0000 - 0x2_0000
"""The highest group numbers: two of each slice, FLOOD and ALL."""


@dataclass
class GuestView:
    """The virtual switch of one slice. ``regions`` and ``ports`` are replaced when the slices or ports change."""

    block: Block
    ports: frozenset[int]
    regions: Regions
    groups: IdMap
    meters: IdMap
    layout: Layout = field(default=OPEN_VSWITCH)
    chains: dict[int, frozenset[int]] = field(default_factory=dict)
    """Which of the guest's groups lead to which others of it."""
    queue: int | None = None
    """Where packets of the slice wait at every port that they leave by; None: where the port has them."""
    discovery_cookies: dict[int, int] = field(default_factory=dict)
    """Cookies of the guest's own rules for discovery frames, by eth_type: some controllers look for them."""
    arrivals: Arrivals = field(default_factory=Arrivals)

    @property
    def number(self) -> int:
        """The slice's number."""
        return self.block.number

    @property
    def flood_group(self) -> int:
        """The group that copies to each of the slice's ports."""
        return FLOOD_GROUPS + 2 * self.number

    def real_table(self, table: int) -> int:
        """The switch's table for the guest's; :class:`Refused` if the guest has no such table."""
        if table >= self.block.count:
            raise Refused(FLOW_MOD_FAILED, 2, f"table {table}: the slice has {self.block.count}")
        return self.block.first + table

    def guest_table(self, table: int) -> int:
        """The guest's table for one of the switch's in its block; :class:`SliceError` for others."""
        if not self.block.first <= table < self.block.first + self.block.count:
            raise SliceError(f"table {table} is not of slice {self.number}")
        return table - self.block.first

    def would_loop(self, group: int, onward: frozenset[int]) -> bool:
        """Whether a group that leads to these others would lead back to itself."""
        seen: set[int] = set()
        waiting = [*onward]
        while waiting:
            now = waiting.pop()
            if now == group:
                return True
            if now not in seen:
                seen.add(now)
                waiting += self.chains.get(now, ())
        return False

    def kinds(self, in_port: int | None) -> tuple[int, ...]:
        """One ingress port for each kind of flowspace among those that a match admits."""
        if in_port is not None:
            return (in_port,) if in_port in self.ports else ()
        return tuple({self.regions.kind(port): port for port in sorted(self.ports, reverse=True)}.values())
