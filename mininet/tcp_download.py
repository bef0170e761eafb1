"""Downloads over TCP, timed as a user sees them: from the connection's first packet to the last byte.

    python -m hyroads.mininet.tcp_download serve --port P --congestion cubic
    python -m hyroads.mininet.tcp_download get --from HOST --port P --bytes N [--count 10] [--pause 0.5]

``get`` prints the seconds of each download, a line each; ``--count 0`` goes on until it is ended.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import struct
import sys
import threading
import time

CHUNK_BYTES = 1 << 16
_REQUEST = struct.Struct("!Q")


def serve(port: int, congestion: str) -> None:
    """Answers each connection's one request, a number of bytes, with so many bytes; never returns."""
    listener = socket.create_server(("", port), backlog=16)
    # Connections inherit it from the socket that accepts them.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    chunk = bytes(CHUNK_BYTES)
    with connection:
        try:
            wanted = connection.recv(_REQUEST.size, socket.MSG_WAITALL)
            left = _REQUEST.unpack(wanted)[0] if len(wanted) == _REQUEST.size else 0
            while left > 0:
                left -= connection.send(chunk[: min(left, CHUNK_BYTES)])
        except OSError:
            # The client went away: its own matter.
            return


def get(host: str, port: int, size: int) -> float:
    """Seconds that a download of so many bytes takes; raises OSError if it does not come to its end."""
    begin_s = time.monotonic()
    with socket.create_connection((host, port), timeout=60.0) as connection:
        connection.sendall(_REQUEST.pack(size))
        left = size
        while left > 0:
            got = len(connection.recv(CHUNK_BYTES))
            if got == 0:
                raise ConnectionError(f"download from {host}: {left} bytes are missing")
            left -= got
    return time.monotonic() - begin_s


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
    for one in (server, client):
        one.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if args.command == "serve":
        serve(args.port, args.congestion)
    for number in range(args.count) if args.count else itertools.count():
        if number:
            time.sleep(args.pause)
        print(f"{get(args.host, args.port, args.bytes):.6f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
