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
from hyroads.mininet.tcp_download import get, load

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


def test_a_page_has_its_document_and_all_its_objects(server: int) -> None:
    asked: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as between:

        def count() -> None:
            for _ in range(tcp_download.CONNECTIONS):
                connection, _ = between.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection:
                while wanted := connection.recv(8, socket.MSG_WAITALL):
                    asked.append(int.from_bytes(wanted, "big"))
                    connection.sendall(bytes(asked[-1]))

        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        page = [1000, *range(2000, 2012)]
        assert load("127.0.0.1", between.getsockname()[1], page) > 0
        thread.join(5.0)
    assert asked[0] == 1000 and sorted(asked[1:]) == page[1:]
    assert load("127.0.0.1", server, [500]) > 0


def test_pages_are_lines_of_seconds_and_a_missing_server_is_an_error(server: int) -> None:
    words = [sys.executable, tcp_download.__file__, "load", "--from", "127.0.0.1", "--pages", "[[9000, 1, 2], [10]]"]
    done = subprocess.run([*words, "--port", str(server)], check=True, capture_output=True, text=True)
    assert len([float(line) for line in done.stdout.split()]) == 2
    with pytest.raises(OSError, match="refused"):
        load("127.0.0.1", 1, [10])
