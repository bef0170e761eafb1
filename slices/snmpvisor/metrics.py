"""The SNMP proxy's metrics for Prometheus, and the small HTTP server that tells them, on loopback only."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import h11
from prometheus_client.core import HistogramMetricFamily

from hyroads.controller import version
from hyroads.controller.core.admission import Limits
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.framework.admitted import BACKLOG, AdmittedListener
from hyroads.rest.metrics import TYPE, Counter, Exposition, Gauge

from .proxy import Proxy

WITHIN_S = 5.0
MOST_HEAD = 1 << 14
LIMITS = Limits(strangers=32, known=32, within_s=WITHIN_S, each=32)
_NAMES = ("slice", "target")


def exposition(proxy: Proxy, clock: Callable[[], float] = time.monotonic) -> Exposition:
    """The metrics of a proxy; ``clock`` is the one that it gets its times from."""
    return Exposition("snmpvisor", version(), [lambda: collect(proxy, clock())])


def collect(proxy: Proxy, now_s: float) -> Iterator[Any]:
    """By slice and target what became of requests, and which targets answer."""
    requests = Counter("hyroads_snmp_requests", "Requests of a slice's managers", labels=_NAMES)
    refusals = Counter("hyroads_snmp_refusals", "Requests that were answered with an error", labels=_NAMES)
    unanswered = Counter("hyroads_snmp_unanswered", "Requests that got no answer", labels=_NAMES)
    answers = HistogramMetricFamily("hyroads_snmp_answer_seconds", "From request to answer", labels=_NAMES)
    for labels, served in sorted(proxy.served.items()):
        requests.add_metric(labels, served.requests)
        refusals.add_metric(labels, served.refusals)
        unanswered.add_metric(labels, served.unanswered)
        answers.add_metric(labels, served.answers.cumulative(), served.answers.total_s)
    up = Gauge("hyroads_snmp_up", "1 if the SNMP target answers", labels=("target",))
    age = Gauge("hyroads_snmp_age_seconds", "Age of a target's last answer", labels=("target",))
    for target, answered_s, is_up in proxy.targets():
        up.add_metric((target,), is_up)
        if answered_s is not None:
            age.add_metric((target,), now_s - answered_s)
    unknown = Counter("hyroads_snmp_unidentified", "Datagrams that belong to no slice", value=proxy.unidentified)
    yield from (requests, refusals, unanswered, answers, up, age, unknown)


async def listen(where: Endpoint, text: Callable[[], bytes]) -> asyncio.Server:
    """Answers ``GET /metrics``: one request a connection, few at a time."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, h11.ProtocolError):
            await asyncio.wait_for(_serve(reader, writer, text), WITHIN_S)
        writer.close()

    try:
        listener = AdmittedListener(where.host, where.port, LIMITS, lambda peer, why: None)
    except OSError as error:
        place = f"can't listen on {where.host}:{where.port}: {error.strerror}"
        raise ConfigError("settings", "metrics", place) from error
    return await asyncio.start_server(answer, sock=listener, limit=MOST_HEAD, backlog=BACKLOG)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: Callable[[], bytes]) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(MOST_HEAD))
        elif isinstance(event, h11.Request):
            break
        else:
            return
    status, body = HTTPStatus.OK, b""
    if event.target.partition(b"?")[0] != b"/metrics":
        status = HTTPStatus.NOT_FOUND
    elif event.method != b"GET":
        status = HTTPStatus.METHOD_NOT_ALLOWED
    else:
        body = text()
    headers = [("Content-Type", TYPE), ("Content-Length", str(len(body))), ("Connection", "close")]
    writer.write(
        (connection.send(h11.Response(status_code=status, headers=headers, reason=status.phrase)) or b"")
        + (connection.send(h11.Data(data=body)) or b"")
        + (connection.send(h11.EndOfMessage()) or b"")
    )
    await writer.drain()
