"""One switch as the slicer knows it, connected or not: ports, tenants and their numbers outlive connections. What its
guests have there is counted and checked again, and they hear of ports that came and went.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from hyroads.controller.ofp import wire
from hyroads.slices.core.allocation import Block, Layout
from hyroads.slices.core.classifier import ClassifierEntry, Entries
from hyroads.slices.core.delegation import own_limits
from hyroads.slices.core.errors import SliceError
from hyroads.slices.core.model import EMPTY, Controller, Limits, Slice, SliceModel
from hyroads.slices.proxy import maintenance
from hyroads.slices.proxy.contents import active_entries, contents_of, count_question, port_names, questions
from hyroads.slices.proxy.guest_view import FLOOD_GROUPS, GuestView, IdMap, NumberPool
from hyroads.slices.proxy.maintenance import FIRST_GUEST_METER, DesiredState, Stages, group_message, meter_message
from hyroads.slices.proxy.ports import SlicePorts, status_messages
from hyroads.slices.proxy.region import Regions
from hyroads.slices.proxy.roles import Roles
from hyroads.slices.proxy.session import SwitchSession, Tenant
from hyroads.slices.proxy.xids import EntryQuota, bucket_of

from .guest_link import GuestLink
from .state import Pairs
from .switch_link import SwitchLink

LOG = logging.getLogger("hyroads.slicer")

LAST_METER = 0xFFFF_0000
_FEW = 64
_DELETE = 2


class Switch:
    """``session`` and ``link`` are there while it is connected and prepared."""

    def __init__(self, dpid: int, layout: Layout, saved: Pairs) -> None:
        """``saved`` are pairs of numbers from the state file, for tenants that come."""
        self.dpid = dpid
        self.layout = layout
        self.ports: dict[int, bytes] = {}
        self.tenants: dict[str, Tenant] = {}
        self._entries: Callable[[], tuple[ClassifierEntry, ...]] = tuple
        self._slice_ports = SlicePorts()
        self._rates_kbps: dict[int, int] = {}
        self.regions = Regions(())
        self.link: SwitchLink | None = None
        self.session: SwitchSession | None = None
        self.dialling: dict[tuple[str, Controller], asyncio.Task[None]] = {}
        self.statuses: list[bytes] = []
        self.lock = asyncio.Lock()
        """Who sends what keeps slices apart holds it: a switch that hangs keeps nobody waiting but those for itself."""
        self.model: SliceModel = EMPTY
        """The slices that it has been told of, and the ``version`` that it has confirmed."""
        self.version = 0
        self.installed: Mapping[str, Entries] = {}
        """The classifier that it has confirmed."""
        self.numbers: frozenset[int] = frozenset()
        """Of slices that it may have something of."""
        self.queued: asyncio.Task[None] | None = None
        self.counted_s = 0.0
        self._groups = NumberPool(1, FLOOD_GROUPS - 2)
        self._meters = NumberPool(FIRST_GUEST_METER, LAST_METER)
        self._saved = dict(saved)

    @property
    def names(self) -> dict[str, int]:
        """Numbers of ports by name."""
        return port_names(self.ports)

    def wanted(self, *, entries: bool = False) -> DesiredState:
        """What should be in the switch of the slicer's own; the entries of the classifier only if asked for."""
        views = [tenant.view for tenant in self.tenants.values()]
        blocks = tuple(view.block for view in views)
        ports = {view.number: view.ports for view in views}
        queues = {view.number: view.queue for view in views if view.queue is not None}
        return DesiredState(self._entries() if entries else (), blocks, ports, self.layout, self._rates_kbps, queues)

    # -- tenants ------------------------------------------------------------------------------------------------------

    def partition(
        self, model: SliceModel, blocks: Mapping[str, Block], entries: Callable[[], tuple[ClassifierEntry, ...]]
    ) -> list[Tenant]:
        """The tenants as the slices want them; returns those that are gone (their block is another's, or they are)."""
        self._entries = entries
        self.model = model
        self.regions = Regions(entries)
        ports = self._slice_ports.of(model, self.dpid, self.names)
        self._rates_kbps = {
            block.number: max(1, round(rate * 1000))
            for name, block in blocks.items()
            if (rate := own_limits(model, name).rate_in_mbps) is not None
        }
        before, self.tenants = self.tenants, {}
        for name, block in blocks.items():
            mine = ports.get(name, frozenset())
            old = before.get(name)
            if old is not None and old.view.block == block:
                old.view.ports, old.view.regions = mine, self.regions
                self.tenants[name] = old
            else:
                same = old is not None and old.view.number == block.number
                self.tenants[name] = self._new_tenant(name, block, mine, old if same else None)
            _set_limits(self.tenants[name], model.slices[name], own_limits(model, name))
        if self.session is not None:
            self.session.serve(self.regions, self.tenants.values())
        return [tenant for name, tenant in before.items() if self.tenants.get(name) is not tenant]

    def _new_tenant(self, name: str, block: Block, ports: frozenset[int], old: Tenant | None) -> Tenant:
        if old is not None:
            groups, meters = old.view.groups, old.view.meters
        else:
            groups, meters = IdMap(self._groups, 0), IdMap(self._meters, 0)
            saved = self._saved.pop(name, {})
            for ids, pairs in ((groups, saved.get("groups", {})), (meters, saved.get("meters", {}))):
                for guest, real in pairs.items():
                    ids.put(guest, real)
        view = GuestView(block, ports, self.regions, groups, meters, self.layout)
        # Whoever leads the slice does so on other tables, too: an older leader must not come back by a change.
        roles = Roles() if old is None else old.roles
        return Tenant(name, view, frozenset(), bucket_of(0), bucket_of(0), EntryQuota(0), roles)

    def stale_entries(self, gone: Iterable[Tenant]) -> list[bytes]:
        """Deletes for what slices that are no more have besides rules."""
        messages: list[bytes] = []
        for tenant in gone:
            now = self.tenants.get(tenant.name)
            if now is None or now.view.number != tenant.view.number:
                messages += [group_message(_DELETE, real) for real in tenant.view.groups.clear()]
                messages += [meter_message(_DELETE, real) for real in tenant.view.meters.clear()]
        return messages

    async def send(self, messages: list[bytes]) -> None:
        """What keeps slices apart, and wait for the answer; a refusal ends the connection."""
        if messages and self.link is not None:
            link = self.link
            answers = await link.exchange(messages)
            if answers.errors:
                link.end(f"it refused what keeps slices apart: {reasons(answers.errors)}")
                raise SliceError(f"switch {self.dpid:#x} refused: {reasons(answers.errors)}")

    async def install(self, wanted: Stages) -> None:
        """All stages, a barrier between them: half a classifier keeps nobody apart."""
        await self.send([message for stage in wanted for message in (*stage, wire.barrier_request(0))])

    # -- numbers ------------------------------------------------------------------------------------------------------

    def reconcile(self, groups: Collection[int], meters: Collection[int]) -> None:
        """Keep those pairs of numbers that the switch still has; what nobody knows is never given out."""
        for tenant in self.tenants.values():
            for ids, there in ((tenant.view.groups, groups), (tenant.view.meters, meters)):
                for real in list(ids.pairs().values()):
                    if real not in there:
                        ids.forget(real)
        for pool, there in ((self._groups, groups), (self._meters, meters)):
            for real in there:
                pool.claim(real)

    def saved(self) -> Pairs:
        """The pairs of numbers by slice and kind, for the state file."""
        found = {
            name: {"groups": tenant.view.groups.pairs(), "meters": tenant.view.meters.pairs()}
            for name, tenant in self.tenants.items()
        }
        return {**self._saved, **{name: each for name, each in found.items() if any(each.values())}}

    def guests(self) -> list[GuestLink]:
        """The connections to controllers of its slices."""
        return [] if self.link is None else list(self.link.guests.values())

    async def check_again(self) -> None:
        """Delete what of the guests' rules and groups would be refused today, change what would be another."""
        if self.link is None:
            return
        found = contents_of((await self.link.exchange(questions()[1:4])).replies, self.layout.slice_shift)
        for tenant in list(self.tenants.values()):
            wrong = maintenance.groups_to_mend(found.groups, tenant.view)
            tables = [t for t in tenant.view.block.tables if t in found.active]
            if tables and self.link is not None:
                replies = (await self.link.exchange([wire.flow_stats_request(0, table=t) for t in tables])).replies
                for message in replies:
                    for count, mend in enumerate(maintenance.rules_to_mend(message[16:], tenant.view), 1):
                        if mend is not None:
                            wrong.append(mend)
                        if not count % _FEW:
                            await asyncio.sleep(0)
            if wrong:
                words = "switch %#x: slice %s: %d rules and groups left the slice, or are others now"
                LOG.info(words, self.dpid, tenant.name, len(wrong))
                await self.send(wrong)

    async def count_entries(self) -> None:
        """How many entries each slice has."""
        if self.link is None:
            return
        before = {name: tenant.entries.added for name, tenant in self.tenants.items()}
        answers = await self.link.exchange([count_question()])
        active = active_entries([message[16:] for message in answers.replies])
        self.counted_s = asyncio.get_running_loop().time()
        for name, tenant in self.tenants.items():
            found = sum(active.get(table, 0) for table in tenant.view.block.tables)
            tenant.entries.counted(found, max(0, tenant.entries.added - before.get(name, 0)))

    def drop(self, gone: Iterable[Tenant]) -> None:
        """End the connections of slices that are gone, or have other tables."""
        names = {tenant.name for tenant in gone}
        for key in [key for key in self.dialling if key[0] in names]:
            self.dialling.pop(key).cancel()
        for guest in self.guests():
            if guest.tenant.name in names:
                guest.leave()

    def tell_ports(self, before: Mapping[int, frozenset[int]], records: dict[int, bytes]) -> None:
        """Events for guests whose slice lost or got ports."""
        if self.link is None or self.session is None:
            return
        for tenant in self.tenants.values():
            if tenant.view.number not in before:
                continue
            for message in status_messages(before[tenant.view.number], tenant.view.ports, records):
                for guest, each in self.session.tell(tenant, message).guests:
                    self.link.guests[guest].tell(each)
        self.link.turn_ends()


def _set_limits(tenant: Tenant, each: Slice, limits: Limits) -> None:
    tenant.permissions = each.permissions
    tenant.view.groups.quota, tenant.view.meters.quota = limits.groups, limits.meters
    tenant.entries.most = limits.flow_entries
    tenant.view.queue = limits.queue
    if tenant.packet_ins.rate_per_s != limits.packet_ins_per_s:
        tenant.packet_ins = bucket_of(limits.packet_ins_per_s)
    if tenant.changes.rate_per_s != limits.flow_mods_per_s:
        tenant.changes = bucket_of(limits.flow_mods_per_s)


def reasons(errors: list[bytes]) -> str:
    """Errors of a switch in a few words."""
    kinds = sorted({(int.from_bytes(e[8:10], "big"), int.from_bytes(e[10:12], "big")) for e in errors})
    return ", ".join(f"error type {kind}, code {code}" for kind, code in kinds[:3]) + f" ({len(errors)} in all)"


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
