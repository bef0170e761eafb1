"""A stand-in of Mininet-WiFi's class interface, for machines without it: it keeps records, and makes nothing.

Written from the interface that Mininet-WiFi 2.7 documents: names, parameters and the order in which its parts are
called. Install it with :func:`install` before ``hyroads.mininet.wifi`` is imported.
"""

from __future__ import annotations

import sys
import types
from typing import Any, ClassVar


class Record:
    """A radio, with what was asked of it."""

    def __init__(self, node: Any, wlan: int) -> None:
        self.node, self.id, self.name = node, wlan, node.params["wlan"][wlan]
        self.mac = _of(node.params.get("mac"), wlan)
        self.asked: list[str] = []
        self.apsInRange: dict[Any, float] = {}
        self.associatedTo: Any = None
        node.addWIntf(self, port=wlan)
        node.addWAttr(self, port=wlan)

    def associate_infra(self, ap_intf: Any) -> None:
        self.asked.append(f"start {ap_intf.mac}")
        self.associatedTo = ap_intf

    def setConnected(self, ap_intf: Any) -> None:
        self.associatedTo = ap_intf

    def setDisconnected(self, ap_intf: Any) -> None:
        self.associatedTo = None

    def update_client_params(self, ap_intf: Any) -> None:
        """Channel and mode."""


def _of(value: Any, wlan: int) -> Any:
    return value[wlan] if isinstance(value, list) else value


class managed(Record):
    """A station's radio."""


class master(Record):
    """An access point's radio."""


class Node_wifi:
    """A node; ``answers`` are what its programs say, ``commands`` what it was told to run."""

    portBase = 0

    def __init__(self, name: str, **params: Any) -> None:
        self.name, self.params = name, params
        self.intfs: dict[int, Any] = {}
        self.ports: dict[Any, int] = {}
        self.wintfs: dict[int, Any] = {}
        self.nameToIntf: dict[str, Any] = {}
        self.answers: dict[str, str] = {}
        self.commands: list[str] = []
        if "position" in params:
            self.position = params["position"]

    def newPort(self) -> int:
        return max(self.ports.values(), default=self.portBase - 1) + 1

    def addWIntf(self, intf: Any, port: int | None = None) -> None:
        self.intfs[self.newPort() if port is None else port] = intf
        self.ports[intf] = self.newPort() if port is None else port
        self.nameToIntf[intf.name] = intf

    def addWAttr(self, intf: Any, port: int | None = None) -> None:
        self.wintfs[len(self.wintfs) if port is None else port] = intf
        self.nameToIntf[intf.name] = intf

    def cmd(self, *words: Any, **_options: Any) -> str:
        self.commands.append(" ".join(map(str, words)))
        return next((answer for word, answer in self.answers.items() if word in self.commands[-1]), "")

    def pexec(self, *words: Any, **_options: Any) -> tuple[str, str, int]:
        return self.cmd(*words), "", 0


class Station(Node_wifi):
    """A station."""


class OVSAP(Node_wifi):
    """An access point with Open vSwitch."""

    portBase = 1

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **params)
        self.started: list[Any] = []

    def start(self, controllers: Any) -> None:
        self.started = list(controllers)

    def stop(self, deleteIntfs: bool = True) -> None:
        self.started = []


class Mininet_wifi:
    """The network."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.stations: list[Any] = []
        self.aps: list[Any] = []
        self.switches: list[Any] = []
        self.controllers: list[Any] = []
        self.links: list[tuple[Any, Any, dict[str, Any]]] = []
        self.nameToNode: dict[str, Any] = {}
        self.calls: list[str] = []

    def __getitem__(self, name: str) -> Any:
        return self.nameToNode[name]

    def _add(self, kind: list[Any], cls: Any, name: str, first: int, params: dict[str, Any]) -> Any:
        node = cls(name, **params)
        wlans = node.params.pop("wlans", 1)
        node.params["wlan"] = [f"{name}-wlan{first + number}" for number in range(wlans)]
        kind.append(node)
        self.nameToNode[name] = node
        return node

    def addStation(self, name: str, cls: Any = None, **params: Any) -> Any:
        return self._add(self.stations, cls or self.options["station"], name, 0, params)

    def addAccessPoint(self, name: str, cls: Any = None, **params: Any) -> Any:
        return self._add(self.aps, cls or self.options["accessPoint"], name, 1, params)

    def addSwitch(self, name: str, cls: Any = None, **params: Any) -> Any:
        node = types.SimpleNamespace(name=name, cls=cls, params=params)
        self.switches.append(node)
        self.nameToNode[name] = node
        return node

    def addController(self, name: str, controller: Any = None, **params: Any) -> Any:
        node = types.SimpleNamespace(name=name, cls=controller, params=params)
        self.controllers.append(node)
        return node

    def addLink(self, node1: Any, node2: Any = None, **params: Any) -> None:
        self.links.append((node1, node2, params))

    def configureNodes(self) -> None:
        self.calls.append("configureNodes")
        for kind, nodes in ((managed, self.stations), (master, self.aps)):
            for node in nodes:
                for wlan in range(len(node.params["wlan"])):
                    kind(node, wlan)

    def build(self) -> None:
        self.calls.append("build")

    def start(self) -> None:
        if "build" not in self.calls:
            self.build()
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")
        self.closeMininetWiFi()

    def closeMininetWiFi(self) -> None:
        raise AssertionError("Mininet-WiFi's own clean-up ends every hostapd of the machine")


class Mac80211Hwsim:
    """Radios."""

    @classmethod
    def reset(cls) -> None:
        """Forgets all radios."""

    def assign_iface(self, node: Any, phys: list[str], wlan_list: list[str], *_rest: Any, **_params: Any) -> None:
        wlan_list.pop(0)
        phys.pop(0)


class Mobility:
    """What moves."""

    aps: ClassVar[list[Any]] = []
    stations: ClassVar[list[Any]] = []
    mobileNodes: ClassVar[list[Any]] = []


class CLI:
    """The prompt."""


def modules() -> dict[str, types.ModuleType]:
    """The package ``mn_wifi`` with the modules that are used."""
    found = {name: types.ModuleType(name) for name in ("mn_wifi", *(f"mn_wifi.{part}" for part in PARTS))}
    found["mn_wifi"].__path__ = []
    for part, members in PARTS.items():
        setattr(found["mn_wifi"], part, found[f"mn_wifi.{part}"])
        for member in members:
            setattr(found[f"mn_wifi.{part}"], member.__name__, member)
    return found


PARTS: dict[str, tuple[Any, ...]] = {
    "net": (Mininet_wifi, Mac80211Hwsim),
    "cli": (CLI,),
    "link": (managed, master),
    "mobility": (Mobility,),
    "module": (Mac80211Hwsim,),
    "node": (Node_wifi, Station, OVSAP),
}


def install(monkeypatch: Any) -> None:
    """Puts the stand-in where Python looks, until the test ends; our modules are imported anew."""
    for name in [name for name in sys.modules if name.startswith("hyroads.mininet.wifi")]:
        monkeypatch.delitem(sys.modules, name)
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
