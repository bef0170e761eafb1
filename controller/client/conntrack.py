"""Connections as the kernel's connection tracking knows them: listing those of the kernel plane, changing a mark.

The mark of an entry says which rule a flow belongs to and which path it takes (see :mod:`.kernel_rules`).
"""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from hyroads.controller.kernel.netlink import NESTED, NetlinkError, attribute, attribute_map

from .nfnetlink import CONNTRACK_DELETE, CONNTRACK_GET, CONNTRACK_NEW, NetfilterSocket

_TUPLE_ORIGINAL, _MARK, _COUNTERS_SENT, _COUNTERS_RECEIVED, _ID = 1, 8, 9, 10, 12
_TUPLE_ADDRESSES, _TUPLE_PROTOCOL, _TUPLE_ZONE = 1, 2, 3
_SOURCE4, _DESTINATION4, _SOURCE6, _DESTINATION6 = 1, 2, 3, 4
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT, _ECHO_ID, _ECHO_ID6 = 1, 2, 3, 4, 7
_PACKETS, _BYTES = 1, 2
_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp"}


@dataclass(frozen=True)
class Connection:
    """One tracked connection; addresses and ports are those of its first packet, before any rewriting.

    For ICMP echo the ports are the identifier. ``sent_bytes`` and ``received_bytes`` are None while the kernel does not
    count (``net.netfilter.nf_conntrack_acct``).
    """

    id: int
    family: int
    mark: int
    protocol: str
    source: tuple[str, int]
    destination: tuple[str, int]
    sent_bytes: int | None
    received_bytes: int | None
    key: bytes


def connections(netfilter: NetfilterSocket) -> list[Connection]:
    """All connections that carry a mark."""
    found = (read_connection(family, body) for family, body in netfilter.dump(CONNTRACK_GET, family=socket.AF_UNSPEC))
    return [each for each in found if each is not None and each.mark != 0]


def connection_now(netfilter: NetfilterSocket, before: Connection) -> Connection | None:
    """The same connection as it is now, None if it has ended. Takes microseconds, where a list of all takes 20 ms."""
    try:
        family, body = netfilter.get(CONNTRACK_GET, attribute(_TUPLE_ORIGINAL | NESTED, before.key), before.family)
    except NetlinkError as error:
        if error.number == errno.ENOENT:
            return None
        raise
    found = read_connection(family, body)
    return found if found is not None and found.id == before.id and found.mark != 0 else None


def set_mark(netfilter: NetfilterSocket, connection: Connection, mark: int) -> None:
    """Give a connection another mark; raises NetlinkError, errno ENOENT if it has ended."""
    body = attribute(_TUPLE_ORIGINAL | NESTED, connection.key) + attribute(_MARK, struct.pack(">I", mark))
    netfilter.command(CONNTRACK_NEW, body, family=connection.family)


def forget(netfilter: NetfilterSocket, connection: Connection) -> None:
    """Remove the entry of a connection: its next packet counts as the first of a new one."""
    netfilter.command(CONNTRACK_DELETE, attribute(_TUPLE_ORIGINAL | NESTED, connection.key), family=connection.family)


def read_connection(family: int, body: bytes) -> Connection | None:
    """One entry of a dump; None if it is of another family or has no mark."""
    top = attribute_map(body)
    if family not in (socket.AF_INET, socket.AF_INET6) or _MARK not in top or _TUPLE_ORIGINAL not in top:
        return None
    parts = attribute_map(top[_TUPLE_ORIGINAL])
    addresses = attribute_map(parts.get(_TUPLE_ADDRESSES, b""))
    protocol = attribute_map(parts.get(_TUPLE_PROTOCOL, b""))
    number = protocol.get(_NUMBER, b"\0")[0] if protocol.get(_NUMBER) else 0
    source, destination = _pair(family, addresses)
    echo = _number(protocol.get(_ECHO_ID, protocol.get(_ECHO_ID6)), 2)
    return Connection(
        id=_number(top.get(_ID), 4) or 0,
        family=family,
        mark=_number(top[_MARK], 4) or 0,
        protocol=_PROTOCOLS.get(number, str(number)),
        source=(source, _number(protocol.get(_SOURCE_PORT), 2) or echo or 0),
        destination=(destination, _number(protocol.get(_DESTINATION_PORT), 2) or 0),
        sent_bytes=_counted(top.get(_COUNTERS_SENT)),
        received_bytes=_counted(top.get(_COUNTERS_RECEIVED)),
        key=top[_TUPLE_ORIGINAL],
    )


def _pair(family: int, addresses: dict[int, bytes]) -> tuple[str, str]:
    kinds = (_SOURCE4, _DESTINATION4) if family == socket.AF_INET else (_SOURCE6, _DESTINATION6)
    raw = [addresses.get(kind, b"") for kind in kinds]
    length, make = (4, IPv4Address) if family == socket.AF_INET else (16, IPv6Address)
    if any(len(each) != length for each in raw):
        raise NetlinkError("connection tracking named an address of a wrong length")
    return str(make(raw[0])), str(make(raw[1]))


def _number(data: bytes | None, length: int) -> int | None:
    """A number in network order; None if it is absent."""
    if data is None:
        return None
    if len(data) != length:
        raise NetlinkError(f"connection tracking gave {len(data)} bytes for a number of {length}")
    return int.from_bytes(data, "big")


def _counted(counters: bytes | None) -> int | None:
    return None if counters is None else _number(attribute_map(counters).get(_BYTES), 8)
