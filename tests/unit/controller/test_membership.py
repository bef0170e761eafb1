"""IGMP and MLD: reports as hosts send them, as nobody should send them, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.control.sessions import Host
from hyroads.controller.core.services.membership import MAX_RECORDS, query_of, reports
from hyroads.controller.core.services.sessions import Participant, SessionSpec, group_address
from hyroads.controller.services.multicast.membership import MAX_WAITING, SETTLE_S, MembershipService
from hyroads.rest.contract import ConflictError

MAC = "02:00:00:00:00:07"
GROUP = bytes([239, 1, 2, 3])
GROUP6 = bytes.fromhex("ff0e0000000000000000000000000009")


def ipv4(igmp: bytes, options: bytes = b"\x94\x04\0\0") -> bytes:
    words = 5 + len(options) // 4
    head = bytes([0x40 | words, 0, *(4 * words + len(igmp)).to_bytes(2, "big"), 0, 0, 0, 0, 1, 2, 0, 0])
    return ethernet(head + bytes([10, 0, 0, 7, 224, 0, 0, 22]) + options + igmp, 0x0800)


def ipv6(icmp: bytes) -> bytes:
    hop_by_hop = bytes([58, 0, 5, 2, 0, 0, 1, 0])
    head = bytes([0x60, 0, 0, 0, *(8 + len(icmp)).to_bytes(2, "big"), 0, 1]) + bytes(32)
    return ethernet(head + hop_by_hop + icmp, 0x86DD)


def ethernet(packet: bytes, kind: int, tags: bytes = b"") -> bytes:
    return bytes.fromhex("01005e000016") + bytes.fromhex(MAC.replace(":", "")) + tags + kind.to_bytes(2, "big") + packet


def v3(*records: tuple[int, int], address: bytes = GROUP, kind: int = 0x22) -> bytes:
    """A report of IGMPv3 (or MLDv2): type of record and number of sources."""
    body = bytes([kind, 0, 0, 0, 0, 0]) + len(records).to_bytes(2, "big")
    for record, sources in records:
        body += bytes([record, 0]) + sources.to_bytes(2, "big") + address + bytes(len(address) * sources)
    return body


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (ipv4(bytes([0x16, 0, 0, 0]) + GROUP), [("239.1.2.3", True)]),
        (ipv4(bytes([0x12, 0, 0, 0]) + GROUP, b""), [("239.1.2.3", True)]),
        (ipv4(bytes([0x17, 0, 0, 0]) + GROUP), [("239.1.2.3", False)]),
        (ipv4(v3((4, 0))), [("239.1.2.3", True)]),
        (ipv4(v3((3, 0))), [("239.1.2.3", False)]),
        (ipv4(v3((2, 1), (1, 2), (6, 1), (5, 1))), [("239.1.2.3", True)] * 3),
        (ipv6(bytes([131, 0, 0, 0, 0, 0, 0, 0]) + GROUP6), [("ff0e::9", True)]),
        (ipv6(bytes([132, 0, 0, 0, 0, 0, 0, 0]) + GROUP6), [("ff0e::9", False)]),
        (ipv6(v3((4, 0), (3, 0), address=GROUP6, kind=143)), [("ff0e::9", True), ("ff0e::9", False)]),
        # A query, a report for no group, one for a host, and other protocols.
        (ipv4(bytes([0x11, 0, 0, 0]) + GROUP), []),
        (ipv4(v3()), []),
        (ipv4(bytes([0x16, 0, 0, 0, 10, 0, 0, 1])), []),
        (ethernet(b"\x45" + bytes(40), 0x0800), []),
        (ethernet(bytes(60), 0x0806), []),
    ],
)
def test_what_hosts_say(frame: bytes, said) -> None:
    found = reports(frame)
    assert [(one.mac, one.group, one.joins) for one in found] == [(MAC, *one) for one in said]


def test_reports_that_others_keep_theirs_back_for() -> None:
    old = (ipv4(bytes([0x16, 0, 0, 0]) + GROUP), ipv6(bytes([131, 0, 0, 0, 0, 0, 0, 0]) + GROUP6))
    new = (ipv4(v3((4, 0))), ipv4(bytes([0x17, 0, 0, 0]) + GROUP), ipv6(v3((4, 0), address=GROUP6, kind=143)))
    assert all(reports(frame)[0].for_all for frame in old)
    assert not any(reports(frame)[0].for_all for frame in new)


def test_tags_and_padding_do_not_matter() -> None:
    plain = ipv4(v3((4, 0)))
    assert reports(plain + bytes(20)) == reports(plain)
    tagged = plain[:12] + b"\x81\0\0\x05" + plain[12:]
    assert reports(tagged) == reports(plain)


def test_a_long_report_is_read_to_a_bound() -> None:
    assert len(reports(ipv4(v3(*[(4, 0)] * 200)))) == MAX_RECORDS


@examples(400)
@given(st.sampled_from([ipv4(v3((2, 1), (3, 0))), ipv6(v3((4, 0), address=GROUP6, kind=143))]), st.data())
def test_spoilt_frames_are_harmless(frame: bytes, data) -> None:
    spoilt = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(spoilt[: data.draw(st.integers(0, len(spoilt)))])
    assert len(reports(cut)) <= MAX_RECORDS
    query_of(cut)


class Sessions:
    """Sessions with membership that take what they are told."""

    def __init__(self, *specs: SessionSpec) -> None:
        self.sessions = {spec.id: SimpleNamespace(spec=spec, hosts=()) for spec in specs}
        self.told: list[tuple[str, str, bool]] = []
        self.full = False

    def member(self, name: str, host: Host, *, joins: bool) -> None:
        if self.full:
            raise ConflictError("no way")
        live = self.sessions[name]
        self.told.append((name, host.name, joins))
        live.hosts = (*live.hosts, host) if joins else tuple(one for one in live.hosts if one.mac != host.mac)
        live.spec = live.spec.with_participant(Participant(host.name)) if joins else live.spec.without(host.name)

    def knows(self, name: str) -> bool:
        return name in self.sessions

    def keep(self) -> None:
        self.kept = True


class Principal:
    """A querier that asks nobody; switches of ``deaf`` nodes hand up nothing."""

    membership_s = 260.0

    def __init__(self) -> None:
        self.deaf: set[str] = set()
        self.frames = 0
        self.asked: tuple[list[tuple[str, str, str]], bool] = ([], False)

    def hears(self, node: str) -> bool:
        return node not in self.deaf

    def heard(self, frame: bytes) -> None:
        self.frames += 1

    def once(self, stations, *, needed: bool) -> None:
        self.asked = list(stations), needed


class Service:
    def __init__(self, *specs: SessionSpec) -> None:
        self.sessions, self.now_s, self.faults, self.principal = Sessions(*specs), 0.0, [], Principal()
        places = {("a", "a-host"): ("a", None), ("b", "b-wifi"): ("b", "wifi")}
        self.service = MembershipService(
            self.sessions,
            lambda *port: places.get(port),
            lambda: self.now_s,
            lambda *fault: self.faults.append(fault),
            self.principal,
        )

    def say(self, *records, at=("a", "a-host")) -> None:
        self.service.heard(*at, ipv4(v3(*records)))

    def settle(self, seconds: float = SETTLE_S) -> list[tuple[str, str, bool]]:
        self.now_s += seconds
        self.service.once()
        return self.sessions.told


def spec(name: str, group: str = "239.1.2.3", *, membership: bool = True) -> SessionSpec:
    return SessionSpec(name, group_address(group), (), None, membership)


def test_only_sessions_that_ask_for_it_are_joined() -> None:
    service = Service(
        spec("yes"), spec("no", membership=False), spec("other", "239.9.9.9"), spec("mac", "01:00:5e:01:02:03")
    )
    service.say((4, 0))
    assert sorted(service.settle()) == [("mac", MAC, True), ("yes", MAC, True)]
    service.say((3, 0))
    assert sorted(service.settle())[::2] == [("mac", MAC, False), ("yes", MAC, False)]


def test_reports_from_where_no_hosts_are_count_for_nothing() -> None:
    service = Service(spec("s"))
    service.say((4, 0), at=("a", "a-net"))
    assert service.settle() == []
    service.say((4, 0), at=("b", "b-wifi"))
    service.settle()
    assert service.sessions.sessions["s"].hosts[0] == Host(MAC, True, "b", MAC, None, "wifi")


def test_who_flaps_is_followed_now_and_then() -> None:
    service = Service(spec("s"))
    for _ in range(100):
        service.say((4, 0))
        service.settle(0.01)
        service.say((3, 0))
        service.settle(0.01)
    assert len(service.sessions.told) <= 2 + 2 / SETTLE_S


def test_repeated_reports_and_the_leave_of_a_stranger_change_nothing() -> None:
    service = Service(spec("s"))
    service.say((3, 0))
    assert service.settle() == []
    service.say((4, 0))
    service.settle()
    service.say((4, 0))
    assert len(service.settle()) == 1


def test_who_cannot_join_is_reported_and_tables_are_bounded() -> None:
    service = Service(spec("s"))
    service.sessions.full = True
    service.say((4, 0))
    service.settle()
    assert service.faults == [("session s", f"{MAC} can't join: no way")]
    for number in range(2 * MAX_WAITING):
        frame = bytearray(ipv4(v3((4, 0))))
        frame[8:12] = number.to_bytes(4, "big")
        service.service.heard("a", "a-host", bytes(frame))
    assert len(service.service._waiting) == MAX_WAITING


OTHER = "02:00:00:00:00:08"


def of(mac: str, frame: bytes) -> bytes:
    """The frame as another host sends it."""
    return frame[:6] + bytes.fromhex(mac.replace(":", "")) + frame[12:]


def test_who_is_not_heard_any_more_goes() -> None:
    service = Service(spec("s"))
    service.say((4, 0))
    service.settle()
    service.settle(200.0)
    service.say((4, 0))
    service.settle()
    service.settle(250.0)
    assert service.sessions.told == [("s", MAC, True)]
    assert service.settle(10.0) == [("s", MAC, True), ("s", MAC, False)]
    assert service.service.to_save() == []


def test_who_was_declared_stays_whatever_it_says() -> None:
    service = Service(spec("s"))
    host = Host(MAC, True, "a", MAC)
    service.sessions.member("s", host, joins=True)
    service.say((4, 0))
    service.settle()
    assert service.settle(1000.0) == [("s", MAC, True)] and service.service.to_save() == []


def test_who_keeps_its_report_back_for_another_stays() -> None:
    service = Service(spec("s"))
    old = ipv4(bytes([0x16, 0, 0, 0]) + GROUP)
    for mac in (MAC, OTHER):
        service.service.heard("a", "a-host", of(mac, old))
    service.settle()
    for _ in range(4):
        service.service.heard("a", "a-host", of(OTHER, old))
        service.settle(125.0)
    assert {mac for _, mac, joins in service.sessions.told if not joins} == set()
    # A host of the new version keeps nothing back: its silence counts.
    service.service.heard("a", "a-host", of(MAC, ipv4(v3((4, 0)))))
    service.settle()
    for _ in range(4):
        service.service.heard("a", "a-host", of(OTHER, old))
        service.settle(125.0)
    assert [mac for _, mac, joins in service.sessions.told if not joins] == [MAC]


def test_nobody_goes_while_his_switch_could_not_have_told() -> None:
    service = Service(spec("s"))
    service.say((4, 0))
    service.settle()
    service.principal.deaf = {"a"}
    for _ in range(10):
        service.settle(100.0)
    service.principal.deaf = set()
    service.settle(250.0)
    assert len(service.sessions.told) == 1
    assert service.settle(20.0)[-1] == ("s", MAC, False)


def test_a_new_controller_asks_before_it_lets_anybody_go() -> None:
    old = Service(spec("s"))
    old.say((4, 0))
    old.settle()
    assert old.sessions.kept
    new = Service(spec("s"))
    new.sessions.member("s", Host(MAC, True, "a", MAC), joins=True)
    new.service.restore([*old.service.to_save(), ["s"], "x", ["s", MAC, "a", 3, False]])
    assert new.service.to_save() == old.service.to_save()
    new.settle(250.0)
    assert len(new.sessions.told) == 1
    assert new.settle(20.0)[-1] == ("s", MAC, False)


def test_hosts_are_asked_while_a_session_follows_them_and_stations_one_by_one() -> None:
    service = Service(spec("s"), spec("no", "239.9.9.9", membership=False))
    service.say((4, 0), at=("b", "b-wifi"))
    service.service.heard("a", "a-host", of(OTHER, ipv4(v3((4, 0)))))
    service.settle()
    assert service.principal.asked == ([("b", "b-wifi", MAC)], True) and service.principal.frames == 2
    service.sessions.sessions.pop("s")
    service.settle()
    assert service.principal.asked[1] is False and service.service.to_save() == []


def test_memberships_end_where_reports_are_not_followed_any_more() -> None:
    service = Service(spec("s"))
    service.say((4, 0))
    service.settle()
    live = service.sessions.sessions["s"]
    live.spec = replace(live.spec, membership=False)
    service.settle()
    assert service.settle(1000.0) == [("s", MAC, True)] and service.service.to_save() == []
