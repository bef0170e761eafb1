"""Access points and stations of Mininet-WiFi that take names, addresses and datapath from a network file.

``HybridAP`` and ``HybridStation`` stand where Mininet-WiFi's ``OVSAP`` and ``Station`` do, in any script of it; see
``wifi.py`` for whole networks. An access point's bridge speaks OpenFlow 1.3 and drops what no rule carries, its hostapd
offers 802.11v and 802.11k, and an agent beside it tells the controller who is associated. A station whose
wpa_supplicant runs roams by it, instead of starting a second one.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file

from . import wifi_import
from .hybrid import (
    AGENT_CONTROLLER,
    HOST_PREFIX_LENGTH,
    OPENFLOW,
    HybridNode,
    datapath_type,
    edge_agent,
    temporary_directory,
)
from .programs import HYROADS, EmulationError, Program, run
from .run_directory import find_network
from .shared_medium import AGENT_MTU, MEDIA_MTU, make_tap

wifi_import.load()

from mn_wifi.link import managed  # noqa: E402
from mn_wifi.node import OVSAP, Node_wifi, Station  # noqa: E402

HOSTAPD_SOCKETS = Path("/var/run/hostapd")
HOSTAPD_LINES = (
    f"ctrl_interface={HOSTAPD_SOCKETS}",
    # Frames between stations go through the bridge, too: hostapd knows no rules.
    "ap_isolate=1",
    # 802.11v: stations can be asked to go elsewhere. 802.11k: they can ask where to.
    "bss_transition=1",
    "rrm_neighbor_report=1",
)
_SECTION = re.compile(r"^(?=(?:interface|bss)=)", re.MULTILINE)
_START_HOSTAPD = re.compile(r"\s*hostapd -B (\S+)")
FREQUENCIES_MHZ = {channel: 2407 + 5 * channel for channel in range(1, 14)} | {
    channel: 5000 + 5 * channel for channel in (*range(36, 65, 4), *range(100, 145, 4), *range(149, 166, 4))
}
"""Middle frequency of a channel in MHz, 2.4 and 5 GHz."""

AnyNetwork = Network | Addressing | str | None
"""A network file's name, a loaded network, or its addressing."""


def addressing_of(network: AnyNetwork) -> Addressing | None:
    """The addressing of whatever names a network."""
    if network is None or isinstance(network, Addressing):
        return network
    return Addressing.of(read_file(find_network(network)) if isinstance(network, str) else network)


def with_lines(text: str) -> str:
    """A file of hostapd with ``HOSTAPD_LINES`` in each of its BSSs, where they do not say otherwise."""
    sections = []
    for section in _SECTION.split(text):
        keys = {line.partition("=")[0] for line in section.splitlines()}
        missing = [line for line in HOSTAPD_LINES if line.partition("=")[0] not in keys]
        sections.append("\n".join([section.rstrip("\n"), *missing]) + "\n" if section.strip() else section)
    return "".join(sections)


class HybridAP(OVSAP):  # type: ignore[misc]  # Mininet-WiFi has no types
    """An access point: datapath id and addresses of the network file, OpenFlow 1.3, hostapd with 802.11v and 802.11k.

    ``network`` is the network file; without it all is as in Mininet-WiFi but the bridge and hostapd. ``radios`` are the
    technologies of its radios in order (default: those whose interface in the file is called as Mininet-WiFi calls it,
    which the node's ``ports`` say). ``channel_to`` is where its agents find the controller, None: it has none.
    """

    # Overridden in tests by what starts nothing.
    program: ClassVar[type[Program]] = Program

    def __init__(
        self,
        name: str,
        *,
        network: AnyNetwork = None,
        radios: Collection[str] | None = None,
        directory: Path | None = None,
        channel_to: str | None = AGENT_CONTROLLER,
        realtime: bool = False,
        bound_to_parent: bool = True,
        **params: Any,
    ) -> None:
        self.addressing = addressing_of(network)
        self.directory = directory or temporary_directory()
        self.channel_to = channel_to
        self.realtime, self.bound_to_parent = realtime, bound_to_parent
        self._radios = None if radios is None else tuple(radios)
        self._programs: list[Program] = []
        # Not in a batch: the bridge must be complete when the agent starts.
        params.pop("batch", None)
        kernel = "kernel" if datapath_type() == "system" else "user"
        given = {"protocols": OPENFLOW, "failMode": "secure", "datapath": kernel, "client_isolation": True, **params}
        if self.addressing is not None:
            if name not in self.addressing.dpid:
                raise EmulationError(f"{name}: the network file has no such node with a switch")
            given["dpid"] = f"{self.addressing.dpid[name]:x}"
        super().__init__(name, **given)

    @classmethod
    def setup(cls) -> None:
        """Asks Open vSwitch for its version; Mininet ends the program if that takes more than a second."""
        run("ovs-vsctl", "--timeout=20", "show")
        found = re.search(r"\d+\.\d+", run("ovs-vsctl", "--version"))
        cls.OVSVersion = found[0] if found is not None else "3.0"

    @classmethod
    def batchStartup(cls, aps: Any, run: Any = None) -> Any:  # Mininet's names
        """Mininet-WiFi starts bridges in a batch after ``start``; ours are complete by then."""
        return aps

    @classmethod
    def batchShutdown(cls, aps: Any, run: Any = None) -> Any:
        """Stops them one by one: there is more to stop than a bridge."""
        for ap in aps:
            ap.stop()
        return aps

    def cmd(self, *arguments: Any, **options: Any) -> Any:
        """As Mininet's; what starts hostapd finds its file completed."""
        found = _START_HOSTAPD.match(" ".join(map(str, arguments)))
        if found is not None:
            complete_file(Path(found[1]))
        return super().cmd(*arguments, **options)

    def addWIntf(self, intf: Any, port: int | None = None) -> None:  # Mininet-WiFi's name
        """Records an interface once: Mininet-WiFi records radios again, from port 0, and loses some of several."""
        if intf.name not in self.nameToIntf:
            super().addWIntf(intf, port)

    def vsctl(self, *arguments: Any, **_options: Any) -> str:
        """As Mininet's, but what fails is an EmulationError: Mininet does not look."""
        return run("ovs-vsctl", "--timeout=20", *shlex.split(" ".join(map(str, arguments))))

    def radio_names(self) -> dict[str, str]:
        """Technology -> interface, of the radios that the network file knows."""
        interfaces = [intf.name for intf in self.wintfs.values()]
        if self._radios is not None:
            return dict(zip(self._radios, interfaces, strict=False))
        if self.addressing is None:
            return {}
        known = {self.addressing.interface_name[self.name, k]: k for k in self.addressing.technologies(self.name)}
        named = {known[name]: name for name in interfaces if name in known}
        if interfaces and not named:
            ports = f"nodes.{self.name}.ports: {{wifi: {interfaces[0]}}}"
            raise EmulationError(f"{self.name}: the network file has no interface {interfaces[0]}; say {ports}")
        return named

    def start(self, controllers: Any) -> None:
        """Makes the bridge, then starts the agents."""
        radios = self.radio_names()
        has_agent = self.addressing is not None and self.addressing.has_agent(self.name)
        taps = self._agent_ports() if has_agent else ()
        for port in taps:
            make_tap(port, None, AGENT_MTU, None)
        for intf in self.wintfs.values():
            run("ip", "link", "set", intf.name, "mtu", str(MEDIA_MTU))
        super().start(controllers)
        for port in taps:
            run("ovs-vsctl", "--timeout=20", "--may-exist", "add-port", self.name, port)
        if self.channel_to is not None and self.addressing is not None:
            self._programs = [self._ap_agent(radios), *([self._edge_agent()] if has_agent else [])]
            for program in self._programs:
                program.start()

    def stop(self, deleteIntfs: bool = True) -> None:  # Mininet's name
        """Ends the agents, then removes the bridge."""
        for program in self._programs:
            program.stop()
        self._programs = []
        super().stop(deleteIntfs)
        if self.addressing is not None and self.addressing.has_agent(self.name):
            for port in self._agent_ports():
                with suppress(EmulationError):
                    run("ip", "link", "del", port)

    @property
    def agent(self) -> Program | None:
        """``hyroads-edge`` of this access point, if it runs one."""
        return next((program for program in self._programs if program.name.startswith("hyroads-edge")), None)

    def _agent_ports(self) -> tuple[str, str]:
        assert self.addressing is not None  # noqa: S101
        return self.addressing.agent_access_port[self.name], self.addressing.agent_network_port[self.name]

    def _edge_agent(self) -> Program:
        where = (self.directory, str(self.channel_to), self.realtime, self.bound_to_parent)
        return edge_agent(self.name, self._agent_ports(), *where)

    def _ap_agent(self, radios: dict[str, str]) -> Program:
        """Follows the hostapd of each radio."""
        hostapd = [{"socket": str(HOSTAPD_SOCKETS / name), "technology": k} for k, name in radios.items()]
        path = self.directory / f"ap-{self.name}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps({"node": self.name, "hostapd": hostapd}), encoding="utf-8")
        command = [*HYROADS, "ap-agent", "--config", str(path), "--channel", str(self.channel_to)]
        log = self.directory / f"ap-{self.name}.log"
        return self.program(f"ap-agent of {self.name}", command, log, bound_to_parent=self.bound_to_parent)


def complete_file(path: Path) -> None:
    """Adds to a file of hostapd what HyRoads needs of it; a file that is not there is hostapd's to complain of."""
    if path.is_file():
        path.write_text(with_lines(path.read_text(encoding="utf-8")), encoding="utf-8")


class RoamingRadio(managed):  # type: ignore[misc]
    """A station's radio whose wpa_supplicant goes on running: a new access point is roamed to.

    Mininet-WiFi starts a wpa_supplicant for each association of a station with WPA2, of which only the first can run;
    the association would then be wpa_supplicant's choice, whatever the propagation model says.
    """

    settle_s = 5.0
    """How long to wait for an association before it is left to wpa_supplicant."""

    def associate_infra(self, ap_intf: Any) -> None:
        """Goes to an access point's radio; nothing is done where it is there already."""
        status = self._supplicant("status")
        if "wpa_state=" not in status:
            super().associate_infra(ap_intf)
        elif "wpa_state=COMPLETED" not in status:
            self._supplicant("reconnect")
        self._settle_at(ap_intf.mac)
        self.setConnected(ap_intf)
        self.update_client_params(ap_intf)

    def _settle_at(self, mac: str) -> None:
        """Roams to an address once the supplicant is associated: which access point that is first, it chooses."""
        until_s = time.monotonic() + self.settle_s
        while "wpa_state=COMPLETED" not in (status := self._supplicant("status")) and time.monotonic() < until_s:
            time.sleep(0.05)
        if "wpa_state=COMPLETED" in status and f"bssid={mac.lower()}" not in status.splitlines():
            self._supplicant("roam", mac)

    def disconnect(self, ap_intf: Any) -> None:
        """Leaves an access point: at once if no other is in range, else by roaming to that."""
        if all(ap is ap_intf.node for ap in self.apsInRange):
            self._supplicant("disconnect")
        self.setDisconnected(ap_intf)

    def _supplicant(self, *words: str) -> str:
        """wpa_supplicant's answer; empty where none runs. In a process of its own: mobility is another thread."""
        output, _errors, _status = self.node.pexec(f"wpa_cli -i {self.name} {' '.join(words)}")
        return str(output)

    disconnect_pexec = disconnect


class HybridStation(Station):  # type: ignore[misc]
    """A station without agent: MAC and IP of the network file, and a radio that roams (:class:`RoamingRadio`)."""

    def __init__(self, name: str, network: AnyNetwork = None, **params: Any) -> None:
        self.addressing = addressing_of(network)
        given = dict(params)
        if self.addressing is not None:
            if name not in self.addressing.attachments:
                raise EmulationError(f"{name}: the network file has no such client without agent")
            given["mac"] = self.addressing.host_mac[name]
            given["ip"] = f"{self.addressing.host_ip[name]}/{HOST_PREFIX_LENGTH}"
        super().__init__(name, **given)

    def addWAttr(self, intf: Any, port: int | None = None) -> None:  # Mininet-WiFi's name
        """Takes a radio; Mininet-WiFi makes them itself, of a class of its own."""
        super().addWAttr(intf, port)
        roam_by_supplicant(intf)


def roam_by_supplicant(intf: Any) -> None:
    """Makes a station's radio one that roams."""
    if type(intf) is managed:
        intf.__class__ = RoamingRadio


class BridgedStation(HybridNode, Node_wifi):  # type: ignore[misc]
    """A client with an agent: its radios are ports of its own bridge, its shell is the host behind that bridge.

    What Mininet-WiFi runs for a radio (iw, wpa_cli, tc) runs where the radios are, beside the bridges; everything else
    runs on the host, as for every :class:`HybridNode`.
    """

    FIRST_WIRED_PORT = 8
    """Mininet-WiFi numbers ports of radios from 0."""

    def __init__(self, name: str, addressing: Addressing, directory: Path, **params: Any) -> None:
        self.wintfs: dict[int, Any] = {}
        self.wports: dict[Any, int] = {}
        super().__init__(name, addressing, directory, **params)

    def newPort(self) -> int:  # Mininet's names from here on
        """Ports of wires come after those of radios."""
        return max(int(Node_wifi.newPort(self)), self.FIRST_WIRED_PORT)

    def config(self, **_params: Any) -> dict[str, object]:
        """The host has its addresses already."""
        return {}

    def addWAttr(self, intf: Any, port: int | None = None) -> None:
        """Takes a radio."""
        super().addWAttr(intf, port)
        roam_by_supplicant(intf)

    def cmd(self, *arguments: Any, **options: Any) -> Any:
        """Runs a command on the host, or beside the bridges if it is for a radio."""
        text = " ".join(map(str, arguments))
        return self._beside(text)[0] if self._is_for_radio(text) else super().cmd(*arguments, **options)

    def pexec(self, *arguments: Any, **options: Any) -> Any:
        """As ``cmd``; returns output, errors and exit status."""
        text = " ".join(map(str, arguments))
        return self._beside(text) if self._is_for_radio(text) else super().pexec(*arguments, **options)

    def _is_for_radio(self, text: str) -> bool:
        names = [re.escape(name) for name in self.params.get("wlan", ())]
        return bool(names) and re.search(rf"(?<![\w-])(?:{'|'.join(names)})(?![\w-])", text) is not None

    @staticmethod
    def _beside(text: str) -> tuple[str, str, int]:
        done = subprocess.run(text, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
        return done.stdout, done.stderr, done.returncode

    def start(self, controllers: Any) -> None:
        """Makes the bridge, with room for labels on the radios."""
        for intf in self.wintfs.values():
            run("ip", "link", "set", intf.name, "mtu", str(MEDIA_MTU))
        super().start(controllers)
