"""Checking again what a slice has in a switch, after the flowspace or the ports changed.

What is there is read back, turned into the guest's own message and translated once more. What would be refused today
is deleted; the switch tells the guest if the rule asked for that (OFPFF_SEND_FLOW_REM).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Installed
from hyroads.slices.proxy.flow_mod import translate
from hyroads.slices.proxy.group_mod import GROUP_MOD, chained, check_buckets
from hyroads.slices.proxy.guest_view import GuestView
from hyroads.slices.proxy.readback import flow_stats, guest_buckets
from hyroads.slices.proxy.refusal import Refused
from hyroads.slices.proxy.upkeep import group_message

_FLOW = Struct("!HBxIIHHHH4xQQQHH")
_DELETE = 2


def rule_question(table: int) -> bytes:
    """Asks for all rules of a table of the switch."""
    return wire.flow_stats_request(0, table=table)


def rules_to_delete(body: bytes, view: GuestView) -> Iterator[bytes | None]:
    """Deletes for the rules of a flow-stats reply that the slice may not have any more; None for one that stays."""
    at = 0
    while at < len(body):
        length = int.from_bytes(body[at : at + 2], "big")
        yield from _check_rule(body[at : at + length], view)
        at += length


def _check_rule(record: bytes, view: GuestView) -> Iterator[bytes | None]:
    mine = flow_stats(record, view)
    if not mine:
        return
    fields = _FLOW.unpack_from(mine)
    data = mine[52 : 48 + fields[12]]
    instructions = mine[48 + (fields[12] + 7) // 8 * 8 :]
    asked = wire.message(wire.flow_mod_body(wire.ADD, fields[1], fields[4], data, instructions), 0)
    try:
        translate(asked, view)
    except Refused:
        real = _FLOW.unpack_from(record)
        rule = Installed(real[1], real[4], record[52 : 48 + real[12]], real[8])
        yield wire.message(rule.delete_body, 0)
    else:
        yield None


def groups_to_delete(groups: Mapping[int, bytes], view: GuestView) -> list[bytes]:
    """Deletes for those of the slice's groups that it may not have any more; the rules that use them go too.

    ``groups`` has type and buckets by the switch's number (``contents.Contents.groups``).
    """
    return [group_message(_DELETE, real, b"") for real in _wrong(groups, view) if view.groups.forget(real)]


def _wrong(groups: Mapping[int, bytes], view: GuestView) -> Iterable[int]:
    found = []
    for real, record in groups.items():
        guest = view.groups.guest(real)
        if guest is None:
            continue
        buckets = guest_buckets(record, 2, len(record), view)
        message = wire.message(bytes(8) + buckets, 0, GROUP_MOD)
        try:
            check_buckets(message, view)
            view.chains[guest] = chained(message)
        except Refused:
            found.append(real)
    return found
