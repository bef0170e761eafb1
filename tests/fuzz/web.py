"""HTTP and what is said over it: heads and bodies of REST, heads of downloads, FlowVisor's events, SFNet."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import h11
from inputs import Script
from targets import target

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from every_resource import Reached, application

from hyroads.controller.download import heads
from hyroads.controller.download.http1 import InputError, parse_url
from hyroads.controller.framework.request_framing import refusal
from hyroads.plugins.sfnet import messages as sfnet
from hyroads.slices.flowvisor import events

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
HEADERS = ("application/json", "text/plain", "application/merge-patch+json", "application/x-www-form-urlencoded")


@target("http-heads", "controller.framework.request_framing", "controller.download.heads", longest=1500)
def http_heads(data: bytes) -> None:
    """A request's head: one that our framing takes has the end and the length that h11 sees, if h11 takes it too."""
    lines = data.splitlines(keepends=True) if b"\r\n" in data else [data]
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data)
    if lines and b"\r\n" in lines:
        end = lines.index(b"\r\n") + 1
        if refusal(lines[0], lines[1:end]) is None:
            _same_length(b"".join(lines[:end]))
    try:
        end = heads.end_of_head(data)
        if end:
            heads.parse_head(data[:end], h11.Connection(h11.SERVER), b"fuzz")
    except heads.RefusedError as error:
        assert 400 <= error.status < 600


def _same_length(head: bytes) -> None:
    machine = h11.Connection(h11.SERVER)
    try:
        machine.receive_data(head)
        event = machine.next_event()
    except h11.RemoteProtocolError:
        return
    if isinstance(event, h11.Request):
        told = [value for name, value in event.headers if name == b"content-length"]
        ours = re.findall(rb"(?i)\ncontent-length:[ \t]*([0-9]+)[ \t]*\r", head)
        assert [int(each) for each in told] == [int(each) for each in ours], head
        assert all(name != b"transfer-encoding" for name, _ in event.headers), head


@target("http-servers", "controller.download", longest=1500)
def http_servers(data: bytes) -> None:
    """What servers of downloads say: redirections, and headers to pass on."""
    script = Script(data)
    base = parse_url("http://192.0.2.1/a?b")
    location = script.bytes().decode("utf-8", "replace")
    for make in (base.joined, parse_url):
        try:
            url = make(location)
        except InputError:
            continue
        assert url.origin.scheme in ("http", "https") and 0 < url.origin.port < 65536
        assert parse_url(str(url)) == url
    pairs = [(script.bytes().lower(), script.bytes()) for _ in range(4)]
    heads.response_headers(pairs, b"fuzz")


_APP = application()
_APP.logger.setLevel(logging.CRITICAL)
_RULES = sorted({rule.rule for rule in _APP.url_map.iter_rules()})


@target("rest-bodies", "rest", "controller.core", longest=1500)
def rest_bodies(data: bytes) -> None:
    """A request to any route: a byte says which, one the method, one the type of the body; then a name in the path, a
    query, the body. Nothing but an error of the client, or a look at what there is.
    """
    script = Script(data)
    rule, method = _RULES[script.byte() % len(_RULES)], METHODS[script.byte() % len(METHODS)]
    kind = HEADERS[script.byte() % len(HEADERS)]
    name, query = (script.bytes().decode("utf-8", "replace") for _ in range(2))
    path = re.sub(r"<[^>]+>", lambda _: name.replace("/", "%2F") or "x", rule)
    try:
        # As a browser that is used here sends it; a path of the test client is split at its question mark.
        answer = _APP.test_client().open(
            path.replace("?", "%3F").replace("#", "%23"), method=method, data=script.data,
            query_string=query, headers={"Content-Type": kind, "Host": "localhost"},
        )  # fmt: skip
    except Reached:
        return
    # 503 says that all places of listeners are taken: those of earlier inputs are, as nobody reads what they get.
    ok = answer.status_code < 500 or answer.status_code == 503
    assert ok, (method, path, answer.status, answer.get_data()[:300])


@target("sfnet-messages", "plugins.sfnet", "slices.flowvisor.events", longest=1200)
def sfnet_messages(data: bytes) -> None:
    """SFNet's datagrams and lines of both ends, and FlowVisor's events."""
    sfnet.discovery_nonce(data.ljust(sfnet.DATAGRAM)[: sfnet.DATAGRAM])
    sfnet.discovered(data, "0" * 32)
    for read in (sfnet.hello, sfnet.request):
        try:
            read(data)
        except sfnet.MessageError:
            continue
    events._of_json(data)
    events._of_xml(data)
