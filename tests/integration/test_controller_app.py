"""The real application under ryu-manager, real Open vSwitch, scripted agents (the protocol only, no packets)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ovs_rig
import pytest

pytestmark = pytest.mark.root

ROOT = Path(__file__).resolve().parents[2]
NETWORK = ROOT / "mininet" / "networks" / "triangle.yaml"
NAMESPACE = f"hr-app-{os.getpid()}"
PORTS = {"a": ["a-plc", "a-wifi", "a-host", "a-acc", "a-net"], "b": ["b-plc", "b-wifi", "b-host", "b-acc", "b-net"]}
DPIDS = {"a": 1, "b": 2}
LINKS = {"a": ["ab-plc~", "ab-wifi~"], "b": ["ab-plc", "ab-wifi"]}
OPENFLOW, AGENTS, REST = 16653, 16654, 18080
WITHIN_S = 12.0
# On a busy machine everything takes longer.
GRACE_S = 5.0
# Longer than switches and agents take to come back on any machine: Open vSwitch waits up to 8 s between its attempts.
LONG_GRACE_S = 60.0

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)


def eventually(what: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """The first true value of ``what``; fails with the last false one."""
    until_s = time.monotonic() + within_s
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < until_s, f"not within {within_s} s: {value!r}"
        time.sleep(0.02)


class Lab:
    """Open vSwitch in a namespace of its own; the controller and the agents run in that namespace too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inside = ["ip", "netns", "exec", NAMESPACE]
        names = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
        self.environment = {**os.environ, **{name: str(folder) for name in names}}
        self.controller: subprocess.Popen[bytes] | None = None
        self.log = folder / "controller.log"

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def start(self) -> None:
        subprocess.run(["ip", "netns", "del", NAMESPACE], capture_output=True, check=False)
        self.run("ip", "netns", "add", NAMESPACE)
        self.run(*self.inside, "ip", "link", "set", "lo", "up")
        schema = "/usr/share/openvswitch/vswitch.ovsschema"
        self.run("ovsdb-tool", "create", f"{self.folder}/conf.db", schema)
        remote = f"--remote=punix:{self.folder}/db.sock"
        database = f"{self.folder}/conf.db"
        quiet = ("--pidfile", "--detach", "--log-file", "-vconsole:off")
        self.run(*self.inside, "ovsdb-server", database, remote, *quiet)
        self.run("ovs-vsctl", "--no-wait", "init")
        self.run(*self.inside, "ovs-vswitchd", *quiet)
        for node, ports in PORTS.items():
            dpid = f"{DPIDS[node]:016x}"
            options = f"datapath_type={ovs_rig.DATAPATH} fail_mode=secure other-config:datapath-id={dpid}".split()
            self.run("ovs-vsctl", "add-br", node, "--", "set", "bridge", node, *options, "protocols=OpenFlow13")
            for port in ports:
                self.run(*self.inside, "ip", "link", "add", port, "type", "veth", "peer", "name", f"x{port}")
                for end in (port, f"x{port}"):
                    self.run(*self.inside, "ip", "link", "set", end, "up")
                self.run("ovs-vsctl", "add-port", node, port)

    def connect_switches(self) -> None:
        for node in PORTS:
            self.run("ovs-vsctl", "set-controller", node, f"tcp:127.0.0.1:{OPENFLOW}")
            self.run("ovs-vsctl", "set", "controller", node, "max_backoff=1000", "inactivity_probe=5000")

    def start_controller(self, grace_s: float = GRACE_S) -> None:
        settings = self.folder / "hyroads.json"
        listen = {"openflow": {"port": OPENFLOW}, "agents": {"port": AGENTS}, "rest": {"port": REST}}
        document: dict[str, Any] = {"network": str(NETWORK), "state_file": "state.json", "listen": listen}
        document["timings"] = {"grace_s": grace_s}
        settings.write_text(json.dumps(document))
        settings.chmod(0o600)
        program = "from hyroads.controller.framework.launcher import run_controller; raise SystemExit(run_controller())"
        environment = {**os.environ, "HYROADS_CONFIG": str(settings)}
        with self.log.open("ab") as log:
            command = [*self.inside, sys.executable, "-c", program]
            self.controller = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill_controller(self) -> None:
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    def stop(self) -> None:
        if self.controller is not None and self.controller.poll() is None:
            self.controller.terminate()
            self.controller.wait()
        for name in ("ovs-vswitchd", "ovsdb-server"):
            options = ("--cleanup",) if name == "ovs-vswitchd" else ()
            command = ["ovs-appctl", "-t", name, "exit", *options]
            subprocess.run(command, env=self.environment, capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", NAMESPACE], capture_output=True, check=False)

    def flows(self, node: str) -> list[str]:
        dump = self.run("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", node)
        return [line.strip() for line in dump.splitlines() if "actions=" in line]

    def classified(self, node: str) -> list[str]:
        return [line for line in self.flows(node) if "table=1," in line and "encap(mpls)" in line]

    def rest(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """A request from inside the namespace."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{REST}/api/v1{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")
        except urllib.error.URLError:
            return 0, None


class Agent:
    """Speaks an agent's side of the protocol and remembers what it was told."""

    def __init__(self, node: str, *, revision: int = 0, delay_s: float = 0.0) -> None:
        self.node, self.revision = node, revision
        self.config: dict[str, Any] = {}
        self.messages: list[tuple[float, dict[str, Any]]] = []
        self.silent: set[str] = set()
        self.hung = False
        self._delay_s = delay_s
        self._socket = eventually(self._dial)
        self._write({"type": "hello", "version": 1, "node": node, "program": "test", "boot": "1", "token": None,
                     "revision": revision})  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._tell, daemon=True).start()

    @staticmethod
    def _dial() -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", AGENTS), timeout=1)
        except OSError:
            return None

    def _write(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        self._socket.settimeout(None)
        try:
            for line in self._socket.makefile("rb"):
                message = json.loads(line)
                self.messages.append((time.monotonic(), message))
                self._answer(message)
        except (OSError, ValueError):
            return

    def _tell(self) -> None:
        while True:
            time.sleep(0.2)
            try:
                if not self.hung:
                    self.report()
            except OSError:
                return

    def _answer(self, message: dict[str, Any]) -> None:
        kind = "none" if self.hung else message["type"]
        if kind == "ping":
            self._write({"type": "pong", "seq": message["seq"]})
        elif kind == "stats":
            self.report(message["seq"])
        elif kind in ("config", "rates"):
            time.sleep(self._delay_s)
            if kind == "config":
                self.config, self.revision = message, message["revision"]
            self._write({"type": "ok", "seq": message["seq"]})

    def report(self, seq: int | None = None) -> None:
        links = [{"link": x, "up": x not in self.silent, "last_heard_ms": 1.0} for x in LINKS[self.node]]
        counters = {"unclassified": 0, "malformed": 0, "cpu_s": 0.0}
        head = {"type": "report", "seq": seq, "time_s": time.monotonic(), "revision": self.revision}
        self._write({**head, "ingress": [], "egress": [], "links": links, **counters})

    def link(self, name: str, *, up: bool) -> float:
        self.silent = self.silent - {name} if up else self.silent | {name}
        self._write({"type": "link", "link": name, "up": up})
        return time.monotonic()

    def of(self, kind: str) -> list[tuple[float, dict[str, Any]]]:
        return [(at_s, message) for at_s, message in list(self.messages) if message["type"] == kind]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("ovs"))
    # The test itself moves into the namespace, so that loopback is the same for all.
    with Path("/proc/self/ns/net").open() as outside:
        try:
            lab.start()
            with Path(f"/var/run/netns/{NAMESPACE}").open() as inside:
                _enter(inside.fileno())
            lab.start_controller()
            lab.connect_switches()
            yield lab
        finally:
            _enter(outside.fileno())
            lab.stop()


def _enter(namespace: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@pytest.fixture
def agents(lab: Lab) -> Iterator[dict[str, Agent]]:
    agents = {node: Agent(node) for node in ("a", "b")}
    eventually(lambda: len(lab.classified("a")) == 1)
    yield agents
    for agent in agents.values():
        try:
            agent.close()
        except OSError:
            continue
    eventually(lambda: not lab.classified("a"))


def test_flow_of_the_network_file_is_installed_from_its_end_to_its_beginning(
    lab: Lab, agents: dict[str, Agent]
) -> None:
    # The rule is on the switch already; the switch's confirmation follows.
    flow = eventually(lambda: (f := lab.rest("GET", "/flows/f1")[1]) and f.get("pending") == [] and f)
    assert flow["state"] == "multipath" and flow["reason"] is None
    assert (flow["ingress"], flow["egress"]) == ("a", "b")
    rates = {tuple(path["links"]): path["rate_mbps"] for path in flow["multipath"]}
    # 10 and 20/3 Mb/s of the paper's example, on 95 % of the airtime.
    assert rates[("ab-plc", "bc-wifi")] == pytest.approx(9.5, rel=1e-3)
    assert rates[("ab-wifi", "bc-wifi")] == pytest.approx(0.95 * 20 / 3, rel=1e-3)
    (told,) = agents["a"].config["ingress"]
    (hears,) = agents["b"].config["egress"]
    assert told["number"] == hears["number"] == flow["number"]
    assert sorted(path["id"] for path in told["paths"]) == hears["paths"]
    # One label for the hop a-b and the agent label of b; the hop to the client has none.
    assert all(len(path["labels"]) == 2 for path in told["paths"])
    assert len({path["labels"][-1] for path in told["paths"]}) == 1
    egress_s = next(at_s for at_s, message in agents["b"].of("config") if message["egress"])
    ingress_s = next(at_s for at_s, message in agents["a"].of("config") if message["ingress"])
    assert egress_s < ingress_s
    assert (
        f"0x{flow['number']:x}->mpls_label" in lab.classified("a")[0] or f"{flow['number']}" in lab.classified("a")[0]
    )


def test_health_and_topology_tell_what_is_there(lab: Lab, agents: dict[str, Agent]) -> None:
    health = eventually(lambda: (h := lab.rest("GET", "/health")[1]) and h["ok"] and h)
    assert health["counters"]["exceptions"] == 0 and health["counters"]["openflow_errors"] == 0
    topology = lab.rest("GET", "/topology")[1]
    links = {link["id"]: link for link in topology["links"]}
    assert all(link["up"] for link in links.values())
    assert links["ab-wifi"]["airtime"] == pytest.approx(0.95, rel=1e-3)
    assert links["bc-wifi"]["planned_mbps"] == pytest.approx(0.95 * 50 / 3, rel=1e-3)
    assert links["ab-wifi"]["capacity_mbps"] == links["ab-wifi"]["declared_mbps"] == pytest.approx(15.0)
    estimate = links["ab-wifi"]["estimate"]
    assert (estimate["source"], estimate["quality"]) == ("configured", "unsure") and estimate["reason"]
    graph = lab.rest("GET", "/topology?format=netjson")[1]
    assert graph["type"] == "NetworkGraph" and len(graph["links"]) == 6


def test_slots_and_metrics_are_shown(lab: Lab, agents: dict[str, Agent]) -> None:
    first = lab.rest("GET", "/health")[1]["slots"]
    assert first["slot_ms"] == 100 and first["mode"] == "solver" and first["capacities"] == "file"
    more = eventually(lambda: (s := lab.rest("GET", "/health")[1]["slots"]) and s["count"] > first["count"] + 5 and s)
    assert 0 < more["p50_ms"] <= more["p99_ms"] <= more["max_ms"]
    with urllib.request.urlopen(f"http://127.0.0.1:{REST}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    assert float(lines['hyroads_link_capacity_bytes_per_second{link="ab-plc",technology="plc"}']) == 1.25e6
    assert float(lines['hyroads_flow_planned_bytes_per_second{flow="f1"}']) == pytest.approx(
        0.95e6 / 8 * 50 / 3, rel=1e-3
    )
    assert float(lines["hyroads_slot_seconds_count"]) >= more["count"]
    assert lines['dp_status{dp_id="0x1",dp_name="a"}'] == "1.0"
    measured = lab.rest("GET", "/measurements")[1]
    assert {radio["node"]: radio["up"] for radio in measured["radios"]} == {"a": False, "b": False}
    flow = lab.rest("GET", "/flows/f1")[1]
    assert flow["decided_by"] == "solver" and not flow.get("bandit") and not flow.get("latency")


def test_silent_link_takes_its_path_away_at_once_and_gives_it_back(lab: Lab, agents: dict[str, Agent]) -> None:
    def paths() -> list[list[str]]:
        return [path["links"] for path in lab.rest("GET", "/flows/f1")[1]["multipath"]]

    time.sleep(1.1)  # what is said of links right after an agent's first start is not believed
    seen = len(agents["a"].messages)
    cut_s = agents["b"].link("ab-plc", up=False)
    told = eventually(lambda: [m for m in agents["a"].messages[seen:] if m[1]["type"] in ("config", "rates")])
    print(f"cut to new rates: {(told[0][0] - cut_s) * 1e3:.1f} ms")
    assert told[0][0] - cut_s < 0.5
    # The agent notes when a message came before it takes the configuration in.
    (path,) = eventually(lambda: (found := agents["a"].config["ingress"][0]["paths"]) and len(found) == 1 and found)
    assert path["rate_mbps"] == pytest.approx(0.95 * 10, rel=1e-3)
    assert paths() == [["ab-wifi", "bc-wifi"]]
    kept = path["id"]
    agents["b"].link("ab-plc", up=True)
    eventually(lambda: len(agents["a"].config["ingress"][0]["paths"]) == 2)
    assert kept in [path["id"] for path in agents["a"].config["ingress"][0]["paths"]]
    assert len(lab.classified("a")) == 1


def test_agent_that_dies_takes_the_rule_with_it_and_brings_it_back(lab: Lab, agents: dict[str, Agent]) -> None:
    agents["b"].close()
    died_s = time.monotonic()
    eventually(lambda: not lab.classified("a"), within_s=3)
    assert time.monotonic() - died_s < 1.0
    # The switch confirms the end of the rule a moment after it has taken effect; until then the state is "activating".
    flow = eventually(lambda: (of := lab.rest("GET", "/flows/f1")[1])["state"] == "single" and of)
    assert "agent at b" in flow["reason"] and "agent b" in flow["pending"]
    agents["b"] = Agent("b")
    eventually(lambda: len(lab.classified("a")) == 1)
    assert agents["b"].config["egress"]


def test_agent_that_hangs_is_noticed_by_its_silence(lab: Lab, agents: dict[str, Agent]) -> None:
    agents["a"].hung = True
    hung_s = time.monotonic()
    eventually(lambda: not lab.classified("a"), within_s=5)
    assert 0.5 < time.monotonic() - hung_s < 2.5
    agents["a"].close()
    agents["a"] = Agent("a")
    eventually(lambda: len(lab.classified("a")) == 1)


def test_killed_controller_takes_over_without_a_single_change(lab: Lab, agents: dict[str, Agent]) -> None:
    body = {"id": "up", "from": "c", "to": "a", "match": {"eth_type": 0x0800, "udp_dst": 5001}}
    assert lab.rest("POST", "/flows", body)[0] == 201
    before = {node: sorted(lab.flows(node)) for node in PORTS}
    numbers = {flow["id"]: flow["number"] for flow in lab.rest("GET", "/flows")[1]["flows"]}
    lab.kill_controller()
    lab.start_controller(LONG_GRACE_S)
    revisions = {node: agent.revision for node, agent in agents.items()}
    again = {node: Agent(node, revision=revision) for node, revision in revisions.items()}
    health = eventually(lambda: (h := lab.rest("GET", "/health")[1]) and h["ok"] and h)
    assert health["counters"]["flow_mods"] == 0
    assert {node: sorted(lab.flows(node)) for node in PORTS} == before
    assert {flow["id"]: flow["number"] for flow in lab.rest("GET", "/flows")[1]["flows"]} == numbers
    for node, agent in again.items():
        assert agent.of("config") == [], f"the agent at {node} was configured again"
    agents.update(again)
    assert lab.rest("DELETE", "/flows/up")[0] == 204


def test_controller_that_starts_before_its_agents_leaves_flows_alone_for_the_grace_time(
    lab: Lab, agents: dict[str, Agent]
) -> None:
    def restart(grace_s: float) -> float:
        """Seconds until all switches are connected."""
        lab.kill_controller()
        started_s = time.monotonic()
        lab.start_controller(grace_s)
        eventually(lambda: (h := lab.rest("GET", "/health")[1]) and all(s["connected"] for s in h["switches"]))
        return time.monotonic() - started_s

    # How long a start takes depends on what else runs here; what is tested is the order.
    grace_s = max(GRACE_S, 3 * restart(LONG_GRACE_S))
    started_s = time.monotonic()
    restart(grace_s)
    rules = len(lab.classified("a"))
    assert rules == 1 or time.monotonic() - started_s > grace_s, "the flow lost its rules within the grace time"
    # No agent comes back: after the grace time the flow falls back to the single path.
    eventually(lambda: not lab.classified("a"), within_s=grace_s + WITHIN_S)
    eventually(lambda: lab.rest("GET", "/flows/f1")[1]["state"] == "single")
    agents.update({node: Agent(node) for node in agents})
    eventually(lambda: len(lab.classified("a")) == 1)


def test_flow_over_rest_lives_and_dies(lab: Lab, agents: dict[str, Agent]) -> None:
    body = {"id": "voice", "from": "c", "to": "a", "weight": 2.0, "match": {"eth_type": 0x0800, "udp_dst": 7000}}
    status, flow = lab.rest("POST", "/flows", body)
    assert status == 201 and flow["state"] == "multipath" and flow["pending"] == []
    assert (flow["ingress"], flow["egress"], flow["origin"]) == ("b", "a", "api")
    assert any("udp" in line and "tp_dst=7000" in line for line in lab.classified("b"))
    assert lab.rest("POST", "/flows", body)[0] == 200
    assert lab.rest("POST", "/flows", {**body, "weight": 3.0})[0] == 409
    assert lab.rest("DELETE", "/flows/voice")[0] == 204
    assert not any("tp_dst=7000" in line for line in lab.classified("b"))
    assert not agents["a"].config["egress"]
    assert lab.rest("GET", "/flows/voice")[0] == 404
    status, flow = lab.rest("POST", "/flows?wait=false", body)
    assert status == 202
    assert lab.rest("DELETE", "/flows/voice")[0] == 204


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"id": "x", "from": "a", "to": "nowhere"}, "to"),
        ({"id": "x", "from": "a", "to": "c", "colour": "red"}, "colour"),
        ({"id": "x", "from": "a", "to": "c", "paths": [["bc-wifi"]]}, "paths[0][0]"),
        ({"id": "x", "from": "a", "to": "c", "match": {"udp_dst": 70000}}, "match.udp_dst"),
        ({"id": "x", "from": "a"}, "to"),
    ],
)
def test_bad_flows_are_refused_with_their_place(lab: Lab, body: dict[str, Any], place: str) -> None:
    status, problem = lab.rest("POST", "/flows", body)
    assert status == 422
    assert problem["status"] == 422 and place in problem["errors"]
    assert [flow["id"] for flow in lab.rest("GET", "/flows")[1]["flows"]] == ["f1"]


def test_requests_that_are_no_business_of_ours(lab: Lab) -> None:
    assert lab.rest("GET", "/health", headers={"Host": "evil.example"})[0] == 403
    assert lab.rest("POST", "/flows", {"id": "x" * 100_000, "from": "a", "to": "c"})[0] == 413
    assert lab.rest("GET", "/nothing")[0] == 404
    assert lab.rest("PUT", "/flows")[0] == 405


@pytest.mark.parametrize(
    "data",
    [b"not json\n", b'{"type":"hello","version":9,"node":"a","boot":"1","revision":0}\n', b"x" * (1 << 21),
     b'{"type":"hello","version":1,"node":"nobody","boot":"1","revision":0}\n', b'{"type":"report"}\n', b"\n"],
)  # fmt: skip
def test_hostile_agents_are_cut_off_and_counted(lab: Lab, agents: dict[str, Agent], data: bytes) -> None:
    before = lab.rest("GET", "/health")[1]["counters"]["malformed_agent"]
    with socket.create_connection(("127.0.0.1", AGENTS), timeout=5) as peer:
        try:
            peer.sendall(data)
            while peer.recv(65536):
                pass
        except ConnectionError:
            pass
    health = eventually(lambda: (h := lab.rest("GET", "/health")[1])["counters"]["malformed_agent"] > before and h)
    assert health["counters"]["exceptions"] == 0
    assert len(lab.classified("a")) == 1


def test_malformed_openflow_neither_stops_nor_harms_the_controller(lab: Lab, agents: dict[str, Agent]) -> None:
    hello = bytes([4, 0, 0, 8, 0, 0, 0, 1])
    endless = bytes([4, 0, 0, 16, 0, 0, 0, 1]) + bytes([0, 1, 0, 0, 0, 0, 0, 0])
    for data in (endless, hello + bytes([4, 19, 0, 24]) + bytes(20), os.urandom(4096), bytes(64)):
        with socket.create_connection(("127.0.0.1", OPENFLOW), timeout=5) as peer:
            try:
                peer.sendall(data)
                time.sleep(0.05)
            except ConnectionError:
                continue
    health = lab.rest("GET", "/health")[1]
    assert health["counters"]["malformed_openflow"] >= 2
    assert health["counters"]["exceptions"] == 0
    assert all(switch["connected"] for switch in health["switches"])


def test_switch_that_loses_its_rules_gets_them_back(lab: Lab, agents: dict[str, Agent]) -> None:
    before = sorted(lab.flows("b"))
    foreign = "table=7,priority=5,cookie=0x1234,actions=drop"
    lab.run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "b", foreign)
    lab.run("ovs-vsctl", "del-controller", "b")
    lab.run("ovs-ofctl", "-O", "OpenFlow13", "del-flows", "b", "cookie=0x4800000000000000/0xff00000000000000")
    lab.connect_switches()
    eventually(lambda: sorted(line for line in lab.flows("b") if "0x1234" not in line) == before)


def test_broken_settings_end_the_start_with_one_line(lab: Lab, tmp_path: Path) -> None:
    settings = tmp_path / "bad.yaml"
    settings.write_text("network: nothing.yaml\nmargin: 7\n")
    program = "from hyroads.controller.framework.launcher import run_controller; raise SystemExit(run_controller())"
    environment = {**os.environ, "HYROADS_CONFIG": str(settings)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"hyroads: {settings}: margin: ")


def test_controller_ends_when_it_is_told_to(lab: Lab) -> None:
    assert lab.controller is not None
    lab.controller.send_signal(signal.SIGTERM)
    lab.controller.wait(timeout=5)
    assert "Traceback" not in lab.log.read_text(), lab.log.read_text()[-4000:]
