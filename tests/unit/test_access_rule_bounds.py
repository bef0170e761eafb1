"""Where the bounds of access rules are: when a rule ends, for how long one may be made, and which priorities."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hyroads.controller.core.access_rules import (
    LONGEST_S,
    MOST_FOR_APPLICATIONS,
    AccessRule,
    Action,
    Right,
    expiry,
)
from hyroads.controller.core.errors import ConfigError

RULE = AccessRule("r", Action.DENY, "ann", False, 5)
NOW_S = 1_000.0
LATE_S = NOW_S + LONGEST_S


@pytest.mark.parametrize(("now_s", "over"), [(99.999, False), (100.0, True), (100.001, True)])
def test_rule_is_over_from_its_last_moment_on(now_s: float, over: bool) -> None:
    assert replace(RULE, expires_s=100.0).is_over(now_s) is over
    assert not RULE.is_over(now_s), "it never ends"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, None), ({"expires_s": NOW_S + 1}, NOW_S + 1), ({"expires_in_s": 1}, NOW_S + 1),
        ({"expires_s": LATE_S}, LATE_S), ({"expires_in_s": LONGEST_S}, LATE_S),
    ],
)  # fmt: skip
def test_rule_ends_at_a_time_or_after_one(asked: dict[str, float], found: float | None) -> None:
    assert expiry(asked, "x", NOW_S) == found


@pytest.mark.parametrize(
    "asked",
    [
        {"expires_s": NOW_S}, {"expires_in_s": 0}, {"expires_in_s": -1}, {"expires_s": LATE_S + 1},
        {"expires_in_s": LONGEST_S + 1}, {"expires_s": math.nan}, {"expires_in_s": math.inf},
        {"expires_s": NOW_S + 1, "expires_in_s": 1},
    ],
)  # fmt: skip
def test_rule_ends_neither_in_the_past_nor_after_ten_years(asked: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        expiry(asked, "x", NOW_S)


@pytest.mark.parametrize("above", [-1, 0, 1])
@pytest.mark.parametrize("sender", ["m", "n", None])
def test_application_makes_rules_for_its_own_clients_up_to_a_priority(above: int, sender: str | None) -> None:
    rule = replace(RULE, priority=MOST_FOR_APPLICATIONS + above)
    assert bool(Right(frozenset({"m"})).problem(rule, sender)) is (above > 0 or sender != "m")
    assert not Right().problem(rule, sender), "an administrator makes any"
