"""What if: theory of a copy of the network, as the planner and solver have it on the file."""

from __future__ import annotations

import pickle

import pytest
from seen_network import Seen

from hyroads.controller.core.errors import HyroadsError
from hyroads.dashboard.state import NetworkState
from hyroads.dashboard.views.what_if import NEW_FLOW, answer, are_cliques, question, rows


def seen() -> Seen:
    found = Seen()
    found.fake.flow("f1", [["ab-plc", "bc-wifi"], ["ab-wifi", "bc-wifi"]], 8.0)
    found.look()
    return found


def test_the_triangle_has_its_known_optimum_and_less_without_power_line() -> None:
    asked = question(seen().state, ["ab-plc"], None)
    [now], [then] = answer(pickle.loads(pickle.dumps(asked)))
    assert now.rate_mbps == pytest.approx(50 / 3, rel=1e-3)
    assert then.rate_mbps == pytest.approx(10.0, rel=1e-3)
    assert then.paths == ["ab-wifi + bc-wifi"]
    assert are_cliques(asked.domains)


def test_a_new_flow_shares_and_one_without_a_way_is_said() -> None:
    state = seen().state
    now, then = answer(question(state, [], ("b", "c")))
    assert [one.flow for one in then] == ["f1", NEW_FLOW]
    assert all(one.rate_mbps is not None and one.rate_mbps > 1 for one in then)
    assert rows(now, then)[1][1] == ""
    [then] = answer(question(state, ["bc-wifi"], None))[1]
    assert then.rate_mbps is None
    assert rows([], [then]) == [["f1", "", "unreachable", "no way"]]


def test_what_is_down_or_unknown_is_left_out() -> None:
    found = seen()
    found.fake.set_link("ab-plc", up=0)
    found.fake.set_link("ab-wifi~", capacity_mbps=None)
    found.look()
    assert {link["id"] for link in question(found.state, [], None).links} == {
        "ab-wifi",
        "bc-wifi",
        "bc-wifi~",
        "ab-plc~",
    }


def test_without_a_network_there_is_no_question() -> None:
    with pytest.raises(HyroadsError):
        question(NetworkState(), [], None)
    state = seen().state
    with pytest.raises(HyroadsError, match="no link"):
        answer(question(state, [link.id for link in state.topology.links.values()], None))
