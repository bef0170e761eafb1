"""WiFi: rates against the standard's tables, and answers of nl80211."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nl80211_answers import Recording, channel, links, rate, station, u8, u32

from hyroads.controller.access_point.model import RadioError, SteadyCounters
from hyroads.controller.access_point.nl80211 import stations, survey_times
from hyroads.controller.access_point.wifi_rates import (
    AGGREGATIONS,
    Modulation,
    capacity_kbps,
    ht_modulation,
    l2_capacity_mbps,
    phy_rate_mbps,
)
from hyroads.controller.kernel.netlink import attribute, nested

NEAR, FAR = "02:00:01:01:00:02", "02:00:01:01:00:03"
SURVEY = [channel(5170), channel(5180, active_ms=123_456, busy_ms=23_456, is_used=True),
          channel(5200, active_ms=51, busy_ms=49)]  # fmt: skip
VHT_866 = rate(866.7, 80, is_short=True, vht_mcs=9, vht_nss=2)
VHT_WRONG = rate(866.7, 80, is_short=True, vht_mcs=2, vht_nss=2)


def _u16(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=H", value))


def _flag(kind: int) -> bytes:
    return attribute(kind, b"")


def near(tx: bytes = VHT_866, **counters: int) -> list[bytes]:
    return [station(NEAR, tx, rate(130.0, ht_mcs=15), inactive_ms=304, signals_dbm=(-57, -58), **counters)]


def decoded(tx: bytes):
    (found,) = stations([station(NEAR, tx)])
    return found.tx


@pytest.mark.parametrize(
    ("modulation", "mbps"),
    [  # IEEE 802.11-2020 tables 19-27 ff., 21-30 ff.; 802.11ax-2021 27-111 ff.
        (ht_modulation(0, 20, 0.8), 6.5),
        (ht_modulation(7, 20, 0.4), 72.2),
        (ht_modulation(15, 40, 0.4), 300.0),
        (ht_modulation(31, 40, 0.8), 540.0),
        (Modulation("VHT", 9, 1, 80, 0.4), 433.3),
        (Modulation("VHT", 8, 2, 20, 0.8), 156.0),
        (Modulation("VHT", 9, 3, 160, 0.8), 2340.0),
        (Modulation("HE", 11, 2, 80, 0.8), 1201.0),
        (Modulation("HE", 0, 1, 20, 3.2), 7.3),
        (Modulation("HE", 11, 8, 160, 0.8), 9607.8),
        (Modulation("HE", 0, 1, 20, 0.8, is_dual_carrier=True), 4.3),
        (Modulation("HE", 11, 1, 20, 0.8, unit=2), 62.5),
        (Modulation("EHT", 13, 2, 160, 0.8), 2882.4),  # 802.11be-2024 tables 36-71 ff.
        (Modulation("EHT", 13, 8, 320, 0.8), 23058.8),
        (Modulation("EHT", 12, 1, 20, 3.2), 131.6),
    ],
)
def test_phy_rates_are_those_of_the_standard(modulation, mbps):
    assert phy_rate_mbps(modulation) == pytest.approx(mbps, abs=0.06)


@pytest.mark.parametrize(
    "bad",
    [Modulation("HT", 8, 1, 20, 0.8), Modulation("VHT", 0, 1, 30, 0.8), Modulation("HE", 0, 1, 20, 0.4),
     Modulation("VHT", 0, 9, 20, 0.8), Modulation("EHT", 14, 1, 20, 0.8), Modulation("UHR", 0, 1, 20, 0.8),
     Modulation("HE", 0, 1, 20, 0.8, unit=7), Modulation("HE", 2, 1, 20, 0.8, is_dual_carrier=True)],
)  # fmt: skip
def test_what_the_standard_does_not_have_is_refused(bad):
    with pytest.raises(RadioError):
        phy_rate_mbps(bad)


@given(st.floats(1, 30_000), st.floats(1, 30_000), st.sampled_from(sorted(AGGREGATIONS)))
def test_capacity_grows_with_the_rate_and_never_reaches_it(one, other, standard):
    low, high = sorted((one, other))
    assert 0 < l2_capacity_mbps(low, standard) < low
    # One frame more in an aggregate makes a step, but never downwards by more than the rounding of the count.
    assert l2_capacity_mbps(high) >= l2_capacity_mbps(low)


def test_capacity_of_54_mbps_is_the_textbook_figure():
    # 1500-byte frames at 54 Mb/s without aggregation carry about 30 Mb/s: 1500 * 8 / (193.5 + 228.7) us.
    assert l2_capacity_mbps(54) == pytest.approx(28.4, abs=0.1)
    # 64 frames of 14 us each under one overhead of 194 us.
    assert l2_capacity_mbps(866.7, "VHT") / 866.7 == pytest.approx(0.80, abs=0.01)
    assert l2_capacity_mbps(0) == 0


def test_newer_standards_aggregate_more_frames():
    # 256 frames of 10.3 us and 933 of 4.3 us (4 ms), where 64 would carry 902 and 1642 Mb/s.
    assert l2_capacity_mbps(1201, "HE") == pytest.approx(1085, abs=5)
    assert l2_capacity_mbps(2882.4, "EHT") == pytest.approx(2646, abs=10)


def test_aggregate_of_ht_has_at_most_65535_bytes():
    # 42 frames of 41 us.
    assert l2_capacity_mbps(300, "HT") == pytest.approx(42 * 12000 / (193.5 + 42 * 1544 * 8 / 300))


def test_survey_takes_the_channel_in_use_in_microseconds():
    assert survey_times(SURVEY) == (23_456_000, 123_456_000)
    assert survey_times([SURVEY[0], SURVEY[2]]) == (0, 0)
    assert survey_times([]) == (0, 0)


def test_survey_without_times_is_no_measurement_of_zero():
    assert survey_times([channel(5180, is_used=True)]) == (0, 0)
    assert survey_times([channel(5180, active_ms=5, is_used=True)]) == (0, 0)


def test_stations_have_units_and_both_directions():
    first, second = stations([
        *near(packets=1000, retries=100, failed=5),
        station(FAR, rate(6.0), expected_kbps=4527),
    ])  # fmt: skip
    assert (first.mac, first.inactive_ms, first.signal_dbm) == (NEAR, 304, -58)
    assert (first.tx_packets, first.tx_retries, first.tx_failed) == (1000, 100, 5)
    assert (first.tx.phy_mbps, first.rx.phy_mbps) == (866.7, 130.0)
    assert first.tx.is_consistent and first.rx.is_consistent
    assert (first.tx.standard, first.rx.standard) == ("VHT", "HT")
    assert first.expected_mbps is None
    assert (second.mac, second.signal_dbm) == (FAR, -80)
    assert (second.tx.phy_mbps, second.tx.standard, second.rx, second.expected_mbps) == (6.0, "", None, 4.527)


RATES = [
    (rate(1200.9, 80, he_mcs=11, he_nss=2, he_gi=0, he_dcm=0), "HE-MCS 11 80MHz HE-NSS 2 GI 0.8us"),
    (rate(1134.2, 80, he_mcs=11, he_nss=2, he_gi=1, he_dcm=0), "HE-MCS 11 80MHz HE-NSS 2 GI 1.6us"),
    (rate(300.0, 40, is_short=True, ht_mcs=15), "MCS 15 40MHz GI 0.4us"),
    (VHT_866, "VHT-MCS 9 80MHz VHT-NSS 2 GI 0.4us"),
    (rate(54.0), "54 Mb/s"),
    (rate(1083.3, 80, is_short=True, vht_mcs=11, vht_nss=2), "VHT-MCS 11 80MHz VHT-NSS 2 GI 0.4us"),
    (rate(1733.3, "80+80", is_short=True, vht_mcs=9, vht_nss=2), "VHT-MCS 9 160MHz VHT-NSS 2 GI 0.4us"),
    (rate(4.3, he_mcs=0, he_nss=1, he_gi=0, he_dcm=1), "HE-MCS 0 20MHz HE-NSS 1 GI 0.8us DCM"),
    (rate(62.5, he_mcs=11, he_nss=1, he_gi=0, he_dcm=0, he_ru=2), "HE-MCS 11 RU 2 HE-NSS 1 GI 0.8us"),
    (rate(6.0, 40, ht_mcs=32), "MCS 32 40MHz GI 0.8us"),
    (rate(2882.4, 160, eht_mcs=13, eht_nss=2, eht_gi=0), "EHT-MCS 13 160MHz EHT-NSS 2 GI 0.8us"),
    (rate(5764.7, 320, eht_mcs=13, eht_nss=2, eht_gi=0), "EHT-MCS 13 320MHz EHT-NSS 2 GI 0.8us"),
    (rate(8.6, 80, eht_mcs=14, eht_nss=1, eht_gi=0), "EHT-MCS 14 80MHz EHT-NSS 1 GI 0.8us"),
    (rate(3.0, s1g_mcs=9, s1g_nss=1), "VHT 3 Mb/s"),
]


@pytest.mark.parametrize(("answer", "text"), RATES, ids=[text for _, text in RATES])
def test_rate_of_a_modulation_is_consistent_and_described(answer, text):
    found = decoded(answer)
    assert found.is_consistent and found.text == text


@pytest.mark.parametrize(
    "answer",
    [rate(1200.9, 80, he_mcs=3, he_nss=2, he_gi=0, he_dcm=0), rate(300.0, 40, ht_mcs=15), VHT_WRONG,
     rate(866.7, 80, is_short=True, vht_mcs=99, vht_nss=2), rate(8.6, he_mcs=0, he_nss=1, he_gi=0, he_dcm=1),
     rate(866.7, 40, is_short=True, vht_mcs=9, vht_nss=2)],
)  # fmt: skip
def test_rate_that_contradicts_its_modulation_is_marked(answer):
    assert not decoded(answer).is_consistent


@pytest.mark.parametrize(
    ("answer", "mbps"),
    [
        (rate(1083.3, 80, is_short=True, vht_mcs=11, vht_nss=2), 832),
        (rate(1733.3, "80+80", is_short=True, vht_mcs=9, vht_nss=2), 1205),
        (rate(4.3, he_mcs=0, he_nss=1, he_gi=0, he_dcm=1), 3.9),
        (rate(62.5, he_mcs=11, he_nss=1, he_gi=0, he_dcm=0, he_ru=2), 57.8),
        (rate(6.0, 40, ht_mcs=32), 5.3),
        (rate(640.0) + u8(40, 20), 537.6),  # an attribute of a newer kernel
    ],
)
def test_rates_of_rare_modulations_have_a_capacity(answer, mbps):
    assert capacity_kbps(decoded(answer)) / 1000 == pytest.approx(mbps, rel=0.02)


def test_rate_of_16_bits_of_older_drivers_is_read():
    assert decoded(_u16(1, 540)).phy_mbps == 54.0
    assert decoded(_u16(1, 0)) is None


def test_rate_of_a_narrow_channel_is_taken_as_it_is():
    found = decoded(rate(3.0, ht_mcs=0) + _flag(12))
    assert (found.phy_mbps, found.is_consistent) == (3.0, True)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (station("02:00:01", rate(6.0)), "station: expected an address of 6 bytes, got 3"),
        (station(NEAR, nested(5)), "rate: expected a number, got 0 bytes"),
        (station(NEAR, rate(7.3, he_mcs=0, he_nss=1, he_gi=3)), "guard interval 3: expected 0 to 2"),
        (station(NEAR)[:-1], "claims"),
    ],
)
def test_broken_answer_is_refused_with_its_reason(answer, says):
    with pytest.raises(RadioError, match=f"nl80211: .*{says}"):
        stations([answer])


def test_back_end_counts_loss_and_retries_since_the_last_reading():
    counters = [{"packets": 1000}, {"packets": 1100, "retries": 100, "failed": 10}, {"packets": 10}]
    radio = Recording(SURVEY, *(near(**each) for each in counters)).radio()
    first = radio.read(0.0)
    clean = first.neighbours[0]
    assert (first.busy_us, first.active_us) == (23_456_000, 123_456_000)
    assert clean.tx_loss == 0
    assert clean.tx_capacity_kbps == round(1000 * l2_capacity_mbps(866.7, "VHT"))
    lossy = radio.read(1.0).neighbours[0]
    assert lossy.tx_loss == pytest.approx(0.1)
    assert lossy.tx_capacity_kbps == pytest.approx(clean.tx_capacity_kbps / 2, abs=1)
    assert radio.read(2.0).neighbours[0].tx_loss == 0


def test_a_contradictory_rate_gives_no_estimate():
    assert Recording(SURVEY, near(VHT_WRONG)).radio().read(0.0).neighbours[0].tx_capacity_kbps == 0


def test_station_whose_rate_cannot_be_read_keeps_its_last_capacity_with_its_age():
    radio = Recording(SURVEY, near(), near(VHT_WRONG), near(b""), near()).radio()
    first = radio.read(0.0).neighbours[0]
    for now_s, age in ((2.0, "(2 s old)"), (4.0, "(4 s old)")):
        kept = radio.read(now_s).neighbours[0]
        assert (kept.tx_capacity_kbps, kept.rx_capacity_kbps) == (first.tx_capacity_kbps, first.rx_capacity_kbps)
        assert kept.modulation.endswith(age) and kept.modulation.startswith("VHT-MCS 9")
    assert radio.read(6.0).neighbours[0] == first


def test_station_that_left_does_not_keep_a_capacity():
    radio = Recording(SURVEY, near(), [], near(b"")).radio()
    assert radio.read(0.0).neighbours[0].tx_capacity_kbps > 0
    assert radio.read(1.0).neighbours == ()
    assert radio.read(2.0).neighbours[0].tx_capacity_kbps == 0


# -- multi-link operation: a station with links of 2882 and 688 Mb/s

FAST = rate(2882.4, 160, eht_mcs=13, eht_nss=2, eht_gi=0)
SLOW = rate(688.2, 40, eht_mcs=13, eht_nss=2, eht_gi=0)
BOTH_KBPS = round(1000 * l2_capacity_mbps(2882.4, "EHT")) + round(1000 * l2_capacity_mbps(688.2, "EHT"))


def of_link(tx: bytes, rx: bytes = FAST, *more: bytes) -> list[bytes]:
    return [nested(8, tx), nested(14, rx), *more]


FORMS = {
    "in the station's own answer": [links(NEAR, {0: of_link(SLOW), 2: of_link(FAST)}, station(NEAR, FAST))],
    "in answers of their own": [
        station(NEAR, FAST), links(NEAR, {0: of_link(SLOW)}), links(NEAR, {2: of_link(FAST)}), station(FAR, FAST),
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_station_with_several_links_has_the_sum_of_their_capacities(form):
    near_one = Recording(SURVEY, FORMS[form]).radio().read(0.0).neighbours[0]
    assert (near_one.mac, near_one.tx_capacity_kbps) == (NEAR, BOTH_KBPS)
    assert near_one.rx_capacity_kbps == 2 * round(1000 * l2_capacity_mbps(2882.4, "EHT"))
    assert near_one.modulation.startswith("EHT-MCS 13 40MHz EHT-NSS 2 GI 0.8us + EHT-MCS 13 160MHz")
    assert len(near_one.modulation) == 64


def test_station_that_shows_no_links_has_the_capacity_of_its_own_rate():
    neighbours = Recording(SURVEY, FORMS["in answers of their own"]).radio().read(0.0).neighbours
    assert [each.mac for each in neighbours] == [NEAR, FAR]
    assert neighbours[1].tx_capacity_kbps == round(1000 * l2_capacity_mbps(2882.4, "EHT"))


def test_link_whose_rate_cannot_be_read_keeps_its_last_capacity_and_one_that_ended_does_not():
    slow = of_link(SLOW)
    answers = [[links(NEAR, each, station(NEAR, FAST))] for each in (
        {0: slow, 2: of_link(FAST)}, {0: slow, 2: of_link(VHT_WRONG)}, {0: slow},
    )]  # fmt: skip
    radio = Recording(SURVEY, *answers).radio()
    assert radio.read(0.0).neighbours[0].tx_capacity_kbps == BOTH_KBPS
    kept = radio.read(3.0).neighbours[0]
    assert kept.tx_capacity_kbps == BOTH_KBPS and kept.modulation.endswith("(3 s old)")
    assert radio.read(4.0).neighbours[0].tx_capacity_kbps == round(1000 * l2_capacity_mbps(688.2, "EHT"))


def test_estimate_of_the_driver_is_of_all_links():
    answer = links(NEAR, {0: of_link(SLOW), 2: of_link(FAST)}, station(NEAR, FAST, expected_kbps=900_000))
    assert Recording(SURVEY, [answer]).radio().read(0.0).neighbours[0].tx_capacity_kbps == 900_000


def test_counters_that_links_alone_have_are_added_up():
    each = [u32(10, 100), u32(11, 20), u32(12, 5), u32(1, 40), u8(7, 200)]
    (found,) = stations(
        [links(NEAR, {0: [*of_link(SLOW), *each], 1: [*of_link(FAST), u32(1, 30), u8(7, 206), *each[:3]]})]
    )
    assert (found.tx_packets, found.tx_retries, found.tx_failed) == (200, 40, 10)
    assert (found.inactive_ms, found.signal_dbm) == (30, -50)


@pytest.mark.parametrize("broken", [links(NEAR, {15: []}), links(NEAR, {0: of_link(SLOW)})[:-2]], ids=["number", "cut"])
def test_broken_links_are_refused(broken):
    with pytest.raises(RadioError, match="nl80211: "):
        stations([broken])


@given(st.booleans(), st.floats(0, 1), st.lists(st.floats(0.02, 2.0), min_size=2, max_size=40), st.integers(0, 10**9))
def test_busy_share_of_counters_since_start_and_since_last_reading(restarts, share, periods_s, start_us):
    counters, now_s, total_us = SteadyCounters(), 100.0, 10_000_000 + start_us
    counters.add(round(share * total_us), total_us, now_s)
    for place, period_s in enumerate(periods_s):
        now_s += period_s
        total_us += round(period_s * 1e6)
        active_us = round(period_s * 1e6) if restarts else total_us
        measured = counters.add(round(share * active_us), active_us, now_s)[2]
        # The first reading of counters since the last one is compared with a start that is far away.
        assert place == 0 or measured == pytest.approx(share, abs=1e-3)


@given(st.binary(max_size=400))
def test_decoders_refuse_or_read_any_bytes(data):
    for read in (survey_times, stations):
        with contextlib.suppress(RadioError):
            read([data])
