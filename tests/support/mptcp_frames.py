"""SYNs of the kernel's own MPTCP (Linux 6.18), recorded with tcpdump between two namespaces; and how to change them."""

from __future__ import annotations

from hyroads.controller.core.mptcp import token_of

# The client has 10.9.1.1 and 10.9.2.1 (endpoint with ``backup``), the server 10.9.1.2 and port 5001.
CAPABLE = bytes.fromhex(
    "02aa0000010202aa000001010800450000404b8040004006d9230a0901010a0901029a94138976cc5740000000"
    "00b002faf016470000020405b40402080a712e40cf000000000103030a1e040101"
)
CAPABLE_ANSWER = bytes.fromhex(
    "02aa0000010102aa00000102080045000048000040004006249c0a0901020a09010113899a94c8bcc3ea76cc57"
    "41d012fe88164f0000020405b40402080a5b4bb872712e40cf0103030a1e0c01011006288b62a5557c"
)
CAPABLE_V6 = bytes.fromhex(
    "02aa0000010202aa0000010186dd6009175f002c0640fd000001000000000000000000000001fd000001000000"
    "000000000000000002e6e21389caabe34200000000b002fd20fa380000020405a00402080aade4a55400000000"
    "0103030a1e040101"
)
CAPABLE_V6_ANSWER = bytes.fromhex(
    "02aa0000010102aa0000010286dd6009c5d000340640fd000001000000000000000000000002fd000001000000"
    "0000000000000000011389e6e2ca7a2236caabe343d012fb04fa400000020405a00402080a877914dfade4a554"
    "0103030a1e0c0101c983ba7d7de91454"
)
PLAIN = bytes.fromhex(
    "02aa0000010202aa0000010108004500003cc2bf4000400661e80a0901010a0901029aa0138920a6b5f7000000"
    "00a002faf016430000020405b40402080a4403e795000000000103030a"
)
PLAIN_ANSWER = bytes.fromhex(
    "02aa0000010102aa0000010208004500003c00004000400624a80a0901020a09010113899aa0c23053d020a6b5"
    "f8a012fe8816430000020405b40402080a9965b8444403e7950103030a"
)
JOIN = bytes.fromhex(
    "02aa0000020202aa000002010800450000486d4c40004006b64f0a0902010a0901029617138960d67665000000"
    "00d002faf0174f0000020405b40402080ae5febde2000000000103030a1e0c1101aa13a7b777b0e4e7"
)
JOIN_ANSWER = bytes.fromhex(
    "02aa0000020102aa0000020208004500004c00004000400623980a0901020a0902011389961760fc2a7f60d676"
    "66e012fe8817530000020405b40402080abbdf7051e5febde20103030a1e101000539bdb47641cc9dc6f032e26"
)
TCP, TCP_V6 = 34, 54
"""Where the TCP header begins in frames of IPv4 and of IPv6."""


def option(*octets: int | bytes, kind: int = 30) -> bytes:
    """A TCP option of the right length."""
    content = b"".join(o if isinstance(o, bytes) else bytes((o,)) for o in octets)
    return bytes((kind, len(content) + 2)) + content


def with_options(frame: bytes, options: bytes, tcp: int = TCP) -> bytes:
    """The frame with other TCP options, filled up with zeros, and lengths that fit."""
    options += bytes(-len(options) % 4)
    header = bytearray(frame[tcp : tcp + 20])
    header[12] = (5 + len(options) // 4) << 4
    out = bytearray(frame[:tcp]) + header + options
    if tcp == TCP:
        out[16:18] = (len(out) - 14).to_bytes(2, "big")
    else:
        out[18:20] = (len(out) - 54).to_bytes(2, "big")
    return bytes(out)


def from_to(frame: bytes, source: str, target: str, source_port: int, target_port: int) -> bytes:
    """The frame with other IPv4 addresses and ports."""
    out = bytearray(frame)
    out[26:30], out[30:34] = (bytes(map(int, address.split("."))) for address in (source, target))
    out[TCP : TCP + 2], out[TCP + 2 : TCP + 4] = source_port.to_bytes(2, "big"), target_port.to_bytes(2, "big")
    return bytes(out)


def with_macs(frame: bytes, source: str, target: str) -> bytes:
    """The frame with other MAC addresses."""
    return bytes.fromhex(target.replace(":", "") + source.replace(":", "")) + frame[12:]


def capable() -> bytes:
    """The option of a SYN that begins a connection."""
    return option(0x01, 0x01)


def capable_answer(key: bytes) -> bytes:
    """The option of the SYN/ACK."""
    return option(0x01, 0x01, key)


def join(key: bytes, address_id: int = 2, *, backup: bool = False) -> bytes:
    """The option of a SYN that joins the connection whose receiver has this key."""
    return option(0x10 | backup, address_id, token_of(key, 1).to_bytes(4, "big"), b"rand")


def join_answer() -> bytes:
    """The option of the SYN/ACK."""
    return option(0x10, 0, bytes(8), b"rand")
