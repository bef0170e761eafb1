"""A real snmpd per node of an emulated network, fed by the emulated radio (docs/measurement.md, section 5).

All of them live beside the bridges, in the network's own namespace, because the nodes' interfaces to the media do; each
has a loopback address of its own, 127.161.0.<node number>, on port 161. The credentials are new in every run.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network
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

    def start(self) -> None:
        """Writes all files and starts all programs."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for node in self.programs:
            _write(self._config_file(node), self.agent_document(node))
        _write(self.collector_file, self.collector_document())
        for program in self.programs.values():
            program.start()

    def agent_document(self, node: str) -> dict[str, object]:
        """The file of a node's ``hyroads ap-agent``."""
        names = ("auth_password", "priv_password")
        user = {"name": USER, **{key: self._secrets[key] for key in names}}
        return {
            "node": node,
            "listen": [f"{agent_host(self.addressing.node_number[node])}:{SNMP_PORT}"],
            "community": self._secrets["community"],
            "users": [user],
            "medium_socket": str(self._medium_socket),
            "errors": self._errors,
            "interfaces": [self._interface(node, technology) for technology in self.addressing.technologies(node)],
        }

    def collector_document(self) -> dict[str, object]:
        """All nodes as targets, with SNMPv3."""
        names = ("auth_password", "priv_password")
        keys = {"user": USER, **{key: self._secrets[key] for key in names}}
        hosts = {node: agent_host(self.addressing.node_number[node]) for node in self.programs}
        return {"targets": [{"name": n, "host": h, "port": SNMP_PORT, **keys} for n, h in hosts.items()]}

    def _interface(self, node: str, technology: str) -> dict[str, object]:
        out, into = {}, {}
        for link in self.network.links:
            if link.technology == technology and link.source == node:
                out[link.target] = link.id
            elif link.technology == technology and link.target == node:
                into[link.source] = link.id
        peers = [
            {
                "mac": self.addressing.interface_mac[other, technology],
                "node": other,
                "out_link": out.get(other),
                "in_link": into.get(other),
            }
            for other in sorted({*out, *into})
        ]
        name = self.addressing.interface_name[node, technology]
        return {"name": name, "technology": technology, "backend": "emulated", "peers": peers}

    def _config_file(self, node: str) -> Path:
        return self.directory / f"agent-{self.addressing.node_number[node]}.json"

    def _program(self, node: str) -> Program:
        number = self.addressing.node_number[node]
        command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(self._config_file(node))]
        command += ["--directory", str(self.directory / f"node-{number}")]
        return Program(f"snmpd of {node}", command, self.directory / f"snmpd-{number}.log")


def _write(path: Path, document: object) -> None:
    """A file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        json.dump(document, handle)
