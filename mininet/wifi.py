"""A network file as a network of Mininet-WiFi: its WiFi on mac80211_hwsim, everything else on the shared medium.

    from hyroads.mininet.wifi import wifi_net

    net = wifi_net("campus.yaml")       # a mn_wifi.net.Mininet_wifi
    net.setPropagationModel(model="logDistance", exp=4)
    net.start()

What Mininet-WiFi moves, the controller follows: by associations, as an access point's hostapd tells them. Mininet-WiFi
is the user's own (``wifi_import``).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import Network, Role
from hyroads.controller.files.documents import read_file
from hyroads.controller.kernel.generic_netlink import GenericNetlink, family_id
from hyroads.controller.kernel.netlink import NetlinkError, text_attribute

from . import wifi_import
from .controllers import HyroadsController
from .factory import factory_address
from .hybrid import HybridNode, temporary_directory
from .programs import EmulationError, check_prerequisites
from .run_directory import find_network, network_document
from .shared_medium import Medium, MediumLink, SharedMedium
from .wifi_nodes import FREQUENCIES_MHZ, BridgedStation, HybridAP, HybridStation

wifi_import.load()

import mn_wifi.net  # noqa: E402
from mn_wifi.cli import CLI  # noqa: E402
from mn_wifi.mobility import Mobility  # noqa: E402
from mn_wifi.module import Mac80211Hwsim  # noqa: E402
from mn_wifi.net import Mininet_wifi  # noqa: E402

__all__ = ["CLI", "HybridAP", "HybridStation", "HyroadsController", "WifiNet", "wifi_net"]

RADIO_BACK_S = 1.0
DEFAULT_CHANNELS = (1, 6, 11)
WIFI = "wifi"
_HWSIM = "MAC80211_HWSIM"
_NEW_RADIO, _DEL_RADIO = 4, 5
_RADIO_ID, _RADIO_NAME = 10, 17
_TOOLS = {"iw": "iw", "hostapd": "hostapd", "wpa_supplicant": "wpasupplicant", "wpa_cli": "wpasupplicant"}


def is_radio(network: Network, technology: str) -> bool:
    """Whether Mininet-WiFi's radios carry a technology: the file marks it with ``radio``, or it is called wifi...

    Its links join access points and clients. EmulationError for a marked one whose links do not.
    """
    marked = network.radios
    links = [link for link in network.links if link.technology == technology]
    roles = [{network.nodes[end].role for end in (link.source, link.target)} for link in links]
    is_cell = all(pair == {Role.AP, Role.CLIENT} for pair in roles)
    if technology in marked and not is_cell:
        raise EmulationError(f"technology {technology}: on Mininet-WiFi a radio joins access points and clients only")
    return is_cell and (technology in marked or (not marked and technology.startswith(WIFI)))


def with_radio_names(network: Network) -> Network:
    """The network with its radios called as Mininet-WiFi calls them: ``ap1-wlan1``, ``sta1-wlan0``.

    Raises EmulationError where the file itself calls a radio otherwise.
    """
    nodes = {}
    for name, node in network.nodes.items():
        radios = [k for k in network.technologies_of[name] if is_radio(network, k)]
        first = 1 if node.role is Role.AP else 0
        names = {k: f"{name}-wlan{number}" for number, k in enumerate(radios, start=first)}
        for technology in names.keys() & node.ports.keys():
            if node.ports[technology] != names[technology]:
                wrong, right = node.ports[technology], names[technology]
                raise EmulationError(f"node {name}: Mininet-WiFi calls its {technology} {right}, the file {wrong}")
        nodes[name] = replace(node, ports={**node.ports, **names})
    return replace(network, nodes=nodes)


def without_radios(network: Network) -> Network:
    """What the shared medium carries: the network's other technologies."""
    document = to_document(network)
    radios = {k for k in network.technologies if is_radio(network, k)}
    document["links"] = [link for link in document["links"] if link["technology"] not in radios]
    if isinstance(document.get("technologies"), dict):
        document["technologies"] = {k: v for k, v in document["technologies"].items() if k not in radios}
    for node in document["nodes"].values():
        node["ports"] = {k: name for k, name in node.get("ports", {}).items() if k not in radios}
    document.pop("flows", None)
    return parse(document, "what is not WiFi")


def wifi_net(
    network: str | Network,
    *,
    directory: Path | None = None,
    controller: bool = True,
    ssids: Mapping[str, str] | None = None,
    channels: Mapping[str, int] | None = None,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> WifiNet:
    """A network of Mininet-WiFi from a network file (a path, or the name of one that comes with HyRoads).

    It has all nodes of the file; stations and hosts of your own can be added until ``configureNodes``, which also makes
    the file's wires; ``start`` calls it if you did not. Every cell has WPA2 with a random key.

    ``directory`` takes logs and sockets (default: one that goes with the process). ``controller`` starts ours; without
    it add one to the network, or to the slicer. ``ssids`` and ``channels`` are by technology (default: ``hyroads`` and
    1, 6, 11 in turn), ``params`` by node: more parameters of Mininet-WiFi, such as ``position`` and ``range``.
    ``options`` are those of :class:`WifiNet` and of ``Mininet_wifi``.
    """
    loaded = read_file(find_network(network)) if isinstance(network, str) else network
    net = WifiNet(loaded, directory or temporary_directory(), **options)
    cells = Cells(net.network, ssids or {}, channels or {})
    for name in net.network.nodes:
        net.add_device(name, cells, (params or {}).get(name, {}))
    unknown = (params or {}).keys() - net.network.nodes.keys()
    if unknown:
        raise EmulationError(f"params: the network file has no node {min(unknown)}")
    if controller:
        net.addController("c0", controller=HyroadsController, network=str(net.document))
    return net


class Cells:
    """SSID, channel and key of each WiFi technology."""

    def __init__(self, network: Network, ssids: Mapping[str, str], channels: Mapping[str, int]) -> None:
        self.technologies = [k for k in network.technologies if is_radio(network, k)]
        for given in (ssids, channels):
            unknown = given.keys() - set(self.technologies)
            if unknown:
                raise EmulationError(f"{min(unknown)}: the network file has no such WiFi technology")
        default = {k: DEFAULT_CHANNELS[i % len(DEFAULT_CHANNELS)] for i, k in enumerate(self.technologies)}
        marked = {k: radio.channel for k, radio in network.radios.items() if k in default}
        self.channels = {**default, **marked, **channels}
        for technology, channel in self.channels.items():
            if channel not in FREQUENCIES_MHZ:
                raise EmulationError(f"channel {channel} of {technology}: expected one of 20 MHz, such as 1 or 36")
        self.ssids = {k: ssids.get(k, "hyroads" if len(self.technologies) == 1 else f"hyroads-{k}")
                      for k in self.technologies}  # fmt: skip
        self.keys = {k: secrets.token_hex(12) for k in self.technologies}

    def access_point(self, technologies: Iterable[str]) -> dict[str, Any]:
        """Mininet-WiFi's parameters of an access point with a radio for each technology."""
        on = list(technologies)
        return {
            "wlans": len(on),
            "ssid": [self.ssids[k] for k in on],
            "channel": [str(self.channels[k]) for k in on],
            "mode": ["g" if self.channels[k] < 36 else "a" for k in on],
            "encrypt": ["wpa2"] * len(on),
            "passwd": [self.keys[k] for k in on],
        }

    def station(self, technologies: Iterable[str]) -> dict[str, Any]:
        """Mininet-WiFi's parameters of a station; it scans where its cells are, and nowhere else."""
        on = list(technologies)
        frequencies = [str(FREQUENCIES_MHZ[self.channels[k]]) for k in on]
        return {
            "wlans": len(on),
            "encrypt": ["wpa2"] * len(on),
            "passwd": [self.keys[k] for k in on],
            "scan_freq": frequencies,
            "freq_list": frequencies,
        }


class WifiNet(Mininet_wifi):  # type: ignore[misc]  # Mininet-WiFi has no types
    """Mininet-WiFi's network of a network file; :func:`wifi_net` fills it.

    Radios come from the kernel directly, and ``stop`` ends what this network started, where Mininet-WiFi's own ends
    every hostapd of the machine and unloads the module.
    """

    def __init__(
        self,
        network: Network,
        directory: Path,
        *,
        realtime: bool = False,
        bound_to_parent: bool = True,
        medium_options: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        _check_machine()
        self.network = with_radio_names(network)
        self.addressing = Addressing.of(self.network)
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.document = directory / "network.json"
        text = json.dumps(network_document(self.network, self.addressing), indent=1)
        self.document.write_text(text, encoding="utf-8")
        self._common: dict[str, Any] = {"directory": directory, "realtime": realtime}
        self._common["bound_to_parent"] = bound_to_parent
        wired = without_radios(self.network)
        self.shared = SharedMedium(wired, self.addressing, options=medium_options or {}, **self._common)
        self.bridged: list[BridgedStation] = []
        self._configured = False
        self._radios: list[int] = []
        super().__init__(controller=None, accessPoint=HybridAP, station=HybridStation, ipBase="10.0.0.0/16", **options)

    def technologies(self, node: str) -> list[str]:
        """The WiFi technologies of a node, in the order of its radios."""
        return [k for k in self.addressing.technologies(node) if is_radio(self.network, k)]

    def add_device(self, name: str, cells: Cells, params: Mapping[str, Any]) -> Any:
        """Adds a node of the file as what it is in Mininet-WiFi; ``params`` win over the file."""
        node, radios = self.network.nodes[name], self.technologies(name)
        given: dict[str, Any] = {}
        if node.position_m is not None and radios:
            given["position"] = f"{node.position_m[0]},{node.position_m[1]},0"
        macs = [factory_address(self.addressing, name, k) for k in radios]
        if node.role is Role.AP and radios:
            given |= {**cells.access_point(radios), "mac": macs, **params}
            return self.addAccessPoint(name, network=self.addressing, radios=radios, **self._common, **given)
        if node.is_plain_client:
            if not radios:
                raise EmulationError(f"node {name}: a client without agent and without WiFi is not emulated here")
            # A plain client has one interface, whatever cells it may be in: the cell that it is in at first.
            given |= {**cells.station(radios[:1]), **params}
            return self.addStation(name, network=self.addressing, **given)
        if not radios:
            return self.addSwitch(name, cls=HybridNode, addressing=self.addressing, **self._common, **params)
        given |= {**cells.station(radios), "mac": macs, **params}
        station = self.addStation(name, cls=BridgedStation, addressing=self.addressing, **self._common, **given)
        self.bridged.append(station)
        return station

    def configureNodes(self) -> None:  # Mininet-WiFi's names from here on
        """Makes radios and wires, and starts every hostapd."""
        _check_kernel()
        self._configured = True
        theirs = mn_wifi.net.Mac80211Hwsim
        mn_wifi.net.Mac80211Hwsim = radios_of(self._radios)
        try:
            super().configureNodes()
        finally:
            mn_wifi.net.Mac80211Hwsim = theirs
        for technology in self.shared.network.technologies:
            name = technology if technology not in self.nameToNode else f"medium-{technology}"
            medium = self.addSwitch(name, cls=Medium, shared=self.shared, technology=technology)
            for node in self.shared.network.nodes:
                if technology in self.shared.network.technologies_of[node]:
                    self._add_port(node, medium, technology)

    def _add_port(self, node: str, medium: Medium, technology: str) -> None:
        name = self.addressing.interface_name[node, technology]
        end = {"intfName1": name, "addr1": factory_address(self.addressing, node, technology)}
        self.addLink(self[node], medium, cls=MediumLink, **end)

    def build(self) -> None:
        """As Mininet-WiFi's, once all nodes are configured."""
        if not self._configured:
            self.configureNodes()
        super().build()

    def start(self) -> None:
        """Starts controllers, bridges, agents; stations without a position go to the access point of the file."""
        super().start()
        for station in self.bridged:
            station.start(self.controllers)
        for station in self.stations:
            self._associate(station)

    def _associate(self, station: Any) -> None:
        """Without a position nothing says which access points are in range: the file does."""
        if hasattr(station, "position") or station.name not in self.network.nodes:
            return
        attachment = self.addressing.attachment(station.name) if station not in self.bridged else None
        for number, technology in enumerate(self.technologies(station.name)[: len(station.wintfs)]):
            where = attachment.node if attachment is not None else self._strongest(station.name, technology)
            radios = self.technologies(where)
            if technology in radios:
                station.wintfs[number].associate_infra(self[where].wintfs[radios.index(technology)])

    def _strongest(self, client: str, technology: str) -> str:
        """The access point whose link to a client has the highest capacity in the file."""
        ends = [link for link in self.network.links if link.technology == technology and link.target == client]
        return max(ends, key=lambda link: link.capacity_mbps).source

    def stop(self) -> None:
        """Ends all of it."""
        for station in self.bridged:
            # Its interfaces end with their links.
            station.stop(deleteIntfs=False)
        super().stop()
        remove_radios(self._radios)

    def closeMininetWiFi(self) -> None:
        """Ends what this process started for radios, and forgets what Mininet-WiFi keeps between networks."""
        Mobility.aps, Mobility.stations, Mobility.mobileNodes = [], [], []
        Mac80211Hwsim.reset()
        end_radio_programs()
        for station in self.stations:
            for number, name in enumerate(station.params["wlan"]):
                Path(f"{name}_{number}.staconf").unlink(missing_ok=True)


def radios_of(made: list[int]) -> type[Any]:
    """Mininet-WiFi's class for radios, which makes them by netlink; their numbers are added to ``made``.

    In its place Mininet-WiFi runs ``hwsim_mgmt``, a program that is no package, and finds the radios in debugfs.
    """
    names: list[str] = []

    class Radios(Mac80211Hwsim):  # type: ignore[misc]
        externally_managed = True

        def create_hwsim(self, n: int) -> None:
            name = f"mn{os.getpid():05d}n{_namespace_number()}s{n:02d}"
            with GenericNetlink(_HWSIM) as kernel:
                made.append(kernel.command(_NEW_RADIO, text_attribute(_RADIO_NAME, name)))
            names.append(name)

        def get_hwsim_list(self) -> str:
            return f"printf '%s\\n' {' '.join(names)}"

        def assign_iface(self, node: Any, phys: list[str], wlan_list: list[str], *rest: Any, **params: Any) -> None:
            if not isinstance(node, BridgedStation):
                super().assign_iface(node, phys, wlan_list, *rest, **params)
                return
            for name in node.params["wlan"]:
                # Beside the bridges, not in the host's namespace.
                subprocess.run(["ip", "link", "set", wlan_list.pop(0), "down", "name", name], check=True)
                phys.pop(0)

    return Radios


def _namespace_number() -> int:
    """Radios have one name in all network namespaces, process ids are repeated in process namespaces."""
    return Path("/proc/self/ns/net").stat().st_ino % 100_000


def remove_radios(made: list[int]) -> None:
    """Removes radios of this process. A station's comes back when its namespace has ended, which takes a moment."""
    until_s = time.monotonic() + RADIO_BACK_S
    with suppress(NetlinkError), GenericNetlink(_HWSIM) as kernel:
        while made and time.monotonic() < until_s:
            for number in made.copy():
                with suppress(NetlinkError):
                    kernel.command(_DEL_RADIO, struct.pack("=HHI", 8, _RADIO_ID, number))
                    made.remove(number)
            time.sleep(0.05 if made else 0.0)
    made.clear()


def end_radio_programs() -> None:
    """Ends every hostapd and wpa_supplicant that Mininet-WiFi started for this process, and removes their files.

    Their files in the present directory carry this process's number.
    """
    mine = f"mn{os.getpid()}_"
    for entry in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with suppress(OSError):
            program, *words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if Path(program).name in {"hostapd", "wpa_supplicant"} and any(word.startswith(mine) for word in words):
                os.kill(int(entry.name), signal.SIGTERM)
    for path in Path().glob(f"{mine}*"):
        path.unlink(missing_ok=True)


def _check_machine() -> None:
    check_prerequisites()
    missing = sorted({package for tool, package in _TOOLS.items() if shutil.which(tool) is None})
    if missing:
        raise EmulationError(f"missing system packages: {' '.join(missing)} (apt-get install {' '.join(missing)})")


def _check_kernel() -> None:
    if family_id(_HWSIM) is None:
        # Without radios: each network makes its own.
        command = ["modprobe", "-q", "mac80211_hwsim", "radios=0"]
        with suppress(OSError):
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    if family_id(_HWSIM) is None:
        raise EmulationError("this kernel has no mac80211_hwsim, on which Mininet-WiFi's radios run (scripts/guest.sh)")
