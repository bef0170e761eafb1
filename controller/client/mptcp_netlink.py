"""The kernel's MPTCP path manager by generic netlink (family ``mptcp_pm``, linux/mptcp_pm.h): events of the connections
of a network namespace, and commands to those whose path manager is in user space.

Events are parsed by a pure function. What can't be read raises :class:`NetlinkError`, and nothing else.
"""

from __future__ import annotations

import enum
import ipaddress
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from hyroads.controller.kernel.generic_netlink import GENERIC_HEADER, GenericEvents, GenericNetlink
from hyroads.controller.kernel.netlink import NetlinkError, attribute, attribute_map, nested

FAMILY, EVENTS = "mptcp_pm", "mptcp_pm_events"
_SET_FLAGS, _REMOVE, _CREATE, _DESTROY = 7, 9, 10, 11
_ATTR_ADDRESS, _ATTR_TOKEN, _ATTR_LOCAL_ID, _ATTR_REMOTE = 1, 4, 5, 6
_ADDR_FAMILY, _ADDR_ID, _ADDR_IPV4, _ADDR_IPV6, _ADDR_PORT, _ADDR_FLAGS, _ADDR_INTERFACE = range(1, 8)
_FLAG_BACKUP = 4
_AF_INET, _AF_INET6 = 2, 10
_EV_TOKEN, _EV_LOCAL_ID, _EV_REMOTE_ID = 1, 3, 4
_EV_SOURCE4, _EV_SOURCE6, _EV_TARGET4, _EV_TARGET6, _EV_SOURCE_PORT, _EV_TARGET_PORT = range(5, 11)
_EV_BACKUP, _EV_ERROR, _EV_FLAGS, _EV_INTERFACE, _EV_SERVER_SIDE = 11, 12, 13, 15, 18
_DENY_JOIN, _SERVER_SIDE = 0x1, 0x2
_U8, _U16, _U32, _S32 = (struct.Struct(f"={kind}") for kind in "BHIi")
_PORT = struct.Struct(">H")


class EventKind(enum.IntEnum):
    """What the kernel tells of (``enum mptcp_event_type``)."""

    CREATED = 1
    ESTABLISHED = 2
    CLOSED = 3
    ANNOUNCED = 6
    REMOVED = 7
    SUBFLOW_ESTABLISHED = 10
    SUBFLOW_CLOSED = 11
    SUBFLOW_PRIORITY = 13


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address (text as of :mod:`ipaddress`) and a port; 0 where there is none."""

    address: str
    port: int = 0

    @property
    def version(self) -> int:
        """4 or 6."""
        return 6 if ":" in self.address else 4

    def __str__(self) -> str:
        """``ADDRESS:PORT``, an IPv6 address in brackets."""
        return f"[{self.address}]:{self.port}" if self.version == 6 else f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class Event:
    """One event; what a kind does not tell is None or false. ``local_id`` and ``remote_id`` are address ids (RFC 8684,
    section 3.4), ``interface`` is an index, ``error`` an errno. ``denies_join``: the peer accepts no subflow to the
    address at which the connection began. An IPv4 address in an IPv6 socket is told as the IPv4 address that it is.
    """

    kind: EventKind
    token: int
    local: Endpoint | None = None
    remote: Endpoint | None = None
    local_id: int = 0
    remote_id: int = 0
    backup: bool = False
    interface: int = 0
    error: int = 0
    server_side: bool = False
    denies_join: bool = False


def parse_event(payload: bytes) -> Event | None:
    """The event of a generic netlink message; None if its kind is none of ours. NetlinkError if it can't be read."""
    if len(payload) < GENERIC_HEADER.size:
        raise NetlinkError("MPTCP event is shorter than its header")
    try:
        kind = EventKind(payload[0])
    except ValueError:
        return None
    told = attribute_map(payload[GENERIC_HEADER.size :])
    token = _number(told, _EV_TOKEN, _U32)
    if token is None:
        raise NetlinkError("MPTCP event without a token")
    flags = _number(told, _EV_FLAGS, _U16) or 0
    return Event(
        kind,
        token,
        _endpoint(told, (_EV_SOURCE4, _EV_SOURCE6), _EV_SOURCE_PORT),
        _endpoint(told, (_EV_TARGET4, _EV_TARGET6), _EV_TARGET_PORT),
        _number(told, _EV_LOCAL_ID, _U8) or 0,
        _number(told, _EV_REMOTE_ID, _U8) or 0,
        bool(_number(told, _EV_BACKUP, _U8)),
        _number(told, _EV_INTERFACE, _S32) or 0,
        _number(told, _EV_ERROR, _U8) or 0,
        bool(_number(told, _EV_SERVER_SIDE, _U8)) or bool(flags & _SERVER_SIDE),
        bool(flags & _DENY_JOIN),
    )


def _number(told: Mapping[int, bytes], kind: int, shape: struct.Struct) -> int | None:
    value = told.get(kind)
    if value is None:
        return None
    if len(value) != shape.size:
        raise NetlinkError(f"MPTCP event: attribute {kind} has {len(value)} bytes instead of {shape.size}")
    return int(shape.unpack(value)[0])


def _endpoint(told: Mapping[int, bytes], kinds: tuple[int, int], port_kind: int) -> Endpoint | None:
    port = _number(told, port_kind, _PORT) or 0
    for kind, length in zip(kinds, (4, 16), strict=True):
        if (value := told.get(kind)) is not None:
            if len(value) != length:
                raise NetlinkError(f"MPTCP event: an address has {len(value)} bytes instead of {length}")
            address = ipaddress.ip_address(value)
            mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
            return Endpoint(str(mapped or address), port)
    return None


def _address(kind: int, end: Endpoint, *more: bytes) -> bytes:
    address = ipaddress.ip_address(end.address)
    family, value = (_AF_INET, _ADDR_IPV4) if address.version == 4 else (_AF_INET6, _ADDR_IPV6)
    port = [attribute(_ADDR_PORT, _U16.pack(end.port))] if end.port else []
    family_attribute = attribute(_ADDR_FAMILY, _U16.pack(family))
    return nested(kind, family_attribute, attribute(value, address.packed), *port, *more)


@dataclass(frozen=True, slots=True)
class CreateSubflow:
    """A new subflow of connection ``token`` from an address of an interface (its index); ``local_id`` is not 0."""

    token: int
    local: Endpoint
    remote: Endpoint
    local_id: int
    interface: int
    backup: bool

    def message(self) -> tuple[int, bytes]:
        """Command and attributes."""
        more = [attribute(_ADDR_ID, _U8.pack(self.local_id)), attribute(_ADDR_INTERFACE, _S32.pack(self.interface))]
        if self.backup:
            more.append(attribute(_ADDR_FLAGS, _U32.pack(_FLAG_BACKUP)))
        local, remote = _address(_ATTR_ADDRESS, self.local, *more), _address(_ATTR_REMOTE, self.remote)
        return _CREATE, _token(self.token) + local + remote


@dataclass(frozen=True, slots=True)
class DestroySubflow:
    """The end of a subflow, which is known by its two ends."""

    token: int
    local: Endpoint
    remote: Endpoint

    def message(self) -> tuple[int, bytes]:
        """Command and attributes."""
        ends = _address(_ATTR_ADDRESS, self.local), _address(_ATTR_REMOTE, self.remote)
        return _DESTROY, _token(self.token) + b"".join(ends)


@dataclass(frozen=True, slots=True)
class SetBackup:
    """Whether a subflow is a backup, here and, by MP_PRIO, at the peer."""

    token: int
    local: Endpoint
    remote: Endpoint
    backup: bool

    def message(self) -> tuple[int, bytes]:
        """Command and attributes."""
        flags = attribute(_ADDR_FLAGS, _U32.pack(_FLAG_BACKUP if self.backup else 0))
        ends = _address(_ATTR_ADDRESS, self.local, flags), _address(_ATTR_REMOTE, self.remote)
        return _SET_FLAGS, _token(self.token) + b"".join(ends)


@dataclass(frozen=True, slots=True)
class RemoveAddress:
    """Tells the peer, by the other subflows, that an address is gone (REMOVE_ADDR): it ends that address's subflows."""

    token: int
    local_id: int

    def message(self) -> tuple[int, bytes]:
        """Command and attributes."""
        return _REMOVE, _token(self.token) + attribute(_ATTR_LOCAL_ID, _U8.pack(self.local_id))


Command = CreateSubflow | DestroySubflow | SetBackup | RemoveAddress


def _token(token: int) -> bytes:
    return attribute(_ATTR_TOKEN, _U32.pack(token))


class PathManagerSocket:
    """Commands to the path manager and its events, in the network namespace in which the object was made.

    Use as a context manager. Raises NetlinkError, with ``number`` ENOENT, where the kernel has no such path manager.
    """

    def __init__(self) -> None:
        self._commands = GenericNetlink(FAMILY)
        try:
            self._events = GenericEvents(FAMILY, EVENTS)
        except NetlinkError:
            self._commands.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both sockets."""
        self._commands.close()
        self._events.close()

    def fileno(self) -> int:
        """Becomes readable when there are events."""
        return self._events.fileno()

    def do(self, command: Command) -> None:
        """Carry out a command; NetlinkError if the kernel refuses it."""
        self._commands.command(*command.message())

    def events(self) -> Iterator[Event]:
        """The events of the next datagram, waiting for it; NetlinkError if they can't be read or some were lost."""
        for message in self._events.receive():
            if message.kind == self._events.family:
                event = parse_event(message.payload)
                if event is not None:
                    yield event
