"""A TCP connection of a client that sends for some seconds, every byte checked, and its flow in the status."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from multihomed import FAR, Host, World

RECEIVE = """
import hashlib, socket, time
s = socket.create_server(("0.0.0.0", 7001)); print("ready", flush=True)
c, _ = s.accept(); h = hashlib.sha256(); n = 0; last = time.monotonic(); gap = 0.0
while chunk := c.recv(1 << 16):
    now = time.monotonic(); gap = max(gap, now - last); last = now; n += len(chunk); h.update(chunk)
print(n, h.hexdigest(), round(gap, 3), flush=True)
"""
SEND = """
import hashlib, random, socket, time
s = socket.create_connection(("{far}", 7001), 5); s.settimeout(20); h = hashlib.sha256(); n = 0
block = random.Random(7).randbytes(1 << 14); end = time.monotonic() + {seconds}
while time.monotonic() < end:
    s.sendall(block); h.update(block); n += len(block); time.sleep(0.005)
s.shutdown(socket.SHUT_WR); s.recv(1); print(n, h.hexdigest(), flush=True)
"""


class Transfer:
    """A paced upload over TCP from the client to the far host, of some seconds."""

    def __init__(self, world: World, seconds: float) -> None:
        self._far = self._start(world.far, RECEIVE)
        assert self._far.stdout is not None
        assert self._far.stdout.readline() == "ready\n"
        self._near = self._start(world.client, SEND.format(far=FAR, seconds=seconds))

    def _start(self, namespace: str, code: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", namespace, sys.executable, "-c", code]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self) -> tuple[int, float]:
        """Bytes, all of them right, and the longest gap at the receiver, s."""
        try:
            said = self._near.communicate(timeout=60)[0]
            # Nobody tells the far end of a connection that broke here.
            assert self._near.returncode == 0, said
            sent, received = said.split(), self._far.communicate(timeout=20)[0].split()
        finally:
            self._near.kill()
            self._far.kill()
        assert sent == received[:2], (sent, received)
        return int(sent[0]), float(received[2])


def flow_of(host: Host, name: str) -> dict[str, Any]:
    return next(flow for flow in host.status()["flows"] if flow["name"] == name)


def has_flow(host: Host, name: str) -> bool:
    return any(flow["name"] == name and flow["rate_mbps"] > 0 for flow in host.status()["flows"])
