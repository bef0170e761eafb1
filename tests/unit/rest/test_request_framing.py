"""Where a request ends is never in doubt: what could be one request or two gets one answer, and no more is read."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.framework.request_framing import refusal

# The controller's own server, in a process of its own: green threads can't be woken from elsewhere.
SERVER = """
import logging, sys
import time
from hyroads.controller.core.admission import Limits
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.connections import Connections
from hyroads.controller.framework.http_server import serve_wsgi
from hyroads.rest.api import create_app
from hyroads.rest.contract import NotFoundError

class Network:
    def health(self):
        return {"ok": True}
    def flow_ids(self):
        return []
    def flows(self, flows):
        return []
    def flow(self, flow):
        raise NotFoundError(f"no flow {flow}")

listener = shim.listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
places = Connections(Limits(64, 64, 5.0), time.monotonic, lambda peer, why: None)
serve_wsgi(listener, create_app(Network()), logging.getLogger("test"), places)
"""
HIDDEN = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
WITHIN_S = 20.0


@contextmanager
def serving(program: str) -> Iterator[int]:
    """The port of a server that says nothing on its terminal."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.terminate()
            assert server.stderr is not None
            said = server.stderr.read().decode()
    assert said == "", said


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(SERVER) as found:
        yield found


def post(headers: bytes, body: bytes) -> bytes:
    head = b"POST /api/v1/flows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + headers + b"\r\n" + body


def answers(port: int, data: bytes) -> tuple[list[int], bool]:
    """The statuses of all answers, and whether the server ended the connection: after ``data`` we send no more."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        told = b""
        ended = False
        while not ended:
            try:
                part = connection.recv(65536)
            except ConnectionResetError:
                part = b""
            told, ended = told + part, not part
    return [int(status) for status in re.findall(rb"^HTTP/1\.[01] (\d+)", told, re.MULTILINE)], ended


@pytest.mark.parametrize(
    "data",
    [
        # The hole of eventlet before 0.40.3: what follows a trailer is the next request.
        post(CHUNKED, b"2\r\n{}\r\n0\r\nX: y\r\n" + HIDDEN),
        post(CHUNKED, b"2\r\n{}\r\n0\r\n" + HIDDEN),
        post(CHUNKED, b"2;a=b\r\n{}\r\n0\r\n\r\n" + HIDDEN),
        post(CHUNKED, b"0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
        post(CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n" + HIDDEN),
        post(b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n" + HIDDEN),
        post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n" + HIDDEN),
        post(b"Transfer-Encoding: identity\r\n", HIDDEN),
        post(b"Transfer-Encoding: xchunked\r\n", HIDDEN),
        post(b"Transfer_Encoding: chunked\r\n", HIDDEN),
        post(b"Content-Length: 2\r\nContent-Length: %d\r\n" % (2 + len(HIDDEN)), b"{}" + HIDDEN),
        post(b"Content-Length: +2\r\n", b"{}" + HIDDEN),
        post(b"Content-Length: 0_2\r\n", b"{}" + HIDDEN),
        post(b"Content-Length: 2, 2\r\n", b"{}" + HIDDEN),
        post(b"Content-Length: -2\r\n", b"{}" + HIDDEN),
        post(b"Content-Length: \r\n", b"{}" + HIDDEN),
        post(b"Content-Length: %s2\r\n" % (b"0" * 5000), b"{}" + HIDDEN),
        post(b"Content-Length : 2\r\n", b"{}" + HIDDEN),
        post(b"Content_Length: 2\r\n", b"{}" + HIDDEN),
        post(b"X: 1\r\n Content-Length: 2\r\n", b"{}" + HIDDEN),
        post(b"X: 1\rContent-Length: 2\r\n", b"{}" + HIDDEN),
        post(b"X: 1\nContent-Length: 2\r\n", b"{}" + HIDDEN),
        post(b"X: 1\0\r\nContent-Length: 2\r\n", b"{}" + HIDDEN),
        b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED + b"\r\n0\r\nX: y\r\n" + HIDDEN,
        b"GET /api/v1/health HTTP/1.1\nHost: localhost\n\n" + HIDDEN,
        b"GET /api/v1/health\r\n" + HIDDEN,
        b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n" + HIDDEN,
        b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nhost:localhost\r\n\r\n" + HIDDEN,
        b"GET /api/v1/health HTTP/9.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
        b"nothing\r\n\r\n" + HIDDEN,
    ],
)  # fmt: skip
def test_what_could_be_two_requests_gets_one_answer(port: int, data: bytes) -> None:
    (status,), _ = answers(port, data)
    assert status in (400, 411, 505)


def test_the_server_under_ours_has_not_the_hole_either() -> None:
    """CVE-2025-58068; without what we do before it. An eventlet of before 0.40.3 answers twice."""
    bare = "shim._http_protocol = lambda wsgi: wsgi.HttpProtocol\nlistener = "
    with serving(SERVER.replace("listener = ", bare, 1)) as port:
        assert answers(port, post(CHUNKED, b"2\r\n{}\r\n0\r\nX: y\r\n" + HIDDEN))[0] == [411]


def test_requests_about_which_nobody_differs_follow_each_other(port: int) -> None:
    assert answers(port, HIDDEN * 3)[0] == [200, 200, 200]
    assert answers(port, post(b"Content-Length: 2\r\n", b"{}") + HIDDEN)[0] == [422, 200]
    assert answers(port, HIDDEN.replace(b"\r\n\r\n", b'\r\nX_Y: \xff;=\t,"\r\n\r\n'))[0] == [200]


def test_a_refusal_is_a_problem_document(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as connection:
        connection.sendall(post(CHUNKED, b"0\r\n\r\n"))
        told = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = told.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head and b"Connection: close" in head and b'"status": 411' in body


@pytest.mark.parametrize(("sent", "flow"), [("a%2Fb", "a/b"), ("%252F", "%2F"), ("%C3%BC", "\\u00fc"), ("a/b", None)])
def test_an_id_is_one_part_of_an_address(port: int, sent: str, flow: str | None) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as connection:
        line = f"GET /api/v1/flows/{sent} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(line.encode())
        told = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert "404" in told and (f'"detail": "no flow {flow}"' in told) == (flow is not None)


NAMES = st.from_regex(rb"[A-Za-z-]{1,12}", fullmatch=True).filter(
    lambda name: name.lower() not in (b"content-length", b"transfer-encoding")
)
VALUES = st.binary(max_size=12).map(lambda value: re.sub(rb"[\r\n\0]", b"", value))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), st.none() | st.integers(0, 10**15 - 1))
def test_ordinary_requests_are_taken(headers: list[tuple[bytes, bytes]], length: int | None) -> None:
    lines = [b"%b: %b\r\n" % header for header in headers]
    lines += [b"Content-Length: %d\r\n" % length] if length is not None else []
    assert refusal(b"GET / HTTP/1.1\r\n", [*lines, b"\r\n"]) is None


PIECES = st.sampled_from([b"A", b":", b" ", b"\t", b"\r", b"\n", b"\r\n", b"X: 1", b"Content-Length: 1", b"_", b"\0"])


@given(st.lists(st.lists(PIECES, max_size=4).map(lambda pieces: b"".join(pieces) + b"\r\n"), max_size=4))
def test_whatever_is_taken_has_one_meaning(lines: list[bytes]) -> None:
    """No line of a request that is taken ends early, goes on in the next, or says twice how long the body is."""
    lines = [*lines, b"\r\n"]
    if refusal(b"GET / HTTP/1.1\r\n", lines) is None:
        text = b"".join(lines).removesuffix(b"\r\n")
        assert text.count(b"\r") == text.count(b"\n") == text.count(b"\r\n") == len(lines) - 1
        assert all(line[0:1] not in (b" ", b"\t") and b":" in line for line in lines[:-1])
        assert text.lower().count(b"content-length:") <= 1
