"""What hosts say of themselves: arguments for ``ClientLab.send``."""

from __future__ import annotations

import socket
import struct
from typing import Any


def arp(source: str, ip: str, wanted: str = "10.0.99.99") -> dict[str, Any]:
    """A question for ``wanted`` by somebody who says that it has ``ip``."""
    addresses = bytes.fromhex(source.replace(":", "")) + socket.inet_aton(ip) + bytes(6) + socket.inet_aton(wanted)
    return {"payload": bytes.fromhex("0001080006040001") + addresses, "eth_type": 0x0806}


def udp4(source_port: int, target_port: int, data: bytes) -> dict[str, Any]:
    """A broadcast datagram without a sum (the switch does not look at it)."""
    udp = struct.pack("!HHHH", source_port, target_port, 8 + len(data), 0) + data
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    return {"payload": head + udp, "eth_type": 0x0800}


def dhcp_ack(client: str, ip: str) -> dict[str, Any]:
    """A server's answer that gives an address to a client."""
    head = b"\2\1\6\0" + bytes(12) + socket.inet_aton(ip) + bytes(8) + bytes.fromhex(client.replace(":", ""))
    return udp4(67, 68, head.ljust(236, b"\0") + b"\x63\x82\x53\x63" + b"\x35\1\5\xff")


def advertisement(source: str, ip: str) -> dict[str, Any]:
    """A neighbour advertisement: ``source`` has ``ip``."""
    target = socket.inet_pton(socket.AF_INET6, ip)
    option = b"\2\1" + bytes.fromhex(source.replace(":", ""))
    body = b"\x88\0\0\0" + b"\x20\0\0\0" + target + option
    head = struct.pack("!IHBB", 0x60000000, len(body), 58, 255) + target + socket.inet_pton(socket.AF_INET6, "ff02::1")
    return {"payload": head + body, "eth_type": 0x86DD}


def router_advertisement(source: str, *, behind_options: bool = False) -> dict[str, Any]:
    """Somebody says that it is a router; ``behind_options``: after a header of hop-by-hop options."""
    body = b"\x86\0\0\0" + b"\x40\0" + struct.pack("!HII", 1800, 0, 0) + b"\x01\x01" + _mac(source)
    options = b"\x3a\0\x01\x04\0\0\0\0" if behind_options else b""
    head = struct.pack("!IHBB", 0x60000000, len(options + body), 0 if behind_options else 58, 255)
    ends = socket.inet_pton(socket.AF_INET6, "fe80::1") + socket.inet_pton(socket.AF_INET6, "ff02::1")
    return {"payload": head + ends + options + body, "eth_type": 0x86DD}


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
