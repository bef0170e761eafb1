"""Frames from random addresses, so many a second for so long; run where the interface is.

``python flood.py INTERFACE FRAMES_PER_S SECONDS KIND``; KIND is ``macs`` (each from another MAC) or ``claims`` (ARP of
one MAC for ever new addresses).
"""

from __future__ import annotations

import random
import socket
import sys
import time

MAC = bytes.fromhex("02bb00000001")


def macs(chance: random.Random) -> bytes:
    source = b"\x02" + chance.randbytes(5)
    return (b"\xff" * 6 + source + b"\x88\xb7flood").ljust(60, b"\0")


def claims(chance: random.Random) -> bytes:
    own = b"\x0a\x09" + chance.randbytes(2)
    arp = bytes.fromhex("0001080006040001") + MAC + own + bytes(6) + b"\x0a\x09\0\1"
    return (b"\xff" * 6 + MAC + b"\x08\x06" + arp).ljust(60, b"\0")


def main(interface: str, rate: float, seconds: float, kind: str) -> None:
    chance, make = random.Random(1), {"macs": macs, "claims": claims}[kind]
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind((interface, 0))
    # Frames are made before: sending alone has to keep up.
    frames = [make(chance) for _ in range(min(int(rate * seconds), 100_000))]
    started_s, sent = time.monotonic(), 0
    while (past_s := time.monotonic() - started_s) < seconds:
        due = int(past_s * rate)
        while sent < due:
            raw.send(frames[sent % len(frames)])
            sent += 1
        time.sleep(0.001)
    print(sent)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
