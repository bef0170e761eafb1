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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .neighbours import (
    MAX_MESSAGE,
    described_neighbour,
    is_neighbour,
    listed_neighbour,
    own_bss,
    own_neighbour,
    ssid_bytes,
    text_of,
)
from .radius_watch import AUTHENTICATED, MAX_VLAN, REJECTED, RadiusWatch, without_user

_MAC = r"([0-9a-f]{2}(?::[0-9a-f]{2}){5})"
_WORDS = "AP-STA-CONNECTED|AP-STA-DISCONNECTED|BSS-TM-RESP|CTRL-EVENT-EAP-SUCCESS2|CTRL-EVENT-EAP-FAILURE2"
_EVENT = re.compile(rf"(?:<\d>)?({_WORDS}) {_MAC}((?: [^\n]*)?)", re.IGNORECASE)
_EVENTS = {
    "AP-STA-CONNECTED": "joined",
    "AP-STA-DISCONNECTED": "left",
    "CTRL-EVENT-EAP-SUCCESS2": AUTHENTICATED,
    "CTRL-EVENT-EAP-FAILURE2": REJECTED,
}
_FIELD = re.compile(r"([a-z_0-9]+)=(\S+)", re.IGNORECASE)
_STATION = re.compile(_MAC, re.IGNORECASE)
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
    associated, where hostapd tells: at least so long, and less than a second longer. ``user`` and ``vlan`` are what
    802.1X says of it.

    A station that went to another access point stays in the list until hostapd misses it, for minutes.
    """

    mac: str
    authorised: bool
    signal_dbm: int | None
    connected_s: float = 0.0
    user: str | None = None
    vlan: int | None = None
    on_cable: bool = False
    """It is no station of a radio, so nothing can be said to it by 802.11."""
    is_shut_out: bool = False
    """It can't be authenticated, whatever it says, because we had it let go."""


def news_of(message: bytes) -> Document | None:
    """What an unsolicited message tells of a station: that it joined or left, answers a transition request, or was
    authenticated or rejected (802.1X).

    ``status`` 0 accepts, all else refuses (IEEE 802.11-2020, table 9-428).
    """
    found = _EVENT.fullmatch(text_of(message).strip())
    if found is None:
        return None
    kind, mac, rest = found[1].upper(), found[2].lower(), dict(_FIELD.findall(found[3]))
    if kind != "BSS-TM-RESP":
        return {"type": "station", "mac": mac, "event": _EVENTS[kind]}
    status, target = rest.get("status_code", ""), rest.get("target_bssid", "").lower()
    if not status.isascii() or not status.isdigit() or int(status[:4]) > 255:
        return None
    target_or_none = target if _STATION.fullmatch(target) else None
    return {"type": "transition", "mac": mac, "status": int(status), "target": target_or_none}


def station_of(answer: bytes) -> Station | None:
    """The answer to ``STA-FIRST``, ``STA-NEXT`` or ``STA``; None at the end of the list."""
    first, _, rest = text_of(answer).partition("\n")
    if not _STATION.fullmatch(first.strip()):
        return None
    text, user = without_user(rest)
    fields = dict(line.partition("=")[::2] for line in text.splitlines())
    vlan, flags = fields.get("vlan_id", ""), fields.get("flags", "")
    signal = fields.get("signal", "")
    known = re.fullmatch(r"-\d{1,3}", signal) is not None
    connected, silent = (fields.get(key, "") for key in ("connected_time", "inactive_msec"))
    return Station(
        first.strip().lower(),
        "[AUTHORIZED]" in flags,
        int(signal) if known else None,
        _connected_s(*(int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0 for text in (connected, silent))),
        user,
        int(vlan) if re.fullmatch(r"[1-9][0-9]{0,3}", vlan) and int(vlan) < MAX_VLAN else None,
        not ("[AUTH]" in flags or "[ASSOC]" in flags),
        fields.get("dot1xAuthAuthControlledPortControl") == _FORCE_UNAUTHORISED,
    )


_FORCE_UNAUTHORISED = "1"
"""IEEE 802.1X-2004, 9.4.1: dot1xAuthAuthControlledPortControl."""


def _connected_s(whole_s: int, silent_ms: int) -> float:
    """For how long a station has been associated. hostapd tells whole seconds, in which a station may have been at two
    access points; that which it left has not heard it since."""
    return min(max(float(whole_s), silent_ms / 1e3), whole_s + 0.999)


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
    user: str | None = None
    vlan: int | None = None


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
        self._servers = RadiusWatch()
        self._is_8021x = False
        self._shut_out: dict[str, float] = {}
        """Until when who was let go on a cable can't be authenticated."""
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
            documents: list[Document] = []
            while control.told:
                documents += self._noted(control.told.popleft(), control)
            if now_s >= self._alive_s:
                self._alive_s = now_s + ALIVE_EVERY_S
                if control.ask(b"PING").strip() != b"PONG":
                    raise OSError("hostapd does not answer a ping")
            if now_s >= self._signal_s:
                self._signal_s = now_s + SIGNAL_EVERY_S
                documents += self._signals(control)
                if self._servers.is_used:
                    news = self._servers.news(text_of(control.ask(b"MIB")))
                    documents += [self._of_8021x(event, server=server) for event, server in news]
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

    def deauthenticate(self, mac: str, for_s: float = 0.0) -> str | None:
        """A station loses what it was let in by, and may begin anew (on a cable after ``for_s``).

        Returns what is wrong, or None. After DEAUTHENTICATE hostapd forgets a station some seconds later, whatever was
        done meanwhile. One of a radio associates anew and is another one then; one on a cable would lose what it has by
        then, and not hear of it.
        """
        if self._control is None or not _STATION.fullmatch(mac):
            return "hostapd: is not followed" if self._control is None else "no such station"
        try:
            station = station_of(self._control.ask(f"STA {mac}".encode()))
            if station is None:
                return None
            question = _SHUT_OUT if station.on_cable else "DEAUTHENTICATE {}"
            if self._control.ask(question.format(mac).encode()).strip() != b"OK":
                return "hostapd does not let go"
            if station.on_cable:
                self._shut_out[mac] = self._now_s + for_s
                self._let_begin(mac, self._control)
        except OSError as error:
            return f"hostapd: {error.strerror or error}"
        return None

    def _let_begin(self, mac: str, control: Control) -> None:
        """Who was let go may begin anew, if the time is over; hostapd asks it who it is."""
        if self._now_s >= self._shut_out.get(mac, 0.0):
            self._shut_out.pop(mac, None)
            control.ask(_LET_BEGIN.format(mac).encode())

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
                words = f"SET_NEIGHBOR {bssid} ssid={ssid_bytes(ssid).hex()} nr={listed_neighbour(neighbour)}"
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
            self._servers = RadiusWatch(text_of(control.ask(b"MIB")))
            self._is_8021x |= self._servers.is_used
            listed = _listed(control)
        except OSError as error:
            return self._lost(error, now_s)
        gone = [self._station(mac, "left") for mac in self._stations if mac not in listed]
        self._stations = {mac: _Known(s.signal_dbm, now_s - s.connected_s, s.user, s.vlan) for mac, s in listed.items()}
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
        for mac, station in _all(control).items():
            if station.is_shut_out:
                self._let_begin(mac, control)
            if not station.authorised:
                continue
            known, signal = self._stations.get(mac), station.signal_dbm
            if known is not None and signal is not None and signal != known.signal_dbm:
                self._stations[mac] = known._replace(signal_dbm=signal)
                documents.append(self._station(mac, "signal", signal))
        return documents

    def _noted(self, news: Document, control: Control) -> list[Document]:
        if news["type"] != "station":
            return [news]
        mac, event = news["mac"], news["event"]
        if event == REJECTED:
            station = station_of(control.ask(b"STA " + mac.encode()))
            return [self._of_8021x(event, mac=mac, user=station.user if station is not None else None)]
        if event == "left":
            self._stations.pop(mac, None)
            return [self._station(mac, event)]
        known = self._stations.get(mac)
        if event == AUTHENTICATED and known is None:
            # It is not let in yet: hostapd says so at once.
            self._is_8021x = True
            return []
        if known is None and len(self._stations) >= MAX_STATIONS:
            return [self._station(mac, event)]
        user = vlan = None
        if self._is_8021x:
            station = station_of(control.ask(b"STA " + mac.encode()))
            user, vlan = (station.user, station.vlan) if station is not None else (None, None)
        self._stations[mac] = _Known(None, self._now_s, user, vlan)
        return [{**self._station(mac, "joined"), **_by_8021x(self._stations[mac])}]

    def _of_8021x(self, event: str, **what: str | None) -> Document:
        return {"type": "dot1x", "technology": self.technology, "event": event, **what}

    def _joined(self, mac: str, known: _Known) -> Document:
        """One that is associated already, and for how long: another access point may list it, too."""
        age = {"age_s": round(self._now_s - known.joined_s, 3)}
        return {**self._station(mac, "joined", known.signal_dbm), **age, **_by_8021x(known)}

    def _station(self, mac: str, event: str, signal_dbm: int | None = None) -> Document:
        what = {"mac": mac, "event": event, "signal_dbm": signal_dbm}
        return {"type": "station", "technology": self.technology, **what}


def _by_8021x(known: _Known) -> Document:
    """What is told of a station besides, if it was authenticated by 802.1X."""
    return {key: value for key, value in (("user", known.user), ("vlan", known.vlan)) if value is not None}


_SHUT_OUT = "EAPOL_SET {} AdminControlledPortControl ForceUnauthorized"
_LET_BEGIN = "EAPOL_SET {} AdminControlledPortControl Auto"


def _listed(control: Control) -> dict[str, Station]:
    """The stations that are associated and authorised."""
    return {mac: station for mac, station in _all(control).items() if station.authorised}


def _all(control: Control) -> dict[str, Station]:
    """All that hostapd knows."""
    found: dict[str, Station] = {}
    station = station_of(control.ask(b"STA-FIRST"))
    while station is not None and len(found) < MAX_STATIONS:
        found[station.mac] = station
        following = station_of(control.ask(b"STA-NEXT " + station.mac.encode()))
        station = following if following is None or following.mac not in found else None
    return found
