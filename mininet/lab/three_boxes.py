"""The lab ``three-boxes``: a controller, a gateway, two access points and two computers, set up as the how-to says.

Everything that is typed here is on the pages install-debian and identities of docs/how-to and access-point-by-hand of
docs/reference, with these additions, which those pages leave to the user: addresses of the machines, capacities
(measured with iperf3 before HyRoads comes), the name of the access port, and the datapath in user space where the
kernel has no Open vSwitch.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hyroads.controller.core.frame_sizes import NEEDED_MTU
from hyroads.mininet.programs import EmulationError, wait_until

from .box import MEDIA, Box
from .medium import RadioChannel, Station
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
_SEGMENTS = (
    Segment("lan"),
    *(Segment(f"at-{node}") for node in NODES),
    *(Segment(f"plc-{node}") for node in NODES),
    *(Segment(f"wifi-{node}", _WIFI_MTU) for node in NODES),
)
PLC, _PHY_MBPS = "plc", 17
"""The power line, and the PHY rate between its adapters: about 10 Mb/s for frames."""
_LAN = {CONTROLLER: "192.0.2.1", GATEWAY: "192.0.2.11", UPSTAIRS: "192.0.2.12", ATTIC: "192.0.2.13"}
HOSTS = {SERVER: (GATEWAY, "10.0.0.1"), LAPTOP: (ATTIC, "10.0.0.3")}
"""Computer -> the node at whose access port it is, and its address."""
_IDENTITIES = "/root/identities"
_INSTALL_WITHIN_S = 300.0
_JOIN_WITHIN_S = 90.0
_FILL_S = 1.0
_DATAGRAM_BYTES, _PAYLOAD_BYTES = 1472, 1500
"""UDP payload of a full frame, and what of it counts as capacity: payload of Ethernet."""
_NETWORK = "[Match]\nName={port}\n[Network]\n{address}LinkLocalAddressing=no\n"
_HOST_PORT = """[Unit]
Description=Name of the access port
DefaultDependencies=no
Before=network-pre.target openvswitch-switch.service ovs-vswitchd.service
Wants=network-pre.target
[Service]
Type=oneshot
ExecStart=/usr/sbin/ip link set eth2 name {node}-host
[Install]
WantedBy=sysinit.target
"""


def plan() -> LabPlan:
    """The boxes with their ports, the segments, and what Debian's installer was given."""
    factory = Factory()
    ports = {CONTROLLER: [("eth0", "lan")], **{node: _node_ports(node) for node in NODES}}
    ports |= {host: [("eth0", f"at-{node}")] for host, (node, _) in HOSTS.items()}
    boxes = [BoxPlan(name, tuple(factory.port(*port) for port in wired)) for name, wired in ports.items()]
    outlets = tuple(Station(f"plc-{node}", factory.port("plc", f"plc-{node}").mac) for node in NODES)
    installed = {box.name: _installed(box.name) for box in boxes}
    radios = tuple(
        Station(port.segment, port.mac) for box in boxes for port in box.ports if port.name == MEDIA_PORTS[WIFI]
    )
    channel = RadioChannel(WIFI, _WIFI_MBPS, _WIFI_MTU, radios)
    return LabPlan(boxes, _SEGMENTS, installed, [PowerLine(PLC, _PHY_MBPS, outlets)], [channel])


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


def network_document(capacities_mbps: Mapping[str, float], macs: Mapping[str, str]) -> dict[str, Any]:
    """The network file: technology -> capacity, node -> address of the computer at its access port.

    A technology without a capacity is measured by the access points.
    """
    roles = {node: "gateway" if node == GATEWAY else "ap" for node in NODES}
    nodes = {
        node: {"role": role, "ports": MEDIA_PORTS, **({"mac": macs[node]} if node in macs else {})}
        for node, role in roles.items()
    }
    pairs = [(GATEWAY, UPSTAIRS), (GATEWAY, ATTIC), (UPSTAIRS, ATTIC)]
    links = [
        {"id": f"{source}-{target}-{technology}", "from": source, "to": target, "technology": technology, "both": True,
         **({"capacity_mbps": capacities_mbps[technology]} if technology in capacities_mbps else {})}
        for technology in MEDIA_PORTS for source, target in pairs
    ]  # fmt: skip
    return {"name": "home", "nodes": nodes, "links": links, "interference": {"rule": "technology"}}


def controller_settings() -> dict[str, Any]:
    """The controller's settings, as on the page identities; REST stays on loopback."""
    address = _LAN[CONTROLLER]
    tls = {"key": f"{address}.key", "certificate": f"{address}.pem", "ca": "ca.pem"}
    return {
        "network": "network.yaml",
        "capacities": "measured",
        "state_file": "/var/lib/hyroads/state.json",
        "identities": "identities.json",
        "tls": tls,
        "agents_tls": tls,
        "listen": {name: {"host": address, "port": port} for name, port in (("openflow", 6653), ("agents", 6654))},
    }


def radios_document(node: str) -> dict[str, Any]:
    """The file ap.json of the page access-point-by-hand, for the two media of a node."""
    backends = {"wifi": "linux-wifi", "plc": "plc"}
    interfaces = [
        {"name": port, "technology": technology, "medium": f"{technology}-1", "backend": backends[technology]}
        for technology, port in MEDIA_PORTS.items()
    ]
    return {"node": node, "interfaces": interfaces}


def bridge_command(node: str, number: int, *, user_space: bool) -> str:
    """The ovs-vsctl line of the page access-point-by-hand for a node; ``number`` is that of the network file."""
    ports = [*MEDIA_PORTS.values(), *(f"{node}-{kind}" for kind in ("host", "acc", "net"))]
    datapath = "datapath_type=netdev " if user_space else ""
    return (
        f"ovs-vsctl add-br br0 -- set bridge br0 {datapath}protocols=OpenFlow13 fail_mode=secure "
        f"other-config:datapath-id={number:016x} other-config:disable-in-band=true "
        f"-- set-controller br0 ssl:{_LAN[CONTROLLER]}:6653 -- set controller br0 max_backoff=1000 "
        + " ".join(f"-- add-port br0 {port}" for port in ports)
    )


class Setup:
    """The user: types in the boxes of the lab what the pages say."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.box = lab.boxes
        self.bare: dict[str, Bare] = {}
        """Technology -> what its segment carried before HyRoads came."""
        self.installed_s: float | None = None
        """Seconds from the first package to the multipath in force; None until then."""
        self._failure = ""

    def run(self) -> None:
        """From unpacked boxes to a multipath in force; EmulationError at the first command that fails."""
        self._measure_segments()
        began_s = time.monotonic()
        self._controller()
        for number, node in enumerate(NODES, 1):
            self._node(self.box[node], number)
        self._say("waiting for the boxes to join")
        wait_until("health of the controller", lambda: not self.complaint(), _JOIN_WITHIN_S, interval_s=0.5)
        self.declare()
        wait_until(f"multipath of flow {FLOW}", self.in_force, _JOIN_WITHIN_S, interval_s=0.2)
        self.installed_s = time.monotonic() - began_s

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
            self._say(f"measuring the bare {technology} segment with iperf3")
            for node, address in addresses.items():
                self.box[node].type(f"ip link set {port} up && ip address add {address}/24 dev {port}")
            iperf_server(self.box[ATTIC])
            source, target = self.box[GATEWAY], addresses[ATTIC]
            tcp = tcp_mbps(iperf(source, target, 4.0))
            udp = udp_mbps(source, self.box[ATTIC], target, 3.0, 100.0)
            self.bare[technology] = Bare(tcp, udp)
            self._say(f"{technology}: TCP {tcp:.2f} Mb/s, UDP {udp:.2f} Mb/s")
            for node in addresses:
                self.box[node].type(f"ip address flush dev {port}")
        self.box[ATTIC].run("systemctl", "stop", "iperf3-lab")

    def _controller(self) -> None:
        box = self.box[CONTROLLER]
        self._say("installing the controller")
        box.type(f"apt-get install -y -q {MEDIA}/hyroads_*.deb", _INSTALL_WITHIN_S)
        macs = {node: self._factory_address(host) for host, (node, _) in HOSTS.items()}
        # Adapters of the power line report theirs; nothing reports that of Ethernet in the place of WiFi.
        capacities = {technology: bare.capacity_mbps for technology, bare in self.bare.items() if technology != PLC}
        box.write("/etc/hyroads/network.yaml", yaml.safe_dump(network_document(capacities, macs), sort_keys=False))
        box.write("/etc/hyroads/hyroads.yaml", yaml.safe_dump(controller_settings(), sort_keys=False))
        address, folder = _LAN[CONTROLLER], _IDENTITIES
        box.type(f"install -d -m 0700 {folder} && hyroads identity authority --folder {folder}")
        box.type(f"hyroads identity server {address} --folder {folder}")
        box.type(f"hyroads identity node --all --network /etc/hyroads/network.yaml --folder {folder}")
        files = " ".join(
            f"{folder}/{name}" for name in ("identities.json", "ca.pem", f"{address}.pem", f"{address}.key")
        )
        box.type(f"install -m 0600 -o hyroads {files} /etc/hyroads/")
        box.type("hyroads controller --check")
        box.type("systemctl enable --now hyroads-controller", _JOIN_WITHIN_S)

    def _factory_address(self, host: str) -> str:
        """The address of a computer's port, as the computer shows it."""
        (port,) = json.loads(self.box[host].type("ip -json link show eth0"))
        return str(port["address"])

    def _node(self, box: Box, number: int) -> None:
        self._say(f"setting {box.name} up")
        box.type(f"apt-get install -y -q {MEDIA}/hyroads-edge_*.deb {MEDIA}/hyroads-ap_*.deb openvswitch-switch iw",
                 _INSTALL_WITHIN_S)  # fmt: skip
        self._copy_identity(box)
        own = "--cert /etc/hyroads/node.pem --key /etc/hyroads/node.key --ca /etc/hyroads/ca.pem"
        box.write(
            "/etc/default/hyroads-ap",
            f"CONTROLLER={_LAN[CONTROLLER]}:6654\nTOKEN_FILE=/etc/hyroads/agent.token\n"
            f'EDGE_OPTIONS="{own}"\nAP_OPTIONS="--token-file /etc/hyroads/radio.token {own}"\n',
        )
        box.write("/etc/systemd/system/access-port.service", _HOST_PORT.format(node=box.name))
        ports = " ".join([*MEDIA_PORTS.values(), f"{box.name}-host"])
        box.write("/etc/systemd/network/ports.network", _NETWORK.format(port=ports, address=""))
        box.type("systemctl enable --now access-port && networkctl reload")
        box.write("/etc/hyroads/ap.json", json.dumps(radios_document(box.name)), "0600", "hyroads-ap")
        box.type(f"systemctl enable --now hyroads-edge@{box.name} hyroads-ap-agent")
        box.type("ovs-vsctl set-ssl /etc/hyroads/node.key /etc/hyroads/node.pem /etc/hyroads/ca.pem")
        box.type("ovs-vsctl set Open_vSwitch . other_config:vlan-limit=0")
        box.type(bridge_command(box.name, number, user_space=not Path("/sys/module/openvswitch").exists()))

    def _copy_identity(self, box: Box) -> None:
        """What a node is known by, from the controller; the user carries it over."""
        controller = self.box[CONTROLLER]
        names = controller.run("ls", f"{_IDENTITIES}/{box.name}").stdout.split()
        sources = [f"{_IDENTITIES}/{box.name}/{name}" for name in names] + [f"{_IDENTITIES}/ca.pem"]
        for source in sources:
            box.write(f"/etc/hyroads/{source.rpartition('/')[2]}", controller.read(source), "0600", "hyroads-ap")
