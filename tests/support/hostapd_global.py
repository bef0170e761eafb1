"""A hostapd as its global control socket shows it (2.10), for several networks on one radio, which need a real radio.

It reads the files that it is given as far as the names, SSIDs and keys of BSSs go. What a real one does is in
tests/integration/test_wireless.py.
"""

from __future__ import annotations

import selectors
import socket
import threading
from pathlib import Path


def sections(text: str) -> list[dict[str, str]]:
    """The BSSs of a file, the first with what is the radio's."""
    found: list[dict[str, str]] = []
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key in ("interface", "bss"):
            found.append({"name": value})
        else:
            found[-1][key] = value
    return found


class Hostapd(threading.Thread):
    """``refuses`` are names of BSSs that it does not take; ``begun`` counts how often each BSS went on the air."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.refuses: set[str] = set()
        self.begun: dict[str, int] = {}
        self.radios: dict[str, list[dict[str, str]]] = {}
        self.channel: dict[str, str] = {}
        self.stations: dict[str, int] = {}
        self._forgotten = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[str, socket.socket] = {}
        self._open("", path)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self.start()

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    if self._woken.recv(1) == b"e":
                        return
                    self._forget()
                    continue
                question, peer = key.fileobj.recvfrom(4096)  # type: ignore[union-attr]
                answer = self._answer(key.data, question.decode())
                key.fileobj.sendto(answer.encode(), peer)  # type: ignore[union-attr]
                for name in [name for name in self._sockets if name and not self._radio_of(name)]:
                    self._close(name)

    def forget(self) -> None:
        """As if it was started anew."""
        self._forgotten.clear()
        self._wake.send(b"f")
        self._forgotten.wait(10)

    def _forget(self) -> None:
        self.radios.clear()
        for name in [name for name in self._sockets if name]:
            self._close(name)
        self._forgotten.set()

    def end(self) -> None:
        self._wake.send(b"e")
        self.join()
        for name in list(self._sockets):
            self._close(name)

    def _open(self, name: str, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        found = self._sockets[name] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        found.bind(str(path))
        self._selector.register(found, selectors.EVENT_READ, name or "global")

    def _close(self, name: str) -> None:
        found = self._sockets.pop(name)
        self._selector.unregister(found)
        Path(found.getsockname()).unlink()
        found.close()

    def _radio_of(self, name: str) -> str | None:
        return next((radio for radio, bsss in self.radios.items() if any(b["name"] == name for b in bsss)), None)

    def _answer(self, name: str, question: str) -> str:
        word, _, rest = question.partition(" ")
        if name == "global":
            return {"PING": lambda: "PONG\n", "ADD": lambda: self._add(rest), "REMOVE": lambda: self._remove(rest)}[
                word
            ]()
        radio = self._radio_of(name)
        if radio is None:
            return "FAIL\n"
        return self._status(radio) if word == "STATUS" else self._configuration(radio, name)

    def _add(self, rest: str) -> str:
        phy, path = rest.removeprefix("bss_config=").split(":", 1)
        found = sections(Path(path).read_text())
        if any(bss["name"] in self.refuses or self._radio_of(bss["name"]) for bss in found):
            return "FAIL\n"
        if phy not in self.radios:
            self.radios[phy], self.channel[phy] = [], found[0]["channel"]
        self.radios[phy] += found
        for bss in found:
            self.begun[bss["name"]] = self.begun.get(bss["name"], 0) + 1
            self._open(bss["name"], Path(bss["ctrl_interface"]) / bss["name"])
        return "OK\n"

    def _remove(self, name: str) -> str:
        radio = self._radio_of(name)
        if radio is None:
            return "FAIL\n"
        if self.radios[radio][0]["name"] == name:
            del self.radios[radio]
        else:
            self.radios[radio] = [bss for bss in self.radios[radio] if bss["name"] != name]
        return "OK\n"

    def _status(self, radio: str) -> str:
        lines = ["state=ENABLED", f"channel={self.channel[radio]}"]
        for number, bss in enumerate(self.radios[radio]):
            lines += [f"bss[{number}]={bss['name']}", f"num_sta[{number}]={self.stations.get(bss['name'], 0)}"]
        return "\n".join(lines) + "\n"

    def _configuration(self, radio: str, name: str) -> str:
        bss = next(bss for bss in self.radios[radio] if bss["name"] == name)
        ssid = bytes.fromhex(bss["ssid2"]).decode("ascii") if "ssid2" in bss else bss["ssid"]
        keys = [f"key_mgmt={bss['wpa_key_mgmt']} "] if "wpa_key_mgmt" in bss else []
        return "\n".join([f"ssid={ssid}", *keys]) + "\n"
