"""A real snmpd per node of an emulated network, fed by the emulated radio (docs/measurement.md, section 5).

All of them live beside the bridges, in the network's own namespace, because the nodes' interfaces to the media do; each
has a loopback address of its own, 127.161.0.<node number>, on port 161. The credentials are new in every run.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network
from hyroads.mininet.access_points import agent_document, write_private
from hyroads.mininet.programs import Program

SNMP_PORT = 161
USER = "hyroads"


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
    ) -> None:
        self.network = network
        self.addressing = addressing
        self.directory = directory
        self._medium_socket = medium_socket
        self._errors = dict(errors or {})
        self._secrets = {key: secrets.token_hex(16) for key in ("community", "auth_password", "priv_password")}
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

    def start(self) -> None:
        """Starts all programs."""
        for program in self.programs.values():
            program.start()

    def agent_document(self, node: str) -> dict[str, object]:
        """The file of a node's ``hyroads ap-agent``."""
        names = ("auth_password", "priv_password")
        user = {"name": USER, **{key: self._secrets[key] for key in names}}
        return {
            **agent_document(self.network, self.addressing, node, self._medium_socket, self._errors),
            "listen": [f"{agent_host(self.addressing.node_number[node])}:{SNMP_PORT}"],
            "community": self._secrets["community"],
            "users": [user],
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
