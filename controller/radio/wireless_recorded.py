"""A stand-in for hostapd where there are no radios (emulations): it keeps what is wanted, and reports it as done.

With a bridge each BSS becomes a pair of interfaces: one is a port of the bridge, under the name of the BSS, and whoever
has the other is associated. What is on the air is in a file, where a test or a person finds that name too; it holds no
passphrases.
"""

from __future__ import annotations

import contextlib
import json
import socket
from hashlib import sha256
from pathlib import Path

from hyroads.controller.private_files import write_atomically
from hyroads.controller.radio.model import RadioError
from hyroads.controller.radio.wireless import BssReport, Report, Wireless, WirelessError, document_of
from hyroads.controller.radio.wireless_config import WirelessConfig
from hyroads.controller.radio.wireless_hostapd import Run, attach_command, detach_command, ports_of


class RecordedBackend:
    """Radios that are not there; ``on-the-air.json`` in ``directory`` has what they would send."""

    def __init__(self, config: WirelessConfig, directory: Path, run: Run) -> None:
        self._config = config
        self._run = run
        self._file = directory / "on-the-air.json"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def apply(self, wanted: Wireless, before: Wireless) -> None:
        """Ports as wanted, then the record; :class:`WirelessError`, then it is as before."""
        try:
            self._set_ports(wanted)
            self._write(wanted)
        except (RadioError, OSError) as error:
            with contextlib.suppress(RadioError):
                self._set_ports(before)
            raise WirelessError(str(error)) from error

    def begin(self, wanted: Wireless, radios: set[str]) -> None:
        """All anew."""
        self.apply(wanted, wanted)

    def wrong(self, wanted: Wireless, first: bool) -> set[str]:
        """At the first look nothing is known; later it remembers."""
        return set(wanted.radios) if first else set()

    def report(self, wanted: Wireless) -> Report:
        """All that is wanted is there; nobody is ever associated."""
        return Report({bss.name: BssReport(True) for radio in wanted.radios for bss in wanted.on(radio)})

    def _set_ports(self, wanted: Wireless) -> None:
        if self._config.bridge is None:
            return
        shown = {bss.name: bss for radio in wanted.radios for bss in wanted.on(radio)}
        for name in ports_of(self._config.bridge, self._run):
            if name not in shown:
                self._run(detach_command(self._config.bridge, name))
                self._run(["ip", "link", "del", name])
        for name, bss in shown.items():
            # A radio's own interface is there, and somebody else's affair.
            if name in self._config.radios:
                continue
            if not _exists(name):
                made = ["ip", "link", "add", name, "address", bss.bssid, "type", "veth", "peer", "name", station(name)]
                self._run(made)
                self._run(["ip", "link", "set", name, "up"])
            self._run(attach_command(self._config.bridge, name, bss.slice_name))

    def _write(self, wanted: Wireless) -> None:
        document = document_of(wanted)
        shown = {bss.name for radio in wanted.radios for bss in wanted.on(radio)}
        document["bsss"] = {name: entry for name, entry in document["bsss"].items() if name in shown}
        for name, entry in document["bsss"].items():
            del entry["passphrase"]
            entry["ssid"] = wanted.bsss[name].ssid.decode("utf-8", "replace")
            entry["station"] = station(name)
        write_atomically(self._file, json.dumps(document, indent=2) + "\n")


def station(name: str) -> str:
    """The interface of who is associated with a BSS."""
    return f"sta{sha256(name.encode()).hexdigest()[:10]}"


def _exists(name: str) -> bool:
    return any(name == each for _, each in socket.if_nameindex())
