"""The whole client: ``hyroads client run`` over the real ``hyroads-client``, real TCP connections, a real waypoint."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import client_fixtures
import pytest
from client_fixtures import FLOWS, NEEDS_PROGRAM
from client_transfers import Transfer, flow_of, has_flow
from multihomed import FAR, HYROADS, SERVER, TOKEN, Host, World, run, tcp_server, wait_until, waypoint_of

pytestmark = NEEDS_PROGRAM
POLICY = "interfaces: {wlan0: {}, wwan0: {metered: true}}\n" + FLOWS

world, gate = client_fixtures.world, client_fixtures.gate
host = client_fixtures.host_of(POLICY, real=client_fixtures.PROGRAM)


def program_of(host: Host) -> int:
    """The process of the client's hyroads-client."""
    pids = host.world.inside(host.namespace, "ip", "netns", "pids", host.namespace).split()
    for pid in pids:
        # Others of them are over in a moment.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "hyroads-client":
                return int(pid)
    raise AssertionError("it does not run")


def test_a_connection_goes_over_the_interface_of_its_flow_and_the_status_shows_it(world: World, host: Host) -> None:
    before = world.state(world.client)
    host.start()
    assert world.route(FAR)["dev"] == "hr0"
    with tcp_server(world, 7000, world.far):
        call = f"import socket; s = socket.create_connection(('{FAR}', 7000), 5); print(s.recv(99))"
        assert "10.2.0.2" in world.python(world.client, call)
    assert " 0% packet loss" in world.inside(world.client, "ping", "-c", "3", "-i", "0.1", FAR)
    transfer = Transfer(world, 3.0)
    wait_until(lambda: has_flow(host, "bulk"))
    status, flow = host.status(), flow_of(host, "bulk")
    assert flow["via"] == "direct"
    assert flow["source"].startswith("10.171.0.2:")
    assert flow["interface"] in ("wlan0", "wwan0")
    assert flow["rate_mbps"] == pytest.approx(flow["level_mbps"])
    interface = status["interfaces"][flow["interface"]]
    assert interface["up"]
    assert interface["sent_mbps"] >= 0.8 * flow["rate_mbps"]
    assert [flow["id"]] in [each["flows"] for each in status["clusters"]]
    refused = host.hyroads("migrate", str(flow["id"]), "wwan0" if flow["interface"] == "wlan0" else "wlan0")
    assert refused.returncode == 2, "a direct flow can't move"
    assert transfer.end()[0] > 1_000_000
    assert host.end() == 0
    assert world.state(world.client) == before


def test_a_connection_survives_migrations_and_the_loss_of_its_interface(world: World, host: Host, gate: Host) -> None:
    host.start()
    transfer = Transfer(world, 8.0)
    wait_until(lambda: has_flow(host, "bulk"))
    for _ in range(4):
        flow = flow_of(host, "bulk")
        other = "wwan0" if flow["interface"] == "wlan0" else "wlan0"
        moved = host.hyroads("migrate", str(flow["id"]), other)
        assert moved.returncode == 0, moved.stderr
        assert flow_of(host, "bulk")["interface"] == other
    assert flow_of(host, "bulk")["migrations"] >= 4
    assert flow_of(host, "bulk")["source"].startswith("100.72.0.2:")
    lost = flow_of(host, "bulk")["interface"]
    world.inside(world.client, "ip", "link", "set", lost, "down")
    wait_until(lambda: flow_of(host, "bulk")["interface"] not in (lost, None), 3.0)
    status = host.status()
    assert status["interfaces"][lost]["up"] is False
    total, gap_s = transfer.end()
    assert total > 5_000_000
    assert gap_s < 1.0
    sessions = json.loads(gate.hyroads("status", "--waypoint", "--json").stdout)["sessions"]
    assert [each["client"] for each in sessions] == ["laptop1"]


@pytest.mark.parametrize("via", ["direct", "waypoint"])
def test_a_connection_survives_the_end_of_the_program(world: World, host: Host, via: str, request: Any) -> None:
    if via == "waypoint":
        request.getfixturevalue("gate")
    host.start()
    transfer = Transfer(world, 8.0)
    wait_until(lambda: has_flow(host, "bulk"))
    assert flow_of(host, "bulk")["via"] == via
    os.kill(program_of(host), signal.SIGKILL)
    wait_until(lambda: "the program runs again" in host.said())
    assert transfer.end()[0] > 1_000_000
    assert host.status()["program"]["restarts"] == 1


def test_a_connection_does_not_notice_that_the_daemon_was_killed(world: World, host: Host, gate: Host) -> None:
    host.start()
    transfer = Transfer(world, 6.0)
    wait_until(lambda: has_flow(host, "bulk"))
    host.signal(signal.SIGKILL)
    time.sleep(0.5)
    host.start()
    flow = flow_of(host, "bulk")
    other = "wwan0" if flow["interface"] == "wlan0" else "wlan0"
    assert host.hyroads("migrate", str(flow["id"]), other).returncode == 0
    total, gap_s = transfer.end()
    assert total > 1_000_000
    assert gap_s < 1.0


def test_a_connection_survives_the_end_of_the_waypoint_s_program(world: World, host: Host, gate: Host) -> None:
    host.start()
    transfer = Transfer(world, 8.0)
    wait_until(lambda: has_flow(host, "bulk"))
    os.kill(program_of(gate), signal.SIGKILL)
    wait_until(lambda: gate.said().count(" ready") == 2)
    assert transfer.end()[0] > 1_000_000


def test_modes_move_running_flows(world: World, host: Host, gate: Host) -> None:
    host.start()
    transfer = Transfer(world, 7.0)
    wait_until(lambda: has_flow(host, "bulk"))
    if flow_of(host, "bulk")["interface"] == "wlan0":
        host.hyroads("migrate", str(flow_of(host, "bulk")["id"]), "wwan0")
    assert host.hyroads("mode", "cost-efficient").returncode == 0
    # wwan0 is metered.
    wait_until(lambda: flow_of(host, "bulk")["interface"] == "wlan0", 1.0)
    said = host.hyroads("mode", "high-robustness")
    took_ms = float(re.search(r"\(([0-9.]+) ms\)", said.stdout)[1])  # type: ignore[index]
    assert took_ms < 200

    def are_copies() -> bool:
        """Rates are those of the last second, so the first ones are of both modes."""
        wlan0, wwan0 = (host.status()["interfaces"][name]["sent_mbps"] for name in ("wlan0", "wwan0"))
        return bool(wwan0 > 1 and wwan0 == pytest.approx(wlan0, rel=0.3))

    wait_until(are_copies, 4.0)
    assert transfer.end()[0] > 1_000_000


def test_a_gateway_of_a_network_file_is_a_waypoint_with_the_rights_of_its_unit_alone(world: World, host: Host) -> None:
    gate = Host(world, world.net, "waypoint", real=client_fixtures.PROGRAM)
    (gate.folder / "network.yaml").write_text(
        f"nodes: {{gw: {{role: gateway, waypoint: {{address: {SERVER}}}}}}}\nlinks: []\n"
        "interference: {rule: technology}\n"
    )
    for name, text in (("tokens", f"laptop1 {TOKEN}\n"), ("token", TOKEN)):
        (gate.folder / name).write_text(text)
        (gate.folder / name).chmod(0o600)
    unit = (Path(__file__).resolve().parents[2] / "deploy/systemd/hyroads-waypoint@.service").read_text()
    rights = re.findall(r"(?m)^CapabilityBoundingSet=(.*)$", unit)[0].split()
    allowed = ",".join(["-all", *(f"+{right.removeprefix('CAP_').lower()}" for right in rights)])
    limited = ("setpriv", f"--bounding-set={allowed}", f"--inh-caps={allowed}", "--no-new-privs")
    words = ("--node", "gw", "--network", str(gate.folder / "network.yaml"), "--tokens", str(gate.folder / "tokens"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(gate.folder / "notify"))
        manager.settimeout(30)
        notify = ("env", f"NOTIFY_SOCKET={gate.folder / 'notify'}", "WATCHDOG_USEC=600000")
        gate.prefix = (*notify, *limited)
        before = world.state(world.net)
        gate.start("waypoint", *words)
        said = {manager.recv(4096) for _ in range(5)}
        assert said == {b"READY=1", b"WATCHDOG=1"}
        host.policy.write_text(f"{host.policy.read_text()}waypoint: {waypoint_of(gate.folder, 'state/waypoint.pem')}\n")
        host.start()
        call = f"import socket; s = socket.create_connection(('{FAR}', 7002), 5); print(s.recv(99).decode())"
        with tcp_server(world, 7002, world.far):
            assert world.python(world.client, call).strip() == "203.0.113.1"
        status = json.loads(gate.hyroads("status", "--waypoint", "--json").stdout)
        assert (status["node"], status["address"], status["port"]) == ("gw", SERVER, 6656)
        assert [each["client"] for each in status["sessions"]] == ["laptop1"]
        assert f"node gw, address {SERVER} port 6656, fingerprint " in gate.hyroads("status", "--waypoint").stdout
        assert host.end() == 0
        assert gate.end() == 0
        while manager.recv(4096) != b"STOPPING=1":
            pass
        assert world.state(world.net) == before


# What the sockets of a process in a control group see of the way that their packets take: TCP, UDP without and with
# connect().
ASK_AS = f"""
import os, socket, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
stream = socket.create_connection(("{FAR}", 7003), 10)
print(stream.recv(99).decode())
for connected in (False, True):
    each = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    each.settimeout(10)
    each.connect(("{FAR}", 7004)) if connected else None
    each.send(b"?") if connected else each.sendto(b"?", ("{FAR}", 7004))
    print(each.recvfrom(99)[0].decode())
"""
UDP_SERVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7004))
print("ready", flush=True)
while True:
    _, peer = s.recvfrom(99)
    s.sendto(peer[0].encode(), peer)
"""


@pytest.fixture
def cgroups() -> Iterator[dict[str, Path]]:
    """Control groups as a desktop has them, on this machine's cgroup v2."""
    roots = re.findall(r"(?m)^(?:\S+ ){4}(\S+) .* - cgroup2 ", Path("/proc/self/mountinfo").read_text())
    base = Path(roots[0], f"hr-test-{os.getpid()}") if roots else None
    names = {"video": "app.slice/app-gnome-video-4711.scope", "backup": "backup.slice/deeper", "other": "other.service"}
    made: list[Path] = []
    try:
        for name in names.values() if base is not None else ():
            for part in reversed([Path(name), *Path(name).parents]):
                made += [folder for folder in [base / part] if not folder.exists()]
                (base / part).mkdir(exist_ok=True)
    except OSError:
        base = None
    try:
        if base is None:
            pytest.skip("needs a cgroup v2 file system that root may write")
        yield {name: base / folder for name, folder in names.items()}
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()


def test_flows_take_the_interface_of_their_application(world: World, host: Host, cgroups: dict[str, Path]) -> None:
    backup = f"/{cgroups['backup'].parents[1].name}/backup.slice"
    flows = "[{name: video, match: {application: video}, interfaces: [wwan0]}, "
    flows += f"{{name: backup, match: {{application: {backup}, protocol: udp}}, interfaces: [wwan0]}}, "
    flows += "{name: rest, interfaces: [wlan0]}]"
    host.policy.write_text(f"interfaces: {{wlan0: {{}}, wwan0: {{}}}}\nflows: {flows}\n")
    # "ip netns exec" mounts a /sys of its own, without what is mounted there.
    host.prefix = ("sh", "-c", 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"', "sh")
    host.start()
    udp = world.start(world.far, sys.executable, "-c", UDP_SERVER, log=world.folder / "udp.log")
    wait_until(lambda: (world.folder / "udp.log").read_text() == "ready\n" or udp.poll() is not None)
    wlan, wwan = "10.1.0.2", "10.2.0.2"
    wanted = {"video": [wwan] * 3, "backup": [wlan, wwan, wwan], "other": [wlan] * 3}
    with tcp_server(world, 7003, world.far):
        for name, ways in wanted.items():
            inside = ["nsenter", f"--net=/run/netns/{world.client}", "--"]
            assert run(*inside, sys.executable, "-c", ASK_AS, str(cgroups[name])).stdout.split() == ways, name
    assert " 0% packet loss" in world.inside(world.client, "ping", "-c", "1", FAR)
    assert {"video", "backup", "rest"} <= {each["name"] for each in host.status()["flows"]}


def test_an_application_is_refused_where_nobody_tells_it(host: Host) -> None:
    host.policy.write_text("interfaces: {wlan0: {}}\nflows: [{name: a, match: {application: firefox}}]\n")
    with pytest.raises(AssertionError):
        host.start()
    assert host.said() == "hyroads: rules[0].match.application: no cgroup v2 file system is mounted on this host\n"
    checked = host.world.inside(host.namespace, *HYROADS, "client", "check", str(host.policy), check=False)
    assert (
        checked
        == f"hyroads: {host.policy}: flows: match.application needs a cgroup v2 file system, and none is mounted here\n"
    )
