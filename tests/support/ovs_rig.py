"""A real Open vSwitch in a namespace of its own, and a bare OpenFlow 1.3 controller connection to it.

Used by integration tests and benchmarks. A technology of a network is one more bridge that delivers frames by MAC
address, the way a shared medium does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Batch, Change, Installed, batch_of, error_of
from hyroads.controller.ofp.guard import check
from hyroads.controller.ofp.readback import FlowStat, parse_flow_stats
from hyroads.controller.ofp.vlan_tags import TagRules

PORT = struct.Struct("!I12x16s32x")
MAX_PORT = 0xFFFFFF00
DATAPATH = os.environ.get("HYROADS_TEST_DATAPATH", "netdev")
"""The type of every bridge of the tests: ``netdev`` (Open vSwitch in user space) or ``system`` (in the kernel)."""
TAGS = TagRules(takes_off=True) if DATAPATH == "system" else None
"""What rules in those bridges have to do about VLAN tags."""
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"


def available() -> bool:
    """Root and Open vSwitch are there."""
    return os.geteuid() == 0 and shutil.which("ovs-vswitchd") is not None and Path(SCHEMA).exists()


def run(*words: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=env, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Connection:
    """The controller's end of one switch connection; every received message passes the guard."""

    def __init__(self, listener: socket.socket) -> None:
        self.errors: list[tuple[int, int, int]] = []
        self.seen: list[bytes] = []
        self.xid = 1
        listener.settimeout(20)
        # Where building the network took long, the switch has given up waiting for us, and dialled again.
        while not self._greeted(listener):
            pass
        self.socket.sendall(wire.message(b"", 1, wire.FEATURES_REQUEST))
        self.dpid = int.from_bytes(self.wait(wire.FEATURES_REPLY)[8:16], "big")

    def _greeted(self, listener: socket.socket) -> bool:
        self.socket, _ = listener.accept()
        self.socket.settimeout(20)
        self.buffer = b""
        try:
            self.socket.sendall(wire.message(b"", 0, wire.HELLO))
            self.wait(wire.HELLO)
        except ConnectionError:
            self.socket.close()
            return False
        return True

    def receive(self) -> bytes:
        while len(self.buffer) < 8 or len(self.buffer) < int.from_bytes(self.buffer[2:4], "big"):
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the switch closed the connection")
            self.buffer += data
        length = int.from_bytes(self.buffer[2:4], "big")
        message, self.buffer = self.buffer[:length], self.buffer[length:]
        check(message)
        self.seen.append(message)
        if message[1] == wire.ECHO_REQUEST:
            reply = wire.message(message[8:], int.from_bytes(message[4:8], "big"), wire.ECHO_REPLY)
            self.socket.sendall(reply)
        return message

    def wait(self, kind: int) -> bytes:
        while (message := self.receive())[1] != kind:
            if message[1] == wire.ERROR:
                self.errors.append(error_of(message))
        return message

    def next_xid(self) -> int:
        self.xid += 1
        return self.xid

    def apply(self, change: Change) -> Batch:
        batch = batch_of(change, self.next_xid())
        self.xid = batch.last_xid
        self.socket.sendall(batch.data)
        while not batch.done:
            message = self.receive()
            xid = int.from_bytes(message[4:8], "big")
            if message[1] == wire.ERROR:
                assert batch.on_error(*error_of(message))
            elif message[1] == wire.BARRIER_REPLY:
                batch.on_barrier(xid)
        return batch

    def flow_stats(self, **criteria: int) -> list[FlowStat]:
        self.socket.sendall(wire.flow_stats_request(self.next_xid(), **criteria))
        flows: list[FlowStat] = []
        while True:
            part, more = parse_flow_stats(self.wait(wire.MULTIPART_REPLY))
            flows.extend(part)
            if not more:
                return flows

    def installed(self) -> list[Installed]:
        return [flow.rule for flow in self.flow_stats()]

    def ports(self) -> dict[str, int]:
        body = wire.MULTIPART_PORT_DESC.to_bytes(2, "big") + bytes(6)
        self.socket.sendall(wire.message(body, self.next_xid(), wire.MULTIPART_REQUEST))
        found: dict[str, int] = {}
        while True:
            message = self.wait(wire.MULTIPART_REPLY)
            for number, name in PORT.iter_unpack(message[16:]):
                if number <= MAX_PORT:
                    found[name.split(b"\0", 1)[0].decode()] = number
            if not message[11] & 1:
                return found

    def close(self) -> None:
        self.socket.close()


class Rig:
    """Open vSwitch and hosts, each in namespaces named ``hr-ofp-...``; use as a context manager."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hr-ofp-"))
        self.tag = secrets.token_hex(2)
        self.namespace = f"hr-ofp-{self.tag}"
        self.namespaces = [self.namespace]
        names = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
        self.env = {**os.environ, **dict.fromkeys(names, str(self.folder))}
        self.listeners: dict[str, socket.socket] = {}
        self.count = 0
        self.agents: dict[tuple[str, str], str] = {}

    def __enter__(self) -> Rig:
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        database = str(self.folder / "conf.db")
        run("ovsdb-tool", "create", database, SCHEMA, env=self.env)
        sock = self.folder / "db.sock"
        self.inside(
            "ovsdb-server", database, f"--remote=punix:{sock}", "--pidfile", "--detach", "--log-file", "-vconsole:off"
        )
        self.vsctl("--no-wait", "init")
        self.inside("ovs-vswitchd", "--pidfile", "--detach", "--log-file", "-vconsole:off")
        # 0 means that frames may carry any number of VLAN tags.
        self.vsctl("set", "Open_vSwitch", ".", "other_config:vlan-limit=0")
        return self

    def __exit__(self, *_: object) -> None:
        for program in ("ovs-vswitchd", "ovsdb-server"):
            pid = self.folder / f"{program}.pid"
            if pid.exists():
                number = pid.read_text().strip()
                words = ("exit", "--cleanup") if program == "ovs-vswitchd" else ("exit",)
                control = str(self.folder / f"{program}.{number}.ctl")
                subprocess.run(("ovs-appctl", "-t", control, *words), check=False, env=self.env, timeout=20)
        for listener in self.listeners.values():
            listener.close()
        for namespace in self.namespaces:
            subprocess.run(("ip", "netns", "del", namespace), check=False, timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, *words: str) -> str:
        return run("ip", "netns", "exec", self.namespace, *words, env=self.env)

    def vsctl(self, *words: str) -> str:
        return run("ovs-vsctl", "--timeout=20", *words, env=self.env)

    def ofctl(self, *words: str) -> str:
        return run("ovs-ofctl", "-O", "OpenFlow13", *words, env=self.env)

    def revalidated(self) -> None:
        """Waits until no packet goes by a flow that was cached before the last change of rules."""
        pid = (self.folder / "ovs-vswitchd.pid").read_text().strip()
        control = str(self.folder / f"ovs-vswitchd.{pid}.ctl")
        # A round that has already begun may have passed a flow before the change.
        for _ in range(2):
            run("ovs-appctl", "-t", control, "revalidator/wait", env=self.env)

    def bridge(self, name: str, dpid: int, *, controlled: bool = True) -> None:
        options = [f"datapath_type={DATAPATH}", "fail_mode=secure", "protocols=OpenFlow13"]
        options.append(f"other-config:datapath-id={dpid:016x}")
        options.append("other-config:disable-in-band=true")
        self.vsctl("add-br", name, "--", "set", "bridge", name, *options)
        if controlled:
            path = str(self.folder / f"{name}.controller")
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen()
            self.listeners[name] = listener
            # A bare connection reads when it is asked to, so the switch must not wait for signs of life: after ten
            # seconds (two probes) in which others were built or asked it would end the connection.
            options = ("max_backoff=1000", "inactivity_probe=0")
            self.vsctl("set-controller", name, f"unix:{path}", "--", "set", "controller", name, *options)

    def connect(self, bridge: str) -> Connection:
        # A switch that was changed after it had dialled dials again: the connection that waits first may be dead.
        for _ in range(5):
            with contextlib.suppress(ConnectionError):
                return Connection(self.listeners[bridge])
        return Connection(self.listeners[bridge])

    def port(self, bridge: str, name: str, number: int) -> None:
        self.vsctl("add-port", bridge, name, "--", "set", "interface", name, f"ofport_request={number}")

    def wire_ports(self, bridge: str, name: str, number: int, other: str, peer: str, peer_number: int) -> None:
        """A cable between two bridges."""
        self.inside("ip", "link", "add", name, "type", "veth", "peer", "name", peer)
        for interface in (name, peer):
            self.inside("ip", "link", "set", interface, "mtu", "1600", "up")
        self.port(bridge, name, number)
        self.port(other, peer, peer_number)

    def host(self, bridge: str, port: str, number: int, mac: str, ip: str | None, mtu: int = 1500) -> str:
        """A host behind a port; returns its namespace. Its interface is ``eth0``."""
        self.count += 1
        namespace = f"hr-ofp-{self.tag}-{self.count}"
        run("ip", "netns", "add", namespace)
        self.namespaces.append(namespace)
        self.inside(
            "ip", "link", "add", port, "mtu", "1600", "type", "veth", "peer", "name", "eth0", "netns", namespace
        )
        self.inside("ip", "link", "set", port, "up")
        run("ip", "-n", namespace, "link", "set", "eth0", "address", mac, "mtu", str(mtu), "up")
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        if ip is not None:
            run("ip", "-n", namespace, "addr", "add", f"{ip}/16", "dev", "eth0")
        run("ip", "netns", "exec", namespace, "ethtool", "-K", "eth0", "tx", "off")
        self.port(bridge, port, number)
        return namespace

    def build(self, network: Network, addressing: Addressing) -> dict[str, str]:
        """All of a network: a bridge per switch and per technology, a host namespace per node (returned by node).

        The agents' ports are there; ``agents`` has the namespaces behind their ``acc`` and ``net`` sides.
        """
        hosts: dict[str, str] = {}
        for node, dpid in addressing.dpid.items():
            self.bridge(node, dpid)
            port, mac, ip = addressing.access_port[node], addressing.host_mac[node], addressing.host_ip[node]
            hosts[node] = self.host(node, port, 100, mac, ip)
            if addressing.has_agent(node):
                sides = (("acc", 101, addressing.agent_access_port), ("net", 102, addressing.agent_network_port))
                for side, number, names in sides:
                    self.agents[node, side] = self.host(node, names[node], number, f"02:00:00:ff:00:{number:02x}", None)
        for k, number in addressing.technology_number.items():
            self._medium(network, addressing, k, number, hosts)
        return hosts

    def _medium(self, network: Network, addressing: Addressing, k: str, number: int, hosts: dict[str, str]) -> None:
        medium = f"medium{number}"
        self.bridge(medium, 0xFF0000 + number, controlled=False)
        members = [node for node in network.nodes if (node, k) in addressing.interface_mac]
        flows = []
        for node in members:
            name, at = addressing.interface_name[node, k], addressing.node_number[node]
            if addressing.has_switch(node):
                self.wire_ports(node, name, number, medium, f"m{number}p{at}", at)
                # A controller sends to the address that a switch reports, and the medium delivers to this one.
                self.inside("ip", "link", "set", name, "address", addressing.interface_mac[node, k])
            else:
                mac, ip = addressing.host_mac[node], addressing.host_ip[node]
                hosts[node] = self.host(medium, name, at, mac, ip)
        for node in members:
            at = addressing.node_number[node]
            heard = [link.target for link in network.links if link.source == node and link.technology == k]
            attachment = addressing.attachment(node) if addressing.is_plain_client(node) else None
            if attachment is not None:
                # A station sends everything to its access point.
                flows.append(f"priority=30,in_port={at},actions=output:{addressing.node_number[attachment.node]}")
                continue
            for other in heard:
                to, mac = addressing.node_number[other], addressing.interface_mac[other, k]
                flows.append(f"priority=20,in_port={at},dl_dst={mac},actions=output:{to}")
            outputs = ",".join(f"output:{addressing.node_number[other]}" for other in heard)
            group = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"
            flows.append(f"priority=10,in_port={at},{group},actions={outputs or 'drop'}")
        path = self.folder / f"{medium}.flows"
        path.write_text("\n".join(flows) + "\n")
        self.ofctl("add-flows", medium, str(path))

    def ping(self, source: str, target: str, *options: str) -> float:
        """Share of pings answered, from one namespace to an address."""
        words = ("ip", "netns", "exec", source, "ping", "-q", "-i", "0.05", "-W", "1", *options, target)
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
        for part in done.stdout.split(","):
            if "packet loss" in part:
                return 1 - float(part.split("%")[0].split()[-1]) / 100
        raise RuntimeError(done.stdout + done.stderr)


def wait_until(condition: object, timeout_s: float = 10.0) -> bool:
    """Polls a callable until it is true."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False
