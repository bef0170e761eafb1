"""The side of the slices' managers: who asks, about which device, and how the answer is wrapped. Pure.

With SNMPv2c the community names slice and device, ``community@device``; with SNMPv3 the user names the slice and the
context the device. Where there is only one device it need not be named. Whoever is not known gets no answer, as from
any agent; with SNMPv3 the reports that RFC 3414 asks for.
"""

from __future__ import annotations

import hmac
from collections import Counter
from dataclasses import dataclass, field

from . import pdu as ber
from . import usm
from .config import Settings
from .pdu import VERSION_2C, VERSION_3, Binding, Kind, Pdu, SnmpError, Status, parse_v2c, v2c_bytes, version_of

MAX_DATAGRAM = 65_000
_COUNTER32 = 0x41


@dataclass(frozen=True)
class Request:
    """A request of a slice to a device, and what its answer needs to find back."""

    slice_name: str
    device: str
    pdu: Pdu
    community: bytes | None
    user: usm.User | None = None
    message_id: int = 0
    context: bytes = b""


@dataclass
class Frontend:
    """The side of the managers: our own SNMPv3 engine, and the secrets of the slices."""

    settings: Settings
    engine: bytes
    boots: int
    started_s: float
    counters: Counter[str] = field(default_factory=Counter)
    _salt: int = 0

    def __post_init__(self) -> None:
        accesses = [(each.name, access) for each in self.settings.slices.values() for access in each.accesses]
        self._communities = [(access.community, name) for name, access in accesses if access.community is not None]
        self._users = {access.user.name: (access.user, name) for name, access in accesses if access.user is not None}
        self._only = next(iter(self.settings.devices)) if len(self.settings.devices) == 1 else None

    def asked(self, data: bytes, now_s: float) -> Request | bytes:
        """The request in a datagram, or a report to send back; :class:`SnmpError`: no answer."""
        handler = _VERSIONS.get(version_of(data))
        if handler is None:
            raise SnmpError("a version other than SNMPv2c and SNMPv3")
        return handler(self, data, now_s)

    def _asked_v2c(self, data: bytes, now_s: float) -> Request | bytes:
        text, pdu = parse_v2c(data)
        community, _, device = text.partition(b"@")
        found = [name for known, name in self._communities if hmac.compare_digest(known, community)]
        if not found:
            raise SnmpError("an unknown community")
        return Request(found[0], self._device(device), pdu, text)

    def _asked_v3(self, data: bytes, now_s: float) -> Request | bytes:
        message = usm.parse(data)
        if message.engine != self.engine:
            return self._report(message, usm.UNKNOWN_ENGINE, None, now_s)
        user, slice_name = self._users.get(message.user, (None, ""))
        problem = usm.UNKNOWN_USER if user is None else self._problem(message, user, now_s)
        if user is None or problem is not None:
            # Only who has proved to be the user is told our time by a report that proves to be ours.
            return self._report(message, problem or 0, user if problem == usm.NOT_IN_TIME else None, now_s)
        try:
            context, pdu = usm.opened(message, user)
        except SnmpError:
            return self._report(message, usm.DECRYPTION, None, now_s)
        return Request(slice_name, self._device(context), pdu, None, user, message.message_id, context)

    def _problem(self, message: usm.Message, user: usm.User, now_s: float) -> int | None:
        encrypted = message.flags & (usm.AUTH | usm.PRIV)
        if encrypted != user.level:
            return usm.UNSUPPORTED_LEVEL
        if not usm.is_authentic(message, user, self.engine):
            return usm.WRONG_DIGEST
        late = message.boots != self.boots or abs(message.time_s - self.time_s(now_s)) > usm.WINDOW_S
        return usm.NOT_IN_TIME if late else None

    def _device(self, name: bytes) -> str:
        device = name.decode("utf-8", "replace") or self._only
        if device is None or device not in self.settings.devices:
            raise SnmpError("an unknown device")
        return device

    def time_s(self, now_s: float) -> int:
        """How long our engine has been running."""
        return min(int(now_s - self.started_s), usm.MAX_TIME_S)

    def trap(self, slice_name: str, device: str, pdu: Pdu, now_s: float) -> bytes:
        """A trap for a slice's manager, as from us."""
        access = self.settings.slices[slice_name].accesses[0]
        name = device.encode()
        community = None if access.community is None else access.community + b"@" + name
        number = self._salt % usm.MAX_TIME_S
        return self._wrapped(Request(slice_name, device, pdu, community, access.user, number, name), pdu, now_s)

    def answer(self, asked: Request, pdu: Pdu, now_s: float) -> bytes:
        """The datagram of an answer."""
        data = self._wrapped(asked, pdu, now_s)
        if len(data) <= MAX_DATAGRAM:
            return data
        return self._wrapped(asked, Pdu(Kind.RESPONSE, asked.pdu.request_id, (), Status.TOO_BIG, 0), now_s)

    def _wrapped(self, asked: Request, pdu: Pdu, now_s: float) -> bytes:
        if asked.community is not None:
            return v2c_bytes(asked.community, pdu)
        return self._sealed(pdu, asked.message_id, asked.user, asked.context, now_s)

    def _sealed(self, pdu: Pdu, number: int, user: usm.User | None, context: bytes, now_s: float) -> bytes:
        self._salt += 1
        return usm.message_bytes(
            pdu, message_id=number, engine=self.engine, boots=self.boots, time_s=self.time_s(now_s), user=user,
            context=context, salt=self._salt,
        )  # fmt: skip

    def _report(self, message: usm.Message, kind: int, user: usm.User | None, now_s: float) -> bytes:
        """Says what is wrong, and with it our engine and its time; only to those who asked to be told."""
        self.counters[f"usm {kind}"] += 1
        if not message.flags & usm.REPORTABLE:
            raise SnmpError("not to be reported")
        count = ber.of_integer(self.counters[f"usm {kind}"] % 2**31, _COUNTER32)
        request_id = message.pdu.request_id if message.pdu is not None else 0
        pdu = Pdu(Kind.REPORT, request_id, (Binding((*usm.STATS, kind, 0), count),))
        return self._sealed(pdu, message.message_id, user, b"", now_s)


_VERSIONS = {VERSION_2C: Frontend._asked_v2c, VERSION_3: Frontend._asked_v3}
