"""Other people's devices near the access points, by IEEE 1905.1, and what each says of its links. Pure."""

from __future__ import annotations

from typing import Any

from hyroads.controller.agents.al_devices import AlDevice, AlDevices

_MEDIA = {
    0x0000: "802.3u", 0x0001: "802.3ab", 0x0100: "802.11b", 0x0101: "802.11g", 0x0102: "802.11a", 0x0103: "802.11n",
    0x0104: "802.11n", 0x0105: "802.11ac", 0x0106: "802.11ad", 0x0107: "802.11af", 0x0200: "1901 wavelet",
    0x0201: "1901 FFT", 0x0300: "MoCA",
}  # fmt: skip
"""IEEE Std 1905.1-2013, table 6-12."""


class ForeignDevices:
    """What access points report, by node; a node whose session ends no longer counts."""

    def __init__(self) -> None:
        self._reports: dict[str, AlDevices] = {}

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
        own = {report.al for report in self._reports.values()}
        found: dict[str, dict[str, Any]] = {}
        for node in sorted(self._reports):
            for device in self._reports[node].devices:
                if device.al in own:
                    continue
                entry = found.setdefault(device.al, {"al": device.al, "heard_by": [], "links": _links(device)})
                entry["heard_by"] += (
                    {"node": node, "interface": heard.interface, "mac": heard.mac} for heard in device.heard
                )
        return [found[al] for al in sorted(found)]


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
