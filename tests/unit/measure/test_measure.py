"""From SNMP's numbers to samples: differences, restarts, doubts, and the lines between the processes."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.mib import CLOCK, Tree, objects
from hyroads.controller.access_point.model import Interface, Neighbour, Snapshot
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.measure.derive import (
    COUNTER64,
    FROZEN_POLLS,
    RATE_WINDOW_S,
    Deriver,
    cross_check,
    difference,
    rate_mbps,
)
from hyroads.controller.measure.readings import (
    IF_HC_IN_OCTETS,
    IF_HC_OUT_OCTETS,
    IF_OPER_STATUS,
    RawInterface,
    RawReading,
    ReadingError,
    reading,
)
from hyroads.controller.measure.samples import FLAGS, NeighbourSample, SampleError, Silence, from_line, to_line
from hyroads.controller.measure.targets import document, parse

NEIGHBOUR = NeighbourSample("02:00:01:01:00:02", "b", 10.0, None, 0.025, -60, 40, "emulated")


def raw(t, *, busy=0.5, mbps=4.0, boot=b"bootboot", up=1, age_ms=0, clock_s=None, **changes):
    """An access point whose counters have run at a constant rate since time 0."""
    counted = int(mbps * 1e6 / 8 * t)
    interface = RawInterface(3, "a-wifi", "wifi", "wifi", int(busy * t * 1e6), int(t * 1e6), up, counted, counted // 2,
                             (NEIGHBOUR,))  # fmt: skip
    clock = t if clock_s is None else clock_s
    return RawReading("a", boot, int((clock - age_ms / 1000) * 1e6), age_ms, (replace(interface, **changes),))


def samples(*readings):
    """Samples of (time, reading) pairs."""
    deriver = Deriver("ap-1")
    return [deriver.sample(reading, time_s) for time_s, reading in readings]


@given(st.integers(0, COUNTER64 - 1), st.integers(0, COUNTER64 // 2 - 1))
def test_differences_survive_a_wrap(before, counted):
    assert difference(before, (before + counted) % COUNTER64) == counted


@given(st.integers(1, COUNTER64 // 2 - 1), st.integers(0, 10**9))
def test_a_restart_is_not_a_huge_difference(before, after):
    if after < before:
        assert difference(before, after) is None


def test_a_counter_that_starts_anew_is_told_from_a_wrap_by_what_is_plausible():
    assert difference(COUNTER64 - 294_967_296, 100_000_000) == 394_967_296
    assert difference(COUNTER64 - 294_967_296, 100_000_000, most=12_500_000) is None
    assert rate_mbps(1_250_000, 1.0) == pytest.approx(10)


def test_busy_share_and_rates_of_a_steady_access_point():
    made = samples(*((t, raw(t)) for t in range(1, 10)))
    first, last = made[0].interfaces[0], made[-1].interfaces[0]
    assert (first.busy_share, first.in_mbps) == (None, None)
    assert last.busy_share == pytest.approx(0.5)
    assert last.busy_over_s == pytest.approx(1)
    assert last.in_mbps == pytest.approx(4) and last.out_mbps == pytest.approx(2)
    assert last.rate_over_s == pytest.approx(RATE_WINDOW_S)
    neighbour = last.neighbours[0]
    assert (neighbour.tx_capacity_mbps, neighbour.rx_capacity_mbps) == (10.0, None)
    assert (neighbour.tx_loss, neighbour.signal_dbm) == (0.025, -60)
    assert all(not sample.flags and not sample.interfaces[0].flags for sample in made)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.floats(0.2, 5))
def test_busy_shares_over_polls_add_up_to_the_counter(shares, step_s):
    busy_us, readings = 0, []
    for i, share in enumerate(shares):
        busy_us += int(share * step_s * 1e6)
        t = (i + 1) * step_s
        readings.append((t, raw(t, busy_us=busy_us)))
    made = [sample.interfaces[0] for sample in samples(*readings)][1:]
    assert sum(i.busy_share * i.busy_over_s for i in made) * 1e6 == pytest.approx(
        busy_us - readings[0][1].interfaces[0].busy_us, abs=len(shares) * 3
    )


def test_counters_that_wrap_between_polls():
    near_end = COUNTER64 - 1_000_000
    made = samples(
        *((t, raw(t, in_bytes=(near_end + 500_000 * t) % COUNTER64)) for t in range(1, 9)),
    )
    assert made[-1].interfaces[0].in_mbps == pytest.approx(4)


@pytest.mark.parametrize("phase", [0.0, 0.4, 0.9])
def test_rates_are_right_although_net_snmp_refreshes_its_counters_each_3_s_only(phase):
    def seen(t):
        return int(4e6 / 8 * ((t + phase) // 3 * 3))

    made = samples(*((t, raw(t, in_bytes=seen(t), out_bytes=0)) for t in range(1, 40)))
    rates = [sample.interfaces[0].in_mbps for sample in made if sample.interfaces[0].in_mbps is not None]
    assert len(rates) > 20
    assert all(rate == pytest.approx(4, rel=0.17) for rate in rates)


def test_an_interface_that_falls_idle_has_rate_0():
    made = samples(*((t, raw(t, in_bytes=500_000 * min(t, 10), out_bytes=0)) for t in range(1, 30)))
    assert made[9].interfaces[0].in_mbps == pytest.approx(4)
    assert [sample.interfaces[0].in_mbps for sample in made[-10:]] == [0.0] * 10


def test_a_restart_gives_no_difference_and_is_said():
    made = samples(
        *((t, raw(t)) for t in range(1, 9)), (9, raw(0.5, boot=b"newboot!")), (10, raw(1.5, boot=b"newboot!"))
    )
    restarted, after = made[-2], made[-1]
    assert restarted.flags == ("restarted",)
    assert restarted.interfaces[0].busy_share is None and restarted.interfaces[0].in_mbps is None
    assert not after.flags and after.interfaces[0].busy_share == pytest.approx(0.5)


def test_interface_counters_that_restart_alone():
    made = samples(*((t, raw(t)) for t in range(1, 9)), (9, raw(9, in_bytes=0, out_bytes=0)))
    assert made[-1].interfaces[0].in_mbps is None
    assert made[-2].interfaces[0].in_mbps == pytest.approx(4)


def test_old_values_are_said_to_be_old():
    made = samples((1, raw(1)), (2, raw(2, age_ms=900)))
    assert made[1].flags == ("stale",)
    assert made[1].measured_s == pytest.approx(1.1)


def test_an_access_point_that_answers_but_does_not_measure():
    still = raw(1)
    made = samples((1, still), *((1 + i * 0.1, replace(still, age_ms=i * 100)) for i in range(1, FROZEN_POLLS + 1)))
    assert "frozen" in made[-1].flags
    assert "frozen" not in made[-2].flags
    assert made[1].interfaces[0].busy_share is None


@pytest.mark.parametrize("clock_s", [0.2, 9.0])
def test_a_clock_that_jumps(clock_s):
    made = samples((1, raw(1)), (2, raw(2, clock_s=clock_s)))
    assert "clock" in made[1].flags
    assert made[1].interfaces[0].busy_share is None


def test_contradictions_are_flagged_and_not_used():
    made = samples((1, raw(1)), (2, raw(2, busy_us=3_000_000)))
    assert made[1].interfaces[0].flags == ("busy-beyond-active",)
    assert made[1].interfaces[0].busy_share is None
    down = samples(*((t, raw(t, up=2)) for t in range(1, 9)))[-1].interfaces[0]
    assert down.flags == ("down-but-sending",)
    assert down.neighbours[0].flags == ("heard-while-down",)
    fast = samples(*((t, raw(t, mbps=40.0)) for t in range(1, 9)))[-1].interfaces[0]
    assert fast.flags == ("beyond-capacity",)
    gone = samples((1, raw(1, oper_status=None, in_bytes=None, out_bytes=None)))[0].interfaces[0]
    assert gone.flags == ("no-such-interface",) and gone.up is None
    assert {*made[1].interfaces[0].flags, *down.flags, *fast.flags, *gone.flags, "heard-while-down"} <= set(FLAGS)


def test_openflow_counters_must_agree():
    interface = samples(*((t, raw(t)) for t in range(1, 9)))[-1].interfaces[0]
    assert cross_check(interface, 4.2, 1.95).flags == ()
    assert cross_check(interface, 4.0, 3.0).flags == ("openflow-disagrees",)
    assert cross_check(interface, 0.0, 2.0).flags == ("openflow-disagrees",)
    unknown = replace(interface, in_mbps=None, out_mbps=None)
    assert cross_check(unknown, 9, 9).flags == ()


def answer(interfaces=3, peers=2):
    """What snmpd answers for a snapshot, with IF-MIB."""
    rows = tuple(
        Interface(i, f"if{i}", "wifi", "m", 10 * i, 20 * i, 0.5,
                  tuple(Neighbour(f"02:00:00:00:{i:02x}:{n:02x}", f"n{n}", 1000 * n) for n in range(1, peers + 1)))
        for i in range(1, interfaces + 1)
    )  # fmt: skip
    snapshot = Snapshot("a", b"12345678", 5_000_000, rows)
    values = {oid: value.value for oid, value in objects(snapshot)}
    values.update({oid: Tree(snapshot).at(oid, 5_007_000).value for oid in [(*CLOCK[:-2], 4, 0)]})
    for row in rows:
        values.update(
            {(*IF_OPER_STATUS, row.index): 1, (*IF_HC_IN_OCTETS, row.index): 7, (*IF_HC_OUT_OCTETS, row.index): 8}
        )
    return values, snapshot


def test_a_reading_is_the_snapshot_that_the_agent_served():
    values, snapshot = answer()
    got = reading(values)
    assert (got.node, got.boot, got.clock_us, got.age_ms) == ("a", b"12345678", 5_000_000, 7)
    for row, interface in zip(got.interfaces, snapshot.interfaces, strict=True):
        assert (row.index, row.name, row.busy_us, row.active_us) == (
            interface.index, interface.name, interface.busy_us, interface.active_us,
        )  # fmt: skip
        assert (row.oper_status, row.in_bytes, row.out_bytes) == (1, 7, 8)
        assert [(n.mac, n.node, n.tx_capacity_mbps) for n in row.neighbours] == [
            (n.mac, n.node, n.tx_capacity_kbps / 1000 or None) for n in interface.neighbours
        ]


@given(st.data())
def test_rows_that_are_half_there_are_left_out_and_never_wrong(data):
    values, _ = answer()
    lost = data.draw(st.sets(st.sampled_from(sorted(values)), max_size=8))
    kept = {oid: value for oid, value in values.items() if oid not in lost}
    try:
        got = reading(kept)
    except ReadingError:
        return
    whole = reading(values)
    for row in got.interfaces:
        before = next(i for i in whole.interfaces if i.index == row.index)
        assert set(row.neighbours) <= set(before.neighbours)
        assert row.busy_us == before.busy_us


def test_values_of_the_wrong_type_are_refused():
    values, _ = answer()
    with pytest.raises(ReadingError, match="expected a number"):
        reading({**values, CLOCK: b"soon"})


def test_lines_carry_events_unchanged():
    sample = samples(*((t, raw(t)) for t in range(1, 9)))[-1]
    silence = Silence("ap-1", 1.5, 3, 4.0, "no answer")
    for event in (sample, silence):
        line = to_line(event)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert from_line(line) == event


@given(st.binary(max_size=200))
def test_any_other_line_is_refused(line):
    with pytest.raises(SampleError):
        from_line(line)


def test_configuration_of_the_collector():
    user = {"user": "u", "auth_password": "x" * 8, "priv_password": "y" * 8}
    targets = [
        {"name": "a", "host": "127.0.0.1", "community": "c"},
        {"name": "b", "host": "127.0.0.1", "port": 1161, **user},
    ]
    text = json.dumps({"targets": targets, "interval_s": 0.5})
    config = parse(text)
    assert (config.interval_s, config.targets[0].port, config.targets[1].credentials.user) == (0.5, 161, "u")
    assert parse(document(config)) == config
    assert "xxxx" not in repr(config)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"targets": 1}', '{"targets": [], "interval_s": 0}', '{"targets": [], "surprise": 1}',
        '{"targets": [{"name": "a", "host": "localhost", "community": "c"}]}',
        '{"targets": [{"name": "a", "host": "127.0.0.1"}]}',
        '{"targets": [{"name": "a", "host": "127.0.0.1", "community": "c", "port": 0}]}',
        '{"targets": [{"name": "a", "host": "127.0.0.1", "user": "u", "auth_password": "xxxxxxxx"}]}',
        '{"targets": [{"name": "a", "host": "127.0.0.1", "community": "c"}, '
        '{"name": "a", "host": "127.0.0.2", "community": "c"}]}',
    ],
)  # fmt: skip
def test_bad_configurations_are_refused(text):
    with pytest.raises(ConfigError):
        parse(text)
