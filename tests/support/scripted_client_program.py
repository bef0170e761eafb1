#!/usr/bin/env python3
"""Stands for ``hyroads-client``: its control socket and its TUN, but no packets. What it is asked goes to a file.

``install`` puts it into a folder for $HYROADS_BIN. It refuses a configuration with an interface ``refused`` and a
migration to flow 404, and ends at once when the file ``LOG.crash`` appears.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

TUNSETIFF, TUNSETPERSIST, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x400454CB, 1, 0x1000


def install(folder: Path, log: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "hyroads-client"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} {log} "$@"\n')
    program.chmod(0o755)


def asked(log: Path, kind: str) -> list[dict[str, Any]]:
    """All requests of a kind so far, of all runs."""
    if not log.exists():
        return []
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if line["type"] == kind]


class Peer:
    def __init__(self, log: Path, options: dict[str, str]) -> None:
        self.log, self.options = log, options
        self.begun_s = time.monotonic()
        self.interfaces: list[dict[str, Any]] = []
        self.sessions: dict[int, dict[str, Any]] = {}
        self.migrations = 0
        self.tun = self._tun(options.get("--tun", "hr0"))
        self.note({"type": "started", "options": options})

    def _tun(self, name: str) -> int | None:
        if os.geteuid() != 0:
            return None
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        fcntl.ioctl(tun, TUNSETPERSIST, 1)
        return tun

    def note(self, request: dict[str, Any]) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps(request) + "\n")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.note(request)
        kind = request["type"]
        if kind == "configure":
            if any(each["name"] == "refused" for each in request["interfaces"]):
                return {"type": "error", "message": "interfaces[0].name: refused"}
            self.interfaces = request["interfaces"]
        elif kind == "migrate":
            if request["flow"] == 404:
                return {"type": "error", "message": "no flow 404"}
            self.migrations += 1
        elif kind == "session":
            self.sessions[request["session"]] = request
        elif kind == "end-session":
            self.sessions.pop(request["session"], None)
        elif kind == "status":
            return self.status()
        return {"type": "ok"}

    def status(self) -> dict[str, Any]:
        passed_s = time.monotonic() - self.begun_s
        interfaces = [
            {"name": each["name"], "up": True, "carrier": True, "usable": each["usable"], "rate_mbps": 8.0,
             "sent_bytes": int(passed_s * 1e6), "received_bytes": 0, "queue_packets": 2} for each in self.interfaces
        ]  # fmt: skip
        names = [each["name"] for each in self.interfaces]
        flow = {"id": 12, "rule": "rest", "protocol": "udp", "source": "10.171.0.2:5060", "via": "direct",
                "destination": "192.0.2.9:5060", "interface": names[0] if names else None, "interfaces": names,
                "sent_bytes": int(passed_s * 1e6), "received_bytes": 0, "queue_packets": 2, "dropped_packets": 0,
                "migrations": self.migrations, "weight": 2.0, "urgent": False}  # fmt: skip
        sessions = [{"session": each["session"], "client": each["client"]} for each in self.sessions.values()]
        return {"type": "status", "program": "scripted", "uptime_s": passed_s, "interfaces": interfaces,
                "flows": [flow], "sessions": sessions, "counters": {"malformed": 0}}  # fmt: skip


def main() -> None:
    log, words = Path(sys.argv[1]), sys.argv[2:]
    flags = {word for word in words if word in ("--waypoint", "--realtime", "--die-with-parent")}
    pairs = [word for word in words if word not in flags]
    options = dict(zip(pairs[::2], pairs[1::2], strict=True)) | dict.fromkeys(flags, "yes")
    peer, path = Peer(log, options), Path(options["--control"])
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while not Path(f"{log}.crash").exists():
        for key, _ in selector.select(0.05):
            if key.fileobj is listener:
                connection = listener.accept()[0]
                selector.register(connection, selectors.EVENT_READ, bytearray())
                continue
            connection, received = key.fileobj, key.data
            assert isinstance(connection, socket.socket)
            chunk = connection.recv(1 << 16)
            if not chunk:
                selector.unregister(connection)
                connection.close()
                continue
            received += chunk
            while (end := received.find(b"\n")) >= 0:
                request = json.loads(received[:end])
                del received[: end + 1]
                answer = {**peer.answer(request), "seq": request["seq"]}
                connection.sendall(json.dumps(answer).encode() + b"\n")
    Path(f"{log}.crash").unlink()
    os._exit(1)


if __name__ == "__main__":
    main()
