"""A web server of files, made for tests: byte ranges, ETags, sendfile, and faults that a query asks for.

    python range_server.py --listen 0.0.0.0:8000 [--tls CERTIFICATE,KEY] FOLDER

``/N.bin`` is N bytes that :func:`content` makes; all else is a file of FOLDER. ``?fault=...``:

    no-range, no-etag, weak-etag, chunked, redirect (to the same without a fault)
    changes          another ETag after the first answer
    changes-late     another ETag and other bytes after a few answers
    chunked-parts    parts are chunked
    total            another length in Content-Range after the first answer
    short            no ranges, claims twice its length
    cut, cut-always  each third body, or each, ends after half of it
    stall            each fourth body stands still for 3 s
    shifted          another range than asked for
    forbidden-later  403 after the first answer
    busy             503 each second time
    more             bytes behind the end of a body
    loop             a redirect to itself
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import socket
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

OLD = "Mon, 01 Jan 2024 00:00:00 GMT"


def content(length: int, version: int = 0) -> bytes:
    """Bytes of which no two pieces are alike, quickly."""
    block = hashlib.shake_128(b"%d" % version).digest(1_000_003)
    return (block * (length // len(block) + 1))[:length]


class Server:
    """Serves until it is closed; ``requests`` counts by path."""

    def __init__(self, host: str, port: int, folder: Path, tls: ssl.SSLContext | None = None) -> None:
        self.folder, self.tls = folder, tls
        self.listener = socket.create_server((host, port), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.requests: collections.Counter[str] = collections.Counter()
        self.log: list[tuple[str, dict[str, str]]] = []
        self._made: dict[tuple[int, int], Path] = {}
        self._lock = threading.Lock()

    def start(self) -> Server:
        threading.Thread(target=self.run, daemon=True).start()
        return self

    def close(self) -> None:
        self.listener.close()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def file(self, length: int, version: int = 0) -> Path:
        with self._lock:
            if (length, version) not in self._made:
                path = self.folder / f"{length}.{version}"
                new = path.with_name(f"{path.name}.{self.port}")
                new.write_bytes(content(length, version))
                new.replace(path)
                self._made[length, version] = path
        return self._made[length, version]

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as reader:
                while self._answer(connection, reader):
                    pass
        except (OSError, ValueError):
            return

    def _answer(self, connection: socket.socket, reader) -> bool:
        first = reader.readline(65536).split()
        if len(first) != 3:
            return False
        headers = {}
        while (line := reader.readline(65536)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.partition(b":")
            headers[name.strip().lower().decode()] = value.strip().decode()
        body = reader.read(int(headers.get("content-length", 0)))
        while "transfer-encoding" in headers and (size := int(reader.readline(), 16) + 2) > 0:
            body += reader.read(size)[:-2]
            if size == 2:
                break
        target = urlsplit(first[1].decode())
        fault = parse_qs(target.query).get("fault", [""])[0]
        with self._lock:
            self.requests[target.path] += 1
            count = self.requests[target.path]
            self.log.append((f"{first[0].decode()} {first[1].decode()}", headers))
        return self._respond(connection, first[0].decode(), target, headers, body, fault, count)

    def _respond(self, connection, method, target, headers, body, fault, count) -> bool:
        if target.path == "/echo":
            return self._send(connection, "200 OK", [f"Content-Length: {len(body)}", f"X-Method: {method}"], body)
        if fault in {"redirect", "loop", "downgrade"}:
            host = headers["host"]
            where = {"redirect": target.path, "loop": f"{target.path}?fault=loop", "downgrade": f"http://{host}/"}[
                fault
            ]
            return self._send(connection, "302 Found", [f"Location: {where}", "Content-Length: 0"])
        if (fault == "forbidden-later" and count > 1) or (fault == "busy" and count % 2 == 0):
            return self._send(connection, "403 Forbidden" if fault != "busy" else "503 Busy", ["Content-Length: 0"])
        other = (fault == "changes" and count > 1) or (fault == "changes-late" and count > 2)
        name = target.path.lstrip("/")
        stem, _, end = name.rpartition(".")
        path = self.file(int(stem), int(other)) if end == "bin" and stem.isdecimal() else self.folder / Path(name).name
        if not path.is_file():
            return self._send(connection, "404 Not Found", ["Content-Length: 0"])
        length = path.stat().st_size
        etag = f'"{length}-{int(other)}"'
        lines = [
            f"Date: {OLD.replace('2024', '2025')}",
            f"Last-Modified: {OLD}",
            f"ETag: {etag}",
            "Accept-Ranges: bytes",
        ]
        if fault == "no-etag":
            del lines[1:3]
        if fault == "weak-etag":
            lines[2] = f"ETag: W/{etag}"
        begin, stop, status = 0, length, "200 OK"
        ranged = headers.get("range", "").removeprefix("bytes=")
        same = headers.get("if-range") in (None, etag, OLD)
        if ranged and same and fault not in {"no-range", "chunked", "short"}:
            first, _, last = ranged.partition("-")
            begin, stop = int(first), min(length, int(last) + 1 if last else length)
            if begin >= stop:
                lines += [f"Content-Range: bytes */{length}", "Content-Length: 0"]
                return self._send(connection, "416 Range Not Satisfiable", lines)
            status = "206 Partial Content"
            begin += fault == "shifted" and count > 1
            total = length + (fault == "total" and count > 1)
            lines.append(f"Content-Range: bytes {begin}-{stop - 1}/{total}")
        if fault == "chunked-parts" and status.startswith("206"):
            data = path.read_bytes()[begin:stop]
            lines.append("Transfer-Encoding: chunked")
            return self._send(connection, status, lines, b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
        if fault == "chunked":
            data = path.read_bytes()
            pieces = b"".join(
                b"%x\r\n%s\r\n" % (len(p), p) for p in (data[k : k + 65536] for k in range(0, length, 65536))
            )
            return self._send(connection, status, [*lines, "Transfer-Encoding: chunked"], pieces + b"0\r\n\r\n")
        claimed = (stop - begin) * (2 if fault == "short" and status.startswith("200") else 1)
        lines.append(f"Content-Length: {claimed}")
        connection.sendall("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode())
        if method == "HEAD":
            return True
        cut = fault == "cut-always" or (fault == "cut" and count % 3 == 0)
        if cut:
            stop = begin + (stop - begin) // 2
        if fault == "stall" and count % 4 == 0:
            half = begin + (stop - begin) // 2
            self._body(connection, path, begin, half)
            time.sleep(3.0)
            begin = half
        self._body(connection, path, begin, stop)
        if fault == "more":
            connection.sendall(b"more than was said")
        return (not cut and claimed == stop - begin) or (fault not in {"short", "cut", "cut-always"})

    def _body(self, connection, path: Path, begin: int, stop: int) -> None:
        with path.open("rb") as file:
            if self.tls is not None:
                file.seek(begin)
                while begin < stop and (data := file.read(min(1 << 18, stop - begin))):
                    connection.sendall(data)
                    begin += len(data)
                return
            while begin < stop:
                count = os.sendfile(connection.fileno(), file.fileno(), begin, min(1 << 20, stop - begin))
                if count == 0:
                    return
                begin += count

    @staticmethod
    def _send(connection: socket.socket, status: str, lines: list[str], body: bytes = b"") -> bool:
        connection.sendall("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body)
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", action="append", required=True)
    parser.add_argument("--tls")
    parser.add_argument("folder", nargs="?")
    arguments = parser.parse_args()
    context = None
    if arguments.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*arguments.tls.split(","))
    folder = Path(arguments.folder or tempfile.mkdtemp())
    for listen in arguments.listen:
        host, _, port = listen.rpartition(":")
        Server(host, int(port), folder, context).start()
    print("serving", flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
