"""The backhaul of a lab with radios: what docs/how-to/backhaul.md has a user type on each box."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from hyroads.mininet.programs import EmulationError, wait_until

from .box import Box

INTERFACE = "wlan0"
FILE = f"/etc/wpa_supplicant/wpa_supplicant-{INTERFACE}.conf"
TEXT = """country=DE
ctrl_interface=DIR=/run/wpa_supplicant

network={
    ssid="backhaul"
    mode=5
    frequency=5180
    key_mgmt=SAE
    ieee80211w=2
    sae_password="a long password of your own"
    mesh_fwding=0
}
"""
"""The page's file for wpa_supplicant."""
UNIT = {
    "etc/systemd/system/wpa_supplicant@.service": """[Unit]
Description=WPA supplicant daemon (interface-specific version)
Before=network.target
Wants=network.target
[Service]
ExecStart=/sbin/wpa_supplicant -c/etc/wpa_supplicant/wpa_supplicant-%I.conf -i%I
[Install]
WantedBy=multi-user.target
"""
}
"""Debian's unit without its dependency on the interface's device unit: in a container there is no udev to make one."""
INSTALL = "apt install -y wpasupplicant"
START = f"systemctl enable --now wpa_supplicant@{INTERFACE}"
SHOW = f"iw dev {INTERFACE} station dump"
FORWARDING = f"iw dev {INTERFACE} get mesh_param mesh_fwding"
RESIZE = f"ip link set {INTERFACE} mtu 1600"
_INSTALL_WITHIN_S, _JOIN_WITHIN_S = 300.0, 60.0


def for_emulated_radios(text: str) -> str:
    """The page's file with what emulated radios need.

    They are in no country, because a guest kernel has no database of what countries allow. They have no HT and VHT:
    the driver sends at 54 Mb/s then, and its estimate of the throughput is right for frames that are sent one by one.
    """
    return re.sub("country=.*\n", "", text).replace("mode=5\n", "mode=5\n    disable_ht=1\n    disable_vht=1\n")


def make_mesh(boxes: Sequence[Box], say: Callable[[str], None]) -> None:
    """Type the page on boxes; EmulationError if a box has no link to one of them."""
    say("making the radio backhaul")
    for box in boxes:
        box.type(INSTALL, _INSTALL_WITHIN_S)
        box.write(FILE, for_emulated_radios(TEXT), "0600")
        box.type(START)
    for box in boxes:
        wait_until(f"mesh of {box.name}", partial(_has_peers, box, len(boxes) - 1), _JOIN_WITHIN_S, interval_s=0.5)
        box.type(SHOW)
        if box.type(FORWARDING).strip() != "0":
            raise EmulationError(f"{box.name}: the mesh forwards frames")
        box.type(RESIZE)


def _has_peers(box: Box, count: int) -> bool:
    """Whether a box has established links with ``count`` neighbours."""
    return len(re.findall(r"mesh plink:\s*ESTAB", box.run(*SHOW.split()).stdout)) == count
