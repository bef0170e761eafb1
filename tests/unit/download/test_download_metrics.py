"""Metrics of downloads: rates of the last second, and who may read them."""

from __future__ import annotations

import http.client
import socket
import time

import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.download.engine import Engine
from hyroads.controller.download.metrics import DownloadMetrics, serve_metrics


def samples(metrics: DownloadMetrics, name: str) -> list[float]:
    return [sample.value for family in metrics.collect() for sample in family.samples if sample.name == name]


def test_the_rate_is_that_of_the_last_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    engine = Engine(["lo", "lo"])
    metrics = DownloadMetrics("fetch", engine)
    assert samples(metrics, "hyroads_fetch_bytes_per_second") == [0.0, 0.0]
    for tick in range(40):
        metrics._sample()
        now_s[0] += 0.1
        engine.interfaces[0].received_bytes += 1000 if tick < 20 else 0
        engine.interfaces[1].received_bytes += 500
        if tick == 15:
            assert samples(metrics, "hyroads_fetch_bytes_per_second") == pytest.approx([10_000, 5000])
    assert samples(metrics, "hyroads_fetch_bytes_per_second") == pytest.approx([0, 5000])
    assert samples(metrics, "hyroads_fetch_bytes_total") == [20_000, 20_000]


def test_it_is_for_programs_of_this_machine_and_not_for_web_pages() -> None:
    port = serve_metrics(0, DownloadMetrics("fetch", Engine(["lo"])))
    found = {}
    for host, path in (
        (f"127.0.0.1:{port}", "/metrics"),
        ("rebound.example:80", "/metrics"),
        ("localhost:1", "/other"),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        found[host.split(":")[0]] = answer.status
        assert answer.getheader("Access-Control-Allow-Origin") is None
        connection.close()
    assert found == {"127.0.0.1": 200, "rebound.example": 403, "localhost": 404}
    # It listens on loopback alone.
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), 1):
        pass


def test_two_hosts_are_refused() -> None:
    port = serve_metrics(0, DownloadMetrics("fetch", Engine(["lo"])))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nHost: rebound.example:80\r\n\r\n")
        assert b"".join(iter(lambda: connection.recv(65536), b"")).startswith(b"HTTP/1.0 400 ")


@pytest.mark.parametrize("given", ["70000", "-1"])
@pytest.mark.parametrize("command", [["proxy"], ["fetch", "http://127.0.0.1:1/file"]])
def test_a_wrong_port_is_one_line(capsys: pytest.CaptureFixture[str], command: list[str], given: str) -> None:
    assert main([*command, "--interfaces", "lo", "--metrics", given]) == 2
    assert capsys.readouterr().err == f"hyroads: --metrics {given}: expected a port number\n"


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["fetch", "http://127.0.0.1:1/file", "--interfaces", "lo", "--metrics", str(port)]) == 2
    assert capsys.readouterr().err == f"hyroads: --metrics {port}: Address already in use\n"
