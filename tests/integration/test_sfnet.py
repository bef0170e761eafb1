"""SFNet at the real controller: found by multicast on loopback, asked and listened to over TCP, bounded."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import NETWORK, PROGRAM, ControllerProcess, eventually, free_ports

from hyroads.plugins.api import RequestError
from hyroads.plugins.sfnet import client, messages

ADMIN, VIEWER = "admin-token-0123456789", "viewer-token-0123456789"
TOKENS = {"ops": {"token": ADMIN, "role": "admin"}, "wall": {"token": VIEWER, "role": "viewer"}}
FLOW = {"id": "f", "from": "a", "to": "b"}


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Another port than the fixed one: other controllers may run on this machine."""
    port = free_ports(1)[0]
    monkeypatch.setattr(client, "PORT", port)
    return port


@pytest.fixture
def controller(tmp_path: Path, port: int) -> Iterator[ControllerProcess]:
    with ControllerProcess(tmp_path, {"sfnet": {"port": port}, "api_tokens": TOKENS}) as controller:
        yield controller


def test_found_asked_and_listened_to(controller: ControllerProcess, port: int) -> None:
    assert client.discover("lo") == ("127.0.0.1", port)
    with (
        client.Controller("127.0.0.1", port, token=ADMIN) as admin,
        client.Controller("127.0.0.1", port, token=VIEWER) as viewer,
    ):
        assert (admin.role, viewer.role) == ("admin", "viewer")
        assert [node["id"] for node in viewer.topology()["nodes"]] == ["a", "b", "c"]
        with pytest.raises(RequestError) as refused:
            viewer.declare_flow(FLOW)
        assert refused.value.status == 403 and "wall" in refused.value.detail
        with pytest.raises(RequestError) as wrong:
            admin.declare_flow({**FLOW, "colour": 1})
        assert wrong.value.status == 422 and "colour" in wrong.value.problem["errors"]
        viewer.subscribe("flow.declared")
        assert admin.declare_flow(FLOW, wait=False)["resource"] == "/api/v1/flows/f"
        event = next(viewer.events(10.0))
        assert (event.kind, event.document["id"]) == ("flow.declared", "f")
        assert list(viewer.events(0.1)) == [] and viewer.flow("f")["from"] == "a"
        with client.Controller("127.0.0.1", port, token=VIEWER) as late:
            late.subscribe(after=event.id - 1)
            assert next(late.events(10.0)) == event


def test_a_request_with_a_key_is_done_once(controller: ControllerProcess, port: int) -> None:
    def asked(flow: dict[str, Any]) -> Any:
        request = {"id": 1, "method": "POST", "path": "/flows?wait=false", "body": flow, "key": "k1"}
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(messages.line_of({"type": "hello", "version": 1, "token": ADMIN}))
            connection.sendall(messages.line_of(request))
            lines = connection.makefile("rb")
            return [json.loads(lines.readline()) for _ in range(2)][1]

    first = asked({**FLOW, "id": "once"})
    assert first == asked({**FLOW, "id": "once"}) and first["status"] == 202
    assert asked(FLOW)["status"] == 422


def test_strangers(controller: ControllerProcess, port: int) -> None:
    with pytest.raises(RequestError) as refused:
        client.Controller("127.0.0.1", port, token="wrong-token-0123456789")
    assert refused.value.status == 401
    for line in (b"GET / HTTP/1.1\r\n", b'{"type":"hello","version":9}\n', b"x" * 300_000):
        answer = talk(port, line)
        assert answer[-1]["type"] == "error" and answer[-1]["status"] == 400
    hello = messages.line_of({"type": "hello", "version": 1, "token": ADMIN})
    assert talk(port, hello + b'{"id":1,"method":"GET","path":"/events"}\n{}\n')[1]["status"] == 400
    assert [m.get("type") for m in talk(port, hello + b'{"id":"x"}\n')] == ["welcome", "error"]
    assert controller.rest("GET", "/health", token=ADMIN)[1]["counters"]["exceptions"] == 0


def talk(port: int, said: bytes) -> list[Any]:
    """All that is answered until the other end closes."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        text = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(said)
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(65536):
                text += data
    return [json.loads(line) for line in text.splitlines()]


def test_too_many_connections_and_one_that_does_not_read(controller: ControllerProcess, port: int) -> None:
    held = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(64)]
    time.sleep(0.3)
    # Those who say nothing keep nobody out, and are let go after five seconds.
    assert works(port)
    assert all(one.recv(1) == b"" for one in held)
    for one in held:
        one.close()
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(client.Controller("127.0.0.1", port, token=ADMIN))
        with pytest.raises(RequestError, match="too many connections"):
            client.Controller("127.0.0.1", port, token=ADMIN)
    eventually(lambda: works(port))
    with socket.create_connection(("127.0.0.1", port), 10) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(messages.line_of({"type": "hello", "version": 1, "token": ADMIN}))
        lazy.settimeout(0.2)
        with contextlib.suppress(OSError):
            while True:
                lazy.sendall(b'{"id":1,"method":"GET","path":"/topology"}\n' * 100)
        assert works(port)


def works(port: int) -> bool:
    try:
        with client.Controller("127.0.0.1", port, token=ADMIN) as one:
            return bool(one.request("GET", "/health"))
    except OSError:
        return False


def test_discovery_is_bounded(controller: ControllerProcess, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        index = struct.pack("=4s4si", bytes(4), bytes(4), socket.if_nametoindex("lo"))
        asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, index)
        for _ in range(1000):
            asking.sendto(messages.discovery_request("x"), ("224.0.0.3", port))
        asking.sendto(messages.discovery_request("x"), ("127.0.0.1", port))
        asking.settimeout(1.0)
        answers = []
        with contextlib.suppress(TimeoutError):
            while True:
                answers.append(asking.recv(2048))
    assert 1 <= len(answers) <= 100 and max(map(len, answers)) <= messages.DATAGRAM


@pytest.mark.parametrize(
    ("sfnet", "says"),
    [
        ({"host": "0.0.0.0"}, "sfnet.host: beyond loopback needs api_tokens"),
        ({"interfaces": ["nothing0"]}, "sfnet.interfaces"),
        ({"host": "::1"}, "sfnet.host: expected an IPv4 address"),
        ({"ports": 1}, "sfnet.ports: unknown key"),
    ],
)
def test_wrong_settings(tmp_path: Path, port: int, sfnet: dict[str, Any], says: str) -> None:
    controller = ControllerProcess(tmp_path, {"sfnet": {"port": port, **sfnet}})
    with pytest.raises(AssertionError), controller:
        pass
    assert says in controller.log.read_text()


def test_off_unless_asked_for(tmp_path: Path, port: int) -> None:
    with ControllerProcess(tmp_path, {}), pytest.raises(TimeoutError):
        client.discover("lo", within_s=0.7)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2")
def test_other_machines_find_it_by_the_chosen_interface_alone(tmp_path: Path) -> None:
    """The controller in one namespace, an application in another, two cables between them."""
    names, ports = ("hr-plugins-sf-a", "hr-plugins-sf-b"), free_ports(3)
    lines = [f"netns add {name}" for name in names]
    for cable, net in (("good", 1), ("other", 2)):
        lines += [f"link add {cable} netns {names[0]} type veth peer name {cable} netns {names[1]}"]
        for number, name in enumerate(names, start=1):
            lines += [f"-n {name} addr add 10.77.{net}.{number}/24 dev {cable}", f"-n {name} link set {cable} up"]
    lines += [f"-n {name} link set lo up" for name in names]
    openflow, agents, rest = ports
    (tmp_path / "hyroads.json").write_text(json.dumps({
        "network": str(NETWORK),
        "listen": {"openflow": {"port": openflow}, "agents": {"port": agents}, "rest": {"port": rest}},
        "api_tokens": TOKENS,
        "sfnet": {"host": "0.0.0.0", "interfaces": ["good"]},
    }))  # fmt: skip
    (tmp_path / "hyroads.json").chmod(0o600)
    inside = [["ip", "netns", "exec", name, sys.executable, "-c"] for name in names]
    try:
        for line in lines:
            subprocess.run(["ip", *line.split()], check=True, capture_output=True)
        environment = {**os.environ, "HYROADS_CONFIG": str(tmp_path / "hyroads.json")}
        with (tmp_path / "log").open("w") as log:
            controller = subprocess.Popen([*inside[0], PROGRAM], env=environment, stdout=log, stderr=log)
        done = subprocess.run([*inside[1], ASKS, ADMIN], capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.split() == ["10.77.1.1", "2209", "admin", "silent"], (
            done.stderr + (tmp_path / "log").read_text()
        )
    finally:
        with contextlib.suppress(NameError):
            controller.kill()
            controller.wait()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


ASKS = """
import sys
from hyroads.plugins.sfnet.client import Controller, discover
address, port = discover("good", within_s=30.0)
with Controller(address, port, token=sys.argv[1]) as network:
    print(address, port, network.role)
try:
    print(*discover("other", within_s=1.5))
except TimeoutError:
    print("silent")
"""
