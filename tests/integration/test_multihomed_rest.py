"""Multi-homed clients over REST: a real controller, and a client that speaks by the daemon's own reporter."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from controller_process import ControllerProcess, eventually
from scripted_client import ScriptedClient

from hyroads.rest.client import ApiError, Client

LAPTOP, PHONE, AGENTS = "laptop-token-0123456789", "phone-token-0123456789", "agents-token-0123456789"
PROGRAM = "import sys; from hyroads.controller.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    folder = tmp_path_factory.mktemp("multihomed")
    secret = folder / "phone.token"
    secret.write_text(PHONE + "\n")
    secret.chmod(0o600)
    clients = {"laptop": {"token": LAPTOP}, "phone": {"token_file": "phone.token"}}
    with ControllerProcess(folder, {"agent_token": AGENTS, "clients": clients}) as process:
        yield process


@pytest.fixture(scope="module")
def laptop(controller: ControllerProcess) -> Iterator[ScriptedClient]:
    with ScriptedClient("laptop", controller.agents, LAPTOP) as client:
        eventually(lambda: client.reporter.connected)
        yield client


@pytest.fixture
def rest(controller: ControllerProcess, laptop: ScriptedClient) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{controller.port}", tries=1) as client:
        eventually(lambda: client.get("/clients/laptop")["multihomed"]["reported_s"] is not None)
        yield client


def test_what_a_client_reports_can_be_read(rest: Client) -> None:
    shown = rest.get("/clients/laptop/interfaces")
    assert shown["connected"] and shown["reported_s"] < 3
    assert [(one["name"], one["metered"]) for one in shown["interfaces"]] == [("wlan0", False), ("wwan0", True)]
    flows = list(rest.listed("/clients/laptop/connections", "connections", limit=2))
    assert [(one["kind"], one["flow"]) for one in flows] == [("flow", 12), ("flow", 13), ("mptcp", None)]
    assert rest.get("/clients/laptop/policy")["waypoint"]["address"] == "192.0.2.1"
    listed = {one["id"]: one["multihomed"] for one in rest.listed("/clients", "clients")}
    assert listed["laptop"]["connected"] and not listed["phone"]["connected"] and listed["c"] is None


def test_a_policy_is_used_when_it_is_answered(rest: Client, laptop: ScriptedClient) -> None:
    before = rest.get("/clients/laptop/policy")
    wanted = {**before, "interfaces": {**before["interfaces"], "eth0": {}}, "mode": "cost-efficient"}
    assert rest.change("PUT", "/clients/laptop/policy", wanted) == laptop.policy == wanted
    assert [one["name"] for one in rest.get("/clients/laptop/interfaces")["interfaces"]] == ["wlan0", "wwan0", "eth0"]
    mode = rest.change("PATCH", "/clients/laptop/policy", {"mode": "full-speed"})
    assert mode["mode"] == laptop.mode == "full-speed"
    rest.change("PATCH", "/clients/laptop/policy", {"mode": "cost-efficient", "connection": "mptcp-a1b2c3d4"})
    (connection,) = (one for one in rest.listed("/clients/laptop/connections", "connections") if one["subflows"])
    assert (connection["id"], connection["name"]) == ("mptcp-a1b2c3d4", "rest")
    assert (connection["mode"], laptop.mode) == ("cost-efficient", "full-speed")
    rest.change("PUT", "/clients/laptop/policy", before)


def test_what_a_client_refuses_changes_nothing_and_is_told_in_its_words(rest: Client, laptop: ScriptedClient) -> None:
    before = dict(laptop.policy)
    refused = {
        "colour: unknown key": {**before, "colour": "red"},
        "waypoint: only the client's own file may change it": {**before, "waypoint": {"address": "198.51.100.1"}},
    }
    for words, policy in refused.items():
        with pytest.raises(ApiError) as error:
            rest.change("PUT", "/clients/laptop/policy", policy)
        assert error.value.status == 422 and words in str(error.value)
    with pytest.raises(ApiError) as error:
        rest.change("POST", "/clients/laptop/migrations", {"flow": 12, "interface": "eth9"})
    assert error.value.status == 422 and "unknown interface eth9" in str(error.value)
    assert laptop.policy == before == rest.get("/clients/laptop/policy") and laptop.interface_of[12] == "wlan0"


def test_a_migration_is_made_when_it_is_answered_and_is_an_event(rest: Client, laptop: ScriptedClient) -> None:
    moved = rest.change("POST", "/clients/laptop/migrations", {"flow": 12, "interface": "wwan0"})
    assert laptop.interface_of[12] == "wwan0" and moved["from"] == "wlan0" and moved["asked"]
    laptop.event(event="flow.migrated", flow=12, **{"from": "wlan0", "to": "wwan0"})
    laptop.event(event="flow.migrated", flow=13, **{"from": "wwan0", "to": "wlan0"})
    laptop.event(event="interface.down", interface="wwan0")
    laptop.event(event="stranger", endpoint="192.0.2.66:1")

    def happened() -> list[Any]:
        found = rest.events("client", follow=False)
        return [(one.kind, one.document.get("flow", one.document.get("interface"))) for one in found]

    eventually(lambda: ("client.interface_down", "wwan0") in happened())
    assert [flow for kind, flow in happened() if kind == "client.flow_migrated"] == [12, 13]
    history = list(rest.listed("/clients/laptop/migrations", "migrations"))
    assert [(one["flow"], one["asked"]) for one in history[-2:]] == [(12, True), (13, False)]


def test_what_takes_long_is_an_operation(rest: Client, laptop: ScriptedClient) -> None:
    laptop.delay_s = 1.0
    try:
        operation = rest.change("PATCH", "/clients/laptop/policy", {"mode": "cost-efficient"}, wait=False)
        assert operation["state"] == "pending" and operation["pending"] == ["client laptop"]
        assert rest.confirmed(operation)["state"] == "confirmed" and laptop.mode == "cost-efficient"
    finally:
        laptop.delay_s = 0.0


def test_metrics(rest: Client, controller: ControllerProcess) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{controller.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'hyroads_client_queue_packets{client="laptop",interface="wlan0"} 2.0' in text
    assert (
        'hyroads_client_interface_bytes_per_second{client="laptop",direction="sent",interface="wlan0"} 562500.0' in text
    )
    assert 'hyroads_client_mptcp_subflows{client="laptop"} 2.0' in text


def test_command_line(controller: ControllerProcess, laptop: ScriptedClient, tmp_path: Any) -> None:
    def hyroads(*words: str, status: int = 0) -> str:
        environment = {**os.environ, "HYROADS_URL": f"http://127.0.0.1:{controller.port}", "COLUMNS": "200"}
        command = [sys.executable, "-c", PROGRAM, "clients", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    assert "wwan0" in hyroads("interfaces", "laptop") and "mptcp" in hyroads("connections", "laptop")
    assert json.loads(hyroads("policy", "laptop", "--json")) == laptop.policy
    file = tmp_path / "policy.yaml"
    file.write_text("interfaces: {wlan0: {}, wwan0: {}}\n")
    hyroads("policy", "laptop", str(file))
    assert not laptop.policy["interfaces"]["wwan0"] and laptop.policy["waypoint"]
    hyroads("mode", "laptop", "high-robustness")
    assert laptop.mode == "high-robustness"
    hyroads("mode", "laptop", "full-speed", "--connection", "mptcp-a1b2c3d4")
    assert (laptop.mode, laptop.connection_mode) == ("high-robustness", "full-speed")
    assert "unknown MPTCP connection" in hyroads("mode", "laptop", "full-speed", "--connection", "mptcp-0", status=2)
    hyroads("migrate", "laptop", "13", "wlan0")
    assert laptop.interface_of[13] == "wlan0" and "wlan0" in hyroads("migrations", "laptop")
    assert "unknown interface" in hyroads("migrate", "laptop", "13", "eth9", status=2)
    assert "404" in hyroads("interfaces", "nobody", status=2)


@pytest.mark.parametrize(
    ("client", "token"),
    [("laptop", PHONE), ("phone", LAPTOP), ("laptop", AGENTS), ("laptop", ""), ("nobody", LAPTOP), ("a", LAPTOP)],
)
def test_nobody_speaks_for_another(controller: ControllerProcess, rest: Client, client: str, token: str) -> None:
    with ScriptedClient(client, controller.agents, token) as stranger:
        eventually(lambda: stranger.warnings)
        assert "wrong token" in stranger.warnings[0] and not stranger.reporter.connected
    assert rest.get("/clients/laptop")["multihomed"]["connected"]


def test_a_clients_token_is_no_agents(controller: ControllerProcess) -> None:
    with closing(_connect(controller, role="agent", node="a", token=LAPTOP)) as agent:
        assert b"wrong token" in agent.makefile("rb").readline()


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"client-report","status":{"mode":"x"}}\n',
        b'{"type":"client-event","event":"joined"}\n',
        b'{"type":"report","time_s":1}\n',
        b'{"type":"link","link":"ab-plc~","up":false}\n',
        b'{"type":"client-report","status":' + b"[" * 5000 + b"}\n",
        b'{"type":"ping","seq":1,"x":"' + b"x" * 60_000 + b'"}\n',
    ],
)
def test_who_does_not_keep_to_the_protocol_is_cut_off(controller: ControllerProcess, rest: Client, line: bytes) -> None:
    before = rest.health()["counters"]["malformed_agent"]
    with closing(_connect(controller, role="client", node="phone", token=PHONE)) as phone:
        lines = phone.makefile("rb")
        assert json.loads(lines.readline())["type"] == "welcome"
        # The last one is sound, but nobody may send as much.
        try:
            for _ in range(200 if b"ping" in line else 1):
                phone.sendall(line)
            while (answer := lines.readline()) and b'"error"' not in answer:
                pass
        except OSError:
            pass
    eventually(lambda: rest.health()["counters"]["malformed_agent"] > before)
    assert rest.get("/clients/laptop")["multihomed"]["connected"]


def test_a_client_comes_back_after_its_connection_was_lost(controller: ControllerProcess, rest: Client) -> None:
    with ScriptedClient("phone", controller.agents, PHONE) as phone:
        eventually(lambda: phone.reporter.connected)
        phone.lose()
        eventually(lambda: phone.warnings)
        eventually(lambda: phone.reporter.connected and rest.get("/clients/phone")["multihomed"]["connected"])
        begun_s = time.monotonic()
    eventually(lambda: not rest.get("/clients/phone")["multihomed"]["connected"])
    assert time.monotonic() - begun_s < 10
    with pytest.raises(ApiError) as error:
        rest.change("PATCH", "/clients/phone/policy", {"mode": "full-speed"})
    assert error.value.status == 409


def _connect(controller: ControllerProcess, *, role: str, node: str, token: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", controller.agents), timeout=10)
    hello = {"type": "hello", "version": 1, "role": role, "node": node, "boot": "1", "token": token, "revision": 0}
    connection.sendall(json.dumps(hello).encode() + b"\n")
    return connection
