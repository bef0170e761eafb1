"""Client and command line against the running controller, with real switches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from controller_process import eventually
from dummy_switches import available
from rest_lab import RestLab, rest_lab

from hyroads.rest.client import ApiError, Client
from hyroads.rest.measurement_schemas import HealthSchema, MeasurementsSchema

if not available():
    pytest.skip("needs Open vSwitch", allow_module_level=True)

TOKENS = {role: f"{role}-token-0123456789" for role in ("admin", "application", "viewer")}
PROGRAM = "import sys; from hyroads.controller.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestLab]:
    tokens = {role: {"token": token, "role": role} for role, token in TOKENS.items()}
    settings = {"api_tokens": tokens, "api_limits": {"listeners": 3}}
    with rest_lab(tmp_path_factory.mktemp("live"), settings, TOKENS["admin"]) as lab:
        yield lab


@pytest.fixture
def client(lab: RestLab) -> Iterator[Client]:
    with Client(lab.url, TOKENS["application"]) as client:
        yield client


def hyroads(lab: RestLab, *words: str, role: str = "application", status: int = 0) -> Any:
    environment = {**os.environ, "HYROADS_URL": lab.url, "HYROADS_TOKEN": TOKENS[role], "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, (words, done.stdout, done.stderr)
    assert len(done.stderr.splitlines()) == (1 if status else 0), done.stderr
    return json.loads(done.stdout) if "--json" in words and done.stdout and not status else done.stdout + done.stderr


def rules(lab: RestLab, node: str) -> str:
    return lab.switches.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", node)


def test_a_flow_is_in_the_switch_when_its_declaration_is_answered(lab: RestLab, client: Client) -> None:
    flow = client.declare_flow("voice", "a", "b", match={"eth_type": 0x800, "ip_proto": 17, "udp_dst": 7000})
    assert flow["state"] == "multipath" and flow["pending"] == []
    assert "tp_dst=7000" in rules(lab, "a")
    assert client.declare_flow("voice", "a", "b", match={"eth_type": 0x800, "ip_proto": 17, "udp_dst": 7000})
    with pytest.raises(ApiError) as refused:
        client.declare_flow("voice", "a", "b")
    assert refused.value.status == 409
    client.remove_flow("voice")
    assert "tp_dst=7000" not in rules(lab, "a")


def test_what_agents_do_not_confirm_is_an_operation(lab: RestLab, client: Client) -> None:
    agent = lab.agents["b"]
    agent.delay_s = 2.0
    try:
        operation = client.declare_flow("slow", "a", "b", match={"udp_dst": 7001, "ipv4_dst": "10.0.0.2"}, wait=False)
        assert operation["state"] == "pending" and "agent b" in operation["pending"]
        assert client.confirmed(operation)["state"] == "confirmed"
    finally:
        agent.delay_s = 0.0
    assert client.flow("slow")["state"] == "multipath"
    client.remove_flow("slow")


def test_events_are_heard_as_they_happen(lab: RestLab, client: Client) -> None:
    heard: list[Any] = []

    def listen() -> None:
        with Client(lab.url, TOKENS["viewer"]) as other:
            for event in other.events("flow", "link"):
                heard.append((event.kind, event.document))
                if event.kind == "flow.removed":
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    time.sleep(0.5)
    client.declare_flow("heard", "b", "a", match={"udp_dst": 7002, "ipv4_dst": "10.0.0.1"})
    lab.agents["b"].link("ab-plc", up=False)
    eventually(lambda: ("link.down", "ab-plc") in [(kind, document.get("link")) for kind, document in heard])
    lab.agents["b"].link("ab-plc", up=True)
    eventually(lambda: "link.up" in [kind for kind, _ in heard])
    client.remove_flow("heard")
    thread.join(10)
    kinds = [kind for kind, _ in heard]
    assert kinds[0] == "flow.declared" and kinds[-1] == "flow.removed" and "flow.moved" in kinds


def test_listeners_are_bounded_and_their_places_come_back(lab: RestLab) -> None:
    def listener() -> Iterator[Any]:
        return Client(lab.url, TOKENS["viewer"], tries=1)._stream((), None, follow=True)

    listening: list[Iterator[Any]] = []
    with pytest.raises(ApiError) as refused:
        for _ in range(4):
            listening.append(listener())
            next(listening[-1])
    assert refused.value.status == 503
    listening.clear()

    def is_let_in() -> bool:
        try:
            return next(listener()) is not None
        except ApiError:
            time.sleep(0.5)
            return False

    # That a reader has gone is found out by the next signs of life.
    eventually(is_let_in, 40.0)


def test_paths_and_state_of_the_network(lab: RestLab, client: Client) -> None:
    found = client.paths("a", "c")
    assert found["multipath"]["total_mbps"] >= found["single_path"]["rate_mbps"] > 0
    domains = list(client.listed("/interference-domains", "interference_domains"))
    assert {tuple(sorted(domain["technologies"])) for domain in domains} == {("plc",), ("wifi",)}
    measured = client.get("/measurements/links/ab-plc")
    assert measured["up"] and measured["last_heard_ms"] is not None
    with pytest.raises(ApiError):
        client.paths("a", "nowhere")


def test_measurements_and_health_are_as_the_document_says(lab: RestLab, client: Client) -> None:
    eventually(lambda: client.get("/measurements")["agents"])
    measured = client.get("/measurements")
    assert measured["links"] and measured["radios"]
    assert MeasurementsSchema().validate(measured) == {}
    health = client.health()
    assert health["slots"]["count"] and health["plan"]
    assert HealthSchema().validate(health) == {}


def test_roles(lab: RestLab) -> None:
    with Client(lab.url, TOKENS["viewer"]) as viewer, pytest.raises(ApiError) as refused:
        viewer.declare_flow("x", "a", "b")
    assert refused.value.status == 403
    with Client(lab.url, "wrong-token-0123456789") as stranger, pytest.raises(ApiError) as refused:
        stranger.health()
    assert refused.value.status == 401
    assert "token-0123456789" not in lab.controller.log.read_text()


def test_command_line(lab: RestLab) -> None:
    assert {link["id"] for link in hyroads(lab, "topology", "--json")["links"]} >= {"ab-plc", "bc-wifi"}
    assert "ab-plc" in hyroads(lab, "topology") and "gateway" in hyroads(lab, "topology", "nodes")
    flow = hyroads(lab, "flows", "add", "cli", "a", "b", "--match", "udp_dst=7100", "--match", "ip_proto=17",
                   "--match", "eth_type=0x800", "--json")  # fmt: skip
    assert flow["state"] == "multipath" and "tp_dst=7100" in rules(lab, "a")
    assert "cli" in hyroads(lab, "flows") and hyroads(lab, "flows", "show", "cli", "--json")["id"] == "cli"
    assert hyroads(lab, "flows", "remove", "cli") == ""
    for words in (("clients",), ("handover",), ("ncast",), ("session",), ("reservation",), ("plugins",)):
        listed = [hyroads(lab, *words, *verb, "--json") for verb in ((), ("list",))]
        assert [one.get("id", one.get("name")) for one in listed[0]] == [
            one.get("id", one.get("name")) for one in listed[1]
        ]
        assert hyroads(lab, *words)
    kinds = [json.loads(line)["kind"] for line in hyroads(lab, "events", "--kept", "flow").splitlines() if "{" in line]
    assert kinds == []
    lines = hyroads(lab, "events", "--kept", "--url", lab.url, "flow.removed", "flow.declared")
    assert "flow.declared: id cli" in lines


def test_command_line_says_what_is_wrong_in_one_line(lab: RestLab) -> None:
    assert "no flow 'nothing' (404)" in hyroads(lab, "flows", "show", "nothing", status=2)
    assert "may not do this" in hyroads(lab, "flows", "remove", "f1", role="viewer", status=2)
    assert "expected" in hyroads(lab, "handover", "begin", "c", "nowhere", status=2)
    assert "refused" in hyroads(lab, "flows", "--url", "http://127.0.0.1:9", status=2)


def test_a_page_from_elsewhere_changes_nothing(lab: RestLab) -> None:
    """Not even with a token of its reader's; all that the running controller says that it can do is tried."""
    document = lab.controller.rest("GET", "/openapi.json", token=TOKENS["admin"])[1]
    before = lab.controller.rest("GET", "/plugins", token=TOKENS["admin"])[1]
    headers = {"Authorization": f"Bearer {TOKENS['admin']}", "Origin": "http://elsewhere.example"}
    tried = 0
    for path, operations in document["paths"].items():
        for method in {"post", "put", "patch", "delete"} & set(operations):
            request = urllib.request.Request(lab.url + re.sub(r"{[^}]+}", "signal", path), method=method.upper())
            for name, value in headers.items():
                request.add_header(name, value)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=20)
            assert refused.value.code == 403 and b"web page" in refused.value.read(), (method, path)
            tried += 1
    assert tried > 20 and lab.controller.rest("GET", "/plugins", token=TOKENS["admin"])[1] == before
