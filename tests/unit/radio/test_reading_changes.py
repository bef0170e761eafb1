"""Readings of what changed: with the whole one they are the reading, within the dead bands and a second."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from noisy_air import NoisyAir

from hyroads.controller.access_point.reading_changes import (
    BAND_EVERY_S,
    HEARD_STEP_MS,
    LOSS_BAND,
    RATE_BAND,
    SIGNAL_BAND_DB,
    STEP_OF_LOSS,
    STEP_OF_RATES,
    Changes,
)
from hyroads.controller.agents.protocol import ProtocolError, encode, parse_line
from hyroads.controller.agents.telemetry import RadioNeighbour, RadioReport, WholeReading, parse_radio

MACS = tuple(f"02:00:00:00:00:0{i}" for i in range(4))
SILENT = {"mac": MACS[0], "tx_mbps": 100.0, "rx_mbps": None, "loss": 0.0, "signal_dbm": -50, "last_heard_ms": 5}


@st.composite
def neighbours(draw: Any) -> list[dict[str, Any]]:
    return [
        {"mac": mac, "tx_mbps": draw(st.sampled_from([None, 5.0, 6.5])), "rx_mbps": None, "loss": 0.1,
         "signal_dbm": draw(st.sampled_from([None, -50])), "last_heard_ms": draw(st.sampled_from([3, 40, 800]))}
        for mac in draw(st.sampled_from([MACS, MACS[:2]]))
    ]  # fmt: skip


@st.composite
def readings(draw: Any) -> dict[str, Any]:
    media = draw(st.sampled_from([("wifi",), ("plc", "wifi")]))
    counters = st.integers(0, 2**40)
    interfaces = [{"technology": k, "busy_us": draw(counters), "active_us": draw(counters),
                   "neighbours": draw(neighbours())} for k in media]  # fmt: skip
    return {"time_s": draw(st.floats(0, 1e6)), "interfaces": interfaces}


@given(st.lists(st.tuples(readings(), st.floats(0, 1.5), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_changes_and_the_whole_make_the_reading(turns: list[tuple[dict[str, Any], float, bool, bool]]) -> None:
    sends, takes, now_s = Changes(2.0), WholeReading(), 0.0
    for reading, step_s, is_lost, is_asked in turns:
        now_s += step_s
        if is_lost:
            sends, takes = Changes(2.0), WholeReading()
        if is_asked:
            takes.take(parse_line(encode({"type": "radio", "seq": 4, **reading})))
        found = received(takes, sends.message(reading, now_s))
        wanted = parse_radio({"type": "radio", "seq": None, **reading})
        assert (found.seq, found.time_s) == (wanted.seq, wanted.time_s)
        for interface, right in zip(found.interfaces, wanted.interfaces, strict=True):
            assert interface[:3] == right[:3]
            for row, other in zip(interface.neighbours, right.neighbours, strict=True):
                assert abs(row.last_heard_ms - other.last_heard_ms) < HEARD_STEP_MS
                assert row[:5] == other[:5]


def received(takes: WholeReading, message: dict[str, Any]) -> RadioReport:
    """The reading that the controller holds after a message."""
    line = parse_line(encode(message))
    return takes.take(line) if line["type"] == "radio" else takes.changed(line)


@st.composite
def walks(draw: Any) -> list[list[dict[str, Any]]]:
    """Rows of two neighbours each 100 ms. Each drifts, jitters and jumps by itself."""
    turns = []
    state = [(draw(st.integers(-80, -30)), draw(st.floats(5, 200)), draw(st.floats(0, 0.5))) for _ in range(2)]
    for _ in range(draw(st.integers(2, 30))):
        for i, (signal_dbm, rate_mbps, loss) in enumerate(state):
            factor = draw(st.sampled_from([1.0, 1.0, 0.99, 1.02, 1.04, 0.5]))
            step_db = draw(st.sampled_from([-1, 0, 0, 1, 4]))
            step = draw(st.sampled_from([0.0, 0.0, 0.01, 0.03, -0.3]))
            state[i] = signal_dbm + step_db, rate_mbps * factor, min(1.0, max(0.0, loss + step))
        turns.append([
            {"mac": MACS[i], "tx_mbps": draw(st.sampled_from([rate_mbps] * 9 + [None])), "rx_mbps": None, "loss": loss,
             "signal_dbm": signal_dbm, "last_heard_ms": draw(st.sampled_from([3, 40, 99]))}
            for i, (signal_dbm, rate_mbps, loss) in enumerate(state)
        ])  # fmt: skip
    return turns


def is_within(row: RadioNeighbour, true: dict[str, Any]) -> bool:
    if (row.tx_mbps is None) != (true["tx_mbps"] is None):
        return False
    rate = row.tx_mbps is None or abs(true["tx_mbps"] - row.tx_mbps) <= RATE_BAND * row.tx_mbps
    signal = abs(true["signal_dbm"] - row.signal_dbm) <= SIGNAL_BAND_DB
    return rate and signal and abs(true["loss"] - row.loss) <= LOSS_BAND


@given(walks())
def test_controller_holds_values_within_the_bands_of_the_last_second(turns: list[list[dict[str, Any]]]) -> None:
    sends, takes = Changes(2.0), WholeReading()
    for k, rows in enumerate(turns):
        interface = {"technology": "wifi", "busy_us": k, "active_us": k, "neighbours": rows}
        found = received(takes, sends.message({"time_s": k / 10, "interfaces": [interface]}, k / 10))
        lately = turns[max(0, k - round(10 * BAND_EVERY_S)) : k + 1]
        for i, row in enumerate(found.interfaces[0].neighbours):
            assert any(is_within(row, then[i]) for then in lately), (k, row, lately)
            now = rows[i]
            assert (row.tx_mbps is None) == (now["tx_mbps"] is None)
            if row.tx_mbps is not None:
                low, high = sorted([row.tx_mbps, now["tx_mbps"]])
                assert low == high or low > STEP_OF_RATES * high
            assert abs(row.loss - now["loss"]) < STEP_OF_LOSS


@pytest.mark.parametrize(
    ("key", "first", "step", "band"),
    [("signal_dbm", -40, -1, SIGNAL_BAND_DB), ("tx_mbps", 100.0, -1.0, 5.0), ("loss", 0.0, 0.005, LOSS_BAND)],
)
def test_slow_drift_is_sent_each_time_it_leaves_the_band(key: str, first: float, step: float, band: float) -> None:
    sends, takes, row = Changes(1000.0), WholeReading(), {**SILENT, key: first}
    seen = set()
    for k in range(60):
        # One step each two seconds: never beyond the band between two messages.
        row = {**row, key: first + step * k}
        interface = {"technology": "wifi", "busy_us": k, "active_us": k, "neighbours": [row]}
        found = received(takes, sends.message({"time_s": 2.0 * k, "interfaces": [interface]}, 2.0 * k))
        held = getattr(found.interfaces[0].neighbours[0], key)
        assert abs(held - row[key]) <= band * (1 + 1e-9)
        seen.add(held)
    assert 10 < len(seen) < 20


def sent_rows(moving: float | None, seconds: int) -> tuple[int, int]:
    """Readings that carry rows, and these rows, of an access point with twelve neighbours."""
    rest = {technology: [{**SILENT, "mac": f"02:00:00:00:{i:02x}:{technology == 'plc':02x}"} for i in range(6)]
            for technology in ("plc", "wifi")}  # fmt: skip
    air, sends = None if moving is None else NoisyAir(rest, "a", moving), Changes(2.0)
    readings = rows = 0
    for k in range(10 * seconds):
        now = rest if air is None else air.read()
        interfaces = [{"technology": each, "busy_us": k, "active_us": k, "neighbours": now[each]} for each in rest]
        message = sends.message({"time_s": k / 10, "interfaces": interfaces}, k / 10)
        count = sum(len(each.get("neighbours", ())) for each in message["interfaces"])
        readings, rows = readings + (count > 0), rows + count
    return readings, rows


def test_noisy_air_costs_at_most_three_times_the_rows_of_air_at_rest() -> None:
    (at_rest, rows_at_rest), (noisy, noisy_rows) = sent_rows(None, 60), sent_rows(0.0, 60)
    assert at_rest < noisy <= 3 * at_rest
    assert rows_at_rest < noisy_rows <= 3 * rows_at_rest


def test_changes_beyond_the_bands_are_sent_at_once() -> None:
    # One of twelve rows moves about once a second and a half.
    assert sent_rows(0.0, 60)[0] + 60 / 1.5 / 2 < sent_rows(0.005, 60)[0] < 5 * 60


def test_all_is_told_in_time() -> None:
    sends = Changes(2.0)
    reading = {"time_s": 1.0, "interfaces": []}
    kinds = [sends.message(reading, now_s)["type"] for now_s in (0.0, 0.1, 1.9, 2.0, 2.1)]
    assert kinds == ["radio", "radio-changes", "radio-changes", "radio", "radio-changes"]


@pytest.mark.parametrize(
    "interfaces",
    [None, [], [5], [{"technology": "plc", "busy_us": 1, "active_us": 1}], [{"technology": "wifi", "busy_us": 1}],
     [{"technology": "wifi", "busy_us": -1, "active_us": 1}],
     [{"technology": "wifi", "busy_us": 1, "active_us": 1, "neighbours": None}],
     [{"technology": "wifi", "busy_us": 1, "active_us": 1, "neighbours": [{"mac": "x"}]}],
     [{"technology": "wifi", "busy_us": 1, "active_us": 1, "neighbours": [
         {"mac": MACS[0], "loss": 0, "last_heard_ms": 1}]}]],
)  # fmt: skip
def test_malformed_changes_are_refused(interfaces: Any) -> None:
    takes = WholeReading()
    message = {"type": "radio-changes", "time_s": 2.0, "interfaces": interfaces}
    with pytest.raises(ProtocolError):
        takes.changed(message)
    whole = {"technology": "wifi", "busy_us": 1, "active_us": 1, "neighbours": []}
    takes.take({"type": "radio", "time_s": 1.0, "interfaces": [whole]})
    with pytest.raises(ProtocolError):
        takes.changed(message)


def line(errors: float | None, *slots: float) -> dict[str, Any]:
    row = {"mac": "02:00:00:00:00:02", "tx_mbps": 10.0, "rx_mbps": 10.0, "loss": 0.0, "signal_dbm": None}
    plc = {"adapter": "00:0b:3b:aa:00:02", "block_errors": errors, "slot_ble_mbps": list(slots)}
    neighbours = [{**row, "last_heard_ms": 0, "plc": plc}]
    return {
        "time_s": 1.0,
        "interfaces": [{"technology": "plc", "busy_us": 1, "active_us": 2, "neighbours": neighbours}],
    }


@pytest.mark.parametrize(
    ("now", "is_sent"),
    [((0.11, 17.5), False), ((0.13, 17.0), True), ((0.1, 18.0), True), ((None, 17.0), True), ((0.1,), True)],
)
def test_errors_and_slots_of_a_power_line_are_sent_when_they_leave_the_band(
    now: tuple[float | None, ...], is_sent: bool
) -> None:
    changes = Changes(2.0)
    changes.message(line(0.1, 17.0), 0.0)
    message = changes.message(line(*now), 1.2)
    (entry,) = message["interfaces"]
    assert ("neighbours" in entry) == is_sent
    assert not is_sent or entry["neighbours"] == line(*now)["interfaces"][0]["neighbours"]


def test_reading_is_whole_when_busy_time_is_known_by_other_means() -> None:
    def reading(source: str, time_s: float) -> dict[str, Any]:
        entry = {"technology": "plc", "busy_us": 1, "active_us": 2, "busy_source": source, "neighbours": []}
        return {"time_s": time_s, "interfaces": [entry]}

    changes, held = Changes(2.0), WholeReading()
    assert held.take(changes.message(reading("counters", 0.0), 0.0)).interfaces[0].busy_source == "counters"
    message = changes.message(reading("counters", 0.1), 0.1)
    assert message["type"] == "radio-changes"
    assert held.changed(message).interfaces[0].busy_source == "counters"
    message = changes.message(reading("sniffer", 0.2), 0.2)
    assert message["type"] == "radio"
    assert held.take(message).interfaces[0].busy_source == "sniffer"
