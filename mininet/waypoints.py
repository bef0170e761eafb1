"""Waypoints of an emulated network: ``hyroads client waypoint`` on each gateway that has one in the network file, and
what the network's clients need to use it: a token and a policy each.

Everything of a waypoint is in the folder ``waypoint-NODE`` of the run directory. On a client, the command is
``hyroads client run --config waypoint-NODE/CLIENT.yaml``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network, Role
from hyroads.controller.files.private import write_atomically

from .programs import HYROADS, EmulationError, Program

START_TIMEOUT_S = 30.0
_HOST_INTERFACE = "eth0"
_SOCKET = "waypoint.sock"


def gateways(network: Network) -> list[str]:
    """The nodes that have a waypoint."""
    return [node.id for node in network.nodes.values() if node.waypoint is not None]


def clients_of(network: Network) -> list[str]:
    """The nodes that may use a waypoint."""
    return [node.id for node in network.nodes.values() if node.role is Role.CLIENT]


def waypoint(  # noqa: PLR0917 - what is run, and where
    node: str,
    network: Network,
    addressing: Addressing,
    names: Mapping[str, str],
    directory: Path,
    inside: Sequence[str],
) -> Program:
    """The program of a gateway, with its files; ``names`` are the nodes' names in files, ``inside`` is what runs a
    command on the node. ``directory`` has the network file, ``network.json``.
    """
    folder = directory / f"waypoint-{names[node]}"
    folder.mkdir(mode=0o700)
    clients = clients_of(network)
    tokens = {names[client]: secrets.token_hex(16) for client in clients}
    # A file of tokens has a line; nobody has this one.
    tokens = tokens or {names[node]: secrets.token_hex(16)}
    write_atomically(folder / "tokens", "".join(f"{client} {token}\n" for client, token in tokens.items()))
    for client in clients:
        write_atomically(folder / f"{names[client]}.token", tokens[names[client]])
        policy = _policy(node, client, network, addressing, names[client])
        (folder / f"{names[client]}.yaml").write_text(policy, encoding="utf-8")
    command = [*inside, *HYROADS, "client", "waypoint", "--network", str(directory / "network.json"), "--node", node]
    command += ["--tokens", str(folder / "tokens"), "--no-realtime"]
    command += ["--run-directory", str(folder), "--state-directory", str(folder)]
    return Program(f"waypoint-{names[node]}", command, folder / "waypoint.log")


def wait_for_waypoint(program: Program) -> None:
    """Until it can be asked; EmulationError, with its last words, if it ends instead."""
    program.wait_for(program.log.with_name(_SOCKET), START_TIMEOUT_S)


def _policy(node: str, client: str, network: Network, addressing: Addressing, name: str) -> str:
    """The policy of a client of the emulated network; JSON is YAML."""
    interface = _HOST_INTERFACE
    if addressing.is_plain_client(client):
        (interface,) = (addressing.interface_name[client, k] for k in network.technologies_of[client])
    spec = network.nodes[node].waypoint
    if spec is None:
        raise EmulationError(f"node {node} has no waypoint")
    where = {"address": spec.address or addressing.host_ip[node], "port": spec.port}
    files = {"token_file": f"{name}.token", "ca_file": "waypoint.pem", "name": name}
    return json.dumps({"interfaces": {interface: {}}, "waypoint": {**where, **files}}, indent=1) + "\n"
