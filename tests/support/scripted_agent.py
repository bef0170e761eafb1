"""An edge agent that speaks the protocol and carries nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any


class ScriptedAgent:
    """Confirms whatever it is told, after ``delay_s``; reports each 0.1 s. Runs as a context."""

    def __init__(self, node: str, port: int, inbound_links: Sequence[str]) -> None:
        self.node = node
        self.delay_s = 0.0
        self._port = port
        self._links = inbound_links
        self._revision = 0
        self._lock = threading.Lock()
        self._open = True

    def __enter__(self) -> ScriptedAgent:
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=5)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._write({"type": "hello", "version": 1, "node": self.node, "program": "test", "boot": "1", "token": None,
                     "revision": 0})  # fmt: skip
        for target in (self._read, self._report_for_ever):
            threading.Thread(target=target, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def link(self, link: str, *, up: bool) -> None:
        """Tell that an inbound link is silent, or heard again."""
        self._write({"type": "link", "link": link, "up": up})

    def _write(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        try:
            for line in self._socket.makefile("rb"):
                self._answer(json.loads(line))
        except (OSError, ValueError):
            return

    def _answer(self, message: dict[str, Any]) -> None:
        kind, seq = message["type"], message.get("seq")
        if kind == "ping":
            self._write({"type": "pong", "seq": seq})
        elif kind == "stats":
            self._report(seq)
        elif kind in ("config", "rates"):
            time.sleep(self.delay_s)
            self._revision = message.get("revision", self._revision)
            self._write({"type": "ok", "seq": seq})

    def _report(self, seq: int | None) -> None:
        links = [{"link": link, "up": True, "last_heard_ms": 1.0} for link in self._links]
        head = {"type": "report", "seq": seq, "time_s": time.monotonic(), "revision": self._revision}
        counters = {"unclassified": 0, "malformed": 0, "cpu_s": 0.0}
        self._write({**head, "ingress": [], "egress": [], "links": links, **counters})

    def _report_for_ever(self) -> None:
        try:
            while self._open:
                time.sleep(0.1)
                self._report(None)
        except OSError:
            return
