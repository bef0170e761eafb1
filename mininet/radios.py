"""Emulated 802.11 radios of the kernel (mac80211_hwsim) and their interfaces, over generic netlink.

A radio belongs to the network namespace in which it is made: it hears only radios that were made there, wherever they
are moved to, and it goes when the namespace that it lies in goes. In the machine's own namespace it would stay.
"""

from __future__ import annotations

import secrets
import struct
from enum import IntEnum
from pathlib import Path

from hyroads.controller.kernel.generic_netlink import GenericNetlink, family_id
from hyroads.controller.kernel.netlink import attribute, attribute_map, text_attribute

from .programs import EmulationError

HWSIM, NL80211 = "MAC80211_HWSIM", "nl80211"
RADIO_PREFIX = "hr-"
"""Of the names of our radios (``iw phy``), which are the machine's: at random, for networks run side by side."""

# drivers/net/wireless/virtual/mac80211_hwsim.h
_NEW_RADIO, _DEL_RADIO, _GET_RADIO = 4, 5, 6
_RADIO_ID, _RADIO_CUSTOM_REGULATION, _RADIO_NAME, _RADIO_NO_INTERFACE, _RADIO_ADDRESS = 10, 12, 17, 18, 22
# Regulation of these radios alone, which lets them begin to send on channels of 5 GHz; the machine's is left alone.
_REGULATION = 0
# include/uapi/linux/nl80211.h
_GET_WIPHY, _NEW_INTERFACE, _JOIN_IBSS, _SET_NAMESPACE = 1, 7, 43, 49
_WIPHY, _WIPHY_NAME, _INTERFACE_INDEX, _INTERFACE_NAME, _INTERFACE_KIND, _MAC = 1, 2, 3, 4, 5, 6
_FREQUENCY_MHZ, _SSID, _FREQUENCY_FIXED, _PID, _NAMESPACE = 38, 52, 60, 82, 219


class InterfaceKind(IntEnum):
    """What an interface of a radio is: a station of an IBSS or of an access point, or an access point."""

    IBSS = 1
    STATION = 2
    ACCESS_POINT = 3


def check_radios() -> None:
    """Raise an EmulationError if the kernel has no emulated radios, saying how it can have some."""
    if family_id(HWSIM) is None:
        raise EmulationError(
            "this kernel has no emulated 802.11 radios (try: modprobe mac80211_hwsim radios=0; on Ubuntu install "
            "linux-modules-extra-$(uname -r) first; or run the command by scripts/guest.sh, see docs/how-to/radios.md)"
        )


class Radio:
    """One radio with one interface: ``name`` of ``kind`` with the address ``mac``, in the caller's namespace.

    ``address`` is that of the hardware, by which a medium knows it (``hyroads-medium --hwsim``); the kernel chooses one
    if it is None. Raises NetlinkError where the kernel refuses.
    """

    def __init__(self, name: str, kind: InterfaceKind, mac: str, address: str | None = None) -> None:
        self.phy = RADIO_PREFIX + secrets.token_hex(4)
        hardware = b"" if address is None else attribute(_RADIO_ADDRESS, mac_bytes(address))
        with GenericNetlink(HWSIM) as hwsim:
            body = text_attribute(_RADIO_NAME, self.phy) + attribute(_RADIO_NO_INTERFACE, b"") + hardware
            regulation = attribute(_RADIO_CUSTOM_REGULATION, _u32(_REGULATION))
            self.number = hwsim.command(_NEW_RADIO, body + regulation)
        with GenericNetlink(NL80211) as wireless:
            self._wiphy = attribute(_WIPHY, _u32(_wiphy_of(wireless, self.phy)))
            described = text_attribute(_INTERFACE_NAME, name) + attribute(_INTERFACE_KIND, _u32(kind))
            wireless.command(_NEW_INTERFACE, self._wiphy + described + attribute(_MAC, mac_bytes(mac)))

    def move(self, process: int) -> None:
        """Move the radio and its interface into the network namespace of a process."""
        with GenericNetlink(NL80211) as wireless:
            wireless.command(_SET_NAMESPACE, self._wiphy + attribute(_PID, _u32(process)))

    def move_to(self, namespace: Path) -> None:
        """Move the radio and its interface into the network namespace that is mounted at ``namespace``."""
        with GenericNetlink(NL80211) as wireless, namespace.open("rb") as handle:
            wireless.command(_SET_NAMESPACE, self._wiphy + attribute(_NAMESPACE, _u32(handle.fileno())))

    def remove(self) -> None:
        """Remove it, from the namespace that it lies in."""
        with GenericNetlink(HWSIM) as hwsim:
            hwsim.command(_DEL_RADIO, attribute(_RADIO_ID, _u32(self.number)))


def join_ibss(index: int, name: str, frequency_mhz: int, cell: str) -> None:
    """Let the interface with that index, which is up and of the kind IBSS, join the IBSS ``name``.

    ``cell`` is the address that all of its stations share, so that none has to look for the others first.
    """
    body = attribute(_INTERFACE_INDEX, _u32(index)) + attribute(_SSID, name.encode())
    fixed = attribute(_FREQUENCY_MHZ, _u32(frequency_mhz)) + attribute(_FREQUENCY_FIXED, b"")
    with GenericNetlink(NL80211) as wireless:
        wireless.command(_JOIN_IBSS, body + fixed + attribute(_MAC, mac_bytes(cell)))


def radio_names() -> dict[int, str]:
    """The emulated radios of the caller's network namespace: number -> name."""
    with GenericNetlink(HWSIM) as hwsim:
        found = map(attribute_map, hwsim.dump(_GET_RADIO))
        return {_number(each[_RADIO_ID]): _text(each[_RADIO_NAME]) for each in found}


def _wiphy_of(wireless: GenericNetlink, phy: str) -> int:
    """The number of a radio in nl80211."""
    for answer in wireless.dump(_GET_WIPHY):
        found = attribute_map(answer)
        if _text(found.get(_WIPHY_NAME, b"")) == phy and _WIPHY in found:
            return _number(found[_WIPHY])
    raise EmulationError(f"the kernel does not list its new radio {phy}")


def mac_bytes(mac: str) -> bytes:
    """A MAC address as it stands in a frame."""
    return bytes.fromhex(mac.replace(":", ""))


def _u32(value: int) -> bytes:
    return struct.pack("=I", value)


def _number(value: bytes) -> int:
    if len(value) != 4:
        raise EmulationError("netlink answer about radios has a number of another size")
    return int(struct.unpack("=I", value)[0])


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")
