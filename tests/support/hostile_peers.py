"""Opens many connections a second from many addresses of loopback, and measures how friends get in meanwhile.

As a program (``python hostile_peers.py PORT KIND PER_S SECONDS``) it is the hostile side, in a process of its own.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen

ADDRESSES = tuple(f"127.0.1.{number}" for number in range(1, 101))
MOST_OPEN = 8000


def openflow(kind: int, body: bytes, xid: int = 1) -> bytes:
    return struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body


HELLO, ECHO = openflow(0, b""), openflow(2, b"alive")
UNKNOWN = openflow(6, struct.pack("!QIBB2xII", 0xBAD, 0, 254, 0, 0x4F, 0))
KNOWN = openflow(6, struct.pack("!QIBB2xII", 1, 0, 254, 0, 0x4F, 0))
WRONG = {"type": "hello", "version": 1, "node": "a", "program": "p", "boot": "1", "token": "wrong", "revision": 0}
ASKS = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n"
WORDS: dict[str, Sequence[bytes]] = {
    "silent": (b"",),
    "openflow": (b"", HELLO, HELLO + 3 * ECHO, HELLO + UNKNOWN, b"\4", bytes(range(256))),
    "agents": (b"", b'{"type":"hello"', json.dumps(WRONG).encode() + b"\n", b"\0" * 100 + b"\n"),
    "rest": (b"", b"GET /api/v1/hea", b"GET / HTTP/1.1\r\nHost: x\r\nA: "),
    "requests": (ASKS,),
}


def client_hello() -> bytes:
    """What begins TLS; the server answers with its certificate and a signature."""
    told = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), told).do_handshake()
    return told.read()


def attack(port: int, kind: str, per_s: float, seconds: float) -> int:
    """How many connections were made."""
    kept: deque[socket.socket] = deque()
    words = (b"", client_hello(), client_hello()[:50]) if kind == "tls" else WORDS[kind]
    began_s, made, number = time.monotonic(), 0, 0
    while time.monotonic() - began_s < seconds:
        while number < (time.monotonic() - began_s) * per_s:
            number += 1
            peer = socket.socket()
            peer.settimeout(0.2)
            with suppress(OSError):
                peer.bind((ADDRESSES[number % len(ADDRESSES)], 0))
                peer.connect(("127.0.0.1", port))
                made += 1
                peer.sendall(words[number % len(words)])
            kept.append(peer)
            if len(kept) > MOST_OPEN:
                kept.popleft().close()
        time.sleep(0.002)
    return made


@contextmanager
def attacked(port: int, kind: str, per_s: float, seconds: float) -> Iterator[Popen[bytes]]:
    """While the attack goes on; its program says at its end how many connections it has made."""
    command = [sys.executable, str(Path(__file__)), str(port), kind, str(per_s), str(seconds)]
    with Popen(command, stdout=PIPE) as program:
        try:
            yield program
        finally:
            program.terminate()


def switch_in(port: int, dpid: int = 1, context: ssl.SSLContext | None = None) -> float:
    """Seconds until a switch has finished its handshake and is asked for what it has; OSError."""
    began_s, data = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", port), timeout=1.0) as plain:
        peer = plain if context is None else context.wrap_socket(plain)
        peer.sendall(HELLO)
        while True:
            more = peer.recv(65536)
            if not more:
                raise ConnectionError("ended by the controller")
            data += more
            while len(data) >= 8 and len(data) >= (length := int.from_bytes(data[2:4], "big")):
                message, data = data[:length], data[length:]
                if message[1] == 5:
                    peer.sendall(openflow(6, struct.pack("!QIBB2xII", dpid, 0, 254, 0, 0x4F, 0)))
                elif message[1] == 18 and message[8:10] == b"\0\x0d":
                    peer.sendall(openflow(19, struct.pack("!HH4x", 13, 0) + bytes(64)))
                elif message[1] not in (0, 2):
                    return time.monotonic() - began_s


def agent_in(port: int, token: str) -> float:
    """Seconds until an agent is welcome; OSError."""
    began_s = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=1.0) as peer:
        peer.sendall(json.dumps({**WRONG, "token": token}).encode() + b"\n")
        if b"welcome" not in peer.recv(65536):
            raise ConnectionError("not welcome")
        return time.monotonic() - began_s


def admin_in(port: int, token: str) -> float:
    """Seconds until an admin has an answer; OSError."""
    began_s = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=1.0) as peer:
        peer.sendall(ASKS.replace(b"wrong", token.encode()).replace(b"/health", b"/flows"))
        if not peer.recv(65536).startswith(b"HTTP/1.1 200"):
            raise ConnectionError("no answer")
        return time.monotonic() - began_s


def times_in(come: Callable[[], float], seconds: float, every_s: float = 0.05) -> list[float]:
    """How long each friend took, one after the other; infinity for one that did not get in within a second."""
    until_s, taken = time.monotonic() + seconds, []
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        try:
            taken_s = come()
        except OSError:
            taken_s = float("inf")
        taken.append(taken_s if taken_s <= 1.0 else float("inf"))
        time.sleep(max(0.0, every_s - (time.monotonic() - began_s)))
    return taken


if __name__ == "__main__":
    print(attack(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])), flush=True)
