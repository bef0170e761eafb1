"""Guests of a switch: what they have there is counted and checked again, and they hear of ports that came and went."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hyroads.slices.proxy import recheck
from hyroads.slices.proxy.contents import active_entries, contents_of, count_question, questions
from hyroads.slices.proxy.ports import status_messages
from hyroads.slices.proxy.session import Tenant
from hyroads.slices.server.switch import Switch

LOG = logging.getLogger("hyroads.slicer")

_FEW = 64


async def check_again(switch: Switch) -> None:
    """Delete what of the guests' rules and groups would be refused today, change what would be another."""
    if switch.link is None:
        return
    found = contents_of((await switch.link.exchange(questions()[1:4])).replies, switch.layout.slice_shift)
    for tenant in list(switch.tenants.values()):
        wrong = recheck.groups_to_mend(found.groups, tenant.view)
        block = tenant.view.block
        tables = [t for t in range(block.first, block.first + block.count) if t in found.active]
        if tables and switch.link is not None:
            replies = (await switch.link.exchange(map(recheck.rule_question, tables))).replies
            for message in replies:
                for count, mend in enumerate(recheck.rules_to_mend(message[16:], tenant.view), 1):
                    if mend is not None:
                        wrong.append(mend)
                    if not count % _FEW:
                        await asyncio.sleep(0)
        if wrong:
            words = "switch %#x: slice %s: %d rules and groups left the slice, or are others now"
            LOG.info(words, switch.dpid, tenant.name, len(wrong))
            await switch.send(wrong)


async def count_entries(switch: Switch) -> None:
    """How many entries each slice has."""
    if switch.link is None:
        return
    before = {name: tenant.entries.added for name, tenant in switch.tenants.items()}
    answers = await switch.link.exchange([count_question()])
    active = active_entries([message[16:] for message in answers.replies])
    switch.counted_s = asyncio.get_running_loop().time()
    for name, tenant in switch.tenants.items():
        block = tenant.view.block
        found = sum(active.get(table, 0) for table in range(block.first, block.first + block.count))
        tenant.entries.counted(found, max(0, tenant.entries.added - before.get(name, 0)))


def drop(switch: Switch, gone: Iterable[Tenant]) -> None:
    """End the connections of slices that are gone, or have other tables."""
    names = {tenant.name for tenant in gone}
    for key in [key for key in switch.dialling if key[0] in names]:
        switch.dialling.pop(key).cancel()
    for guest in list(switch.link.guests.values()) if switch.link is not None else ():
        if guest.tenant.name in names:
            guest.leave()


def tell_ports(switch: Switch, before: Mapping[int, frozenset[int]], records: dict[int, bytes]) -> None:
    """Events for guests whose slice lost or got ports."""
    if switch.link is None or switch.session is None:
        return
    for tenant in switch.tenants.values():
        if tenant.view.number not in before:
            continue
        for message in status_messages(before[tenant.view.number], tenant.view.ports, records):
            for guest, each in switch.session.tell(tenant, message).guests:
                switch.link.guests[guest].tell(each)
    switch.link.turn_ends()


def refusals(switches: Iterable[Switch]) -> Iterator[dict[str, Any]]:
    """For each slice how many messages of its guests were refused since the last time, and one of them."""
    counts: dict[str, int] = {}
    last: dict[str, dict[str, Any]] = {}
    for switch in switches:
        for name, tenant in switch.tenants.items():
            if tenant.refused:
                counts[name] = counts.get(name, 0) + tenant.refused
                last[name] = {"switch": f"{switch.dpid:#x}", "reason": tenant.last_refusal}
                tenant.refused = 0
    for name, number in counts.items():
        yield {"slice": name, "count": number, **last[name]}
