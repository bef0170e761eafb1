"""Netfilter's netlink protocol, as far as the kernel plane needs it: elements of nftables sets and conntrack entries.

A change of many elements is one *batch*: the kernel takes all of it or nothing, at one moment. It costs some 0.1 ms,
where a process of ``nft`` takes tens of milliseconds.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hyroads.controller.kernel.netlink import (
    ACKNOWLEDGE,
    CREATE,
    DUMP,
    NetlinkError,
    NetlinkSocket,
    acknowledged_number,
    attribute,
    attribute_map,
    attributes,
    nested,
    request_message,
    text_attribute,
)

_NETLINK_NETFILTER = 12
_SOL_NETLINK, _NETLINK_EXT_ACK, _NETLINK_CAP_ACK = 270, 11, 10
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_BYTES = 8 << 20

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

_NETFILTER_HEADER = struct.Struct(">BBH")


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


def request(
    kind: int, flags: int, sequence: int, body: bytes, *, family: int = _INET_FAMILY, resource: int = 0
) -> bytes:
    """A whole netfilter message: netlink header, netfilter header, attributes."""
    return request_message(kind, flags, sequence, _NETFILTER_HEADER.pack(family, 0, resource) + body)


def batch(changes: Iterable[Change], sequence: int = 1) -> tuple[bytes, int]:
    """All changes as one batch, and the number of messages in it that the kernel acknowledges."""
    bodies: list[bytes] = []
    for change in changes:
        bodies += [
            _elements(DELETE_ELEMENTS, 0, change, part) for part in _parts([(key, b"") for key in change.remove])
        ]
        bodies += [_elements(NEW_ELEMENTS, CREATE, change, part) for part in _parts(list(change.add.items()))]
    begin = request(_BATCH_BEGIN, 0, sequence, b"", family=0, resource=_SUBSYSTEM_NFTABLES)
    end = request(_BATCH_END, 0, sequence, b"", family=0, resource=_SUBSYSTEM_NFTABLES)
    return begin + b"".join(bodies) + end, len(bodies)


def _parts(elements: Sequence[tuple[bytes, bytes]]) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    for start in range(0, len(elements), _ELEMENTS_A_MESSAGE):
        yield elements[start : start + _ELEMENTS_A_MESSAGE]


def _elements(kind: int, flags: int, change: Change, part: Sequence[tuple[bytes, bytes]]) -> bytes:
    body = text_attribute(_LIST_TABLE, change.table) + text_attribute(_LIST_SET, change.name)
    return request(kind, flags | ACKNOWLEDGE, 1, body + nested(_LIST_ELEMENTS, *(_element(*each) for each in part)))


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


class NetfilterSocket(NetlinkSocket):
    """A netlink socket to netfilter of the network namespace in which it was made."""

    def __init__(self) -> None:
        super().__init__(_NETLINK_NETFILTER, "netlink to netfilter")
        for option in (_NETLINK_EXT_ACK, _NETLINK_CAP_ACK):
            self.set_option(_SOL_NETLINK, option, 1)
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            self.set_option(socket.SOL_SOCKET, option, _BUFFER_BYTES)

    def change(self, changes: Sequence[Change]) -> None:
        """Make all changes at once; raises NetlinkError, and then none of them is made."""
        data, expected = batch(changes)
        if expected:
            self.send(data)
            self.acknowledged(expected)

    def command(self, kind: int, body: bytes, *, family: int, create: bool = False) -> None:
        """Send one request that is no part of a batch; raises NetlinkError if the kernel refuses it."""
        self._ask(kind, ACKNOWLEDGE | (CREATE if create else 0), body, family)
        self.acknowledged()

    def get(self, kind: int, body: bytes, family: int) -> tuple[int, bytes]:
        """Family and attributes of the one entry that a request names; raises NetlinkError if there is none."""
        self._ask(kind, 0, body, family)
        for message in self.receive():
            if message.is_acknowledgement:
                acknowledged_number(message)
                raise NetlinkError("netlink request went without an answer")
            if len(message.payload) >= _NETFILTER_HEADER.size:
                return _entry(message.payload)
        raise NetlinkError("netlink answer is broken")

    def dump(self, kind: int, body: bytes = b"", *, family: int = _INET_FAMILY) -> list[tuple[int, bytes]]:
        """Family and attributes of each entry that the kernel has; a table that changes meanwhile is still listed."""
        self._ask(kind, DUMP, body, family)
        return [_entry(payload) for payload in self.answers(_NETFILTER_HEADER.size)]

    def elements(self, table: str, name: str) -> dict[bytes, bytes]:
        """All elements of a set or map of an ``inet`` table."""
        found: dict[bytes, bytes] = {}
        for _, body in self.dump(GET_ELEMENTS, text_attribute(_LIST_TABLE, table) + text_attribute(_LIST_SET, name)):
            found |= read_elements(body)
        return found

    def _ask(self, kind: int, flags: int, body: bytes, family: int) -> None:
        self.request(kind, flags, _NETFILTER_HEADER.pack(family, 0, 0) + body)


def _entry(payload: bytes) -> tuple[int, bytes]:
    return payload[0], payload[_NETFILTER_HEADER.size :]
