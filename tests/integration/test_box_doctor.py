"""``hyroads box doctor`` on faults that are really there: a real Open vSwitch, agents, modem and controller."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from controller_process import NETWORK, ControllerProcess, eventually, free_ports
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from ovs_rig import Rig, available, run

from hyroads.controller.cli.main import main
from hyroads.controller.kernel.generic_netlink import DATAPATH_FAMILY, family_id
from hyroads.mininet.chaos.faults import CLOCK_SOURCE
from hyroads.mininet.programs import find_program

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not available(), reason="needs root and Open vSwitch"),
]
HERE, BOX = "10.98.77.1", "10.98.77.2"
Finding = Mapping[str, str]
Plant = Callable[["Box"], Any]
# As iw 5.19 prints it. There are no 802.11 radios in a namespace, so its output is the one thing that is recorded.
RADIO = "Interface a-wifi\n\tifindex 5\n\twdev 0x1\n\taddr 02:00:01:01:00:01\n\ttype {mode}\n\twiphy 0\n"


class Box:
    """Node ``a`` with its agents, set up as on the page identities; ``inside`` runs a command on it."""

    def __init__(self, folder: Path, rig: Rig, controller: ControllerProcess) -> None:
        self.folder, self.rig, self.controller = folder, rig, controller
        self.etc = folder / "etc"
        self.bin = folder / "bin"
        self.modem: subprocess.Popen[bytes] | None = None
        self.edge: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None

    def set_up(self) -> None:
        """Ports, bridge, files and programs."""
        for folder in (self.etc, self.bin):
            folder.mkdir()
        self.radio("mesh point")
        iw = self.bin / "iw"
        iw.write_text(f"#!/bin/sh\nexec cat {self.folder}/iw.txt\n")
        iw.chmod(0o755)
        for name in ("agent.token", "radio.token", "node.pem", "node.key", "ca.pem"):
            shutil.copy(self.folder / "identities" / "a" / name, self.etc / name)
            (self.etc / name).chmod(0o600)
        self.write_settings()
        self.write_config("a-plc")
        for name, peer in (("a-plc", "line"), ("out", "far"), ("a-wifi", "air"), ("a-host", "lan")):
            self.rig.inside("ip", "link", "add", name, "type", "veth", "peer", "name", peer)
            for each in (name, peer):
                self.rig.inside("ip", "link", "set", each, "up")
        self.rig.inside("ip", "link", "set", "out", "mtu", "1600")
        self.start_modem()
        self.start_edge()
        self.start_agent()
        tls = [str(self.etc / name) for name in ("node.key", "node.pem", "ca.pem")]
        self.rig.vsctl("set-ssl", *tls)
        self.rig.bridge("br0", 1, controlled=False)
        self.connect_switch(self.controller.openflow)
        for number, port in enumerate(("a-plc", "a-wifi", "a-host", "a-acc", "a-net"), 1):
            self.rig.port("br0", port, number)

    def connect_switch(self, port: int) -> None:
        self.rig.vsctl(
            "set-controller", "br0", f"ssl:{HERE}:{port}", "--", "set", "controller", "br0", "max_backoff=1000"
        )

    def write_settings(self, name: str = "hyroads-ap", **changed: str) -> Path:
        """The agents' settings."""
        files = {"ca": "ca.pem", "cert": "node.pem", "key": "node.key", "token": "agent.token", **changed}
        paths = {key: str(self.etc / value) for key, value in files.items()}
        tls = f"--ca {paths['ca']} --cert {paths['cert']} --key {paths['key']}"
        controller = changed.get("controller", f"{HERE}:{self.controller.agents}")
        file = self.etc / name
        file.write_text(
            f'CONTROLLER={controller}\nTOKEN_FILE={paths["token"]}\nEDGE_OPTIONS="{tls}"\n'
            f'AP_OPTIONS="--token-file {self.etc}/radio.token {tls}"\n'
        )
        return file

    def write_config(self, plc: str, name: str = "ap.json") -> Path:
        """The radios' file."""
        interfaces = [
            {"name": plc, "technology": "plc", "backend": "plc"},
            {"name": "a-wifi", "technology": "wifi", "backend": "linux-wifi"},
        ]
        file = self.etc / name
        file.write_text(json.dumps({"node": "a", "interfaces": interfaces}))
        file.chmod(0o600)
        return file

    def radio(self, mode: str) -> None:
        (self.folder / "iw.txt").write_text(RADIO.format(mode=mode))

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        environment = {**self.rig.env, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        with (self.folder / f"{name}.log").open("ab") as log:
            command = ["ip", "netns", "exec", self.rig.namespace, *words]
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def start_modem(self) -> None:
        config = self.folder / "modem.json"
        config.write_text(json.dumps({"mac": "00:0b:3b:aa:00:01", "tei": 1, "stations": []}))
        self.modem = self.start(
            "modem", find_program("hyroads-modem"), "--config", str(config), "--inside", "line", "--outside", "out"
        )

    def start_edge(self) -> None:
        tls = [
            f"--{option}={self.etc / name}"
            for option, name in (("ca", "ca.pem"), ("cert", "node.pem"), ("key", "node.key"))
        ]
        words = [word for each in tls for word in each.split("=")]
        words += ["--controller", f"{HERE}:{self.controller.agents}", "--token-file", str(self.etc / "agent.token")]
        words += ["--access", "tap:a-acc", "--network", "tap:a-net"]
        self.edge = self.start("edge", find_program("hyroads-edge"), "--node", "a", *words)
        eventually(lambda: "a-net" in self.rig.inside("ls", "/sys/class/net"))

    def start_agent(self) -> None:
        tls = ["--ca", "ca.pem", "--cert", "node.pem", "--key", "node.key"]
        words = [str(self.etc / word) if "." in word else word for word in tls]
        words += ["--config", str(self.etc / "ap.json"), "--token-file", str(self.etc / "radio.token")]
        channel = f"{HERE}:{self.controller.agents}"
        program = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--channel", channel]
        self.agent = self.start("agent", *program, *words)

    def stop(self) -> None:
        for process in (self.modem, self.edge, self.agent):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(10)

    def doctor(
        self, settings: Path | None = None, config: Path | None = None, **environment: str
    ) -> tuple[int, list[Finding]]:
        """Exit status and findings."""
        words = [sys.executable, "-m", "hyroads.controller.cli", "box", "doctor", "--json"]
        words += [
            "--settings",
            str(settings or self.etc / "hyroads-ap"),
            "--config",
            str(config or self.etc / "ap.json"),
        ]
        env = {**self.rig.env, "PATH": f"{self.bin}:{os.environ['PATH']}", **environment}
        command = ["ip", "netns", "exec", self.rig.namespace, *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, json.loads(done.stdout)["findings"]

    def is_good(self) -> bool:
        return self.doctor()[0] == 0


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("doctor")
    identities = folder / "identities"
    for words in (["authority"], ["server", HERE], ["node", "--all", "--network", str(NETWORK)]):
        assert main(["identity", *words, "--folder", str(identities)]) == 0
    tls = {"key": f"{identities}/{HERE}.key", "certificate": f"{identities}/{HERE}.pem", "ca": f"{identities}/ca.pem"}
    settings = {"identities": f"{identities}/identities.json", "tls": tls, "agents_tls": tls}
    controller = ControllerProcess(folder, settings)
    document = json.loads(controller.settings.read_text())
    for name in ("openflow", "agents"):
        document["listen"][name]["host"] = HERE
    controller.settings.write_text(json.dumps(document))
    with ExitStack() as stack:
        rig = stack.enter_context(Rig())
        run("ip", "link", "add", "hr-doctor", "type", "veth", "peer", "name", "eth0", "netns", rig.namespace)
        for words in ("address add 10.98.77.1/24 dev hr-doctor", "link set hr-doctor up"):
            run("ip", *words.split())
        for words in ("address add 10.98.77.2/24 dev eth0", "link set eth0 up"):
            run("ip", "-n", rig.namespace, *words.split())
        stack.enter_context(controller)
        made = Box(folder, rig, controller)
        stack.callback(made.stop)
        made.set_up()
        eventually(made.is_good, 30.0)
        yield made


def test_a_good_box_has_no_fault(box: Box) -> None:
    status, findings = box.doctor()
    assert status == 0 and [each["check"] for each in findings] == ["datapath"] and findings[0]["level"] == "note"


@contextmanager
def during(begin: Callable[[], object], end: Callable[[], object]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        end()


def link(box: Box, name: str, *words: str) -> str:
    return box.rig.inside("ip", "link", "set", name, *words)


def made_certificate(box: Box, name: str, node: str, ends: datetime.datetime) -> str:
    """A certificate that the network's authority signs for the key of the box."""
    authority = serialization.load_pem_private_key((box.folder / "identities/ca.key").read_bytes(), None)
    issuer = x509.load_pem_x509_certificate((box.folder / "identities/ca.pem").read_bytes()).subject
    key = serialization.load_pem_private_key((box.etc / "node.key").read_bytes(), None)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, node)])
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=9)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), begins, ends)
    role = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("hyroads:role:node")])
    builder = builder.add_extension(role, critical=False)
    signed = builder.sign(authority, hashes.SHA256())  # type: ignore[arg-type]
    (box.etc / name).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return name


def days(count: int) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=count)


def written(box: Box, name: str, text: str) -> str:
    (box.etc / name).write_text(text)
    (box.etc / name).chmod(0o600)
    return name


def in_1970(box: Box) -> tuple[int, list[Finding]]:
    library, offset = box.folder / "clock.so", box.folder / "offset"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, CLOCK_SOURCE, "-ldl"], check=True)
    offset.write_bytes(struct.pack("=q", 60 - int(time.time())))
    return box.doctor(LD_PRELOAD=str(library), HYROADS_CHAOS_CLOCK=str(offset))


def on_a_full_disk(box: Box, *, read_only: bool) -> tuple[int, list[Finding]]:
    """The settings are on a small file system of their own."""
    disk = box.folder / "disk"
    disk.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "size=64k" if not read_only else "size=8m", "hr-doctor", str(disk))
    try:
        settings = Path(shutil.copy(box.etc / "hyroads-ap", disk))
        config = Path(shutil.copy(box.etc / "ap.json", disk))
        if read_only:
            run("mount", "-o", "remount,ro", str(disk))
        return box.doctor(settings, config)
    finally:
        run("umount", str(disk))


def silent_modem(box: Box) -> tuple[int, list[Finding]]:
    assert box.modem is not None
    box.modem.terminate()
    box.modem.wait(10)
    try:
        return box.doctor()
    finally:
        box.start_modem()


def closed_port(box: Box) -> tuple[int, list[Finding]]:
    return box.doctor(box.write_settings("other", controller=f"{HERE}:{free_ports(1)[0]}"))


def while_set(box: Box, begin: Callable[[], object], end: Callable[[], object]) -> tuple[int, list[Finding]]:
    with during(begin, end):
        return box.doctor()


def settings_with(**changed: str) -> Plant:
    return lambda box: box.doctor(box.write_settings("other", **changed))


def other_plc(name: str) -> Plant:
    return lambda box: box.doctor(config=box.write_config(name, "other.json"))


FAULTS: dict[str, tuple[str, str, Plant]] = {
    "MTU": (
        "mtu", "a-plc", lambda box: while_set(
            box, lambda: link(box, "a-plc", "mtu", "1200"), lambda: link(box, "a-plc", "mtu", "1500")),
    ),
    "MTU of a power line": (
        "mtu", "a-plc", lambda box: while_set(
            box, lambda: link(box, "a-plc", "mtu", "1600"), lambda: link(box, "a-plc", "mtu", "1500")),
    ),
    "radio": ("radio", "a-wifi", lambda box: while_set(box, lambda: box.radio("managed"), lambda: box.radio("IBSS"))),
    "adapter": ("plc", "a-plc", silent_modem),
    "0x88e1 through the bridge": ("0x88e1", "br0", other_plc("br0")),
    "clock": ("clock", "this box", in_1970),
    "no token": ("token", "none.token", settings_with(token="none.token")),
    "wrong token": (
        "token", HERE, lambda box: box.doctor(box.write_settings("other", token=written(box, "wrong.token", "x" * 32))),
    ),
    "expired certificate": (
        "certificate", "old.pem",
        lambda box: box.doctor(box.write_settings("other", cert=made_certificate(box, "old.pem", "a", days(-1)))),
    ),
    "wrong name": (
        "certificate", "b.pem",
        lambda box: box.doctor(box.write_settings("other", cert=made_certificate(box, "b.pem", "b", days(99)))),
    ),
    "name": ("name", "no-such-controller", settings_with(controller="no-such-controller.invalid:6654")),
    "full disk": ("disk", "disk", lambda box: on_a_full_disk(box, read_only=False)),
    "read-only disk": ("disk", "disk", lambda box: on_a_full_disk(box, read_only=True)),
    "GRO": (
        "offloads", "a-host", lambda box: while_set(
            box, lambda: box.rig.inside("ethtool", "-K", "a-host", "gro", "on"),
            lambda: box.rig.inside("ethtool", "-K", "a-host", "gro", "off")),
    ),
    "controller": ("controller", HERE, closed_port),
    "vlan-limit": (
        "vlan-limit", "Open vSwitch", lambda box: while_set(
            box, lambda: box.rig.vsctl("remove", "Open_vSwitch", ".", "other_config", "vlan-limit"),
            lambda: box.rig.vsctl("set", "Open_vSwitch", ".", "other_config:vlan-limit=0")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_one_line_that_names_it(box: Box, fault: str) -> None:
    check, place, plant = FAULTS[fault]
    status, findings = plant(box)
    (found,) = [each for each in findings if each["level"] == "fault"]
    assert status == 1 and found["check"] == check and place in found["place"], found


def test_an_agent_that_stopped_is_one_fault(box: Box) -> None:
    assert box.edge is not None
    box.edge.terminate()
    box.edge.wait(10)
    # A program of the same name in another network namespace, as of a container, does not count.
    words = ["hyroads-edge", "-c", "import sys; sys.stdin.read()", "--node", "a"]
    with subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE):
        findings = box.doctor()[1]
    box.start_edge()
    assert [each["place"] for each in findings if each["level"] == "fault"] == ["hyroads-edge@a"]
    eventually(box.is_good, 20.0)


def test_eleven_faults_at_once_have_eleven_lines(box: Box) -> None:
    """All that can be there together, in the order in which they are shown."""
    assert box.modem is not None and box.edge is not None
    disk = box.folder / "full"
    disk.mkdir()
    for process in (box.modem, box.edge):
        process.terminate()
        process.wait(10)
    with ExitStack() as stack:
        stack.callback(box.start_modem)
        stack.callback(box.start_edge)
        run("mount", "-t", "tmpfs", "-o", "size=64k", "hr-doctor", str(disk))
        stack.callback(run, "umount", str(disk))
        link(box, "a-plc", "mtu", "1200")
        stack.callback(link, box, "a-plc", "mtu", "1500")
        box.radio("managed")
        stack.callback(box.radio, "mesh point")
        box.rig.inside("ethtool", "-K", "a-host", "gro", "on")
        stack.callback(box.rig.inside, "ethtool", "-K", "a-host", "gro", "off")
        box.rig.vsctl("remove", "Open_vSwitch", ".", "other_config", "vlan-limit")
        stack.callback(box.rig.vsctl, "set", "Open_vSwitch", ".", "other_config:vlan-limit=0")
        certificate = made_certificate(box, "old.pem", "a", days(-1))
        controllers = f"no-such-controller.invalid:6654,{HERE}:{free_ports(1)[0]}"
        settings = box.write_settings("other", controller=controllers, token="none.token", cert=certificate)
        findings = box.doctor(Path(shutil.copy(settings, disk)))[1]
    assert [(each["check"], each["place"].rpartition("/")[2].partition(":")[0]) for each in findings][:-1] == [
        ("disk", "full"),
        ("service", "hyroads-edge@a"),
        ("vlan-limit", "Open vSwitch"),
        ("mtu", "a-plc"),
        ("offloads", "a-host"),
        ("radio", "a-wifi"),
        ("plc", "a-plc"),
        ("token", "none.token"),
        ("certificate", "old.pem"),
        ("name", "no-such-controller.invalid"),
        ("controller", HERE),
    ]
    eventually(box.is_good, 20.0)


@pytest.mark.skipif(family_id(DATAPATH_FAMILY) is not None, reason="this kernel has a datapath of Open vSwitch")
def test_a_bridge_without_a_datapath_is_one_fault(box: Box) -> None:
    with during(
        lambda: box.rig.vsctl("--no-wait", "set", "bridge", "br0", "datapath_type=system"),
        lambda: box.rig.vsctl("set", "bridge", "br0", "datapath_type=netdev"),
    ):
        eventually(lambda: "datapath" in [each["check"] for each in box.doctor()[1] if each["level"] == "fault"], 20.0)
        findings = box.doctor()[1]
    assert [(each["check"], each["place"]) for each in findings if each["level"] == "fault"] == [
        ("datapath", "bridge br0")
    ]
