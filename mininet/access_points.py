"""The radios of an emulated network: what nodes know of them, and the programs that tell the controller.

:class:`RadioChannel` is one process that speaks for all nodes over the controller's radio channel (docs/reference/
measurement.md, section 5): ``python -m hyroads.mininet.access_points --config FILE``. Each node has its own session;
hyroads-medium is asked once per interval for all of them. A session tells what the node's own radios could know:
neighbours, estimates with a driver's errors, the busy time that the node hears.

:class:`SnmpAgents` are a real snmpd per node, fed by the emulated radio. All of them live beside the bridges, in the
network's own namespace, because the nodes' interfaces to the media do; each has a loopback address of its own,
127.161.0.<node number>, on port 161. Credentials are new in every run. With ``wireless`` the access points also serve
their wireless configuration (section 8 there): whoever has the files of ``access-points.json`` may set it, and each
network is a port of the access point's bridge.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hyroads.controller.access_point.agent import Complaints
from hyroads.controller.access_point.backends import MediumSource
from hyroads.controller.access_point.channel import Channel, addresses_of
from hyroads.controller.access_point.config import AgentConfig, parse
from hyroads.controller.access_point.emulated import EmulatedRadio, MediumState
from hyroads.controller.access_point.hostapd import Document
from hyroads.controller.access_point.model import RadioError
from hyroads.controller.access_point.reading_changes import interface_document
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.carrier_sensing_rule import implied_carrier_sensing
from hyroads.controller.core.network import Network, Role
from hyroads.controller.files.private import write_atomically

from .factory import factory_address
from .programs import HYROADS, Program
from .radio_files import agent_file

if TYPE_CHECKING:
    from .radio_cells import RadioCell

CONTROLLER = "127.0.0.1:6654"
SNMP_PORT = 161
USER, OPERATOR = "hyroads", "operator"
ACCESS_POINTS = (Role.GATEWAY, Role.AP)
CHANNELS = (1, 6, 11, 36, 40, 44, 48)
MOST_NETWORKS = 8


def interfaces_of(network: Network, addressing: Addressing, node: str) -> list[dict[str, object]]:
    """The section ``interfaces`` of a node's agent file (docs/reference/measurement.md, section 2), with emulated
    radios."""
    return [_interface(network, addressing, node, technology) for technology in addressing.technologies(node)]


def _interface(network: Network, addressing: Addressing, node: str, technology: str) -> dict[str, object]:
    out, into = {}, {}
    for link in network.links:
        if link.technology == technology and link.source == node:
            out[link.target] = link.id
        elif link.technology == technology and link.target == node:
            into[link.source] = link.id
    overheard = implied_carrier_sensing(network).get((node, technology), frozenset())
    peers = [
        {
            "mac": factory_address(addressing, other, technology),
            "node": other,
            "out_link": out.get(other),
            "in_link": into.get(other),
        }
        # Stations that are too far away for a link, or of no interest, are heard all the same.
        for other in sorted({*out, *into, *overheard})
    ]
    name = addressing.interface_name[node, technology]
    return {"name": name, "technology": technology, "backend": "emulated", "peers": peers}


def agent_document(
    network: Network, addressing: Addressing, node: str, medium_socket: Path, errors: Mapping[str, float]
) -> dict[str, object]:
    """A node's agent file without anything of SNMP."""
    interfaces = interfaces_of(network, addressing, node)
    return {"node": node, "medium_socket": str(medium_socket), "errors": dict(errors), "interfaces": interfaces}


def association_agents(
    cells: Iterable[RadioCell], directory: Path, controllers: str = CONTROLLER
) -> dict[str, Program]:
    """By node with an access point of 802.11: the program that tells the controller who is associated with it."""
    followed: dict[str, list[tuple[Path, str]]] = {}
    for cell in cells:
        for point in cell.access_points():
            followed.setdefault(point.node, []).append((cell.socket(point.node), cell.technology))
    programs = {}
    for number, (node, sockets) in enumerate(followed.items(), start=1):
        path = directory / f"associations-{number}.json"
        write_private(path, agent_file(node, sockets))
        command = [*HYROADS, "ap-agent", "--config", str(path), "--channel", controllers]
        programs[node] = Program(f"ap-agent of {node}", command, path.with_suffix(".log"))
    return programs


def write_private(path: Path, document: object) -> None:
    """A JSON file that only its owner can read."""
    write_atomically(path, json.dumps(document))


class MediumReadings:
    """Readings of all nodes from one look at the medium (``radio.channel.Readings``)."""

    def __init__(self, configs: Sequence[AgentConfig], source: MediumSource, complain: Complaints) -> None:
        self._source = source
        self._complain = complain
        self._state: MediumState | None = None
        self._radios = {
            config.node: [
                (i.technology, EmulatedRadio(i.name, i.peers, config.errors, self._look)) for i in config.interfaces
            ]
            for config in configs
        }

    def collect(self, nodes: Collection[str], patience_s: float) -> Mapping[str, Document]:
        """See the protocol; the medium answers at once."""
        now_s = time.monotonic()
        try:
            self._state = self._source()
        except RadioError as error:
            self._complain(str(error))
            return {}
        return {
            node: {
                "time_s": now_s,
                "interfaces": [interface_document(name, radio.read(now_s)) for name, radio in self._radios[node]],
            }
            for node in nodes
        }

    def _look(self) -> MediumState:
        if self._state is None:
            raise RadioError("the medium was not asked")
        return self._state


class RadioChannel:
    """The process and its file."""

    def __init__(
        self,
        network: Network,
        addressing: Addressing,
        directory: Path,
        medium_socket: Path,
        errors: Mapping[str, float],
        *,
        token: str | None = None,
        controllers: str = CONTROLLER,
    ) -> None:
        self._path = directory / "radio-channel.json"
        self._document = {
            "controllers": controllers,
            "token": token,
            "nodes": [agent_document(network, addressing, node, medium_socket, errors) for node in addressing.dpid],
        }
        command = [sys.executable, "-m", "hyroads.mininet.access_points", "--config", str(self._path)]
        self.program = Program("radio channel", command, directory / "radio-channel.log")

    def start(self) -> None:
        """Writes the file and starts the process."""
        write_private(self._path, self._document)
        self.program.start()


def agent_host(number: int) -> str:
    """The loopback address of a node's snmpd, by node number."""
    return f"127.161.{number >> 8}.{number & 255}"


@dataclass(eq=False)
class SnmpAgents:
    """The snmpds of all nodes with a switch: their files, their programs, and how a collector reaches them."""

    network: Network
    addressing: Addressing
    directory: Path
    medium_socket: Path
    errors: Mapping[str, float] = field(default_factory=dict)
    wireless: bool = False

    def __post_init__(self) -> None:
        self._secrets = {key: secrets.token_hex(16) for key in ("community", "auth_password", "priv_password")}
        self._operator = {key: secrets.token_hex(16) for key in ("auth_password", "priv_password")}
        self.programs = {node: self._program(node) for node in self.addressing.dpid}

    def write(self) -> None:
        """Writes all files; the controller reads its own when it starts."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for node in self.programs:
            write_private(self._config_file(node), self.agent_document(node))
        write_private(self.directory / "collector.json", self.collector_document())
        if self.wireless:
            write_private(self.directory / "access-points.json", self.access_points_document())
            for key, secret in self._operator.items():
                write_atomically(self.directory / f"{OPERATOR}.{key}", secret)

    def start(self) -> None:
        """Starts all programs."""
        for program in self.programs.values():
            program.start()

    def agent_document(self, node: str) -> dict[str, object]:
        """The file of a node's ``hyroads ap-agent``."""
        names = ("auth_password", "priv_password")
        users: list[dict[str, object]] = [{"name": USER, **{key: self._secrets[key] for key in names}}]
        document = {
            **agent_document(self.network, self.addressing, node, self.medium_socket, self.errors),
            "listen": [f"{agent_host(self.addressing.node_number[node])}:{SNMP_PORT}"],
            "community": self._secrets["community"],
            "users": users,
        }
        if radios := self._radios(node):
            users.append({"name": OPERATOR, "write": True, **self._operator})
            listed = [{"interface": name, "channels": CHANNELS, "most_bss": MOST_NETWORKS} for name in radios]
            document["wireless"] = {"backend": "recorded", "bridge": node, "radios": listed}
        return document

    def _radios(self, node: str) -> list[str]:
        """Interfaces with networks of a node."""
        if not self.wireless or self.network.nodes[node].role not in ACCESS_POINTS:
            return []
        wifi = (name for name in self.addressing.technologies(node) if name.startswith("wifi"))
        return [self.addressing.interface_name[node, technology] for technology in wifi]

    def access_points_document(self) -> dict[str, object]:
        """The file that ``hyroads ssids --access-points`` and SNMPVisor take."""
        files = {"password_file": f"{OPERATOR}.auth_password", "privacy_password_file": f"{OPERATOR}.priv_password"}
        return {
            "devices": {
                node: {
                    "address": f"{agent_host(self.addressing.node_number[node])}:{SNMP_PORT}",
                    "user": {"name": OPERATOR, **files},
                    "switch": self.addressing.dpid[node],
                    "radios": dict.fromkeys(radios, MOST_NETWORKS),
                }
                for node in self.programs
                if (radios := self._radios(node))
            }
        }

    def collector_document(self) -> dict[str, object]:
        """All nodes as targets, with SNMPv3."""
        names = ("auth_password", "priv_password")
        keys = {"user": USER, **{key: self._secrets[key] for key in names}}
        hosts = {node: agent_host(self.addressing.node_number[node]) for node in self.programs}
        return {"targets": [{"name": n, "host": h, "port": SNMP_PORT, **keys} for n, h in hosts.items()]}

    def _config_file(self, node: str) -> Path:
        return self.directory / f"agent-{self.addressing.node_number[node]}.json"

    def _program(self, node: str) -> Program:
        number = self.addressing.node_number[node]
        command = [*HYROADS, "ap-agent", "--config", str(self._config_file(node))]
        command += ["--directory", str(self.directory / f"node-{number}")]
        return Program(f"snmpd of {node}", command, self.directory / f"snmpd-{number}.log")


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--config", required=True, type=Path)
    arguments = parser.parse_args()
    document = json.loads(arguments.config.read_text(encoding="utf-8"))
    configs = [parse(json.dumps(node), str(arguments.config)) for node in document["nodes"]]
    complain = Complaints("radio channel")
    readings = MediumReadings(configs, MediumSource(str(configs[0].medium_socket)), complain)
    nodes = [config.node for config in configs if config.interfaces]
    Channel(addresses_of(document["controllers"]), document["token"], nodes, readings, complain).run()


if __name__ == "__main__":
    main()
