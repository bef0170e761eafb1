"""A private etcd on loopback, in whose members controllers that stand by for each other keep what they were told.

Debian's package ``etcd-server``; nothing of it but the program is used, and what it stores lies in a folder of ours.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from .programs import ETCD_TOOLS, EmulationError, Program, wait_until

HOST = "127.0.0.1"
CLIENT_PORT, PEER_PORT = 2379, 2380
PORTS_APART = 100
MEMBER_COUNTS = (1, 3, 5)
READY_S = 20.0
_ASK_S = 1.0
# It has a machine of its own elsewhere, as controllers have.
_NICENESS = -10


def etcd_program() -> str:
    """Path of ``etcd``: beside Python, as in a checkout's virtual environment, or in $PATH; EmulationError."""
    beside = Path(sys.executable).parent
    found = shutil.which("etcd", path=str(beside)) or shutil.which("etcd")
    if found is None:
        package = ETCD_TOOLS["etcd"]
        raise EmulationError(f"missing system package: {package} (apt-get install {package})")
    return found


def etcd_ports(count: int) -> list[tuple[int, int]]:
    """Of each member: where clients ask, and where the other members do. The first has the usual ones."""
    return [(CLIENT_PORT + PORTS_APART * n, PEER_PORT + PORTS_APART * n) for n in range(count)]


class Etcd:
    """Members with ``ports`` (clients' and members' port of each), whose data and logs lie in ``directory``."""

    def __init__(self, directory: Path, ports: Sequence[tuple[int, int]], *, bound_to_parent: bool = False) -> None:
        self._directory = directory
        self._ports = tuple(ports)
        peers = {f"etcd{number}": f"http://{HOST}:{peer}" for number, (_, peer) in enumerate(ports)}
        cluster = ",".join(f"{name}={url}" for name, url in peers.items())
        self.programs = tuple(
            self._member(name, peer, client, cluster, bound_to_parent)
            for (name, peer), (client, _) in zip(peers.items(), ports, strict=True)
        )

    def _member(self, name: str, peer: str, client: int, cluster: str, bound_to_parent: bool) -> Program:
        url = f"http://{HOST}:{client}"
        command = [
            etcd_program(), "--name", name, "--data-dir", str(self._directory / name),
            "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", cluster, "--initial-cluster-state", "new", "--initial-cluster-token", "hyroads-trial",
            # What is no longer so is forgotten; routes change often.
            "--auto-compaction-mode", "revision", "--auto-compaction-retention", "1000",
            "--logger", "zap", "--log-level", "warn",
        ]  # fmt: skip
        log = self._directory / f"{name}.log"
        return Program(name, command, log, bound_to_parent=bound_to_parent, niceness=_NICENESS)

    @property
    def urls(self) -> list[str]:
        """What controllers are told: ``ha: {etcd: ...}``."""
        return [f"http://{HOST}:{client}" for client, _ in self._ports]

    def start(self) -> None:
        """Starts all members that do not run; they go on with what is in the directory."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for program in self.programs:
            program.start()

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Waits until all members answer; EmulationError, with its last words, if one ends instead."""
        for program, (client, _) in zip(self.programs, self._ports, strict=True):
            wait_until(program.name, lambda port=client, who=program: _answers(port, who), timeout_s)  # type: ignore[misc]

    def stop(self) -> None:
        """Ends all members; what they stored stays."""
        for program in self.programs:
            program.stop()


def _answers(port: int, program: Program) -> bool:
    """Whether a member takes part, as it says itself."""
    if not program.alive:
        raise EmulationError(program.failure())
    connection = HTTPConnection(HOST, port, timeout=_ASK_S)
    try:
        connection.request("GET", "/health")
        return bool(json.loads(connection.getresponse().read(1000)).get("health") == "true")
    except (OSError, HTTPException, ValueError):
        return False
    finally:
        connection.close()
