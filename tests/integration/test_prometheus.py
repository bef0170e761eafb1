"""A real Prometheus with the configuration of deploy/ reads the programs: queries of panels and alerts have data."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import yaml
from controller_process import ControllerProcess, eventually, free_ports
from grafana import DASHBOARDS, DEPLOY, alerts, metrics_of, queries
from ha_lab import Instance
from not_made import needs_etcd
from office_loop import OfficeLoop
from prometheus import Prometheus, program
from slicer_lab import slicer_lab
from waypoint_certificates import make_certificate

from hyroads.mininet.etcd import Etcd
from hyroads.slices.snmpvisor.pdu import Binding, Kind, Pdu, v2c_bytes

TOKEN = "the-token-of-prometheus-0123456789"
API_TOKENS = {"prometheus": {"token": TOKEN, "role": "viewer"}}
SCRAPES = 4
WINDOW = "5s"


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def office(folder: Path) -> Iterator[str]:
    """The exporter of a controller whose network lives, at an address."""
    network, lock, ended = OfficeLoop(folder), threading.Lock(), threading.Event()
    network.second()
    assert network.service.metrics()

    def answer(environment: dict[str, Any], start: Any) -> Any:
        with lock:
            return network.app(environment, start)

    def live() -> None:
        while not ended.wait(1.0):
            with lock:
                network.second()

    with make_server("127.0.0.1", 0, answer, handler_class=Quiet) as server:
        threads = [threading.Thread(target=server.serve_forever), threading.Thread(target=live)]
        for thread in threads:
            thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            ended.set()
            server.shutdown()
            for thread in threads:
                thread.join()


@contextmanager
def snmpvisor(folder: Path) -> Iterator[str]:
    """The real program, with a device that is silent and a manager that asks."""
    listen, metrics, device = free_ports(3)
    settings = {
        "listen": f"127.0.0.1:{listen}",
        "metrics": f"127.0.0.1:{metrics}",
        "devices": {"ap1": {"address": f"127.0.0.1:{device}", "community": "device"}},
        "slices": {"web": {"community": "of-web"}},
    }
    (folder / "visor.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "hyroads.controller.cli", "snmpvisor", "--config", str(folder / "visor.yaml")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    ended = threading.Event()

    def ask() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as manager:
            while not ended.wait(0.3):
                asked = Pdu(Kind.GET, int(time.monotonic() * 10), (Binding((1, 3, 6, 1, 2, 1, 1, 3, 0)),))
                manager.sendto(v2c_bytes(b"of-web@ap1", asked), ("127.0.0.1", listen))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield f"127.0.0.1:{metrics}"
    finally:
        ended.set()
        asking.join()
        process.terminate()
        process.wait(10)


@contextmanager
def one_of_several(folder: Path) -> Iterator[str]:
    """A controller that leads by an etcd."""
    pytest.importorskip("etcd3gw")
    needs_etcd()
    etcd = Etcd(folder / "etcd", [tuple(free_ports(2))], bound_to_parent=True)
    try:
        etcd.start()
        etcd.wait_ready()
        with Instance(folder / "a", "a", etcd, {"api_tokens": API_TOKENS}) as instance:
            eventually(lambda: instance.rest("GET", "/ha", token=TOKEN)[1]["role"] == "leader")
            yield f"127.0.0.1:{instance.port}"
    finally:
        etcd.stop()


def configuration(folder: Path, targets: dict[str, list[str]]) -> Path:
    """That of deploy/, with other targets and less patience."""
    shutil.copytree(DEPLOY / "prometheus", folder, dirs_exist_ok=True)
    file = folder / "prometheus.yml"
    document = yaml.safe_load(file.read_text())
    document["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in document["scrape_configs"]:
        job["static_configs"] = [{"targets": targets[job["job_name"]]}]
    file.write_text(yaml.safe_dump(document))
    (folder / "hyroads.token").write_text(TOKEN)
    return file


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    make_certificate(folder, "slicer", "127.0.0.1")
    files = {"key": str(folder / "slicer.key"), "certificate": str(folder / "slicer.pem")}
    slices: list[dict[str, Any]] = [{"name": "red", "flowspace": [{"ports": ["p1", "p2"]}]}]
    with ExitStack() as stack:
        for name in ("office", "slicer", "controller", "visor", "several"):
            (folder / name).mkdir()
        lab = stack.enter_context(slicer_lab(folder / "slicer", slices, api_tokens=API_TOKENS, rest_tls=files))
        lab.switch(1)
        settings = {"slices": {"research": {"wifi": 0.25}}, "api_tokens": API_TOKENS}
        controller = stack.enter_context(ControllerProcess(folder / "controller", settings))
        several = stack.enter_context(one_of_several(folder / "several"))
        targets = {
            "hyroads-controller": [
                stack.enter_context(office(folder / "office")),
                f"127.0.0.1:{controller.port}",
                several,
            ],
            "hyroads-slicer": [f"127.0.0.1:{lab.rest}"],
            "hyroads-snmpvisor": [stack.enter_context(snmpvisor(folder / "visor"))],
        }
        shutil.copy(folder / "slicer.pem", folder / "hyroads-ca.pem")
        server = stack.enter_context(Prometheus(folder, configuration(folder, targets)))
        server.await_scrapes(SCRAPES, 60)
        yield server


def test_all_targets_are_read_by_their_tokens_and_certificates(prometheus: Prometheus) -> None:
    targets = prometheus.targets()
    assert len(targets) == 5
    assert {name: state for name, state in targets.items() if state[0] != "up"} == {}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_each_query_of_each_panel_has_data(prometheus: Prometheus, path: Path) -> None:
    asked = [(where, query.replace("$__rate_interval", WINDOW)) for where, query in queries(path)]
    assert len(asked) >= 16 and not any("$" in query for _, query in asked)
    assert [where for where, query in asked if not prometheus.query(query)] == []


def test_each_alert_is_evaluated_and_what_it_looks_at_has_data(prometheus: Prometheus) -> None:
    (group,) = prometheus.get("rules")["groups"]
    known = {rule["name"]: rule for rule in group["rules"]}
    assert {name: rule.get("lastError") for name, rule in known.items() if rule["health"] != "ok"} == {}
    assert set(known) == set(alerts())
    names = {name for expression in alerts().values() for name in metrics_of(expression)}
    assert [name for name in names if not prometheus.query(f"count({name})")] == []
    # What is really so: the switches of the real controller are not there, and the certificate ends in two days.
    found = {one["labels"]["alertname"] for one in prometheus.get("alerts")["alerts"]}
    assert {"HyRoadsSwitchGone", "HyRoadsCertificateEnds"} <= found and "HyRoadsDown" not in found
