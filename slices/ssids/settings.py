"""The file of access points: the section ``devices`` of SNMPVisor's settings, whose other sections it may have too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.slices.snmpvisor.config import LOOPBACK, Device, devices_of
from hyroads.slices.ssids.desired import AccessPoint


@dataclass(frozen=True)
class Points:
    """Access points, and how their agents are reached."""

    points: tuple[AccessPoint, ...]
    devices: dict[str, Device]


def load(path: str) -> Points:
    """Read a file; errors are :class:`ConfigError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, "", f"can't be read: {error}") from error
    devices = {name: each for name, each in devices_of(load_document(text, path), path).items() if each.radios}
    for name, device in devices.items():
        if device.switch is None:
            raise ConfigError(
                path, f"devices.{name}.switch", "is missing: the datapath id of the access point's switch"
            )
        if device.access.user is None and device.address.host not in LOOPBACK:
            raise ConfigError(path, f"devices.{name}", "expected a user (SNMPv3): passphrases must not go in the clear")
        if device.access.user is not None and device.access.user.privacy_password is None:
            raise ConfigError(path, f"devices.{name}.user", "expected a privacy password: passphrases are sent")
    points = tuple(AccessPoint(name, each.switch or 0, each.radios) for name, each in devices.items())
    return Points(points, devices)
