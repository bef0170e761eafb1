"""Port statistics (OpenFlow Switch Specification 1.3.5, section 7.3.5.6): the request, and replies as counters."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from hyroads.controller.ofp.errors import OpenFlowError
from hyroads.controller.ofp.wire import ANY, HEADER, MULTIPART_REPLY, MULTIPART_REQUEST, message

MULTIPART_PORT_STATS = 4
_LAST_PHYSICAL = 0xFFFF_FF00
_REQUEST = Struct("!HH4xI4x")
_REPLY = Struct("!HH4x")
_ENTRY = Struct("!I4x12QII")
_MORE = 1


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Counters of a port since some start; bytes of whole frames without FCS."""

    port: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int


def port_stats_request(xid: int) -> bytes:
    """Asks for the counters of all ports."""
    return message(_REQUEST.pack(MULTIPART_PORT_STATS, 0, ANY), xid, MULTIPART_REQUEST)


def parse_port_stats(data: bytes) -> tuple[list[PortCounters], bool]:
    """The counters of a reply's physical ports, and whether more replies follow; :class:`OpenFlowError`."""
    start = HEADER.size + _REPLY.size
    if len(data) < start or (len(data) - start) % _ENTRY.size:
        raise OpenFlowError(f"port statistics: {len(data)} bytes are no whole number of entries")
    kind = HEADER.unpack_from(data)[1]
    what, flags = _REPLY.unpack_from(data, HEADER.size)
    if (kind, what) != (MULTIPART_REPLY, MULTIPART_PORT_STATS):
        raise OpenFlowError(f"a message of type {kind}, {what} is no port statistics")
    entries = (_ENTRY.unpack_from(data, at) for at in range(start, len(data), _ENTRY.size))
    ports = [PortCounters(*entry[:9]) for entry in entries if entry[0] < _LAST_PHYSICAL]
    return ports, bool(flags & _MORE)
