"""Events as FlowVisor 1.4 posts them: they arrive, and nothing else is taken for one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import xmlrpc.client
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from fake_flowvisor import PASSWORD, FakeFlowVisor
from fake_flowvisor_https import certificate, fingerprint, served
from hypothesis import given
from hypothesis import strategies as st

from hyroads.slices.flowvisor import events as module
from hyroads.slices.flowvisor.client import Access, Client
from hyroads.slices.flowvisor.entries import FlowVisorError
from hyroads.slices.flowvisor.events import KINDS, Event, Events

SWITCH = "00:00:00:00:00:00:00:01"
SLICE = {"slice-name": "web", "controller-host": "127.0.0.1", "controller-port": 6700, "connection-status": True}


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def fake() -> FakeFlowVisor:
    return FakeFlowVisor(topology_control=True)


@pytest.fixture
def client(fake: FakeFlowVisor, pem: Path) -> Iterator[Client]:
    with served(fake, pem) as url:
        client = Client(Access(url, "fvadmin", PASSWORD, str(pem)))
        yield client
        client.close()


@pytest.fixture
def seen() -> list[Event]:
    return []


@pytest.fixture
def events(seen: list[Event]) -> Iterator[Events]:
    events = Events(seen.append)
    thread = threading.Thread(target=events.serve)
    thread.start()
    yield events
    events.close()
    thread.join()


def posted(url: str, body: bytes, **headers: str) -> int:
    """The HTTP status of the answer."""
    try:
        with urlopen(Request(url, body, headers), timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_each_kind_arrives_as_flowvisor_posts_it(
    fake: FakeFlowVisor, client: Client, events: Events, seen: list[Event]
) -> None:
    events.register(client)
    assert [each["event-type"] for each in fake.callbacks] == list(KINDS)
    assert fake.happen("DEVICE_CONNECTED", SWITCH) == [200]
    assert fake.happen("SLICE_CONNECTED", SLICE) == [200]
    assert fake.happen("SLICE_DISCONNECTED", {**SLICE, "connection-status": False}) == [200]
    assert fake.happen("GENERAL") == [200]
    assert seen == [
        Event("DEVICE_CONNECTED", SWITCH),
        Event("SLICE_CONNECTED", SLICE),
        Event("SLICE_DISCONNECTED", {**SLICE, "connection-status": False}),
        Event("GENERAL"),
    ]


def test_the_answer_to_xml_is_xml(client: Client, fake: FakeFlowVisor, events: Events) -> None:
    events.register(client)
    with xmlrpc.client.ServerProxy(fake.callbacks[0]["url"], allow_none=True) as proxy:
        assert proxy.GENERAL(None) is True


def test_unregistering_is_no_failure_though_flowvisor_fails(
    fake: FakeFlowVisor, client: Client, events: Events, seen: list[Event]
) -> None:
    events.register(client)
    events.unregister(client)
    assert len(fake.callbacks) == 4, "it goes on posting"
    fake.topology_control = False
    events.unregister(client)
    fake.crash_on = set()
    fake.password = "another"
    with pytest.raises(FlowVisorError, match="password is wrong"):
        events.unregister(client)


def test_without_topology_control_it_says_what_to_switch_on(
    fake: FakeFlowVisor, client: Client, events: Events
) -> None:
    fake.topology_control = False
    client.call("set-config", {"enable-topo-ctrl": True})
    with pytest.raises(FlowVisorError, match=r"fvctl set-config --enable-topo-ctrl\) and restart FlowVisor"):
        events.register(client)


def test_who_does_not_know_the_path_is_refused(
    fake: FakeFlowVisor, client: Client, events: Events, seen: list[Event]
) -> None:
    events.register(client)
    url = fake.callbacks[0]["url"]
    secret = urlsplit(url).path[1:]
    assert len(secret) == 32 and secret not in events.address and secret not in repr(events)
    right = b'{"method": "DEVICE_CONNECTED", "params": ["x"]}'
    for path in ("", secret[:-1], secret + "0", secret + "/", "\u00e9".encode().decode("latin-1"), "GENERAL"):
        head = f"POST /{path} HTTP/1.0\r\nContent-Length: {len(right)}\r\n\r\n".encode("latin-1")
        with socket.create_connection(tuple(urlsplit(url).netloc.split(":")), timeout=5) as connection:  # type: ignore[arg-type]
            connection.sendall(head + right)
            assert b" 403 " in connection.recv(100)
    assert seen == []
    assert posted(url, right) == 200 and seen == [Event("DEVICE_CONNECTED", "x")]


ENTITIES = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<methodCall><methodName>GENERAL</methodName>"
    "<params><param><value><string>&b;</string></value></param></params></methodCall>"
)
ODD = (
    b"", b"[", b"[]", b"{}", b'{"method": "GENERAL"}', b'{"method": "GENERAL", "params": {}}', b"\xff",
    b'{"method": "other", "params": []}', b'{"method": ["GENERAL"], "params": []}', b"<", b"<a/>",
    b"<methodCall><methodName>other</methodName></methodCall>", b"<methodCall></methodCall>",
    b"<methodResponse><params/></methodResponse>", ENTITIES.encode(), ENTITIES.encode("utf-16"),
    b"<methodCall><methodName>GENERAL</methodName><params><param><value><int>x</int></value></param></params></methodCall>",
    b"<methodCall><methodName>GENERAL</methodName><params><param><value><base64>x</base64></value></param></params>"
    b"</methodCall>",
    b"<methodCall>" + b"<value><array><data>" * 3000,
)  # fmt: skip


@pytest.mark.parametrize("body", ODD)
def test_what_is_no_event_is_refused(body: bytes, seen: list[Event]) -> None:
    events = Events(seen.append)
    assert events.take(body) is None and seen == []
    events._server.server_close()


def pieces() -> st.SearchStrategy[bytes]:
    """Bodies near to those that are taken."""
    words = st.sampled_from(
        [
            *("<methodCall>", "</methodCall>", "<methodName>", "</methodName>", "GENERAL", "<params>", "<param>"),
            *("<value>", "</value>", "<int>", "</int>", "9" * 5000, "<double>", "<struct>", "<member>", "</member>"),
            *("<name>", "</name>", "<fault>", "</fault>", "</params>", "<dateTime.iso8601>", "<ex:nil/>", "</struct>"),
            *("<array>", "<data>", "</data>", "</array>", "<boolean>", "</boolean>", "&#0;", "1e999", "</param>"),
        ]
    )
    return st.lists(words, max_size=30).map(lambda parts: ("<" + "".join(parts)[1:]).encode())


@given(st.one_of(pieces(), st.binary(max_size=200), st.builds(lambda text: b"<" + text, st.binary(max_size=200))))
def test_no_body_fails_inside(body: bytes) -> None:
    for reader in (module._of_xml, module._of_json):
        found = reader(body)
        assert found is None or found.kind in KINDS


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections have little time."""
    monkeypatch.setattr(module, "LIMITS", replace(module.LIMITS, within_s=0.2))


def test_slow_and_many_strangers_keep_no_event_away(
    fake: FakeFlowVisor, client: Client, short: None, events: Events, seen: list[Event]
) -> None:
    events.register(client)
    host, port = events.address.split(":")
    most = module.LIMITS.strangers + 20
    strangers = [socket.create_connection((host, int(port)), timeout=5) for _ in range(most)]
    for each in strangers:
        with suppress(OSError):
            each.sendall(b"POST / HTTP/1.1\r\nX: ")
    assert fake.happen("DEVICE_CONNECTED", SWITCH) == [200]
    for each in strangers:
        with suppress(ConnectionError):
            assert each.recv(100) == b"", "it is ended, though its request has not come to an end"
        each.close()
    assert seen == [Event("DEVICE_CONNECTED", SWITCH)]


def test_an_address_that_nobody_reaches_is_refused() -> None:
    with pytest.raises(FlowVisorError, match=r"expected an address that FlowVisor reaches, got 0\.0\.0\.0"):
        Events(print, host="0.0.0.0")
    with pytest.raises(FlowVisorError, match=r"can't listen on 192\.0\.2\.1:0"):
        Events(print, host="192.0.2.1")


def watching(url: str, pem: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "import sys; from hyroads.controller.cli.main import main; sys.exit(main())"]
    reach = ["flowvisor", "watch", "--url", url, "--fingerprint", fingerprint(pem), "--json"]
    environment = {**os.environ, "HYROADS_FLOWVISOR_PASSWORD": PASSWORD}
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *reach], stdout=pipe, stderr=pipe, text=True, env=environment)


def test_the_command_prints_events_until_it_is_interrupted(fake: FakeFlowVisor, pem: Path) -> None:
    with served(fake, pem) as url:
        process = watching(url, pem)
        try:
            assert process.stdout is not None and process.stderr is not None
            first = process.stderr.readline()
            assert first.startswith("waiting for events at 127.0.0.1:")
            assert urlsplit(fake.callbacks[0]["url"]).path[1:] not in first
            fake.happen("DEVICE_CONNECTED", SWITCH)
            assert process.stdout.readline() == f'{{"kind": "DEVICE_CONNECTED", "about": "{SWITCH}"}}\n'
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
            process.communicate()


def test_the_command_ends_with_what_to_switch_on(fake: FakeFlowVisor, pem: Path) -> None:
    fake.topology_control = False
    with served(fake, pem) as url:
        process = watching(url, pem)
        _, words = process.communicate(timeout=30)
    assert process.returncode == 2 and "enable-topo-ctrl" in words and "Traceback" not in words
