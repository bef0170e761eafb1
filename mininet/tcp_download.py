"""Downloads over TCP or MPTCP, timed as a user sees them: from the connection's first packet to the last byte.

    python -m hyroads.mininet.tcp_download serve --port P --congestion cubic [--protocol mptcp]
    python -m hyroads.mininet.tcp_download get --from HOST --port P --bytes N [--count 10] [--pause 0.5]
    python -m hyroads.mininet.tcp_download load --from HOST --port P --pages PAGES [--pause 0.1] [--protocol mptcp]

``get`` prints the seconds of each download, a line each; ``--count 0`` goes on until it is ended. ``load`` fetches
pages as a browser of HTTP/1.1 does, and prints the seconds of each. ``PAGES`` is a list of pages in JSON; a page is a
list of sizes in bytes: that of its document, which names the others, and those of its objects.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence

CHUNK_BYTES = 1 << 16
CONNECTIONS = 6
"""So many connections has a browser to one server."""
PROTOCOLS = {"tcp": 0, "mptcp": 262}
_TIMEOUT_S = 60.0
_REQUEST = struct.Struct("!Q")


def serve(port: int, congestion: str, protocol: str = "tcp") -> None:
    """Answers each request of a connection, a number of bytes, with so many bytes; never returns."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOLS[protocol])
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", port))
    listener.listen(64)
    # Connections inherit it from the socket that accepts them.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    chunk = bytes(CHUNK_BYTES)
    with connection:
        try:
            while len(wanted := connection.recv(_REQUEST.size, socket.MSG_WAITALL)) == _REQUEST.size:
                left = _REQUEST.unpack(wanted)[0]
                while left > 0:
                    left -= connection.send(chunk[: min(left, CHUNK_BYTES)])
        except OSError:
            # The client went away: its own matter.
            return


def get(host: str, port: int, size: int) -> float:
    """Seconds that a download of so many bytes takes; raises OSError if it does not come to its end."""
    begin_s = time.monotonic()
    with _connected(host, port, "tcp") as connection:
        _fetch(connection, size)
    return time.monotonic() - begin_s


def load(host: str, port: int, page: Sequence[int], protocol: str = "tcp") -> float:
    """Seconds that a page takes: its document, then its objects over several connections; OSError as for ``get``."""
    begin_s = time.monotonic()
    objects, problems = deque(page[1:]), list[OSError]()

    def work(connection: socket.socket | None) -> None:
        try:
            with connection or _connected(host, port, protocol) as mine:
                while objects:
                    _fetch(mine, objects.popleft())
        except IndexError:
            # Another connection took the last one.
            return
        except OSError as error:
            problems.append(error)

    first = _connected(host, port, protocol)
    _fetch(first, page[0])
    others = [threading.Thread(target=work, args=(None,)) for _ in range(min(CONNECTIONS, len(objects)) - 1)]
    for thread in others:
        thread.start()
    work(first)
    for thread in others:
        thread.join()
    if problems:
        raise problems[0]
    return time.monotonic() - begin_s


def _connected(host: str, port: int, protocol: str) -> socket.socket:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOLS[protocol])
    try:
        connection.settimeout(_TIMEOUT_S)
        connection.connect((host, port))
    except OSError:
        connection.close()
        raise
    return connection


def _fetch(connection: socket.socket, size: int) -> None:
    connection.sendall(_REQUEST.pack(size))
    left = size
    while left > 0:
        got = len(connection.recv(min(left, CHUNK_BYTES)))
        if got == 0:
            raise ConnectionError(f"{left} bytes are missing")
        left -= got


def main() -> int:
    """Serves or gets, until it is done or ended."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    server = commands.add_parser("serve")
    server.add_argument("--congestion", default="cubic")
    client = commands.add_parser("get")
    client.add_argument("--from", dest="host", required=True)
    client.add_argument("--bytes", type=int, required=True)
    client.add_argument("--count", type=int, default=1)
    client.add_argument("--pause", type=float, default=0.0, help="seconds between two downloads")
    pages = commands.add_parser("load")
    pages.add_argument("--from", dest="host", required=True)
    pages.add_argument("--pages", type=json.loads, required=True)
    pages.add_argument("--pause", type=float, default=0.0, help="seconds between two pages")
    for one in (server, pages):
        one.add_argument("--protocol", choices=PROTOCOLS, default="tcp")
    for one in (server, client, pages):
        one.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if args.command == "serve":
        serve(args.port, args.congestion, args.protocol)
    if args.command == "load":
        for page in args.pages:
            print(f"{load(args.host, args.port, page, args.protocol):.6f}", flush=True)
            time.sleep(args.pause)
        return 0
    for number in range(args.count) if args.count else itertools.count():
        if number:
            time.sleep(args.pause)
        print(f"{get(args.host, args.port, args.bytes):.6f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
