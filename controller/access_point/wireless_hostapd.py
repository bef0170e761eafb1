"""Carries out the wanted wireless configuration on a hostapd that runs (``hostapd -g SOCKET``), and reads it back.

What hostapd refuses is taken back: the radios that were touched get what they had. :class:`RecordedBackend` stands in
for hostapd where there are no radios (emulations).
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from hyroads.controller.files.private import write_atomically

from . import hostapd_conf
from .config import WirelessConfig
from .hostapd import ANSWER_S, Control
from .hostapd_conf import Place, Step, What
from .model import RadioError
from .wireless import BssReport, Report, Wireless, WirelessError, document_of

CHANGE_S = 8.0
"""A radio that starts loads firmware first."""
SETTLE_S = 3.0

Run = Callable[[list[str]], str]


def ask(path: str, question: str, patience_s: float = ANSWER_S) -> str:
    """Asks a control socket of hostapd; :class:`WirelessError` if nobody answers."""
    try:
        with contextlib.closing(Control(path)) as control:
            return control.ask(question.encode(), patience_s).decode("utf-8", "replace")
    except OSError as error:
        raise WirelessError(f"hostapd at {path}: {error.strerror or error}") from error


class HostapdBackend:
    """Radios of one hostapd; ``directory`` gets its files (0600: they hold passphrases) and control sockets."""

    def __init__(self, config: WirelessConfig, directory: Path, run: Run) -> None:
        self._config = config
        self._directory = directory
        self._run = run
        self._ports = BridgePorts(config.bridge, run)
        self._place = Place(str(directory / "control"), config.driver, config.radius)
        self._set_power: set[str] = set()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def apply(self, wanted: Wireless, before: Wireless) -> None:
        """From what is on the air to what is wanted; :class:`WirelessError`, then it is as before."""
        running = {name: radio for name, radio in before.radios.items() if self._status(name)}
        todo = hostapd_conf.steps(Wireless(running, before.bsss), wanted)
        touched = {step.radio for step in todo}
        try:
            for step in todo:
                self._do(step, wanted)
            self._verify(wanted, touched)
        except (WirelessError, RadioError, OSError) as error:
            for name in sorted(touched):
                # One that can't be helped is off the air, and begun anew later.
                with contextlib.suppress(WirelessError, RadioError, OSError):
                    self._take_back(name, [step for step in todo if step.radio == name], before)
            raise WirelessError(str(error)) from error

    def _take_back(self, radio: str, done: Sequence[Step], before: Wireless) -> None:
        """As it was; networks that were not touched keep their stations if the radio itself was not."""
        if any(step.what in (What.START, What.STOP) for step in done):
            self._begin(radio, before)
            return
        there = hostapd_conf.on_air(self._status(radio))
        for step in done:
            if step.what is What.JOIN and step.bss in there:
                self._leave(radio, step.bss, before)
        there = hostapd_conf.on_air(self._status(radio))
        for step in done:
            if step.what is What.LEAVE and step.bss not in there:
                self._join(radio, step.bss, before)
        write_atomically(self._file(radio), self._radio_text(radio, before))
        self._power(radio, before)

    def begin(self, wanted: Wireless, radios: set[str]) -> None:
        """These radios anew; :class:`WirelessError` says which of them could not, the others are on the air."""
        problems = []
        for name in sorted(radios):
            try:
                self._begin(name, wanted)
                self._verify(wanted, {name})
            except (WirelessError, RadioError, OSError) as error:
                problems.append(str(error))
        if problems:
            raise WirelessError("; ".join(problems))

    def wrong(self, wanted: Wireless, first: bool) -> set[str]:
        """The radios that are not as wanted; at the first look also those whose file says something else."""
        if self._ask_global("PING") != "PONG":
            raise WirelessError(f"hostapd at {self._config.global_socket} does not answer a ping")
        return {name for name in wanted.radios if self._is_wrong(name, wanted, first)}

    def _is_wrong(self, name: str, wanted: Wireless, first: bool) -> bool:
        expected = {bss.name for bss in wanted.on(name)}
        there = hostapd_conf.on_air(self._status(name))
        if not expected or not there or expected | {name} != there | {name}:
            return bool(expected or there)
        if not first:
            return False
        try:
            return self._file(name).read_text(encoding="utf-8") != self._radio_text(name, wanted)
        except (OSError, UnicodeDecodeError):
            return True

    def report(self, wanted: Wireless) -> Report:
        """What is on the air of what is wanted."""
        found: dict[str, BssReport] = {}
        for radio in wanted.radios:
            bsss = wanted.on(radio)
            status = self._status(radio) if bsss else {}
            up = status.get("state") == hostapd_conf.ON_THE_AIR
            for bss in bsss:
                there = up and bss.name in hostapd_conf.on_air(status)
                found[bss.name] = BssReport(there, hostapd_conf.stations_of(bss.name, status) if there else 0)
        return Report(found)

    def _begin(self, name: str, wanted: Wireless) -> None:
        self._stop(name, wanted)
        if wanted.on(name):
            self._start(name, wanted)
            self._power(name, wanted)

    def _do(self, step: Step, wanted: Wireless) -> None:
        match step.what:
            case What.START:
                self._start(step.radio, wanted)
            case What.STOP:
                self._stop(step.radio, wanted)
            case What.JOIN:
                self._join(step.radio, step.bss, wanted)
            case What.LEAVE:
                self._leave(step.radio, step.bss, wanted)
            case What.POWER:
                self._power(step.radio, wanted)

    def _start(self, radio: str, wanted: Wireless) -> None:
        self._add(radio, radio, self._radio_text(radio, wanted))
        for bss in wanted.on(radio):
            self._ports.attach(bss.name, bss.slice_name)

    def _stop(self, radio: str, wanted: Wireless) -> None:
        # It may not run, and what is on it may be unknown: then there is nothing to take off the air.
        self._ask_global(f"REMOVE {radio}")
        for name in self._ports.names():
            if name not in {bss.name for each in wanted.radios for bss in wanted.on(each)}:
                self._ports.detach(name)

    def _join(self, radio: str, name: str, wanted: Wireless) -> None:
        bss, able = wanted.bsss[name], self._config.radios[radio]
        self._add(radio, name, hostapd_conf.bss_text(bss, able, wanted.radios[radio], wanted, self._place))
        # What the next start of the radio reads.
        write_atomically(self._file(radio), self._radio_text(radio, wanted))
        self._ports.attach(name, bss.slice_name)

    def _leave(self, radio: str, name: str, wanted: Wireless) -> None:
        self._ports.detach(name)
        if self._ask_global(f"REMOVE {name}") != "OK":
            raise WirelessError(f"hostapd does not take {name} off the air")
        self._file(name).unlink(missing_ok=True)
        write_atomically(self._file(radio), self._radio_text(radio, wanted))

    def _power(self, radio: str, wanted: Wireless) -> None:
        mbm = wanted.radios[radio].power_mbm
        # A radio whose power nobody has set is the driver's.
        if mbm < 0 and radio not in self._set_power:
            return
        self._run(hostapd_conf.power_command(radio, phy_of(radio), mbm))
        self._set_power.add(radio)
        # A radio's own interface may be closed, and sends with nothing then.
        shown = wanted.on(radio)[0].name
        different = hostapd_conf.power_difference(radio, mbm, self._run(["iw", "dev", shown, "info"]))
        if different is not None:
            raise WirelessError(different)

    def _add(self, phy: str, name: str, text: str) -> None:
        path = self._file(name)
        write_atomically(path, text)
        if self._ask_global(f"ADD bss_config={phy}:{path}") != "OK":
            raise WirelessError(f"hostapd refuses the configuration of {name}")

    def _radio_text(self, name: str, wanted: Wireless) -> str:
        return hostapd_conf.radio_text(self._config.radios[name], wanted.radios[name], wanted, self._place)

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.conf"

    def _ask_global(self, question: str) -> str:
        return ask(self._config.global_socket, question, CHANGE_S).strip()

    def _status(self, name: str, question: str = "STATUS") -> Mapping[str, str]:
        """What hostapd answers for a radio or BSS; nothing if it is off the air."""
        with contextlib.suppress(WirelessError):
            return hostapd_conf.fields_of(ask(f"{self._place.control}/{name}", question))
        return {}

    def _verify(self, wanted: Wireless, radios: set[str]) -> None:
        for name in sorted(radios):
            until_s = time.monotonic() + SETTLE_S
            while (different := self._difference(name, wanted)) is not None:
                if time.monotonic() >= until_s:
                    raise WirelessError(f"hostapd did not do it: {different}")
                time.sleep(0.05)

    def _difference(self, radio: str, wanted: Wireless) -> str | None:
        for bss in wanted.on(radio):
            status, configuration = self._status(bss.name), self._status(bss.name, "GET_CONFIG")
            different = hostapd_conf.difference(bss, wanted.radios[radio], status, configuration)
            if different is not None:
                return different
        return None


def phy_of(interface: str) -> str | None:
    """The radio as the driver calls it; None if the interface is none of a radio."""
    try:
        return Path(f"/sys/class/net/{interface}/phy80211/name").read_text(encoding="ascii").strip()
    except OSError:
        return None


class BridgePorts:
    """The ports of the switch's bridge that we have made; none without a bridge."""

    _mark = "external_ids:hyroads-bss=true"
    _command = ("ovs-vsctl", "--timeout=5")

    def __init__(self, bridge: str | None, run: Run) -> None:
        self._bridge = bridge
        self._run = run

    def names(self) -> list[str]:
        """Those that are there."""
        if self._bridge is None:
            return []
        ours = set(self._run([*self._command, "--bare", "--columns=name", "find", "Port", self._mark]).split())
        return [name for name in self._run([*self._command, "list-ports", self._bridge]).split() if name in ours]

    def attach(self, name: str, slice_name: str) -> None:
        """Makes an interface a port; the switch shows whose it is."""
        if self._bridge is not None:
            whose = f"external_ids:hyroads-slice={slice_name or 'production'}"
            add = [*self._command, "--may-exist", "add-port", self._bridge, name]
            self._run([*add, "--", "set", "Port", name, self._mark, whose])

    def detach(self, name: str) -> None:
        """The port goes."""
        if self._bridge is not None:
            self._run([*self._command, "--if-exists", "del-port", self._bridge, name])


class RecordedBackend:
    """Radios that are not there: it keeps what is wanted, and reports it as done.

    With a bridge each BSS becomes a pair of interfaces: one is a port of the bridge, under the name of the BSS, and
    whoever has the other is associated. What is on the air is in ``on-the-air.json`` in ``directory``, where a test or
    a person finds that name too; it holds no passphrases.
    """

    def __init__(self, config: WirelessConfig, directory: Path, run: Run) -> None:
        self._config = config
        self._run = run
        self._ports = BridgePorts(config.bridge, run)
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
        for name in self._ports.names():
            if name not in shown:
                self._ports.detach(name)
                self._run(["ip", "link", "del", name])
        for name, bss in shown.items():
            # A radio's own interface is there, and somebody else's affair.
            if name in self._config.radios:
                continue
            if all(name != each for _, each in socket.if_nameindex()):
                made = ["ip", "link", "add", name, "address", bss.bssid, "type", "veth", "peer", "name", station(name)]
                self._run(made)
                self._run(["ip", "link", "set", name, "up"])
            self._ports.attach(name, bss.slice_name)

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
