"""WiFi: rates against the standard's tables, dumps of real iw's form."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.linux_wifi import (
    LinuxWifi,
    Modulation,
    ht_modulation,
    l2_capacity_mbps,
    parse_rate,
    parse_stations,
    parse_survey,
    phy_rate_mbps,
)
from hyroads.controller.access_point.model import RadioError

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
    ],
)
def test_phy_rates_are_those_of_the_standard(modulation, mbps):
    assert phy_rate_mbps(modulation) == pytest.approx(mbps, abs=0.06)


@pytest.mark.parametrize(
    "bad",
    [Modulation("HT", 8, 1, 20, 0.8), Modulation("VHT", 0, 1, 30, 0.8), Modulation("HE", 0, 1, 20, 0.4),
     Modulation("VHT", 0, 9, 20, 0.8), Modulation("EHT", 0, 1, 20, 0.8)],
)  # fmt: skip
def test_what_the_standard_does_not_have_is_refused(bad):
    with pytest.raises(RadioError):
        phy_rate_mbps(bad)


@given(st.floats(1, 10_000), st.floats(1, 10_000), st.booleans())
def test_capacity_grows_with_the_rate_and_never_reaches_it(one, other, aggregates):
    low, high = sorted((one, other))
    assert 0 < l2_capacity_mbps(low, aggregates=aggregates) < low
    # One frame more in an aggregate makes a step, but never downwards by more than the rounding of the count.
    assert l2_capacity_mbps(high, aggregates=False) >= l2_capacity_mbps(low, aggregates=False)


def test_capacity_of_54_mbps_is_the_textbook_figure():
    # 1500-byte frames at 54 Mb/s without aggregation carry about 30 Mb/s: 1500 * 8 / (193.5 + 228.7) us.
    assert l2_capacity_mbps(54, aggregates=False) == pytest.approx(28.4, abs=0.1)
    # 64 frames of 14 us each under one overhead of 194 us.
    assert l2_capacity_mbps(866.7) / 866.7 == pytest.approx(0.80, abs=0.01)
    assert l2_capacity_mbps(0) == 0


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
    assert first.tx.consistent and first.rx.consistent and first.tx.modulated
    assert first.expected_mbps is None
    assert (second.tx.phy_mbps, second.tx.modulated, second.rx, second.expected_mbps) == (6.0, False, None, 4.527)


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
    ],
)
def test_a_rate_is_checked_against_its_own_mcs(text, consistent):
    assert parse_rate(text).consistent is consistent


def test_back_end_counts_loss_and_retries_since_the_last_reading():
    outputs = {"packets": 1000, "retries": 0, "failed": 0}
    radio = LinuxWifi("wlan0", lambda c: SURVEY if "survey" in c else STATIONS.format(**outputs))
    clean = radio.read(0.0).neighbours[0]
    assert clean.tx_loss == 0
    assert clean.tx_capacity_kbps == round(1000 * l2_capacity_mbps(866.7))
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


@given(st.text(max_size=400))
def test_parsers_survive_any_text(text):
    for parse in (parse_survey, parse_stations, parse_rate):
        with contextlib.suppress(RadioError):
            parse(text)
