"""Chat without a server: who is in a room is a participant of a multicast session, which the controller is asked for.

    python -m hyroads.plugins.examples.chat ROOM --name ann [--address 10.0.0.1] [--via eth0] [--token TOKEN]

Lines that are typed go to all others of the room. The controller is found by SFNet and needed for joining and leaving
only: those who are in go on talking when it dies.
"""

from __future__ import annotations

import argparse
import hashlib
import socket
import sys
import threading
from typing import TextIO

from hyroads.plugins.sfnet.client import Controller, discover

PORT = 5005
MAX_TEXT = 1000


def group_of(room: str) -> str:
    """A multicast address that all who know the room work out alike."""
    digest = hashlib.sha256(room.encode()).digest()
    return f"239.{digest[0]}.{digest[1]}.{digest[2]}"


class Talk:
    """The room's messages, from and to one host."""

    def __init__(self, room: str, address: str) -> None:
        self._group = group_of(room)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        here = socket.inet_aton(address)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(self._group) + here)
        self._socket.bind((self._group, PORT))

    def say(self, text: str) -> None:
        """To all others."""
        self._socket.sendto(text.encode()[:MAX_TEXT], (self._group, PORT))

    def listen(self, out: TextIO) -> None:
        """Writes what the others say, for ever."""
        while True:
            text = self._socket.recv(MAX_TEXT).decode("utf-8", "replace")
            out.write("".join(letter for letter in text if letter.isprintable()) + "\n")
            out.flush()


def main(arguments: list[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room")
    parser.add_argument("--name", required=True)
    parser.add_argument("--address", default=None, help="ours; found out by default")
    parser.add_argument("--via", default="lo", help="interface by which the controller is found")
    parser.add_argument("--token")
    options = parser.parse_args(arguments)
    address = options.address or socket.gethostbyname(socket.gethostname())
    with Controller(*discover(options.via), token=options.token) as network:
        network.join_session(options.room, group_of(options.room), address)
        talk = Talk(options.room, address)
        threading.Thread(target=talk.listen, args=(sys.stdout,), daemon=True).start()
        for line in sys.stdin:
            talk.say(f"{options.name}: {line.rstrip()}")
        network.leave_session(options.room, address)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
