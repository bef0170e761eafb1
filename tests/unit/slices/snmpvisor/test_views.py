"""What a slice gets is what a device with only its variables would answer: compared with exactly that."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snmp_agent import Agent

from hyroads.slices.snmpvisor import pdu as ber
from hyroads.slices.snmpvisor.pdu import END_OF_VIEW, Binding, Kind, Pdu, SnmpError, Status, parse_v2c, v2c_bytes
from hyroads.slices.snmpvisor.requests import Scope, serve
from hyroads.slices.snmpvisor.view import Access, Arbiter, Subtree, View, Wish, name_key

TABLE = Subtree((1, 3, 2, 1), frozenset({7}))
PLAIN = Subtree((1, 3, 1))
SECOND = Subtree((1, 3, 4, 1), frozenset())
NAMED = Subtree((1, 3, 5, 1), frozenset({7}), by_name=True, shared=frozenset({3}))

oids = st.one_of(
    st.builds(lambda *t: (1, 3, 1, *t), st.integers(0, 3), st.integers(0, 2)),
    st.builds(
        lambda tree, column, index, rest: (*tree, column, index, *rest),
        st.sampled_from([(1, 3, 2, 1), (1, 3, 4, 1)]),
        st.integers(1, 8),
        st.integers(0, 9),
        st.lists(st.integers(0, 3), max_size=2),
    ),
    st.builds(
        lambda column, name, rest: (1, 3, 5, 1, column, *name_key(name), *rest),
        st.integers(1, 8),
        st.text("ab", min_size=1, max_size=3),
        st.lists(st.integers(0, 1), max_size=1),
    ),
    st.builds(lambda *t: (1, 3, *t), st.integers(0, 6), st.integers(0, 4), st.integers(0, 4)),
)
devices = st.lists(oids, unique=True, max_size=60).map(
    lambda found: {oid: ber.of_integer(n) for n, oid in enumerate(found)}
)
rows = st.dictionaries(
    st.integers(0, 9) | st.text("ab", min_size=1, max_size=3), st.sampled_from(list(Access)), max_size=8
)


def asked(scope: Scope, agent: Agent, pdu: Pdu) -> Pdu:
    exchange = serve(scope, pdu)
    try:
        wanted = next(exchange)
        while True:
            wanted = exchange.send(agent.answer(wanted))
    except StopIteration as end:
        return end.value


def seen_alone(scope: Scope, variables: dict[ber.Oid, bytes]) -> Agent:
    return Agent({oid: value for oid, value in variables.items() if scope.view.access(oid)})


def scope_of(access: dict[int | str, Access]) -> Scope:
    by_number = {row: each for row, each in access.items() if isinstance(row, int)}
    by_name = {row: each for row, each in access.items() if isinstance(row, str)}
    return Scope(View([TABLE, PLAIN, SECOND, NAMED], by_number, by_name))


@given(devices, rows)
def test_a_walk_is_that_of_a_device_of_ones_own(
    variables: dict[ber.Oid, bytes], access: dict[int | str, Access]
) -> None:
    scope, agent = scope_of(access), Agent(variables)
    alone = seen_alone(scope, variables)
    at: ber.Oid = (1, 3)
    found = []
    while True:
        (binding,) = asked(scope, agent, Pdu(Kind.GET_NEXT, 1, (Binding(at),))).bindings
        if binding.value == END_OF_VIEW:
            break
        found.append(binding.oid)
        at = binding.oid
    assert found == alone.order


@given(devices, rows, st.lists(oids, min_size=1, max_size=4), st.integers(0, 2), st.integers(0, 40))
def test_every_answer_is_that_of_a_device_of_ones_own(
    variables: dict[ber.Oid, bytes], access: dict[int | str, Access], names: list[ber.Oid], once: int, most: int
) -> None:
    scope, agent = scope_of(access), Agent(variables)
    alone = seen_alone(scope, variables)
    bindings = tuple(Binding(oid) for oid in names)
    for kind in (Kind.GET, Kind.GET_NEXT):
        assert asked(scope, agent, Pdu(kind, 5, bindings)) == alone.answer(Pdu(kind, 5, bindings))
    bulk = asked(scope, agent, Pdu(Kind.GET_BULK, 5, bindings, once, most))
    single = alone.answer(Pdu(Kind.GET_NEXT, 5, bindings[:once])).bindings
    rest = bindings[once:]
    repeated = alone.answer(Pdu(Kind.GET_BULK, 5, rest, 0, most)).bindings if rest else ()
    # It may end early, after whole rows, once nothing but ends of the view would follow.
    assert (*single, *repeated)[: len(bulk.bindings)] == bulk.bindings
    left = (*single, *repeated)[len(bulk.bindings) :]
    assert all(each.value == END_OF_VIEW for each in left)


@given(devices, rows, st.lists(oids, min_size=1, max_size=3))
def test_a_set_is_whole_or_nothing(
    variables: dict[ber.Oid, bytes], access: dict[int | str, Access], names: list[ber.Oid]
) -> None:
    scope, agent = scope_of(access), Agent(variables)
    answer = asked(scope, agent, Pdu(Kind.SET, 5, tuple(Binding(oid, ber.of_integer(99)) for oid in names)))
    first = next((n for n, oid in enumerate(names, 1) if scope.view.access(oid) is not Access.WRITE), 0)
    if not first:
        assert answer.status == 0 and all(agent.variables[oid] == ber.of_integer(99) for oid in names)
        return
    assert agent.variables == variables and answer.index == first
    hidden = scope.view.access(names[first - 1]) is Access.NONE
    assert answer.status == (Status.NO_ACCESS if hidden else Status.NOT_WRITABLE)


def test_a_walk_behind_many_rows_of_others_takes_few_requests() -> None:
    variables = {(1, 3, 2, 1, column, index): b"\x05\x00" for column in range(1, 9) for index in range(1, 200)}
    scope, agent = scope_of({100: Access.READ}), Agent(variables)
    at, count = (1, 3), 0
    while (found := asked(scope, agent, Pdu(Kind.GET_NEXT, 1, (Binding(at),))).bindings[0]).value != END_OF_VIEW:
        at, count = found.oid, count + 1
    assert count == 8 and agent.asked <= 3 * count + 4


def test_a_device_that_goes_in_circles_is_found_out() -> None:
    class Liar(Agent):
        def next(self, oid: ber.Oid) -> Binding:
            return Binding((1, 3, 0, 1), b"\x05\x00")

    for kind in (Kind.GET_NEXT, Kind.GET_BULK):
        with pytest.raises(SnmpError, match="not in order"):
            asked(scope_of({1: Access.READ}), Liar({}), Pdu(kind, 1, (Binding((1, 3, 2)),), 0, 5))


def test_a_majority_decides_and_wishes_are_forgotten() -> None:
    arbiter, sharers = Arbiter("majority"), frozenset({"a", "b", "c"})

    def ask(name: str, value: bytes, now_s: float) -> Status | None:
        return arbiter.ask(Wish(name, "ap", (1, 3, 5), value), sharers, now_s)

    assert ask("a", b"11", 0) is Status.INCONSISTENT_VALUE
    assert ask("b", b"6", 1) is Status.INCONSISTENT_VALUE
    assert ask("b", b"11", 2) is None
    assert ask("c", b"6", 1000) is Status.INCONSISTENT_VALUE
    assert ask("a", b"6", 1001) is None
    assert Arbiter("owner").ask(Wish("a", "ap", (1, 3), b""), sharers, 0) is Status.NOT_WRITABLE


arcs = st.lists(st.integers(0, 2**32 - 1), max_size=20)
bindings_ = st.lists(
    st.builds(
        Binding,
        st.builds(lambda a, rest: (1, a, *rest), st.integers(0, 39), arcs),
        st.binary(max_size=300).map(lambda v: ber.element(4, v)),
    ),
    max_size=6,
).map(tuple)


@given(
    st.binary(max_size=40),
    st.builds(
        Pdu, st.sampled_from(Kind), st.integers(-(2**31), 2**31 - 1), bindings_, st.integers(0, 18), st.integers(0, 99)
    ),
)
def test_messages_are_read_as_they_are_written(community: bytes, pdu: Pdu) -> None:
    assert parse_v2c(v2c_bytes(community, pdu)) == (community, pdu)


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(SnmpError):
        parse_v2c(b"\x30\x82" + data)


@given(bindings_, st.data())
def test_a_damaged_message_is_read_or_refused(bindings: tuple[Binding, ...], data: st.DataObject) -> None:
    raw = bytearray(v2c_bytes(b"public", Pdu(Kind.GET, 7, bindings)))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    with suppress(SnmpError):
        parse_v2c(bytes(raw))
