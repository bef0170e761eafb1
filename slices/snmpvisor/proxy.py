"""The proxy between the slices' managers and the devices: datagrams in, datagrams out, time as an argument. Pure.

A request is checked (``frontend``) and becomes one or more requests to the device (``requests``, ``backend``), whose
answers lead to the slice's answer. A device that does not answer is asked again once, then the request is given up:
managers ask again themselves. Every SET, and every refusal of one, is told to ``audit``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.control.slots import Histogram
from hyroads.controller.core.admission import network_of
from hyroads.controller.core.token_bucket import Buckets, Limit, TokenBucket

from .backend import Backend, Prefetch
from .config import Interface
from .frontend import Frontend, Request
from .pdu import END_OF_VIEW, Binding, Kind, Oid, Pdu, SnmpError, Status, oid_text
from .requests import (
    BSS_RADIO,
    BSS_SLICE,
    IF_NAME,
    SECRETS,
    Ask,
    Exchange,
    Scope,
    interface_numbers,
    networks,
    scope_of,
    sees_device,
    serve,
)
from .view import Arbiter, Wish

Peer = Any
"""Where a manager is; whatever the sockets use."""
ANSWER_WITHIN_S = 0.7
SET_WITHIN_S = 12.0
"""A radio that starts anew takes its time."""
TRIES = 2
REFRESH_S = 10.0
MOST_PENDING, MOST_OF_A_SLICE = 4096, 256
MOST_NAMES = 4096
REPORTS = Limit(per_s=20.0, burst=60.0)
"""Of SNMPv3, to one address: senders of these have not proved who they are, so the address may be a victim's."""
TRAPS = Limit(per_s=50.0, burst=200.0)
"""Of one device: the sender of a trap is not authenticated, and each goes to the managers of several slices."""
BOUNDS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
# Every trap begins with the time and its own name.
TRAP_HEAD = 2


@dataclass(frozen=True, slots=True)
class ToManager:
    """A datagram for who asked."""

    peer: Peer
    data: bytes


@dataclass(frozen=True, slots=True)
class ToDevice:
    """A datagram for a device."""

    device: str
    data: bytes


Out = ToManager | ToDevice


@dataclass(frozen=True)
class Audited:
    """A SET: who wanted what, and what became of it ("done", or the name of the error)."""

    slice_name: str
    device: str
    peer: Peer
    bindings: tuple[Binding, ...]
    result: str


@dataclass
class Served:
    """What became of the requests of a slice's managers to a device."""

    requests: int = 0
    refusals: int = 0
    unanswered: int = 0
    answers: Histogram = field(default_factory=lambda: Histogram(BOUNDS_S))


@dataclass
class _Pending:
    """What waits for an answer of a device. Without ``asked`` it is our own look at the interfaces."""

    device: str
    exchange: Exchange
    sent: Pdu
    due_s: float
    tries: int = 1
    asked: Request | None = None
    peer: Peer = None
    began_s: float = 0.0


@dataclass
class _DeviceState:
    backend: Backend
    interfaces: Mapping[str, Interface]
    """Those of the settings, and the wireless networks that the device says belong to slices."""
    index_of: dict[str, int] | None = None
    """Interfaces by name; None before they were looked at."""
    look_at_s: float = 0.0
    looking: bool = False
    answered_s: float | None = None
    is_up: bool = False
    traps: TokenBucket = field(default_factory=lambda: TokenBucket(TRAPS.per_s, TRAPS.burst))
    scopes: dict[str, Scope] = field(default_factory=dict)
    prefetch: dict[str, Prefetch] = field(default_factory=dict)


@dataclass
class Proxy:
    """Datagrams of managers and devices, for all devices and slices of the settings."""

    frontend: Frontend
    audit: Callable[[Audited], None] = lambda audited: None
    now_s: float = 0.0

    def __post_init__(self) -> None:
        devices = self.frontend.settings.devices
        self._devices = {name: _DeviceState(Backend(each), each.interfaces) for name, each in devices.items()}
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._waiting: set[tuple[Peer, str, int]] = set()
        self._of_slice: Counter[str] = Counter()
        self._arbiter = Arbiter(self.frontend.settings.rule)
        self.served: dict[tuple[str, str], Served] = {}
        """By slice and device; there are no others than those of the settings."""
        self._reports = Buckets(REPORTS)
        self.unidentified = 0
        """Datagrams of managers that belong to no slice: unknown communities and users, questions for our engine."""

    # -- what comes in

    def from_manager(self, data: bytes, peer: Peer, now_s: float) -> list[Out]:
        """A datagram of a manager."""
        self.now_s = now_s
        try:
            asked = self.frontend.asked(data, now_s)
        except SnmpError:
            self.unidentified += 1
            return []
        if isinstance(asked, bytes):
            self.unidentified += 1
            is_too_often = self._reports.take(_address_of(peer), now_s) > 0
            return [] if is_too_often else [ToManager(peer, asked)]
        served = self._served(asked)
        served.requests += 1
        try:
            return self._begin(asked, peer)
        except SnmpError:
            served.unanswered += 1
            return []

    def _served(self, asked: Request) -> Served:
        return self.served.setdefault((asked.slice_name, asked.device), Served())

    def targets(self) -> list[tuple[str, float | None, bool]]:
        """Of each device: its name, when it last answered, and whether it does."""
        return [(name, state.answered_s, state.is_up) for name, state in self._devices.items()]

    def from_device(self, device: str, data: bytes, now_s: float) -> list[Out]:
        """A datagram of a device."""
        self.now_s = now_s
        state = self._devices[device]
        try:
            known = state.backend.is_known
            pdu = state.backend.answered(data, now_s)
        except SnmpError:
            return []
        state.answered_s, state.is_up = now_s, True
        if pdu is None:
            return self._resend(device) if known else [*self._resend(device), *self.tick(now_s)]
        pending = self._pending.pop((device, pdu.request_id), None)
        return self._step(pending, pdu) if pending is not None else []

    def from_trap(self, data: bytes, host: str, now_s: float) -> list[Out]:
        """A trap or inform of a device; goes to the slices that see all that it speaks of."""
        self.now_s = now_s
        # Devices behind another visor have its address.
        found = ((name, each) for name, each in self._devices.items() if each.backend.device.address.host == host)
        device, pdu = next(((name, pdu) for name, each in found if (pdu := _trapped(each.backend, data))), ("", None))
        if pdu is None or not self._devices[device].traps.take(now_s):
            return []
        out: list[Out] = []
        for name, each in self.frontend.settings.slices.items():
            scope = self.scope(device, name) if each.traps is not None else None
            if scope is not None and all(scope.view.access(b.oid) for b in pdu.bindings[TRAP_HEAD:]):
                trap = Pdu(Kind.TRAP, pdu.request_id, pdu.bindings)
                out.append(ToManager(each.traps, self.frontend.trap(name, device, trap, now_s)))
        return out

    def tick(self, now_s: float) -> list[Out]:
        """Time went by: a few times a second."""
        self.now_s = now_s
        out: list[Out] = []
        for key in [key for key, each in self._pending.items() if now_s >= each.due_s]:
            out += self._late(self._pending.pop(key))
        for name, state in self._devices.items():
            if not state.looking and now_s >= state.look_at_s:
                out += self._look(name, state)
        return out

    def scope(self, device: str, slice_name: str) -> Scope | None:
        """What a slice sees of a device; None if that is not known yet, or nothing."""
        state = self._devices[device]
        if state.index_of is None or not sees_device(slice_name, state.interfaces):
            return None
        found = state.scopes.get(slice_name)
        if found is None:
            ask = self._principal(device, state.interfaces)
            found = state.scopes[slice_name] = scope_of(slice_name, state.interfaces, state.index_of, ask)
        return found

    # -- inside

    def _begin(self, asked: Request, peer: Peer) -> list[Out]:
        scope = self.scope(asked.device, asked.slice_name)
        if scope is None:
            raise SnmpError("the device is not reached yet, or the slice has nothing there")
        key = (peer, asked.slice_name, asked.pdu.request_id)
        if key in self._waiting:
            return []
        if len(self._pending) >= MOST_PENDING or self._of_slice[asked.slice_name] >= MOST_OF_A_SLICE:
            raise SnmpError("too many requests under way")
        prefetch = self._devices[asked.device].prefetch.setdefault(asked.slice_name, Prefetch())
        if asked.pdu.kind is Kind.GET_NEXT and len(asked.pdu.bindings) == 1:
            known = prefetch.find(asked.pdu.bindings[0].oid, self.now_s)
            if known is not None:
                self._served(asked).answers.add(0.0)
                return [ToManager(peer, self.frontend.answer(asked, asked.pdu.response((known,)), self.now_s))]
        exchange = serve(scope, prefetch.request(asked.pdu) or asked.pdu)
        self._waiting.add(key)
        self._of_slice[asked.slice_name] += 1
        pending = _Pending(asked.device, exchange, asked.pdu, 0.0, asked=asked, peer=peer, began_s=self.now_s)
        return self._step(pending, None)

    def _step(self, pending: _Pending, answer: Pdu | None) -> list[Out]:
        try:
            wanted = next(pending.exchange) if answer is None else pending.exchange.send(answer)
        except StopIteration as end:
            return self._done(pending, end.value)
        except SnmpError:
            return self._done(pending, None)
        backend = self._devices[pending.device].backend
        pending.sent, pending.tries = wanted.numbered(backend.number()), 1
        return self._send(pending)

    def _send(self, pending: _Pending) -> list[Out]:
        backend = self._devices[pending.device].backend
        pending.due_s = self.now_s + (SET_WITHIN_S if pending.sent.kind is Kind.SET else ANSWER_WITHIN_S)
        self._pending[pending.device, pending.sent.request_id] = pending
        return [
            ToDevice(
                pending.device, backend.request(pending.sent, self.now_s) if backend.is_known else backend.discovery()
            )
        ]

    def _resend(self, device: str) -> list[Out]:
        """The device corrected our idea of its time: what waits for it goes out again."""
        mine = [each for (name, _), each in self._pending.items() if name == device and each.tries < TRIES]
        out: list[Out] = []
        for each in mine:
            each.tries += 1
            out += self._send(each)
        return out

    def _late(self, pending: _Pending) -> list[Out]:
        # What may have been carried out is not asked for twice.
        if pending.tries < TRIES and pending.sent.kind is not Kind.SET:
            pending.tries += 1
            return self._send(pending)
        self._devices[pending.device].backend.forget_engine()
        self._devices[pending.device].is_up = False
        return self._done(pending, None)

    def _done(self, pending: _Pending, answer: Pdu | None) -> list[Out]:
        """The exchange is over; without an answer the manager hears nothing and asks again."""
        pending.exchange.close()
        asked = pending.asked
        if asked is None:
            self._looked(pending.device, answer)
            return []
        self._waiting.discard((pending.peer, asked.slice_name, asked.pdu.request_id))
        self._of_slice[asked.slice_name] -= 1
        served = self._served(asked)
        if answer is None:
            served.unanswered += 1
        else:
            served.refusals += answer.status != 0
            served.answers.add(self.now_s - pending.began_s)
        prefetch = self._devices[pending.device].prefetch
        if asked.pdu.kind is Kind.GET_NEXT and answer is not None:
            answer = prefetch[asked.slice_name].answered(asked.pdu, answer, self.now_s)
        if asked.pdu.kind is Kind.SET:
            for each in prefetch.values():
                each.forget()
            result = "no answer" if answer is None else _name_of(answer.status)
            self.audit(Audited(asked.slice_name, asked.device, pending.peer, asked.pdu.bindings, result))
        return [] if answer is None else [ToManager(pending.peer, self.frontend.answer(asked, answer, self.now_s))]

    # -- interfaces of a device

    def _look(self, name: str, state: _DeviceState) -> list[Out]:
        state.looking = True
        if not state.backend.is_known:
            state.look_at_s = self.now_s + 1.0
            state.looking = False
            return [ToDevice(name, state.backend.discovery())]
        return self._step(_Pending(name, _looked_up(), Pdu(Kind.GET, 0), 0.0), None)

    def _looked(self, name: str, answer: Pdu | None) -> None:
        state = self._devices[name]
        state.looking, state.look_at_s = False, self.now_s + (REFRESH_S if answer is not None else 1.0)
        if answer is None:
            return
        index_of = interface_numbers(answer.bindings)
        interfaces = {**networks(answer.bindings), **state.backend.device.interfaces}
        if (index_of, interfaces) != (state.index_of, state.interfaces):
            state.index_of, state.interfaces, state.scopes = index_of, interfaces, {}

    def _principal(self, device: str, interfaces: Mapping[str, Interface]) -> Ask:
        def ask(slice_name: str, name: str, oid: Oid, value: bytes) -> Status | None:
            interface = interfaces[name]
            # What is everybody's on the radio of a virtual interface is decided as the radio's own parameters are.
            radio = interfaces.get(interface.radio or name, interface)
            if slice_name == radio.owner and interface.radio is not None:
                return None
            sharers = radio.shared | ({radio.owner} if radio.owner else set())
            return self._arbiter.ask(Wish(slice_name, device, oid, value), sharers, self.now_s)

        return ask


def _address_of(peer: Peer) -> str:
    """By what reports to a peer are counted."""
    return network_of(str(peer[0])) if isinstance(peer, tuple) else str(peer)


def _trapped(backend: Backend, data: bytes) -> Pdu | None:
    """The trap, if it is this device's."""
    try:
        return backend.trapped(data)
    except SnmpError:
        return None


def _looked_up() -> Exchange:
    """Our own look at a device: the names of its interfaces, and whose its wireless networks are."""
    found: list[Binding] = []
    for column in (IF_NAME, BSS_RADIO, BSS_SLICE):
        found += yield from _column(column)
    return Pdu(Kind.RESPONSE, 0, tuple(found))


def _column(column: Oid) -> Generator[Pdu, Pdu, list[Binding]]:
    found: list[Binding] = []
    start = column
    while True:
        answer = yield Pdu(Kind.GET_BULK, 0, (Binding(start),), 0, 25)
        for each in answer.bindings:
            if each.value == END_OF_VIEW or each.oid[: len(column)] != column:
                return found
            if each.oid <= start:
                raise SnmpError("the device's variables are not in order")
            found.append(each)
            start = each.oid
        if not answer.bindings or len(found) > MOST_NAMES:
            raise SnmpError("the device's interfaces can't be read")


def _name_of(status: int) -> str:
    if not status:
        return "done"
    return Status(status).name.lower() if status in set(Status) else f"error {status}"


def described(audited: Audited) -> dict[str, Any]:
    """As a line of the audit log; a value is shown in hexadecimal, at most 64 bytes of it, and no passphrase."""
    return {
        "slice": audited.slice_name,
        "device": audited.device,
        "from": str(audited.peer[0]) if isinstance(audited.peer, tuple) else str(audited.peer),
        "set": {
            oid_text(each.oid): "secret" if each.oid[: len(SECRETS)] == SECRETS else each.value[:64].hex()
            for each in audited.bindings
        },
        "result": audited.result,
    }
