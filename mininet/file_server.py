"""A web server of one made-up file, with byte ranges and an ETag: what demos download. Runs as a process of its own.

python -m hyroads.mininet.file_server --port PORT --bytes N --file PATH
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import socket
import threading
from pathlib import Path

_BLOCK_BYTES = 1_000_003
_MOST_SENT = 1 << 20
_RANGE = re.compile(rb"^range: *bytes=([0-9]{1,15})-([0-9]{1,15})?\r$", re.IGNORECASE | re.MULTILINE)


def content(length: int) -> bytes:
    """Bytes of which no two pieces of the same size are alike."""
    block = hashlib.shake_128(b"hyroads").digest(_BLOCK_BYTES)
    return (block * (length // len(block) + 1))[:length]


def serve(port: int, path: Path) -> None:
    """Serves the file under every name until the process ends."""
    with socket.create_server(("0.0.0.0", port), backlog=64) as listener:  # noqa: S104 - in a namespace of its own
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer_all, args=(connection, path), daemon=True).start()


def _answer_all(connection: socket.socket, path: Path) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = b""
    try:
        with connection, path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            while True:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                _answer(connection, file.fileno(), length, head + b"\r\n")
    except OSError:
        # The client has gone, or wanted only some of it.
        return


def _answer(connection: socket.socket, file: int, length: int, head: bytes) -> None:
    wanted = _RANGE.search(head)
    begin, end = 0, length
    lines = ["HTTP/1.1 200 OK", f'ETag: "{length}"', "Accept-Ranges: bytes"]
    if wanted is not None and int(wanted[1]) < length:
        begin, end = int(wanted[1]), min(length, int(wanted[2]) + 1 if wanted[2] else length)
        lines[0] = "HTTP/1.1 206 Partial Content"
        lines.append(f"Content-Range: bytes {begin}-{end - 1}/{length}")
    connection.sendall("\r\n".join([*lines, f"Content-Length: {end - begin}", "", ""]).encode())
    while begin < end:
        begin += os.sendfile(connection.fileno(), file, begin, min(_MOST_SENT, end - begin))


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.file.write_bytes(content(arguments.bytes))
    print(f"{arguments.bytes} bytes at port {arguments.port}", flush=True)
    serve(arguments.port, arguments.file)


if __name__ == "__main__":
    main()
