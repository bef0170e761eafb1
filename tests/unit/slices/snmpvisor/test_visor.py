"""The whole proxy without sockets: a walk through it is the device's, however it reads ahead; SETs end that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snmp_agent import Agent

from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.slices.snmpvisor import pdu as ber
from hyroads.slices.snmpvisor.config import parse
from hyroads.slices.snmpvisor.frontend import Frontend
from hyroads.slices.snmpvisor.pdu import END_OF_VIEW, Binding, Kind, Pdu, Status, parse_v2c, v2c_bytes
from hyroads.slices.snmpvisor.proxy import (
    REFRESH_S,
    REPORTS,
    SET_WITHIN_S,
    TRAPS,
    Audited,
    Out,
    Proxy,
    ToDevice,
    ToManager,
    described,
)
from hyroads.slices.snmpvisor.requests import ADMIN_STATUS, BSS_ENTRY, IF_ENTRY, IF_NAME, PASSPHRASE, SSID, WEIGHT
from hyroads.slices.snmpvisor.usm import message_bytes
from hyroads.slices.snmpvisor.view import name_key

NAMES = {index: f"if{index}" for index in range(1, 41)}
DEVICE = {
    **{(*IF_NAME, index): ber.element(ber.OCTETS, name.encode()) for index, name in NAMES.items()},
    **{(*IF_ENTRY, column, index): ber.of_integer(column) for column in range(1, 11) for index in NAMES},
}
DOCUMENT = {
    "devices": {
        "ap": {
            "address": "127.0.0.1:161",
            "community": "secret",
            "interfaces": {name: {"owner": "even" if index % 2 == 0 else "odd"} for index, name in NAMES.items()},
        }
    },
    "slices": {"even": {"community": "e"}, "odd": {"community": "o"}},
}


class Net:
    """The proxy, a device, and time."""

    def __init__(self, more: dict[ber.Oid, bytes] | None = None) -> None:
        self.now_s = 0.0
        self.audited: list[Audited] = []
        self.proxy = Proxy(Frontend(parse(DOCUMENT, "test.yaml"), b"\x80\0\0\0\x05x", 1, 0.0), self.audited.append)
        self.agent = Agent({**DEVICE, **(more or {})})
        self.carry(self.proxy.tick(0.0))

    def carry(self, out):
        """Datagrams to the device and back, until only those to managers are left."""
        told = []
        while out:
            each = out.pop(0)
            if isinstance(each, ToManager):
                told.append(each.data)
            else:
                assert isinstance(each, ToDevice)
                community, pdu = parse_v2c(each.data)
                assert community == b"secret"
                answer = v2c_bytes(community, self.agent.answer(pdu))
                out += self.proxy.from_device(each.device, answer, self.now_s)
        return told

    def ask(self, pdu: Pdu, community: bytes = b"e@ap") -> Pdu | None:
        told = self.carry(self.proxy.from_manager(v2c_bytes(community, pdu), ("127.0.0.1", 5), self.now_s))
        return parse_v2c(told[0])[1] if told else None


def walk(net: Net, step_s: float = 0.0) -> list[Binding]:
    at, number, found = (1, 3), 0, []
    while True:
        number += 1
        net.now_s += step_s
        answer = net.ask(Pdu(Kind.GET_NEXT, number, (Binding(at),)))
        assert answer is not None and answer.request_id == number
        if answer.bindings[0].value == END_OF_VIEW:
            return found
        found.append(answer.bindings[0])
        at = answer.bindings[0].oid


def test_a_fast_walk_asks_the_device_seldom_and_a_slow_one_each_time() -> None:
    net, slow = Net(), Net()
    assert walk(net) == walk(slow, step_s=1.0)
    rows = 10 * 20 + 20
    assert len(walk(net)) == rows
    assert net.agent.asked < 2 * rows / 4
    assert slow.agent.asked > rows


def test_what_was_read_ahead_is_not_believed_after_a_set() -> None:
    net = Net()
    column = (*IF_ENTRY, ADMIN_STATUS)
    for number, index in enumerate((1, 2), 1):
        net.ask(Pdu(Kind.GET_NEXT, number, (Binding((*column, index)),)))
    variable = (*column, 6)
    done = net.ask(Pdu(Kind.SET, 9, (Binding(variable, ber.of_integer(2)),)))
    assert done is not None and done.status == 0
    read = net.ask(Pdu(Kind.GET_NEXT, 10, (Binding((*column, 4)),)))
    assert read is not None and read.bindings == (Binding(variable, ber.of_integer(2)),)
    assert [(each.slice_name, each.result) for each in net.audited] == [("even", "done")]


def test_one_slice_never_gets_what_was_read_for_another() -> None:
    net = Net()
    found = {each.oid for each in walk(net)}
    first = net.ask(Pdu(Kind.GET_NEXT, 1, (Binding((1, 3)),)), b"o@ap")
    assert first is not None and first.bindings[0].oid not in found


def test_a_request_that_is_repeated_while_it_is_under_way_is_not_carried_out_twice() -> None:
    net = Net()
    data = v2c_bytes(b"e@ap", Pdu(Kind.SET, 9, (Binding((*IF_ENTRY, ADMIN_STATUS, 6), ber.of_integer(2)),)))
    first = net.proxy.from_manager(data, ("127.0.0.1", 5), 0.0)
    assert len(first) == 1 and net.proxy.from_manager(data, ("127.0.0.1", 5), 0.1) == []
    assert len(net.carry(first)) == 1


def test_a_device_that_is_silent_is_asked_again_but_never_for_a_set() -> None:
    net = Net()
    get = net.proxy.from_manager(v2c_bytes(b"e@ap", Pdu(Kind.GET, 1, (Binding((*IF_ENTRY, 1, 2)),))), 1, 1.0)
    put = net.proxy.from_manager(
        v2c_bytes(b"e@ap", Pdu(Kind.SET, 2, (Binding((*IF_ENTRY, ADMIN_STATUS, 2), ber.of_integer(1)),))), 1, 1.0
    )
    assert [type(each) for each in (*get, *put)] == [ToDevice, ToDevice]
    again = [parse_v2c(each.data)[1].kind for each in net.proxy.tick(2.0)]
    assert again == [Kind.GET]
    # A radio that starts anew takes longer than a read.
    assert net.proxy.tick(3.0) == [] and not net.audited
    net.proxy.tick(1.1 + SET_WITHIN_S)
    assert net.audited[-1].result == "no answer"


def network(name: str, owner: str) -> dict[ber.Oid, bytes]:
    """Rows of a network as an access point has them."""
    texts = {2: "if40", 3: f"{owner}'s", 5: "", 7: owner}
    values = {column: ber.element(ber.OCTETS, text.encode()) for column, text in texts.items()}
    return {(*BSS_ENTRY, column, *name_key(name)): value for column, value in values.items()}


def test_whose_a_network_is_says_the_device() -> None:
    net = Net({**network("if40-e", "even"), **network("if40-odd", "odd"), **network("if40", "")})
    found = {each.oid: each.value for each in walk(net) if each.oid[: len(BSS_ENTRY)] == BSS_ENTRY}
    assert found == {**network("if40-e", "even"), **network("if40", "")}, "its own, and that of its own radio"

    def put(number: int, column: int, name: str, value: bytes, community: bytes = b"e@ap") -> int:
        answer = net.ask(Pdu(Kind.SET, number, (Binding((*BSS_ENTRY, column, *name_key(name)), value),)), community)
        assert answer is not None
        return answer.status

    text = ber.element(ber.OCTETS, b"a passphrase")
    assert put(1, SSID, "if40-e", text) == 0
    assert put(2, PASSPHRASE, "if40-e", text) == 0
    assert put(3, SSID, "if40-odd", text) == Status.NO_ACCESS
    assert put(4, 7, "if40-e", text) == Status.NOT_WRITABLE, "whose it is"
    # How much airtime a network gets is decided as its radio's parameters are: the owner of if40 is even.
    weight = ber.of_integer(9, 0x42)
    assert put(5, WEIGHT, "if40-e", weight) == 0
    assert put(6, WEIGHT, "if40-odd", weight, b"o@ap") == Status.NOT_WRITABLE
    shown = json.dumps([described(each) for each in net.audited])
    assert b"a passphrase".hex() in shown, "an SSID is no secret"
    assert json.loads(shown)[1]["set"].popitem()[1] == "secret"
    # One that goes to another slice is the other's, once the device was looked at again.
    net.agent.variables |= network("if40-e", "odd")
    net.now_s += REFRESH_S + 0.1
    net.carry(net.proxy.tick(net.now_s))
    left = {each.oid for each in walk(net) if each.oid[: len(BSS_ENTRY)] == BSS_ENTRY}
    assert left == set(network("if40", ""))


def test_metrics_are_for_loopback_alone():
    assert parse({**DOCUMENT, "metrics": "127.0.0.1:9116"}, "test.yaml").metrics == Endpoint("127.0.0.1", 9116)
    with pytest.raises(ConfigError, match="expected loopback, for whoever reads there needs no token"):
        parse({**DOCUMENT, "metrics": "192.0.2.1:9116"}, "test.yaml")


def test_what_became_of_requests_is_counted_by_slice_and_device():
    net = Net()
    net.now_s = 5.0
    assert net.ask(Pdu(Kind.GET, 1, (Binding((*IF_NAME, 2)),))) is not None
    assert net.ask(Pdu(Kind.SET, 2, (Binding((*IF_NAME, 2), ber.of_integer(1)),))).status
    assert net.ask(Pdu(Kind.GET, 3, (Binding((*IF_NAME, 2)),)), b"nobody@ap") is None
    served = net.proxy.served["even", "ap"]
    assert (served.requests, served.refusals, served.unanswered) == (2, 1, 0)
    assert set(net.proxy.served) == {("even", "ap")} and net.proxy.unidentified == 1
    assert net.proxy.targets() == [("ap", 5.0, True)]


# A visor behind a visor


def document(owners: Mapping[str, Mapping[str, str]], community: str, context: bool) -> dict[str, Any]:
    """Devices with the owners of their interfaces, and a slice for each owner, whose community is its name."""
    devices = {
        name: {
            "address": "127.0.0.1:161",
            "community": community,
            "interfaces": {interface: {"owner": owner} for interface, owner in owned.items()},
            **({"context": name} if context else {}),
        }
        for name, owned in owners.items()
    }
    slices = {owner for owned in owners.values() for owner in owned.values()}
    return {"devices": devices, "slices": {each: {"community": each, "traps": "127.0.0.1:9"} for each in slices}}


class Chain:
    """A visor (``far``) in front of devices, and that of the owner of slice ``even`` behind it (``near``)."""

    def __init__(self, far: Mapping[str, Mapping[str, str]], near: Mapping[str, Mapping[str, str]]) -> None:
        self.agents = {name: Agent(DEVICE) for name in far}
        self.far, self.near = (
            Proxy(Frontend(parse(each, "test.yaml"), b"\x80\0\0\0\x05x", 1, 0.0))
            for each in (document(far, "secret", False), document(near, "even", True))
        )
        self.answers(self.far, self.far.tick(0.0))
        self.answers(self.near, self.near.tick(0.0))

    def answers(self, proxy: Proxy, out: list[Out]) -> list[bytes]:
        """Datagrams to devices and back, until only those to managers are left."""
        told = []
        while out:
            each = out.pop(0)
            if isinstance(each, ToManager):
                told.append(each.data)
            elif proxy is self.near:
                for data in self.answers(self.far, self.far.from_manager(each.data, ("near", 1), 0.0)):
                    out += proxy.from_device(each.device, data, 0.0)
            else:
                community, pdu = parse_v2c(each.data)
                out += proxy.from_device(each.device, v2c_bytes(community, self.agents[each.device].answer(pdu)), 0.0)
        return told

    def ask(self, pdu: Pdu, community: str) -> Pdu | None:
        data = v2c_bytes(community.encode(), pdu)
        told = self.answers(self.near, self.near.from_manager(data, ("manager", 1), 0.0))
        return parse_v2c(told[0])[1] if told else None

    def set(self, index: int, community: str) -> int | None:
        variable = Binding((*IF_ENTRY, ADMIN_STATUS, index), ber.of_integer(2))
        done = self.ask(Pdu(Kind.SET, 9, (variable,)), community)
        return done.status if done is not None else None


OWNERS = st.dictionaries(st.sampled_from(list(NAMES.values())[:6]), st.sampled_from(["even", "odd"]))
GIVEN = st.dictionaries(st.sampled_from(list(NAMES.values())[:6]), st.sampled_from(["one", "other"]))


@given(OWNERS, OWNERS, GIVEN, GIVEN)
def test_who_passes_on_a_part_of_a_view_passes_on_no_more(
    ap1: dict[str, str], ap2: dict[str, str], given1: dict[str, str], given2: dict[str, str]
) -> None:
    chain = Chain({"ap1": ap1, "ap2": ap2}, {"ap1": given1, "ap2": given2})
    for device, owned, passed_on in (("ap1", ap1, given1), ("ap2", ap2, given2)):
        for name in {*given1.values(), *given2.values()}:
            theirs = {each for each, to in passed_on.items() if to == name and owned.get(each) == "even"}
            for index, interface in list(NAMES.items())[:6]:
                before = dict(chain.agents[device].variables)
                assert (chain.set(index, f"{name}@{device}") == 0) is (interface in theirs)
                assert (chain.agents[device].variables != before) is (interface in theirs)
                chain.agents[device].variables.update(before)


def test_traps_of_devices_behind_one_address_are_told_apart() -> None:
    both = {"ap1": {"if2": "even"}, "ap2": {"if4": "even"}}
    chain = Chain(both, {"ap1": {"if2": "one"}, "ap2": {"if4": "other"}})
    for index, to in ((2, b"one@ap1"), (4, b"other@ap2")):
        row = Binding((*IF_ENTRY, ADMIN_STATUS, index), ber.of_integer(2))
        pdu = Pdu(Kind.TRAP, 1, (Binding((1, 3), ber.of_integer(0)), Binding((1, 4), ber.of_integer(0)), row))
        name = to.partition(b"@")[2]
        [told] = chain.near.from_trap(v2c_bytes(b"even@" + name, pdu), "127.0.0.1", 0.0)
        assert isinstance(told, ToManager) and parse_v2c(told.data)[0] == to
    assert chain.near.from_trap(v2c_bytes(b"even@ap3", pdu), "127.0.0.1", 0.0) == []
    assert chain.near.from_trap(v2c_bytes(b"even", pdu), "127.0.0.1", 0.0) == []


def test_unproved_address_gets_reports_at_a_bounded_rate_of_its_own() -> None:
    net = Net()
    unit = Pdu(Kind.GET, 1, ())
    asked = message_bytes(unit, message_id=1, engine=b"", boots=0, time_s=0, user=None, reportable=True)

    def reports(address: str, port: int, at_s: float) -> int:
        return len(net.proxy.from_manager(asked, (address, port), at_s))

    # Another port of an address, or another address of an IPv6 subscriber, has no more of them.
    sent = sum(reports("192.0.2.9", port, 1.0 + port / 1000) for port in range(1000))
    assert sent == pytest.approx(REPORTS.burst + REPORTS.per_s, abs=2)
    assert reports("192.0.2.10", 1, 2.0) == 1
    assert sum(reports(f"2001:db8::{host:x}", 1, 3.0) for host in range(200)) == REPORTS.burst
    # A manager with a community is served meanwhile.
    net.now_s = 2.0
    assert net.ask(Pdu(Kind.GET, 1, (Binding((*IF_ENTRY, 1, 2)),)))


def test_traps_of_one_device_are_bounded_apart_from_those_of_other_devices() -> None:
    chain = Chain({"ap1": {"if2": "even"}, "ap2": {"if4": "even"}}, {"ap1": {"if2": "one"}, "ap2": {"if4": "other"}})

    def trap(index: int, device: bytes) -> int:
        row = Binding((*IF_ENTRY, ADMIN_STATUS, index), ber.of_integer(2))
        pdu = Pdu(Kind.TRAP, 1, (Binding((1, 3), ber.of_integer(0)), Binding((1, 4), ber.of_integer(0)), row))
        return len(chain.near.from_trap(v2c_bytes(b"even@" + device, pdu), "127.0.0.1", 0.0))

    assert sum(trap(2, b"ap1") for _ in range(1000)) == TRAPS.burst
    assert trap(4, b"ap2") == 1


@pytest.mark.parametrize("context", ["a b", "@ap", "x" * 33, 7])
def test_a_context_is_the_name_of_a_device(context: object) -> None:
    wrong = document({"ap": {"if2": "even"}}, "secret", False)
    wrong["devices"]["ap"]["context"] = context
    with pytest.raises(ConfigError, match=r"devices\.ap\.context"):
        parse(wrong, "test.yaml")
