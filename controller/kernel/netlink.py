"""Netlink: messages to the Linux kernel and its answers, whichever part of it they are for.

Answers are read as if a stranger had sent them: every length is checked, and what does not fit raises
:class:`NetlinkError`.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from hyroads.controller.core.errors import HyroadsError

ACKNOWLEDGE, DUMP, CREATE = 0x4, 0x300, 0x400
NESTED = 0x8000
_REQUEST, _CAPPED, _ACK_TLVS = 0x1, 0x100, 0x200
_ERROR, _DONE, _OVERRUN = 2, 3, 4
_ERROR_TEXT = 1
_KIND_MASK = 0x3FFF

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ANSWER_BYTES = 1 << 16
_TIMEOUT_S = 5.0


class NetlinkError(HyroadsError):
    """The kernel refused a netlink request, or its answer can't be read; ``number`` is the errno, 0 if none."""

    def __init__(self, text: str, number: int = 0) -> None:
        self.number = number
        super().__init__(text)


@dataclass(frozen=True)
class Message:
    """One netlink message without its header; ``flags`` are those of the header."""

    kind: int
    flags: int
    payload: bytes

    @property
    def is_acknowledgement(self) -> bool:
        """Whether the kernel says with it that a request was carried out or refused (:func:`acknowledged_number`)."""
        return self.kind == _ERROR


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


def request_message(kind: int, flags: int, sequence: int, payload: bytes) -> bytes:
    """A request with its netlink header."""
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


def acknowledged_number(message: Message) -> int:
    """The number in an acknowledgement: 0, or what some parts of the kernel say with it.

    Raises NetlinkError, with the kernel's own words where it gave some, if the kernel refused the request.
    """
    if len(message.payload) < 4 + _HEADER.size:
        raise NetlinkError("netlink acknowledgement is too short")
    number = int(struct.unpack_from("=i", message.payload)[0])
    if number >= 0:
        return number
    words = ""
    if message.flags & _ACK_TLVS and message.flags & _CAPPED:
        told = attribute_map(message.payload[4 + _HEADER.size :]).get(_ERROR_TEXT, b"")
        words = ": " + ascii(told.rstrip(b"\0").decode(errors="replace"))[1:-1][:200] if told else ""
    raise _refusal(-number, words)


def check_end(message: Message) -> None:
    """Raise NetlinkError if the end of a list says that the kernel refused to list, or could not go on."""
    number = int(struct.unpack_from("=i", message.payload)[0]) if len(message.payload) >= 4 else 0
    if number < 0:
        raise _refusal(-number)


def _refusal(number: int, words: str = "") -> NetlinkError:
    name = errno.errorcode.get(number, f"error {number}")
    return NetlinkError(f"the kernel refused: {os.strerror(number)} ({name}){words}", number)


class NetlinkSocket:
    """A socket to one part of the kernel, for one request at a time, in the network namespace in which it was made.

    ``protocol`` is the number of that part (``NETLINK_...``), ``name`` what errors call it. Use as a context manager.
    """

    def __init__(self, protocol: int, name: str) -> None:
        self._name = name
        self._sequence = 0
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        except OSError as error:
            raise NetlinkError(f"{name}: {error.strerror}", error.errno or 0) from error
        self._socket.settimeout(_TIMEOUT_S)
        self._socket.bind((0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the kernel then ends what lives as long as it."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor, for a process that is to inherit it."""
        return self._socket.fileno()

    def set_option(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket."""
        self._socket.setsockopt(level, option, value)

    def request(self, kind: int, flags: int, payload: bytes) -> None:
        """Send one request; ``payload`` begins with the header of the part of the kernel that it is for."""
        self._sequence += 1
        self.send(request_message(kind, flags, self._sequence, payload))

    def send(self, data: bytes) -> None:
        """Send whole messages."""
        try:
            self._socket.sendto(data, (0, 0))
        except OSError as error:
            raise NetlinkError(f"{self._name}: {error.strerror or error}", error.errno or 0) from error

    def receive(self) -> Iterator[Message]:
        """The messages of the next datagram; raises NetlinkError if none comes within 5 s."""
        try:
            data, _, flags, _ = self._socket.recvmsg(_ANSWER_BYTES)
        except TimeoutError as error:
            raise NetlinkError(f"the kernel did not answer within {_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise NetlinkError(f"{self._name}: {error.strerror or error}", error.errno or 0) from error
        if flags & socket.MSG_TRUNC:
            raise NetlinkError("netlink answer is longer than the buffer")
        return messages(data)

    def answers(self, least_bytes: int) -> list[bytes]:
        """The payloads of what a request is answered with, up to its acknowledgement or the end of a list.

        Raises NetlinkError if the kernel refuses the request, or if a payload is shorter than ``least_bytes``.
        """
        found: list[bytes] = []
        while True:
            for message in self.receive():
                if message.kind == _DONE:
                    check_end(message)
                    return found
                if message.kind == _ERROR:
                    acknowledged_number(message)
                    return found
                if message.kind == _OVERRUN or len(message.payload) < least_bytes:
                    raise NetlinkError(f"{self._name}: the answer is broken")
                found.append(message.payload)

    def acknowledged(self, requests: int = 1) -> int:
        """Wait until so many requests are acknowledged; returns the number in the last acknowledgement.

        Raises NetlinkError if the kernel refuses one; all that it says of the others is there by then, and is dropped,
        so that the next request meets its own answer. Other messages are passed over.
        """
        number = 0
        while requests > 0:
            for message in self.receive():
                if message.kind != _ERROR:
                    continue
                requests -= 1
                try:
                    number = acknowledged_number(message)
                except NetlinkError:
                    self._drain()
                    raise
        return number

    def _drain(self) -> None:
        self._socket.settimeout(0)
        try:
            while self._socket.recv(_ANSWER_BYTES):
                pass
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(_TIMEOUT_S)
