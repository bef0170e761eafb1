"""A peer that speaks hostapd's control protocol over a Unix datagram socket, for machines without radios."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONNECTED_S = 7
"""For how long its stations have been associated, when it is asked for the first time and later."""


class Peer(threading.Thread):
    """An access point with some stations, as hostapd shows it."""

    def __init__(self, path: Path, stations: dict[str, int] | None = None, bssid: str = "02:00:00:00:00:09") -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.stations = stations or {}
        self.bssid = bssid
        self.on_transition: Callable[[], object] = lambda: None
        self.asked: list[str] = []
        self.follower: Any = None
        self.start()

    def run(self) -> None:
        while True:
            try:
                question, sender = self.socket.recvfrom(4096)
            except OSError:
                return
            if question == b"end":
                return
            self.asked.append(question.decode())
            if question == b"ATTACH":
                self.follower = sender
                self.tell("<3>CTRL-EVENT-UNRELATED")
            # Whoever says farewell does not wait for an answer.
            with contextlib.suppress(OSError):
                self.socket.sendto(self.answer(question.decode()).encode(), sender)

    def answer(self, question: str) -> str:
        word, _, rest = question.partition(" ")
        known = list(self.stations)
        if word in ("STA-FIRST", "STA-NEXT"):
            at = known.index(rest) + 1 if rest else 0
            if at == len(known):
                return ""
            signal = self.stations[known[at]]
            return f"{known[at]}\nflags=[AUTH][ASSOC][AUTHORIZED]\nconnected_time={CONNECTED_S}\nsignal={signal}\n"
        if word == "BSS_TM_REQ":
            threading.Timer(0.05, self.on_transition).start()
        neighbours = f"{self.bssid} ssid=61 nr={self.bssid.replace(':', '')}8f000000510607\n"
        answers = {"PING": "PONG\n", "STATUS": f"bssid[0]={self.bssid}\nssid[0]=lab\n", "SHOW_NEIGHBOR": neighbours}
        return answers.get(word, "1\n" if word == "BSS_TM_REQ" else "OK\n")

    def tell(self, text: str) -> None:
        self.socket.sendto(text.encode(), self.follower)

    def end(self) -> None:
        """As if hostapd ended."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mine:
            mine.connect(self.socket.getsockname())
            mine.send(b"end")
        self.join()
        Path(self.socket.getsockname()).unlink()
        self.socket.close()
