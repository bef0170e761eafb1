"""The side of a device: our requests as its agent wants them, and its answers. Pure; one object per device."""

from __future__ import annotations

from dataclasses import dataclass

from hyroads.slices.snmpvisor import usm
from hyroads.slices.snmpvisor.config import Device
from hyroads.slices.snmpvisor.errors import SnmpError
from hyroads.slices.snmpvisor.pdu import Kind, Pdu, parse_v2c, v2c_bytes, version_of

MAX_NUMBER = 2**31 - 1


@dataclass
class Back:
    """Numbers of requests, and with SNMPv3 the device's engine as it told us."""

    device: Device
    salt: int = 0
    _number: int = 0
    _engine: bytes = b""
    _boots: int = 0
    _time_s: int = 0
    _told_s: float = 0.0

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
            return v2c_bytes(self.device.access.community or b"", pdu)
        self.salt += 1
        return usm.message_bytes(
            pdu, message_id=pdu.request_id, engine=self._engine, boots=self._boots,
            time_s=min(self._time_s + int(now_s - self._told_s), usm.MAX_TIME_S), user=user, salt=self.salt,
            reportable=True,
        )  # fmt: skip

    def answered(self, data: bytes, now_s: float) -> Pdu | None:
        """The answer in a datagram; None if it told of its engine or its time only. :class:`SnmpError`: not its."""
        user = self.device.access.user
        if user is None:
            return self._answered_v2c(data)
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
            community, pdu = parse_v2c(data)
            if community != self.device.access.community:
                raise SnmpError("a trap with another community")
        else:
            message = usm.parse(data)
            known = message.user == user.name and message.flags & usm.AUTH
            if not known or not usm.is_authentic(message, user, message.engine):
                raise SnmpError("a trap that nobody vouches for")
            _, pdu = usm.opened(message, user)
        if pdu.kind not in (Kind.TRAP, Kind.INFORM):
            raise SnmpError(f"a unit {pdu.kind.name} is no trap")
        return pdu

    def forget_engine(self) -> None:
        """It does not answer: perhaps it is another one now."""
        self._engine = b""

    def _answered_v2c(self, data: bytes) -> Pdu:
        if version_of(data) != 1:
            raise SnmpError("an answer of another version")
        community, pdu = parse_v2c(data)
        if community != self.device.access.community:
            raise SnmpError("an answer with another community")
        return _response(pdu)

    def _learn(self, message: usm.Message, now_s: float) -> None:
        newer = (message.boots, message.time_s) > (self._boots, self._time_s)
        if newer or not self._told_s:
            self._boots, self._time_s, self._told_s = message.boots, message.time_s, now_s


def _response(pdu: Pdu) -> Pdu:
    if pdu.kind is not Kind.RESPONSE:
        raise SnmpError(f"a unit {pdu.kind.name} is no answer")
    return pdu
