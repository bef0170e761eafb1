"""Other people's devices near the access points, by IEEE 1905.1, and what each says of its links. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hyroads.controller.agents.al_devices import AlDevice, AlDevices, AlLink
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.network import GRAPH_PROPERTIES, graph_link, graph_node

FOREIGN = "foreign"
"""The role of a node that is not ours: no rule concerns it, and no flow begins or ends there."""
_MEDIA = {
    0x0000: "802.3u", 0x0001: "802.3ab", 0x0100: "802.11b", 0x0101: "802.11g", 0x0102: "802.11a", 0x0103: "802.11n",
    0x0104: "802.11n", 0x0105: "802.11ac", 0x0106: "802.11ad", 0x0107: "802.11af", 0x0200: "1901 wavelet",
    0x0201: "1901 FFT", 0x0300: "MoCA",
}  # fmt: skip
"""IEEE Std 1905.1-2013, table 6-12."""


class ForeignDevices:
    """What access points report, by node; a node whose session ends no longer counts. ``interface_name`` are the names
    of nodes' ports by (node, technology).
    """

    def __init__(self, interface_name: Mapping[Interface, str]) -> None:
        self._reports: dict[str, AlDevices] = {}
        self._technology = {(node, name): technology for (node, technology), name in interface_name.items()}

    def report(self, node: str, devices: AlDevices) -> None:
        """All devices that a node hears now."""
        self._reports[node] = devices

    def down(self, node: str) -> None:
        """A node reports nothing any more."""
        self._reports.pop(node, None)

    def document(self) -> list[dict[str, Any]]:
        """The devices in the order of their addresses, without the network's own access points.

        Where several access points report one device, its links are those that the first of them (by name) reports.
        """
        found: dict[str, dict[str, Any]] = {}
        for node, devices in self._heard():
            for device in devices:
                entry = found.setdefault(device.al, {"al": device.al, "heard_by": [], "links": _links(device)})
                entry["heard_by"] += (
                    {"node": node, "interface": heard.interface, "mac": heard.mac} for heard in device.heard
                )
        return [found[al] for al in sorted(found)]

    def busy(self) -> dict[Interface, float]:
        """By interface of an access point: the greatest share of time in which a device that it hears there finds the
        medium busy, as that device says of links of the interface that is heard. Own traffic is part of it.
        """
        found: dict[Interface, float] = {}
        for node, devices in self._heard():
            for device in devices:
                for heard in device.heard:
                    technology = self._technology.get((node, heard.interface))
                    shares = [link.busy for link in device.links if link.mac == heard.mac]
                    if technology is not None and shares:
                        found[node, technology] = max(found.get((node, technology), 0.0), *shares)
        return found

    def topology(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Nodes of role ``foreign``, and their links to own nodes and to each other, as ``GET /topology`` has nodes and
        links. Capacity and busy time are what the devices say; no path leads over them.
        """
        own = {report.al: node for node, report in self._reports.items()}
        devices: dict[str, AlDevice] = {}
        technology: dict[tuple[str, str], str] = {}
        for node, of in self._heard():
            for device in of:
                devices.setdefault(device.al, device)
                for heard in device.heard:
                    known = self._technology.get((node, heard.interface))
                    if known is not None:
                        technology.setdefault((device.al, heard.mac), known)
        ids = {**{al: al for al in devices}, **own}
        links = [
            _link_document(device, link, ids[link.to_al], technology.get((al, link.mac)))
            for al, device in sorted(devices.items())
            for link in device.links
            if link.to_al in ids and link.to_al != al
        ]
        return [_node_document(al) for al in sorted(devices)], links

    def _heard(self) -> Iterator[tuple[str, list[AlDevice]]]:
        """By node, in the order of their names: the devices that it hears, without the network's own access points."""
        own = {report.al for report in self._reports.values()}
        for node in sorted(self._reports):
            yield node, [device for device in self._reports[node].devices if device.al not in own]


def join_graph(graph: dict[str, Any], nodes: list[dict[str, Any]], links: list[dict[str, Any]]) -> None:
    """Add what :meth:`ForeignDevices.topology` returned to a NetJSON NetworkGraph."""
    graph["nodes"] += (graph_node(node["id"], [node["id"]], {"role": node["role"]}) for node in nodes)
    graph["links"] += (
        graph_link(link["from"], link["to"], {name: link[name] for name in GRAPH_PROPERTIES})
        for link in links
        if link["capacity_mbps"] > 0
    )


def _node_document(al: str) -> dict[str, Any]:
    return {"id": al, "role": FOREIGN, "position_m": None, "switch": None, "agent": None, "host": None}


def _link_document(device: AlDevice, link: AlLink, to: str, technology: str | None) -> dict[str, Any]:
    """One link; what only planning knows of links is 0 or null."""
    return {
        "id": f"{device.al}-{to}-{link.mac}-{link.to_mac}",
        "from": device.al,
        "to": to,
        "technology": technology or _MEDIA.get(link.media_type) or "unknown",
        "delay_ms": 0.0,
        "loss": 0.0,
        "up": True,
        "reason": None,
        "capacity_mbps": link.capacity_mbps,
        "declared_mbps": None,
        "estimate": None,
        "planned_mbps": 0.0,
        "airtime": 0.0,
        "external": link.busy,
        "margin": 0.0,
        "busy_percent": 100 * link.busy,
    }


def _links(device: AlDevice) -> list[dict[str, Any]]:
    return [
        {
            "mac": link.mac,
            "to_al": link.to_al,
            "to_mac": link.to_mac,
            "medium": _MEDIA.get(link.media_type),
            "capacity_mbps": link.capacity_mbps,
            "busy": link.busy,
        }
        for link in device.links
    ]
