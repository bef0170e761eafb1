"""What agents tell of flows that are handed over."""

from __future__ import annotations

from hyroads.controller.agents.markers import Marks, PathMarks

TOLD = (PathMarks(1, 7, None, paused=True),)
NOTHING = PathMarks(1, None, None, paused=False)


def test_only_what_somebody_waits_for_is_kept():
    news = []
    marks = Marks(lambda: news.append(1))
    marks.paths_passed("b", 16, TOLD)
    assert not news and marks.of("b", 16, 1) == NOTHING
    marks.await_("b", 16)
    marks.paths_passed("b", 16, TOLD)
    assert news and marks.of("b", 16, 1) == TOLD[0] and marks.of("c", 16, 1) == NOTHING
    marks.await_("b", 16)  # anew: what was told before does not count
    assert marks.of("b", 16, 1) == NOTHING
    marks.paths_passed("b", 16, TOLD)
    marks.forget("b", 16)
    assert marks.of("b", 16, 1) == TOLD[0]  # another one still waits
    marks.forget("b", 16)
    assert marks.of("b", 16, 1) == NOTHING


def test_reports_say_it_again():
    marks = Marks()
    report = {"egress": [{"number": 16, "paths": [{"id": 1, "passed": 9, "arrived": 8}]}]}
    assert not marks.reported("b", report)
    marks.await_("b", 16)
    assert marks.reported("b", report) and marks.of("b", 16, 1).arrived == 8


def test_what_an_agent_said_ends_with_it():
    marks = Marks()
    marks.await_("b", 16)
    marks.paths_passed("b", 16, TOLD)
    marks.first_numbers("a", {16: 5})
    marks.first_numbers("b", {17: 6})
    marks.left("b")
    assert marks.of("b", 16, 1) == NOTHING and marks.first("a", 16) == 5 and marks.first("b", 17) is None
    marks.paths_passed("b", 16, TOLD)
    assert marks.of("b", 16, 1) == TOLD[0]
