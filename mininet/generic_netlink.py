"""Generic netlink: requests to a part of the kernel that is known by a name, such as ``ovs_datapath``.

The kernel gives every such *family* a number while it runs, so a name is looked up first. Answers are read as if a
stranger had sent them: every length is checked, and what does not fit raises :class:`NetlinkError`.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Self

from hyroads.controller.client.nfnetlink import (
    Message,
    NetlinkError,
    attribute_map,
    error_of,
    messages,
    text_attribute,
)

_NETLINK_GENERIC = 16
_CONTROL_FAMILY, _CONTROL_VERSION = 16, 2
_GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 3, 1, 2
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE, _OVERRUN = 2, 3, 4
_TIMEOUT_S = 5.0
_ANSWER_BYTES = 1 << 16

_HEADER = struct.Struct("=IHHII")
_GENERIC_HEADER = struct.Struct("=BBH")


def family_id(name: str) -> int | None:
    """The number that the running kernel gave to the family ``name``; None if it has no such family.

    A family whose module can be loaded on demand is loaded by this request where the caller may load modules.
    Raises NetlinkError where the kernel does not answer.
    """
    with _Socket() as kernel:
        try:
            (answer,) = kernel.ask(_CONTROL_FAMILY, _GET_FAMILY, text_attribute(_FAMILY_NAME, name), _CONTROL_VERSION)
        except NetlinkError as error:
            if error.number == errno.ENOENT:
                return None
            raise
        except ValueError as error:
            raise NetlinkError(f"netlink answer about the family {name} is not one message") from error
    number = attribute_map(answer).get(_FAMILY_ID, b"")
    if len(number) != 2:
        raise NetlinkError(f"netlink answer about the family {name} has no number")
    return int(struct.unpack("=H", number)[0])


class GenericNetlink:
    """Requests to one family, from the network namespace in which the object was made; use as a context manager.

    Raises NetlinkError, with ``number`` ENOENT, where the kernel has no family of that name.
    """

    def __init__(self, family: str, *, version: int = 1) -> None:
        found = family_id(family)
        if found is None:
            raise NetlinkError(f"this kernel has no generic netlink family {family}", errno.ENOENT)
        self._family, self._version = found, version
        self._socket = _Socket()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the kernel then ends what lives as long as it (radios made with DESTROY_ON_CLOSE)."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor, for a process that is to inherit it."""
        return self._socket.fileno()

    def command(self, kind: int, body: bytes = b"") -> int:
        """Send one request and wait until it is acknowledged; NetlinkError if the kernel refuses it.

        Returns the number in the acknowledgement: 0, or what the family says with it (mac80211_hwsim: the new radio's
        number).
        """
        return self._socket.acknowledged(self._family, kind, body, self._version)

    def get(self, kind: int, body: bytes = b"") -> list[bytes]:
        """The attributes of each message that one request is answered with."""
        return self._socket.ask(self._family, kind, body, self._version)

    def dump(self, kind: int, body: bytes = b"") -> list[bytes]:
        """The attributes of each entry that the kernel lists."""
        return self._socket.ask(self._family, kind, body, self._version, _DUMP)


class _Socket:
    """A socket for one request at a time."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_GENERIC)
        except OSError as error:
            raise NetlinkError(f"generic netlink: {error.strerror}", error.errno or 0) from error
        self._socket.settimeout(_TIMEOUT_S)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, family: int, kind: int, body: bytes, version: int, flags: int = 0) -> list[bytes]:
        """What a request is answered with, without headers, up to its acknowledgement or the end of the list."""
        self._send(family, kind, body, version, flags or _ACK)
        found: list[bytes] = []
        while True:
            for message in messages(self._receive()):
                if message.kind == _DONE:
                    return found
                if message.kind == _ERROR:
                    _number_of(message)
                    return found
                if message.kind == _OVERRUN or len(message.payload) < _GENERIC_HEADER.size:
                    raise NetlinkError("generic netlink answer is broken")
                found.append(message.payload[_GENERIC_HEADER.size :])

    def acknowledged(self, family: int, kind: int, body: bytes, version: int) -> int:
        """The number in the acknowledgement of a request; messages before it are passed over."""
        self._send(family, kind, body, version, _ACK)
        while True:
            for message in messages(self._receive()):
                if message.kind == _ERROR:
                    return _number_of(message)

    def _send(self, family: int, kind: int, body: bytes, version: int, flags: int) -> None:
        self._sequence += 1
        payload = _GENERIC_HEADER.pack(kind, version, 0) + body
        header = _HEADER.pack(_HEADER.size + len(payload), family, flags | _REQUEST, self._sequence, 0)
        try:
            self._socket.sendto(header + payload, (0, 0))
        except OSError as error:
            raise NetlinkError(f"generic netlink: {error.strerror or error}", error.errno or 0) from error

    def _receive(self) -> bytes:
        try:
            data, _, flags, _ = self._socket.recvmsg(_ANSWER_BYTES)
        except TimeoutError as error:
            raise NetlinkError(f"the kernel did not answer within {_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise NetlinkError(f"generic netlink: {error.strerror or error}", error.errno or 0) from error
        if flags & socket.MSG_TRUNC:
            raise NetlinkError("generic netlink answer is longer than the buffer")
        return data


def _number_of(message: Message) -> int:
    """The number of an acknowledgement, 0 or more; raises the error that a negative one stands for."""
    if len(message.payload) < 4:
        raise NetlinkError("netlink acknowledgement is too short")
    number = int(struct.unpack_from("=i", message.payload)[0])
    if number >= 0:
        return number
    raise error_of(message) or NetlinkError(f"the kernel refused: {os.strerror(-number)}", -number)
