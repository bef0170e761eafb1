r"""Hybrid devices, plain clients and their topology in Mininet's terms.

A hybrid device (gateway, access point, client with several interfaces) is an Open vSwitch bridge with a port per
technology, a port for the device's own host, and two for its ``hyroads-edge`` agent. Its shell, and what runs in it,
lives in a network namespace with one interface, ``eth0``, behind the host's port:

    shell of a: eth0 ---- a-host [ bridge a ] a-plc, a-wifi ---- the shared medium
                           a-acc [          ] a-net
                               \--- hyroads-edge ---/

The bridges are of an Open vSwitch of our own: database and daemon with private sockets, in the caller's namespace.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mininet.link import Intf, Link
from mininet.log import output
from mininet.net import Mininet
from mininet.node import Host, Node, OVSSwitch
from mininet.topo import Topo

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.controller.kernel.generic_netlink import DATAPATH_FAMILY, family_id

from .factory import factory_address
from .programs import Program, find_program, run, wait_until
from .radio_cells import RadioCell, RadioLink, RadioPlan
from .run_directory import find_network
from .shared_medium import (
    AGENT_MTU,
    HOST_MTU,
    Medium,
    MediumLink,
    OutsideIntf,
    SharedMedium,
    make_tap,
    silence_ipv6,
    stay,
)

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
START_TIMEOUT_S = 15.0


def datapath_type() -> str:
    """``system`` (the kernel's datapath) where the kernel has one, as a module or built in, else ``netdev``."""
    if family_id(DATAPATH_FAMILY) is None:
        # A kernel with the module but without any switch so far; silent where there is none.
        subprocess.run(["modprobe", "-q", "openvswitch"], check=False, stderr=subprocess.DEVNULL)
    return "netdev" if family_id(DATAPATH_FAMILY) is None else "system"


class OpenVSwitch:
    """ovsdb-server and ovs-vswitchd whose files all lie in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        database = directory / "conf.db"
        socket = directory / "db.sock"
        quiet = ["--pidfile", "--log-file", "-vconsole:off"]
        self.database = Program(
            "ovsdb-server",
            ["ovsdb-server", str(database), f"--remote=punix:{socket}", *quiet],
            directory / "ovsdb-server.out",
        )
        self.daemon = Program(
            "ovs-vswitchd", ["ovs-vswitchd", f"unix:{socket}", *quiet], directory / "ovs-vswitchd.out"
        )

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs to watch."""
        return (self.database, self.daemon)

    def start(self) -> None:
        """Starts both; from then on every ovs-* tool of this process and its children talks to them."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for variable in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"):
            os.environ[variable] = str(self.directory)
        run("ovsdb-tool", "create", str(self.directory / "conf.db"), str(SCHEMA))
        self.database.start()
        wait_until("ovsdb-server", (self.directory / "db.sock").exists, START_TIMEOUT_S)
        # Whole frames with any number of VLAN tags must match as they are (limit 0 = look at all of them).
        run("ovs-vsctl", "--no-wait", "--timeout=10", "init")
        run("ovs-vsctl", "--no-wait", "--timeout=10", "set", "Open_vSwitch", ".", "other_config:vlan-limit=0")
        self.daemon.start()
        wait_until("ovs-vswitchd", lambda: any(self.directory.glob("ovs-vswitchd.*.ctl")), START_TIMEOUT_S)

    def stop(self) -> None:
        """Ends both; bridges go with them."""
        for program in reversed(self.programs):
            program.stop()


HOST_PREFIX_LENGTH = 16
AGENT_CONTROLLER = "127.0.0.1:6654"
OPENFLOW = "OpenFlow13"


class HybridNode(OVSSwitch):  # type: ignore[misc]  # Mininet has no types
    """A hybrid device: bridge, host and agent. ``addressing`` says what everything is called.

    ``directory`` takes the agent's log and control socket; ``agent_controller`` is where the agent dials (several with
    commas), ``controllers`` which of the network's controllers the switch dials (None: all).
    """

    def __init__(
        self,
        name: str,
        addressing: Addressing,
        directory: Path,
        *,
        agent_controller: str = AGENT_CONTROLLER,
        controllers: range | None = None,
        realtime: bool = True,
        bound_to_parent: bool = False,
        **params: Any,
    ) -> None:
        self.addressing = addressing
        self.controller_numbers = controllers
        # The shell lives with the host, in a namespace; the bridge lives with the caller.
        self.controlIntf = None
        params.update(dpid=f"{addressing.dpid[name]:x}", inNamespace=True, failMode="secure", protocols=OPENFLOW)
        params.pop("batch", None)
        super().__init__(name, **params)
        self.bridge_type = datapath_type()
        self.agent = self._make_agent(directory, agent_controller, realtime, bound_to_parent)
        self._make_host_port()
        if self.agent is not None:
            for port in self._agent_ports():
                make_tap(port, None, AGENT_MTU, None)

    def _make_agent(self, directory: Path, controller: str, realtime: bool, bound: bool) -> Program | None:
        if not self.addressing.has_agent(self.name):
            return None
        return edge_agent(self.name, self._agent_ports(), directory, controller, realtime, bound)

    def _agent_ports(self) -> tuple[str, str]:
        return self.addressing.agent_access_port[self.name], self.addressing.agent_network_port[self.name]

    def _make_host_port(self) -> None:
        """A veth pair: ``eth0`` in the shell's namespace, the access port beside the bridges."""
        access = self.addressing.access_port[self.name]
        run("ip", "link", "add", access, "mtu", str(HOST_MTU), "type", "veth", "peer", "name", "eth0",
            "netns", str(self.pid))  # fmt: skip
        silence_ipv6(access)
        run("ip", "link", "set", access, "up")
        configure_host(self, "eth0", self.addressing)
        self._access = OutsideIntf(access, node=self, port=self.newPort(), moveIntfFn=stay)

    def defaultIntf(self) -> Intf:  # Mininet's names
        """The host's interface: what ``a ping c`` and ``a.IP()`` mean."""
        return self.nameToIntf["eth0"]

    def start(self, controllers: Any) -> None:
        """Makes the bridge with all its ports and its controller in one transaction, then starts the agent."""
        ports = [intf.name for intf in self.intfList() if intf.name not in {"eth0", "lo"}]
        ports += self._agent_ports() if self.agent is not None else ()
        if self.controller_numbers is not None:
            controllers = [controllers[number] for number in self.controller_numbers]
        targets = [f"{c.protocol}:{c.IP()}:{c.port}" for c in controllers]
        # All of them at creation: giving a controller to a bridge that had none flushes its rules.
        command = ["ovs-vsctl", "--timeout=20", *controller_rows(targets, self.reconnectms),
                   "--if-exists", "del-br", self.name, "--", "add-br", self.name, "--",
                   "set", "bridge", self.name, f"datapath_type={self.bridge_type}", f"fail_mode={self.failMode}",
                   f"other_config:datapath-id={self.dpid}", "other-config:disable-in-band=true",
                   f"other-config:dp-desc={self.name}", f"protocols={self.protocols}"]  # fmt: skip
        if targets:
            rows = ",".join(f"@controller{number}" for number in range(len(targets)))
            command += ["--", "set", "bridge", self.name, f"controller=[{rows}]"]
        for number, port in enumerate(ports, start=1):
            command += ["--", "add-port", self.name, port, "--", "set", "interface", port, f"ofport_request={number}"]
        run(*command)
        if self.agent is not None:
            self.agent.start()

    def stop(self, deleteIntfs: bool = True) -> None:
        """Ends the agent and removes the bridge and its interfaces."""
        if self.agent is not None:
            self.agent.stop()
        run("ovs-vsctl", "--timeout=20", "--if-exists", "del-br", self.name)
        for port in self._agent_ports() if self.agent is not None else ():
            run("ip", "link", "del", port)
        if deleteIntfs:
            self.deleteIntfs()

    def connected(self) -> bool:
        """Whether a controller is connected."""
        uuids = self.vsctl("get", "bridge", self.name, "controller").strip().strip("[]")
        first = uuids.split(",")[0].strip()
        return bool(first) and "true" in self.vsctl("get", "controller", first, "is_connected")

    def vsctl(self, *arguments: Any, **_options: Any) -> str:
        """Runs ovs-vsctl beside the bridges."""
        return run("ovs-vsctl", "--timeout=20", *" ".join(map(str, arguments)).split())

    def dpctl(self, *arguments: Any) -> str:
        """Runs ovs-ofctl on the bridge, in the OpenFlow version that it speaks."""
        return run("ovs-ofctl", "-O", OPENFLOW, str(arguments[0]), self.name, *map(str, arguments[1:]))

    @classmethod
    def batchStartup(cls, switches: Any, run: Any = None) -> Any:
        """Mininet starts bridges in a batch after ``start``; ours are complete by then."""
        return switches

    @classmethod
    def batchShutdown(cls, switches: Any, run: Any = None) -> Any:
        """Stops them one by one: there is more to stop than a bridge."""
        for switch in switches:
            switch.stop()
        return switches


class PlainClient(Host):  # type: ignore[misc]
    """An unmodified client: one interface, a port of the shared medium, no switch and no agent."""

    def __init__(self, name: str, addressing: Addressing, **params: Any) -> None:
        self.addressing = addressing
        super().__init__(name, **params)

    def config(self, **_params: Any) -> dict[str, object]:
        """Gives the interface the addresses of the network file."""
        configure_host(self, self.defaultIntf().name, self.addressing)
        return {}


def controller_rows(targets: Sequence[str], backoff_ms: object) -> list[str]:
    """Words of ovs-vsctl that make a row for each controller, named ``@controller0`` and so on: where there are
    several, a bridge's name does not stand for one.
    """
    words: list[str] = []
    for number, target in enumerate(targets):
        words += [f"--id=@controller{number}", "create", "controller", f'target="{target}"']
        words += [f"max_backoff={backoff_ms}", "inactivity_probe=5000", "--"]
    return words


def edge_agent(  # noqa: PLR0917 - all of them say what is run
    node: str, ports: tuple[str, str], directory: Path, controller: str, realtime: bool, bound: bool
) -> Program:
    """The program ``hyroads-edge`` of a node, on its two ports: the access side, then the network side."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        *(find_program("hyroads-edge"), "--node", node, "--controller", controller),
        *("--access", f"tap:{ports[0]}", "--network", f"tap:{ports[1]}", "--access-mtu", str(HOST_MTU)),
        *("--control", str(directory / f"edge-{node}.sock")),
        *(["--realtime"] if realtime else []),
    ]
    return Program(f"hyroads-edge of {node}", command, directory / f"edge-{node}.log", bound_to_parent=bound)


def configure_host(node: Node, interface: str, addressing: Addressing) -> None:
    """Addresses, MTU and offloads of a host's interface, and Mininet's record of them."""
    inside = ["nsenter", f"--net=/proc/{node.pid}/ns/net"]
    mac, ip = addressing.host_mac[node.name], addressing.host_ip[node.name]
    run(*inside, "ip", "link", "set", "lo", "up")
    run(*inside, "ip", "link", "set", interface, "address", mac, "mtu", str(HOST_MTU), "up")
    run(*inside, "ip", "address", "replace", f"{ip}/{HOST_PREFIX_LENGTH}", "dev", interface)
    # Bridges in user space forward what they get: a checksum left to the hardware would never be filled in.
    run(*inside, "ethtool", "-K", interface, "tx", "off")
    if interface not in node.nameToIntf:
        Intf(interface, node=node, port=0, moveIntfFn=stay)
    record = node.nameToIntf[interface]
    record.ip, record.prefixLen, record.mac = ip, HOST_PREFIX_LENGTH, mac


class HybridTopo(Topo):  # type: ignore[misc]
    """Mininet's topology of a network file: ``mn --topo hyroads,triangle.yaml``."""

    def build(
        self,
        network: str | Network = "triangle",
        directory: Path | None = None,
        realtime: bool = True,
        bound_to_parent: bool = True,
        medium_options: dict[str, object] | None = None,
        *,
        radio: RadioPlan | None = None,
        agent_controller: str = AGENT_CONTROLLER,
        controller_of: Mapping[str, tuple[range, str]] | None = None,
        **_params: Any,
    ) -> None:
        """``network`` is a file's name or a loaded network; ``directory`` takes logs and sockets; ``radio`` says how
        the technologies that have radios in the file run on them (None: on the shared medium, as all others);
        ``agent_controller`` is where agents dial, one or several with commas; ``controller_of`` says by node, where
        each has some of its own, which of the network's controllers they are and where its agent dials."""
        self.network = read_file(find_network(network)) if isinstance(network, str) else network
        self.addressing = Addressing.of(self.network)
        common: dict[str, Any] = {
            "addressing": self.addressing,
            "directory": directory or temporary_directory(),
            "realtime": realtime,
            "bound_to_parent": bound_to_parent,
        }
        on_radio = frozenset(self.network.radios if radio is not None else ())
        ours = radio is not None and radio.our_medium
        elsewhere = frozenset() if ours else on_radio
        options = medium_options or {}
        self.shared = SharedMedium(self.network, options=options, elsewhere=elsewhere, hwsim=ours, **common)
        for node in self.network.nodes:
            if self.addressing.is_plain_client(node):
                self.addHost(node, cls=PlainClient, addressing=self.addressing)
            else:
                numbers, dialled = (controller_of or {}).get(node, (None, agent_controller))
                self.addSwitch(node, cls=HybridNode, agent_controller=dialled, controllers=numbers, **common)
        for technology in self.network.technologies:
            name = technology if technology not in self.network.nodes else f"medium-{technology}"
            if technology in on_radio:
                self.addSwitch(name, cls=RadioCell, shared=self.shared, plan=radio, technology=technology)
            else:
                self.addSwitch(name, cls=Medium, shared=self.shared, technology=technology)
            for node in self.network.nodes:
                if (node, technology) in self.addressing.interface_name:
                    self._add_port(node, name, technology, RadioLink if technology in on_radio else MediumLink)

    def _add_port(self, node: str, medium: str, technology: str, kind: type[Link]) -> None:
        attachment = self.addressing.attachment(node) if self.addressing.is_plain_client(node) else None
        uplink = self.addressing.interface_name[attachment.node, attachment.technology] if attachment else None
        self.addLink(
            node,
            medium,
            cls=kind,
            intfName1=self.addressing.interface_name[node, technology],
            addr1=factory_address(self.addressing, node, technology),
            uplink=uplink,
        )


class HybridNet(Mininet):  # type: ignore[misc]
    """Mininet's network, in which a device with a switch counts as a host too (``pingall``, ``iperf``)."""

    def stations(self) -> list[Node]:
        """All devices that have an address of their own."""
        return [node for node in (*self.switches, *self.hosts) if isinstance(node, HybridNode | PlainClient)]

    def ping(self, hosts: Any = None, timeout: Any = None) -> float:
        """Pings between the given hosts, by default between all devices."""
        return float(super().ping(hosts or self.stations(), timeout))

    def pingFull(self, hosts: Any = None, timeout: Any = None) -> Any:
        """As ``ping``, with all that ping says."""
        return super().pingFull(hosts or self.stations(), timeout)

    def pingPair(self) -> float:
        """Pings between the first two devices."""
        return self.ping(self.stations()[:2])

    def iperf(  # noqa: PLR0917 - Mininet's signature
        self,
        hosts: Any = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: int = 5,
        port: int = 5001,
    ) -> list[str]:
        """Mininet's iperf, by default between the first and the last device; returns [server, client] speeds.

        With iperf3: Mininet waits for ever for what iperf 2.1 doesn't print any more.
        """
        stations = self.stations()
        client, server = hosts or [stations[0], stations[-1]]
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        server.cmd(f"timeout {seconds + 15} iperf3 -s -1 -p {port} >/dev/null 2>&1 &")
        server.cmd(f"for i in $(seq 50); do ss -ltnH | grep -q ':{port} ' && break; sleep 0.1; done")
        udp = f"-u -b {udpBw}" if l4Type == "UDP" else ""
        words = f"timeout {seconds + 15} iperf3 -J -c {server.IP()} -p {port} -t {seconds} {udp} 2>&1"
        result = [*([udpBw] if udp else []), *_speeds(client.cmd(words), fmt)]
        output(f"*** Results: {result}\n")
        return result


def _speeds(report: str, unit: str | None) -> tuple[str, str]:
    """What arrived and what was sent, from iperf3's JSON; a question mark each if it did not get that far."""
    try:
        end = json.loads(report)["end"]
        received, sent = (end[key]["bits_per_second"] for key in ("sum_received", "sum_sent"))
    except (ValueError, KeyError, TypeError):
        output(f"*** iperf3: {report.strip()[-300:] or 'no answer'}\n")
        return "?", "?"
    name, size = {"k": ("Kbits", 1e3), "g": ("Gbits", 1e9)}.get((unit or "m").lower(), ("Mbits", 1e6))
    return f"{received / size:.2f} {name}/sec", f"{sent / size:.2f} {name}/sec"


def temporary_directory() -> Path:
    """A directory for logs and sockets that goes with this process."""
    directory = Path(tempfile.mkdtemp(prefix="hyroads-mn-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
