"""Counters and busy times -> what links and paths carry. What nobody measures stays unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told_meter import Heard, tell

from hyroads.controller.core.growth import FRESH_S, Counted, Growth
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.traffic_meter import (
    PATHS,
    PORT,
    RADIO,
    UNKNOWN_LINK,
    UNKNOWN_PATH,
    TrafficMeter,
)

NETWORK = load_text(
    """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: ap}}
links:
  - {id: ab, from: a, to: b, technology: plc, capacity_mbps: 10}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 20}
  - {id: ac-wifi, from: a, to: c, technology: wifi, capacity_mbps: 20}
interference: {rule: technology}
""",
    "lab",
)


def meter() -> TrafficMeter:
    return TrafficMeter(NETWORK.links)


def counted(time_s: float, mbps: float) -> Counted:
    """A counter that has grown at this rate since 0 s, in frames of 1000 bytes."""
    return Counted(time_s, round(mbps * time_s * 125e3), round(mbps * time_s * 125))


def send(
    of: TrafficMeter, mbps: float, *links: str, received: float | None = None, lost: tuple[int, ...] = (0, 0, 0)
) -> None:
    """A flow over one path, second by second."""
    for second, lost_frames in enumerate(lost):
        got = counted(second, mbps if received is None else received)
        heard = Heard(counted(second, mbps), got, 4.0)
        tell(of, second, {("f", 1): (links, heard)}, {"f": (got, lost_frames)})


def test_a_port_that_one_link_leaves_tells_all_that_the_link_carries() -> None:
    of = meter()
    for second in range(3):
        of.port(("a", "plc"), counted(second, 4.0), second)
    assert of.link("ab", 2.0) == (pytest.approx(4.0), PORT, None, None)
    assert of.link_bytes("ab") == (1_000_000, PORT)


def test_of_a_shared_port_links_are_told_apart_by_the_paths_that_agents_count() -> None:
    of = meter()
    send(of, 6.0, "ab-wifi")
    for second in range(3):
        of.port(("a", "wifi"), counted(second, 6.5), second)
    assert of.link("ab-wifi", 2.0) == (pytest.approx(6.0), PATHS, None, None)
    assert of.link("ac-wifi", 2.0) == (0.0, PATHS, None, None)
    assert of.link_bytes("ab-wifi") == (1_500_000, PATHS) and of.link_bytes("ac-wifi") is None


def test_a_shared_port_that_sends_what_no_agent_counts_leaves_its_links_unknown() -> None:
    of = meter()
    for second in range(3):
        of.port(("a", "wifi"), counted(second, 6.5), second)
    assert of.link("ab-wifi", 2.0) == UNKNOWN_LINK


def test_what_comes_from_a_sender_without_counters_is_told_by_the_receiving_port_if_it_can() -> None:
    of = meter()
    for second in range(3):
        of.port(("b", "plc"), counted(second, 0.0), second, received=counted(second, 3.0))
        of.port(("b", "wifi"), counted(second, 0.0), second, received=counted(second, 0.01))
    assert of.link("ab", 2.0)[:2] == (pytest.approx(3.0), PORT)
    assert of.link("ab-wifi", 2.0)[:2] == (0.0, PORT)


@pytest.mark.parametrize(("received_mbps", "of_plain"), [(4.0, 0.0), (6.0, None)])
def test_what_other_links_do_not_explain_of_a_shared_receiver_is_not_guessed(
    received_mbps: float, of_plain: float | None
) -> None:
    text = """
nodes: {a: {role: ap}, b: {role: ap}, p: {role: client}}
links:
  - {id: ab, from: a, to: b, technology: wifi, capacity_mbps: 10}
  - {id: pb, from: p, to: b, technology: wifi, capacity_mbps: 10}
interference: {rule: technology}
"""
    of = TrafficMeter(load_text(text, "lab").links)
    for second in range(3):
        of.port(("a", "wifi"), counted(second, 4.0), second)
        of.port(("b", "wifi"), counted(second, 0.0), second, received=counted(second, received_mbps))
    assert of.link("pb", 2.0).rate_mbps == of_plain
    assert of.links(["pb"], 2.0) == {"pb": of.link("pb", 2.0)}


def test_hello_frames_are_no_traffic() -> None:
    of = meter()
    for second in range(3):
        of.port(("a", "plc"), counted(second, 0.013), second)
    assert of.link("ab", 2.0)[:2] == (0.0, PORT)


def test_a_plan_or_a_capacity_alone_says_nothing() -> None:
    of = meter()
    assert of.link("ab", 0.0) == UNKNOWN_LINK and of.link("nowhere", 0.0) == UNKNOWN_LINK
    assert of.path_reading(("f", 1), 0.0) == UNKNOWN_PATH and of.link_bytes("ab") is None
    of.port(("a", "plc"), counted(0, 4.0), 0)
    assert of.link("ab", 0.0) == UNKNOWN_LINK, "one reading is no rate"


def test_a_radio_goes_before_counters_at_the_busier_end_and_ages() -> None:
    of = meter()
    for second in range(3):
        of.port(("a", "plc"), counted(second, 4.0), second)
    of.radio(("a", "plc"), 0.5, RADIO, 2.0)
    of.radio(("b", "plc"), 0.7, RADIO, 2.0)
    of.radio(("b", "plc"), None, RADIO, 9.0)
    assert of.link("ab", 2.0)[2:] == (0.7, RADIO)
    assert of.link("ab", 2.1 + FRESH_S) == UNKNOWN_LINK, "what was read long ago says nothing of now"


def test_behind_the_first_link_a_path_carries_what_arrives() -> None:
    of = meter()
    send(of, 8.0, "ab-wifi", "ab", received=6.0, lost=(0, 1, 2))
    assert of.link("ab-wifi", 2.0).rate_mbps == pytest.approx(8.0)
    assert of.link("ab", 2.0).rate_mbps == pytest.approx(6.0)
    found = of.path_reading(("f", 1), 2.0)
    assert found == (pytest.approx(8.0), pytest.approx(6.0), pytest.approx(0.25), 4.0)


def test_a_flow_that_counts_no_lost_frame_loses_none() -> None:
    of = meter()
    send(of, 8.0, "ab", received=7.9, lost=(3, 3, 3))
    assert of.path_reading(("f", 1), 2.0).lost == 0.0
    assert of.flow_reading("f", 2.0) == (pytest.approx(7.9), 0.0)
    send(of, 8.0, "ab", received=7.9, lost=(3, 3, 3, 13))
    assert of.flow_reading("f", 3.0).lost_frames_per_s == pytest.approx(10.0)


def test_paths_that_are_gone_are_forgotten_but_not_what_they_carried() -> None:
    of = meter()
    send(of, 8.0, "ab")
    tell(of, 2.0, {})
    assert of.path_reading(("f", 1), 2.0) == UNKNOWN_PATH and of.link("ab", 2.0) == UNKNOWN_LINK
    assert of.link_bytes("ab") == (2_000_000, PATHS)


STEPS = st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=2, max_size=20)


@given(STEPS)
def test_totals_never_shrink_and_rates_are_never_negative_whatever_restarts(steps: list[tuple[int, bool]]) -> None:
    growth, value, total, expected = Growth(), 0, 0, 0
    for second, (grown, restarts) in enumerate(steps):
        before, value = value, grown if restarts else value + grown
        growth.add(Counted(float(second), value, value // 100), float(second))
        expected += value - before if second and value >= before else 0
        assert growth.total_bytes >= total and (growth.rate_mbps(float(second)) or 0.0) >= 0.0
        total = growth.total_bytes
    assert total == expected


@given(st.lists(st.floats(0, 50), min_size=3, max_size=6), st.floats(0.3, 2.0))
def test_all_links_at_once_are_what_each_of_them_is(rates: list[float], interval_s: float) -> None:
    of = meter()
    for step in range(3):
        now_s = step * interval_s
        of.port(("a", "plc"), counted(now_s, rates[0]), now_s)
        of.port(("a", "wifi"), counted(now_s, rates[1]), now_s)
        tell(of, now_s, {("f", 1): (["ab-wifi", "ab"], Heard(counted(now_s, rates[2]), None))})
    links, now_s = ["ab", "ab-wifi", "ac-wifi"], 2 * interval_s
    assert of.links(links, now_s) == {link: of.link(link, now_s) for link in links}
