"""802.11v and 802.11k on the air: a real hostapd for each of two access points, a real wpa_supplicant, radios of
mac80211_hwsim that the test makes itself.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wireless_rig import PROGRAMS, has_radios, wait_for

from hyroads.controller.access_point.hostapd import HostapdFollower
from hyroads.controller.kernel.generic_netlink import GenericNetlink
from hyroads.controller.kernel.netlink import text_attribute

TOOLS = [shutil.which(name, path=PROGRAMS) for name in ("hostapd", "wpa_supplicant", "iw")]


pytestmark = [
    pytest.mark.root,
    pytest.mark.radio,
    pytest.mark.skipif(not has_radios(), reason="needs root and mac80211_hwsim (scripts/guest.sh)"),
    pytest.mark.skipif(None in TOOLS, reason="needs hostapd, wpa_supplicant, iw"),
]
NEW_RADIO, DEL_RADIO, RADIO_ID, RADIO_NAME = 4, 5, 10, 17
MACS = {"hr-ap1": "02:00:00:00:aa:01", "hr-ap2": "02:00:00:00:aa:02", "hr-sta": "02:00:00:00:aa:03"}
ONE, TWO, STATION = MACS
KEY = "correct horse battery"


def interface_of(phy: str) -> str:
    """The interface that a new radio comes with."""
    (folder,) = Path(f"/sys/class/ieee80211/{phy}/device/net").iterdir()
    return folder.name


class Supplicant:
    """A station's wpa_supplicant at its control socket."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sta" / STATION
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "mine"))
        self.socket.settimeout(5.0)
        assert wait_for(self.path.exists, 10.0)
        self.socket.connect(str(self.path))
        assert self.ask("ATTACH") == "OK"

    def ask(self, words: str) -> str:
        self.socket.send(words.encode())
        while True:
            answer = self.socket.recv(4096).decode()
            if not answer.startswith("<"):
                return answer.strip()

    def told(self, word: str, within_s: float = 3.0) -> list[str]:
        """Events with a word, up to a moment without any."""
        found: list[str] = []
        self.socket.settimeout(within_s)
        try:
            while True:
                event = self.socket.recv(4096).decode()
                if word in event:
                    found.append(event)
                    self.socket.settimeout(0.5)
        except TimeoutError:
            return found
        finally:
            self.socket.settimeout(5.0)

    def at(self) -> str | None:
        """The access point, once everything is agreed."""
        fields = dict(line.partition("=")[::2] for line in self.ask("STATUS").splitlines())
        return fields.get("bssid") if fields.get("wpa_state") == "COMPLETED" else None


class Air:
    """Two access points with one SSID and a station; ``lines`` are more of hostapd's files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.radios, self.programs = folder, [], []  # type: ignore[var-annotated]
        self.followers: dict[str, HostapdFollower] = {}
        for name, mac in MACS.items():
            with GenericNetlink("MAC80211_HWSIM") as kernel:
                self.radios.append(kernel.command(NEW_RADIO, text_attribute(RADIO_NAME, name)))
            assert wait_for(lambda name=name: Path(f"/sys/class/ieee80211/{name}/device/net").exists(), 10.0)  # type: ignore[misc]
            command = ["ip", "link", "set", interface_of(name), "down", "name", name, "address", mac]
            subprocess.run(command, check=True)

    def begin(self, *lines: str) -> Supplicant:
        for name in (ONE, TWO):
            path = self.folder / f"{name}.conf"
            head = [f"interface={name}", "driver=nl80211", f"ctrl_interface={self.folder}/hostapd", "ssid=lab"]
            key = [
                "hw_mode=g",
                "channel=1",
                "wpa=2",
                "wpa_key_mgmt=WPA-PSK",
                "rsn_pairwise=CCMP",
                f"wpa_passphrase={KEY}",
            ]
            path.write_text("\n".join([*head, *key, *lines]) + "\n")
            self._run("hostapd", str(path))
            assert wait_for((self.folder / "hostapd" / name).exists, 10.0)
            self.followers[name] = HostapdFollower(str(self.folder / "hostapd" / name), "wifi", pytest.fail)
            assert wait_for(lambda name=name: bool(self.followers[name].poll(time.monotonic())), 10.0)  # type: ignore[misc]
        network = f'ssid="lab"\npsk="{KEY}"\nscan_freq=2412'
        path = self.folder / "sta.conf"
        path.write_text(f"ctrl_interface={self.folder}/sta\nnetwork={{\n{network}\n}}\n")
        self._run("wpa_supplicant", "-Dnl80211", f"-i{STATION}", f"-c{path}")
        station = Supplicant(self.folder)
        assert wait_for(lambda: station.at() in MACS.values(), 10.0)
        return station

    def _run(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.log").open("ab") as log:
            self.programs.append(subprocess.Popen(command, stdout=log, stderr=log))

    def neighbour(self, name: str) -> str:
        """What others need to send stations to an access point."""
        entry = next(d for d in self.followers[name].snapshot() if d["type"] == "bss")
        assert entry["ssid"] == "lab"
        return str(entry["neighbour"])

    def send_elsewhere(self, station: Supplicant) -> bool:
        """By 802.11v; whether the station is there after at most 3 s."""
        here = next(name for name in (ONE, TWO) if MACS[name] == station.at())
        there = TWO if here == ONE else ONE
        follower = self.followers[here]

        def asked() -> bool:
            follower.poll(time.monotonic())
            return follower.transition(MACS[STATION], self.neighbour(there)) is None

        assert wait_for(asked, 10.0), "the follower knows of the station"
        return wait_for(lambda: station.at() == MACS[there], 3.0)

    def end(self) -> None:
        for follower in self.followers.values():
            follower.close()
        for program in self.programs:
            program.terminate()
            program.wait(10)
        with GenericNetlink("MAC80211_HWSIM") as kernel:
            for number in self.radios:
                kernel.command(DEL_RADIO, struct.pack("=HHI", 8, RADIO_ID, number))


@pytest.fixture
def air(tmp_path: Path) -> Iterator[Air]:
    found = Air(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_a_station_goes_to_an_access_point_that_lists_no_neighbour(air: Air) -> None:
    """As Mininet-WiFi's hostapd is: neither 802.11v nor 802.11k in its file."""
    station = air.begin()
    assert air.neighbour(ONE) == f"{MACS[ONE]},0x3,81,1,6"
    assert all(air.send_elsewhere(station) for _ in range(4))


def test_a_station_goes_to_an_access_point_that_lists_itself(air: Air) -> None:
    station = air.begin("bss_transition=1", "rrm_neighbor_report=1", "ieee80211n=1")
    assert air.neighbour(TWO).endswith(",81,1,7")
    assert all(air.send_elsewhere(station) for _ in range(4))


def test_a_station_that_asks_is_told_of_the_other_access_point(air: Air) -> None:
    station = air.begin("rrm_neighbor_report=1")
    here = next(name for name in (ONE, TWO) if MACS[name] == station.at())
    there = TWO if here == ONE else ONE
    assert station.ask("NEIGHBOR_REP_REQUEST") == "OK"
    alone = station.told("RRM-NEIGHBOR-REP-RECEIVED", 1.0)
    assert not any(MACS[there] in event for event in alone), "hostapd knows itself only"
    assert air.followers[here].set_neighbours([(air.neighbour(there), "lab")]) is None
    assert station.ask("NEIGHBOR_REP_REQUEST") == "OK"
    told = station.told("RRM-NEIGHBOR-REP-RECEIVED")
    assert [event for event in told if f"bssid={MACS[there]}" in event and "chan=1" in event], told
    assert air.followers[here].set_neighbours([]) is None
    assert station.ask("NEIGHBOR_REP_REQUEST") == "OK"
    assert not any(MACS[there] in event for event in station.told("RRM-NEIGHBOR-REP-RECEIVED", 1.0))


def test_a_hostapd_without_802_11k_says_so(air: Air) -> None:
    air.begin()
    assert "rrm_neighbor_report" in str(air.followers[ONE].set_neighbours([(air.neighbour(TWO), "lab")]))
