"""``hyroads proxy`` on loopback: real programs through it, answers put together from parts, and hostile heads."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import metrics_page
import pytest
from range_server import Server, content
from silent_dialers import served_friends

from hyroads.controller.download import proxy as proxies
from hyroads.controller.download.engine import Engine
from hyroads.controller.download.http1 import Origin
from hyroads.controller.download.proxy import LIMITS, Proxy
from hyroads.controller.download.proxy_policy import Policy, Record, Rule
from hyroads.controller.framework.admitted import AdmittedListener

SIZE = 6_000_000
ROOT = Path(__file__).parents[2]


class Running:
    """A proxy in this process; ``lo`` counts as two interfaces, so that answers are split."""

    def __init__(self, policy: Policy, names=("lo", "lo"), limits=LIMITS) -> None:
        self.records: list[Record] = []
        self.engine = Engine(names)
        self.proxy = Proxy(self.engine, policy, lambda record, _seconds: self.records.append(record))
        self.listener = AdmittedListener("127.0.0.1", 0, limits, lambda peer, why: None)
        self.port = self.listener.getsockname()[1]
        self.engine.start()
        threading.Thread(target=self.proxy.serve, args=(self.listener,), daemon=True).start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.engine.close()

    def raw(self, data: bytes, timeout_s: float = 10.0) -> bytes:
        """What comes back for some bytes, until the proxy closes."""
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            connection.sendall(data)
            with contextlib.suppress(ConnectionError):
                while more := connection.recv(65536):
                    answer += more
        return answer

    def curl(self, *words: str) -> subprocess.CompletedProcess:
        command = ["curl", "-sS", "-x", f"http://127.0.0.1:{self.port}", *words]
        return subprocess.run(command, capture_output=True, timeout=60)

    def record(self) -> Record:
        over_s = time.monotonic() + 5
        while not self.records and time.monotonic() < over_s:
            time.sleep(0.01)
        return self.records[-1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server("127.0.0.1", 0, tmp_path_factory.mktemp("served")).start()
    yield running
    running.close()


@pytest.fixture()
def proxy():
    running = Running(Policy(allow_local=True, connect_ports=None))
    yield running
    running.close()


def url(server: Server, fault: str = "", size: int = SIZE) -> str:
    return f"http://127.0.0.1:{server.port}/{size}.bin" + (f"?fault={fault}" if fault else "")


@pytest.mark.parametrize(
    ("fault", "size", "split"),
    [
        ("", SIZE, True),
        ("cut", SIZE, True),
        ("", 300_000, False),
        ("no-etag", SIZE, False),
        ("weak-etag", SIZE, False),
        ("chunked", SIZE, False),
        ("", 0, False),
    ],
)
def test_every_byte_of_a_get(server, proxy, fault, size, split):
    server.requests.clear()
    for _ in range(2):
        done = proxy.curl(url(server, fault, size))
        assert done.returncode == 0 and done.stdout == content(size), done.stderr
        assert (proxy.record().split, proxy.record().status) == (split, 200)
    if split:
        assert server.requests[f"/{size}.bin"] > 8


@pytest.mark.parametrize("fault", ["changes", "total", "shifted", "forbidden-later", "short", "cut-always"])
def test_an_answer_that_turns_out_wrong_is_cut_short_and_never_wrong(server, proxy, fault):
    server.requests.clear()
    proxy.engine._timeout_s = 2.0
    done = proxy.curl(url(server, fault))
    assert done.returncode != 0 and content(SIZE).startswith(done.stdout) and len(done.stdout) < SIZE


def test_many_at_once(server, proxy):
    results: dict[int, bool] = {}

    def get(number: int) -> None:
        size = SIZE + number if number % 2 else 1000 * number
        results[number] = proxy.curl(url(server, size=size)).stdout == content(size)

    threads = [threading.Thread(target=get, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results.values()) and len(results) == 16
    over_s = time.monotonic() + 5
    while proxy.proxy.clients and time.monotonic() < over_s:
        time.sleep(0.01)
    assert (proxy.proxy.clients, proxy.proxy._window_bytes, proxy.proxy._uses) == (0, 20 * 1024 * 1024, set())
    assert not proxy.engine.scheduler.busy


def test_a_slow_application_bounds_what_is_held_for_it(server, proxy):
    server.log.clear()
    size = 60_000_000
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(f"GET {url(server, size=size)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        time.sleep(1.5)
        asked = [int(h["range"].split("-")[1]) for _, h in server.log if "range" in h]
        # The window, and what the kernel holds between the proxy and the application.
        assert 0 < max(asked) < 14_000_000
    over_s = time.monotonic() + 5
    while proxy.engine.scheduler.busy and time.monotonic() < over_s:
        time.sleep(0.01)
    assert not proxy.engine.scheduler.busy, "nothing is fetched for an application that has gone"


def test_methods_bodies_and_connections_that_stay(server, proxy):
    echo = f"http://127.0.0.1:{server.port}/echo"
    body = os.urandom(200_000)
    for extra in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"]):
        done = subprocess.run(
            ["curl", "-sS", "-x", f"http://127.0.0.1:{proxy.port}", "--data-binary", "@-", *extra, echo],
            input=body,
            capture_output=True,
            timeout=20,
        )
        assert done.stdout == body, done.stderr
    done = proxy.curl("-X", "PUT", "-i", "-d", "x", echo)
    assert b"x-method: put" in done.stdout.lower() and b"via: 1.1 hyroads-" in done.stdout.lower()
    done = proxy.curl("-I", url(server, size=1000))
    assert b"content-length: 1000" in done.stdout.lower()
    done = proxy.curl("-v", url(server, size=1000), url(server, size=SIZE), url(server, size=2000))
    assert done.stdout == content(1000) + content(SIZE) + content(2000)
    assert done.stderr.count(b"Re-using existing connection") == 2
    done = proxy.curl("-r", "10-19", url(server))
    assert done.stdout == content(SIZE)[10:20]
    two = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % url(server, size=10).encode()
    answer = proxy.raw(two + two.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"))
    assert answer.count(b"HTTP/1.1 200") == 2 and answer.count(content(10)) == 2, "pipelined"


def test_tunnels(server, proxy):
    done = proxy.curl("-p", url(server))
    assert done.returncode == 0 and done.stdout == content(SIZE)
    assert (proxy.record().method, proxy.record().target) == ("CONNECT", f"127.0.0.1:{server.port}")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
            # What is sent too early belongs to the tunnel; one end may close its half, and still get an answer.
            connection.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\nearly" % port)
            far, _ = listener.accept()
            with far:
                far.settimeout(5)
                connection.sendall(b" late")
                connection.shutdown(socket.SHUT_WR)
                assert b"".join(iter(lambda: far.recv(100), b"")) == b"early late"
                far.sendall(b"answer")
            answer = b"".join(iter(lambda: connection.recv(100), b""))
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\nanswer")


def test_silent_dialers_and_silent_tunnels_keep_no_program_out(server, proxy):
    def friend() -> bool:
        return proxy.curl("--max-time", "20", url(server, size=1000)).stdout == content(1000)

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as silent, contextlib.ExitStack() as tunnels:
        head = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % silent.getsockname()[1]
        served = []
        for number in range(400):
            tunnel = tunnels.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=20))
            with contextlib.suppress(OSError):
                tunnel.sendall(head)
            if number % 50 == 49:
                served.append(friend())
        assert served == [True] * 8
        assert served_friends(proxy.port, friend, friends=5, dialers=600, addresses=60) == 5


def test_longest_silent_tunnel_ends_where_an_address_has_all_its_places(server, monkeypatch):
    monkeypatch.setattr(proxies, "_IDLE_TUNNEL_S", 0.0)
    running = Running(Policy(allow_local=True, connect_ports=None), limits=replace(LIMITS, each=3))
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as opened:
        opened.callback(running.close)
        head = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % listener.getsockname()[1]
        ends = []
        for number in range(4):
            near = opened.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10))
            near.sendall(head)
            far = opened.enter_context(listener.accept()[0])
            far.sendall(b"%d" % number)
            answer = b""
            while not answer.endswith(b"%d" % number):
                more = near.recv(1000)
                assert more, f"tunnel {number} has no place"
                answer += more
            ends.append((near, far))
        with contextlib.suppress(ConnectionError):
            assert ends[0][0].recv(10) == b""
        ends[1][1].sendall(b"x")
        assert ends[1][0].recv(10) == b"x"


HEADS = {
    "origin form": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "status page": (b"GET /status HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n", 400),
    "both lengths": (b"POST URL HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "two lengths": (b"POST URL HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
    "signed length": (b"POST URL HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\n", 400),
    "other coding": (b"POST URL HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "bare LF": (b"GET URL HTTP/1.1\nHost: x\n\n", 400),
    "bare LF in a header": (b"GET URL HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n", 400),
    "bare CR": (b"GET URL HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n", 400),
    "NUL": (b"GET URL HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 400),
    "folded": (b"GET URL HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
    "blank before colon": (b"GET URL HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\n", 400),
    "no host": (b"GET URL HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET URL HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "too long": (b"GET URL HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * 70_000 + b"\r\n\r\n", 431),
    "user in the URL": (b"GET http://a:b@127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "https": (b"GET https://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    "file": (b"GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "trace": (b"TRACE URL HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "no port": (b"CONNECT 127.0.0.1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "port 0": (b"CONNECT 127.0.0.1:0 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "port 65536": (b"CONNECT 127.0.0.1:65536 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "nobody there": (b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\n\r\n", 502),
}


@pytest.mark.parametrize("what", HEADS)
def test_a_hostile_head_is_refused_and_reaches_no_server(server, proxy, what):
    data, status = HEADS[what]
    server.log.clear()
    answer = proxy.raw(data.replace(b"URL", url(server, size=10).encode()))
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert answer.count(b"HTTP/1.1") == 1 and b"\r\nConnection: close\r\n" in answer and not server.log


def test_headers_of_one_hop_end_at_the_proxy(server, proxy):
    server.log.clear()
    head = b"GET %s HTTP/1.1\r\nHost: other\r\nConnection: close, X-Mine, Content-Length\r\nX-Mine: 1\r\nX-Yours: 2\r\n"
    proxy.raw(
        head % url(server, size=10).encode()
        + b"Proxy-Authorization: Basic eDp5\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\n\r\n"
    )
    names = server.log[0][1]
    assert names["host"] == f"127.0.0.1:{server.port}" and names["x-yours"] == "2" and "hyroads-" in names["via"]
    assert not {"x-mine", "proxy-authorization", "keep-alive", "upgrade", "connection"} & set(names)


def test_a_loop_ends(server, proxy):
    answer = proxy.raw(b"GET %s HTTP/1.1\r\nHost: x\r\nVia: 1.1 %s\r\n\r\n" % (url(server).encode(), proxy.proxy.via))
    assert answer.startswith(b"HTTP/1.1 508 ")
    answer = proxy.raw(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % proxy.port)
    assert answer.startswith(b"HTTP/1.1 508 "), "itself"


def test_this_machine_and_odd_ports_are_out_of_reach_unless_allowed(server):
    running = Running(Policy())
    try:
        for host in (
            "127.0.0.1",
            "localhost",
            "0.0.0.0",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "169.254.169.254",
            "2130706433",
        ):
            answer = running.raw(f"GET http://{host}:{server.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 "), (host, answer)
            answer = running.raw(f"CONNECT {host}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 "), (host, answer)
        assert b"--connect-ports" in running.raw(b"CONNECT example.org:25 HTTP/1.1\r\nHost: x\r\n\r\n")
    finally:
        running.close()


def test_a_token_is_asked_for(server):
    running = Running(Policy(allow_local=True, token="0123456789abcdef"))
    try:
        assert b" 407 " in running.curl("-i", url(server, size=10)).stdout
        assert b" 407 " in running.curl("-i", "--proxy-user", "x:wrong", url(server, size=10)).stdout
        assert running.curl("--proxy-user", "x:0123456789abcdef", url(server, size=10)).stdout == content(10)
    finally:
        running.close()


def test_rules_bind_requests_to_interfaces(server):
    rules = (Rule("a", "127.0.0.1", server.port, ("lo",), 2.0),)
    policy = Policy(rules)
    proxy = Proxy(Engine(["lo", "other"]), policy, lambda *_: None)

    assert proxy.rule_of(Origin("http", "127.0.0.1", server.port)).name == "a"
    assert proxy.rule_of(Origin("http", "127.0.0.1", 1)).name == "other"
    assert [each.name for each in proxy.accepted(rules[0], Origin("http", "127.0.0.1", server.port))] == ["lo"]
    below = Rule("b", "*.example.org")
    assert [
        below.matches(Origin("http", host, 80))
        for host in ("a.example.org", "example.org", "A.EXAMPLE.org.", "aexample.org")
    ] == [True, False, True, False]


def test_a_slow_head_is_not_waited_for(proxy, monkeypatch):
    monkeypatch.setattr("hyroads.controller.download.proxy_client.HEAD_S", 0.5)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
        connection.sendall(b"GET http://")
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_the_command_serves_and_ends(server, tmp_path):
    command = [sys.executable, "-m", "hyroads.controller.cli", "proxy", "--listen", "127.0.0.1:0", "--interfaces", "lo"]
    command += ["--allow-local", "--json-log", "--metrics", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    page = program.stderr.readline().split()[-1]
    line = program.stderr.readline()
    place = line.split()[4].rstrip(",")
    done = subprocess.run(["curl", "-sS", "-x", place, url(server)], capture_output=True, timeout=20)
    assert done.stdout == content(SIZE)
    document = json.loads(program.stdout.readline())
    assert document["bytes"] == SIZE and document["interfaces"] == {"lo": SIZE} and not document["split"]
    text = subprocess.run(["curl", "-sS", page], capture_output=True, text=True, timeout=20).stdout
    assert metrics_page.check(text, "All programs", "Downloads", absent=("hyroads_rest_", "hyroads_metrics_")) > 10
    metrics_page.lint(text)
    assert 'hyroads_fetch_bytes_total{interface="lo"} 6e+06' in text
    assert 'hyroads_proxy_requests_total{code="2xx"} 1.0' in text
    program.send_signal(signal.SIGINT)
    assert program.wait(5) == 0
    assert program.stderr.read() == ""
