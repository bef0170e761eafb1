"""The slicer's process ends clean, whoever is connected to it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from controller_process import eventually, free_ports

SLICES = [{"name": "lab", "flowspace": [{"switches": [1], "ports": ["p1", "p2"]}]}]
LISTEN = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_slicer_ends_clean_while_somebody_listens(tmp_path: Path, number: signal.Signals) -> None:
    """Others have sent half a request, or nothing: nobody is waited for long, and nothing is said of it."""
    openflow, rest = free_ports(2)
    listen = {"openflow": {"port": openflow}, "rest": {"port": rest}, "control": "control"}
    (tmp_path / "slicer.json").write_text(json.dumps({"slices": SLICES, "state_file": "state", "listen": listen}))
    words = [sys.executable, "-m", "hyroads.controller.cli", "slicer", "--config", str(tmp_path / "slicer.json")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    peers: list[socket.socket] = []
    try:
        eventually(lambda: process.poll() is not None or b"switches at" in (tmp_path / "log").read_bytes())
        for data in (LISTEN, LISTEN, LISTEN[:30], b""):
            peers.append(socket.socket(socket.AF_UNIX))
            peers[-1].connect(str(tmp_path / "control"))
            peers.append(socket.create_connection(("127.0.0.1", rest), 20))
            for peer in peers[-2:]:
                peer.settimeout(20)
                peer.sendall(data)
        for peer in peers[:4]:
            head = b""
            while b": listening" not in head:
                more = peer.recv(1000)
                assert more, head
                head += more
        process.send_signal(number)
        assert process.wait(20) == 0
        for peer in peers[:4]:
            while peer.recv(1000):
                pass
    finally:
        process.kill()
        process.wait()
        for peer in peers:
            peer.close()
    said = (tmp_path / "log").read_text().splitlines()
    assert ["REST at" in said[0], "switches at" in said[1], *said[2:]] == [True, True]
