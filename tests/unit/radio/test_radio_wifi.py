"""WiFi: rates against the standard's tables, dumps of real iw's form."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.linux_wifi import LinuxWifi, parse_stations, parse_survey
from hyroads.controller.access_point.model import RadioError, SteadyCounters
from hyroads.controller.access_point.wifi_rates import (
    AGGREGATIONS,
    Modulation,
    capacity_kbps,
    ht_modulation,
    l2_capacity_mbps,
    parse_rate,
    phy_rate_mbps,
)

SURVEY = """\
Survey data from wlan0
\tfrequency:\t\t\t5170 MHz
\tnoise:\t\t\t\t-90 dBm
Survey data from wlan0
\tfrequency:\t\t\t5180 MHz [in use]
\tnoise:\t\t\t\t-95 dBm
\tchannel active time:\t\t123456 ms
\tchannel busy time:\t\t23456 ms
\tchannel receive time:\t\t12000 ms
\tchannel transmit time:\t\t9000 ms
Survey data from wlan0
\tfrequency:\t\t\t5200 MHz
\tchannel active time:\t\t51 ms
\tchannel busy time:\t\t49 ms
"""

STATIONS = """\
Station 02:00:01:01:00:02 (on wlan0)
\tinactive time:\t304 ms
\trx bytes:\t18816
\trx packets:\t141
\ttx bytes:\t8816000
\ttx packets:\t{packets}
\ttx retries:\t{retries}
\ttx failed:\t{failed}
\trx drop misc:\t3
\tsignal:  \t-57 [-60, -59] dBm
\tsignal avg:\t-58 [-61, -60] dBm
\ttx bitrate:\t866.7 MBit/s VHT-MCS 9 80MHz short GI VHT-NSS 2
\trx bitrate:\t130.0 MBit/s MCS 15
\tauthorized:\tyes
\tassociated:\tyes
Station 02:00:01:01:00:03 (on wlan0)
\tinactive time:\t0 ms
\ttx packets:\t1
\ttx retries:\t0
\ttx failed:\t0
\tsignal:  \t-80 dBm
\ttx bitrate:\t6.0 MBit/s
\trx bitrate:\t(unknown)
\texpected throughput:\t4.527Mbps
"""


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
    assert parse_survey(SURVEY) == (23_456_000, 123_456_000)
    assert parse_survey(SURVEY.replace(" [in use]", "")) == (0, 0)
    assert parse_survey("") == (0, 0)


def test_survey_in_another_unit_is_refused():
    with pytest.raises(RadioError, match="channel busy time: expected a number of ms"):
        parse_survey(SURVEY.replace("\t23456 ms", "\t23456 us"))


def test_survey_without_times_is_no_measurement_of_zero():
    text = "Survey data from wlan0\n\tfrequency:\t\t\t5180 MHz [in use]\n\tnoise:\t\t\t\t-95 dBm\n"
    assert parse_survey(text) == (0, 0)


def test_stations_have_units_and_both_directions():
    first, second = parse_stations(STATIONS.format(packets=1000, retries=100, failed=5))
    assert (first.mac, first.inactive_ms, first.signal_dbm) == ("02:00:01:01:00:02", 304, -58)
    assert (first.tx.phy_mbps, first.rx.phy_mbps) == (866.7, 130.0)
    assert first.tx.is_consistent and first.rx.is_consistent
    assert (first.tx.standard, first.rx.standard) == ("VHT", "HT")
    assert first.expected_mbps is None
    assert (second.tx.phy_mbps, second.tx.standard, second.rx, second.expected_mbps) == (6.0, "", None, 4.527)


@pytest.mark.parametrize(
    ("text", "consistent"),
    [
        ("1200.9 MBit/s 80MHz HE-MCS 11 HE-NSS 2 HE-GI 0 HE-DCM 0", True),
        ("1134.2 MBit/s 80MHz HE-MCS 11 HE-NSS 2 HE-GI 1 HE-DCM 0", True),
        ("1200.9 MBit/s 80MHz HE-MCS 3 HE-NSS 2 HE-GI 0 HE-DCM 0", False),
        ("300.0 MBit/s MCS 15 40MHz short GI", True),
        ("300.0 MBit/s MCS 15 40MHz", False),
        ("866.7 MBit/s VHT-MCS 9 80MHz short GI VHT-NSS 2", True),
        ("866.7 MBit/s VHT-MCS 99 80MHz short GI VHT-NSS 2", False),
        ("54.0 MBit/s", True),
        ("1083.3 MBit/s VHT-MCS 11 80MHz short GI VHT-NSS 2", True),
        ("1733.3 MBit/s VHT-MCS 9 80P80MHz short GI VHT-NSS 2", True),
        ("4.3 MBit/s HE-MCS 0 HE-NSS 1 HE-GI 0 HE-DCM 1", True),
        ("8.6 MBit/s HE-MCS 0 HE-NSS 1 HE-GI 0 HE-DCM 1", False),
        ("62.5 MBit/s HE-MCS 11 HE-NSS 1 HE-GI 0 HE-DCM 0 HE-RU-ALLOC 2", True),
        ("6.0 MBit/s MCS 32 40MHz", True),
        ("2882.4 MBit/s 160MHz EHT-MCS 13 EHT-NSS 2 EHT-GI 0", True),
        ("8.6 MBit/s 80MHz EHT-MCS 14 EHT-NSS 1 EHT-GI 0", True),
        ("3.0 MBit/s S1G-MCS 9 4MHz S1G-NSS 1", True),
    ],
)
def test_a_rate_is_checked_against_its_own_mcs(text, consistent):
    assert parse_rate(text).is_consistent is consistent


@pytest.mark.parametrize(
    ("text", "mbps"),
    [
        ("1083.3 MBit/s VHT-MCS 11 80MHz short GI VHT-NSS 2", 832),
        ("1733.3 MBit/s VHT-MCS 9 80P80MHz short GI VHT-NSS 2", 1205),
        ("4.3 MBit/s HE-MCS 0 HE-NSS 1 HE-GI 0 HE-DCM 1", 3.9),
        ("62.5 MBit/s HE-MCS 11 HE-NSS 1 HE-GI 0 HE-DCM 0 HE-RU-ALLOC 2", 57.8),
        ("6.0 MBit/s MCS 32 40MHz", 5.3),
        ("640.0 MBit/s UHR-MCS 20 640MHz UHR-NSS 1", 537.6),
    ],
)
def test_rates_of_rare_modulations_have_a_capacity(text, mbps):
    assert capacity_kbps(parse_rate(text)) / 1000 == pytest.approx(mbps, rel=0.02)


def test_back_end_counts_loss_and_retries_since_the_last_reading():
    outputs = {"packets": 1000, "retries": 0, "failed": 0}
    radio = LinuxWifi("wlan0", lambda c: SURVEY if "survey" in c else STATIONS.format(**outputs))
    clean = radio.read(0.0).neighbours[0]
    assert clean.tx_loss == 0
    assert clean.tx_capacity_kbps == round(1000 * l2_capacity_mbps(866.7, "VHT"))
    outputs.update(packets=1100, retries=100, failed=10)
    lossy = radio.read(1.0).neighbours[0]
    assert lossy.tx_loss == pytest.approx(0.1)
    assert lossy.tx_capacity_kbps == pytest.approx(clean.tx_capacity_kbps / 2, abs=1)
    outputs.update(packets=10, retries=0, failed=0)
    assert radio.read(2.0).neighbours[0].tx_loss == 0


def test_a_contradictory_rate_gives_no_estimate():
    text = STATIONS.format(packets=1, retries=0, failed=0).replace("VHT-MCS 9", "VHT-MCS 2")
    radio = LinuxWifi("wlan0", lambda c: SURVEY if "survey" in c else text)
    assert radio.read(0.0).neighbours[0].tx_capacity_kbps == 0


def test_station_whose_rate_cannot_be_read_keeps_its_last_capacity_with_its_age():
    good = STATIONS.format(packets=1, retries=0, failed=0)
    texts = [good, good.replace("VHT-MCS 9", "VHT-MCS 2"), good.replace("866.7 MBit/s", "(unknown)"), good]
    radio = LinuxWifi("wlan0", lambda c: SURVEY if "survey" in c else texts[0])
    first = radio.read(0.0).neighbours[0]
    for now_s, age in ((2.0, "(2 s old)"), (4.0, "(4 s old)")):
        texts.pop(0)
        kept = radio.read(now_s).neighbours[0]
        assert (kept.tx_capacity_kbps, kept.rx_capacity_kbps) == (first.tx_capacity_kbps, first.rx_capacity_kbps)
        assert kept.modulation.endswith(age) and kept.modulation.startswith("VHT-MCS 9")
    texts.pop(0)
    assert radio.read(6.0).neighbours[0] == first


def test_station_that_left_does_not_keep_a_capacity():
    good = STATIONS.format(packets=1, retries=0, failed=0)
    texts = [good, "", good.replace("866.7 MBit/s", "(unknown)")]
    radio = LinuxWifi("wlan0", lambda c: SURVEY if "survey" in c else texts.pop(0))
    assert radio.read(0.0).neighbours[0].tx_capacity_kbps > 0
    assert radio.read(1.0).neighbours == ()
    assert radio.read(2.0).neighbours[0].tx_capacity_kbps == 0


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


@given(st.text(max_size=400))
def test_parsers_survive_any_text(text):
    for parse in (parse_survey, parse_stations, parse_rate):
        with contextlib.suppress(RadioError):
            parse(text)
