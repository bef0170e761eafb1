"""hostapd's control interface as data: events of stations, lists of stations, 802.11v transitions. No I/O.

Formats: hostapd 2.10, ``hostapd_cli``'s protocol over a Unix datagram socket. A message that is not understood is
nothing; nothing that a station chooses is trusted beyond its form.

Follows one hostapd over its control socket, and tells the radio channel what happens to its stations.

A question is asked and answered in one step (hostapd answers within microseconds); what it tells meanwhile is kept. It
is asked for a sign of life now and then; one that was started anew is followed anew, and its stations are listed again.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


Document = dict[str, Any]
ANSWER_S = 1.0
ALIVE_EVERY_S = 2.0
SIGNAL_EVERY_S = 1.0
MAX_STATIONS = 2048
MAX_NEWS = 4096


class HostapdFollower:
    """``technology`` is that of the access point's interface, or ``host`` if it is the access port."""

    def __init__(self, path: str, technology: str, complain: Callable[[str], None]) -> None:
        self.technology = technology
        self._path = path
        self._complain = complain
        self._socket: socket.socket | None = None
        self._own: Path | None = None
        self._news: deque[News] = deque(maxlen=MAX_NEWS)
        self._stations: dict[str, int | None] = {}
        self._neighbour: str | None = None
        self._alive_s = 0.0
        self._signal_s = 0.0

    def poll(self, now_s: float) -> list[Document]:
        """What happened since the last time; never waits for news."""
        if self._socket is None:
            if now_s < self._alive_s:
                return []
            return self._attach(now_s)
        try:
            self._receive()
            documents = [document for news in self._take_news() for document in self._told(news)]
            if now_s >= self._alive_s:
                self._alive_s = now_s + ALIVE_EVERY_S
                if self._ask(b"PING").strip() != b"PONG":
                    raise OSError("hostapd does not answer a ping")
            if now_s >= self._signal_s:
                self._signal_s = now_s + SIGNAL_EVERY_S
                documents += self._signals()
        except OSError as error:
            return self._lost(error, now_s)
        return documents

    def snapshot(self) -> list[Document]:
        """All that is known, for a controller that knows nothing."""
        bss = [{"type": "bss", "technology": self.technology, "neighbour": self._neighbour}] if self._neighbour else []
        return [*bss, *(self._station(mac, "joined", signal) for mac, signal in self._stations.items())]

    def transition(self, mac: str, neighbour: str) -> str | None:
        """Ask a station to go to a neighbour; what is wrong, or None if hostapd has sent the request."""
        if mac not in self._stations or not is_neighbour(neighbour):
            return "no such station" if mac not in self._stations else "no such neighbour"
        try:
            answer = self._ask(transition_request(mac, neighbour)).strip()
        except OSError as error:
            return f"hostapd: {error.strerror or error}"
        # The answer to a request that was sent is its dialogue token.
        return None if answer.isdigit() or answer == b"OK" else "hostapd did not send the request"

    def close(self) -> None:
        """Stop following."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(b"DETACH")
            self._socket.close()
            self._socket = None
        if self._own is not None:
            self._own.unlink(missing_ok=True)
            self._own = None

    # -- inside

    def _attach(self, now_s: float) -> list[Document]:
        self._alive_s = now_s + ALIVE_EVERY_S
        try:
            self._own = Path(tempfile.gettempdir()) / f"hyroads-{os.getpid()}-{os.urandom(4).hex()}"
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.bind(str(self._own))
            self._own.chmod(0o600)
            self._socket.connect(self._path)
            if self._ask(b"ATTACH").strip() != b"OK":
                raise OSError("hostapd refuses to be followed")
            bssid = own_bssid(self._ask(b"STATUS"))
            self._neighbour = own_neighbour(self._ask(b"SHOW_NEIGHBOR"), bssid) if bssid else None
            listed = self._list()
        except OSError as error:
            return self._lost(error, now_s)
        gone = [self._station(mac, "left") for mac in self._stations if mac not in listed]
        self._stations = listed
        return [*gone, *self.snapshot()]

    def _lost(self, error: OSError, now_s: float) -> list[Document]:
        """Without hostapd nobody is associated."""
        self._complain(f"hostapd at {self._path}: {error.strerror or error}")
        self.close()
        self._alive_s = now_s + ALIVE_EVERY_S
        gone, self._stations = self._stations, {}
        return [self._station(mac, "left") for mac in gone]

    def _list(self) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        station = station_of(self._ask(b"STA-FIRST"))
        while station is not None and len(found) < MAX_STATIONS:
            if station.authorised:
                found[station.mac] = station.signal_dbm
            following = station_of(self._ask(b"STA-NEXT " + station.mac.encode()))
            station = following if following is None or following.mac not in found else None
        return found

    def _signals(self) -> list[Document]:
        """Of all stations whose signal changed."""
        documents = []
        for mac, signal in self._list().items():
            if mac in self._stations and signal is not None and signal != self._stations[mac]:
                self._stations[mac] = signal
                documents.append(self._station(mac, "signal", signal))
        return documents

    def _told(self, news: News) -> list[Document]:
        if isinstance(news, TransitionAnswer):
            return [{"type": "transition", "mac": news.mac, "status": news.status, "target": news.target}]
        return self._moved(news)

    def _moved(self, news: StationNews) -> list[Document]:
        if news.event == "left":
            self._stations.pop(news.mac, None)
        elif len(self._stations) < MAX_STATIONS:
            self._stations[news.mac] = None
        return [self._station(news.mac, news.event)]

    def _station(self, mac: str, event: str, signal_dbm: int | None = None) -> Document:
        return {
            "type": "station",
            "technology": self.technology,
            "mac": mac,
            "event": event,
            "signal_dbm": signal_dbm,
        }

    def _take_news(self) -> list[News]:
        news = list(self._news)
        self._news.clear()
        return news

    def _receive(self) -> bytes | None:
        """All that has come; the last of it that is an answer."""
        answer = None
        while self._socket is not None:
            try:
                message = self._socket.recv(MAX_MESSAGE)
            except BlockingIOError:
                break
            if is_news(message):
                news = news_of(message)
                if news is not None:
                    self._news.append(news)
            else:
                answer = message
        return answer

    def _ask(self, question: bytes) -> bytes:
        if self._socket is None:
            raise ConnectionError("is not followed")
        self._receive()
        self._socket.send(question)
        until_s = time.monotonic() + ANSWER_S
        while (left_s := until_s - time.monotonic()) > 0:
            if select.select([self._socket], [], [], left_s)[0] and (answer := self._receive()) is not None:
                return answer
        raise TimeoutError("no answer")
