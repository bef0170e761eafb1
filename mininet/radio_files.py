"""Files and words for hostapd and wpa_supplicant in an emulated network: text in, text out, nothing is run.

A *cell* is one technology with one SSID, channel and key: its access points differ in interface and address only, so
that a station can move between them (802.11v) and ask for the others (802.11k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.access_point.wireless import frequency_mhz

HIGHEST_2_4_GHZ = 14


@dataclass(frozen=True)
class Cell:
    """``ssid`` of at most 32 bytes, ``channel`` by its number, ``key`` of 64 hexadecimal digits (the PSK itself)."""

    ssid: str
    channel: int
    key: str = field(repr=False)

    @property
    def frequency_mhz(self) -> int:
        """The centre of the channel."""
        found = frequency_mhz(self.channel)
        if found is None:
            raise ValueError(f"no channel {self.channel}")
        return found


ACCESS_POINT_OPTIONS = (
    # The bridge decides who may send to whom; hostapd would pass frames on between stations by itself.
    "ap_isolate=1",
    "wpa=2",
    "wpa_key_mgmt=WPA-PSK",
    "rsn_pairwise=CCMP",
    # 802.11v: stations can be asked to move. 802.11k: they can ask where to, and can be asked what they hear.
    "bss_transition=1",
    "rrm_neighbor_report=1",
    "rrm_beacon_report=1",
)
"""What HyRoads wants of every access point, in hostapd's own words; the key and the channel are the network's."""


def hostapd_text(cell: Cell, interface: str, control: Path) -> str:
    """hostapd's file of one access point; ``control`` is the folder of its control socket."""
    lines = [
        f"interface={interface}",
        "driver=nl80211",
        f"ctrl_interface={control}",
        f"ssid2={cell.ssid.encode().hex()}",
        f"hw_mode={'g' if cell.channel <= HIGHEST_2_4_GHZ else 'a'}",
        f"channel={cell.channel}",
        "ieee80211n=1",
        "wmm_enabled=1",
        *ACCESS_POINT_OPTIONS,
        f"wpa_psk={cell.key}",
    ]
    return "\n".join(lines) + "\n"


def supplicant_text(cell: Cell, control: Path) -> str:
    """wpa_supplicant's file of one station, which looks for its access points on the cell's channel only."""
    lines = [
        f"ctrl_interface={control}",
        "autoscan=periodic:1",
        "network={",
        f" ssid={cell.ssid.encode().hex()}",
        f" psk={cell.key}",
        " key_mgmt=WPA-PSK",
        f" scan_freq={cell.frequency_mhz}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def agent_file(node: str, sockets: Sequence[tuple[Path, str]]) -> dict[str, object]:
    """The file of ``hyroads ap-agent``: ``sockets`` are hostapd's, each with the technology of its interface."""
    followed = [{"socket": str(path), "technology": technology} for path, technology in sockets]
    return {"node": node, "hostapd": followed}
