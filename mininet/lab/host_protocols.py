"""What two computers send each other in a lab, by many protocols; whether it comes back unchanged.

A program of its own, which runs in the computers without anything of HyRoads: ``host_protocols.py answer`` sends
everything back, ``host_protocols.py try`` prints a JSON object: what was sent -> empty text, or why it failed.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

IPV4, IPV6 = "10.0.9.3", "fd00::3"
"""Addresses of the computer that answers."""
GROUP_4, GROUP_6, BROADCAST = "239.7.7.7", "ff15::7", "10.0.255.255"
PORT, DEVICE, TEST_TYPE = 7007, "eth0", 0x9000
"""The EtherType is that of the configuration testing protocol."""
ONE_TAG, TWO_TAGS = bytes.fromhex("81000007"), bytes.fromhex("88a80008 81000007")
_ETH_P_ALL, _SOL_PACKET, _PACKET_AUXDATA = 3, 263, 8
_AUXDATA = struct.Struct("@3I4H")
_ASK, _REPLY = b"->", b"<-"
GRE, ESP, SCTP = 47, 50, 132
_DISCOVER_4, _DISCOVER_6, _DONT, _DO = 10, 23, 0, 2
"""IP_MTU_DISCOVER, IPV6_MTU_DISCOVER and two of their values, which Python's module does not have."""
_TRIES, _WAIT_S, _TCP_BYTES = 3, 1.0, 300_000


def answer() -> None:
    """Send back what comes, for ever."""
    work: list[Callable[[], None]] = [partial(_answer_raw, kind) for kind in (GRE, ESP, SCTP)]
    work += [partial(_answer_udp, socket.AF_INET), partial(_answer_udp, socket.AF_INET6), _answer_frames]
    for each in work:
        threading.Thread(target=each, daemon=True).start()
    with socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        while True:
            threading.Thread(target=_answer_tcp, args=(server.accept()[0],), daemon=True).start()


def _answer_tcp(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(65_536):
            connection.sendall(data)


def _answer_udp(family: socket.AddressFamily) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("", PORT))
        index = socket.if_nametoindex(DEVICE)
        if family == socket.AF_INET6:
            group = socket.inet_pton(family, GROUP_6) + struct.pack("@I", index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
        else:
            group = struct.pack("4s4si", socket.inet_aton(GROUP_4), bytes(4), index)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        _allow_fragments(sock, family)
        while True:
            sock.sendto(*sock.recvfrom(65_536))


def _answer_raw(protocol: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) as sock:
        while True:
            packet, sender = sock.recvfrom(65_536)
            sock.sendto(packet[20:], sender)


def _answer_frames() -> None:
    with _frames() as sock:
        while True:
            addresses, tags, data = _frame_of(sock)
            if data[:2] == _ASK:
                sock.send(addresses[6:] + addresses[:6] + tags + TEST_TYPE.to_bytes(2, "big") + _REPLY + data[2:])


def _frames() -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    sock.bind((DEVICE, _ETH_P_ALL))
    return sock


def _frame_of(sock: socket.socket) -> tuple[bytes, bytes, bytes]:
    """Addresses, VLAN tags and payload of the next test frame. Linux takes the outer tag out of a frame."""
    while True:
        frame, more, _, sender = sock.recvmsg(65_536, 256)
        *_, tag, kind = _AUXDATA.unpack_from(more[0][2])
        tags = struct.pack("!HH", kind, tag) if kind else b""
        at = 12
        while frame[at : at + 2] in (ONE_TAG[:2], TWO_TAGS[:2]):
            tags, at = tags + frame[at : at + 4], at + 4
        if frame[at : at + 2] == TEST_TYPE.to_bytes(2, "big") and sender[2] != socket.PACKET_OUTGOING:
            return frame[:12], tags, frame[at + 2 :]


def _allow_fragments(sock: socket.socket, family: socket.AddressFamily) -> None:
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _DISCOVER_6, _DONT)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _DISCOVER_4, _DONT)


def _udp(to: str, size: int, *, whole: bool = False) -> str:
    """A datagram there and back; ``whole``: it must not be fragmented on the way."""
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        _allow_fragments(sock, family)
        if whole:
            option = (socket.IPPROTO_IPV6, _DISCOVER_6) if ":" in to else (socket.IPPROTO_IP, _DISCOVER_4)
            sock.setsockopt(*option, _DO)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if to in (GROUP_4, GROUP_6):
            index = socket.if_nametoindex(DEVICE)
            level = socket.IPPROTO_IPV6 if ":" in to else socket.IPPROTO_IP
            value = struct.pack("@I", index) if ":" in to else struct.pack("4s4si", bytes(4), bytes(4), index)
            sock.setsockopt(level, socket.IPV6_MULTICAST_IF if ":" in to else socket.IP_MULTICAST_IF, value)
        return _there_and_back(sock, os.urandom(size), lambda data: sock.sendto(data, (to, PORT)), sock.recv)


def _there_and_back(
    sock: socket.socket, data: bytes, send: Callable[[bytes], object], receive: Callable[[int], bytes]
) -> str:
    """Several tries: the first packet may find that the path is smaller."""
    sock.settimeout(_WAIT_S)
    why = ""
    for _ in range(_TRIES):
        try:
            send(data)
            while receive(65_536) != data:
                pass
        except OSError as error:
            why = str(error)
        else:
            return ""
    return why


def _raw(to: str, protocol: int, size: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) as sock:
        return _there_and_back(
            sock, os.urandom(size), lambda data: sock.sendto(data, (to, 0)), lambda size: sock.recv(size)[20:]
        )


def _frame(to: str, size: int, tags: bytes = b"") -> str:
    """A frame of no protocol that anything on the way knows, with VLAN tags."""
    with _frames() as sock:
        neighbour = json.loads(_run("ip", "-json", "neigh", "show", to).stdout)
        header = bytes.fromhex(neighbour[0]["lladdr"].replace(":", "")) + sock.getsockname()[4]
        kind, data = TEST_TYPE.to_bytes(2, "big"), tags + os.urandom(size)

        def receive(_size: int) -> bytes:
            _, came, reply = _frame_of(sock)
            return came + reply[2:]

        return _there_and_back(
            sock, data, lambda data: sock.send(header + tags + kind + _ASK + data[len(tags) :]), receive
        )


def _tcp(to: str) -> str:
    data = os.urandom(_TCP_BYTES)
    came = hashlib.sha256()
    with socket.create_connection((to, PORT), timeout=3 * _WAIT_S) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,), daemon=True)
        sender.start()
        left = len(data)
        while left and (part := connection.recv(65_536)):
            came.update(part)
            left -= len(part)
        sender.join()
    return "" if came.digest() == hashlib.sha256(data).digest() else "other bytes came back"


def _ping(to: str, size: int) -> str:
    why = ""
    for _ in range(_TRIES):
        done = _run("ping", "-c", "1", "-W", "1", "-M", "dont", "-s", str(size), to)
        if done.returncode == 0:
            return ""
        why = (done.stderr or done.stdout).strip()
    return why


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


TRIES: dict[str, Callable[[], str]] = {
    "ICMP": partial(_ping, IPV4, 56),
    "ICMP of 1472": partial(_ping, IPV4, 1472),
    "ICMPv6": partial(_ping, IPV6, 56),
    "ICMPv6 of 1452": partial(_ping, IPV6, 1452),
    "TCP": partial(_tcp, IPV4),
    "TCP over IPv6": partial(_tcp, IPV6),
    "UDP of 1": partial(_udp, IPV4, 1),
    "UDP of 1472": partial(_udp, IPV4, 1472),
    "UDP of 8000, fragmented by its sender": partial(_udp, IPV4, 8000),
    "UDP of 1452, not to be fragmented (QUIC)": partial(_udp, IPV4, 1452, whole=True),
    "UDP of 1452 (WireGuard, inner 1420)": partial(_udp, IPV4, 1452),
    "UDP over IPv6 of 1232, not to be fragmented (QUIC)": partial(_udp, IPV6, 1232, whole=True),
    "UDP over IPv6 of 1452 (WireGuard, inner 1420)": partial(_udp, IPV6, 1452),
    "multicast": partial(_udp, GROUP_4, 100),
    "multicast of 1472": partial(_udp, GROUP_4, 1472),
    "multicast over IPv6": partial(_udp, GROUP_6, 1200),
    "broadcast": partial(_udp, BROADCAST, 300),
    "frames in a VLAN": partial(_frame, IPV4, 1400, ONE_TAG),
    "frames behind two VLAN tags": partial(_frame, IPV4, 1400, TWO_TAGS),
    "GRE": partial(_raw, IPV4, GRE, 1400),
    "ESP": partial(_raw, IPV4, ESP, 1400),
    "SCTP": partial(_raw, IPV4, SCTP, 1400),
    "frames of another protocol": partial(_frame, IPV4, 1400),
}


def attempts() -> dict[str, str]:
    """What was sent -> empty text, or why it did not come back."""
    found = {}
    for name, attempt in TRIES.items():
        try:
            found[name] = attempt()
        except (OSError, ValueError, LookupError) as error:
            found[name] = str(error) or type(error).__name__
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["answer"]:
        answer()
    print(json.dumps(attempts()))
