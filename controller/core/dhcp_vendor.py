"""The controller's address in DHCP option 43 (vendor-specific information, RFC 2132, 8.4), out of a client's lease.

The option is a list of sub-options: number, length, value. Sub-option 1 is the address as text, ``https://HOST:PORT``.
Other vendors use the same option, so anything else is passed over. Pure; the network is not trusted.
"""

from __future__ import annotations

import re
from contextlib import suppress

ADDRESS = 1
MOST_TEXT = 1 << 20
_PAD, _END = 0, 255
_URL = re.compile(rb"https://[A-Za-z0-9.:\[\]_-]{1,200}/?")
_NETWORKD = re.compile(r"^VENDOR_SPECIFIC=([0-9A-Fa-f]{2,510})$", re.MULTILINE)
_BYTE = "[0-9A-Fa-f]{1,2}"
_DHCLIENT = re.compile(rf"^\s*option vendor-encapsulated-options ({_BYTE}(?::{_BYTE}){{0,254}});", re.MULTILINE)


def controller_in(option: bytes) -> str | None:
    """The address that the option's value names; None if it names none."""
    at = 0
    while at + 1 < len(option) and option[at] != _END:
        if option[at] == _PAD:
            at += 1
            continue
        number, length = option[at], option[at + 1]
        value = option[at + 2 : at + 2 + length]
        if number == ADDRESS and len(value) == length and _URL.fullmatch(value):
            return value.decode("ascii").rstrip("/")
        at += 2 + length
    return None


def option_of_networkd(lease: str) -> bytes | None:
    """The option's value in a lease of systemd-networkd; None if there is none."""
    found = _NETWORKD.search(lease[:MOST_TEXT])
    with suppress(ValueError):
        return None if found is None else bytes.fromhex(found[1])
    return None


def option_of_dhclient(leases: str) -> bytes | None:
    """The option's value in the last lease of a file of ISC's dhclient; None if that has none."""
    *_, last = leases[-MOST_TEXT:].split("lease {")
    found = _DHCLIENT.search(last)
    return None if found is None else bytes(int(each, 16) for each in found[1].split(":"))
