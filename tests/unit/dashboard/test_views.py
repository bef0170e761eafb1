"""What the dashboard's pages show, without a browser."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen_network import Seen

from hyroads.dashboard.access import CHANGING_ROLES
from hyroads.dashboard.state import NetworkState, NodeInfo, Topology
from hyroads.dashboard.views import clients, flow, network, tables
from hyroads.dashboard.views.floor_plan import ASPECT, positions
from hyroads.rest import access


def links_of(series: dict[str, Any]) -> dict[str, str]:
    return {line["name"]: one for one, of in series.items() if one.startswith("links/") for line in of["data"]}


def test_each_link_is_drawn_once_by_its_technology_and_measured_busy_share() -> None:
    seen = Seen()
    seen.fake.set_link("ab-wifi", busy_percent=66)
    seen.fake.set_link("bc-wifi", busy_percent=None)
    seen.fake.set_link("ab-plc", busy_percent=90, up=0)
    seen.look()
    drawn = links_of(network.Drawing(seen.state.topology).series(seen.state))
    assert drawn == {
        "ab-wifi": "links/wifi/b75", "bc-wifi": "links/wifi/unknown", "ab-plc": "links/plc/down",
        "ab-wifi~": "links/wifi/idle", "bc-wifi~": "links/wifi/idle", "ab-plc~": "links/plc/idle",
    }  # fmt: skip


def test_a_change_of_one_link_sends_the_two_series_that_it_leaves_and_joins() -> None:
    seen = Seen()
    drawing = network.Drawing(seen.state.topology)
    before = drawing.series(seen.state)
    assert network.changed(before, drawing.series(seen.state)) == []
    seen.fake.set_link("ab-plc", up=0)
    seen.look()
    sent = network.changed(before, drawing.series(seen.state))
    assert [one["id"] for one in sent] == ["links/plc/idle", "links/plc/down"]
    assert all(one.keys() == {"id", "data"} for one in sent)


@given(st.floats(0, 100), st.floats(0, 100))
def test_a_busier_link_is_darker_and_wider(first: float, second: float) -> None:
    less, more = sorted((first, second))
    lighter, darker = network.link_class(1, less), network.link_class(1, more)
    assert darker.width >= lighter.width
    assert luminance(darker.colour) <= luminance(lighter.colour)


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_scale_is_read_by_brightness_alone() -> None:
    steps = [luminance(one.colour) for one in network.CLASSES]
    assert all((lighter + 0.05) / (darker + 0.05) >= 1.3 for lighter, darker in pairwise(steps))
    assert network.link_class(1, 0.0).id == "idle"
    assert network.link_class(1, 0.1).id == "b25"


def test_a_flow_lights_exactly_the_links_of_its_paths() -> None:
    seen = Seen()
    seen.fake.flow("f1", [["ab-plc", "bc-wifi"]], 8.0)
    seen.fake.flow("f1/2", [["ab-wifi"]], 3.0)
    seen.look()
    assert network.flow_links(seen.state, "f1") == {"ab-plc", "bc-wifi"}
    assert network.flow_links(seen.state, "f1/2") == {"ab-wifi"}
    [row] = network.path_rows(seen.state, "f1")
    assert row["delivered"] == "8 Mb/s"


def test_what_is_not_measured_is_not_shown_as_nothing() -> None:
    seen = Seen()
    seen.fake.set_link("ab-wifi", rate_mbps=None, busy_percent=None)
    seen.look()
    shown = dict(network.link_text(seen.state, "ab-wifi"))
    assert shown["measured rate"] == shown["measured busy share"] == "not measured"
    assert dict(network.link_text(seen.state, "ab-plc"))["measured rate"] == "0 Mb/s"


def test_a_links_domain_is_all_that_shares_its_medium() -> None:
    state = Seen().state
    assert network.domain_of(state, "ab-wifi") == {"ab-wifi", "ab-wifi~", "bc-wifi", "bc-wifi~"}
    assert network.domain_of(state, "nothing") == frozenset()


def test_a_client_can_go_where_it_has_a_link_and_is_not() -> None:
    seen = Seen()
    assert clients.targets(seen.state, "c") == ["b/wifi"]
    seen.fake.place("c", "b", "wifi")
    seen.look(5.0)
    assert clients.targets(seen.state, "c") == []
    assert [row["place"] for row in clients.history_rows(seen.state, "c", 5.0)] == ["b/wifi"]


@given(st.integers(0, 12), st.booleans())
def test_nodes_are_within_the_drawing_and_apart(count: int, has_positions: bool) -> None:
    nodes = {
        f"n{one}": NodeInfo(f"n{one}", "ap", (3.0 * one, float(one % 3)) if has_positions else None, True)
        for one in range(count)
    }
    placed = positions(Topology("n", 1, nodes, {}))
    assert placed.keys() == nodes.keys()
    assert all(0 <= x <= ASPECT and 0 <= y <= 1 for x, y in placed.values())
    assert len(set(placed.values())) == count
    assert placed == positions(Topology("n", 2, nodes, {}))


def test_curves_are_sent_in_two_parts_that_are_the_whole() -> None:
    seen = Seen()
    for second in range(1, 201):
        seen.fake.flow("f1", [["ab-plc", "bc-wifi"]], float(second))
        seen.look(float(second))
    graph = flow.graphs(seen.state, "f1", 200.0, 1_000_000_200.0)[0]
    parts = {one["id"]: one["data"] for one in flow.series(graph, whole=True)}
    past, recent = parts["delivered/past"], parts["delivered/recent"]
    assert [value for _, value in past + recent[1:]] == [None, *map(float, range(1, 201))]
    assert past[-1] == recent[0]
    assert len(recent) <= 61
    assert [one["id"].rpartition("/")[2] for one in flow.series(graph, whole=False)] == ["recent"] * 3


def test_csv_has_units_and_no_formulas() -> None:
    seen = Seen()
    seen.fake.flow("f1", [["ab-plc", "bc-wifi"]], 8.0)
    seen.look()
    lines = flow.csv_of(flow.graphs(seen.state, "f1", 0.0, 1000.0)).splitlines()
    assert lines[0].startswith("unix_time_s,rate: delivered (Mb/s),rate: wanted (Mb/s),rate: theory (planned) (Mb/s)")
    assert lines[1].startswith("1000.00,8.0,,8.0")


def test_a_path_that_is_gone_has_its_name_as_long_as_it_is_shown() -> None:
    seen = Seen()
    seen.fake.flow("f1", [["ab-plc", "bc-wifi"], ["ab-wifi", "bc-wifi"]], 4.0)
    seen.look(1.0)
    del seen.fake.rows["paths"]["f1/1"]
    seen.look(2.0)
    by_path = flow.graphs(seen.state, "f1", 2.0, 1_000_002.0)[1]
    assert [one.name for one in by_path.curves] == ["ab-plc + bc-wifi", "ab-wifi + bc-wifi"]
    assert [value for _, value in by_path.curves[0].points][-2:] == [4.0, None]


def test_events_are_filtered_by_words_and_bounded() -> None:
    state = NetworkState()
    for number in range(500):
        state.take_event(number, "link.down", {"time_s": 1.0, "link": f"l{number}", "reason": "x" * 1000})
    state.take_event(500, "flow.moved", {"time_s": 2.0, "id": "f1"})
    assert len(tables.event_rows(state.events, "")) == tables.MAX_ROWS
    assert [row[1] for row in tables.event_rows(state.events, "FLOW f1")] == ["flow.moved"]
    assert all(len(row[2]) < 1000 for row in tables.event_rows(state.events, "link"))


@pytest.mark.parametrize("resource", sorted(CHANGING_ROLES))
def test_pages_offer_changes_to_the_roles_that_the_api_admits(resource: str) -> None:
    writes = {role for role, of in access.WRITES.items() if of is None or resource in of}
    assert set(CHANGING_ROLES[resource]) == writes


def test_state_of_controller_is_well_only_without_faults_and_recent_misses() -> None:
    seen = Seen()
    slots = {"count": 979, "missed": 21, "missed_recently": 0}

    def state(ok: bool, **changed: int) -> str:
        seen.state.documents["/health"] = {"ok": ok, "slots": {**slots, **changed}}
        rows = dict(tables.health_rows(seen.state))
        assert rows["slots missed"].startswith("21 of 1000 since the start")
        return rows["state"]

    assert state(ok=True) == "all is well"
    assert state(ok=True, missed_recently=21) == "21 slots missed in the last 5 min"
    assert state(ok=False, missed_recently=21) == "something is missing"


def test_owner_is_shown_of_flows_sessions_and_reservations() -> None:
    found = Seen()
    found.fake.flow("f1", [["ab-plc", "bc-wifi"]], 8.0)
    found.look()
    state = found.state
    assert network.flow_title(state, "f1") == "Flow f1, owner video"
    assert network.flow_title(state, None) == "" and network.flow_title(state, "gone") == "Flow gone"
    session = {"id": "talk", "owner": "video", "group": "239.1.1.1", "participants": [], "state": "active"}
    reservation = {"id": "r", "owner": "video", "flow": "f1", "rate_mbps": 2.0, "state": "kept"}
    state.documents["/sessions"] = {"sessions": [session]}
    state.documents["/reservations"] = {"reservations": [reservation]}
    assert tables.session_rows(state)[0][:2] == ["talk", "video"]
    assert tables.reservation_rows(state)[0][:3] == ["r", "video", "f1"]
