"""``hyroads client run`` and ``waypoint`` as processes in namespaces, over a stand-in for ``hyroads-client``: what the
program is told, what users are answered, and what is left when either of them ends, in order or not.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import client_fixtures
import pytest
from client_fixtures import NEEDS_ROOT
from controller_process import ControllerProcess
from multihomed import HYROADS, SERVER, TOKEN, Host, World, make_tokens, wait_until, waypoint_of

from hyroads.rest.client import ApiError, Client

pytestmark = NEEDS_ROOT

NAME = socket.gethostname()
POLICY = """
interfaces: {wlan0: {}, wwan0: {metered: true, cap_gib_month: 0.02}}
flows:
  - {name: voice, match: {udp_dst: 5060}, weight: 4, urgent: true}
  - {name: video, match: {tcp_dst: 443}, interfaces: [wlan0]}
"""

world, host = client_fixtures.world, client_fixtures.host_of(POLICY)


def test_from_the_policy_to_the_program_and_back_to_the_host_as_it_was(world: World, host: Host) -> None:
    before = world.state(world.client)
    host.start()
    configured = host.told("configure")[-1]
    assert (configured["address4"], configured["address6"]) == ("10.171.0.2", "fd68:7972:6f61::2")
    assert [each["name"] for each in configured["rules"]] == ["voice", "video", "rest"]
    assert host.told("started")[0]["options"]["--state"].startswith(str(host.folder))
    assert world.route(SERVER)["dev"] == "hr0"
    wait_until(lambda: host.status()["interfaces"]["wlan0"]["sent_mbps"] > 0)
    status = host.status()
    assert status["mode"] == "full-speed"
    assert {"up", "at", "metered", "rate_mbps", "sent_mbps", "queue_packets", "month_gib"} <= status["interfaces"][
        "wwan0"
    ].keys()
    assert status["interfaces"]["wlan0"]["at"] == "10.1.0.1"
    flow = status["flows"][0]
    assert (flow["id"], flow["name"], flow["interface"]) == (12, "rest", "wlan0")
    assert flow["level_mbps"] == pytest.approx(flow["rate_mbps"] / 2, rel=1e-3)
    assert status["clusters"][0]["flows"] == [12]
    assert status["mptcp"] == []
    table = host.hyroads("status").stdout
    assert "sent, Mb/s" in table
    assert "month, GiB" in table
    assert host.end() == 0
    assert world.state(world.client) == before


def test_the_program_runs_at_real_time_priority_unless_that_is_turned_off(host: Host) -> None:
    host.start()
    assert "--realtime" in host.told("started")[-1]["options"]
    assert host.end() == 0
    host.start("run", "--config", str(host.policy), "--no-realtime")
    assert "--realtime" not in host.told("started")[-1]["options"]


def test_modes_and_migrations_are_done_when_the_command_ends(host: Host) -> None:
    host.start()
    done = host.hyroads("mode", "cost-efficient")
    assert (done.returncode, done.stderr) == (0, "")
    rest = host.told("configure")[-1]["rules"][-1]
    assert (rest["interfaces"], rest["backup"]) == (["wlan0"], ["wwan0"])
    assert host.status()["mode"] == "cost-efficient"
    assert host.hyroads("migrate", "12", "wwan0").returncode == 0
    assert {key: host.told("migrate")[-1][key] for key in ("flow", "interface")} == {"flow": 12, "interface": "wwan0"}
    for words, expected in (
        (("mode", "fast"), "unknown mode 'fast', expected full-speed, cost-efficient or high-robustness"),
        (("mode", "high-robustness"), "needs a waypoint, and there is none"),
        (("mode", "full-speed", "--flow", "sms"), "unknown flow 'sms'"),
        (("migrate", "404", "wwan0"), "no flow 404"),
        (("migrate", "12", "eth7"), "unknown interface 'eth7', expected wlan0 or wwan0"),
    ):
        refused = host.hyroads(*words)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1
        assert expected in refused.stderr
    assert host.status()["mode"] == "cost-efficient"


def test_a_wrong_file_changes_nothing_and_a_good_one_everything(world: World, host: Host) -> None:
    host.start()
    configured = len(host.told("configure"))
    host.policy.write_text(POLICY.replace("weight: 4", "weight: .nan"))
    host.signal(signal.SIGHUP)
    wait_until(lambda: "flows[0].weight: expected a weight above 0" in host.said())
    # The program refuses it: neither half of it stays.
    host.policy.write_text("interfaces: {refused: {}, wlan0: {}}\n")
    host.signal(signal.SIGHUP)
    wait_until(lambda: "interfaces[0].name: refused; the policy stays as it was" in host.said())
    assert list(host.status()["interfaces"]) == ["wlan0", "wwan0"]
    assert "refused" not in world.inside(world.client, "nft", "list", "table", "inet", "hyroads_client")
    assert all(each["interfaces"][0]["name"] == "refused" for each in host.told("configure")[configured:])
    host.policy.write_text("interfaces: {wlan0: {}}\naddress4: 10.171.9.9\n")
    host.signal(signal.SIGHUP)
    wait_until(lambda: "read again" in host.said())
    assert world.route(SERVER)["prefsrc"] == "10.171.9.9"
    assert host.told("configure")[-1]["address4"] == "10.171.9.9"


def test_a_program_that_ends_is_started_again_with_its_state(world: World, host: Host) -> None:
    host.start()
    host.hyroads("mode", "cost-efficient")
    Path(f"{host.asked}.crash").touch()
    wait_until(lambda: "the program runs again" in host.said())
    first, second = host.told("started")
    assert second["options"]["--state"] == first["options"]["--state"]
    assert host.told("configure")[-1]["rules"][-1]["backup"] == ["wwan0"], "the mode stays"
    wait_until(lambda: world.route(SERVER)["dev"] == "hr0")
    assert host.status()["program"]["restarts"] == 1


def test_a_killed_daemon_s_program_goes_on_and_its_successor_takes_it_over(world: World, host: Host) -> None:
    before = world.state(world.client)
    host.start()
    host.signal(signal.SIGKILL)
    assert host.daemon is not None
    host.daemon.wait(5)
    assert world.route(SERVER)["dev"] == "hr0"
    assert "is 'hyroads client run' running?" in host.hyroads("status").stderr
    host.start()
    assert "takes over" in host.said()
    assert len(host.told("started")) == 1
    assert host.status()["flows"][0]["id"] == 12
    assert host.end() == 0
    assert world.state(world.client) == before


def test_a_cap_ends_the_traffic_and_outlives_the_daemon(world: World, host: Host) -> None:
    host.start()
    flood = ("ping", "-q", "-f", "-I", "wwan0", "-s", "1400", "-c", "20000", "-W", "1", "-w", "10", SERVER)
    world.start(world.client, *flood, log=host.folder / "ping")
    wait_until(lambda: not host.told("configure")[-1]["interfaces"][1]["usable"], 30)
    interface = host.status()["interfaces"]["wwan0"]
    assert "the cap of 0.02 GiB is used up" in interface["problem"]
    assert 0.001 < interface["month_gib"] <= 0.02
    wait_until(lambda: (host.folder / "ping").read_text().count("packets transmitted") == 1, 30)
    carried = host.status()["interfaces"]["wwan0"]["month_gib"]
    assert carried <= 0.02
    assert host.end() == 0
    host.start()
    wait_until(lambda: not host.told("configure")[-1]["interfaces"][1]["usable"])
    assert host.status()["interfaces"]["wwan0"]["month_gib"] == pytest.approx(carried, rel=0.05)


def test_what_can_t_run_says_so_in_one_line_and_leaves_nothing(world: World, host: Host) -> None:
    before = world.state(world.client)
    host.policy.write_text("interfaces: {refused: {}}\n")
    command = ("env", f"HYROADS_BIN={host.folder / 'bin'}", *HYROADS, "client", "run", "--config", str(host.policy))
    child = world.start(world.client, *command, *host.folders, log=host.log)
    assert child.wait(20) == 2
    assert host.said().splitlines()[-1] == "hyroads: interfaces[0].name: refused"
    assert world.state(world.client) == before
    host.policy.write_text("interfaces: {}\nmode: x\n")
    child = world.start(world.client, *command, *host.folders, log=host.log)
    assert child.wait(20) == 2
    assert [line.split(": ")[1] for line in host.said().splitlines()[-2:]] == ["interfaces", "mode"]
    host.policy.write_text(POLICY)
    host.start()
    child = world.start(world.client, *command, *host.folders, log=host.folder / "second")
    assert child.wait(20) == 2
    assert "another one is running" in (host.folder / "second").read_text()


def test_a_session_with_a_waypoint_from_its_certificate_to_the_program(world: World, host: Host) -> None:
    gate = Host(world, world.net, "waypoint")
    before = world.state(world.net)
    gate.start("waypoint", *make_tokens(gate.folder))
    host.policy.write_text(f"{POLICY}\nmode: high-robustness\nwaypoint: {waypoint_of(gate.folder)}\n")
    checked = world.inside(world.client, *HYROADS, "client", "check", "--connect", str(host.policy))
    assert f"waypoint {SERVER}: session 2, addresses 100.72.0.2 None" in checked
    host.start()
    told, session = host.told("configure")[-1], gate.told("session")[-1]
    assert told["waypoint"] == {"address": SERVER, "port": 6656, "session": 2, "key": session["key"]}
    assert (told["address4"], session["address4"]) == ("100.72.0.2", "100.72.0.2")
    assert told["rules"][-1]["copies"] is True
    assert world.route(SERVER)["dev"] == "wlan0"
    assert world.route("203.0.113.1")["prefsrc"] == "100.72.0.2"
    assert host.status()["waypoint"]["connected"] is True
    # The interface of the session goes: a new one over the other; the data plane keeps what it has until then.
    configured = len(host.told("configure"))
    world.inside(world.client, "ip", "link", "set", "wlan0", "down")
    wait_until(lambda: len(host.told("configure")) > configured, 30)
    assert all(each["waypoint"] is not None for each in host.told("configure")[configured:])
    assert host.told("configure")[-1]["waypoint"]["key"] == gate.told("session")[-1]["key"] != session["key"]
    assert json.loads(gate.hyroads("status", "--waypoint", "--json").stdout)["sessions"][0]["client"] == "laptop1"
    assert host.end() == 0
    assert gate.end() == 0
    world.inside(world.client, "ip", "link", "set", "wlan0", "up")
    assert world.state(world.net) == before


def test_a_waypoint_that_does_not_answer_keeps_nobody_off_the_net(world: World, host: Host) -> None:
    make_tokens(host.folder)
    host.policy.write_text(f"{POLICY}\nwaypoint: {waypoint_of(host.folder)}\n")
    host.start()
    assert f"waypoint {SERVER} port 6656 over wlan0: Connection refused" in host.said()
    assert host.told("configure")[-1]["waypoint"] is None
    assert {each["via"] for each in host.told("configure")[-1]["rules"]} == {"direct"}
    assert "Connection refused" in host.status()["waypoint"]["problem"]


def test_a_campus_controller_sees_the_client_and_sets_its_policy(world: World, host: Host, tmp_path: Path) -> None:
    secret = host.folder / "campus.token"
    secret.write_text(TOKEN * 2)
    secret.chmod(0o600)
    with in_namespace(world.client), ControllerProcess(tmp_path, {"clients": {NAME: {"token": TOKEN * 2}}}) as campus:
        own = f"controller: {{address: 127.0.0.1, port: {campus.agents}, token_file: campus.token}}\n"
        host.policy.write_text(POLICY + own)
        host.start()
        with Client(f"http://127.0.0.1:{campus.port}") as rest:
            wait_until(lambda: rest.get(f"/clients/{NAME}")["multihomed"]["connected"])
            wait_until(lambda: rest.get(f"/clients/{NAME}/interfaces")["interfaces"][0]["sent_mbps"] > 0)
            policy = rest.get(f"/clients/{NAME}/policy")
            assert [flow["name"] for flow in policy["flows"]] == ["voice", "video"]
            wanted = {**policy, "mode": "cost-efficient", "flows": policy["flows"][:1]}
            assert rest.change("PUT", f"/clients/{NAME}/policy", wanted) == wanted
            assert [rule["name"] for rule in host.told("configure")[-1]["rules"]] == ["voice", "rest"]
            assert host.status()["mode"] == "cost-efficient"
            rest.change("PATCH", f"/clients/{NAME}/policy", {"mode": "full-speed"})
            rest.change("POST", f"/clients/{NAME}/migrations", {"flow": 12, "interface": "wwan0"})
            assert host.told("migrate")[-1]["interface"] == "wwan0" and host.status()["mode"] == "full-speed"
            wanted["flows"] = [{"name": "voice", "weight": -4}]
            with pytest.raises(ApiError, match=r"flows\[0\]\.weight: expected a weight above 0"):
                rest.change("PUT", f"/clients/{NAME}/policy", wanted)
            assert [rule["name"] for rule in host.told("configure")[-1]["rules"]] == ["voice", "rest"]
            assert host.end() == 0
            wait_until(lambda: not rest.get(f"/clients/{NAME}")["multihomed"]["connected"])


@contextlib.contextmanager
def in_namespace(name: str) -> Iterator[None]:
    """This thread, and what it starts, is in a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as home, Path(f"/var/run/netns/{name}").open("rb") as there:
        assert libc.setns(there.fileno(), 0) == 0
        try:
            yield
        finally:
            assert libc.setns(home.fileno(), 0) == 0
