"""Follows one hostapd over its control socket, and tells the radio channel what happens to its stations.

A question is asked and answered in one step (hostapd answers within microseconds); what it tells meanwhile is kept. It
is asked for a sign of life now and then; one that was started anew is followed anew, and its stations are listed again.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyroads.controller.radio import hostapd
from hyroads.controller.radio.hostapd import News, StationNews, TransitionAnswer

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
        if mac not in self._stations or not hostapd.is_neighbour(neighbour):
            return "no such station" if mac not in self._stations else "no such neighbour"
        try:
            answer = self._ask(hostapd.transition_request(mac, neighbour)).strip()
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
            bssid = hostapd.own_bssid(self._ask(b"STATUS"))
            self._neighbour = hostapd.own_neighbour(self._ask(b"SHOW_NEIGHBOR"), bssid) if bssid else None
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
        station = hostapd.station_of(self._ask(b"STA-FIRST"))
        while station is not None and len(found) < MAX_STATIONS:
            if station.authorised:
                found[station.mac] = station.signal_dbm
            following = hostapd.station_of(self._ask(b"STA-NEXT " + station.mac.encode()))
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
                message = self._socket.recv(hostapd.MAX_MESSAGE)
            except BlockingIOError:
                break
            if hostapd.is_news(message):
                news = hostapd.news_of(message)
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
