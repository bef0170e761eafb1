"""Hosts are asked which groups they want: the real controller, real switches, a host whose kernel answers, and one made
by hand that does not.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from client_lab import ClientLab, eventually, mesh, within

from hyroads.controller.core.services.membership import LINK_LOCAL, MAC, Query, QueryTimes, begun, query_frame, query_of

pytestmark = pytest.mark.root
GROUP = "239.7.7.7"
TIMES = QueryTimes(interval_s=2.0, response_s=1.0, robustness=2)
X = "02:aa:00:00:07:01"


@pytest.fixture(scope="module")
def lab() -> Iterator[ClientLab]:
    querier = {"interval_s": TIMES.interval_s, "response_s": TIMES.response_s, "robustness": TIMES.robustness}
    with ClientLab(mesh(2), {"querier": querier, "state_file": "state.json"}) as lab:
        yield lab


@pytest.fixture(scope="module")
def session(lab: ClientLab) -> str:
    status, _ = lab.rest("POST", "/sessions", {"id": "s", "group": GROUP, "participants": [], "membership": True})
    assert status == 201
    return "s"


def participants(lab: ClientLab, session: str) -> set[str]:
    return {one["name"] for one in lab.rest("GET", f"/sessions/{session}")[1].get("participants", ())}


def namespace(lab: ClientLab, node: str) -> str:
    """Where the host of a node lives; hosts of nodes come in the order of the file."""
    return lab.namespaces[1 + list(lab.addressing.dpid).index(node)]


def joined(lab: ClientLab, node: str) -> socket.socket:
    """A socket of a real host that has joined the group."""

    def join() -> socket.socket:
        member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        interface = socket.inet_aton(lab.addressing.host_ip[node])
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + interface)
        return member

    return within(namespace(lab, node), join)


def report(mac: str) -> bytes:
    """A host wants the group (IGMPv3), and says so once."""
    body = bytes([0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0]) + socket.inet_aton(GROUP)
    head = bytes([0x46, 0xC0, 0, 24 + len(body), 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 7, 1, 224, 0, 0, 22, 0x94, 4, 0, 0])
    return bytes.fromhex("01005e000016" + mac.replace(":", "")) + b"\x08\0" + head + body


def queries(lab: ClientLab, node: str) -> list[Query]:
    """Of the controller, that came out of an access port since the last time."""
    ours = bytes.fromhex(MAC.replace(":", ""))
    found = (query_of(frame) for frame in list(lab.received(node)) if frame[6:12] == ours)
    return [query for query in found if query is not None]


def silence(lab: ClientLab, node: str, family: int, each: Callable[[], object] = int) -> Callable[[], bool]:
    """Whether no query has come for twice as long as one is due; ``each`` is done at every look."""
    heard_s = time.monotonic()

    def is_silent() -> bool:
        nonlocal heard_s
        each()
        if any(query.source.version == family for query in queries(lab, node)):
            heard_s = time.monotonic()
        return time.monotonic() > heard_s + 2 * TIMES.interval_s

    return is_silent


def test_hosts_are_asked_at_every_access_port_for_both_families(lab: ClientLab, session: str) -> None:
    for node in lab.addressing.dpid:
        seen: list[Query] = []

        def both(node: str = node, seen: list[Query] = seen) -> bool:
            seen += queries(lab, node)
            return {query.source.version for query in seen} == {4, 6}

        assert eventually(both)
        assert {(str(q.source), q.interval_s, q.robustness) for q in seen} == {
            ("0.0.0.0", 2.0, 2),
            (str(LINK_LOCAL), 2.0, 2),
        }


def test_who_answers_stays_and_who_does_not_goes(lab: ClientLab, session: str) -> None:
    mac = lab.addressing.host_mac["n0"]
    with joined(lab, "n0"):
        assert eventually(lambda: mac in participants(lab, session))
        lab.sockets["n1"].send(report(X))
        assert eventually(lambda: X in participants(lab, session))
        # It never answers; the host whose kernel does outlasts it, and as long again.
        assert eventually(lambda: X not in participants(lab, session), 4 * TIMES.membership_s)
        until_s = time.monotonic() + TIMES.membership_s + 1.0
        while time.monotonic() < until_s:
            assert mac in participants(lab, session)
            time.sleep(0.5)
    assert eventually(lambda: mac not in participants(lab, session))


def test_a_new_controller_asks_before_it_lets_anybody_go(lab: ClientLab, session: str) -> None:
    mac = lab.addressing.host_mac["n0"]
    with joined(lab, "n0"):
        lab.sockets["n1"].send(report(X))
        assert eventually(lambda: {mac, X} <= participants(lab, session))
        lab.stop_controller()
        lab.start_controller()
        assert eventually(lambda: mac in participants(lab, session))
        assert eventually(lambda: X not in participants(lab, session), 4 * TIMES.membership_s)
        assert mac in participants(lab, session)


def test_another_querier_with_an_address_is_left_alone(lab: ClientLab, session: str) -> None:
    other = bytearray(query_frame(begun(IPv4Address("10.0.0.1"), TIMES, 0.0)))
    other[6:12] = bytes.fromhex(X.replace(":", ""))
    assert eventually(silence(lab, "n0", 4, lambda: lab.sockets["n1"].send(bytes(other))), 30.0)
    # It is gone: after a while somebody has to ask.
    assert eventually(lambda: any(query.source.version == 4 for query in queries(lab, "n0")), 30.0)


def test_without_such_a_session_nobody_is_asked(lab: ClientLab, session: str) -> None:
    assert lab.rest("DELETE", f"/sessions/{session}")[0] == 204
    for family in (4, 6):
        assert eventually(silence(lab, "n0", family), 30.0)
