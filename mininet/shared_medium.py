"""The shared medium in Mininet's terms: a node per technology, a link per port.

``hyroads-medium`` is one process for all technologies of a network; a Mininet link between a device and the node of a
technology is one port of it: a TAP at the device. ``link a wifi down`` at the prompt takes the device off the medium.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mininet.link import Intf, Link
from mininet.node import Node, Switch

import hyroads.mininet.loggers  # noqa: F401
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.carrier_sensing_rule import implied_carrier_sensing
from hyroads.controller.core.interference import Cliques
from hyroads.controller.core.network import Link as NetworkLink
from hyroads.controller.core.network import Network

from .control_sockets import MediumClient
from .programs import Program, find_program, run

MEDIA_MTU = 1500
"""Of ports on the media, as Ethernet and power lines have it."""
AGENT_MTU = 1600
"""Of ports between a switch and its agent: the label stack, the shim and a whole frame of a host fit."""
HOST_MTU = 1500
"""Of interfaces at which hosts send their own frames."""
IPV6_SETTINGS = Path("/proc/sys/net/ipv6")
START_TIMEOUT_S = 10.0


@dataclass(eq=False)
class SharedMedium:
    """The process: collects the ports while Mininet builds the network, then runs ``hyroads-medium`` on them.

    ``options`` are more of its options; ``directory`` takes its files. Of the technologies ``elsewhere`` it knows
    nothing: they are on radios whose medium is the kernel's. With ``hwsim`` it is the medium of radios, too.
    """

    network: Network
    addressing: Addressing
    directory: Path
    realtime: bool = True
    bound_to_parent: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    hwsim: bool = False
    program: Program | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.socket = self.directory / "medium.sock"
        self._ports: dict[str, dict[str, object]] = {}
        self._down: set[str] = set()

    def add_port(  # noqa: PLR0917 - all of them say what port it is
        self, name: str, technology: str, mac: str, netns: str | None, uplink: str | None, mtu: int
    ) -> None:
        """Registers a TAP with an MTU of ``mtu`` bytes; only before ``start``."""
        port = {"name": name, "netns": netns, "mac": mac, "technology": technology, "uplink": uplink}
        self._ports[name] = {**port, "mtu": mtu}

    def mtu_of(self, node: str, technology: str) -> int:
        """MTU in bytes of the port of ``node`` on a technology. A plain client's port is the interface of its host: a
        packet that is too long for the other hosts must be fragmented there.
        """
        mtu = self.network.mtu.get(technology, MEDIA_MTU)
        return min(HOST_MTU, mtu) if self.network.nodes[node].is_plain_client else mtu

    def add_radio(self, name: str, technology: str, mac: str, address: str) -> None:
        """Registers an 802.11 radio by its hardware address, whose interface has the address ``mac``."""
        self._ports[name] = {"name": name, "mac": mac, "technology": technology, "radio": address}

    def start(self) -> None:
        """Writes the configuration and starts the process; does nothing if it runs."""
        if self.program is not None and self.program.alive:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "medium.json"
        config.write_text(json.dumps(self.configuration(), indent=1), encoding="utf-8")
        command = [find_program("hyroads-medium"), "--config", str(config), "--socket", str(self.socket)]
        self.program = Program(
            "hyroads-medium",
            [*command, *(["--realtime"] if self.realtime else []), *(["--hwsim"] if self.hwsim else [])],
            self.directory / "medium.log",
            bound_to_parent=self.bound_to_parent,
        )
        self.socket.unlink(missing_ok=True)
        self.program.start()
        self.program.wait_for(self.socket, START_TIMEOUT_S)

    def stop(self) -> None:
        """Ends the process."""
        if self.program is not None:
            self.program.stop()
        self.socket.unlink(missing_ok=True)

    def configuration(self) -> dict[str, object]:
        """The configuration of ``hyroads-medium`` (docs/reference/dataplane.md, section 3)."""
        names = self.addressing.interface_name
        links = [
            {
                "id": link.id,
                "from": names[link.source, link.technology],
                "to": names[link.target, link.technology],
                "capacity_mbps": link.capacity_mbps,
                "delay_ms": link.delay_ms,
                "loss": link.loss,
                "up": True,
            }
            for link in self._links()
        ]
        return {
            "options": {"mtu": max([AGENT_MTU, *self.network.mtu.values()]), **self.options},
            "ports": self._ports_with_ears(),
            "links": links,
            "conflicts": _conflicts(self.network, self.elsewhere),
            "contention": {k: kind.value for k, kind in self.network.contention.items() if k not in self.elsewhere},
        }

    def _links(self) -> list[NetworkLink]:
        return [link for link in self.network.links if link.technology not in self.elsewhere]

    def _ports_with_ears(self) -> list[dict[str, object]]:
        """All ports, each with the ports whose transmissions it hears."""
        names = self.addressing.interface_name
        hears = {
            names[interface]: sorted(names[node, interface[1]] for node in nodes)
            for interface, nodes in implied_carrier_sensing(self.network).items()
        }
        return [{**port, "hears": hears.get(name, [])} for name, port in self._ports.items()]

    def client(self) -> MediumClient:
        """A connection to the running process; the caller closes it."""
        return MediumClient(self.socket)

    def set_link(self, link: str, **changes: Any) -> None:
        """Changes capacity_mbps, delay_ms, loss or up of a link."""
        with self.client() as client:
            client.set_link(link, **changes)

    def set_port_up(self, name: str, up: bool) -> None:
        """Takes all links of a port down, or up again unless the port at their other end is down."""
        (self._down.discard if up else self._down.add)(name)
        if self.program is None or not self.program.alive:
            return
        names = self.addressing.interface_name
        with self.client() as client:
            for link in self._links():
                ends = {names[link.source, link.technology], names[link.target, link.technology]}
                if name in ends:
                    client.set_link(link.id, up=not ends & self._down)


def _conflicts(network: Network, elsewhere: Collection[str]) -> dict[str, object]:
    """Who contends with whom, as cliques where the rule has that form: pairs grow with the square of the links.

    Links are numbers of those that are not ``elsewhere``, in the order of the file.
    """
    here = [index for index, link in enumerate(network.links) if link.technology not in elsewhere]
    number = {index: i for i, index in enumerate(here)}
    compact = network.interference.compact()
    if isinstance(compact, Cliques):
        members: dict[int, list[int]] = {}
        for link, clique in enumerate(compact.class_of.tolist()):
            if link in number:
                members.setdefault(clique, []).append(number[link])
        return {"domains": list(members.values())}
    matrix = network.interference.contention_matrix().tocoo()
    pairs = ((int(i), int(j)) for i, j in zip(matrix.row, matrix.col, strict=True) if i < j)
    return {"pairs": [[number[i], number[j]] for i, j in pairs if i in number and j in number]}


class Medium(Switch):  # type: ignore[misc]  # Mininet has no types
    """One technology of the shared medium as a Mininet node; its shell lies beside the switches."""

    def __init__(self, name: str, shared: SharedMedium, technology: str, **params: Any) -> None:
        self.shared = shared
        self.technology = technology
        params.update(dpid="0", inNamespace=False)
        super().__init__(name, **params)

    def start(self, _controllers: object) -> None:
        """Starts the process that all technologies share."""
        self.shared.start()

    def stop(self, deleteIntfs: bool = True) -> None:  # Mininet's name
        """Ends that process."""
        self.shared.stop()
        super().stop(deleteIntfs)

    def dpctl(self, *_arguments: object) -> str:
        """A medium is no OpenFlow switch; at the prompt ``dpctl`` asks every node of ``net.switches``."""
        return f"{self.name}: a medium, not a switch\n"


class OutsideIntf(Intf):  # type: ignore[misc]
    """An interface that lies in the namespace of the switches although its node's shell lies in another."""

    def cmd(self, *arguments: object, **_options: object) -> str:
        """Runs a command where the interface is."""
        return run(*" ".join(str(argument) for argument in arguments).split())

    def updateIP(self) -> None:
        """A port of a bridge has no address."""

    def status(self) -> str:
        """``OK`` or ``MISSING``."""
        return "OK" if Path(f"/sys/class/net/{self.name}").exists() or self.name in run("ip", "link") else "MISSING"


class FarEnd(Intf):  # type: ignore[misc]
    """The medium's end of a link: nothing in the kernel."""

    def updateIP(self) -> None:
        """No address."""

    def status(self) -> str:
        """Always there."""
        return "OK"

    def delete(self) -> None:
        """Nothing to remove but our own record."""
        self.node.delIntf(self)
        self.link = None


class MediumEnd(FarEnd):
    """Of a port of the shared medium: its up and down are the medium's."""

    port_name = ""

    def ifconfig(self, *arguments: str) -> str:
        """Understands ``up`` and ``down``."""
        if self.port_name and arguments in {("up",), ("down",)}:
            self.node.shared.set_port_up(self.port_name, arguments == ("up",))
        return ""


class MediumLink(Link):  # type: ignore[misc]
    """A device's port on a shared medium: ``node1`` the device, ``node2`` the :class:`Medium`.

    ``intfName1`` names the TAP, ``addr1`` its MAC; ``uplink`` names the port to which a station sends everything.
    """

    def __init__(
        self,
        node1: Node,
        node2: Medium,
        intfName1: str,
        addr1: str,
        uplink: str | None = None,
        **_params: Any,
    ) -> None:
        # An access point of Mininet-WiFi is no Switch, but its bridge is where its shell is.
        outside = isinstance(node1, Switch) or not node1.inNamespace
        mtu = node2.shared.mtu_of(node1.name, node2.technology)
        make_tap(intfName1, addr1, mtu, None if outside else node1)
        netns = None if outside else f"/proc/{node1.pid}/ns/net"
        node2.shared.add_port(intfName1, node2.technology, addr1, netns, uplink, mtu)
        near = OutsideIntf if outside else Intf
        self.intf1 = near(intfName1, node=node1, link=self, mac=addr1, moveIntfFn=stay)
        self.intf2 = MediumEnd(f"{node2.name}-{node1.name}", node=node2, link=self, moveIntfFn=stay)
        self.intf2.port_name = intfName1


def make_tap(name: str, mac: str | None, mtu: int, node: Node | None) -> None:
    """A persistent TAP, so that a switch keeps its port while the program behind it restarts.

    It lies in ``node``'s namespace or, without one, in the caller's; a leftover of the same name is replaced.
    """
    inside = [] if node is None else ["nsenter", f"--net=/proc/{node.pid}/ns/net"]
    if name in _interfaces(inside):
        run(*inside, "ip", "link", "del", name)
    run(*inside, "ip", "tuntap", "add", "dev", name, "mode", "tap")
    if mac is not None:
        run(*inside, "ip", "link", "set", name, "address", mac)
    if node is None:
        silence_ipv6(name)
    run(*inside, "ip", "link", "set", name, "mtu", str(mtu), "up")


def silence_ipv6(port: str) -> None:
    """Keeps the machine's own IPv6 from speaking on a port of a bridge, which carries others' frames only."""
    # A kernel without IPv6 has nothing to silence.
    if IPV6_SETTINGS.exists():
        run("sysctl", "-qw", f"net.ipv6.conf.{port.replace('.', '/')}.disable_ipv6=1")


def _interfaces(inside: list[str]) -> set[str]:
    return {link["ifname"] for link in json.loads(run(*inside, "ip", "-j", "link"))}


def stay(*_arguments: object) -> None:
    """Mininet moves interfaces into their node's namespace; ours are made where they belong."""
