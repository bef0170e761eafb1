"""Power line: tables as open-plc-utils prints them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.model import RadioError
from hyroads.controller.access_point.plc import Plc, l2_capacity_mbps, parse_stations, parse_tx

TABLE = """\
 P/L NET TEI ------ MAC ------ ------ BDA ------  TX  RX CHIPSET FIRMWARE
 LOC CCO 001 00:B0:52:00:00:01 02:00:01:01:00:01 n/a n/a QCA7420 MAC-QCA7420-1.1.0.844-02-20120919-CS
 REM STA 002 00:B0:52:00:00:02 02:00:01:01:00:02 132 098 QCA7420 MAC-QCA7420-1.1.0.844-02-20120919-CS
 REM STA 003 00:B0:52:00:00:03 FF:FF:FF:FF:FF:FF 000 000 INT6400 INT6000-MAC-4-1-4102-00-3679-20090724-FINAL-B
"""
TX = """\
   DIR ----------- PBs PASS ----------- PBs FAIL PBs ERR ---------- MPDU ACKD ---------- MPDU FAIL
    TX {passed:20d} {failed:20d}   1.00% {acked:20d} {lost:20d} {collided:20d}   2.00%
"""


def counts(passed=1000, failed=10, acked=100, lost=0, collided=0):
    return TX.format(passed=passed, failed=failed, acked=acked, lost=lost, collided=collided)


def test_table_of_stations():
    local, near, silent = parse_stations(TABLE)
    assert (local.local, local.tx_mbps, local.mac) == (True, None, "00:b0:52:00:00:01")
    assert (near.local, near.tx_mbps, near.rx_mbps, near.bridged_mac) == (False, 132, 98, "02:00:01:01:00:02")
    assert silent.tx_mbps == 0
    assert parse_stations("") == ()
    with pytest.raises(RadioError, match="expected a table"):
        parse_stations("eth1: No such device\n")


def test_counters():
    assert parse_tx(counts(acked=7, lost=3)).frames_failed == 3
    assert parse_tx("no table") is None


@given(st.floats(0.01, 1000))
def test_capacity_inverts_the_measured_line(ble):
    assert 1.7 * l2_capacity_mbps(ble) - 0.65 == pytest.approx(ble)
    assert l2_capacity_mbps(0) == 0


def test_back_end_names_the_bridged_host_and_counts_loss_between_readings():
    answers = {"tx": counts(acked=100, lost=0)}
    radio = Plc("eth1", lambda c: answers["tx"] if "-d" in c else TABLE)
    near, silent = radio.read(0.0).neighbours
    assert near.mac == "02:00:01:01:00:02"
    assert silent.mac == "00:b0:52:00:00:03"
    assert near.tx_capacity_kbps == pytest.approx(78_029, abs=1)  # (132 + 0.65) / 1.7
    assert near.rx_capacity_kbps == pytest.approx(58_029, abs=1)
    assert silent.tx_capacity_kbps == 0
    answers["tx"] = counts(acked=190, lost=10)
    assert radio.read(1.0).neighbours[0].tx_loss == pytest.approx(0.1)
    answers["tx"] = counts(acked=10, lost=10)
    assert radio.read(2.0).neighbours[0].tx_loss == pytest.approx(0.5)
    assert radio.read(2.0).active_us == 0


@given(st.text(max_size=300))
def test_parsers_survive_any_text(text):
    for parse in (parse_stations, parse_tx):
        with contextlib.suppress(RadioError):
            parse(text)
