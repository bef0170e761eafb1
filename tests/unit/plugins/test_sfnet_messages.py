"""SFNet's messages: what is answered, what is refused; an answer to discovery is never longer than what asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.plugins.sfnet import messages as m

nonces = st.from_regex(r"[A-Za-z0-9]{1,32}", fullmatch=True)


@given(nonces, st.ip_addresses(v=4).map(str), st.integers(1, 65535), st.text(max_size=80))
def test_discovery_there_and_back(nonce, address, port, program):
    asked = m.discovery_request(nonce)
    assert m.discovery_nonce(asked) == nonce
    answer = m.discovery_answer(nonce, address, port, program)
    assert len(answer) <= len(asked)
    assert m.discovered(answer, nonce) == (address, port) and m.discovered(answer, nonce + "0") is None


@given(st.binary(max_size=300))
def test_other_datagrams_are_not_answered(datagram):
    assert m.discovery_nonce(datagram) is None
    assert m.discovered(datagram, "x") is None


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"type": "controller"},
        {"nonce": ""},
        {"nonce": "x" * 33},
        {"nonce": 7},
        {"nonce": "a b"},
        {"nonce": None},
    ],
)
def test_discovery_of_another_kind_is_not_answered(change):
    asked = {"type": "discover", "version": 1, "nonce": "x", **change}
    assert m.discovery_nonce(json.dumps(asked).encode().ljust(m.DATAGRAM)) is None


def test_short_requests_are_not_answered():
    assert m.discovery_nonce(m.discovery_request("x").rstrip()) is None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "JSON object"),
        (b"[1]", "JSON object"),
        (b"{" * 100_000, "JSON object"),
        (b" " * (m.MAX_LINE + 1), "at most"),
        (b'{"id":-1,"method":"GET","path":"/"}', "id"),
        (b'{"id":true,"method":"GET","path":"/"}', "id"),
        (b'{"id":1,"method":"TRACE","path":"/"}', "method"),
        (b'{"id":1,"method":"GET","path":"flows"}', "path"),
        (b'{"id":1,"method":"GET","path":"/flows","headers":{}}', "headers"),
        (b'{"id":1,"method":"GET","path":"/","key":7}', "key"),
        (b'{"id":1,"subscribe":"link"}', "subscribe"),
        (b'{"id":1,"subscribe":[1]}', "subscribe"),
        (b'{"id":1,"subscribe":[],"after":"x"}', "after"),
    ],
)
def test_wrong_lines_say_what_was_expected(line, says):
    with pytest.raises(m.MessageError, match=says):
        m.request(line)


def test_right_lines():
    assert m.request(b'{"id":1,"method":"GET","path":"/flows"}') == m.Request(1, "GET", "/flows", None)
    assert m.request(b'{"id":1,"method":"GET","path":"/","key":"k"}').key == "k"
    assert m.request(b'{"id":2,"subscribe":["link"],"after":7}') == m.Subscribe(2, ("link",), 7)
    assert m.hello(b'{"type":"hello","version":1}') is None
    for wrong in (b"{}", b'{"type":"hello","version":2}', b'{"type":"hello","version":1,"token":1}'):
        with pytest.raises(m.MessageError):
            m.hello(wrong)


def test_kinds():
    assert m.wants((), "link.up") and m.wants(("link",), "link.up") and m.wants(("link.up",), "link.up")
    assert not m.wants(("link",), "linked") and not m.wants(("link.down",), "link.up")
