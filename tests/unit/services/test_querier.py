"""Who asks hosts for their groups: when, who of several, and what the frames say."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.services.membership import (
    LINK_LOCAL,
    MAC,
    MAX_INTERVAL_S,
    Querier,
    Query,
    QueryTimes,
    _code,
    begun,
    checksum,
    decoded,
    heard,
    query_frame,
    query_of,
    reports,
    turned,
)
from hyroads.controller.settings.clients import QuerierSettings, parse_querier

TIMES = QueryTimes()
OWN, LOWER, HIGHER = (IPv4Address(f"10.0.0.{last}") for last in (5, 4, 6))
NOBODY = IPv4Address("0.0.0.0")


def sent(querier: Querier, until_s: float, step_s: float = 0.25) -> tuple[Querier, list[float]]:
    """When queries go out, if it is looked at every so often."""
    times, now_s = [], 0.0
    while now_s <= until_s:
        querier, is_due = turned(querier, now_s)
        if is_due:
            times.append(now_s)
        now_s += step_s
    return querier, times


def test_the_standards_numbers() -> None:
    assert (TIMES.membership_s, TIMES.other_present_s, TIMES.startup_interval_s) == (260.0, 255.0, 31.25)


def test_it_asks_twice_at_first_and_then_every_125_seconds() -> None:
    assert sent(begun(OWN, TIMES, 0.0), 300.0)[1] == [0.0, 31.25, 156.25, 281.25]


def test_a_lower_address_silences_it_until_it_is_not_heard_any_more() -> None:
    querier = heard(begun(OWN, TIMES, 0.0), Query(LOWER), 0.0)
    assert turned(querier, 254.9) == (querier, False)
    querier = heard(querier, Query(LOWER), 250.0)
    assert not turned(querier, 504.9)[1]
    querier, is_due = turned(querier, 505.1)
    assert is_due and querier.other is None


@pytest.mark.parametrize(
    ("own", "other", "gives_way"),
    [
        (OWN, LOWER, True),
        (OWN, HIGHER, False),
        (OWN, OWN, False),
        (OWN, NOBODY, False),
        (NOBODY, HIGHER, True),
        (NOBODY, NOBODY, False),
        (LINK_LOCAL, IPv6Address("fe80::1"), True),
        (LINK_LOCAL, IPv6Address("fe80::ff:ffff:ffff:ffff"), False),
    ],
)
def test_the_lowest_address_asks_and_who_has_none_gives_way(own, other, gives_way: bool) -> None:
    querier = heard(begun(own, TIMES, 0.0), Query(other), 0.0)
    assert (querier.other is not None) is gives_way and turned(querier, 1.0)[1] is not gives_way


def test_who_asks_less_often_is_believed_within_bounds() -> None:
    querier = heard(begun(OWN, TIMES, 0.0), Query(LOWER, 300.0, 3), 0.0)
    assert querier.membership_s == 910.0 and not turned(querier, 904.9)[1] and turned(querier, 905.1)[1]
    assert heard(querier, Query(LOWER, 1e6, 7), 0.0).membership_s == 7 * MAX_INTERVAL_S + 10.0
    assert turned(querier, 906.0)[0].membership_s == 260.0


@given(st.lists(st.tuples(st.floats(0.1, 400.0), st.sampled_from([LOWER, HIGHER, NOBODY])), max_size=20))
def test_it_is_never_silent_for_long_and_never_asks_beside_a_better_one(row) -> None:
    querier, now_s, last_s, better_s = begun(OWN, TIMES, 0.0), 0.0, 0.0, -1e9
    for wait_s, other in row:
        until_s = now_s + wait_s
        while now_s < until_s:
            now_s += 1.0
            querier, is_due = turned(querier, now_s)
            assert not (is_due and now_s - better_s < TIMES.other_present_s)
            last_s = now_s if is_due else last_s
            assert now_s - max(last_s, better_s) <= TIMES.other_present_s + 2.0
        querier = heard(querier, Query(other), now_s)
        better_s = now_s if other == LOWER else better_s


def test_the_igmp_query_is_that_of_the_standard() -> None:
    frame = query_frame(begun(OWN, TIMES, 0.0))
    assert frame[:14].hex(":") == f"01:00:5e:00:00:01:{MAC}:08:00" and len(frame) == 60
    head, body = frame[14:38], frame[38:50]
    assert checksum(head) == checksum(body) == b"\0\0"
    assert head[0] == 0x46 and int.from_bytes(head[2:4], "big") == 36 and head[8:10] == b"\x01\x02"
    assert IPv4Address(head[12:16]) == OWN and head[16:20] == bytes([224, 0, 0, 1]) and head[20:] == b"\x94\x04\0\0"
    # Ten seconds, no group, robustness 2, 125 seconds, no sources.
    assert body[:2] == b"\x11\x64" and body[4:] == bytes([0, 0, 0, 0, 2, 125, 0, 0])
    assert query_of(frame) == Query(OWN, 125.0, 2) and reports(frame) == ()
    assert query_frame(begun(OWN, TIMES, 0.0), "02:00:00:00:00:07")[:6].hex(":") == "02:00:00:00:00:07"


def test_the_mld_query_is_that_of_the_standard() -> None:
    frame = query_frame(begun(LINK_LOCAL, TIMES, 0.0))
    assert frame[:14].hex(":") == f"33:33:00:00:00:01:{MAC}:86:dd"
    head, options, body = frame[14:54], frame[54:62], frame[62:]
    assert head[:8].hex() == "6000000000240001" and options.hex() == "3a00050200000100"
    assert IPv6Address(head[8:24]) == LINK_LOCAL and IPv6Address(head[24:]) == IPv6Address("ff02::1")
    pseudo = head[8:] + len(body).to_bytes(4, "big") + b"\0\0\0\x3a"
    assert len(body) == 28 and checksum(pseudo + body) == b"\0\0"
    assert body[:2] == b"\x82\0" and body[4:8] == b"\x27\x10\0\0" and body[24:] == bytes([2, 125, 0, 0])
    assert query_of(frame) == Query(LINK_LOCAL, 125.0, 2) and reports(frame) == ()


def test_queries_from_afar_or_without_an_address_are_none() -> None:
    frame = query_frame(begun(LINK_LOCAL, TIMES, 0.0))
    assert query_of(frame[:21] + b"\x40" + frame[22:]) is None  # passed on by a router
    assert query_of(query_frame(begun(IPv6Address("2001:db8::1"), TIMES, 0.0))) is None
    assert query_of(query_frame(begun(IPv4Address("224.0.0.9"), TIMES, 0.0))) is None
    assert query_of(frame[:60]) is None and query_of(b"") is None


def test_queries_of_old_versions_say_nothing_of_times() -> None:
    frame = query_frame(begun(OWN, TIMES, 0.0))
    short = frame[:16] + (32).to_bytes(2, "big") + frame[18:46]
    assert query_of(short) == Query(OWN)


@given(st.integers(1, 31_744))
def test_long_times_are_told_within_an_eighth(value: int) -> None:
    told = decoded(_code(value, 8), 8)
    assert told <= value and value - told < value / 8 + 1
    assert _code(told, 8) == _code(value, 8)


def test_the_settings() -> None:
    def parsed(document: object) -> QuerierSettings:
        problems = Problems("settings")
        found = parse_querier(Place(document, problems, "querier"))
        problems.raise_if_any()
        return found

    assert parsed(None) == parse_querier(None) == QuerierSettings()
    assert parsed({"address": "10.0.0.1", "interval_s": 10, "response_s": 1, "robustness": 3}) == QuerierSettings(
        "10.0.0.1", replace(TIMES, interval_s=10, response_s=1, robustness=3)
    )
    for wrong, place in (
        ({"address": "fe80::1"}, "querier.address"),
        ({"interval_s": 0}, "querier.interval_s"),
        ({"interval_s": 5, "response_s": 5}, "querier.response_s"),
        ({"robustness": 8}, "querier.robustness"),
        ({"often": 1}, "querier.often"),
    ):
        with pytest.raises(ConfigError) as error:
            parsed(wrong)
        assert error.value.place == place
