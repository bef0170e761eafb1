"""A real snmpd per node of an emulated network, fed by the emulated radio (docs/reference/measurement.md, section 5).

All of them live beside the bridges, in the network's own namespace, because the nodes' interfaces to the media do; each
has a loopback address of its own, 127.161.0.<node number>, on port 161. The credentials are new in every run.

With ``wireless`` the access points also serve their wireless configuration (section 8 there): whoever has the files of
``access-points.json`` may set it, and each network is a port of the access point's bridge.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network, Role
from hyroads.controller.radio.private_files import write_atomically
from hyroads.mininet.access_points import agent_document, write_private
from hyroads.mininet.programs import Program

SNMP_PORT = 161
USER, OPERATOR = "hyroads", "operator"
ACCESS_POINTS = (Role.GATEWAY, Role.AP)
CHANNELS = (1, 6, 11, 36, 40, 44, 48)
MOST_NETWORKS = 8


def agent_host(number: int) -> str:
    """The loopback address of a node's snmpd, by node number."""
    return f"127.161.{number >> 8}.{number & 255}"


class SnmpAgents:
    """The snmpds of all nodes with a switch: their files, their programs, and how a collector reaches them."""

    def __init__(
        self,
        network: Network,
        addressing: Addressing,
        directory: Path,
        medium_socket: Path,
        errors: Mapping[str, float] | None = None,
        *,
        wireless: bool = False,
    ) -> None:
        self.network = network
        self.addressing = addressing
        self.directory = directory
        self._medium_socket = medium_socket
        self._errors = dict(errors or {})
        self._wireless = wireless
        self._secrets = {key: secrets.token_hex(16) for key in ("community", "auth_password", "priv_password")}
        self._operator = {key: secrets.token_hex(16) for key in ("auth_password", "priv_password")}
        self.programs = {node: self._program(node) for node in addressing.dpid}

    @property
    def collector_file(self) -> Path:
        """What ``python -m hyroads.controller.measure.collector`` takes on stdin (mode 0600)."""
        return self.directory / "collector.json"

    def write(self) -> None:
        """Writes all files; the controller reads its own when it starts."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for node in self.programs:
            write_private(self._config_file(node), self.agent_document(node))
        write_private(self.collector_file, self.collector_document())
        if self._wireless:
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
            **agent_document(self.network, self.addressing, node, self._medium_socket, self._errors),
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
        if not self._wireless or self.network.nodes[node].role not in ACCESS_POINTS:
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
        command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(self._config_file(node))]
        command += ["--directory", str(self.directory / f"node-{number}")]
        return Program(f"snmpd of {node}", command, self.directory / f"snmpd-{number}.log")
