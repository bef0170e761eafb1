"""The slicer: which switches there are, what the slices are, and how one becomes the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from struct import Struct
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.ofp import wire
from hyroads.slices.allocation import Allocation, allocate
from hyroads.slices.change import ModelChange, changed, difference_of
from hyroads.slices.classifier import NO_CLASSIFIER, Classifier, ClassifierChange, classifier_of, difference
from hyroads.slices.errors import SliceError
from hyroads.slices.model import Slice, SliceModel
from hyroads.slices.proxy import recheck
from hyroads.slices.proxy.contents import Contents, active_entries, contents_of, count_question, questions
from hyroads.slices.proxy.ports import DELETED, status_messages
from hyroads.slices.proxy.session import SwitchSession, Tenant
from hyroads.slices.proxy.upkeep import Stages, change_stages, is_sliced, stages
from hyroads.slices.server import tls
from hyroads.slices.server.guest_link import GuestLink, keep_connected
from hyroads.slices.server.settings import SlicerSettings
from hyroads.slices.server.state import Saved
from hyroads.slices.server.switch import Switch
from hyroads.slices.server.switch_link import SwitchLink

LOG = logging.getLogger("hyroads.slicer")

COUNT_S, RECOUNT_S = 0.5, 10.0
_NEARLY_FULL = 0.8
_CONFIG = wire.message(b"\0\0\xff\xff", 0, 9)
"""Packet-ins whole: what a guest may see of a packet does not depend on what another asked for."""
_ASYNC = wire.message(Struct("!6I").pack(7, 0, 7, 7, 15, 0), 0, 28)
_FEW = 64


class Slicer:
    """``saved`` is what survived the last process; ``dirty`` is set whenever that changes."""

    def __init__(self, settings: SlicerSettings, model: SliceModel, saved: Saved, document: str = "") -> None:
        self.settings = settings
        self.model = model
        self.key = saved.key
        self.dirty = asyncio.Event()
        self.switches: dict[int, Switch] = {}
        self.connections = 0
        self._document = document
        self._saved_ids = saved.ids
        self._allocation = allocate(model, saved.allocation.blocks.keys(), saved.allocation, layout=settings.layout)
        self._classifier: Classifier = NO_CLASSIFIER
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    @property
    def allocation(self) -> Allocation:
        """Numbers and tables of all slices."""
        return self._allocation

    def ids(self) -> dict[int, dict[str, dict[str, dict[int, int]]]]:
        """Groups and meters of all guests, for the state file."""
        found = {
            dpid: {n: {k: dict(p) for k, p in kinds.items()} for n, kinds in mine.items()}
            for dpid, mine in self._saved_ids.items()
        }
        return found | {dpid: switch.saved() for dpid, switch in self.switches.items()}

    def ids_changed(self) -> None:
        """A guest made or deleted a group or a meter."""
        self.dirty.set()

    # -- connections --------------------------------------------------------------------------------------------------

    def new_link(self) -> SwitchLink:
        """For a connection that has come in."""
        return SwitchLink(self, self.settings.patience_s)

    def switch_arrived(self, link: SwitchLink) -> None:
        """It said its features: what is in it is looked at next."""
        self.start(self._prepare_or_end(link))

    def switch_left(self, link: SwitchLink) -> None:
        """Its connection is gone; what is installed stays."""
        self.connections -= 1
        switch = self.switches.get(link.dpid) if link.features else None
        if switch is not None and switch.link is link:
            self._disconnect(switch)
            LOG.info("switch %#x: gone", switch.dpid)

    def _disconnect(self, switch: Switch) -> None:
        for task in switch.dialling.values():
            task.cancel()
        switch.dialling.clear()
        switch.link = switch.session = None

    def ports_changed(self, link: SwitchLink, status: bytes) -> None:
        """A port came, went or changed."""
        switch = self.switches.get(link.dpid)
        if switch is None or switch.session is None or switch.link is not link:
            link.early.append(status)
        else:
            switch.statuses.append(status)
            if len(switch.statuses) == 1:
                self.start(self._ports(switch))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside; its failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            if isinstance(error, HyroadsError):
                LOG.warning("%s", error)
            else:
                LOG.error("an error of the slicer's own", exc_info=error)

    def close(self) -> None:
        """End all connections. What is installed stays."""
        for switch in self.switches.values():
            link = switch.link
            self._disconnect(switch)
            if link is not None and link.transport is not None:
                link.transport.close()
        for task in self._tasks:
            task.cancel()

    # -- a switch comes -----------------------------------------------------------------------------------------------

    async def _prepare_or_end(self, link: SwitchLink) -> None:
        try:
            # A switch that does not answer keeps nobody else waiting.
            found = await self._look_into(link)
            async with self._changing:
                await self._prepare(link, found)
        except HyroadsError as error:
            link.end(str(error))

    async def _look_into(self, link: SwitchLink) -> Contents:
        layout = self.settings.layout
        if link.features[20] < layout.tables:
            raise SliceError(f"it has {link.features[20]} tables, expected {layout.tables} (see the setting tables)")
        answers = await link.exchange([_CONFIG, _ASYNC, *questions()])
        if answers.errors:
            raise SliceError(f"it refused a question: {_reasons(answers.errors)}")
        return contents_of(answers.replies, layout.slice_shift)

    async def _prepare(self, link: SwitchLink, found: Contents) -> None:
        if link.transport is None:
            return
        switch = self._switch(link.dpid)
        if switch.link is not None:
            other = switch.link
            self._disconnect(switch)
            other.end("the switch has connected again")
        async with switch.lock:
            switch.link, switch.statuses = link, []
            switch.ports = dict(found.ports)
            self._allocate_for(switch)
            gone = self._partition(switch)
            groups = found.groups if is_sliced(found) else {}
            meters = found.meters if is_sliced(found) else {}
            switch.reconcile(groups.keys(), meters.keys())
            await self._install(switch, stages(found, switch.wanted(entries=True)))
            await self._send(switch, switch.leavings(gone))
            switch.session = SwitchSession(link.features, switch.regions, switch.tenants.values(), self.key)
            link.serve(switch.session)
            await self._check_again(switch)
            await self._count(switch)
        LOG.info("switch %#x: %d ports, %d slices", switch.dpid, len(switch.ports), len(switch.tenants))
        self._dial(switch)
        self.dirty.set()
        for status in link.early:
            self.ports_changed(link, status)

    def _switch(self, dpid: int) -> Switch:
        switch = self.switches.get(dpid)
        if switch is None:
            if len(self.switches) >= self.settings.most_switches:
                raise SliceError(f"expected at most {self.settings.most_switches} switches (the setting most_switches)")
            switch = self.switches[dpid] = Switch(dpid, self.settings.layout)
            switch.restore(self._saved_ids.get(dpid, {}))
        return switch

    def _allocate_for(self, switch: Switch) -> None:
        """Tables on a switch that is new, and its classifier for the ports that it has now."""
        known = self._allocation.blocks.keys()
        if switch.dpid not in known:
            self._allocation = allocate(
                self.model, {*known, switch.dpid}, self._allocation, names=(), layout=self.settings.layout
            )
        self._classify(switch)

    def _classify(self, switch: Switch) -> None:
        dpid = switch.dpid
        only = Allocation(self._allocation.numbers, {dpid: self._allocation.blocks[dpid]})
        one = classifier_of(self.model, only, {dpid: switch.names})
        self._classifier = Classifier(
            {**self._classifier.entries, **one.entries}, {**self._classifier.missing_ports, **one.missing_ports}
        )

    def _partition(self, switch: Switch) -> list[Tenant]:
        entries = partial(self._classifier.of_switch, switch.dpid)
        return switch.partition(self.model, self._allocation.blocks[switch.dpid], entries)

    async def _install(self, switch: Switch, wanted: Stages) -> None:
        """All stages, a barrier between them; a refusal ends the connection: half a classifier keeps nobody apart."""
        messages = [message for stage in wanted for message in (*stage, wire.barrier_request(0))]
        if messages:
            await self._send(switch, messages)

    async def _send(self, switch: Switch, messages: list[bytes]) -> None:
        if messages and switch.link is not None:
            link = switch.link
            answers = await link.exchange(messages)
            if answers.errors:
                link.end(f"it refused what keeps slices apart: {_reasons(answers.errors)}")
                raise SliceError(f"switch {switch.dpid:#x} refused: {_reasons(answers.errors)}")

    def _dial(self, switch: Switch) -> None:
        """Connections to exactly the controllers that the slices of this switch have."""
        if switch.link is None or switch.session is None:
            return
        wanted = {
            (name, controller): tenant
            for name, tenant in switch.tenants.items()
            for controller in self.model.slices[name].controllers
        }
        for key in switch.dialling.keys() - wanted.keys():
            switch.dialling.pop(key).cancel()
        for key in wanted.keys() - switch.dialling.keys():
            make = partial(GuestLink, switch.link, switch.session, wanted[key], self.ids_changed)
            switch.dialling[key] = self.start(keep_connected(key[1], self._context, make))

    def _context(self) -> Any:
        return tls.controller_side(self.settings.controllers_tls, self._document)

    # -- the slices change --------------------------------------------------------------------------------------------

    async def put(self, slices: Iterable[Slice], remove: Iterable[str] = ()) -> ModelChange:
        """Slices added or replaced and others removed, in force at every switch that is connected, or a refusal."""
        async with self._changing:
            model, change = changed(self.model, slices, remove)
            return await self._become(model, change)

    async def become(self, model: SliceModel) -> ModelChange:
        """Exactly these slices; the model has been checked."""
        async with self._changing:
            return await self._become(model, difference_of(self.model, model))

    async def _become(self, model: SliceModel, change: ModelChange) -> ModelChange:
        if not change:
            return change
        known = self._allocation.blocks.keys()
        allocation = allocate(model, known, self._allocation, change.names, self.settings.layout)
        ports = {dpid: switch.names for dpid, switch in self.switches.items()}
        classifier = classifier_of(model, allocation, ports, self._classifier, change.names)
        differences = difference(self._classifier, classifier)
        self.model, self._allocation, self._classifier = model, allocation, classifier
        self.dirty.set()
        connected = [switch for switch in self.switches.values() if switch.session is not None]
        results = await asyncio.gather(
            *(self._apply(switch, differences.get(switch.dpid, ClassifierChange())) for switch in connected),
            return_exceptions=True,
        )
        for error in results:
            if isinstance(error, HyroadsError):
                LOG.warning("%s", error)
            elif isinstance(error, BaseException):
                raise error
        return change

    async def _apply(
        self, switch: Switch, change: ClassifierChange, old_ports: Mapping[int, bytes] | None = None
    ) -> None:
        """The slices of now at one switch: guests wait while the switch gets its new classifier."""
        async with switch.lock:
            if switch.session is None or switch.link is None:
                return
            switch.hold_guests()
            try:
                before = switch.wanted()
                gone = self._partition(switch)
                self._drop_guests(switch, gone)
                await self._install(switch, change_stages(change, before, switch.wanted()))
                await self._send(switch, switch.leavings(gone))
                self._tell_ports(switch, before.ports, {**(old_ports or {}), **switch.ports})
            finally:
                switch.release_guests()
            self._dial(switch)
            await self._check_again(switch)

    def _drop_guests(self, switch: Switch, gone: Iterable[Tenant]) -> None:
        names = {tenant.name for tenant in gone}
        for key in [key for key in switch.dialling if key[0] in names]:
            switch.dialling.pop(key).cancel()
        for guest in list(switch.link.guests.values()) if switch.link is not None else ():
            if guest.tenant.name in names:
                guest.leave()

    def _tell_ports(self, switch: Switch, before: Mapping[int, frozenset[int]], records: dict[int, bytes]) -> None:
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

    async def _ports(self, switch: Switch) -> None:
        """Port-status messages that have come: slices may own other ports now."""
        async with self._changing:
            statuses, switch.statuses = switch.statuses, []
            before = dict(switch.ports)
            for status in statuses:
                number = int.from_bytes(status[16:20], "big")
                switch.ports.pop(number, None)
                if status[8] != DELETED:
                    switch.ports[number] = status[16:80]
            if {n: r[16:32] for n, r in before.items()} == {n: r[16:32] for n, r in switch.ports.items()}:
                return
            old = self._classifier
            self._classify(switch)
            change = difference(
                Classifier({switch.dpid: old.entries[switch.dpid]}, {}),
                Classifier({switch.dpid: self._classifier.entries[switch.dpid]}, {}),
            )
            await self._apply(switch, change.get(switch.dpid, ClassifierChange()), before)

    # -- what guests have ---------------------------------------------------------------------------------------------

    async def _check_again(self, switch: Switch) -> None:
        """Delete what of the guests' rules and groups would be refused today."""
        if switch.link is None:
            return
        found = contents_of((await switch.link.exchange(questions()[1:4])).replies, switch.layout.slice_shift)
        for tenant in list(switch.tenants.values()):
            wrong = recheck.groups_to_delete(found.groups, tenant.view)
            block = tenant.view.block
            tables = [t for t in range(block.first, block.first + block.count) if t in found.active]
            if tables and switch.link is not None:
                replies = (await switch.link.exchange(map(recheck.rule_question, tables))).replies
                for message in replies:
                    for count, delete in enumerate(recheck.rules_to_delete(message[16:], tenant.view), 1):
                        if delete is not None:
                            wrong.append(delete)
                        if not count % _FEW:
                            await asyncio.sleep(0)
            if wrong:
                LOG.info(
                    "switch %#x: slice %s: %d rules and groups left the slice", switch.dpid, tenant.name, len(wrong)
                )
                await self._send(switch, wrong)

    async def count_for_ever(self) -> None:
        """How many entries slices have: often where quotas are nearly used up."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(COUNT_S)
            for switch in list(self.switches.values()):
                quotas = [tenant.entries for tenant in switch.tenants.values()]
                tight = any(quota.added and quota.used > _NEARLY_FULL * quota.most for quota in quotas)
                if switch.session is not None and (tight or loop.time() - switch.counted_s > RECOUNT_S):
                    try:
                        await self._count(switch)
                    except HyroadsError as error:
                        LOG.warning("%s", error)

    async def _count(self, switch: Switch) -> None:
        if switch.link is None:
            return
        before = {name: tenant.entries.added for name, tenant in switch.tenants.items()}
        answers = await switch.link.exchange([count_question()])
        active = active_entries([message[16:] for message in answers.replies])
        switch.counted_s = asyncio.get_running_loop().time()
        for name, tenant in switch.tenants.items():
            block = tenant.view.block
            count = sum(active.get(table, 0) for table in range(block.first, block.first + block.count))
            tenant.entries.counted(count, max(0, tenant.entries.added - before.get(name, 0)))


def _reasons(errors: list[bytes]) -> str:
    kinds = sorted({(int.from_bytes(e[8:10], "big"), int.from_bytes(e[10:12], "big")) for e in errors})
    return ", ".join(f"error type {kind}, code {code}" for kind, code in kinds[:3]) + f" ({len(errors)} in all)"
