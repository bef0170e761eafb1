"""Frames of raw sockets as they were on the wire: Linux takes the outermost VLAN tag out, and tells of it aside."""

from __future__ import annotations

import socket
import struct

_SOL_PACKET, _PACKET_AUXDATA = 263, 8
_STATUS_VLAN_VALID, _STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
_AUXDATA = struct.Struct("=IIIHHHH")


def keep_tags(raw: socket.socket) -> None:
    """Call before frames come: ``receive_whole`` gets the tag only of frames that come afterwards."""
    raw.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)


def receive_whole(raw: socket.socket, size: int = 65536) -> tuple[bytes, int]:
    """One frame with its tag put back, and the type of the packet (``socket.PACKET_OUTGOING`` if it is our own)."""
    frame, control, _, address = raw.recvmsg(size, 256)
    for level, kind, data in control:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
            status, _, _, _, _, tci, tpid = _AUXDATA.unpack(data[: _AUXDATA.size])
            if status & _STATUS_VLAN_VALID:
                tag = struct.pack("!HH", tpid if status & _STATUS_VLAN_TPID_VALID else 0x8100, tci)
                frame = frame[:12] + tag + frame[12:]
    return frame, address[2]
