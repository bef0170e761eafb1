"""What the watch over the machine counts, and which seconds it calls slow."""

from __future__ import annotations

import pytest

from hyroads.mininet.machine import Look, Machine, Span, span

QUIET = Span(1.0, stolen=0.0, others=0.02, own=0.35, pressure_s=0.1, medium_late_s=0.0, agents_late_s=0.0)


def changed(**figures: float) -> Span:
    return Span(**{**{name: getattr(QUIET, name) for name in QUIET.__dataclass_fields__}, **figures})


def look(time_s: float, **figures: object) -> Look:
    nothing = {"free_s": 0.0, "stolen_s": 0.0, "own_s": 0.0, "pressure_s": None, "medium_late_s": 0.0}
    return Look(time_s, **{**nothing, "agents_late_s": {}, **figures})


@pytest.mark.parametrize(
    "figures",
    [
        {"stolen": 0.1},
        {"stolen": 0.35, "others": 0.35},
        {"others": 0.3},
        {"others": 0.18, "own": 0.8},
        {"medium_late_s": 0.05},
        {"agents_late_s": 0.05, "others": 0.08},
    ],
)
def test_second_is_slow_if_others_took_the_processors(figures):
    assert changed(**figures).slow
    assert Machine([QUIET, changed(**figures), QUIET]).why.startswith("in 1 of 3 s: ")


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"own": 0.8},
        {"stolen": 0.02, "others": 0.1, "pressure_s": 1.0, "medium_late_s": 0.01},
        # An agent that was frozen on purpose, or is stuck in its own work.
        {"agents_late_s": 0.9},
        # The run has used up the machine itself.
        {"own": 0.95, "others": 0.05, "medium_late_s": 0.5, "agents_late_s": 0.9},
    ],
)
def test_second_is_not_slow_if_the_run_used_the_processors_itself(figures):
    assert not changed(**figures).slow
    assert Machine([changed(**figures)] * 10).why == ""


def test_document_has_the_shares_of_the_whole_run():
    machine = Machine([changed(stolen=0.6)] * 3).document(believable=True)
    assert machine["believable"] is True and machine["why"].startswith("in 3 of 3 s: ")
    assert machine["stolen_ratio"] == pytest.approx(0.6)


def test_shares_are_of_all_processors_and_others_have_what_is_left_over():
    before = look(10.0, free_s=5.0, stolen_s=1.0, own_s=2.0, pressure_s=1.0, agents_late_s={"a": 0.1, "b": 0.3})
    after = look(12.0, free_s=6.0, stolen_s=1.4, own_s=3.0, pressure_s=1.5, agents_late_s={"a": 0.4, "b": 0.4})
    found = span(before, after, processors=2)
    assert (found.stolen, found.others, found.own) == pytest.approx((0.1, 0.4, 0.25))
    assert (found.pressure_s, found.medium_late_s, found.agents_late_s) == pytest.approx((0.5, 0.0, 0.3))


def test_counters_that_were_set_to_zero_count_from_there():
    late = span(look(0.0, medium_late_s=5.0, agents_late_s={"a": 7.0}),
                look(1.0, medium_late_s=0.2, agents_late_s={"a": 0.1, "b": 0.3}), processors=2)  # fmt: skip
    assert (late.medium_late_s, late.agents_late_s) == (0.2, 0.3)


def test_totals_of_processors_that_step_back_are_no_growth():
    # A process that ends while we look is missed, or counted twice; the kernel's idle time may step back by a tick.
    before = look(0.0, free_s=100.0, stolen_s=3.0, own_s=50.0, pressure_s=9.0)
    found = span(before, look(1.0, free_s=99.99, stolen_s=3.0, own_s=49.9, pressure_s=9.0), processors=2)
    assert (found.own, found.stolen, found.pressure_s) == (0.0, 0.0, 0.0)
    assert found.others == pytest.approx(1.0)
