"""Two agents back to back for integration tests, and sockets in their namespaces."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_pair import EdgePair

from hyroads.mininet.isolation import enter_network_namespace

SO_RCVBUFFORCE = 33
_numbers = itertools.count()


def new_pair(folder: Path, **options: Any) -> EdgePair:
    """A pair of its own."""
    return EdgePair(f"hr-edge-{os.getpid()}-{next(_numbers)}", folder, **options)


def socket_in(pair: EdgePair, side: str, make: Callable[[], socket.socket]) -> socket.socket:
    """A socket of another namespace: made by a thread that ends there."""
    made: list[socket.socket] = []

    def work() -> None:
        enter_network_namespace(Path("/run/netns") / pair.namespace(side))
        made.append(make())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return made[0]


def udp_socket() -> socket.socket:
    """To be given to :func:`socket_in`."""
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
