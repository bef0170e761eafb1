"""What multi-homed clients tell: what is hostile is refused, and what a client's own reporter makes is read."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents import clients
from hyroads.controller.agents.protocol import ProtocolError, encode, parse_hello, parse_line
from hyroads.controller.client import reporting

STATUS: dict[str, Any] = {
    "mode": "full-speed",
    "interfaces": {
        "wlan0": {"up": True, "at": "192.0.2.1", "metered": False, "rate_mbps": 20.0, "sent_mbps": 4.5,
                  "received_mbps": 1.0, "queue_packets": 3, "month_gib": 1.25, "problem": None},
        "wwan0": {"up": False, "at": None, "metered": True, "rate_mbps": None, "sent_mbps": 0.0, "queue_packets": 0,
                  "month_gib": 0.0, "problem": "down"},
    },
    "flows": [{"id": 12, "name": "voice", "interface": "wlan0", "rate_mbps": 0.5, "level_mbps": 0.125, "migrations": 2,
               "source": "10.171.0.2:5060", "destination": "192.0.2.9:5060"}],
    "clusters": [{"flows": [12], "interfaces": ["wlan0"], "level_mbps": None}],
    "mptcp": [{"token": "a1b2c3d4", "subflows": [{}, {}], "name": "rest", "mode": "cost-efficient"}],
    "fetch": {"wlan0": 4.0},
    "counters": {"malformed": 0},
}  # fmt: skip


def told(status: Any) -> clients.ClientReport:
    message = parse_line(encode({"type": "client-report", "status": status}))
    assert message["type"] == "client-report"
    return clients.parse_report(message)


def test_a_report_comes_in_as_it_went_out_without_addresses_of_flows() -> None:
    sent = reporting.reported(STATUS)
    assert "192.0.2.9" not in json.dumps(sent)
    report = told(sent)
    assert report.mode == "full-speed" and report.flow_count == 1 and report.fetched_mbps == {"wlan0": 4.0}
    wlan, wwan = report.interfaces
    assert (wlan.name, wlan.up, wlan.at, wlan.sent_mbps, wlan.queue_packets) == ("wlan0", True, "192.0.2.1", 4.5, 3)
    assert (wwan.metered, wwan.rate_mbps, wwan.received_mbps, wwan.problem) == (True, None, None, "down")
    assert report.flows == (clients.FlowReport(12, "voice", "wlan0", 0.5, 0.125, 2),)
    assert report.mptcp == (clients.MptcpReport("a1b2c3d4", 2, "rest", "cost-efficient"),)


def test_of_many_flows_the_busiest_are_told() -> None:
    flows = [{"id": n, "name": "rest", "rate_mbps": float(n % 700), "level_mbps": 0.0} for n in range(5000)]
    report = told(reporting.reported({**STATUS, "flows": flows}))
    assert len(report.flows) == clients.MAX_FLOWS and report.flow_count == 5000
    assert min(flow.rate_mbps for flow in report.flows) >= 650.0


def changed(*path: Any, to: Any) -> dict[str, Any]:
    status: Any = copy.deepcopy(reporting.reported(STATUS))
    inner = status
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = to
    return status


HOSTILE = [
    None, [], "x",
    changed("mode", to="fast"), changed("mode", to=["full-speed"]),
    changed("interfaces", to=[]), changed("interfaces", to={str(n): {} for n in range(17)}),
    changed("interfaces", to={"x" * 65: {}}), changed("interfaces", to={"": {}}),
    changed("interfaces", to={"a\nb": {}}),
    changed("interfaces", "wlan0", to=5), changed("interfaces", "wlan0", "up", to=1),
    changed("interfaces", "wlan0", "sent_mbps", to=-1), changed("interfaces", "wlan0", "sent_mbps", to="9"),
    changed("interfaces", "wlan0", "sent_mbps", to=1e300), changed("interfaces", "wlan0", "sent_mbps", to=True),
    changed("interfaces", "wlan0", "queue_packets", to=0.5), changed("interfaces", "wlan0", "at", to="\x1b[2J"),
    changed("interfaces", "wlan0", "problem", to="x" * 201),
    changed("flows", to={}), changed("flows", to=[5]),
    changed("flows", to=[{"id": n, "name": "x"} for n in range(257)]),
    changed("flows", 0, "id", to=-1), changed("flows", 0, "id", to=2**60), changed("flows", 0, "name", to=None),
    changed("flows", to=[{"id": 1, "name": "x"}, {"id": 1, "name": "y"}]), changed("flow_count", to="many"),
    changed("clusters", 0, "flows", to=5), changed("clusters", 0, "interfaces", to=["x"] * 17),
    changed("clusters", 0, "flows", to=["12"]), changed("mptcp", 0, "subflows", to=None),
    changed("mptcp", 0, "token", to={}), changed("mptcp", 0, "mode", to="fast"),
    changed("fetch", to={str(n): 1.0 for n in range(17)}),
    changed("fetch", to={"wlan0": None}),
]  # fmt: skip


@pytest.mark.parametrize("status", HOSTILE)
def test_hostile_reports_are_refused(status: Any) -> None:
    with pytest.raises(ProtocolError):
        told(status)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(STATUS)), _JSON), _JSON, _JSON)
def test_any_message_is_read_or_refused(parts: dict[str, Any], event: Any, policy: Any) -> None:
    for parse, message in (
        (clients.parse_report, {"status": {**reporting.reported(STATUS), **parts}}),
        (clients.parse_event, {"event": "flow_migrated", "flow": event, "interface": policy, "took_s": event}),
        (clients.parse_policy, {"policy": policy}),
    ):
        try:
            parse(message)
        except ProtocolError as error:
            assert len(str(error)) < 200


def test_events() -> None:
    event = clients.parse_event({"event": "flow_migrated", "flow": 3, "from": "wlan0", "interface": "wwan0"})
    assert (event.flow, event.old_interface, event.interface, event.took_s) == (3, "wlan0", "wwan0", None)
    hostile: list[dict[str, Any]] = [
        {}, {"event": 5}, {"event": ["interface_up"]}, {"event": "joined"}, {"event": "flow_migrated", "flow": 3},
        {"event": "interface_up", "interface": "x" * 65}, {"event": "flow_migrated", "flow": True, "interface": "x"},
    ]  # fmt: skip
    for message in hostile:
        with pytest.raises(ProtocolError):
            clients.parse_event(message)
    assert set(reporting.EVENTS.values()) == set(clients.EVENTS)


def test_a_policy_is_an_object_of_bounded_size() -> None:
    assert clients.parse_policy({"policy": {"mode": "full-speed"}}) == {"mode": "full-speed"}
    for policy in ([], None, {"x": "y" * clients.MAX_POLICY_BYTES}):
        with pytest.raises(ProtocolError):
            clients.parse_policy({"policy": policy})
    assert clients.MAX_POLICY_BYTES == reporting.MAX_POLICY_BYTES and clients.MAX_FLOWS == reporting.MAX_FLOWS


def test_a_client_says_hello_by_its_id() -> None:
    line = {"type": "hello", "version": 1, "role": "client", "node": "laptop", "boot": "9", "token": "secret"}
    hello = parse_hello(parse_line(encode(line)))
    assert (hello.node, hello.role, hello.revision) == ("laptop", "client", 0)


CURRENT = {
    "interfaces": {"wlan0": {}},
    "waypoint": {"address": "192.0.2.1", "token_file": "/etc/w"},
    "mode": "full-speed",
}


def test_the_waypoint_of_a_client_stays_its_own() -> None:
    asked = {"interfaces": {"wlan0": {}, "eth0": {}}}
    policy = reporting.with_own_parts(asked, CURRENT)
    assert policy == {**asked, "waypoint": CURRENT["waypoint"]}
    assert reporting.with_own_parts({**asked, "waypoint": CURRENT["waypoint"]}, CURRENT) == policy
    for part, value in (("waypoint", {"address": "198.51.100.1", "token_file": "/etc/shadow"}), ("controller", "x")):
        with pytest.raises(reporting.ReportingError, match=part):
            reporting.with_own_parts({**asked, part: value}, CURRENT)
