"""AgentX: messages as RFC 2741 draws them, ranges, the steps of a SET. snmpd itself is in the integration tests."""

import contextlib
import struct
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point import agentx
from hyroads.controller.access_point.agentx import AgentXError, Session, message, oid_bytes
from hyroads.controller.access_point.mib import BASE, Value
from hyroads.controller.access_point.wireless_mib import COMMIT_FAILED, INCONSISTENT_VALUE, SetError

TREE = (*BASE, 1, 4)


class Objects:
    """Some numbers, and what was done."""

    def __init__(self, count=5):
        self.values = {(*TREE, n): Value("integer", n) for n in range(1, count + 1)}
        self.done, self.refuse = [], None

    def get(self, oid):
        return self.values.get(oid)

    def following(self, oid):
        order = sorted(self.values)
        at = bisect_right(order, oid)
        return order[at] if at < len(order) else None

    def test(self, bindings):
        self.done.append(("test", bindings))
        if self.refuse == "test":
            raise SetError(INCONSISTENT_VALUE, 2, "no")

    def commit(self):
        self.done.append("commit")
        if self.refuse == "commit":
            raise SetError(COMMIT_FAILED, 0, "no")

    def undo(self):
        self.done.append("undo")

    def cleanup(self):
        self.done.append("cleanup")


def begun(objects):
    session = Session(objects, TREE, "tests")
    opened = session.begin()
    assert opened[:4] == bytes((1, agentx.OPEN, agentx.NETWORK_ORDER, 0))
    register = session.received(message(agentx.RESPONSE, 77, 0, 1, struct.pack(">I2H", 0, 0, 0)))
    assert register[1] == agentx.REGISTER and oid_bytes(TREE) in register
    assert session.received(message(agentx.RESPONSE, 77, 0, 2, struct.pack(">I2H", 0, 0, 0))) == b""
    assert session.registered
    return session


def ranges(*pairs):
    return b"".join(oid_bytes(start, include) + oid_bytes(end) for start, include, end in pairs)


def answer(data):
    """Error, index, and the OIDs with their types of a response."""
    header = agentx.header_of(data[:20])
    reader = agentx._Reader(data[20:], ">")
    _, error, index = reader.take("I2H")
    found = []
    while reader.more:
        kind = struct.unpack_from(">H", reader.data, reader.at)[0]
        oid, value = reader.value()
        found.append((oid, value.value if kind < 128 else kind))
    assert header.kind == agentx.RESPONSE and header.length == len(data) - 20
    return error, index, found


def test_a_value_as_the_rfc_draws_it():
    # RFC 2741, 5.1: 1.3.6.1.2.1.1.1 has the prefix 2; 5.3: strings are filled up to four bytes.
    assert oid_bytes((1, 3, 6, 1, 2, 1, 1, 1)) == bytes.fromhex("03020000 00000001 00000001 00000001")
    assert oid_bytes(()) == bytes(4)
    assert agentx.octet_bytes(b"abcde") == bytes.fromhex("00000005 6162636465000000")


@given(st.lists(st.integers(0, 2**32 - 1), min_size=0, max_size=20), st.booleans(), st.booleans())
def test_object_identifiers_come_back(arcs, internet, include):
    oid = (1, 3, 6, 1, *arcs) if internet else tuple(arcs)
    assert agentx._Reader(oid_bytes(oid, include), ">").oid() == (oid, include)


def test_get_and_the_order_of_a_walk():
    session = begun(Objects(3))
    get = message(agentx.GET, 77, 5, 9, ranges(((*TREE, 2), False, ()), ((*TREE, 9), False, ())))
    assert answer(session.received(get)) == (0, 0, [((*TREE, 2), 2), ((*TREE, 9), agentx.NO_SUCH_INSTANCE)])
    following = message(
        agentx.GET_NEXT, 77, 5, 9,
        ranges(((*TREE, 1), False, ()), ((*TREE, 1), True, ()), ((*TREE, 1), False, (*TREE, 2)), (BASE, False, ())),
    )  # fmt: skip
    end = ((*TREE, 1), agentx.END_OF_VIEW)
    assert answer(session.received(following))[2] == [((*TREE, 2), 2), ((*TREE, 1), 1), end, ((*TREE, 1), 1)]


def test_bulk_is_row_by_row():
    session = begun(Objects(3))
    payload = struct.pack(">2H", 1, 2) + ranges((TREE, False, ()), (TREE, False, ()), ((*TREE, 2), False, ()))
    found = answer(session.received(message(agentx.GET_BULK, 77, 5, 9, payload)))[2]
    first, second, third = ((*TREE, n) for n in (1, 2, 3))
    assert found == [(first, 1), (first, 1), (third, 3), (second, 2), (third, agentx.END_OF_VIEW)]


def test_the_other_order_of_bytes_is_understood():
    session = begun(Objects(1))
    payload = struct.pack("<4B", 0, 0, 0, 0) * 2
    data = struct.pack("<4B4I", 1, agentx.GET, 0, 0, 77, 5, 9, len(payload)) + payload
    assert answer(session.received(data))[2] == [((), agentx.NO_SUCH_INSTANCE)]


def setting(*bindings):
    return b"".join(agentx.binding_bytes(oid, value) for oid, value in bindings)


def test_a_set_goes_through_its_steps():
    objects = Objects()
    session = begun(objects)
    bindings = [
        ((*TREE, 1), Value("integer", -4)),
        ((*TREE, 2), Value("octet", b"abc")),
        ((*TREE, 3), Value("gauge", 7)),
    ]
    assert answer(session.received(message(agentx.TEST_SET, 77, 5, 9, setting(*bindings)))) == (0, 0, [])
    assert answer(session.received(message(agentx.COMMIT_SET, 77, 5, 10)))[0] == 0
    assert session.received(message(agentx.CLEANUP_SET, 77, 5, 11)) == b""
    assert objects.done == [("test", bindings), "commit", "cleanup"]


def test_refusals_carry_error_and_place_and_another_transaction_commits_nothing():
    objects = Objects()
    session = begun(objects)
    objects.refuse = "test"
    one = setting(((*TREE, 1), Value("integer", 4)))
    assert answer(session.received(message(agentx.TEST_SET, 77, 5, 9, one)))[:2] == (INCONSISTENT_VALUE, 2)
    objects.refuse = "commit"
    session.received(message(agentx.TEST_SET, 77, 6, 9, one))
    assert answer(session.received(message(agentx.COMMIT_SET, 77, 7, 10)))[0] == COMMIT_FAILED
    assert "commit" not in objects.done
    assert answer(session.received(message(agentx.COMMIT_SET, 77, 6, 10)))[0] == COMMIT_FAILED
    assert answer(session.received(message(agentx.UNDO_SET, 77, 6, 10)))[0] == 0
    assert objects.done[-2:] == ["commit", "undo"]


@pytest.mark.parametrize(
    "data",
    [
        bytes((2, 5, 16, 0)) + bytes(16),
        message(agentx.CLOSE, 77, 0, 3, bytes(4)),
        message(agentx.GET, 77, 5, 9, bytes((200, 0, 0, 0))),
        struct.pack(">4B4I", 1, agentx.GET, 16, 0, 77, 5, 9, 1 << 24),
        struct.pack(">4B4I", 1, agentx.GET, 16, 0, 77, 5, 9, 3),
        message(agentx.TEST_SET, 77, 5, 9, struct.pack(">HH", 4, 0) + oid_bytes(TREE) + struct.pack(">I", 1 << 30)),
    ],
)
def test_what_makes_no_sense_ends_the_connection(data):
    with pytest.raises(AgentXError):
        begun(Objects()).received(data)


def test_snmpd_that_refuses_us_is_an_error_and_pieces_are_put_together():
    with pytest.raises(AgentXError, match="refuses the session"):
        Session(Objects(), TREE, "tests").received(message(agentx.RESPONSE, 0, 0, 1, struct.pack(">I2H", 0, 257, 0)))
    session = begun(Objects(1))
    data = message(agentx.PING, 77, 5, 9) * 2
    found = b"".join(session.received(data[at : at + 1]) for at in range(len(data)))
    assert len(found) == 2 * (20 + 8)


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data):
    with contextlib.suppress(AgentXError):
        begun(Objects()).received(data)
