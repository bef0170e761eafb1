"""A switch that answers nothing by itself: it keeps what a session sends, and tests make the answers."""

from __future__ import annotations

from collections.abc import Sequence

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.guard import check


class SilentSwitch:
    """A connection to it; ``sent`` has the messages, one by one, that nobody took. Ports are numbered from 1."""

    peer = "test"

    def __init__(self, dpid: int = 1, names: Sequence[str] = (), key: int | None = None) -> None:
        self.dpid = dpid
        self.key = dpid if key is None else key
        self.names = names
        self.macs: dict[str, str] = {}
        """What it reports of the addresses of its ports."""
        self.sent: list[bytes] = []
        self.closed = False

    def ports(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names, 1)}

    def addresses(self) -> dict[str, str]:
        return self.macs

    def send(self, data: bytes) -> bool:
        while data:
            length = int.from_bytes(data[2:4], "big")
            self.sent.append(data[:length])
            data = data[length:]
        return True

    def has_unread(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def take(self) -> list[bytes]:
        taken, self.sent = self.sent, []
        return taken


def xid_of(message: bytes) -> int:
    return int.from_bytes(message[4:8], "big")


def reply(request: bytes, body: bytes = b"") -> bytes:
    """The answer to a multipart request."""
    message = wire.message(request[8:10] + bytes(6) + body, xid_of(request), wire.MULTIPART_REPLY)
    check(message)
    return message
