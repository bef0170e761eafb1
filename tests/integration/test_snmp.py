"""Real snmpd, real medium, real collector: what is served, to whom, and what happens when parts fail."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hyroads.controller.access_point.mib import BASE, NEIGHBOUR_ENTRY, SNAPSHOT_AGE
from hyroads.controller.measure.samples import NodeSample, Silence, from_line

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not shutil.which("snmpd") or not shutil.which("snmpwalk"), reason="snmpd and snmp not installed"
    ),
]

NAMESPACE = "hr-snmp-test"
SECRETS = {"community": "sesame-open", "auth_password": "auth-pass-123", "priv_password": "priv-pass-123"}
V2C = ("-v2c", "-c", SECRETS["community"])
V3 = ("-v3", "-l", "authPriv", "-u", "hyroads", "-a", "SHA-256", "-A", SECRETS["auth_password"],
      "-x", "AES", "-X", SECRETS["priv_password"])  # fmt: skip
HOST = "127.161.0.1"
# Samples, one each 250 ms, after which a collector knows an agent well.
KNOWN = 8


def wait_for(condition, timeout_s=10.0):
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


class Rig:
    """One access point in a namespace: a medium with two stations, ap-agent for the first."""

    def __init__(self, directory):
        self.directory = directory
        self.started = []
        subprocess.run(["ip", "netns", "del", NAMESPACE], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)
        self.medium = self.start_medium()
        self.agent = self.start_agent()

    def inside(self, *command):
        return ["ip", "netns", "exec", NAMESPACE, *command]

    def start(self, *command, **options):
        self.started.append(subprocess.Popen(self.inside(*command), stdin=subprocess.DEVNULL, **options))
        return self.started[-1]

    def start_medium(self):
        from hyroads.mininet.programs import find_program

        ports = [
            {
                "name": f"{n}-wifi",
                "netns": None,
                "mac": f"02:00:01:01:00:0{i}",
                "technology": "wifi",
                "uplink": None,
                "hears": [],
            }
            for i, n in ((1, "a"), (2, "b"))
        ]
        ends = (("ab", "a-wifi", "b-wifi", 20), ("ba", "b-wifi", "a-wifi", 10))
        links = [{"id": i, "from": a, "to": b, "capacity_mbps": c, "delay_ms": 0, "loss": 0.0, "up": True}
                 for i, a, b, c in ends]  # fmt: skip
        file, self.socket = self.directory / "medium.json", self.directory / "medium.sock"
        file.write_text(json.dumps({"ports": ports, "links": links, "conflicts": {"technology": True}}))
        medium = self.start(find_program("hyroads-medium"), "--config", str(file), "--socket", str(self.socket))
        assert wait_for(self.socket.exists)
        subprocess.run(self.inside("ip", "link", "set", "a-wifi", "up"), check=True)
        return medium

    def start_agent(self):
        file = self.directory / "agent.json"
        peer = {"mac": "02:00:01:01:00:02", "node": "b", "out_link": "ab", "in_link": "ba"}
        passwords = {key: SECRETS[key] for key in ("auth_password", "priv_password")}
        document = {
            "node": "a",
            "listen": [f"{HOST}:161"],
            "community": SECRETS["community"],
            "users": [{"name": "hyroads", **passwords}],
            "medium_socket": str(self.socket),
            "interfaces": [{"name": "a-wifi", "technology": "wifi", "backend": "emulated", "peers": [peer]}],
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(document))
        command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(file)]
        agent = self.start(*command, "--directory", str(self.directory / "ap"), stderr=subprocess.DEVNULL)
        assert wait_for(lambda: self.walk(*V2C))
        return agent

    def kill_agent(self):
        """snmpd has no time to save anything; the program that it ran goes with it."""
        self.agent.kill()
        self.agent.wait(5)
        assert wait_for(lambda: self.radio_pid() is None)

    def snmp(self, program, credentials, *oids):
        command = self.inside(program, "-m", "", "-On", "-t", "1", "-r", "0", *credentials, HOST, *oids)
        return subprocess.run(command, capture_output=True, text=True)

    def walk(self, *credentials, root=BASE):
        """OID -> value of a walk, in the order in which it came."""
        done = self.snmp("snmpbulkwalk", credentials, "." + ".".join(map(str, root)))
        lines = (line.partition(" = ") for line in done.stdout.splitlines() if " = " in line)
        return {tuple(map(int, oid.strip(".").split("."))): value for oid, _, value in lines if "No " not in value}

    def radio_pid(self):
        """The program that snmpd runs."""
        pids = subprocess.run(["ip", "netns", "pids", NAMESPACE], capture_output=True, text=True).stdout.split()
        for pid in pids:
            with suppress(OSError):
                if b"--pass-persist" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
        return None

    def collector(self, **credentials):
        """A collector that writes its events."""
        target = {"name": "ap-a", "host": HOST, **(credentials or {"community": SECRETS["community"]})}
        config = json.dumps({"targets": [target], "interval_s": 0.25, "timeout_s": 0.5, "max_backoff_s": 1})
        process = subprocess.Popen(
            self.inside(sys.executable, "-m", "hyroads.controller.measure.collector"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        process.stdin.write(config.encode())
        process.stdin.close()
        return process

    def collect(self, seconds, **credentials):
        """Events of a collector, the first one and those of some seconds after it."""
        process = self.collector(**credentials)
        first = process.stdout.readline()
        time.sleep(seconds)
        process.terminate()
        return [from_line(line) for line in [first, *process.stdout.read().splitlines()]]

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.terminate()
                process.wait(5)
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("snmp"))
    yield rig
    rig.close()


def printed(rig):
    """What the agent itself says that it serves."""
    command = [
        sys.executable,
        "-m",
        "hyroads.controller.cli",
        "ap-agent",
        "--config",
        str(rig.directory / "agent.json"),
    ]
    text = subprocess.run(rig.inside(*command, "--print"), capture_output=True, text=True, check=True).stdout
    return [tuple(map(int, line.split()[0].strip(".").split("."))) for line in text.splitlines()]


@pytest.mark.parametrize("credentials", [V2C, V3], ids=["v2c", "v3"])
def test_a_walk_gives_the_snapshot_in_order(rig, credentials):
    walked = rig.walk(*credentials)
    assert list(walked) == printed(rig)
    capacity = next(value for oid, value in walked.items() if oid[: len(NEIGHBOUR_ENTRY) + 1] == (*NEIGHBOUR_ENTRY, 3))
    assert capacity == "Gauge32: 20000"


def test_getnext_alone_gives_the_same_as_getbulk(rig):
    root = "." + ".".join(map(str, BASE))
    slow = [
        line.split(" = ")[0] for line in rig.snmp("snmpwalk", V2C, root).stdout.splitlines() if "No more" not in line
    ]
    assert slow == ["." + ".".join(map(str, oid)) for oid in rig.walk(*V2C)]


@pytest.mark.parametrize(
    "credentials",
    [
        ("-v2c", "-c", "public"),
        ("-v3", "-l", "noAuthNoPriv", "-u", "hyroads"),
        ("-v3", "-l", "authNoPriv", "-u", "hyroads", "-a", "SHA-256", "-A", SECRETS["auth_password"]),
        (*V3[:-1], "wrong-pass-123"),
    ],
    ids=["community", "no-auth", "no-priv", "password"],
)
def test_without_the_right_secret_nothing_is_seen(rig, credentials):
    assert rig.walk(*credentials) == {}


def test_nothing_else_is_shown_and_nothing_can_be_set(rig):
    assert rig.walk(*V3, root=(1, 3, 6, 1, 2, 1, 25)) == {}
    name = "." + ".".join(map(str, (*BASE, 1, 1, 1, 0)))
    done = rig.snmp("snmpset", V3, name, "s", "evil")
    assert done.returncode != 0
    assert rig.walk(*V3)[(*BASE, 1, 1, 1, 0)] == 'STRING: "a"'


def test_only_its_own_address_listens_and_files_are_private(rig):
    sockets = subprocess.run(rig.inside("ss", "-lnut", "-H"), capture_output=True, text=True, check=True).stdout
    assert [line.split()[4] for line in sockets.splitlines()] == [f"{HOST}:161"]
    assert (rig.directory / "ap" / "snmpd.conf").stat().st_mode & 0o777 == 0o600
    for process in rig.started:
        with suppress(OSError):
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
            assert not any(secret in line for secret in SECRETS.values())


@pytest.mark.parametrize("version", ["v2c", "v3"])
def test_the_collector_measures(rig, version):
    keys = ("auth_password", "priv_password")
    credentials = {} if version == "v2c" else {"user": "hyroads", **{key: SECRETS[key] for key in keys}}
    events = rig.collect(3.0, **credentials)
    samples = [event for event in events if isinstance(event, NodeSample)]
    assert len(samples) >= 5 and len(samples) == len(events)
    last = samples[-1]
    assert (last.target, last.node, last.flags) == ("ap-a", "a", ())
    (interface,) = last.interfaces
    assert (interface.name, interface.up, interface.flags) == ("a-wifi", True, ())
    assert 0 <= interface.busy_share <= 0.2
    (neighbour,) = interface.neighbours
    assert (neighbour.node, neighbour.tx_capacity_mbps, neighbour.rx_capacity_mbps) == ("b", 20, 10)


def test_changes_of_the_medium_are_seen(rig):
    from hyroads.mininet.control_sockets import MediumClient

    column = (*NEIGHBOUR_ENTRY, 3)
    with MediumClient(rig.socket) as medium:
        medium.set_link("ab", capacity_mbps=5)
        time.sleep(0.15)
        assert next(v for oid, v in rig.walk(*V2C).items() if oid[: len(column)] == column) == "Gauge32: 5000"
        medium.set_link("ab", capacity_mbps=20)


def test_a_medium_that_hangs_makes_values_stale_not_the_agent_slow(rig):
    os.kill(rig.medium.pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        events = rig.collect(3.0)
        assert time.monotonic() - began_s < 10
        samples = [event for event in events if isinstance(event, NodeSample)]
        # Either the old snapshot, said to be old, or one without the interface that cannot be read.
        assert samples
        assert all(sample.flags or not sample.interfaces for sample in samples[4:])
    finally:
        os.kill(rig.medium.pid, signal.SIGCONT)
    assert wait_for(lambda: any(oid[: len(NEIGHBOUR_ENTRY)] == NEIGHBOUR_ENTRY for oid in rig.walk(*V2C)), 5)


def test_a_killed_radio_program_is_started_again_and_seen_as_a_restart(rig):
    boot = rig.walk(*V2C)[(*BASE, 1, 1, 2, 0)]
    os.kill(rig.radio_pid(), signal.SIGKILL)
    assert wait_for(lambda: rig.walk(*V2C).get((*BASE, 1, 1, 2, 0), boot) != boot, 5)
    age = rig.walk(*V2C)[SNAPSHOT_AGE]
    assert int(age.split()[-1]) < 1000


def test_a_dead_access_point_is_silence_with_back_off_and_its_return_is_noticed(rig):
    rig.agent.terminate()
    rig.agent.wait(5)
    events = rig.collect(6.0)
    assert all(isinstance(event, Silence) for event in events)
    assert [event.failures for event in events] == list(range(1, len(events) + 1))
    assert [event.retry_s for event in events[:3]] == [0.25, 0.5, 1.0]
    assert rig.radio_pid() is None
    rig.agent = rig.start_agent()
    assert any(isinstance(event, NodeSample) for event in rig.collect(4.0))


def test_an_snmpd_that_is_killed_is_believed_again_each_time_by_a_collector_that_knew_it(rig):
    """More often than anything that is remembered of it could be forgotten by chance."""
    keys = ("auth_password", "priv_password")
    collector = rig.collector(user="hyroads", **{key: SECRETS[key] for key in keys})
    events, restarts_s, walks_s = [], [], []
    collecting = threading.Thread(target=lambda: events.extend(map(from_line, collector.stdout)))
    collecting.start()

    def answers(since_s):
        return [event.time_s for event in list(events) if isinstance(event, NodeSample) and event.time_s > since_s]

    assert wait_for(lambda: len(answers(0.0)) >= KNOWN, 10)
    for _ in range(5):
        rig.kill_agent()
        time.sleep(0.8)
        rig.agent = rig.start_agent()
        restarts_s.append(time.monotonic())
        assert rig.walk(*V2C)
        walks_s.append(time.monotonic() - restarts_s[-1])
        # Back-off (at most 1 s here) and one poll that starts over.
        assert wait_for(lambda: len(answers(restarts_s[-1])) >= KNOWN, 30)
    collector.terminate()
    collecting.join()
    assert any(isinstance(event, Silence) for event in events)
    # On a machine that is busy with other things a walk takes longer too.
    for restarted_s, walk_s in zip(restarts_s, walks_s, strict=True):
        assert answers(restarted_s)[0] - restarted_s < 4 + 20 * walk_s
