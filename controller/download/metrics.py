"""What downloads and the proxy do, as metrics for Prometheus, at ``/metrics`` of a port on loopback.

A web page that is open on this machine must not read them: a request whose ``Host`` is a name of somebody else's, as
it is after DNS rebinding, is refused, and nothing allows other origins.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from hyroads.controller import version
from hyroads.controller.core.admission import Limits
from hyroads.controller.framework.admitted_http import AdmittedHttpServer

from .engine import Engine
from .interfaces import InputError
from .proxy import Proxy
from .proxy_policy import Record

RATE_OVER_S = 1.0
_HOSTS = frozenset(("127.0.0.1", "localhost"))
_WITHIN_S = 5.0
LIMITS = Limits(strangers=32, known=32, within_s=_WITHIN_S, each=32)


class DownloadMetrics(Collector):
    """The metrics of an engine and, with ``proxy``, of its requests. They are read when somebody asks."""

    def __init__(self, program: str, engine: Engine, proxy: Proxy | None = None) -> None:
        self._program, self._engine, self._proxy = program, engine, proxy
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque()
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        engine.watch(self._sample)
        if proxy is not None:
            log = proxy.log

            def counted(record: Record, seconds: float) -> None:
                with self._lock:
                    self._requests[f"{record.status // 100}xx"] += 1
                log(record, seconds)

            proxy.log = counted

    def describe(self) -> Iterable[Metric]:
        """Nothing is in a registry that others share."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics, as they are now."""
        yield InfoMetricFamily(
            "hyroads_build", "The program and its version", value={"program": self._program, "version": version()}
        )
        rate = GaugeMetricFamily(
            "hyroads_fetch_bytes_per_second", "What an interface carried in the last second", labels=("interface",)
        )
        total = CounterMetricFamily("hyroads_fetch_bytes", "What an interface has carried", labels=("interface",))
        up = GaugeMetricFamily("hyroads_fetch_interface_up", "1 if an interface is used", labels=("interface",))
        for interface, per_second in zip(self._engine.interfaces, self._rates(), strict=True):
            name = (interface.name,)
            rate.add_metric(name, per_second)
            total.add_metric(name, interface.received_bytes)
            up.add_metric(name, interface.carrier and not interface.failures)
        split = GaugeMetricFamily(
            "hyroads_fetch_transfers", "Files that are being fetched in parts", value=self._engine.transfers
        )
        yield from (rate, total, up, split)
        if self._proxy is None:
            return
        requests = CounterMetricFamily("hyroads_proxy_requests", "Requests answered", labels=("code",))
        with self._lock:
            for code, count in sorted(self._requests.items()):
                requests.add_metric((code,), count)
        yield requests
        yield GaugeMetricFamily("hyroads_proxy_clients", "Connections of programs", value=self._proxy.clients)

    def _sample(self) -> None:
        """Called ten times a second."""
        now_s, counts = time.monotonic(), tuple(each.received_bytes for each in self._engine.interfaces)
        with self._lock:
            self._samples.append((now_s, counts))
            while len(self._samples) > 2 and now_s - self._samples[1][0] >= RATE_OVER_S:
                self._samples.popleft()

    def _rates(self) -> list[float]:
        """Bytes per second of each interface."""
        with self._lock:
            (from_s, first), (to_s, last) = (self._samples[0], self._samples[-1]) if self._samples else ((0, ()),) * 2
        if to_s <= from_s:
            return [0.0] * len(self._engine.interfaces)
        return [(there - here) / (to_s - from_s) for here, there in zip(first, last, strict=True)]


class _Server(AdmittedHttpServer):
    """Serves the metrics of ``registry`` on loopback."""

    def __init__(self, port: int, registry: CollectorRegistry) -> None:
        self.registry = registry
        super().__init__("127.0.0.1", port, _Handler, LIMITS)


class _Handler(BaseHTTPRequestHandler):
    timeout = _WITHIN_S
    server: _Server

    def do_GET(self) -> None:
        """``/metrics``, for this machine's own programs."""
        if len(self.headers.get_all("Host", ())) > 1:
            self.send_error(HTTPStatus.BAD_REQUEST)
        elif self.headers.get("Host", "").rpartition(":")[0].lower() not in _HOSTS:
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            text = generate_latest(self.server.registry)
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def serve_metrics(port: int, metrics: DownloadMetrics) -> int:
    """Serve until the program ends; the port (another one for 0). InputError if it is taken."""
    try:
        server = _Server(port, metrics.registry)
    except OSError as error:
        raise InputError(f"--metrics {port}: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
