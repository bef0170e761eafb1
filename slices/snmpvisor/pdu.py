"""Protocol data units of SNMPv2 (RFC 3416, section 3) and the message of SNMPv2c around them (RFC 1901). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from hyroads.slices.snmpvisor import ber
from hyroads.slices.snmpvisor.errors import SnmpError

VERSION_2C, VERSION_3 = 1, 3
MAX_BINDINGS = 1024
NULL = b"\x05\x00"
NO_SUCH_OBJECT, NO_SUCH_INSTANCE, END_OF_VIEW = b"\x80\x00", b"\x81\x00", b"\x82\x00"


class Kind(IntEnum):
    """Tags of the units."""

    GET = 0xA0
    GET_NEXT = 0xA1
    RESPONSE = 0xA2
    SET = 0xA3
    GET_BULK = 0xA5
    INFORM = 0xA6
    TRAP = 0xA7
    REPORT = 0xA8


class Status(IntEnum):
    """Errors of RFC 3416 that are used here."""

    NO_ERROR = 0
    TOO_BIG = 1
    GENERAL = 5
    NO_ACCESS = 6
    RESOURCE_UNAVAILABLE = 13
    NOT_WRITABLE = 17
    AUTHORIZATION = 16
    INCONSISTENT_VALUE = 12


@dataclass(frozen=True, slots=True)
class Binding:
    """A variable and its value, which is a whole element as it came."""

    oid: ber.Oid
    value: bytes = NULL


@dataclass(frozen=True, slots=True)
class Pdu:
    """A unit. Of a GETBULK ``status`` is the number of non-repeaters and ``index`` that of repetitions."""

    kind: Kind
    request_id: int
    bindings: tuple[Binding, ...] = ()
    status: int = 0
    index: int = 0

    def response(self, bindings: tuple[Binding, ...]) -> Pdu:
        """The answer with these values."""
        return Pdu(Kind.RESPONSE, self.request_id, bindings)

    def refused(self, status: Status, index: int) -> Pdu:
        """The answer that it was not done; ``index`` counts bindings from 1, 0 is none of them."""
        return Pdu(Kind.RESPONSE, self.request_id, self.bindings, status, index)

    def numbered(self, request_id: int) -> Pdu:
        """The same under another number."""
        return replace(self, request_id=request_id)


_KINDS = {int(kind): kind for kind in Kind}


def parse_pdu(data: bytes, at: int, end: int) -> Pdu:
    """The unit at ``at``; :class:`SnmpError`."""
    tag, start, stop = ber.read(data, at, end)
    kind = _KINDS.get(tag)
    if kind is None:
        raise SnmpError(f"a unit of type {tag:#x}")
    request_id, start = ber.integer(data, start, stop)
    status, start = ber.integer(data, start, stop)
    index, start = ber.integer(data, start, stop)
    at, last = ber.expect(data, start, stop, ber.SEQUENCE)
    bindings: list[Binding] = []
    while at < last:
        first, at = ber.expect(data, at, last, ber.SEQUENCE)
        name, value = ber.expect(data, first, at, ber.OBJECT_ID)
        ber.read(data, value, at)
        bindings.append(Binding(ber.oid_of(data[name:value]), data[value:at]))
        if len(bindings) > MAX_BINDINGS:
            raise SnmpError(f"more than {MAX_BINDINGS} variables")
    return Pdu(kind, request_id, tuple(bindings), status, index)


def pdu_bytes(pdu: Pdu) -> bytes:
    """The unit as bytes."""
    bindings = b"".join(ber.element(ber.SEQUENCE, ber.of_oid(each.oid) + each.value) for each in pdu.bindings)
    head = ber.of_integer(pdu.request_id) + ber.of_integer(pdu.status) + ber.of_integer(pdu.index)
    return ber.element(pdu.kind, head + ber.element(ber.SEQUENCE, bindings))


def version_of(data: bytes) -> int:
    """The version number in a message."""
    start, stop = ber.expect(data, 0, len(data), ber.SEQUENCE)
    return ber.integer(data, start, stop)[0]


def parse_v2c(data: bytes) -> tuple[bytes, Pdu]:
    """Community and unit of a message of SNMPv2c."""
    at, end = ber.expect(data, 0, len(data), ber.SEQUENCE)
    version, at = ber.integer(data, at, end)
    if version != VERSION_2C:
        raise SnmpError(f"version {version}, expected {VERSION_2C} (SNMPv2c)")
    community, at = ber.octets(data, at, end)
    return community, parse_pdu(data, at, end)


def v2c_bytes(community: bytes, pdu: Pdu) -> bytes:
    """The message of SNMPv2c."""
    head = ber.of_integer(VERSION_2C) + ber.element(ber.OCTETS, community)
    return ber.element(ber.SEQUENCE, head + pdu_bytes(pdu))
