"""Sockets for the frames of one EtherType on one interface, also where that is a port of a bridge or of Open vSwitch.

The socket takes all frames and has a filter for the EtherType (BPF): a socket that is bound to one EtherType hears
nothing on a port of a kernel bridge or of a kernel datapath, which take the frames first.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence

from .model import RadioError, mac_bytes

ETH_P_ALL = 3
_SOL_PACKET, _ADD_MEMBERSHIP, _IGNORE_OUTGOING = 263, 1, 23
_MULTICAST, _UNICAST = 0, 3
_SO_ATTACH_FILTER = 26
_LOAD_HALF, _JUMP_EQUAL, _RETURN = 0x28, 0x15, 0x06
_ETHERTYPE_AT = 12
MAX_FRAME_BYTES = 2048


def packet_socket(interface: str, ethertype: int, addresses: Sequence[str] = ()) -> socket.socket:
    """A socket that does not block, bound to ``interface``, for frames of ``ethertype`` that come in.

    ``addresses`` are group addresses, and unicast ones beside the interface's own, whose frames the interface shall let
    in. Needs CAP_NET_RAW. :class:`RadioError` that names the interface.
    """
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    except OSError as error:
        raise RadioError(f"{interface}: cannot open a packet socket: {error.strerror}") from error
    try:
        opened.setblocking(False)
        _filter(opened, ethertype)
        # What this machine sends is no answer; Linux has this since 4.20.
        opened.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        opened.bind((interface, ETH_P_ALL))
        index = socket.if_nametoindex(interface)
        for address in addresses:
            raw = mac_bytes(address)
            kind = _MULTICAST if raw[0] & 1 else _UNICAST
            opened.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, struct.pack("=iHH8s", index, kind, 6, raw))
    except OSError as error:
        opened.close()
        raise RadioError(f"{interface}: cannot listen for frames 0x{ethertype:04x}: {error.strerror}") from error
    return opened


def _filter(opened: socket.socket, ethertype: int) -> None:
    """Lets in frames of one EtherType, whole, and nothing else."""
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD_HALF, 0, 0, _ETHERTYPE_AT),
            (_JUMP_EQUAL, 0, 1, ethertype),
            (_RETURN, 0, 0, 0xFFFF),
            (_RETURN, 0, 0, 0),
        )
    )
    code = ctypes.create_string_buffer(program, len(program))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 4, ctypes.addressof(code)))


def received_frames(opened: socket.socket, most: int) -> list[bytes]:
    """The frames that have come in, at most ``most``. Raises OSError."""
    found: list[bytes] = []
    for _ in range(most):
        try:
            found.append(opened.recv(MAX_FRAME_BYTES))
        except BlockingIOError:
            break
    return found
