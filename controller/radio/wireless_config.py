"""The section ``wireless`` of the access point's file (docs/reference/measurement.md, section 8). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.radio.wireless import MOST_MBM, RadioAbilities, frequency_mhz, is_interface

BACKENDS = ("hostapd", "recorded")
DEFAULT_GLOBAL = "/run/hostapd/global"
MAX_RADIOS, MAX_BSS = 16, 32
_KEYS = ("backend", "state", "bridge", "global", "driver", "radios")
_RADIO_KEYS = ("interface", "channels", "most_bss", "most_dbm", "country", "options", "mac")
_COUNTRY = re.compile(r"[A-Z]{2}")
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
# Of hostapd's file; a line that begins anew an interface or BSS, or says who is let in, is ours to write.
_OPTION = re.compile(r"[a-z0-9_]{1,64}=[ -~]{0,200}")
_RESERVED = frozenset(
    {"interface", "bss", "driver", "ctrl_interface", "channel", "hw_mode", "country_code", "ssid", "ssid2", "bssid"}
    | {"bridge", "wpa", "wpa_passphrase", "sae_password", "macaddr_acl", "ap_isolate"}
)
# A socket's address has room for 108 bytes.
_MAX_PATH_BYTES = 90


@dataclass(frozen=True)
class WirelessConfig:
    """Which radios are configured, by what, and where the configuration is kept."""

    radios: Mapping[str, RadioAbilities]
    backend: str = "hostapd"
    state: str | None = None
    bridge: str | None = None
    """Open vSwitch's, of which each BSS becomes a port."""
    global_socket: str = DEFAULT_GLOBAL
    driver: str = "nl80211"


def parse_wireless(raw: Any, document: str) -> WirelessConfig:
    """Validates; :class:`ConfigError` names the place."""
    return _Reader(document).section(raw)


class _Reader:
    def __init__(self, document: str) -> None:
        self._document = document

    def fail(self, place: str, expected: str) -> ConfigError:
        return ConfigError(self._document, f"wireless{place}", f"expected {expected}")

    def section(self, raw: Any) -> WirelessConfig:
        self._mapping(raw, "", _KEYS)
        backend = raw.get("backend", "hostapd")
        if backend not in BACKENDS:
            raise self.fail(".backend", f"one of {', '.join(BACKENDS)}")
        listed = raw.get("radios")
        if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_RADIOS:
            raise self.fail(".radios", f"a list of 1 to {MAX_RADIOS} radios")
        radios = [self._radio(entry, f".radios.{i}") for i, entry in enumerate(listed)]
        names = [radio.interface for radio in radios]
        if len(set(names)) < len(names):
            raise self.fail(".radios", "each interface once")
        return WirelessConfig(
            {radio.interface: radio for radio in radios},
            backend,
            self._path(raw, "state"),
            self._word(raw.get("bridge"), ".bridge", is_interface, "the name of a bridge") if "bridge" in raw else None,
            self._path(raw, "global") or DEFAULT_GLOBAL,
            self._word(raw.get("driver", "nl80211"), ".driver", str.isalnum, "a driver such as nl80211"),
        )

    def _mapping(self, raw: Any, place: str, keys: tuple[str, ...]) -> None:
        if not isinstance(raw, dict):
            raise self.fail(place, "an object")
        for key in raw:
            if key not in keys:
                raise self.fail(f"{place}.{key}", f"one of the keys {', '.join(keys)}")

    def _word(self, value: Any, place: str, fits: Callable[[str], bool], expected: str) -> str:
        if not isinstance(value, str) or not fits(value):
            raise self.fail(place, expected)
        return value

    def _path(self, raw: Mapping[str, Any], key: str) -> str | None:
        if key not in raw:
            return None
        fits: Callable[[str], bool] = lambda p: p[:1] == "/" and "\0" not in p and len(p.encode()) <= _MAX_PATH_BYTES  # noqa: E731
        return self._word(raw[key], f".{key}", fits, f"an absolute path of at most {_MAX_PATH_BYTES} bytes")

    def _radio(self, raw: Any, place: str) -> RadioAbilities:
        self._mapping(raw, place, _RADIO_KEYS)
        interface = self._word(raw.get("interface"), f"{place}.interface", is_interface, "an interface's name")
        most_dbm = raw.get("most_dbm", 20)
        if isinstance(most_dbm, bool) or not isinstance(most_dbm, int | float) or not 0 <= most_dbm <= MOST_MBM / 100:
            raise self.fail(f"{place}.most_dbm", f"a number from 0 to {MOST_MBM // 100}")
        most_bss = raw.get("most_bss", 8)
        if isinstance(most_bss, bool) or not isinstance(most_bss, int) or not 1 <= most_bss <= MAX_BSS:
            raise self.fail(f"{place}.most_bss", f"a whole number from 1 to {MAX_BSS}")
        return RadioAbilities(
            interface,
            self._channels(raw.get("channels"), f"{place}.channels"),
            most_bss,
            round(100 * most_dbm),
            self._optional(raw, place, "country", _COUNTRY, "two capital letters"),
            self._options(raw.get("options", []), f"{place}.options"),
            self._optional(raw, place, "mac", _MAC, "a MAC address such as 02:00:00:00:00:01"),
        )

    def _channels(self, raw: Any, place: str) -> tuple[int, ...]:
        whole = isinstance(raw, list) and all(isinstance(c, int) and not isinstance(c, bool) for c in raw)
        if not whole or not raw or any(frequency_mhz(channel) is None for channel in raw):
            raise self.fail(place, "a list of channels at 2.4 or 5 GHz")
        return tuple(dict.fromkeys(raw))

    def _optional(
        self, raw: Mapping[str, Any], place: str, key: str, pattern: re.Pattern[str], what: str
    ) -> str | None:
        if key not in raw:
            return None
        return self._word(raw[key], f"{place}.{key}", lambda text: pattern.fullmatch(text) is not None, what)

    def _options(self, raw: Any, place: str) -> tuple[str, ...]:
        if not isinstance(raw, list):
            raise self.fail(place, "a list of lines for hostapd")
        for number, line in enumerate(raw):
            if not isinstance(line, str) or not _OPTION.fullmatch(line) or line.split("=")[0] in _RESERVED:
                raise self.fail(f"{place}.{number}", "a line such as ieee80211n=1 that nothing else here decides")
        return tuple(raw)
