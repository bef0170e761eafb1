"""The client of the emulator against peers that answer wrongly, late or not at all (the right ones: integration)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from control_clients import MediumControl, connected

from hyroads.mininet.control_sockets import MediumError

Peer = Callable[[socket.socket], None]


@contextmanager
def peer(path: Path, behave: Peer) -> Iterator[str]:
    """A server that lets `behave` talk to its first client."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            behave(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield str(path)
    finally:
        thread.join(timeout=10)
        server.close()


def answer(*chunks: bytes) -> Peer:
    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        for chunk in chunks:
            connection.sendall(chunk)
        connection.recv(4096)  # until the client has gone

    return behave


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(MediumError, match="nowhere"):
        MediumControl(tmp_path / "nowhere")
    with pytest.raises(MediumError, match="nowhere"):
        connected(MediumControl, tmp_path / "nowhere", wait_s=0.05)


def test_an_answer_in_pieces(tmp_path: Path) -> None:
    with peer(tmp_path / "s", answer(b'{"ok"', b": true}", b"\n")) as path, MediumControl(path) as client:
        client.ping()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b'{"ok": false, "error": "link: no link \\"x\\""}\n', 'set: link: no link "x"'),
        (b"[1]\n", r"set: \[1\]"),
        (b"nonsense\n", "set: "),
        (b"\xff\xfe\n", "set: "),
    ],
)
def test_refusals_and_nonsense_are_one_clear_error(tmp_path: Path, reply: bytes, expected: str) -> None:
    with (
        peer(tmp_path / "s", answer(reply)) as path,
        MediumControl(path) as client,
        pytest.raises(MediumError, match=expected),
    ):
        client.set_link("x", up=False)


def test_a_peer_that_does_not_answer(tmp_path: Path) -> None:
    with peer(tmp_path / "s", answer()) as path, MediumControl(path, timeout_s=0.05) as client:
        with pytest.raises(MediumError, match=r"no answer within 0\.05 s"):
            client.ping()
        # A late answer can't be taken for that of the next request.
        with pytest.raises(MediumError):
            client.ping()


def test_a_peer_that_hangs_up(tmp_path: Path) -> None:
    with (
        peer(tmp_path / "s", lambda connection: None) as path,
        MediumControl(path) as client,
        pytest.raises(MediumError, match="medium at"),
    ):
        client.ping()
        client.ping()


def test_stats_that_lack_a_part(tmp_path: Path) -> None:
    with (
        peer(tmp_path / "s", answer(b'{"ok": true, "links": []}\n')) as path,
        MediumControl(path) as client,
        pytest.raises(MediumError, match="unexpected reply"),
    ):
        client.stats()


def test_only_what_was_given_is_sent(tmp_path: Path) -> None:
    received: list[dict[str, object]] = []

    def behave(connection: socket.socket) -> None:
        for line in connection.makefile():
            received.append(json.loads(line))
            connection.sendall(b'{"ok": true}\n')

    with peer(tmp_path / "s", behave) as path, MediumControl(path) as client:
        client.set_link("ab", loss=0.0, up=False)
        client.set_uplink("p", None)
        with pytest.raises(MediumError):
            client.set_link("ab", capacity_mbps=float("nan"))
    assert received == [
        {"op": "set", "link": "ab", "loss": 0.0, "up": False},
        {"op": "uplink", "port": "p", "to": None},
    ]
