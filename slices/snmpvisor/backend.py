"""The side of a device: our requests as its agent wants them, its answers, and reading ahead of a walk. Pure.

A manager's walk by GETNEXT is a request for each variable. Once two of them follow each other the device is asked for
the next 25 at once, and what it told answers the following requests, for a quarter of a second: a walk of hundreds of
variables takes less, and no value is older than that. Any SET to the device ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import usm
from .config import Device
from .pdu import END_OF_VIEW, Binding, Kind, Oid, Pdu, SnmpError, parse_v2c, v2c_bytes

MAX_NUMBER = 2**31 - 1


@dataclass
class Backend:
    """The side of one device: request ids, and with SNMPv3 the engine that the device announced."""

    device: Device
    salt: int = 0
    _number: int = 0
    _engine: bytes = b""
    _boots: int = 0
    _time_s: int = 0
    _told_s: float = 0.0

    @property
    def _community(self) -> bytes:
        community, context = self.device.access.community or b"", self.device.context
        return community + b"@" + context if context else community

    @property
    def is_known(self) -> bool:
        """Whether requests can be sent: with SNMPv3 the engine must have told of itself."""
        return self.device.access.user is None or bool(self._engine)

    def number(self) -> int:
        """A number for the next request."""
        self._number = self._number % MAX_NUMBER + 1
        return self._number

    def discovery(self) -> bytes:
        """The request that an agent of SNMPv3 answers by telling of its engine."""
        pdu = Pdu(Kind.GET, self.number())
        return usm.message_bytes(
            pdu, message_id=pdu.request_id, engine=b"", boots=0, time_s=0, user=None, reportable=True
        )

    def request(self, pdu: Pdu, now_s: float) -> bytes:
        """A request as a datagram."""
        user = self.device.access.user
        if user is None:
            return v2c_bytes(self._community, pdu)
        self.salt += 1
        return usm.message_bytes(
            pdu, message_id=pdu.request_id, engine=self._engine, boots=self._boots,
            time_s=min(self._time_s + int(now_s - self._told_s), usm.MAX_TIME_S), user=user, salt=self.salt,
            context=self.device.context, reportable=True,
        )  # fmt: skip

    def answered(self, data: bytes, now_s: float) -> Pdu | None:
        """The answer in a datagram; None if it told of its engine or its time only. :class:`SnmpError`: not its."""
        user = self.device.access.user
        if user is None:
            return _response(self._of_community(data))
        message = usm.parse(data)
        if message.flags & usm.AUTH:
            if message.engine != self._engine or message.user != user.name:
                raise SnmpError("from another engine or user")
            if not usm.is_authentic(message, user, self._engine):
                raise SnmpError("a digest that is wrong")
            self._learn(message, now_s)
            _, pdu = usm.opened(message, user)
        elif message.pdu is not None and message.pdu.kind is Kind.REPORT and not self._engine:
            # Nobody vouches for it: what it says is believed once, and proves itself by the answers that follow.
            self._engine = message.engine
            self._learn(message, now_s)
            return None
        else:
            raise SnmpError("unauthenticated")
        if pdu.kind is Kind.REPORT:
            return None
        return _response(pdu)

    def trapped(self, data: bytes) -> Pdu:
        """The trap in a datagram; with SNMPv3 its sender proves itself as in an answer."""
        user = self.device.access.user
        if user is None:
            pdu = self._of_community(data)
        else:
            message = usm.parse(data)
            known = message.user == user.name and message.flags & usm.AUTH
            if not known or not usm.is_authentic(message, user, message.engine):
                raise SnmpError("a trap that nobody vouches for")
            context, pdu = usm.opened(message, user)
            if self.device.context and context != self.device.context:
                raise SnmpError("of another device")
        if pdu.kind not in (Kind.TRAP, Kind.INFORM):
            raise SnmpError(f"a unit {pdu.kind.name} is no trap")
        return pdu

    def forget_engine(self) -> None:
        """It does not answer: perhaps it is another one now."""
        self._engine = b""

    def _of_community(self, data: bytes) -> Pdu:
        community, pdu = parse_v2c(data)
        if community != self._community:
            raise SnmpError("another community")
        return pdu

    def _learn(self, message: usm.Message, now_s: float) -> None:
        newer = (message.boots, message.time_s) > (self._boots, self._time_s)
        if newer or not self._told_s:
            self._boots, self._time_s, self._told_s = message.boots, message.time_s, now_s


def _response(pdu: Pdu) -> Pdu:
    if pdu.kind is not Kind.RESPONSE:
        raise SnmpError(f"a unit {pdu.kind.name} is no answer")
    return pdu


ROWS = 25
VALID_S = 0.25


@dataclass
class Prefetch:
    """Read ahead for one slice at one device: the variable after each variable, valid for ``VALID_S``."""

    _next: dict[Oid, Binding] = field(default_factory=dict)
    _until_s: float = 0.0
    _last: Oid | None = None

    def find(self, oid: Oid, now_s: float) -> Binding | None:
        """What follows a variable, if it was told a moment ago."""
        found = self._next.get(oid) if now_s < self._until_s else None
        if found is not None:
            self._last = found.oid
        return found

    def request(self, pdu: Pdu) -> Pdu | None:
        """The request to make instead of a GETNEXT for one variable; None: as it is."""
        if pdu.kind is not Kind.GET_NEXT or len(pdu.bindings) != 1:
            return None
        if pdu.bindings[0].oid != self._last:
            return None
        return Pdu(Kind.GET_BULK, pdu.request_id, pdu.bindings, 0, ROWS)

    def answered(self, asked: Pdu, answer: Pdu, now_s: float) -> Pdu:
        """The answer to the GETNEXT, from that to the request made instead of it or to itself."""
        if answer.status or not answer.bindings or len(asked.bindings) != 1:
            return answer
        first = answer.bindings[0]
        if len(answer.bindings) > 1:
            starts = (asked.bindings[0].oid, *(each.oid for each in answer.bindings))
            pairs = zip(starts, answer.bindings, strict=False)
            self._next = {start: each for start, each in pairs if each.value != END_OF_VIEW or each.oid == start}
            self._until_s = now_s + VALID_S
        self._last = first.oid
        return Pdu(Kind.RESPONSE, asked.request_id, (first,))

    def forget(self) -> None:
        """Something was set: what was told may be wrong."""
        self._next.clear()
