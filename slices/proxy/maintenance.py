"""From what is in a switch to what should be, by the smallest difference: the slicer's own part, and the guests'.

A switch that a slicer had before keeps its forwarding: entries of the classifier are told apart by their cookies, and a
table is emptied only if it has passed to another slice. A switch that no slicer has had is *adopted*: whatever is in it
could lead packets past the classifier, so it is emptied once.

What guests have there is checked again after the flowspace, the ports or the limits changed: it is read back, turned
into the guest's own message and translated once more. What would be refused today is deleted; the switch tells the
guest if the rule asked for that (OFPFF_SEND_FLOW_REM). What would be another message today (the slice has another
queue) is changed in place, and keeps its counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.rule import MARK_MASK
from hyroads.slices.core.allocation import Block, Layout
from hyroads.slices.core.classifier import COOKIE_MARK, ClassifierChange, ClassifierEntry
from hyroads.slices.core.errors import Refused

from .contents import Contents, records, rule_of
from .flow_mod import translate
from .group_mod import ALL_GROUPS, ALL_METERS, chained, check_buckets, flood_buckets
from .guest_view import FLOOD_GROUPS, GuestView
from .readback import flow_stats, guest_buckets

FIRST_GUEST_METER = 1 << 14
"""Below are the slicer's own meters."""

_METER_FLAGS = b"\0\5"
_BAND = Struct("!HHII4x")
_LEAST_BURST_KB = 128

Stages = tuple[list[bytes], ...]
"""Messages without transaction ids; each stage must be in force before the next."""


@dataclass(frozen=True)
class DesiredState:
    """What of the slicer's should be in a switch."""

    entries: tuple[ClassifierEntry, ...]
    blocks: tuple[Block, ...]
    ports: Mapping[int, frozenset[int]]
    """The ports of each slice, by its number: for the groups FLOOD and ALL."""
    layout: Layout
    rates_kbps: Mapping[int, int] = field(default_factory=dict)
    """What may come in of a slice, by its number; the meter has the same number."""
    queues: Mapping[int, int] = field(default_factory=dict)
    """The queues of slices that have one, by number of the slice."""

    @property
    def floods(self) -> dict[int, tuple[frozenset[int], int | None]]:
        """Ports and queue of each slice, by its number."""
        return {number: (ports, self.queues.get(number)) for number, ports in self.ports.items()}


def stages(found: Contents, wanted: DesiredState) -> Stages:
    """What to send to a switch that has just connected."""
    if not is_sliced(found):
        found = Contents(found.ports, (), {}, {}, {})
        everything = wire.message(wire.delete_all_of_table_body(), 0)
        groups, meters = group_message(wire.GROUP_DELETE, ALL_GROUPS), meter_message(wire.METER_DELETE, ALL_METERS)
        first = [everything, groups, meters]
    else:
        first = _emptied(_tables_to_empty(found, wanted, held=True))
    adds, deletes = _classifier(found, wanted)
    floods, gone = _flood_groups(found.groups, wanted.floods)
    last = _emptied(_tables_to_empty(found, wanted, held=False))
    own = {number: record for number, record in found.meters.items() if number < FIRST_GUEST_METER}
    limits, unused = _meters(own, wanted.rates_kbps)
    return tuple(stage for stage in (first, floods + limits, adds, deletes, last, gone + unused) if stage)


def change_stages(change: ClassifierChange, before: DesiredState, after: DesiredState) -> Stages:
    """What to send to a switch that has ``before``."""
    layout = after.layout
    old, new = before.floods.items(), after.floods.items()
    # Most slices keep their ports, and buckets of all of them take long to make.
    installed = {FLOOD_GROUPS + 2 * number + i: flood_buckets(*each) for number, each in old - new for i in (0, 1)}
    floods, gone = _flood_groups(installed, dict(new - old))
    meters, unused = _meters({n: meter_bands(kbps) for n, kbps in before.rates_kbps.items()}, after.rates_kbps)
    found = (
        _emptied(change.passed_on),
        floods + meters,
        [wire.message(entry.add_body(layout), 0) for entry in change.adds],
        [wire.message(entry.installed(layout).delete_body, 0) for entry in change.deletes],
        _emptied(change.freed),
        gone + unused,
    )
    return tuple(stage for stage in found if stage)


def is_sliced(found: Contents) -> bool:
    """Whether a slicer has had the switch before."""
    return any(each.rule.cookie & MARK_MASK == COOKIE_MARK for each in found.entries)


def _emptied(tables: Iterable[int]) -> list[bytes]:
    return [wire.message(wire.delete_all_of_table_body(table), 0) for table in tables]


def _tables_to_empty(found: Contents, wanted: DesiredState, *, held: bool) -> list[int]:
    """Tables with entries of a slice that no longer has them; ``held``: those that another has now."""
    now = {table: block.number for block in wanted.blocks for table in block.tables}
    before = sorted({(first, number) for each in found.entries if each.owner for number, first in [each.owner]})
    tables = []
    for table in sorted(found.active):
        # A block ends where the next begins, or where there are no entries any more.
        owner = next((number for first, number in reversed(before) if first <= table), None)
        if table and (owner is None or now.get(table) != owner) and (table in now) == held:
            tables.append(table)
    return tables


def _classifier(found: Contents, wanted: DesiredState) -> tuple[list[bytes], list[bytes]]:
    layout = wanted.layout
    present = {(each.rule.priority, each.rule.cookie) for each in found.entries}
    cookies = {(entry.priority, entry.cookie(layout)): entry for entry in wanted.entries}
    adds = [wire.message(entry.add_body(layout), 0) for key, entry in cookies.items() if key not in present]
    # An entry with the match of a wanted one is overwritten by its add: the delete then meets another cookie.
    deletes = [
        wire.message(each.rule.delete_body, 0)
        for each in found.entries
        if (each.rule.priority, each.rule.cookie) not in cookies
    ]
    return adds, deletes


def _flood_groups(
    present: Mapping[int, bytes], floods: Mapping[int, tuple[frozenset[int], int | None]]
) -> tuple[list[bytes], list[bytes]]:
    """(adds and changes, deletes)."""
    put, wanted = [], set()
    for number, mine in floods.items():
        buckets = flood_buckets(*mine)
        for group in (FLOOD_GROUPS + 2 * number, FLOOD_GROUPS + 2 * number + 1):
            wanted.add(group)
            if present.get(group) != buckets:
                put.append(group_message(wire.GROUP_MODIFY if group in present else wire.GROUP_ADD, group, buckets))
    gone = [
        group_message(wire.GROUP_DELETE, group) for group in present if group >= FLOOD_GROUPS and group not in wanted
    ]
    return put, gone


def group_message(command: int, number: int, described: bytes = b"\0\0") -> bytes:
    """A group-mod; ``described`` is the group's type and buckets, as a switch describes them."""
    head = command.to_bytes(2, "big") + described[:2] + number.to_bytes(4, "big")
    return wire.message(head + described[2:], 0, wire.GROUP_MOD)


def meter_bands(kbps: int) -> bytes:
    """Flags (kb/s, burst) and the one band, as a switch describes them: a quarter of a second may come at once."""
    return _METER_FLAGS + _BAND.pack(1, 16, kbps, max(kbps // 4, _LEAST_BURST_KB))


def _meters(present: Mapping[int, bytes], rates_kbps: Mapping[int, int]) -> tuple[list[bytes], list[bytes]]:
    """(adds and changes, deletes) of the slicer's own meters."""
    wanted = {number: meter_bands(kbps) for number, kbps in rates_kbps.items()}
    put = [
        meter_message(wire.METER_MODIFY if number in present else wire.METER_ADD, number, bands)
        for number, bands in wanted.items()
        if present.get(number) != bands
    ]
    return put, [meter_message(wire.METER_DELETE, number) for number in present if number not in wanted]


def meter_message(command: int, number: int, flags_and_bands: bytes = b"\0\0") -> bytes:
    """A meter-mod."""
    head = command.to_bytes(2, "big") + flags_and_bands[:2] + number.to_bytes(4, "big")
    return wire.message(head + flags_and_bands[2:], 0, wire.METER_MOD)


def rules_to_mend(body: bytes, view: GuestView) -> Iterator[bytes | None]:
    """Deletes for the rules of a flow-stats reply that the slice may not have any more, and changes of those that
    would be others today; None for one that stays.
    """
    for at, length in records(body):
        record = body[at : at + length]
        mine = flow_stats(record, view)
        if mine:
            yield _mended(record, mine, view)


def _mended(record: bytes, mine: bytes, view: GuestView) -> bytes | None:
    """What to send for a rule, given as the switch has it and as the guest sees it."""
    asked, instructions = rule_of(mine)
    body = wire.flow_mod_body(
        wire.ADD, asked.table, asked.priority, asked.match_fields, instructions, cookie=asked.cookie
    )
    real, there = rule_of(record)
    try:
        [today] = translate(wire.message(body, 0), view)
    except Refused:
        return wire.message(real.delete_body, 0)
    wanted = today[48 + (int.from_bytes(today[50:52], "big") + 7) // 8 * 8 :]
    if wanted == there:
        return None
    return wire.message(wire.flow_mod_body(wire.MODIFY_STRICT, real.table, real.priority, real.match_fields, wanted), 0)


def groups_to_mend(groups: Mapping[int, bytes], view: GuestView) -> list[bytes]:
    """Deletes for those of the slice's groups that it may not have any more (the rules that use them go too), and
    changes of those that would be others today.

    ``groups`` has type and buckets by the switch's number (``contents.Contents.groups``).
    """
    wrong, messages = [], []
    for real, record in groups.items():
        guest = view.groups.guest(real)
        if guest is None:
            continue
        asked = wire.message(bytes(8) + guest_buckets(record, 2, len(record), view), 0, wire.GROUP_MOD)
        try:
            buckets = check_buckets(asked, view)
        except Refused:
            wrong.append(real)
            continue
        view.chains[guest] = chained(asked)
        if buckets != record[2:]:
            messages.append(group_message(wire.GROUP_MODIFY, real, record[:2] + buckets))
    # Only now: a group that leads to one that goes was looked at with its number.
    return [group_message(wire.GROUP_DELETE, real) for real in wrong if view.groups.forget(real)] + messages
