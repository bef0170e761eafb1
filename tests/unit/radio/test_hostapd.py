"""hostapd's control interface: its messages as data, and the follower against a peer that speaks the protocol."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostapd_peer import CONNECTED_S, Peer
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point import hostapd, neighbours
from hyroads.controller.access_point.hostapd import HostapdFollower

MAC, OTHER = "02:aa:00:00:00:01", "02:aa:00:00:00:02"
NEIGHBOUR = "02:00:00:00:00:09,0x8f,81,6,7"


def test_events_of_stations():
    joined = {"type": "station", "mac": MAC, "event": "joined"}
    assert hostapd.news_of(b"<3>AP-STA-CONNECTED 02:AA:00:00:00:01") == joined
    assert hostapd.news_of(b"<3>AP-STA-CONNECTED 02:aa:00:00:00:01 auth_alg=open") == joined
    assert hostapd.news_of(b"<3>AP-STA-DISCONNECTED 02:aa:00:00:00:01\n") == {**joined, "event": "left"}
    for other in (b"<3>CTRL-EVENT-EAP-STARTED 02:aa:00:00:00:01", b"<3>AP-STA-CONNECTED 02:aa", b"OK", b"\xff\xfe"):
        assert hostapd.news_of(other) is None


def test_answers_to_transitions():
    refused = b"<3>BSS-TM-RESP 02:aa:00:00:00:01 status_code=7 bss_termination_delay=0"
    accepted = b"<3>BSS-TM-RESP 02:aa:00:00:00:01 status_code=0 bss_termination_delay=0 target_bssid=02:00:00:00:00:09"
    answer = {"type": "transition", "mac": MAC}
    assert hostapd.news_of(refused) == {**answer, "status": 7, "target": None}
    assert hostapd.news_of(accepted) == {**answer, "status": 0, "target": "02:00:00:00:00:09"}
    assert hostapd.news_of(b"<3>BSS-TM-RESP 02:aa:00:00:00:01 status_code=999") is None


def test_lists_and_neighbours():
    entry = b"02:aa:00:00:00:01\nflags=[AUTH][ASSOC][AUTHORIZED]\naid=1\nsignal=-47\n"
    assert hostapd.station_of(entry) == hostapd.Station(MAC, authorised=True, signal_dbm=-47)
    assert hostapd.station_of(b"02:aa:00:00:00:01\nflags=[AUTH]\n") == hostapd.Station(MAC, False, None)
    lasting = hostapd.station_of(entry + b"connected_time=312\ninactive_msec=90000\n")
    assert lasting == hostapd.Station(MAC, True, -47, connected_s=312)
    # It came and went within the second: since it is silent, it has been elsewhere.
    for silent_ms, connected_s in ((200, 3), (3400, 3.4), (9000, 3.999)):
        told = entry + f"connected_time=3\ninactive_msec={silent_ms}\n".encode()
        assert hostapd.station_of(told) == hostapd.Station(MAC, True, -47, connected_s)
    assert hostapd.station_of(entry + b"connected_time=-1\n") == hostapd.Station(MAC, True, -47, connected_s=0)
    assert hostapd.station_of(b"FAIL\n") is None
    listed = b"02:00:00:00:00:09 ssid=61 nr=0200000000098f000000510607\n"
    assert neighbours.own_neighbour(listed, "02:00:00:00:00:09") == NEIGHBOUR
    assert neighbours.own_neighbour(listed, OTHER) is None
    status = b"bss[0]=wlan0\nbssid[0]=02:00:00:00:00:09\nssid[0]=lab\nbss[1]=wlan0-b\nbssid[1]=" + OTHER.encode()
    assert neighbours.own_bss(status, "wlan0") == ("02:00:00:00:00:09", "lab")
    assert neighbours.own_bss(status, "wlan0-b") == (OTHER, ""), "the second BSS of the radio, at its own socket"
    assert neighbours.own_bss(status, "another") == ("02:00:00:00:00:09", "lab")
    assert neighbours.own_bss(b"state=DISABLED\n", "wlan0") is None
    assert neighbours.is_neighbour(NEIGHBOUR)
    assert not neighbours.is_neighbour(NEIGHBOUR + " url=http://x")


def test_a_hostapd_that_lists_no_neighbour_is_described_by_its_channel():
    """Stations of Mininet-WiFi were never sent anywhere: its hostapd has no rrm_neighbor_report, and lists nothing."""
    status = b"freq=2412\nchannel=1\nieee80211n=0\nieee80211ac=0\nieee80211ax=0\n"
    assert neighbours.described_neighbour(status, MAC) == f"{MAC},0x3,81,1,6"
    assert neighbours.described_neighbour(b"channel=36\nieee80211n=1\nieee80211ac=1\n", MAC) == f"{MAC},0x3,115,36,9"
    assert neighbours.described_neighbour(b"channel=149\n", MAC) == f"{MAC},0x3,124,149,4"
    for channel in (b"0", b"15", b"x", b"-1", b"999999", b"\xb2"):
        assert neighbours.described_neighbour(b"channel=" + channel, MAC) is None


@given(st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 255), st.integers(0, 255))
def test_a_neighbour_is_listed_as_it_is_read(information, operating_class, channel, phy):
    neighbour = f"{MAC},0x{information:x},{operating_class},{channel},{phy}"
    listed = f"{MAC} ssid=61 nr={neighbours.listed_neighbour(neighbour)}\n"
    assert neighbours.own_neighbour(listed.encode(), MAC) == neighbour


def test_ssids_are_what_hostapd_prints():
    assert neighbours.is_ssid("lab")
    assert neighbours.is_ssid("\\xc3\\xbc" * 16)
    assert not any(neighbours.is_ssid(text) for text in ("", "a" * 33, None, 7, "\\xc3" * 33))


@given(st.binary(max_size=300))
def test_nothing_that_comes_does_harm(message):
    hostapd.news_of(message)
    hostapd.station_of(message)
    neighbours.own_neighbour(message, MAC)
    neighbours.own_bss(message, "wlan0")
    neighbours.described_neighbour(message, MAC)


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    found = Peer(tmp_path / "wlan0", {MAC: -40})
    yield found
    if found.is_alive():
        found.end()


CLOCK_S = itertools.count(1000.0, 0.05)
"""The follower's time goes by as fast as it is asked."""


def polled(follower: HostapdFollower, count: int) -> list[dict[str, Any]]:
    """So many messages."""
    found: list[dict[str, Any]] = []
    until_s = time.monotonic() + 5
    while len(found) < count and time.monotonic() < until_s:
        found += follower.poll(next(CLOCK_S))
    assert len(found) == count, found
    return found


def test_a_follower_tells_what_is_there_and_what_happens(peer, tmp_path):
    follower = HostapdFollower(str(tmp_path / "wlan0"), "wifi", pytest.fail)
    bss, station = polled(follower, 2)
    assert bss == {"type": "bss", "technology": "wifi", "neighbour": NEIGHBOUR, "ssid": "lab"}
    joined = {"type": "station", "technology": "wifi", "event": "joined"}
    assert station == {**joined, "mac": MAC, "signal_dbm": -40, "age_s": CONNECTED_S}
    peer.tell(f"<3>AP-STA-CONNECTED {OTHER}")
    assert polled(follower, 1) == [{**joined, "mac": OTHER, "signal_dbm": None}]
    # A controller that comes later hears of both how long they have been there.
    follower.poll(next(CLOCK_S) + 100)
    ages_s = {d["mac"]: d["age_s"] for d in follower.snapshot() if d["type"] == "station"}
    assert ages_s[MAC] == pytest.approx(ages_s[OTHER] + CONNECTED_S, abs=1)
    assert ages_s[OTHER] == pytest.approx(100, abs=1)
    peer.tell(f"<3>AP-STA-DISCONNECTED {MAC}")
    assert polled(follower, 1)[0]["event"] == "left"
    assert follower.transition(OTHER, NEIGHBOUR) is None
    assert peer.asked[-1] == f"BSS_TM_REQ {OTHER} pref=1 abridged=1 valid_int=255 neighbor={NEIGHBOUR}"
    assert follower.transition(MAC, NEIGHBOUR) == "no such station"
    assert follower.transition(OTHER, "x\nBSS_TM_REQ") == "no such neighbour"
    peer.tell(f"<3>BSS-TM-RESP {OTHER} status_code=1 bss_termination_delay=0")
    assert polled(follower, 1) == [{"type": "transition", "mac": OTHER, "status": 1, "target": None}]
    follower.close()
    assert not list(tmp_path.parent.glob("hyroads-*"))


def test_who_was_there_is_gone_with_hostapd_and_listed_again_with_a_new_one(peer, tmp_path):
    complaints: list[str] = []
    follower = HostapdFollower(str(tmp_path / "wlan0"), "wifi", complaints.append)
    polled(follower, 2)
    peer.end()
    [left] = polled(follower, 1)
    assert (left["event"], left["mac"]) == ("left", MAC)
    assert complaints
    again = Peer(tmp_path / "wlan0", {OTHER: -60})
    assert [document.get("mac") for document in polled(follower, 2)] == [None, OTHER]
    follower.close()
    again.end()


def test_stations_that_ask_are_told_of_the_others(tmp_path, peer):
    follower = HostapdFollower(str(tmp_path / "wlan0"), "wifi", lambda _what: None)
    assert follower.set_neighbours([(NEIGHBOUR, "lab")]) is not None, "nobody is followed yet"
    polled(follower, 2)
    other = f"{OTHER},0x3,81,1,6"
    assert follower.set_neighbours([(NEIGHBOUR, "lab"), (other, "a\\xff")]) is None
    assert f"SET_NEIGHBOR 02:00:00:00:00:09 ssid=6c6162 nr={neighbours.listed_neighbour(NEIGHBOUR)}" in peer.asked
    assert f"SET_NEIGHBOR {OTHER} ssid=61ff nr={neighbours.listed_neighbour(other)}" in peer.asked
    assert follower.set_neighbours([(NEIGHBOUR, "lab")]) is None
    assert f"REMOVE_NEIGHBOR {OTHER}" in peer.asked
    follower.close()
