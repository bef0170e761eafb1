"""hostapd's control interface as data: events of stations, lists of stations, 802.11v transitions. No I/O.

Formats: hostapd 2.10, ``hostapd_cli``'s protocol over a Unix datagram socket. A message that is not understood is
nothing; nothing that a station chooses is trusted beyond its form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_MESSAGE = 4096
ACCEPTED = 0
_MAC = r"([0-9a-f]{2}(?::[0-9a-f]{2}){5})"
_EVENT = re.compile(rf"(?:<\d>)?(AP-STA-CONNECTED|AP-STA-DISCONNECTED|BSS-TM-RESP) {_MAC}((?: [^\n]*)?)", re.IGNORECASE)
_FIELD = re.compile(r"([a-z_0-9]+)=(\S+)", re.IGNORECASE)
_STATION = re.compile(_MAC, re.IGNORECASE)
_NEIGHBOUR = re.compile(rf"{_MAC} .*?\bnr=([0-9a-f]{{26}})", re.IGNORECASE)
_REPORT = re.compile(rf"{_MAC},0x[0-9a-f]{{1,8}},\d{{1,3}},\d{{1,3}},\d{{1,3}}")
_JOINED, _LEFT = "joined", "left"


@dataclass(frozen=True, slots=True)
class StationNews:
    """A station joined or left."""

    mac: str
    event: str


@dataclass(frozen=True, slots=True)
class TransitionAnswer:
    """What a station says to a transition request: 0 accepts, all else refuses (IEEE 802.11-2020, table 9-428)."""

    mac: str
    status: int
    target: str | None


News = StationNews | TransitionAnswer


@dataclass(frozen=True, slots=True)
class Station:
    """An entry of hostapd's list; only one that is authorised may send."""

    mac: str
    authorised: bool
    signal_dbm: int | None


def news_of(message: bytes) -> News | None:
    """What an unsolicited message tells of a station."""
    found = _EVENT.fullmatch(_text(message).strip())
    if found is None:
        return None
    kind, mac, rest = found[1].upper(), found[2].lower(), dict(_FIELD.findall(found[3]))
    if kind != "BSS-TM-RESP":
        return StationNews(mac, _JOINED if kind == "AP-STA-CONNECTED" else _LEFT)
    status, target = rest.get("status_code", ""), rest.get("target_bssid", "").lower()
    if not status.isascii() or not status.isdigit() or int(status[:4]) > 255:
        return None
    return TransitionAnswer(mac, int(status), target if _STATION.fullmatch(target) else None)


def is_news(message: bytes) -> bool:
    """Whether a message is unsolicited, and not an answer."""
    return message.startswith(b"<")


def station_of(answer: bytes) -> Station | None:
    """The answer to ``STA-FIRST``, ``STA-NEXT`` or ``STA``; None at the end of the list."""
    lines = _text(answer).splitlines()
    if not lines or not _STATION.fullmatch(lines[0].strip()):
        return None
    fields = dict(line.partition("=")[::2] for line in lines[1:])
    signal = fields.get("signal", "")
    known = re.fullmatch(r"-\d{1,3}", signal) is not None
    return Station(lines[0].strip().lower(), "[AUTHORIZED]" in fields.get("flags", ""), int(signal) if known else None)


def own_neighbour(answer: bytes, bssid: str) -> str | None:
    """A BSS in ``SHOW_NEIGHBOR``'s answer, as others need it to send stations there."""
    for line in _text(answer).splitlines():
        found = _NEIGHBOUR.match(line.strip())
        if found is not None and found[1].lower() == bssid:
            raw = bytes.fromhex(found[2])
            information = int.from_bytes(raw[6:10], "little")
            return f"{bssid},0x{information:x},{raw[10]},{raw[11]},{raw[12]}"
    return None


def own_bssid(answer: bytes) -> str | None:
    """The address in ``STATUS``'s answer."""
    fields: Mapping[str, str] = dict(line.partition("=")[::2] for line in _text(answer).splitlines())
    bssid = fields.get("bssid[0]", "").lower()
    return bssid if _STATION.fullmatch(bssid) else None


def is_neighbour(text: object) -> bool:
    """Whether a text is a neighbour as ``BSS_TM_REQ`` takes it: BSSID, information, class, channel, PHY."""
    return isinstance(text, str) and _REPORT.fullmatch(text) is not None


def transition_request(mac: str, neighbour: str, valid_beacons: int = 255) -> bytes:
    """Asks a station to go to a neighbour, which is the only candidate; it may refuse."""
    return f"BSS_TM_REQ {mac} pref=1 abridged=1 valid_int={valid_beacons} neighbor={neighbour}".encode()


def _text(message: bytes) -> str:
    return message[:MAX_MESSAGE].decode("ascii", "replace")
