"""AgentX (RFC 2741): how a program of ours is a part of snmpd. Bytes in, bytes out; no I/O.

Unlike ``pass_persist`` it has the four steps of a SET, so several variables change together or not at all, and snmpd
goes on answering others while a step takes its time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hyroads.controller.core.errors import HyroadsError

from .mib import Objects, Oid, Value
from .wireless_mib import COMMIT_FAILED, WRONG_TYPE, SetError

VERSION = 1
OPEN, CLOSE, REGISTER, GET, GET_NEXT, GET_BULK = 1, 2, 3, 5, 6, 7
TEST_SET, COMMIT_SET, UNDO_SET, CLEANUP_SET, PING, RESPONSE = 8, 9, 10, 11, 13, 18
NON_DEFAULT_CONTEXT, NETWORK_ORDER = 0x08, 0x10
HEADER_BYTES = 20
MAX_PAYLOAD = 1 << 20
MAX_BINDINGS = 1024
TIMEOUT_S = 15
"""How long snmpd waits for one of our answers: a radio may take seconds to come up."""
PRIORITY = 127
PARSE_ERROR, NO_ERROR, GENERAL = 266, 0, 5
NO_SUCH_INSTANCE, END_OF_VIEW = 129, 130
_INTERNET: Oid = (1, 3, 6, 1)
_KINDS = {"integer": 2, "octet": 4, "gauge": 66, "counter64": 70}
_NUMBERS = {2: "integer", 65: "counter", 66: "gauge", 67: "timeticks"}
_STRINGS = {4: "octet", 64: "ipaddress", 68: "opaque"}


class AgentXError(HyroadsError):
    """snmpd says something that can't be understood, or refuses us."""


class Served(Objects, Protocol):
    """What is served, and set in the steps of RFC 2741, 7.2.4."""

    def test(self, bindings: Sequence[tuple[Oid, Value]]) -> None:
        """Whether these can be set; :class:`SetError`."""

    def commit(self) -> None:
        """Do what was tested; :class:`SetError`."""

    def undo(self) -> None:
        """Take back what was done; :class:`SetError`."""

    def cleanup(self) -> None:
        """The SET is over."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first 20 bytes of each message."""

    kind: int
    flags: int
    session: int
    transaction: int
    packet: int
    length: int

    @property
    def order(self) -> str:
        """Of the bytes in numbers, for ``struct``."""
        return ">" if self.flags & NETWORK_ORDER else "<"


def header_of(data: bytes) -> Header:
    """The header; :class:`AgentXError`."""
    version, kind, flags, _ = data[:4]
    if version != VERSION:
        raise AgentXError(f"version {version} of AgentX")
    order = ">" if flags & NETWORK_ORDER else "<"
    found = Header(kind, flags, *struct.unpack(f"{order}4I", data[4:HEADER_BYTES]))
    if found.length > MAX_PAYLOAD or found.length % 4:
        raise AgentXError(f"a message of {found.length} bytes")
    return found


def message(kind: int, session: int, transaction: int, packet: int, payload: bytes = b"") -> bytes:
    """A message of ours: numbers in network order."""
    head = struct.pack(">4B4I", VERSION, kind, NETWORK_ORDER, 0, session, transaction, packet, len(payload))
    return head + payload


def oid_bytes(oid: Oid, include: bool = False) -> bytes:
    """An object identifier; ``include`` is for the start of a range."""
    prefix = oid[4] if oid[:4] == _INTERNET and len(oid) > 4 and 0 < oid[4] < 256 else 0
    rest = oid[5:] if prefix else oid
    return struct.pack(f">4B{len(rest)}I", len(rest), prefix, include, 0, *rest)


def octet_bytes(data: bytes) -> bytes:
    """A string, filled up to four bytes."""
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def binding_bytes(oid: Oid, value: Value | int) -> bytes:
    """A variable with its value, or with the number of an exception."""
    if isinstance(value, int):
        return struct.pack(">HH", value, 0) + oid_bytes(oid)
    head = struct.pack(">HH", _KINDS[value.kind], 0) + oid_bytes(oid)
    if isinstance(value.value, bytes):
        return head + octet_bytes(value.value)
    form = ">Q" if value.kind == "counter64" else ">i" if value.kind == "integer" else ">I"
    return head + struct.pack(form, value.value)


class _Reader:
    """Takes a payload apart; :class:`AgentXError` where it ends too soon."""

    def __init__(self, data: bytes, order: str) -> None:
        self.data, self.order, self.at = data, order, 0

    def take(self, form: str) -> tuple[int, ...]:
        size = struct.calcsize("<" + form)
        return struct.unpack(self.order + form, self._bytes(size))

    def _bytes(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise AgentXError("a message is cut off")
        found = self.data[self.at : self.at + count]
        self.at += count
        return found

    def oid(self) -> tuple[Oid, bool]:
        count, prefix, include, _ = self.take("4B")
        if count > 128:
            raise AgentXError("an object identifier of more than 128 numbers")
        rest = self.take(f"{count}I")
        return ((*_INTERNET, prefix, *rest) if prefix else rest), bool(include)

    def octets(self) -> bytes:
        (length,) = self.take("I")
        found = self._bytes(length)
        self._bytes(-length % 4)
        return found

    def value(self) -> tuple[Oid, Value]:
        kind, _ = self.take("2H")
        oid, _ = self.oid()
        if kind in _STRINGS:
            return oid, Value(_STRINGS[kind], self.octets())
        if kind in _NUMBERS:
            return oid, Value(_NUMBERS[kind], self.take("i" if kind == _KINDS["integer"] else "I")[0])
        if kind == _KINDS["counter64"]:
            return oid, Value("counter64", self.take("Q")[0])
        # An object identifier; no variable of ours takes any.
        if kind == 6:
            self.oid()
        return oid, Value("other", 0)

    @property
    def more(self) -> bool:
        return self.at < len(self.data)


_Range = tuple[Oid, bool, Oid]
"""Where it starts, whether the start is in it, and its end (empty: none)."""


def _ranges(reader: _Reader) -> list[_Range]:
    found: list[_Range] = []
    while reader.more:
        start, include = reader.oid()
        end, _ = reader.oid()
        found.append((start, include, end))
        if len(found) > MAX_BINDINGS:
            raise AgentXError(f"more than {MAX_BINDINGS} variables")
    return found


class Session:
    """Our side of the connection: opens a session, registers a subtree, then answers."""

    def __init__(self, served: Served, subtree: Oid, description: str) -> None:
        self._served = served
        self._subtree = subtree
        self._description = description
        self._input = bytearray()
        self._id: int | None = None
        self._transaction: int | None = None
        self.registered = False

    def begin(self) -> bytes:
        """The first message."""
        payload = struct.pack(">4B", TIMEOUT_S, 0, 0, 0) + oid_bytes(()) + octet_bytes(self._description.encode())
        return message(OPEN, 0, 0, 1, payload)

    def received(self, data: bytes) -> bytes:
        """What to answer to what came; :class:`AgentXError` ends the connection."""
        self._input += data
        answers = b""
        while len(self._input) >= HEADER_BYTES:
            header = header_of(bytes(self._input[:HEADER_BYTES]))
            end = HEADER_BYTES + header.length
            if len(self._input) < end:
                break
            payload = bytes(self._input[HEADER_BYTES:end])
            del self._input[:end]
            answers += self._handle(header, _Reader(payload, header.order))
        return answers

    def _handle(self, header: Header, reader: _Reader) -> bytes:
        if header.kind == RESPONSE:
            return self._answered(header, reader)
        if header.kind == CLOSE:
            raise AgentXError("snmpd ends the session")
        handle = _HANDLERS.get(header.kind)
        if handle is None:
            return self._response(header, PARSE_ERROR)
        if header.flags & NON_DEFAULT_CONTEXT:
            reader.octets()
        return handle(self, header, reader)

    def _answered(self, header: Header, reader: _Reader) -> bytes:
        """snmpd has opened our session, which has a number now, or registered our subtree."""
        _, error, _ = reader.take("I2H")
        if error:
            what = "the session" if self._id is None else "the subtree"
            raise AgentXError(f"snmpd refuses {what}: error {error}")
        if self._id is not None:
            self.registered = True
            return b""
        self._id = header.session
        payload = struct.pack(">4B", 0, PRIORITY, 0, 0) + oid_bytes(self._subtree)
        return message(REGISTER, self._id, 0, 2, payload)

    @staticmethod
    def _response(header: Header, error: int = NO_ERROR, index: int = 0, bindings: bytes = b"") -> bytes:
        payload = struct.pack(">I2H", 0, error, index) + bindings
        return message(RESPONSE, header.session, header.transaction, header.packet, payload)

    def _get(self, header: Header, reader: _Reader) -> bytes:
        found = []
        for start, _, _ in _ranges(reader):
            value = self._served.get(start)
            found.append(binding_bytes(start, NO_SUCH_INSTANCE if value is None else value))
        return self._response(header, bindings=b"".join(found))

    def _row(self, asked: _Range) -> tuple[bytes, _Range]:
        """What follows the start of a range, and the range behind it."""
        start, include, end = asked
        oid = start if include and self._served.get(start) is not None else self._served.following(start)
        value = None if oid is None or (end and oid >= end) else self._served.get(oid)
        if oid is None or value is None:
            return binding_bytes(start, END_OF_VIEW), asked
        return binding_bytes(oid, value), (oid, False, end)

    def _get_next(self, header: Header, reader: _Reader) -> bytes:
        return self._response(header, bindings=b"".join(self._row(each)[0] for each in _ranges(reader)))

    def _get_bulk(self, header: Header, reader: _Reader) -> bytes:
        once, repetitions = reader.take("2H")
        ranges = _ranges(reader)
        found = [self._row(each)[0] for each in ranges[:once]]
        columns = ranges[once:]
        while columns and repetitions and len(found) < MAX_BINDINGS:
            rows = [self._row(each) for each in columns]
            found += [binding for binding, _ in rows]
            columns = [onward for _, onward in rows]
            repetitions -= 1
        return self._response(header, bindings=b"".join(found))

    def _test(self, header: Header, reader: _Reader) -> bytes:
        bindings: list[tuple[Oid, Value]] = []
        while reader.more and len(bindings) <= MAX_BINDINGS:
            bindings.append(reader.value())
        for number, (_, value) in enumerate(bindings, 1):
            if value.kind == "other":
                return self._response(header, WRONG_TYPE, number)
        # snmpd has one SET under way at a time; one that it gave up is over with the next.
        self._transaction = header.transaction
        return self._step(header, lambda: self._served.test(bindings))

    def _step(self, header: Header, step: Callable[[], None]) -> bytes:
        try:
            step()
        except SetError as error:
            return self._response(header, error.status, error.index)
        return self._response(header)

    def _commit(self, header: Header, reader: _Reader) -> bytes:
        if header.transaction != self._transaction:
            return self._response(header, COMMIT_FAILED, 1)
        return self._step(header, self._served.commit)

    def _undo(self, header: Header, reader: _Reader) -> bytes:
        answer = self._step(header, self._served.undo)
        self._transaction = None
        return answer

    def _cleanup(self, header: Header, reader: _Reader) -> bytes:
        self._served.cleanup()
        self._transaction = None
        return b""


_HANDLERS: dict[int, Callable[[Session, Header, _Reader], bytes]] = {
    GET: Session._get,
    GET_NEXT: Session._get_next,
    GET_BULK: Session._get_bulk,
    TEST_SET: Session._test,
    COMMIT_SET: Session._commit,
    UNDO_SET: Session._undo,
    CLEANUP_SET: Session._cleanup,
    PING: lambda session, header, reader: session._response(header),
}
