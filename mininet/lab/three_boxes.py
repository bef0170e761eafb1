"""The lab ``three-boxes``: a controller, a gateway, two access points and two computers, set up as the tutorial says.

All commands typed here are on docs/tutorials/three-boxes.md and on the pages to which it refers for the controller:
install-debian, access-point-debian and backhaul of docs/how-to. Without radios one thing differs: the network file
lists the links, with the capacity of the radio channel, because no radio could report it.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hyroads.controller.core.frame_sizes import NEEDED_MTU
from hyroads.mininet.programs import EmulationError, wait_until

from . import backhaul, box_state
from .box import Box
from .medium import Air, RadioChannel, Station
from .power_line import PowerLine
from .run import Lab, LabPlan
from .verdict import datagrams, tcp_mbps
from .wires import BoxPlan, Factory, Segment

NAME = "three-boxes"
CONTROLLER, GATEWAY, UPSTAIRS, ATTIC = "controller", "gateway", "upstairs", "attic"
SERVER, LAPTOP = "server", "laptop"
NODES = (GATEWAY, UPSTAIRS, ATTIC)
MEDIA_PORTS = {"plc": "eth1", "wifi": "wlan0"}
"""Technology -> the port of each of the three boxes for it."""
FLOW = "web"
WIFI, _WIFI_MBPS, _WIFI_MTU = "wifi", 20.0, 2304
"""The radio channel: what it carries, and its longest payload."""
_AIR_MBPS = 30.2
"""What emulated radios carry at 54 Mb/s, as their driver estimates it: frames are sent one by one."""
_SEGMENTS = (
    Segment("lan"),
    *(Segment(f"at-{node}") for node in NODES),
    *(Segment(f"plc-{node}") for node in NODES),
    *(Segment(f"wifi-{node}", _WIFI_MTU) for node in NODES),
)
PLC, _PHY_MBPS = "plc", 17
"""The power line, and the PHY rate between its adapters: about 10 Mb/s for frames."""
_LAN = {CONTROLLER: "192.0.2.1", GATEWAY: "192.0.2.11", UPSTAIRS: "192.0.2.12", ATTIC: "192.0.2.13"}
HOSTS = {SERVER: (GATEWAY, "10.0.9.1"), LAPTOP: (ATTIC, "10.0.9.3")}
"""Computer -> the node at whose access port it is, and its address."""
URL = f"https://{_LAN[CONTROLLER]}:8080"
AUTHORITY = "/etc/hyroads/authority"
INSTALL_CONTROLLER = "apt install -y ./hyroads_*.deb"
OPS_TOKEN, SETTINGS = "/root/ops.token", "/etc/hyroads/hyroads.yaml"
PREPARE_CONTROLLER = (
    f"install -d -m 0700 -o hyroads {AUTHORITY}",
    f"hyroads identity authority --folder {AUTHORITY}",
    f"hyroads identity server {_LAN[CONTROLLER]} --folder {AUTHORITY}",
    f"chown hyroads: {AUTHORITY}/*",
    f"openssl rand -hex 24 | install -m 0600 /dev/stdin {OPS_TOKEN}",
    f"cat {OPS_TOKEN}",
    f"chown hyroads: {SETTINGS} && chmod 0600 {SETTINGS}",
)
START_CONTROLLER = (
    "hyroads controller --check",
    "systemctl enable hyroads-controller",
    "systemctl restart hyroads-controller",
)
REACH_CONTROLLER = {"HYROADS_URL": URL, "HYROADS_CA": f"{AUTHORITY}/ca.pem", "HYROADS_TOKEN_FILE": OPS_TOKEN}
"""The exports in the shell of the controller's user."""
SHOW_PIN = "hyroads box pin"
INSTALL_BOX = "apt install -y ./hyroads-box_*.deb ./hyroads-edge_*.deb ./hyroads-ap_*.deb openvswitch-switch iw"
JOIN = f"hyroads box join {URL} --pin"
ADOPT = "hyroads box adopt {box} --as {node}"
_PENDING = re.compile(r"^pending: box (\S+), key ", re.MULTILINE)
LEAVE = "hyroads box leave"
PURGE = "apt purge -y hyroads-box hyroads-edge hyroads-ap"
_STATE_PROGRAM = "/run/box_state.py"
_INSTALL_WITHIN_S = 300.0
_JOIN_WITHIN_S = 90.0
_FILL_S = 1.0
_OVERLOAD = 3.0
"""UDP is offered to a bare segment at this multiple of what TCP carried."""
_DATAGRAM_BYTES, _PAYLOAD_BYTES = 1472, 1500
"""UDP payload of a full frame, and what of it counts as capacity: payload of Ethernet."""
_NETWORK = "[Match]\nName={port}\n[Network]\n{address}LinkLocalAddressing=no\n"


def plan(*, radios: bool = False) -> LabPlan:
    """The boxes with their ports, the segments, and what Debian's installer was given.

    With ``radios`` the three boxes have emulated 802.11 radios in the place of Ethernet ports at a radio channel.
    """
    factory = Factory()
    ports = {CONTROLLER: [("eth0", "lan")], **{node: _node_ports(node) for node in NODES}}
    ports |= {host: [("eth0", f"at-{node}")] for host, (node, _) in HOSTS.items()}
    boxes = [_box(factory, name, wired, radios) for name, wired in ports.items()]
    outlets = tuple(Station(f"plc-{node}", factory.port("plc", f"plc-{node}").mac) for node in NODES)
    installed = {box.name: {**_installed(box.name), **(backhaul.UNIT if box.radios else {})} for box in boxes}
    stations = tuple(
        Station(port.segment, port.mac) for box in boxes for port in box.ports if port.name == MEDIA_PORTS[WIFI]
    )
    air = Air(WIFI, _AIR_MBPS, _WIFI_MTU, tuple(radio for box in boxes for radio in box.radios))
    channel = air if radios else RadioChannel(WIFI, _WIFI_MBPS, _WIFI_MTU, stations)
    return LabPlan(boxes, _SEGMENTS, installed, [PowerLine(PLC, _PHY_MBPS, outlets)], [channel])


def _box(factory: Factory, name: str, wired: Sequence[tuple[str, str]], radios: bool) -> BoxPlan:
    """A box; with ``radios`` its port for WiFi is a radio."""
    on_air = [port for port, _ in wired if radios and port == MEDIA_PORTS[WIFI]]
    ports = tuple(factory.port(*port) for port in wired if port[0] not in on_air)
    return BoxPlan(name, ports, tuple(factory.radio(port) for port in on_air))


def _node_ports(node: str) -> list[tuple[str, str]]:
    return [("eth0", "lan"), ("eth1", f"plc-{node}"), ("wlan0", f"wifi-{node}"), ("eth2", f"at-{node}")]


def _installed(box: str) -> dict[str, str]:
    address = f"{_LAN[box]}/24" if box in _LAN else f"{HOSTS[box][1]}/16"
    known = _LAN if box in _LAN else {host: ip for host, (_, ip) in HOSTS.items()}
    hosts = "".join(f"{ip} {name}\n" for name, ip in known.items())
    return {
        "etc/hosts": f"127.0.0.1 localhost\n{hosts}",
        "etc/systemd/network/eth0.network": _NETWORK.format(port="eth0", address=f"Address={address}\n"),
    }


def iperf_server(box: Box) -> None:
    """Start iperf3's server in a box, and wait until it listens."""
    box.run("systemctl", "stop", "iperf3-lab")
    box.run("systemctl", "reset-failed", "iperf3-lab")
    box.type("systemd-run --quiet --unit=iperf3-lab iperf3 -s")
    wait_until("iperf3", lambda: ":5201" in box.run("ss", "-ltnH").stdout, 10.0, interval_s=0.1)


def iperf(box: Box, target: str, seconds: float, *words: str) -> Mapping[str, Any]:
    """The report of an iperf3 client in a box."""
    command = ["iperf3", "-J", "-c", target, "-t", f"{seconds:g}", "--connect-timeout", "3000", *words]
    try:
        found: dict[str, Any] = json.loads(box.run(*command, within_s=seconds + 20.0).stdout)
    except ValueError as error:
        raise EmulationError(f"{box.name}: iperf3 printed no report") from error
    return found


def udp_mbps(source: Box, receiver: Box, target: str, seconds: float, offered_mbps: float) -> float:
    """Mb/s of UDP payload that arrive at ``receiver``, in datagrams that fill a frame of 1500 bytes.

    They are counted where they arrive, after a second in which queues fill: iperf3's own report comes by TCP, which may
    not pass.
    """
    words = ("iperf3", "-u", "-c", target, "-b", f"{offered_mbps:.2f}M", "-l", str(_DATAGRAM_BYTES))
    whole_s = seconds + 2 * _FILL_S
    client = subprocess.Popen(
        source.command("timeout", f"{whole_s + 3.0:g}", *words, "-t", f"{whole_s:g}"),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(_FILL_S)
        before, began_s = datagrams(receiver.read("/proc/net/snmp")), time.monotonic()
        time.sleep(seconds)
        after, ended_s = datagrams(receiver.read("/proc/net/snmp")), time.monotonic()
    finally:
        client.wait()
    return (after - before) * _DATAGRAM_BYTES * 8 / (ended_s - began_s) / 1e6


@dataclass(frozen=True)
class Bare:
    """What a segment carries between two boxes without HyRoads, Mb/s: TCP, and payload of UDP."""

    tcp_mbps: float
    udp_mbps: float

    @property
    def capacity_mbps(self) -> float:
        """Mb/s of Ethernet payload, as the network file has it."""
        return round(self.udp_mbps * _PAYLOAD_BYTES / _DATAGRAM_BYTES, 2)


def network_document(capacities_mbps: Mapping[str, float] | None, macs: Mapping[str, str]) -> dict[str, Any]:
    """The network file of the tutorial; ``macs``: node -> address of the computer at its access port.

    With capacities by technology it lists the links; the boxes measure a technology that is not named.
    """
    roles = {node: "gateway" if node == GATEWAY else "ap" for node in NODES}
    nodes = {
        node: {"role": role, "ports": MEDIA_PORTS, **({"mac": macs[node]} if node in macs else {})}
        for node, role in roles.items()
    }
    known = {"name": "home", "nodes": nodes, "interference": {"rule": "technology"},
             "flows": [{"id": FLOW, "from": GATEWAY, "to": ATTIC}]}  # fmt: skip
    if capacities_mbps is None:
        for node in nodes.values():
            node["technologies"] = list(MEDIA_PORTS)
        return {**known, "links": "discover"}
    pairs = [(GATEWAY, UPSTAIRS), (GATEWAY, ATTIC), (UPSTAIRS, ATTIC)]
    links = [
        {"id": f"{source}-{target}-{technology}", "from": source, "to": target, "technology": technology, "both": True,
         **({"capacity_mbps": capacities_mbps[technology]} if technology in capacities_mbps else {})}
        for technology in MEDIA_PORTS for source, target in pairs
    ]  # fmt: skip
    return {**known, "links": links}


def controller_settings(token: str) -> dict[str, Any]:
    """What the page access-point-debian adds to the settings that the package brings; ``token`` is the operator's."""
    address = _LAN[CONTROLLER]
    own = {"key": f"authority/{address}.key", "certificate": f"authority/{address}.pem"}
    return {
        "boxes": {"authority": "authority"},
        "tls": {**own, "ca": "authority/ca.pem"},
        "agents_tls": {**own, "ca": "authority/ca.pem"},
        "rest_tls": own,
        "api_tokens": {"ops": {"token": token}},
        "listen": {
            name: {"host": address, "port": port}
            for name, port in (("openflow", 6653), ("agents", 6654), ("rest", 8080))
        },
    }


class Setup:
    """The user: types in the boxes of the lab what the pages say."""

    def __init__(self, lab: Lab, *, radios: bool = False) -> None:
        self.lab, self.radios = lab, radios
        self.box = lab.boxes
        self.bare: dict[str, Bare] = {}
        """Technology -> what its segment carried before HyRoads came."""
        self.installed_s: float | None = None
        """Seconds from the first package to the multipath in force; None until then."""
        self.typed: dict[str, tuple[str, ...]] = {}
        """The commands typed in each box until then."""
        self.before: dict[str, dict[str, str]] = {}
        """What there was on each of the three boxes before HyRoads came."""
        self.adopting: tuple[str, ...] = ()
        """What of that was typed at the controller while boxes were set up."""
        self._failure = ""

    def run(self) -> None:
        """From unpacked boxes to a multipath in force; EmulationError at the first command that fails."""
        if self.radios:
            backhaul.make_mesh([self.box[node] for node in NODES], self._say)
        self._measure_segments()
        if not self.radios:
            self.before = {node: self.state_of(node) for node in NODES}
        before = {name: len(box.typed) for name, box in self.box.items()}
        began_s = time.monotonic()
        pin = self._controller()
        prepared = len(self.box[CONTROLLER].typed)
        for node in NODES:
            self._node(self.box[node], pin)
        if self.radios:
            self._check_datapaths()
        self.adopting = tuple(self.box[CONTROLLER].typed[prepared:])
        self._say("waiting for the multipath")
        wait_until("health of the controller", lambda: not self.complaint(), _JOIN_WITHIN_S, interval_s=0.5)
        wait_until(f"multipath of flow {FLOW}", self.in_force, _JOIN_WITHIN_S, interval_s=0.2)
        self.installed_s = time.monotonic() - began_s
        self.typed = {name: tuple(box.typed[before[name] :]) for name, box in self.box.items()}

    def attempt(self) -> None:
        """As ``run``; an error is shown, and the rows of the verdict that need what is lacking say so."""
        try:
            self.run()
        except EmulationError as error:
            self._failure = str(error)
            self._say(self._failure)

    @property
    def failure(self) -> str:
        """Why the boxes are not set up."""
        return self._failure or "the boxes are not set up"

    def declare(self) -> None:
        """Declare the flow between the two computers; it is in force when this returns."""
        self.box[CONTROLLER].type(f"hyroads flows add {FLOW} {GATEWAY} {ATTIC}")

    def remove(self) -> None:
        """Remove the flow: its packets take the single path."""
        self.box[CONTROLLER].type(f"hyroads flows remove {FLOW}")

    def resize(self, mtus: Mapping[tuple[str, str], int]) -> None:
        """Set the MTU of ports of boxes (node, port); those that are not named have 1500.

        The flow is in force with these sizes when this returns.
        """
        wanted = {(node, port): mtus.get((node, port), 1500) for node in NODES for port in MEDIA_PORTS.values()}
        for (node, port), mtu in wanted.items():
            self.box[node].type(f"ip link set {port} mtu {mtu}")
        small = {place: mtu for place, mtu in wanted.items() if mtu < NEEDED_MTU}

        def known() -> bool:
            found = self._health().get("small_ports", ())
            return {(port["node"], port["port"]): port["mtu_bytes"] for port in found} == small

        wait_until("sizes of ports", lambda: known() and self.in_force(), _JOIN_WITHIN_S, interval_s=0.2)

    def state_of(self, node: str) -> dict[str, str]:
        """What there is on a box now."""
        box = self.box[node]
        box.write(_STATE_PROGRAM, Path(box_state.__file__).read_text(encoding="utf-8"))
        done = box.run("python3", _STATE_PROGRAM)
        box.run("rm", _STATE_PROGRAM)
        if done.returncode:
            raise EmulationError(f"{node}: {(done.stderr.strip() or 'no state').splitlines()[-1]}")
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def complaint(self) -> str:
        """What the controller's health says is wrong; empty if nothing is."""
        document = self._health()
        return "" if document.get("ok") else str(document.get("error") or json.dumps(document))

    def _health(self) -> dict[str, Any]:
        """The controller's health, or ``error``: why there is none."""
        done = self.box[CONTROLLER].run("hyroads", "topology", "--json", "health")
        try:
            found: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            return {"error": (done.stderr.strip() or "no answer").splitlines()[-1]}
        return found

    def in_force(self) -> bool:
        """Whether the flow has two paths or more, and nothing is wrong."""
        done = self.box[CONTROLLER].run("hyroads", "flows", "--json", "show", FLOW)
        try:
            flow = json.loads(done.stdout)
        except ValueError:
            return False
        return len(flow.get("multipath") or ()) > 1 and flow.get("state") == "multipath" and not self.complaint()

    def _say(self, words: str) -> None:
        self.lab.say(words)

    def _measure_segments(self) -> None:
        """Addresses for as long as it takes, then iperf3 from the gateway to the attic."""
        for number, (technology, port) in enumerate(MEDIA_PORTS.items()):
            addresses = {node: f"198.18.{number}.{last}" for last, node in ((1, GATEWAY), (3, ATTIC))}
            switch = f"ip link set {port}"
            self._say(f"measuring the bare {technology} segment with iperf3")
            for node, address in addresses.items():
                self.box[node].type(f"ip address add {address}/24 dev {port} && {switch} up")
            iperf_server(self.box[ATTIC])
            source, target = self.box[GATEWAY], addresses[ATTIC]
            tcp = tcp_mbps(iperf(source, target, 4.0))
            udp = udp_mbps(source, self.box[ATTIC], target, 3.0, _OVERLOAD * tcp)
            self.bare[technology] = Bare(tcp, udp)
            self._say(f"{technology}: TCP {tcp:.2f} Mb/s, UDP {udp:.2f} Mb/s")
            for node in addresses:
                # A radio stays in its mesh.
                off = "" if self.radios and technology == WIFI else f" && {switch} down"
                self.box[node].type(f"ip address flush dev {port}{off}")
        for verb in ("stop", "reset-failed"):
            self.box[ATTIC].run("systemctl", verb, "iperf3-lab")

    def _controller(self) -> str:
        """The controller runs and adopts boxes; the fingerprint by which boxes know it."""
        box = self.box[CONTROLLER]
        self._say("installing the controller")
        box.type(INSTALL_CONTROLLER, _INSTALL_WITHIN_S)
        for line in PREPARE_CONTROLLER:
            box.type(line)
        added = controller_settings(box.read(OPS_TOKEN).strip())
        box.write(SETTINGS, box.read(SETTINGS) + yaml.safe_dump(added, sort_keys=False), "0600", "hyroads")
        macs = {node: self._factory_address(host) for host, (node, _) in HOSTS.items()}
        # Adapters and radios report theirs; nothing reports that of Ethernet in the place of WiFi.
        capacities = None if self.radios else {WIFI: self.bare[WIFI].capacity_mbps}
        box.write("/etc/hyroads/network.yaml", yaml.safe_dump(network_document(capacities, macs), sort_keys=False))
        for line in START_CONTROLLER:
            box.type(line, _JOIN_WITHIN_S)
        box.export(REACH_CONTROLLER)
        return box.type(SHOW_PIN).split()[-1]

    def _check_datapaths(self) -> None:
        for node in NODES:
            shown = self.box[node].run("ovs-appctl", "dpif/show").stdout
            if not shown.startswith("system@"):
                raise EmulationError(f"{node}: Open vSwitch forwards in user space, not in the kernel")

    def _factory_address(self, host: str) -> str:
        """The address of a computer's port, as the computer shows it."""
        (port,) = json.loads(self.box[host].run("ip", "-json", "link", "show", "eth0").stdout)
        return str(port["address"])

    def _node(self, box: Box, pin: str) -> None:
        """Two commands on the box, one at the controller."""
        self._say(f"setting {box.name} up")
        box.type(INSTALL_BOX, _INSTALL_WITHIN_S)
        join = box.begin(f"{JOIN} {pin}")
        name = join.said(_PENDING, _JOIN_WITHIN_S)[1]
        self.box[CONTROLLER].type(ADOPT.format(box=name, node=box.name), 2 * _JOIN_WITHIN_S)
        join.finish(_JOIN_WITHIN_S)
