"""JSON from outside: what is taken can be worked with, what can't is refused, wherever it comes in."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point import config
from hyroads.controller.agents.protocol import ProtocolError, parse_line
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.strict_json import JsonError, parse
from hyroads.controller.measure import samples, targets
from hyroads.plugins.sfnet import messages
from hyroads.slices.core import slicefile

DIGITS = b"9" * 4301
# Each is a value where a value may be; Python's own reader takes most of them, or fails in ways of its own.
HOSTILE = [
    DIGITS, b"-" + DIGITS, b"9" * 4000, b"9" * 301, b"1e999", b"-1e999", b"9" * 400 + b".0", b"NaN", b"Infinity",
    b'"\\ud800"', b'"x\\uDFFFy"', b'{"\\udc00": 1}', b'["\\uD83D", "\\uDE00"]', b'"\xed\xa0\x80"', b'"\xff"',
    b'"\xc0\x80"', b"[" * 100_000, b'"a\nb"', b"", b"nul", b"\xef\xbb\xbf1",
    '"x"'.encode("utf-16"), '"x"'.encode("utf-32"),
]  # fmt: skip


def shown(text: bytes) -> str:
    return f"{text[:12]!r}{len(text)}"


@pytest.mark.parametrize("text", HOSTILE, ids=shown)
def test_refused(text: bytes) -> None:
    with pytest.raises(JsonError) as refused:
        parse(text)
    assert len(str(refused.value)) < 200 and str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**299) + 1, 10**300 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(VALUES, st.booleans())
def test_everything_else_is_taken_as_it_is(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse(text) == value == parse(text.decode()) == parse(text, pairs=dict)


@given(st.text(st.characters(), max_size=8) | st.text([chr(0xD83D), chr(0xDE00), "a", "\\"], max_size=6))
def test_whatever_is_taken_can_be_written(text: str) -> None:
    """Whole pairs of surrogates are characters; halves are none."""
    written = json.dumps([text])
    try:
        read = parse(written)
    except JsonError:
        assert any(0xD800 <= ord(character) <= 0xDFFF for character in text)
    else:
        assert read[0].encode("utf-8").decode("utf-8") == read[0] == json.loads(written)[0]


@given(st.binary(max_size=40) | st.binary(max_size=12).map(lambda inner: b'{"a": "' + inner + b'"}'))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        value = parse(data)
    except JsonError:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


# -- wherever it comes in (REST: tests/unit/rest/test_every_route.py)


@pytest.mark.parametrize("text", HOSTILE, ids=shown)
def test_at_the_agents_port(text: bytes) -> None:
    """The token is compared before anything else is known of who sends it."""
    hello = b'{"type":"hello","version":1,"node":"a","program":"x","boot":"b","revision":0,"token":%b}'
    parse_line(hello % b'"secret"')
    for line in (text, hello % text, b'{"type":"ok","seq":1,"from":%b}' % text, b'{"type":"station","mac":%b}' % text):
        with pytest.raises(ProtocolError):
            parse_line(line)


@pytest.mark.parametrize("text", HOSTILE, ids=shown)
def test_in_sfnet(text: bytes) -> None:
    with pytest.raises(messages.MessageError):
        messages.hello(b'{"type":"hello","version":1,"token":%b}' % text)
    with pytest.raises(messages.MessageError):
        messages.request(b'{"id":1,"subscribe":[],"after":%b}' % text)
    with pytest.raises(messages.MessageError):
        messages.request(b'{"id":1,"method":"POST","path":"/flows","body":%b}' % text)
    assert messages.discovery_nonce(text.ljust(messages.DATAGRAM)[: messages.DATAGRAM]) is None


@pytest.mark.parametrize("text", [text for text in HOSTILE if text and b"\n" not in text], ids=shown)
def test_in_files(text: bytes) -> None:
    """Those of networks, slices, access points and SNMP targets; in YAML a word without quotes is text."""
    characters = text.decode("utf-8", "surrogateescape")
    for name in ("n.json", "n.yaml")[: 1 if text.isalpha() else 2]:
        try:
            slicefile.load_text('{"slices": [{"name": "a", "ssids": [{"name": ' + characters + "}]}]}", name)
        except ConfigError:
            continue
        raise AssertionError(name)
    with pytest.raises(ConfigError):
        config.parse('{"node": ' + characters + "}", "n")
    with pytest.raises(ConfigError):
        targets.parse('{"targets": [], "interval_s": ' + characters + "}")
    with pytest.raises(samples.SampleError):
        samples.from_line(b'{"type": "silence", "node": "a", "time_s": %b}' % text)
