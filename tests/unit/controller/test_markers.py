"""What agents tell of flows that are handed over."""

from __future__ import annotations

from hyroads.controller.agents.markers import PathMarkers, SequenceMarkers

TOLD = (PathMarkers(1, 7, None, paused=True),)
NOTHING = PathMarkers(1, None, None, paused=False)


def test_only_what_somebody_waits_for_is_kept():
    news = []
    markers = SequenceMarkers(lambda: news.append(1))
    markers.paths_passed("b", 16, TOLD)
    assert not news and markers.of("b", 16, 1) == NOTHING
    markers.await_("b", 16, "a")
    markers.paths_passed("b", 16, TOLD)
    assert news and markers.of("b", 16, 1) == TOLD[0] and markers.of("c", 16, 1) == NOTHING
    markers.await_("b", 16, "a")  # anew: what was told before does not count
    assert markers.of("b", 16, 1) == NOTHING
    markers.paths_passed("b", 16, TOLD)
    markers.forget("b", 16)
    assert markers.of("b", 16, 1) == TOLD[0]  # another one still waits
    markers.forget("b", 16)
    assert markers.of("b", 16, 1) == NOTHING


def test_reports_say_it_again():
    markers = SequenceMarkers()
    report = {"egress": [{"number": 16, "paths": [{"id": 1, "passed": 9, "arrived": 8}]}]}
    assert not markers.reported("b", report)
    markers.await_("b", 16, "a")
    assert markers.reported("b", report) and markers.of("b", 16, 1).arrived == 8


def test_reports_of_the_first_edge_say_what_it_told_another_controller():
    news = []
    markers = SequenceMarkers(lambda: news.append(1))
    report = {"ingress": [{"number": 16, "from": 4711}, {"number": 17, "from": 4}], "egress": []}
    assert not markers.reported("a", report) and markers.first("a", 16) is None
    markers.await_("b", 16, "a")
    assert not markers.reported("c", report) and markers.reported("a", report)
    assert markers.first("a", 16) == 4711 and markers.first("a", 17) is None
    # Said again it is no news, and what makes no sense counts for nothing.
    assert not markers.reported("a", report)
    for spoilt in (None, -1, 2**32, 4711.5, True):
        assert not markers.reported("a", {"ingress": [{"number": 16, "from": spoilt}], "egress": []})
    assert markers.first("a", 16) == 4711
    markers.forget("b", 16)
    assert not markers.reported("a", {"ingress": [{"number": 16, "from": 5000}], "egress": []})


def test_what_an_agent_said_ends_with_it():
    markers = SequenceMarkers()
    markers.await_("b", 16, "a")
    markers.paths_passed("b", 16, TOLD)
    markers.first_numbers("a", {16: 5})
    markers.first_numbers("b", {17: 6})
    markers.left("b")
    assert markers.of("b", 16, 1) == NOTHING and markers.first("a", 16) == 5 and markers.first("b", 17) is None
    markers.paths_passed("b", 16, TOLD)
    assert markers.of("b", 16, 1) == TOLD[0]
