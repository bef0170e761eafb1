"""Each TCP port that has no process of its own in tests: many silent connections keep no friend out.

Friends are counted, not timed. The slicer's REST and the waypoint are attacked where their tests are.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Iterable
from typing import Any

import pytest
from silent_dialers import served_friends

from hyroads.controller.core.admission import Limits
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.download.engine import Engine
from hyroads.controller.download.metrics import DownloadMetrics, serve_metrics
from hyroads.controller.framework.admitted import AdmittedListener
from hyroads.slices.snmpvisor import metrics

FRIENDS = 14


def asked(port: int, path: str = "/metrics") -> bool:
    """Whether a request over HTTP is answered with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, 5.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except http.client.HTTPException:
        return False
    finally:
        connection.close()


def test_metrics_of_snmpvisor() -> None:
    async def run() -> int:
        server = await metrics.listen(Endpoint("127.0.0.1", 0), lambda: b"# nothing\n")
        port = server.sockets[0].getsockname()[1]
        try:
            return await asyncio.to_thread(served_friends, port, lambda: asked(port), friends=FRIENDS)
        finally:
            server.close()

    assert asyncio.run(run()) == FRIENDS


def test_metrics_of_downloads() -> None:
    port = serve_metrics(0, DownloadMetrics("fetch", Engine(["lo"])))
    assert served_friends(port, lambda: asked(port), friends=FRIENDS) == FRIENDS


def accepted(listener: AdmittedListener, peers: Iterable[socket.socket]) -> list[socket.socket]:
    return [listener.accept()[0] for _ in peers]


def test_place_is_given_up_when_the_connection_is_closed() -> None:
    ended: list[tuple[str, str]] = []
    listener = AdmittedListener("127.0.0.1", 0, Limits(2, 2, 60.0, each=2), lambda *told: ended.append(told))
    here = listener.getsockname()
    dialers: list[socket.socket] = []
    for _ in range(5):
        dialers.append(socket.create_connection(here))
        (connection,) = accepted(listener, dialers[-1:])
        connection.close()
    assert ended == []
    kept = [(socket.create_connection(here), listener.accept()[0]) for _ in range(3)]
    assert [why for _, why in ended] == ["gave its place to a newer connection"]
    assert kept[0][0].recv(1) == b"" and listener.place_of(kept[2][0].getsockname()) is not None
    # Those with a name have no place of strangers; of one name there are two.
    names = [listener.authenticated(here_and_there[0].getsockname(), "friend") for here_and_there in kept]
    assert names == [False, True, True]
    more = socket.create_connection(here), listener.accept()[0]
    assert not listener.authenticated(more[0].getsockname(), "friend")
    assert listener.authenticated(more[0].getsockname(), "another")
    for one in (*dialers, *(each for pair in (*kept, more) for each in pair), listener):
        one.close()
    assert listener.place_of(here) is None


def test_connections_that_say_nothing_end_in_time() -> None:
    async def run() -> bytes:
        ended: list[Any] = []
        listener = AdmittedListener("127.0.0.1", 0, Limits(4, 4, 0.3, each=2), lambda *told: ended.append(told))
        server = await asyncio.start_server(lambda reader, writer: None, sock=listener)
        sweeping = asyncio.create_task(listener.sweep_for_ever())
        try:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            found = await asyncio.wait_for(reader.read(), 10.0)
            writer.close()
            assert len(ended) == 1
            return found
        finally:
            sweeping.cancel()
            server.close()

    assert asyncio.run(run()) == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_listens_at_addresses_of_both_families_and_at_names(host: str) -> None:
    try:
        listener = AdmittedListener(host, 0, Limits(2, 2, 1.0), lambda peer, why: None)
    except OSError:
        pytest.skip(f"no {host} here")
    with listener, socket.create_connection(listener.getsockname()[:2]) as dialer:
        connection, address = listener.accept()
        assert address[:2] == dialer.getsockname()[:2] and listener.place_of(address) is not None
        connection.close()
        assert listener.place_of(address) is None
