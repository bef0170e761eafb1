"""Checking again what a slice has in a switch, after the flowspace, the ports or the limits changed.

What is there is read back, turned into the guest's own message and translated once more. What would be refused today
is deleted; the switch tells the guest if the rule asked for that (OFPFF_SEND_FLOW_REM). What would be another message
today (the slice has another queue) is changed in place, and keeps its counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
_MODIFY, _DELETE = 1, 2
_MODIFY_STRICT = 2


def rule_question(table: int) -> bytes:
    """Asks for all rules of a table of the switch."""
    return wire.flow_stats_request(0, table=table)


def rules_to_mend(body: bytes, view: GuestView) -> Iterator[bytes | None]:
    """Deletes for the rules of a flow-stats reply that the slice may not have any more, and changes of those that
    would be others today; None for one that stays.
    """
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
    body = wire.flow_mod_body(wire.ADD, fields[1], fields[4], data, instructions, cookie=fields[8])
    asked = wire.message(body, 0)
    real = _FLOW.unpack_from(record)
    match = record[52 : 48 + real[12]]
    there = record[48 + (real[12] + 7) // 8 * 8 :]
    try:
        [today] = translate(asked, view)
    except Refused:
        rule = Installed(real[1], real[4], match, real[8])
        yield wire.message(rule.delete_body, 0)
        return
    wanted = today[48 + (int.from_bytes(today[50:52], "big") + 7) // 8 * 8 :]
    if wanted == there:
        yield None
    else:
        yield wire.message(wire.flow_mod_body(_MODIFY_STRICT, real[1], real[4], match, wanted), 0)


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
        asked = wire.message(bytes(8) + guest_buckets(record, 2, len(record), view), 0, GROUP_MOD)
        try:
            buckets = check_buckets(asked, view)
        except Refused:
            wrong.append(real)
            continue
        view.chains[guest] = chained(asked)
        if buckets != record[2:]:
            messages.append(group_message(_MODIFY, real, record[:2] + buckets))
    # Only now: a group that leads to one that goes was looked at with its number.
    return [group_message(_DELETE, real) for real in wrong if view.groups.forget(real)] + messages
