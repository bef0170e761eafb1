"""The emulator with real devices and real traffic: TAPs in two namespaces, iperf3 between them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from control_clients import MediumControl, connected, rate_mbps

from hyroads.mininet.control_sockets import MediumError, WokenLate
from hyroads.mininet.programs import find_program

pytestmark = pytest.mark.root

A, B = "hr-medium-a", "hr-medium-b"
DATAGRAM_BYTES = 1400
PAYLOAD_BYTES = DATAGRAM_BYTES + 8 + 20  # UDP and IPv4 headers count as L2 payload


def run(command: str) -> str:
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def config(**changes: Any) -> dict[str, Any]:
    ports = [
        {"name": "hrm-a", "netns": A, "mac": "02:00:00:00:77:01", "technology": "wifi"},
        {"name": "hrm-b", "netns": B, "mac": "02:00:00:00:77:02", "technology": "wifi"},
    ]
    links = [
        {"id": "ab", "from": "hrm-a", "to": "hrm-b", "capacity_mbps": 20},
        {"id": "ba", "from": "hrm-b", "to": "hrm-a", "capacity_mbps": 20},
    ]
    return {"ports": ports, "links": links, "conflicts": {"technology": True}, **changes}


@pytest.fixture
def namespaces() -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for name in (A, B):
        # What a killed run left behind.
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)
        run(f"ip netns add {name}")
    yield
    for name in (A, B):
        run(f"ip netns del {name}")


@contextmanager
def medium(directory: Path, document: dict[str, Any]) -> Iterator[tuple[subprocess.Popen[str], MediumControl]]:
    path, control = directory / "medium.json", directory / "medium.sock"
    path.write_text(json.dumps(document))
    command = [find_program("hyroads-medium"), "--config", str(path), "--socket", str(control), "--die-with-parent"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        with connected(MediumControl, control) as client:
            for number, (namespace, port) in enumerate([(A, "hrm-a"), (B, "hrm-b")], start=1):
                run(f"ip -n {namespace} addr add 10.77.0.{number}/24 dev {port}")
            yield process, client
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


def pings(count: int) -> int:
    command = ["ip", "netns", "exec", A, "ping", "-c", str(count), "-i", "0.05", "-W", "1", "10.77.0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.count("bytes from")


@contextmanager
def iperf_server() -> Iterator[None]:
    command = f"ip netns exec {B} iperf3 -s -J".split()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + 10
        while ":5201" not in run(f"ip netns exec {B} ss -ltn"):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        yield
    finally:
        server.terminate()
        server.wait(timeout=10)


def iperf_client(arguments: str) -> subprocess.Popen[str]:
    command = f"ip netns exec {A} iperf3 -c 10.77.0.2 -J {arguments}"
    return subprocess.Popen(command.split(), stdout=subprocess.PIPE, text=True)


def mtu_of(namespace: str, port: str) -> int:
    return int(json.loads(run(f"ip -n {namespace} -j link show dev {port}"))[0]["mtu"])


def test_each_port_has_its_own_mtu_and_longer_packets_arrive_in_fragments(namespaces, tmp_path):
    document = config()
    document["ports"][1]["mtu"] = 1500
    with medium(tmp_path, document):
        assert (mtu_of(A, "hrm-a"), mtu_of(B, "hrm-b")) == (1600, 1500)
        run(f"ip -n {A} link set hrm-a mtu 1500")
        assert "3 received" in run(f"ip netns exec {A} ping -M dont -c 3 -i 0.05 -W 1 -s 4000 10.77.0.2")


def test_saturated_link_carries_its_capacity(namespaces: None, tmp_path: Path) -> None:
    with medium(tmp_path, config()) as (_, client), iperf_server():
        traffic = iperf_client(f"-u -b 30M -l {DATAGRAM_BYTES} -t 5 -O 1 --get-server-output")
        time.sleep(1.5)
        client.reset()
        time.sleep(3)
        stats = client.stats()
        report = json.loads(traffic.communicate(timeout=30)[0])
        # By the emulator's own counters and by what the program at the other end saw.
        assert rate_mbps(stats, "ab") == pytest.approx(20, rel=0.02)
        assert stats.links["ab"].airtime == pytest.approx(1, abs=0.02)
        assert stats.links["ba"].busy == stats.links["ab"].busy
        assert stats.links["ab"].dropped > 0
        seconds = report["server_output_json"]["intervals"][1:-1]
        goodput_mbps = sum(s["sum"]["bits_per_second"] for s in seconds) / len(seconds) / 1e6
        assert goodput_mbps * PAYLOAD_BYTES / DATAGRAM_BYTES == pytest.approx(20, rel=0.02)


def test_stations_collide_where_the_configuration_says_so(namespaces: None, tmp_path: Path) -> None:
    document = config(contention={"wifi": "csma-802.11"})
    with medium(tmp_path, document) as (process, client), iperf_server():
        assert pings(3) == 3
        traffic = iperf_client(f"-u -b 30M -l {DATAGRAM_BYTES} -t 60 --bidir")
        try:
            deadline_s = time.monotonic() + 50
            while (stats := client.stats()).links["ab"].collisions < 20:
                assert time.monotonic() < deadline_s, stats
                time.sleep(0.05)
            # Two stations: a collision is one of both, but for group frames, which have no link.
            assert stats.links["ba"].collisions > 0
            assert min(stats.links[link].frames for link in ("ab", "ba")) > 0
        finally:
            traffic.kill()
            traffic.communicate(timeout=10)
        assert process.poll() is None


def test_links_change_while_traffic_runs(namespaces: None, tmp_path: Path) -> None:
    with medium(tmp_path, config()) as (_, client):
        assert pings(3) == 3
        client.set_link("ab", up=False)
        assert pings(3) == 0
        assert client.stats().links["ab"].up is False
        assert client.stats().links["ab"].dropped > 0
        client.set_link("ab", up=True, delay_ms=30)
        assert pings(3) == 3
        out = run(f"ip netns exec {A} ping -c 3 -i 0.05 10.77.0.2")
        fastest_ms = float(out.rsplit("=", 1)[1].split("/")[0])
        assert 30 <= fastest_ms < 60
        client.set_link("ab", loss=1.0)
        before = client.stats().links["ab"].lost
        assert pings(2) == 0
        assert client.stats().links["ab"].lost >= before + 2


def test_an_uplink_takes_everything(namespaces: None, tmp_path: Path) -> None:
    with medium(tmp_path, config()) as (_, client):
        client.set_uplink("hrm-a", "hrm-b")
        # The neighbour's address must now be found by a frame to all, sent over the link to b alone.
        assert pings(3) == 3
        port = client.stats().ports["hrm-a"]
        assert port.broadcast is not None
        client.reset()
        run(f"ip -n {A} neigh flush dev hrm-a")
        assert pings(2) == 2
        port = client.stats().ports["hrm-a"]
        assert port.broadcast is not None and port.broadcast.frames == 0
        with pytest.raises(MediumError, match="no port"):
            client.set_uplink("hrm-a", "nowhere")
        client.set_uplink("hrm-a", None)
        assert pings(2) == 2


def test_exit_leaves_nothing_behind(namespaces: None, tmp_path: Path) -> None:
    with medium(tmp_path, config()) as (process, _client):
        assert "hrm-a" in run(f"ip -n {A} link")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
        assert "hrm-a" not in run(f"ip -n {A} link")
        assert not (tmp_path / "medium.sock").exists()


def test_it_ends_with_its_parent(namespaces: None, tmp_path: Path) -> None:
    path, control = tmp_path / "medium.json", tmp_path / "medium.sock"
    path.write_text(json.dumps(config()))
    program = f"{find_program('hyroads-medium')} --config {path} --socket {control} --die-with-parent"
    parent = subprocess.Popen(["bash", "-c", f"{program} & wait"])
    try:
        connected(MediumControl, control).close()
    finally:
        parent.kill()
        parent.wait(timeout=10)
    deadline_s = time.monotonic() + 5
    while "hrm-a" in run(f"ip -n {A} link"):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    assert not control.exists()


def test_a_second_emulator_is_refused_and_a_dead_one_replaced(namespaces: None, tmp_path: Path) -> None:
    control = tmp_path / "medium.sock"
    with medium(tmp_path, config()) as (process, client):
        command = [find_program("hyroads-medium"), "--config", str(tmp_path / "medium.json"), "--socket", str(control)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=10)
        assert second.returncode == 1
        assert "another program answers" in second.stderr
        client.ping()
        process.kill()
        process.wait(timeout=10)
    assert control.exists()
    with medium(tmp_path, config()):
        assert pings(2) == 2


def test_a_deleted_port_does_not_stop_the_others(namespaces: None, tmp_path: Path) -> None:
    with medium(tmp_path, config()) as (process, client):
        assert pings(2) == 2
        run(f"ip -n {B} link del hrm-b")
        pings(2)
        client.ping()
        assert process.poll() is None
        assert client.stats().ports["hrm-b"].refused > 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"conflicts": {}}, "conflicts: expected exactly one of"),
        ({"links": [{"id": "x", "from": "hrm-a", "to": "zz", "capacity_mbps": 1}]}, "links[0].to: no port"),
        ({"options": {"queue_frames": 0}}, "options.queue_frames: expected 1 to"),
        ({"surprise": 1}, "unknown field `surprise`"),
    ],
)
def test_bad_configurations_get_one_line(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(config(**changes)))
    command = [find_program("hyroads-medium"), "--config", str(path), "--socket", str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr and expected in done.stderr
    assert not (tmp_path / "s").exists()


def test_hostile_clients_do_not_disturb(namespaces: None, tmp_path: Path) -> None:
    with medium(tmp_path, config()) as (process, client):
        before = client.stats().links["ab"]
        for bad in (
            b"\x00\xff\n",
            b"[[[[\n",
            b"{" * 200_000 + b"\n",
            b'{"op":"set","link":"ab","up":false,"loss":9}\n',
        ):
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(client.path)
                stream.sendall(bad)
                stream.settimeout(5)
                answer = stream.recv(4096)
                assert answer == b"" or json.loads(answer)["ok"] is False
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(client.path)
            # A line without end: closed once it is too long.
            with pytest.raises(OSError):
                while True:
                    stream.sendall(b"x" * 65536)
        client.ping()
        assert process.poll() is None
        assert client.stats().links["ab"].capacity_mbps == before.capacity_mbps
        assert client.stats().links["ab"].up is True


def stopped(process: subprocess.Popen[str], client: MediumControl) -> tuple[WokenLate, float]:
    """What the program tells after 0.3 s in which it could not run, and how long that has taken in all, in ms."""
    client.reset()
    began_s = time.monotonic()
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(0.2)
    return client.lateness(), (time.monotonic() - began_s) * 1e3


def test_it_tells_how_late_the_machine_woke_it(namespaces: None, tmp_path: Path) -> None:
    with medium(tmp_path, config()) as (process, client), iperf_server():
        traffic = iperf_client(f"-u -b 30M -l {DATAGRAM_BYTES} -t 60")
        deadline_s = time.monotonic() + 10
        # From here on there is always something due.
        while client.stats().links["ab"].queued < 50:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        # Where it is at work and does not wait, as in one of ten cases on a busy machine, no wake-up is late.
        late, took_ms = next(found for found in (stopped(process, client) for _ in range(12)) if found[0].max_ms > 100)
        assert 290 <= late.max_ms <= took_ms
        assert 0.29 <= late.over_100_ms_s <= late.over_20_ms_s <= late.over_5_ms_s
        assert client.stats().woken_late.over_100_ms_s >= late.over_100_ms_s
        client.reset()
        assert client.lateness().over_100_ms_s == 0
        traffic.kill()
        traffic.communicate(timeout=10)


def the_example_of_the_page() -> dict[str, Any]:
    page = (Path(__file__).parents[2] / "docs/reference/dataplane.md").read_text(encoding="utf-8")
    block = page.split("### Radios")[1].split("```json")[1].split("```")[0]
    example: dict[str, Any] = json.loads(block)
    return example


@pytest.mark.parametrize(
    ("document", "arguments", "expected"),
    [
        (the_example_of_the_page(), [], "ports[0].radio: needs --hwsim"),
        (config(), ["--hwsim"], "ports: --hwsim needs a port with a radio"),
    ],
)
def test_radios_and_their_option_belong_together(
    tmp_path: Path, document: dict[str, Any], arguments: list[str], expected: str
) -> None:
    done = started_in_vain(tmp_path, document, arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and expected in done.stderr


@pytest.mark.skipif(Path("/sys/module/mac80211_hwsim").exists(), reason="needs a kernel without mac80211_hwsim")
def test_radios_without_their_driver_are_one_clear_error(tmp_path: Path) -> None:
    done = started_in_vain(tmp_path, the_example_of_the_page(), ["--hwsim"])
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and "modprobe mac80211_hwsim" in done.stderr


def started_in_vain(folder: Path, document: dict[str, Any], arguments: list[str]) -> subprocess.CompletedProcess[str]:
    (folder / "medium.json").write_text(json.dumps(document))
    command = [find_program("hyroads-medium"), "--config", str(folder / "medium.json"), *arguments]
    command += ["--socket", str(folder / "medium.sock")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert not (folder / "medium.sock").exists()
    return done
