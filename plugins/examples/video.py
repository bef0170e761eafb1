"""A video without a camera: packets as an encoder sends them (25 frames/s, a large one every 12), and who counts them.

    python -m hyroads.plugins.examples.video receive 5004 --seconds 30            on the television; JSON of what came
    python -m hyroads.plugins.examples.video send 10.0.0.2 5004 --seconds 25      on the server

With ``--ncast FLOW`` the sender finds the controller by SFNet and has each packet of the flow sent by two paths: what
one loses comes by the other, and the television gets each packet once. A real video goes the same way:
``ffmpeg -re -i film.mp4 -c copy -f mpegts udp://10.0.0.2:5004?pkt_size=1316``.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from hyroads.plugins.sfnet.client import Controller, discover

FRAMES_PER_S, GROUP, LARGE, PACKET = 25, 12, 6.0, 1200
HEAD = struct.Struct("!II")


def trace(mbps: float) -> Iterator[int]:
    """Packets of each frame: one in ``GROUP`` is ``LARGE`` times as long as the others."""
    mean = mbps * 1e6 / 8 / PACKET / FRAMES_PER_S
    small = mean * GROUP / (GROUP - 1 + LARGE)
    number, due = 0, 0.0
    while True:
        due += small * (LARGE if number % GROUP == 0 else 1.0)
        yield int(due)
        due, number = due - int(due), number + 1


def send(host: str, port: int, seconds: float, mbps: float) -> int:
    """Send for a while; how many packets it were."""
    sequence, began_s = 0, time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for frame, packets in zip(range(int(seconds * FRAMES_PER_S)), trace(mbps), strict=False):
            time.sleep(max(0.0, began_s + frame / FRAMES_PER_S - time.monotonic()))
            for _ in range(packets):
                out.sendto(HEAD.pack(sequence, frame).ljust(PACKET, b"\0"), (host, port))
                sequence += 1
    return sequence


def receive(port: int, seconds: float) -> dict[str, Any]:
    """Count for a while: lost (and which, the first of them), doubled, out of order."""
    came, doubled, disordered, highest = 0, 0, 0, -1
    until_s, seen = time.monotonic() + seconds, set[int]()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inp:
        inp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        inp.bind(("0.0.0.0", port))  # noqa: S104 - a receiver
        while (left_s := until_s - time.monotonic()) > 0:
            inp.settimeout(left_s)
            try:
                sequence, _frame = HEAD.unpack_from(inp.recv(2048))
            except TimeoutError:
                break
            came += 1
            doubled += sequence in seen
            disordered += sequence < highest
            seen.add(sequence)
            highest = max(highest, sequence)
    counted = {"received": came, "highest": highest, "doubled": doubled, "disordered": disordered}
    missing = list(islice((number for number in range(highest) if number not in seen), 20))
    return {**counted, "lost": highest + 1 - len(seen), "missing": missing}


def main(arguments: list[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sender, receiver = commands.add_parser("send"), commands.add_parser("receive")
    sender.add_argument("host")
    for command in (sender, receiver):
        command.add_argument("port", type=int)
        command.add_argument("--seconds", type=float, default=20.0)
    sender.add_argument("--mbps", type=float, default=3.0)
    sender.add_argument("--ncast", metavar="FLOW")
    sender.add_argument("--via", default="lo", help="interface by which the controller is found")
    sender.add_argument("--token")
    options = parser.parse_args(arguments)
    if options.command == "receive":
        print(json.dumps(receive(options.port, options.seconds)))
        return 0
    network = None if options.ncast is None else Controller(*discover(options.via), token=options.token)
    if network is not None:
        network.ncast(options.ncast)
    print(json.dumps({"sent": send(options.host, options.port, options.seconds, options.mbps)}))
    if network is not None:
        network.end_ncast(options.ncast)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
