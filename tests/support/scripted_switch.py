"""A switch made of bytes: it says yes to everything, until it is told to say nothing any more."""

from __future__ import annotations

import socket
import struct
import threading
import time

from hyroads.controller.ofp import wire

HELLO, FEATURES_REQUEST, FEATURES_REPLY, MULTIPART, MULTIPART_REPLY, BARRIER, BARRIER_REPLY = 0, 5, 6, 18, 19, 20, 21
FLOW_MOD, PORT_DESCRIPTIONS = 14, 13
PREPARED = 9
"""Questions that a slicer has asked when it lets guests in."""


class ScriptedSwitch(threading.Thread):
    """Connects over ``connection``. ``got_s`` is when the last entry of table 0 came; ``hang`` stops its answers."""

    def __init__(self, connection: socket.socket, dpid: int, ports: range = range(1, 5)) -> None:
        super().__init__(daemon=True)
        self.socket = connection
        connection.settimeout(None)
        self.dpid = dpid
        self.ports = ports
        self.got_s = 0.0
        self.entries = 0
        self.flow_mods = 0
        self.questions = 0
        self.hangs = threading.Event()
        self._data = b""
        self._held: list[bytes] = []
        self._lock = threading.Lock()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def ready(self) -> bool:
        return self.questions >= PREPARED

    def hang(self) -> None:
        self.hangs.set()

    def wake(self) -> None:
        """Answer everything that came meanwhile."""
        with self._lock:
            self.hangs.clear()
            held, self._held = self._held, []
        for message in held:
            self._answer(message)

    def run(self) -> None:
        self.socket.sendall(wire.message(b"", 1, HELLO))
        while True:
            try:
                more = self.socket.recv(1 << 16)
            except OSError:
                return
            if not more:
                return
            self._data += more
            while len(self._data) >= 8:
                length = int.from_bytes(self._data[2:4], "big")
                if len(self._data) < length:
                    break
                message, self._data = self._data[:length], self._data[length:]
                self._take(message)

    def _take(self, message: bytes) -> None:
        with self._lock:
            if self.hangs.is_set():
                self._held.append(message)
                return
        self._answer(message)

    def _answer(self, message: bytes) -> None:
        kind, xid = message[1], int.from_bytes(message[4:8], "big")
        if kind == FEATURES_REQUEST:
            self._send(struct.pack("!QIBB2xII", self.dpid, 0, 254, 0, 0x4F, 0), xid, FEATURES_REPLY)
        elif kind == MULTIPART:
            self._send(self._statistics(message), xid, MULTIPART_REPLY)
            self.questions += 1
        elif kind == BARRIER:
            self._send(b"", xid, BARRIER_REPLY)
        elif kind == wire.ECHO_REQUEST:
            self._send(b"", xid, wire.ECHO_REPLY)
        elif kind == FLOW_MOD:
            self.flow_mods += 1
            if message[24] == 0 and message[25] == 0:
                self.got_s = time.perf_counter()
                self.entries += 1

    def _send(self, body: bytes, xid: int, kind: int) -> None:
        try:
            self.socket.sendall(wire.message(body, xid, kind))
        except OSError:
            return

    def _statistics(self, message: bytes) -> bytes:
        kind = int.from_bytes(message[8:10], "big")
        body = b""
        if kind == PORT_DESCRIPTIONS:
            body = b"".join(
                struct.pack("!I4x6s2x16s32x", n, b"\2\0\0\0\0" + bytes((n,)), b"p%d" % n) for n in self.ports
            )
        elif kind == wire.MULTIPART_METER_FEATURES:
            body = bytes(16)
        return struct.pack("!HH4x", kind, 0) + body
