"""Follows one hostapd over its control socket, and tells the radio channel what happens to its stations.

Formats: hostapd 2.10, ``hostapd_cli``'s protocol over a Unix datagram socket. A message that is not understood is
nothing; nothing that a station chooses is trusted beyond its form. hostapd is asked for a sign of life now and then;
one that was started anew is followed anew, and its stations are listed again.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

MAX_MESSAGE = 4096
_MAC = r"([0-9a-f]{2}(?::[0-9a-f]{2}){5})"
_EVENT = re.compile(rf"(?:<\d>)?(AP-STA-CONNECTED|AP-STA-DISCONNECTED|BSS-TM-RESP) {_MAC}((?: [^\n]*)?)", re.IGNORECASE)
_FIELD = re.compile(r"([a-z_0-9]+)=(\S+)", re.IGNORECASE)
_STATION = re.compile(_MAC, re.IGNORECASE)
_NEIGHBOUR = re.compile(rf"{_MAC} .*?\bnr=([0-9a-f]{{26}})", re.IGNORECASE)
_REPORT = re.compile(rf"{_MAC},0x[0-9a-f]{{1,8}},\d{{1,3}},\d{{1,3}},\d{{1,3}}")
ANSWER_S = 1.0
ALIVE_EVERY_S = 2.0
SIGNAL_EVERY_S = 1.0
MAX_STATIONS = 2048
MAX_NEWS = 4096
MAX_NEIGHBOURS = 32
"""A station is told of no more: they must fit into one frame."""

Document = dict[str, Any]
"""A message of the radio channel."""


@dataclass(frozen=True, slots=True)
class Station:
    """An entry of hostapd's list; only one that is authorised may send. ``connected_s`` is for how long it has been
    associated, where hostapd tells: at least so long, and less than a second longer.

    A station that went to another access point stays in the list until hostapd misses it, for minutes.
    """

    mac: str
    authorised: bool
    signal_dbm: int | None
    connected_s: float = 0.0


def news_of(message: bytes) -> Document | None:
    """What an unsolicited message tells of a station: that it joined or left, or answers a transition request.

    ``status`` 0 accepts, all else refuses (IEEE 802.11-2020, table 9-428).
    """
    found = _EVENT.fullmatch(_text(message).strip())
    if found is None:
        return None
    kind, mac, rest = found[1].upper(), found[2].lower(), dict(_FIELD.findall(found[3]))
    if kind != "BSS-TM-RESP":
        return {"type": "station", "mac": mac, "event": "joined" if kind == "AP-STA-CONNECTED" else "left"}
    status, target = rest.get("status_code", ""), rest.get("target_bssid", "").lower()
    if not status.isascii() or not status.isdigit() or int(status[:4]) > 255:
        return None
    target_or_none = target if _STATION.fullmatch(target) else None
    return {"type": "transition", "mac": mac, "status": int(status), "target": target_or_none}


def station_of(answer: bytes) -> Station | None:
    """The answer to ``STA-FIRST``, ``STA-NEXT`` or ``STA``; None at the end of the list."""
    lines = _text(answer).splitlines()
    if not lines or not _STATION.fullmatch(lines[0].strip()):
        return None
    fields = dict(line.partition("=")[::2] for line in lines[1:])
    signal = fields.get("signal", "")
    known = re.fullmatch(r"-\d{1,3}", signal) is not None
    connected, silent = (fields.get(key, "") for key in ("connected_time", "inactive_msec"))
    return Station(
        lines[0].strip().lower(),
        "[AUTHORIZED]" in fields.get("flags", ""),
        int(signal) if known else None,
        _connected_s(*(int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0 for text in (connected, silent))),
    )


def _connected_s(whole_s: int, silent_ms: int) -> float:
    """For how long a station has been associated. hostapd tells whole seconds, in which a station may have been at two
    access points; that which it left has not heard it since."""
    return min(max(float(whole_s), silent_ms / 1e3), whole_s + 0.999)


def own_neighbour(answer: bytes, bssid: str) -> str | None:
    """A BSS in ``SHOW_NEIGHBOR``'s answer, as others need it to send stations there."""
    for line in _text(answer).splitlines():
        found = _NEIGHBOUR.match(line.strip())
        if found is not None and found[1].lower() == bssid:
            raw = bytes.fromhex(found[2])
            information = int.from_bytes(raw[6:10], "little")
            return f"{bssid},0x{information:x},{raw[10]},{raw[11]},{raw[12]}"
    return None


def own_bss(answer: bytes, name: str) -> tuple[str, str] | None:
    """Address and SSID of a BSS in ``STATUS``'s answer: that of the interface ``name``, else the first.

    The SSID is as hostapd prints it. A radio with several BSSs answers alike at the socket of each.
    """
    fields = _fields(answer)
    index = next((key[3:] for key, value in fields.items() if key.startswith("bss[") and value == name), "[0]")
    bssid = fields.get(f"bssid{index}", "").lower()
    return (bssid, fields.get(f"ssid{index}", "")) if _STATION.fullmatch(bssid) else None


def described_neighbour(answer: bytes, bssid: str) -> str | None:
    """A BSS as others need it to send stations there, from ``STATUS``'s answer.

    For a hostapd without ``rrm_neighbor_report``, which lists no BSS, not even its own: stations can be sent to it all
    the same. Operating classes are those of 20 MHz (IEEE 802.11-2020, table E-4).
    """
    fields = _fields(answer)
    channel = fields.get("channel", "")
    number = int(channel) if channel.isascii() and channel.isdigit() and len(channel) <= 3 else 0
    operating_class = next((value for first, last, value in _CLASSES if first <= number <= last), None)
    if operating_class is None:
        return None
    newest = next((phy for key, phy in _PHYS.items() if fields.get(key) == "1"), 6 if number <= 14 else 4)
    return f"{bssid},0x{_REACHABLE:x},{operating_class},{number},{newest}"


_CLASSES = ((1, 13, 81), (14, 14, 82), (36, 48, 115), (52, 64, 118), (100, 144, 121), (149, 161, 124), (165, 177, 125))
"""First and last channel, operating class; 6 GHz numbers its channels anew, and its access points list themselves."""
_PHYS = {"ieee80211ax": 14, "ieee80211ac": 9, "ieee80211n": 7}
_REACHABLE = 3


def listed_neighbour(neighbour: str) -> str:
    """A neighbour as ``SET_NEIGHBOR`` takes it: the same fields as hexadecimal digits."""
    bssid, information, *numbers = neighbour.split(",")
    head = bytes.fromhex(bssid.replace(":", "")) + int(information, 16).to_bytes(4, "little")
    return (head + bytes(min(int(number), 255) for number in numbers)).hex()


def _fields(answer: bytes) -> Mapping[str, str]:
    return dict(line.partition("=")[::2] for line in _text(answer).splitlines())


def is_neighbour(text: object) -> TypeGuard[str]:
    """Whether a text is a neighbour as ``BSS_TM_REQ`` takes it: BSSID, information, class, channel, PHY."""
    return isinstance(text, str) and _REPORT.fullmatch(text) is not None


def is_ssid(text: object) -> TypeGuard[str]:
    """Whether a text is an SSID as hostapd prints it, at most 32 bytes."""
    return isinstance(text, str) and 0 < len(text) <= 128 and 0 < len(_ssid_bytes(text)) <= 32


def _ssid_bytes(printed: str) -> bytes:
    """The bytes of an SSID that hostapd printed: all but printable ASCII is escaped."""
    known = {"\\": 0x5C, '"': 0x22, "e": 0x1B, "n": 0x0A, "r": 0x0D, "t": 0x09}
    parts = _ESCAPE.findall(printed)
    return bytes(known.get(e, 63) if e else int(x, 16) if x else ord(c) & 0xFF for x, e, c in parts)


_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)|(.)", re.DOTALL)


def _text(message: bytes) -> str:
    return message[:MAX_MESSAGE].decode("ascii", "replace")


class Control:
    """Our end of a control socket of hostapd; raises OSError. What it tells unasked is kept in ``told``.

    A question is asked and answered in one step: mostly hostapd answers within microseconds.
    """

    def __init__(self, path: str) -> None:
        self.told: deque[Document] = deque(maxlen=MAX_NEWS)
        self._own = Path(tempfile.gettempdir()) / f"hyroads-{os.getpid()}-{os.urandom(4).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(str(self._own))
            self._own.chmod(0o600)
            self._socket.connect(path)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """End it, and remove our own socket's file."""
        self._socket.close()
        self._own.unlink(missing_ok=True)

    def receive(self) -> bytes | None:
        """All that has come; the last of it that is an answer."""
        answer = None
        while True:
            try:
                message = self._socket.recv(MAX_MESSAGE)
            except BlockingIOError:
                return answer
            if not message.startswith(b"<"):
                answer = message
            elif (news := news_of(message)) is not None:
                self.told.append(news)

    def ask(self, question: bytes, patience_s: float = ANSWER_S) -> bytes:
        """hostapd's answer."""
        self.receive()
        self._socket.send(question)
        until_s = time.monotonic() + patience_s
        while (left_s := until_s - time.monotonic()) > 0:
            if select.select([self._socket], [], [], left_s)[0] and (answer := self.receive()) is not None:
                return answer
        raise TimeoutError(f"no answer to {question.split(maxsplit=1)[0].decode()}")


class _Known(NamedTuple):
    """A station that is associated, since ``joined_s`` of the agent's clock."""

    signal_dbm: int | None
    joined_s: float


class HostapdFollower:
    """``technology`` is that of the access point's interface, or ``host`` if it is the access port."""

    def __init__(self, path: str, technology: str, complain: Callable[[str], None]) -> None:
        self.technology = technology
        self._path = path
        self._complain = complain
        self._control: Control | None = None
        self._stations: dict[str, _Known] = {}
        self._neighbour: str | None = None
        self._ssid = ""
        self._named: set[str] = set()
        self._alive_s = 0.0
        self._signal_s = 0.0
        self._now_s = 0.0

    def poll(self, now_s: float) -> list[Document]:
        """What happened since the last time; never waits for news."""
        control, self._now_s = self._control, now_s
        if control is None:
            return self._attach(now_s) if now_s >= self._alive_s else []
        try:
            control.receive()
            documents = [self._noted(news) for news in control.told]
            control.told.clear()
            if now_s >= self._alive_s:
                self._alive_s = now_s + ALIVE_EVERY_S
                if control.ask(b"PING").strip() != b"PONG":
                    raise OSError("hostapd does not answer a ping")
            if now_s >= self._signal_s:
                self._signal_s = now_s + SIGNAL_EVERY_S
                documents += self._signals(control)
        except OSError as error:
            return self._lost(error, now_s)
        return documents

    def snapshot(self) -> list[Document]:
        """All that is known, for a controller that knows nothing."""
        bss = {"type": "bss", "technology": self.technology, "neighbour": self._neighbour, "ssid": self._ssid}
        return [
            *([bss] if self._neighbour else []),
            *(self._joined(mac, known) for mac, known in self._stations.items()),
        ]

    def transition(self, mac: str, neighbour: str) -> str | None:
        """Ask a station to go to a neighbour; what is wrong, or None if hostapd has sent the request."""
        if mac not in self._stations or not is_neighbour(neighbour):
            return "no such station" if mac not in self._stations else "no such neighbour"
        if self._control is None:
            return "hostapd: is not followed"
        # The neighbour is the only candidate; the station may refuse.
        request = f"BSS_TM_REQ {mac} pref=1 abridged=1 valid_int=255 neighbor={neighbour}"
        try:
            answer = self._control.ask(request.encode()).strip()
        except OSError as error:
            return f"hostapd: {error.strerror or error}"
        # The answer to a request that was sent is its dialogue token.
        return None if answer.isdigit() or answer == b"OK" else "hostapd did not send the request"

    def set_neighbours(self, neighbours: Sequence[tuple[str, str]]) -> str | None:
        """What stations that ask for neighbours (802.11k) are told: these, with their SSIDs; what is wrong, or None.

        hostapd itself names itself. One without ``rrm_neighbor_report`` answers nobody, and refuses.
        """
        if self._control is None:
            return "hostapd: is not followed"
        wanted = {neighbour.split(",")[0]: (neighbour, ssid) for neighbour, ssid in neighbours[:MAX_NEIGHBOURS]}
        try:
            for bssid in self._named - wanted.keys():
                self._control.ask(f"REMOVE_NEIGHBOR {bssid}".encode())
            self._named = set()
            for bssid, (neighbour, ssid) in wanted.items():
                words = f"SET_NEIGHBOR {bssid} ssid={_ssid_bytes(ssid).hex()} nr={listed_neighbour(neighbour)}"
                if self._control.ask(words.encode()).strip() != b"OK":
                    return "hostapd tells stations of no neighbours (rrm_neighbor_report)"
                self._named.add(bssid)
        except OSError as error:
            return f"hostapd: {error.strerror or error}"
        return None

    def close(self) -> None:
        """Stop following."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.ask(b"DETACH", patience_s=0.0)
            self._control.close()
            self._control = None

    def _attach(self, now_s: float) -> list[Document]:
        self._alive_s = now_s + ALIVE_EVERY_S
        try:
            self._control = control = Control(self._path)
            if control.ask(b"ATTACH").strip() != b"OK":
                raise OSError("hostapd refuses to be followed")
            self._neighbour, self._ssid = self._own(control)
            listed = _listed(control)
        except OSError as error:
            return self._lost(error, now_s)
        gone = [self._station(mac, "left") for mac in self._stations if mac not in listed]
        self._stations = {mac: _Known(s.signal_dbm, now_s - s.connected_s) for mac, s in listed.items()}
        return [*gone, *self.snapshot()]

    def _own(self, control: Control) -> tuple[str | None, str]:
        """The BSS itself as others name it to stations, and its SSID."""
        status = control.ask(b"STATUS")
        own = own_bss(status, Path(self._path).name)
        if own is None:
            return None, ""
        listed = own_neighbour(control.ask(b"SHOW_NEIGHBOR"), own[0])
        return listed or described_neighbour(status, own[0]), own[1]

    def _lost(self, error: OSError, now_s: float) -> list[Document]:
        """Without hostapd nobody is associated."""
        self._complain(f"hostapd at {self._path}: {error.strerror or error}")
        self.close()
        self._alive_s = now_s + ALIVE_EVERY_S
        self._named = set()
        gone, self._stations = self._stations, {}
        return [self._station(mac, "left") for mac in gone]

    def _signals(self, control: Control) -> list[Document]:
        """Of all stations whose signal changed."""
        documents = []
        for mac, station in _listed(control).items():
            known, signal = self._stations.get(mac), station.signal_dbm
            if known is not None and signal is not None and signal != known.signal_dbm:
                self._stations[mac] = known._replace(signal_dbm=signal)
                documents.append(self._station(mac, "signal", signal))
        return documents

    def _noted(self, news: Document) -> Document:
        if news["type"] != "station":
            return news
        if news["event"] == "left":
            self._stations.pop(news["mac"], None)
        elif len(self._stations) < MAX_STATIONS:
            self._stations[news["mac"]] = _Known(None, self._now_s)
        return self._station(news["mac"], news["event"])

    def _joined(self, mac: str, known: _Known) -> Document:
        """One that is associated already, and for how long: another access point may list it, too."""
        return {**self._station(mac, "joined", known.signal_dbm), "age_s": round(self._now_s - known.joined_s, 3)}

    def _station(self, mac: str, event: str, signal_dbm: int | None = None) -> Document:
        what = {"mac": mac, "event": event, "signal_dbm": signal_dbm}
        return {"type": "station", "technology": self.technology, **what}


def _listed(control: Control) -> dict[str, Station]:
    """The stations that are associated and authorised."""
    found: dict[str, Station] = {}
    station = station_of(control.ask(b"STA-FIRST"))
    while station is not None and len(found) < MAX_STATIONS:
        if station.authorised:
            found[station.mac] = station
        following = station_of(control.ask(b"STA-NEXT " + station.mac.encode()))
        station = following if following is None or following.mac not in found else None
    return found
