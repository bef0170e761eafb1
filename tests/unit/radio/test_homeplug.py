"""HomePlug AV management messages: requests, answers, fragments, and hostile frames."""

import contextlib
import struct

import homeplug_frames as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.access_point import homeplug
from hyroads.controller.access_point.homeplug import CutError, Fragments
from hyroads.controller.access_point.homeplug_events import HomePlugError, NetworkInfo, ToneMap

NEAR, BEHIND = "00:0b:3b:aa:00:02", "02:00:01:02:00:02"
TX, RX = (1000, 5, 10, 5000, 50), (900, 1, 4000, 40, 77, 8)
ANSWERS = {
    "network stats": made.network_stats([(NEAR, 132, 98)]),
    "network stats, version 2": made.network_stats([(NEAR, 1200, 898)], version=2),
    "discover list": made.discover_list(),
    "software version": made.software_version(),
    "network info": made.network_info([(NEAR, 2, BEHIND, 132, 98)]),
    "link stats": made.link_stats(TX, RX, [(61, 100, 1, 2, 3)]),
    "tone map": made.frame(0xA071, made.tone_map_body([1] * 100), version=1),
    "sniffer state": made.sniffer_state(True),
    "delimiter": made.delimiter(1, length=1600),
}


def event(frame):
    return Fragments().add(frame)


def test_requests_are_those_that_adapters_know():
    frame = homeplug.request(homeplug.VS_NW_INFO, homeplug.LOCAL_ADAPTER, made.HOST)
    assert frame == bytes.fromhex("00b052000001 020001020001 88e1 01 38a0 0000 00b052").ljust(60, b"\0")
    frame = homeplug.request(homeplug.VS_SW_VER, homeplug.BROADCAST, made.HOST)
    assert frame[14:20] == bytes.fromhex("00 00a0 00b052")
    frame = homeplug.request(homeplug.CM_NW_STATS, homeplug.LOCAL_ADAPTER, made.HOST, version=2)
    assert frame[14:19] == bytes.fromhex("02 4860 0000")
    frame = homeplug.link_stats_request(made.ADAPTER, made.HOST, NEAR)
    assert frame[14:29] == bytes.fromhex("00 30a0 00b052 00 02 f8 000b3baa0002")
    frame = homeplug.tone_map_request(made.ADAPTER, made.HOST, NEAR, 5)
    assert frame[14:34] == bytes.fromhex("01 70a0 0000 00b052 00000000 000b3baa0002 05 00")
    frame = homeplug.sniffer_request(made.ADAPTER, made.HOST, on=True)
    assert frame[14:22] == bytes.fromhex("00 34a0 00b052 01 00")


def test_rates_of_standard_messages():
    found = event(ANSWERS["network stats"])
    assert found.source == made.ADAPTER
    assert [(s.mac, s.tx_mbps, s.rx_mbps) for s in found.stations] == [(NEAR, 132, 98)]
    assert event(ANSWERS["network stats, version 2"]).stations[0].tx_mbps == 1200
    heard = event(ANSWERS["discover list"])
    assert [(s.mac, s.tei, s.same_network, s.snid, s.ble_mbps) for s in heard.stations] == [
        (NEAR, 2, True, 1, 132),
        ("00:0b:3b:bb:00:09", 9, False, 5, 0),
    ]
    assert [(n.nid, n.snid, n.coordinator_status) for n in heard.networks] == [("00010203040506", 5, 2)]


def test_messages_of_the_vendor():
    version = event(ANSWERS["software version"])
    assert (version.device, version.idents[0], version.firmware) == (0x20, 0x001CFCFC, made.FIRMWARE)
    (network,) = event(ANSWERS["network info"]).networks
    assert (network.nid, network.snid, network.own_tei, network.role) == ("01020304050607", 3, 1, 2)
    assert (network.coordinator_mac, network.coordinator_tei) == (made.ADAPTER, 1)
    (station,) = network.stations
    assert (station.mac, station.tei, station.bridged_mac) == (NEAR, 2, BEHIND)
    assert (station.tx_mbps, station.rx_mbps) == (132, 98)
    stats = event(ANSWERS["link stats"])
    assert (stats.link_id, stats.tei) == (0xF8, 2)
    assert (stats.tx.mpdus_acked, stats.tx.mpdus_collided, stats.tx.mpdus_failed) == (1000, 5, 10)
    assert (stats.tx.pbs_passed, stats.tx.pbs_failed) == (5000, 50)
    assert (stats.rx.mpdus_acked, stats.rx.pbs_passed, stats.rx.bit_errors_failed) == (900, 4000, 8)
    assert [(i.phy_mbps, i.pbs_passed) for i in stats.rx.intervals] == [(61, 100)]
    assert event(made.link_stats(TX, None)).rx is None
    assert event(ANSWERS["sniffer state"]).on


def test_delimiter_and_its_bit_loading_estimate():
    found = event(made.delimiter(1, length=1600, source_tei=7, destination_tei=9, ble=(10 << 3) | 6))
    assert (found.kind, found.snid, found.source_tei, found.destination_tei) == (1, 3, 7, 9)
    assert (found.system_time, found.frame_length, found.mpdu_count) == (123456, 1600, 1)
    assert found.ble_mbps == (32 + 10) * 4 + 2


def test_tone_map_gives_the_bit_loading_estimate():
    codes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 15]
    found = event(made.frame(0xA071, made.tone_map_body(codes), version=1))
    assert (found.peer, found.slot, found.slots, list(found.codes)) == (NEAR, 0, 6, codes)
    assert found.ble_mbps() == pytest.approx(16 / 21 * (1 + 2 + 3 + 4 + 6 + 8 + 10 + 12) / 46.52)


@given(st.integers(1, 2880), st.integers(200, 1400))
def test_fragments_are_joined(carriers, room):
    codes = [i % 9 for i in range(carriers)]
    frames = made.fragments(0xA071, made.tone_map_body(codes), room=room)
    joiner = Fragments()
    *begin, end = [joiner.add(frame) for frame in frames]
    assert all(found is None for found in begin)
    assert isinstance(end, ToneMap) and list(end.codes) == codes


def test_network_of_254_stations():
    stations = [(f"00:0b:3b:00:00:{tei:02x}", tei, BEHIND, tei, 255 - tei) for tei in range(1, 255)]
    joiner = Fragments()
    *_, found = [joiner.add(frame) for frame in made.fragments(0xA039, made.network_info_body(stations))]
    assert isinstance(found, NetworkInfo)
    assert [s.tei for s in found.networks[0].stations] == list(range(1, 255))


def test_fragment_out_of_order_ends_its_message():
    frames = made.fragments(0xA071, made.tone_map_body([1] * 2880), room=600)
    joiner = Fragments()
    assert [joiner.add(frame) for frame in (frames[0], frames[2], frames[1])] == [None, None, None]
    assert isinstance([joiner.add(frame) for frame in frames][-1], ToneMap)


def test_incomplete_messages_are_bounded():
    joiner = Fragments()
    for sequence in range(256):
        joiner.add(made.fragments(0xA071, made.tone_map_body([1] * 2880), room=600, sequence=sequence)[0])
    assert len(joiner._pending) == homeplug.MAX_PENDING


@pytest.mark.parametrize("name", ANSWERS)
def test_cut_message_is_refused_at_each_length(name):
    whole = ANSWERS[name]
    content = len(whole.rstrip(b"\0"))
    for length in range(17, min(content, 100)):
        with contextlib.suppress(HomePlugError):
            # A text or a list that ends early is complete only if its own length says so.
            assert event(whole[:length]) is not None
    with pytest.raises(CutError):
        event(whole[:19])


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (made.frame(0x6049, b"\xff" + bytes(3000), version=1), "255 rows"),
        (made.frame(0xA039, b"\x00\x1f\x84" + bytes(60), version=1), "vendor 00:1f:84"),
        (made.frame(0xA001, made.OUI + b"\x05", version=0), "status 5"),
        (made.frame(0xA031, made.OUI + bytes((0, 3)), version=0), "direction 3"),
        (
            made.frame(0xA031, made.OUI + bytes((0, 1, 0, 2)) + bytes(48) + b"\x07" + bytes(400), version=0),
            "7 tone-map",
        ),
        (made.frame(0xA071, made.tone_map_body([1], slot=6), version=1), "slot 6 of 6"),
        (
            made.frame(0xA039, made.OUI + struct.pack("<2xH", 1400) + b"\0\xff" + b"\xfe" * 1400, version=1),
            "cut after|more than 254",
        ),
    ],
)
def test_contradiction_names_message_and_adapter(frame, why):
    with pytest.raises(HomePlugError, match=why) as caught:
        event(frame)
    assert made.ADAPTER in str(caught.value)


def test_other_frames_are_no_events():
    request = homeplug.request(homeplug.VS_NW_INFO, homeplug.LOCAL_ADAPTER, made.HOST)
    assert event(request) is None
    assert event(b"") is None
    assert event(bytes(60)) is None
    assert event(made.frame(0x1234, b"", version=1)) is None


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(sorted(ANSWERS)), st.binary(max_size=8), st.integers(14, 80)), max_size=6))
def test_changed_frames_raise_nothing_else(changes):
    joiner = Fragments()
    for name, patch, place in changes:
        frame = ANSWERS[name]
        with contextlib.suppress(HomePlugError):
            joiner.add(frame[:place] + patch + frame[place + len(patch) :])
