"""Timed downloads, over the loopback interface."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from hyroads.mininet import tcp_download
from hyroads.mininet.tcp_download import get

SIZE = 3_000_001


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [sys.executable, tcp_download.__file__, "serve", "--port", str(port), "--congestion", "reno"]
    with subprocess.Popen(words) as process:
        deadline_s = time.monotonic() + 20.0
        while True:
            try:
                get("127.0.0.1", port, 1)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
        yield port
        process.kill()


def test_each_download_is_a_line_of_its_seconds(server: int) -> None:
    words = [sys.executable, tcp_download.__file__, "get", "--from", "127.0.0.1", "--port", str(server)]
    begin_s = time.monotonic()
    done = subprocess.run(
        [*words, "--bytes", str(SIZE), "--count", "3", "--pause", "0.2"], check=True, capture_output=True, text=True
    )
    seconds = [float(line) for line in done.stdout.split()]
    assert len(seconds) == 3
    assert all(value > 0 for value in seconds)
    assert sum(seconds) + 2 * 0.2 < time.monotonic() - begin_s


def test_a_client_that_leaves_does_not_disturb_the_next(server: int) -> None:
    with socket.create_connection(("127.0.0.1", server)) as rude:
        rude.sendall((1 << 40).to_bytes(8, "big"))
        rude.recv(10)
    assert get("127.0.0.1", server, SIZE) > 0


def test_a_download_that_breaks_off_is_an_error_and_no_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as half:

        def answer() -> None:
            connection, _ = half.accept()
            with connection:
                connection.recv(8)
                connection.sendall(bytes(1000))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionError, match="2000 bytes are missing"):
            get("127.0.0.1", half.getsockname()[1], 3000)
        thread.join()
