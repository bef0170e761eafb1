"""One switch behind the slicer: which message of whom becomes which messages to whom (docs/explanation/slicing.md).

Sans I/O: the shell splits byte streams into whole messages, passes them in with the time, and sends what comes out. A
*guest* is one controller's connection of a slice; the shell numbers guests and does HELLO and TLS with them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from struct import Struct

from hyroads.controller.control.slots import Histogram
from hyroads.controller.ofp import guard, wire
from hyroads.slices.core import errors
from hyroads.slices.core.errors import Refused, bad_request
from hyroads.slices.core.model import Permission
from hyroads.slices.native.layout import (
    FIRST_XID,
    GUESTS,
    PORTS,
    Bucket,
    Line,
    Sent,
    SharedSwitch,
    SharedTenant,
    words_of,
)

from .flow_mod import translate
from .group_mod import translate_group_mod, translate_meter_mod
from .guest_view import GuestView
from .multipart import MORE, Answer, requests
from .packets import NO_BLOCK, owner_outside_blocks, packet_in, packet_out
from .ports import MODIFIED, event_port, own_queue_config
from .readback import flow_removed
from .region import Regions
from .roles import SLAVE, AsyncConfig, Roles
from .xids import FIRST_OWN, Buffers, EntryQuota, Request, Xids, answer

ANSWER_BOUNDS_S = (0.0005, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0)
_CHANGES = frozenset({wire.PACKET_OUT, wire.FLOW_MOD, wire.GROUP_MOD, wire.PORT_MOD, wire.TABLE_MOD, wire.METER_MOD})
_OWN = FIRST_OWN >> 24
_CONFIG = Struct("!HH")
_U32 = Struct("!I")
_IMPOSSIBLE = {
    wire.EXPERIMENTER: (errors.BAD_REQUEST, 3, "experimenter messages are not possible in a slice"),
    wire.PORT_MOD: (errors.PORT_MOD_FAILED, 4, "ports are shared"),
    wire.TABLE_MOD: (errors.TABLE_MOD_FAILED, 2, "tables are shared"),
}
_PERMISSION, _BAD_TYPE, _BAD_VERSION, _BAD_LEN, _UNKNOWN_BUFFER = 5, 1, 0, 6, 8


@dataclass
class Tenant:
    """A slice on this switch: its virtual switch, its limits, its guests."""

    name: str
    view: GuestView
    permissions: frozenset[Permission]
    packet_ins: Bucket
    changes: Bucket
    entries: EntryQuota
    roles: Roles = field(default_factory=Roles)
    guests: set[int] = field(default_factory=set)
    refused: int = 0
    """Messages of guests that were answered with an error of ours since that was told, and why the last one was."""
    last_refusal: str = ""
    refusals: int = 0
    """How many messages of guests were refused so far."""
    answers: Histogram = field(default_factory=lambda: Histogram(ANSWER_BOUNDS_S))
    """How long the switch took to answer messages of guests."""
    shared: SharedTenant = field(default_factory=SharedTenant)
    """What the fast path knows of the slice, and counts."""
    _shared_parts: tuple[object, ...] = ()

    @property
    def messages(self) -> int:
        """Messages of guests so far."""
        return int(self.shared.messages)

    @messages.setter
    def messages(self, count: int) -> None:
        self.shared.messages = count

    @property
    def dropped_packet_ins(self) -> int:
        """Packet-ins that were too many."""
        return int(self.shared.dropped_packet_ins)

    @dropped_packet_ins.setter
    def dropped_packet_ins(self, count: int) -> None:
        self.shared.dropped_packet_ins = count

    def publish(self) -> None:
        """Tell the fast path of limits, tables and ports. What leaves at which port it learns later."""
        shared, view = self.shared, self.view
        shared.ports_known = 0
        parts = (self.packet_ins, self.changes, self.entries, view.ports, view.queue)
        if len(parts) == len(self._shared_parts) and all(map(is_, parts, self._shared_parts)):
            return
        self._shared_parts = parts
        shared.packet_ins = ctypes.addressof(self.packet_ins)
        shared.changes = ctypes.addressof(self.changes)
        shared.entries = ctypes.addressof(self.entries)
        shared.metadata_mask = view.layout.guest_metadata_mask
        shared.queue = -1 if view.queue is None else view.queue
        shared.first_table, shared.table_count = view.block.first, view.block.count
        shared.ports = words_of(view.ports)


@dataclass(frozen=True, slots=True)
class FastGuest:
    """A guest's connection as the fast path has it, and what was sent on there under an id, once."""

    line: Line
    asked: Callable[[int], Sent | None]


@dataclass
class _Guest:
    tenant: Tenant
    wants: AsyncConfig = field(default_factory=AsyncConfig)
    config: bytes = _CONFIG.pack(0, 128)
    fast: FastGuest | None = None


@dataclass
class Out:
    """What to send: to the switch, and (guest, message) to guests."""

    switch: list[bytes] = field(default_factory=list)
    guests: list[tuple[int, bytes]] = field(default_factory=list)
    own: list[bytes] = field(default_factory=list)
    """Answers to the slicer's own messages, and events of ports."""


class SwitchSession:
    """The state of one switch's connection. ``key`` authenticates discovery frames and is one for all switches.

    With ``line``, the connection as the fast path has it, messages of both sides may pass without being seen here.
    """

    def __init__(
        self, features_reply: bytes, regions: Regions, tenants: Iterable[Tenant], key: bytes, line: Line | None = None
    ) -> None:
        self._shared: SharedSwitch | None = None
        if line is not None:
            self._shared = SharedSwitch(line=ctypes.addressof(line), next_xid=FIRST_XID)
            line.switch = ctypes.addressof(self._shared)
        self._guests: dict[int, _Guest] = {}
        self._features = features_reply
        self._regions = regions
        self._key = key
        self._tenants: dict[int, Tenant] = {}
        self._by_table: list[Tenant | None] = []
        self.serve(regions, tenants)
        self._xids = Xids()
        self._buffers = Buffers()
        self._answers: dict[int, Answer] = {}
        self._now_s = 0.0

    def serve(self, regions: Regions, tenants: Iterable[Tenant]) -> None:
        """These slices from now on. Guests of slices that are not among them have left before."""
        self._regions = regions
        self._tenants = {tenant.view.number: tenant for tenant in tenants}
        self._by_table = [None] * 256
        for tenant in self._tenants.values():
            block = tenant.view.block
            self._by_table[block.first : block.first + block.count] = [tenant] * block.count
        if self._shared is not None:
            for tenant in self._tenants.values():
                tenant.publish()
                if tenant.guests:
                    self._publish_guests(tenant)
            addresses = {id(tenant): ctypes.addressof(tenant.shared) for tenant in self._tenants.values()}
            self._shared.tenants[:] = [addresses.get(id(tenant)) for tenant in self._by_table]

    # -- guests come and go -------------------------------------------------------------------------------------------

    def join(self, guest: int, number: int, fast: FastGuest | None = None) -> None:
        """A controller of the slice with this number is connected, HELLO done."""
        tenant = self._tenants[number]
        tenant.guests.add(guest)
        self._guests[guest] = _Guest(tenant, fast=fast)
        if fast is not None and self._shared is not None:
            fast.line.tenant, fast.line.switch = ctypes.addressof(tenant.shared), ctypes.addressof(self._shared)
        self._publish_guests(tenant)

    def leave(self, guest: int) -> None:
        """Its connection is gone: rules stay, answers are nobody's."""
        left = self._guests.pop(guest)
        left.tenant.guests.discard(guest)
        left.tenant.roles.leave(guest)
        self._xids.forget(guest)
        if left.fast is not None:
            left.fast.line.may_change = 0
        self._publish_guests(left.tenant)

    def _publish_guests(self, tenant: Tenant) -> None:
        """Tell the fast path who the guests of a slice are, and what they may and want in their roles."""
        if self._shared is None:
            return
        guests = {guest: self._guests.get(guest) for guest in tenant.guests}
        lines = []
        for guest, each in guests.items():
            if each is not None and each.fast is not None:
                role = tenant.roles.role(guest)
                line = each.fast.line
                line.may_change = Permission.WRITE in tenant.permissions and role != SLAVE
                line.packet_in_reasons = each.wants.reasons(wire.PACKET_IN, role)
                lines.append(ctypes.addressof(line))
        few = len(lines) == len(guests) <= GUESTS
        tenant.shared.guest_count = len(lines) if few else GUESTS + 1
        tenant.shared.guests[:] = (lines + [None] * GUESTS)[:GUESTS]

    def _learn_ports(self, tenant: Tenant) -> None:
        """Tell the fast path at which ports packets of a slice may leave without being looked at."""
        if self._shared is None or tenant.shared.ports_known:
            return
        regions, view = self._regions, tenant.view
        ports = [port for port in view.ports if port < PORTS]
        for port in ports:
            self._shared.kinds[port] = regions.kind(port)
        tenant.shared.whole = words_of([port for port in ports if regions.whole(view.number, port)])
        tenant.shared.uniform = len({regions.kind(port) for port in view.ports}) == 1
        tenant.shared.ports_known = 1

    def tell(self, tenant: Tenant, message: bytes) -> Out:
        """An event of the slicer's own making, for those guests of a slice that want it."""
        out = Out()
        self._event(tenant, message, message[8], out)
        return out

    def pause_s(self, guest: int, now_s: float) -> float:
        """How long not to read from a guest, so that its slice keeps to its messages per second."""
        changes = self._guests[guest].tenant.changes
        return changes.wait_s(now_s) if changes.rate_per_s else 0.0

    # -- from guests --------------------------------------------------------------------------------------------------

    def from_guest(self, guest: int, message: bytes, now_s: float) -> Out:
        """What a whole message of a guest becomes; what is not possible is answered with an OpenFlow error."""
        out = Out()
        sender = self._guests[guest]
        sender.tenant.messages += 1
        self._now_s = now_s
        kind = message[1]
        try:
            if message[0] != wire.VERSION:
                raise bad_request(_BAD_VERSION, f"version {message[0]}")
            handler = _FROM_GUEST.get(kind)
            if handler is None:
                raise bad_request(_BAD_TYPE, f"message of type {kind}")
            if kind in _CHANGES:
                _check_change(guest, sender.tenant)
            handler(self, guest, message, now_s, out)
        except Refused as refusal:
            sender.tenant.changes.spend(1)
            sender.tenant.refused += 1
            sender.tenant.refusals += 1
            sender.tenant.last_refusal = str(refusal)
            out = Out(guests=[(guest, refusal.message(message))])
        return out

    def _forward(
        self, guest: int, request: bytes, messages: Iterable[bytes], out: Out, undo: Callable[[], object] | None = None
    ) -> list[int]:
        """Sends on, and returns the transaction ids; ``undo`` is called if the switch refuses."""
        sent = [self._xids.send(guest, request, message, undo, now_s=self._now_s) for message in messages]
        self._guests[guest].tenant.changes.spend(len(sent))
        out.switch += sent
        return [int.from_bytes(message[4:8], "big") for message in sent]

    def _nothing(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        """HELLO, echo replies and errors end here."""

    def _echo(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        out.guests.append((guest, message[:1] + bytes((wire.ECHO_REPLY,)) + message[2:]))

    def _features_request(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        count = self._guests[guest].tenant.view.block.count
        reply = self._features
        out.guests.append((guest, reply[:4] + message[4:8] + reply[8:20] + bytes((count,)) + reply[21:]))

    def _get_config(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        out.guests.append((guest, wire.message(self._guests[guest].config, _xid(message), 8)))

    def _set_config(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        if len(message) != 12:
            raise bad_request(_BAD_LEN, "set-config")
        self._guests[guest].config = message[8:12]

    def _packet_out(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        view = self._guests[guest].tenant.view
        self._forward(guest, message, [packet_out(message, view, self._buffers, self._key, now_s)], out)

    def _flow_mod(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        tenant = self._guests[guest].tenant
        messages = translate(message, tenant.view)
        (buffer,) = _U32.unpack_from(message, 32)
        if message[25] < 3 and buffer != wire.NO_BUFFER and not self._buffers.take(buffer, tenant.view.number, now_s):
            raise bad_request(_UNKNOWN_BUFFER, f"buffer {buffer:#x} is not of the slice")
        if message[25] == 0 and not tenant.entries.add():
            raise Refused(errors.FLOW_MOD_FAILED, 1, f"the slice has {tenant.entries.most} entries at most")
        self._forward(guest, message, messages, out)
        if message[25] < wire.DELETE:
            self._learn_ports(tenant)

    def _numbered_mod(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        """Of groups and meters: a number whose add the switch refuses is free again."""
        view = self._guests[guest].tenant.view
        group = message[1] == wire.GROUP_MOD
        messages = (translate_group_mod if group else translate_meter_mod)(message, view)
        ids, number = view.groups if group else view.meters, int.from_bytes(message[12:16], "big")
        self._forward(guest, message, messages, out, partial(ids.remove, number) if message[9] == 0 else None)

    def _impossible(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        raise Refused(*_IMPOSSIBLE[message[1]])

    def _multipart(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        xids = self._forward(guest, message, requests(message, self._guests[guest].tenant.view), out)
        joined = Answer(_xid(message), len(xids))
        self._answers |= dict.fromkeys(xids, joined)

    def _barrier(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        if len(message) != wire.HEADER.size:
            raise bad_request(_BAD_LEN, "barrier")
        self._forward(guest, message, [message], out)

    def _queues(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        if len(message) != 16 or _U32.unpack_from(message, 8)[0] not in self._guests[guest].tenant.view.ports:
            raise Refused(9, 0, "the port is not of the slice")
        self._forward(guest, message, [message], out)

    def _role(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        tenant = self._guests[guest].tenant
        out.guests.append((guest, tenant.roles.request(guest, message)))
        self._publish_guests(tenant)

    def _get_async(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        out.guests.append((guest, wire.message(self._guests[guest].wants.masks, _xid(message), 27)))

    def _set_async(self, guest: int, message: bytes, now_s: float, out: Out) -> None:
        self._guests[guest].wants = AsyncConfig.of_message(message)
        self._publish_guests(self._guests[guest].tenant)

    # -- from the switch ----------------------------------------------------------------------------------------------

    def from_switch(self, message: bytes, now_s: float) -> Out:
        """What a whole message of the switch becomes; :class:`HyroadsError` if it is malformed."""
        guard.check(message)
        out = Out()
        handler = _FROM_SWITCH.get(message[1])
        if handler is not None:
            handler(self, message, now_s, out)
        return out

    def _echo_switch(self, message: bytes, now_s: float, out: Out) -> None:
        out.switch.append(message[:1] + bytes((wire.ECHO_REPLY,)) + message[2:])

    def _packet_in(self, message: bytes, now_s: float, out: Out) -> None:
        # The table that it comes from says whose it is, unless that is the classifier or none.
        table = message[15]
        tenant = (
            self._tenants.get(owner_outside_blocks(message, self._regions))
            if table in NO_BLOCK
            else self._by_table[table]
        )
        if tenant is None or not tenant.guests:
            return
        found = packet_in(message, tenant.view, self._key, now_s)
        if found is None:
            return
        if not tenant.packet_ins.take(now_s):
            tenant.dropped_packet_ins += 1
            return
        (buffer,) = _U32.unpack_from(message, 8)
        if buffer != wire.NO_BUFFER:
            self._buffers.tell(buffer, tenant.view.number, now_s)
        self._event(tenant, found, found[14], out)

    def _event(self, tenant: Tenant, message: bytes, reason: int, out: Out) -> None:
        """An asynchronous message for those guests that want it in their role."""
        kind = message[1]
        for guest in tenant.guests:
            if self._guests[guest].wants.wants(kind, reason, tenant.roles.role(guest)):
                out.guests.append((guest, message))

    def _flow_removed(self, message: bytes, now_s: float, out: Out) -> None:
        tenant = self._by_table[message[19]]
        if tenant is not None:
            self._event(tenant, flow_removed(message, tenant.view), message[18], out)

    def _port_status(self, message: bytes, now_s: float, out: Out) -> None:
        """Ports that come and go change the slices' views first: guests hear of those by ``tell``."""
        out.own.append(message)
        if message[8] != MODIFIED:
            return
        port = event_port(message)
        for tenant in self._tenants.values():
            if port in tenant.view.ports:
                self._event(tenant, message, message[8], out)

    def _answered(self, message: bytes, now_s: float, out: Out) -> None:
        if message[4] & _OWN:
            out.own.append(message)
            return
        asked = self._xids.asked(message) if _xid(message) < FIRST_XID else self._asked_fast(_xid(message))
        joined = self._answers.pop(_xid(message), None)
        if asked is None:
            return
        self._timed(asked, now_s)
        if message[1] == wire.ERROR and asked.undo is not None:
            asked.undo()
        # Of the questions that one became, one error is enough.
        told = joined is not None and joined.failed
        if joined is not None:
            joined.failed = True
        if asked.guest in self._guests and not told:
            if message[1] == wire.QUEUE_CONFIG_REPLY:
                message = own_queue_config(message, self._guests[asked.guest].tenant.view.queue)
            out.guests.append((asked.guest, answer(asked, message)))

    def _asked_fast(self, xid: int) -> Request | None:
        """Whose answer this is of what the fast path sent. After 2^30 messages an id comes again: the newest counts."""
        found: Request | None = None
        for guest, each in self._guests.items():
            sent = None if each.fast is None else each.fast.asked(xid)
            if sent is not None and (found is None or sent.sent_s > found.sent_s):
                found = Request(guest, sent.guest_xid, bytes(sent.head)[: sent.length], sent.sent_s)
        return found

    def _timed(self, asked: Request, now_s: float) -> None:
        """A message of a guest is answered in full."""
        sender = self._guests.get(asked.guest)
        if sender is not None:
            sender.tenant.answers.add(now_s - asked.sent_s)

    def _multipart_reply(self, message: bytes, now_s: float, out: Out) -> None:
        if message[4] & _OWN:
            out.own.append(message)
            return
        more = bool(message[11] & MORE)
        asked = self._xids.asked(message, last=not more)
        joined = self._answers.get(_xid(message)) if more else self._answers.pop(_xid(message), None)
        if asked is not None and not more:
            self._timed(asked, now_s)
        if asked is None or joined is None or joined.failed or asked.guest not in self._guests:
            return
        found = joined.take(message, self._guests[asked.guest].tenant.view)
        if found is not None:
            out.guests.append((asked.guest, found))


def _check_change(guest: int, tenant: Tenant) -> None:
    """Refuses what changes the switch, unless the slice and the guest may."""
    if Permission.WRITE not in tenant.permissions:
        raise bad_request(_PERMISSION, "the slice may not write")
    tenant.roles.check(guest)
    if not tenant.changes.rate_per_s:
        raise bad_request(_PERMISSION, "the slice may send nothing")


def _xid(message: bytes) -> int:
    return int.from_bytes(message[4:8], "big")


_FROM_GUEST: Mapping[int, Callable[[SwitchSession, int, bytes, float, Out], None]] = {
    **dict.fromkeys((wire.HELLO, wire.ERROR, wire.ECHO_REPLY), SwitchSession._nothing),
    wire.ECHO_REQUEST: SwitchSession._echo,
    wire.FEATURES_REQUEST: SwitchSession._features_request,
    wire.GET_CONFIG_REQUEST: SwitchSession._get_config,
    wire.SET_CONFIG: SwitchSession._set_config,
    wire.PACKET_OUT: SwitchSession._packet_out,
    wire.FLOW_MOD: SwitchSession._flow_mod,
    **dict.fromkeys((wire.GROUP_MOD, wire.METER_MOD), SwitchSession._numbered_mod),
    **dict.fromkeys(_IMPOSSIBLE, SwitchSession._impossible),
    wire.MULTIPART_REQUEST: SwitchSession._multipart,
    wire.BARRIER_REQUEST: SwitchSession._barrier,
    wire.QUEUE_CONFIG_REQUEST: SwitchSession._queues,
    wire.ROLE_REQUEST: SwitchSession._role,
    wire.GET_ASYNC_REQUEST: SwitchSession._get_async,
    wire.SET_ASYNC: SwitchSession._set_async,
}
_FROM_SWITCH: Mapping[int, Callable[[SwitchSession, bytes, float, Out], None]] = {
    wire.ECHO_REQUEST: SwitchSession._echo_switch,
    wire.PACKET_IN: SwitchSession._packet_in,
    wire.FLOW_REMOVED: SwitchSession._flow_removed,
    wire.PORT_STATUS: SwitchSession._port_status,
    wire.MULTIPART_REPLY: SwitchSession._multipart_reply,
    **dict.fromkeys((wire.ERROR, wire.BARRIER_REPLY, wire.QUEUE_CONFIG_REPLY), SwitchSession._answered),
}
