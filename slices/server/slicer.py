"""The slicer: which switches there are, what the slices are, and how one becomes the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, NamedTuple

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.identity import SWITCH_ROLES, not_of_switch
from hyroads.controller.files.tls import CertificateCheck, Revoked, client_side
from hyroads.controller.ofp import wire
from hyroads.slices.core.allocation import Allocation, allocate
from hyroads.slices.core.change import ModelChange, difference_of
from hyroads.slices.core.classifier import NO_CLASSIFIER, Classifier, Entries, classifier_of, switch_difference
from hyroads.slices.core.errors import SliceError
from hyroads.slices.core.model import SliceModel
from hyroads.slices.core.opt_in import member_changes
from hyroads.slices.core.users import User
from hyroads.slices.native.relay import Relay
from hyroads.slices.proxy.contents import Contents, contents_of, questions
from hyroads.slices.proxy.maintenance import change_stages, is_sliced, stages
from hyroads.slices.proxy.ports import DELETED
from hyroads.slices.proxy.session import SwitchSession, Tenant

from .guest_link import GuestLink, keep_connected
from .settings import SlicerSettings
from .state import Pairs, Saved, ThreadEvents
from .switch import Switch, reasons, refusals
from .switch_link import SwitchLink

LOG = logging.getLogger("hyroads.slicer")

COUNT_S, RECOUNT_S = 0.5, 10.0
CONFIRM_WITHIN_S = 5.0
PROBE_S = 1.0
"""A switch that is connected has so long to show that it lives when another connection says it is the same switch."""
"""How long a change waits for switches; who has not confirmed by then is named."""
REFUSALS_EVERY_S = 2.0
_CONFIG = wire.message(b"\0\0\xff\xff", 0, 9)
"""Packet-ins whole: what a guest may see of a packet does not depend on what another asked for."""
_ASYNC = wire.message(Struct("!6I").pack(7, 0, 7, 7, 15, 0), 0, 28)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A change that was made: which slices differ, and what has not confirmed it in time."""

    change: ModelChange
    version: int
    pending: tuple[str, ...] = ()


class Seen(NamedTuple):
    """What a change was computed from."""

    model: SliceModel
    users: Mapping[str, User]


class StaleError(SliceError):
    """The slices have changed since they were looked at."""


class Slicer:
    """``saved`` is what survived the last process; ``dirty`` is set whenever that changes."""

    def __init__(
        self,
        settings: SlicerSettings,
        model: SliceModel,
        saved: Saved,
        document: str = "",
        relay: Relay | None = None,
    ) -> None:
        self.settings = settings
        self.model = model
        self.users = settings.users
        """Who may join slices, as the settings say it now."""
        self.key = saved.key
        self.relay = relay
        """The fast path, which is the loop's selector then."""
        self.dirty = asyncio.Event()
        self.certificates = CertificateCheck.of(*SWITCH_ROLES, revoked=Revoked(settings.revoked))
        """Which are taken from switches."""
        self.switches: dict[int, Switch] = {}
        self._document = document
        self._saved_ids = saved.ids
        self.allocation = allocate(model, saved.allocation.blocks.keys(), saved.allocation, layout=settings.layout)
        """Numbers and tables of all slices."""
        self._classifier: Classifier = NO_CLASSIFIER
        self._tasks: set[asyncio.Task[None]] = set()
        self.version = 1
        """Rises with every change of the slices."""
        self.events = ThreadEvents()

    def ids(self) -> dict[int, Pairs]:
        """Groups and meters of all guests, for the state file."""
        return {**self._saved_ids, **{dpid: switch.saved() for dpid, switch in self.switches.items()}}

    # -- connections --------------------------------------------------------------------------------------------------

    def switch_arrived(self, link: SwitchLink) -> None:
        """It said its features: what is in it is looked at next."""
        self.start(self._prepare_or_end(link))

    def switch_left(self, link: SwitchLink) -> None:
        """Its connection is gone; what is installed stays."""
        switch = self.switches.get(link.dpid) if link.features else None
        if switch is not None and switch.link is link:
            served = switch.session is not None
            self._disconnect(switch)
            LOG.info("switch %#x: gone", switch.dpid)
            if served:
                self.events.publish("switch.down", {"switch": f"{switch.dpid:#x}"})

    def use_revoked(self, ids: frozenset[str]) -> None:
        """These certificates are revoked from now on: switches with one of them have to go."""
        self.certificates.revoked.ids = ids
        for switch in list(self.switches.values()):
            if switch.link is not None and (problem := switch.link.certificate_fault()):
                switch.link.end(problem)

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
            await self._check_identity(link)
            await self._prepare(link, await self._look_into(link))
        except HyroadsError as error:
            link.end(str(error))

    async def _check_identity(self, link: SwitchLink) -> None:
        """SliceError if a certificate is not of this switch, or if the switch is here already and lives."""
        facts, dpid = link.certificate, link.dpid
        if facts is not None:
            problem = not_of_switch(facts, dpid, any_switch=self.settings.any_switch)
            if problem:
                raise SliceError(problem)
        switch = self.switches.get(dpid)
        old = None if switch is None else switch.link
        if old is not None and await old.lives(PROBE_S):
            self.events.publish("identity.conflict", {"switch": f"{dpid:#x}", "peer": link.peer, "holder": old.peer})
            raise SliceError(f"the switch is connected already, from {old.peer}, and lives")
        if not link.authenticated():
            raise SliceError("another connection has its place")

    async def _look_into(self, link: SwitchLink) -> Contents:
        layout = self.settings.layout
        if link.features[20] < layout.tables:
            raise SliceError(f"it has {link.features[20]} tables, expected {layout.tables} (see the setting tables)")
        answers = await link.exchange([_CONFIG, _ASYNC, *questions()])
        if answers.errors:
            raise SliceError(f"it refused a question: {reasons(answers.errors)}")
        return contents_of(answers.replies, layout.slice_shift)

    async def _prepare(self, link: SwitchLink, found: Contents) -> None:
        if link.transport is None:
            return
        switch = self._switch(link.dpid)
        # Before the lock, too: the old connection may be what it is held for.
        self._end_old(switch)
        async with switch.lock:
            self._end_old(switch)
            if link.transport is None:
                return
            switch.link, switch.statuses = link, []
            switch.ports = dict(found.ports)
            self._allocate_for(switch)
            version, entries, gone = self._partition(switch)
            groups = found.groups if is_sliced(found) else {}
            meters = found.meters if is_sliced(found) else {}
            switch.reconcile(groups.keys(), meters.keys())
            await switch.install(stages(found, switch.wanted(entries=True)))
            await switch.send(switch.stale_entries(gone))
            switch.installed, switch.numbers = entries, _numbers(switch)
            line = link.line if link.can_be_fast else None
            switch.session = SwitchSession(link.features, switch.regions, switch.tenants.values(), self.key, line)
            link.serve(switch.session)
            await switch.check_again()
            await switch.count_entries()
            switch.version = version
            LOG.info("switch %#x: %d ports, %d slices", switch.dpid, len(switch.ports), len(switch.tenants))
            self.events.publish("switch.up", {"switch": f"{switch.dpid:#x}"})
            await self._apply_locked(switch)
            self._dial(switch)
        self.dirty.set()
        for status in link.early:
            self.ports_changed(link, status)

    def _end_old(self, switch: Switch) -> None:
        if switch.link is not None:
            other = switch.link
            self._disconnect(switch)
            other.end("the switch has connected again")

    def _switch(self, dpid: int) -> Switch:
        switch = self.switches.get(dpid)
        if switch is None:
            if len(self.switches) >= self.settings.most_switches:
                raise SliceError(f"expected at most {self.settings.most_switches} switches (the setting most_switches)")
            switch = self.switches[dpid] = Switch(dpid, self.settings.layout, self._saved_ids.get(dpid, {}))
        return switch

    def _allocate_for(self, switch: Switch) -> None:
        """Tables on a switch that is new, and its classifier for the ports that it has now."""
        before, layout = self.allocation, self.settings.layout
        if switch.dpid not in before.blocks:
            self.allocation = allocate(self.model, {*before.blocks, switch.dpid}, before, (), layout)
        self._classify(switch)

    def _classify(self, switch: Switch) -> None:
        dpid = switch.dpid
        only = Allocation(self.allocation.numbers, {dpid: self.allocation.blocks[dpid]})
        one = classifier_of(self.model, only, {dpid: switch.names})
        self._classifier = Classifier({**self._classifier.entries, **one.entries})

    def _partition(self, switch: Switch) -> tuple[int, Mapping[str, Entries], list[Tenant]]:
        """The slices of now at a switch: their version, their entries there, and the tenants that are gone."""
        entries = partial(self._classifier.of_switch, switch.dpid)
        blocks = self.allocation.blocks[switch.dpid]
        switch.numbers |= {block.number for block in blocks.values()}
        gone = switch.partition(self.model, blocks, entries)
        return self.version, self._classifier.entries[switch.dpid], gone

    def _dial(self, switch: Switch) -> None:
        """Connections to exactly the controllers that the slices of this switch have."""
        if switch.link is None or switch.session is None:
            return
        wanted = {
            (name, controller): tenant
            for name, tenant in switch.tenants.items()
            for controller in switch.model.slices[name].controllers
        }
        for key in switch.dialling.keys() - wanted.keys():
            switch.dialling.pop(key).cancel()
        context = partial(client_side, self.settings.controllers_tls, self._document, "controllers_tls")
        for key in wanted.keys() - switch.dialling.keys():
            make = partial(GuestLink, switch.link, switch.session, wanted[key], self)
            switch.dialling[key] = self.start(keep_connected(key[1], context, make))

    # -- the slices change --------------------------------------------------------------------------------------------

    def seen(self) -> Seen:
        """The slices and users of now."""
        return Seen(self.model, self.users)

    async def become(
        self,
        model: SliceModel,
        seen: Seen | None = None,
        *,
        users: Mapping[str, User] | None = None,
        wait: bool = True,
    ) -> Outcome:
        """Exactly these slices, which have been checked, in force at every connected switch that answers in time.

        ``users`` are other users from now on. :class:`StaleError` if the slices or users of now are others than
        ``seen``.
        """
        if seen is not None and (seen.model is not self.model or seen.users is not self.users):
            raise StaleError("the slices have changed meanwhile")
        change = difference_of(self.model, model)
        if change:
            self._replace(model, change)
        if users is not None:
            self.users = users
        behind = [s for s in self.switches.values() if s.link is not None and s.version < self.version]
        # One that is still being prepared gets the slices of now, too, but is not waited for.
        served = {s.dpid for s in behind if s.session is not None}
        tasks = {s.dpid: self._bring(s) for s in behind}
        if wait and served:
            await asyncio.wait([tasks[dpid] for dpid in served], timeout=CONFIRM_WITHIN_S)
        return Outcome(change, self.version, self.pending(self.version))

    def _replace(self, model: SliceModel, change: ModelChange) -> None:
        """Other slices from now on; :class:`AllocationError` if a switch has no tables for them."""
        known = self.allocation.blocks.keys()
        busy = frozenset(number for switch in self.switches.values() for number in switch.numbers)
        allocation = allocate(model, known, self.allocation, change.names, self.settings.layout, busy=busy)
        ports = {dpid: switch.names for dpid, switch in self.switches.items()}
        classifier = classifier_of(model, allocation, ports, self._classifier, change.names)
        before = self.model
        self.model, self.allocation, self._classifier = model, allocation, classifier
        self.version += 1
        self.dirty.set()
        for kind in ("added", "changed", "removed"):
            for name in sorted(getattr(change, kind)):
                self.events.publish(f"slice.{kind}", {"slice": name})
        for kind, name, user in member_changes(before, model, change.names):
            self.events.publish(f"opt_in.{kind}", {"slice": name, "user": user})

    def pending(self, version: int) -> tuple[str, ...]:
        """The switches that have not confirmed the slices of a version: also those that are away, which forward by the
        entries that they have, however long they are away.
        """
        return tuple(f"switch {s.dpid:#x}" for s in self.switches.values() if s.version < version)

    def _bring(self, switch: Switch) -> asyncio.Task[None]:
        """The task that brings a switch to the slices of now: one waits at most."""
        if switch.queued is None:
            switch.queued = self.start(self._apply(switch))
        return switch.queued

    async def _apply(self, switch: Switch) -> None:
        async with switch.lock:
            switch.queued = None
            await self._apply_locked(switch)

    async def _apply_locked(self, switch: Switch, old_ports: Mapping[int, bytes] | None = None) -> None:
        """The slices of now at one switch: guests wait while the switch gets its new classifier."""
        if switch.session is None or (switch.version == self.version and old_ports is None):
            return
        for guest in switch.guests():
            guest.hold("change")
        try:
            before, installed = switch.wanted(), switch.installed
            version, entries, gone = self._partition(switch)
            switch.drop(gone)
            change = switch_difference(installed, entries)
            await switch.install(change_stages(change, before, switch.wanted()))
            await switch.send(switch.stale_entries(gone))
            switch.installed, switch.numbers = entries, _numbers(switch)
            switch.tell_ports(before.ports, {**(old_ports or {}), **switch.ports})
        finally:
            for guest in switch.guests():
                guest.release("change")
        self._dial(switch)
        await switch.check_again()
        switch.version = version

    async def _ports(self, switch: Switch) -> None:
        """Port-status messages that have come: slices may own other ports now."""
        async with switch.lock:
            statuses, switch.statuses = switch.statuses, []
            before = dict(switch.ports)
            for status in statuses:
                number = int.from_bytes(status[16:20], "big")
                switch.ports.pop(number, None)
                if status[8] != DELETED:
                    switch.ports[number] = status[16:80]
            if {n: r[16:32] for n, r in before.items()} != {n: r[16:32] for n, r in switch.ports.items()}:
                self._classify(switch)
                await self._apply_locked(switch, before)

    # -- what guests have and do --------------------------------------------------------------------------------------

    def guest_told(self, guest: GuestLink, what: str) -> None:
        """A guest has ``connected`` or ``disconnected``."""
        document = {"slice": guest.tenant.name, "switch": f"{guest.switch.dpid:#x}", "controller": guest.address}
        self.events.publish(f"guest.{what}", document)

    async def count_for_ever(self) -> None:
        """How many entries slices have: often where quotas are nearly used up."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(COUNT_S)
            for switch in list(self.switches.values()):
                due = any(tenant.entries.due for tenant in switch.tenants.values())
                if switch.session is not None and (due or loop.time() - switch.counted_s > RECOUNT_S):
                    self.start(switch.count_entries())
                    switch.counted_s = loop.time()

    async def tell_refusals_for_ever(self) -> None:
        """Events of what guests were refused, summed up: a hostile one must not fill the log."""
        while True:
            await asyncio.sleep(REFUSALS_EVERY_S)
            for document in refusals(self.switches.values()):
                self.events.publish("guest.refused", document)


def _numbers(switch: Switch) -> frozenset[int]:
    return frozenset(tenant.view.number for tenant in switch.tenants.values())
