"""The controller asks where it would hear the answers, everybody at access ports and stations one by one."""

from __future__ import annotations

from ipaddress import IPv4Address
from types import SimpleNamespace
from typing import Any

import pytest

from hyroads.controller.core.services.membership import ALL_HOSTS, ALL_NODES, QueryTimes, begun, query_frame, query_of
from hyroads.controller.ofp import wire
from hyroads.controller.services.multicast.membership import MembershipService, QuerierService
from hyroads.controller.settings.clients import QuerierSettings

STATION = "02:00:00:00:00:07"
HEAD = 40
"""Of a packet-out: header, buffer, port, one action."""


class Switch:
    """Takes packet-outs; hands reports up, or does not, or has confirmed nothing yet."""

    may_change = True

    def __init__(self, *, hears: bool | None, **ports: int) -> None:
        intent = SimpleNamespace(hears_reports=hears)
        self.confirmed = None if hears is None else SimpleNamespace(intent=intent)
        self.ports = {name.replace("_", "-"): number for name, number in ports.items()}
        self.connection = self
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> bool:
        self.sent.append(data)
        return True

    def asked(self) -> list[tuple[int, str]]:
        """Where frames were sent out, and to whom."""
        found = []
        for data in self.sent:
            assert data[1] == wire.PACKET_OUT and query_of(data[HEAD:]) is not None
            found.append((int.from_bytes(data[28:32], "big"), data[HEAD : HEAD + 6].hex(":")))
        self.sent = []
        return found


class Lab:
    def __init__(self) -> None:
        self.switches = {
            "a": Switch(hears=True, a_host=100, a_wifi=1),
            "b": Switch(hears=False, b_host=100),
            "c": Switch(hears=None, c_host=100),
            "d": Switch(hears=True),
        }
        self.now_s = 0.0
        ports = {node: f"{node}-host" for node in self.switches}
        settings = QuerierSettings("10.0.0.9", QueryTimes())
        self.service = QuerierService(self.switches, ports, settings, lambda: self.now_s)  # type: ignore[arg-type]

    def turn(self, *stations: tuple[str, str, str], needed: bool = True) -> dict[str, list[Any]]:
        self.service.once(iter(stations), needed=needed)
        return {node: asked for node, switch in self.switches.items() if (asked := switch.asked())}


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_only_where_reports_are_handed_up_and_a_port_is(lab: Lab) -> None:
    assert lab.turn() == {"a": [(100, ALL_HOSTS), (100, ALL_NODES)]}
    assert [lab.service.hears(node) for node in (*lab.switches, "gone")] == [True, False, False, True, False]


def test_stations_are_asked_one_by_one_where_they_are(lab: Lab) -> None:
    asked = lab.turn(("a", "a-wifi", STATION), ("b", "b-wifi", STATION), ("a", "a-gone", STATION))
    assert asked == {"a": [(100, ALL_HOSTS), (1, STATION), (100, ALL_NODES), (1, STATION)]}


def test_nobody_is_asked_while_nobody_needs_it_and_at_once_when_somebody_does(lab: Lab) -> None:
    assert lab.turn(needed=False) == {}
    assert lab.turn()
    lab.now_s = 10.0
    assert lab.turn() == {}
    assert lab.turn(needed=False) == {}
    assert lab.turn()


def test_another_querier_counts_for_its_family(lab: Lab) -> None:
    lab.turn()
    other = begun(IPv4Address("10.0.0.1"), QueryTimes(288.0), 0.0)
    lab.service.heard(query_frame(other))
    assert lab.service.membership_s == 2 * 288.0 + 10.0
    lab.now_s = 31.25
    assert lab.turn() == {"a": [(100, ALL_NODES)]}
    lab.service.heard(b"no query")
    lab.now_s = 620.0
    assert lab.turn() == {"a": [(100, ALL_HOSTS), (100, ALL_NODES)]} and lab.service.membership_s == 260.0


def test_who_leads_asks_before_it_lets_members_go_that_another_heard(lab: Lab) -> None:
    """It followed for longer than a report counts."""
    spec = SimpleNamespace(membership=True, find=lambda mac: mac, participants=())
    live, left = SimpleNamespace(spec=spec, hosts=(SimpleNamespace(mac=STATION),)), list[str]()
    sessions: Any = SimpleNamespace(
        sessions={"s": live}, knows=lambda name: True, keep=lambda: None,
        member=lambda name, host, *, joins: left.append(host.name),
    )  # fmt: skip
    lab.turn()
    members = MembershipService(sessions, lambda node, port: None, lambda: lab.now_s, lambda *_: None, lab.service)
    members.become([["s", STATION, "a", "a-host", False]])
    lab.now_s = 10 * lab.service.membership_s
    members.lead()
    members.once()
    assert left == [] and lab.switches["a"].asked()
    lab.now_s += lab.service.membership_s - 1.0
    members.once()
    assert left == []
    lab.now_s += 2.0
    members.once()
    assert left == [STATION]
