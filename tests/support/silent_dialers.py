"""Dials a TCP port from many loopback addresses and says nothing, while friends come in between."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack

DIALERS, ADDRESSES = 1400, 140


def served_friends(
    port: int, friend: Callable[[], bool], *, friends: int = 14, dialers: int = DIALERS, addresses: int = ADDRESSES
) -> int:
    """How many of ``friends`` were served, one after each ``dialers / friends`` silent connections, which stay open.

    ``friend`` makes one request from 127.0.0.1 and returns whether it was answered; what it raises counts as not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * dialers)), hard))
    served, each = 0, dialers // friends
    with ExitStack() as open_connections:
        for number in range(dialers):
            place = number % addresses
            address = f"127.{1 + place // 100}.{place % 100}.2"
            dialer = socket.create_connection(("127.0.0.1", port), 10.0, source_address=(address, 0))
            open_connections.callback(dialer.close)
            if number % each == each - 1:
                try:
                    served += friend()
                except OSError:
                    continue
    return served
