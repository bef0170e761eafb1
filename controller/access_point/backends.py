"""From the names of back ends to live radios: the only code here that runs commands or opens sockets."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .agent import RadioMaker
from .config import AgentConfig, WirelessConfig
from .emulated import EmulatedRadio, LinkState, MediumState
from .linux_wifi import LinuxWifi
from .model import Radio, RadioError
from .nl80211 import Nl80211
from .plc import Plc
from .plc_devolo import DevoloReader
from .plc_reader import HomePlugReader
from .wireless_agent import Backend
from .wireless_hostapd import HostapdBackend, RecordedBackend, Run

COMMAND_TIMEOUT_S = 2.0
MAX_OUTPUT_BYTES = 1 << 20
MEDIUM_TIMEOUT_S = 0.5
MAX_REPLY_BYTES = 16 << 20


def run_command(command: list[str]) -> str:
    """Output of a short command; :class:`RadioError` if it fails."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=COMMAND_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RadioError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise RadioError(
            f"{command[0]}: exit status {done.returncode}: {done.stderr[:200].decode('utf-8', 'replace')!a}"
        )
    return done.stdout[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")


class MediumSource:
    """What ``hyroads-medium`` tells of its links over its control socket; connects again after an error."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: socket.socket | None = None
        self._links: tuple[str, ...] = ()
        self._ports: tuple[str, ...] = ()

    def __call__(self) -> MediumState:
        """The state of all links; :class:`RadioError` if the medium does not answer."""
        try:
            if self._connection is None:
                self._connect()
            return self._state(json.loads(self._ask("radio")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            raise RadioError(f"medium at {self._path}: {error}") from error

    def _connect(self) -> None:
        """Names come once: they are in the order of the short answers."""
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(MEDIUM_TIMEOUT_S)
        self._connection.connect(self._path)
        stats = json.loads(self._ask("stats"))
        self._links = tuple(link["id"] for link in stats["links"])
        self._ports = tuple(port["name"] for port in stats["ports"])

    def _ask(self, operation: str) -> bytes:
        if self._connection is None:
            raise ConnectionError("not connected")
        self._connection.sendall(json.dumps({"op": operation}).encode() + b"\n")
        reply = bytearray()
        while not reply.endswith(b"\n"):
            chunk = self._connection.recv(1 << 18)
            if not chunk or len(reply) > MAX_REPLY_BYTES:
                raise ConnectionResetError("the emulator closed the connection")
            reply += chunk
        return bytes(reply)

    def _state(self, reply: Mapping[str, Any]) -> MediumState:
        links = {name: LinkState(*entry) for name, entry in zip(self._links, reply["links"], strict=True)}
        heard = zip(self._ports, reply["ports"], strict=True)
        return MediumState(float(reply["elapsed_s"]), links, {name: s for name, s in heard if s is not None})


def _emulated(config: AgentConfig, place: int) -> Radio:
    interface = config.interfaces[place]
    return EmulatedRadio(interface.name, interface.peers, config.errors, MediumSource(str(config.medium_socket)))


MAKERS: dict[str, RadioMaker] = {
    "emulated": _emulated,
    "linux-wifi": lambda config, place: LinuxWifi(Nl80211(config.interfaces[place].name)),
    "plc": lambda config, place: Plc(HomePlugReader(config.interfaces[place].name)),
    "devolo": lambda config, place: Plc(
        DevoloReader(config.interfaces[place].adapter, config.interfaces[place].password)
    ),
}

WIRELESS_MAKERS: dict[str, Callable[[WirelessConfig, Path, Run], Backend]] = {
    "hostapd": HostapdBackend,
    "recorded": RecordedBackend,
}
