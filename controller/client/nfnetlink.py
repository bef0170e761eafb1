"""Netfilter's netlink protocol, as far as the kernel plane needs it: elements of nftables sets and conntrack entries.

A change of many elements is one *batch*: the kernel takes all of it or nothing, at one moment. It costs some 0.1 ms,
where a process of ``nft`` takes tens of milliseconds. Messages of the kernel are read as if a stranger had sent them:
every length is checked, and what does not fit raises :class:`NetlinkError`.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from hyroads.controller.core.errors import HyroadsError

NETLINK_NETFILTER = 12
SOL_NETLINK, NETLINK_EXT_ACK, NETLINK_CAP_ACK = 270, 11, 10
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_BYTES = 8 << 20
_ANSWER_BYTES = 1 << 16
_TIMEOUT_S = 5.0

_REQUEST, _MULTI, _ACK, _DUMP, _CREATE = 0x1, 0x2, 0x4, 0x300, 0x400
_DUMP_INTERRUPTED, _CAPPED, _ACK_TLVS = 0x10, 0x100, 0x200
_ERROR, _DONE, _OVERRUN = 2, 3, 4
_ERROR_TEXT = 1

NESTED = 0x8000
_KIND_MASK = 0x3FFF
_SUBSYSTEM_CONNTRACK, _SUBSYSTEM_NFTABLES = 1, 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
NEW_ELEMENTS = _SUBSYSTEM_NFTABLES << 8 | 12
GET_ELEMENTS = _SUBSYSTEM_NFTABLES << 8 | 13
DELETE_ELEMENTS = _SUBSYSTEM_NFTABLES << 8 | 14
CONNTRACK_NEW = _SUBSYSTEM_CONNTRACK << 8 | 0
CONNTRACK_GET = _SUBSYSTEM_CONNTRACK << 8 | 1
CONNTRACK_DELETE = _SUBSYSTEM_CONNTRACK << 8 | 2
_INET_FAMILY = 1

_LIST_TABLE, _LIST_SET, _LIST_ELEMENTS = 1, 2, 3
_LIST_ITEM, _ELEMENT_KEY, _ELEMENT_DATA, _DATA_VALUE = 1, 1, 2, 1
# An attribute's length has 16 bits; an element of the sets used here takes at most 100 bytes.
_ELEMENTS_A_MESSAGE = 400

_HEADER = struct.Struct("=IHHII")
_NETFILTER_HEADER = struct.Struct(">BBH")
_ATTRIBUTE = struct.Struct("=HH")


class NetlinkError(HyroadsError):
    """The kernel refused a netlink request, or its answer can't be read; ``number`` is the errno, 0 if none."""

    def __init__(self, text: str, number: int = 0) -> None:
        self.number = number
        super().__init__(text)


@dataclass(frozen=True)
class Change:
    """Elements to remove from and to add to one set or map of an ``inet`` table.

    Keys and values are the bytes as the kernel keeps them. Elements of a set have an empty value. A key may be in both
    mappings: then its value changes, and no packet sees the map without it.
    """

    table: str
    name: str
    remove: tuple[bytes, ...] = ()
    add: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """One netlink message without its header; ``flags`` are those of the header."""

    kind: int
    flags: int
    payload: bytes


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    length = _ATTRIBUTE.size + len(payload)
    if length > 0xFFFF:
        raise NetlinkError(f"attribute {kind & _KIND_MASK} of {len(payload)} bytes is too long for netlink")
    return _ATTRIBUTE.pack(length, kind) + payload + bytes(-length % 4)


def text_attribute(kind: int, text: str) -> bytes:
    """One attribute that holds a name, ended by a zero byte."""
    return attribute(kind, text.encode() + b"\0")


def nested(kind: int, *members: bytes) -> bytes:
    """One attribute that holds attributes."""
    return attribute(kind | NESTED, b"".join(members))


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and payload of each attribute; raises NetlinkError if a length leaves the data."""
    offset = 0
    while offset < len(data):
        if len(data) - offset < _ATTRIBUTE.size:
            raise NetlinkError("netlink answer ends within an attribute's header")
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if not _ATTRIBUTE.size <= length <= len(data) - offset:
            raise NetlinkError(f"netlink attribute {kind & _KIND_MASK} claims {length} of {len(data) - offset} bytes")
        yield kind & _KIND_MASK, data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3


def attribute_map(data: bytes) -> dict[int, bytes]:
    """The attributes by kind; of several of one kind the last."""
    return dict(attributes(data))


def request(
    kind: int, flags: int, sequence: int, body: bytes, *, family: int = _INET_FAMILY, resource: int = 0
) -> bytes:
    """A whole netfilter message: netlink header, netfilter header, attributes."""
    payload = _NETFILTER_HEADER.pack(family, 0, resource) + body
    return _HEADER.pack(_HEADER.size + len(payload), kind, flags | _REQUEST, sequence, 0) + payload


def messages(data: bytes) -> Iterator[Message]:
    """The messages of one datagram; raises NetlinkError if a length leaves the data."""
    offset = 0
    while offset < len(data):
        if len(data) - offset < _HEADER.size:
            raise NetlinkError("netlink answer ends within a message's header")
        length, kind, flags, _, _ = _HEADER.unpack_from(data, offset)
        if not _HEADER.size <= length <= len(data) - offset:
            raise NetlinkError(f"netlink message claims {length} of {len(data) - offset} bytes")
        yield Message(kind, flags, data[offset + _HEADER.size : offset + length])
        offset += (length + 3) & ~3


def batch(changes: Iterable[Change], sequence: int = 1) -> tuple[bytes, int]:
    """All changes as one batch, and the number of messages in it that the kernel acknowledges."""
    bodies: list[bytes] = []
    for change in changes:
        bodies += [
            _elements(DELETE_ELEMENTS, 0, change, part) for part in _parts([(key, b"") for key in change.remove])
        ]
        bodies += [_elements(NEW_ELEMENTS, _CREATE, change, part) for part in _parts(list(change.add.items()))]
    begin = request(_BATCH_BEGIN, 0, sequence, b"", family=0, resource=_SUBSYSTEM_NFTABLES)
    end = request(_BATCH_END, 0, sequence, b"", family=0, resource=_SUBSYSTEM_NFTABLES)
    return begin + b"".join(bodies) + end, len(bodies)


def _parts(elements: Sequence[tuple[bytes, bytes]]) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    for start in range(0, len(elements), _ELEMENTS_A_MESSAGE):
        yield elements[start : start + _ELEMENTS_A_MESSAGE]


def _elements(kind: int, flags: int, change: Change, part: Sequence[tuple[bytes, bytes]]) -> bytes:
    body = text_attribute(_LIST_TABLE, change.table) + text_attribute(_LIST_SET, change.name)
    return request(kind, flags | _ACK, 1, body + nested(_LIST_ELEMENTS, *(_element(*each) for each in part)))


def _element(key: bytes, value: bytes) -> bytes:
    members = [nested(_ELEMENT_KEY, attribute(_DATA_VALUE, key))]
    if value:
        members.append(nested(_ELEMENT_DATA, attribute(_DATA_VALUE, value)))
    return nested(_LIST_ITEM, *members)


def read_elements(body: bytes) -> dict[bytes, bytes]:
    """Keys and values (empty in a set) of one message of a dump, without its netfilter header."""
    found: dict[bytes, bytes] = {}
    for kind, item in attributes(attribute_map(body).get(_LIST_ELEMENTS, b"")):
        if kind != _LIST_ITEM:
            continue
        element = attribute_map(item)
        key, value = (attribute_map(element.get(part, b"")).get(_DATA_VALUE) for part in (_ELEMENT_KEY, _ELEMENT_DATA))
        if key is None:
            raise NetlinkError("netlink answer has an element without a key")
        found[key] = value or b""
    return found


def error_of(message: Message) -> NetlinkError | None:
    """The error that an acknowledgement carries; None if it says that all went well."""
    if len(message.payload) < 4 + _HEADER.size:
        raise NetlinkError("netlink acknowledgement is too short")
    number = -int(struct.unpack_from("=i", message.payload)[0])
    if number == 0:
        return None
    words = ""
    if message.flags & _ACK_TLVS and message.flags & _CAPPED:
        told = attribute_map(message.payload[4 + _HEADER.size :]).get(_ERROR_TEXT, b"")
        words = ": " + ascii(told.rstrip(b"\0").decode(errors="replace"))[1:-1][:200] if told else ""
    name = errno.errorcode.get(number, f"error {number}")
    return NetlinkError(f"the kernel refused: {os.strerror(number)} ({name}){words}", number)


class NetfilterSocket:
    """A netlink socket to netfilter of the network namespace in which it was made."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
        except OSError as error:
            raise NetlinkError(f"netlink to netfilter: {error.strerror}", error.errno or 0) from error
        self._socket.settimeout(_TIMEOUT_S)
        for option in (NETLINK_EXT_ACK, NETLINK_CAP_ACK):
            self._socket.setsockopt(SOL_NETLINK, option, 1)
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def change(self, changes: Sequence[Change]) -> None:
        """Make all changes at once; raises NetlinkError, and then none of them is made."""
        data, expected = batch(changes)
        if expected:
            self._send(data)
            self._acknowledged(expected)

    def command(self, kind: int, body: bytes, *, family: int, create: bool = False) -> None:
        """Send one request that is no part of a batch; raises NetlinkError if the kernel refuses it."""
        self._sequence += 1
        self._send(request(kind, _ACK | (_CREATE if create else 0), self._sequence, body, family=family))
        self._acknowledged(1)

    def get(self, kind: int, body: bytes, family: int) -> tuple[int, bytes]:
        """Family and attributes of the one entry that a request names; raises NetlinkError if there is none."""
        self._sequence += 1
        self._send(request(kind, 0, self._sequence, body, family=family))
        for message in messages(self._receive()):
            if message.kind == _ERROR:
                raise error_of(message) or NetlinkError("netlink request went without an answer")
            if len(message.payload) >= _NETFILTER_HEADER.size:
                return message.payload[0], message.payload[_NETFILTER_HEADER.size :]
        raise NetlinkError("netlink answer is broken")

    def dump(self, kind: int, body: bytes = b"", *, family: int = _INET_FAMILY) -> list[tuple[int, bytes]]:
        """Family and attributes of each entry that the kernel has; a table that changes meanwhile is still listed."""
        self._sequence += 1
        self._send(request(kind, _DUMP, self._sequence, body, family=family))
        found: list[tuple[int, bytes]] = []
        while True:
            for message in messages(self._receive()):
                if message.kind == _DONE:
                    return found
                if message.kind == _ERROR:
                    raise error_of(message) or NetlinkError("netlink dump ended without an answer")
                if message.kind == _OVERRUN or len(message.payload) < _NETFILTER_HEADER.size:
                    raise NetlinkError("netlink dump is broken")
                found.append((message.payload[0], message.payload[_NETFILTER_HEADER.size :]))

    def elements(self, table: str, name: str) -> dict[bytes, bytes]:
        """All elements of a set or map of an ``inet`` table."""
        found: dict[bytes, bytes] = {}
        for _, body in self.dump(GET_ELEMENTS, text_attribute(_LIST_TABLE, table) + text_attribute(_LIST_SET, name)):
            found |= read_elements(body)
        return found

    def _acknowledged(self, expected: int) -> None:
        """Wait for so many acknowledgements. All that the kernel says of a request is there when the first word is."""
        while expected > 0:
            for message in messages(self._receive()):
                if message.kind != _ERROR:
                    continue
                expected -= 1
                error = error_of(message)
                if error is not None:
                    self._drain()
                    raise error

    def _drain(self) -> None:
        """Drop what else has been answered, so that the next request meets its own answer."""
        self._socket.settimeout(0)
        try:
            while self._socket.recv(_ANSWER_BYTES):
                pass
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(_TIMEOUT_S)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendto(data, (0, 0))
        except OSError as error:
            raise NetlinkError(f"netlink to netfilter: {error.strerror or error}", error.errno or 0) from error

    def _receive(self) -> bytes:
        try:
            data, _, flags, _ = self._socket.recvmsg(_ANSWER_BYTES)
        except TimeoutError as error:
            raise NetlinkError(f"the kernel did not answer within {_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise NetlinkError(f"netlink to netfilter: {error.strerror or error}", error.errno or 0) from error
        if flags & socket.MSG_TRUNC:
            raise NetlinkError("netlink answer is longer than the buffer")
        return data
