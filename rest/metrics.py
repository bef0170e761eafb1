"""Metrics in Prometheus' text format: what all programs of HyRoads have in common (docs/reference/metrics.md).

Label values come from the network: names of flows, of interfaces of clients, of slices. :func:`text_of` writes them so
that none of them can break the format, name a series twice or make the answer grow without bound. It is also cheaper
than the library's own writer, which a controller feels that is scraped every few seconds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from hyroads.controller.control.slots import Histogram

from .contract import PREFIX

TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES = 5000
"""Of one metric: flows, clients and slices beyond that many lines are left out and counted."""
LONGEST_LABEL = 160
"""Longer values are cut, and end in a hash so that two that begin alike stay two."""
Family = Any
Collect = Callable[[], Iterable[Family]]

_BOUNDS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def label(value: object) -> str:
    """A label value between quotes: escaped, of bounded length, encodable in UTF-8."""
    text = str(value)
    if len(text) > LONGEST_LABEL:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        text = f"{text[: LONGEST_LABEL - 9]}~{digest}"
    if text.isprintable():
        # Printable text has neither line feeds nor lone surrogates.
        return text.translate(_ESCAPES) if '"' in text or "\\" in text else text
    return text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)


class Labelled:
    """Things that several metrics tell of, such as the links of a network; ``rows`` has the values of their labels.
    What is written of them is kept until a value changes.
    """

    def __init__(self, labels: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
        self.labels = tuple(labels)
        self.rows = tuple(rows)
        self._starts: dict[str, list[str | None]] = {}
        self._written: dict[str, tuple[list[float | None], list[str]]] = {}

    def lines(self, name: str, values: list[float | None]) -> list[str]:
        """The lines of a metric: ``values`` are in the order of the rows, None for those without one."""
        if name not in self._starts:
            starts = [_start(name, self.labels, row) for row in self.rows]
            # Of series that are named twice the first counts.
            first = {start: at for at, start in reversed(list(enumerate(starts)))}
            self._starts[name] = [start if first[start] == at else None for at, start in enumerate(starts)]
        if name not in self._written or self._written[name][0] != values:
            pairs = zip(self._starts[name], values, strict=True)
            lines = [start + _number(value) for start, value in pairs if value is not None and start is not None]
            self._written[name] = values, lines
        return self._written[name][1]


class Gauge:
    """A metric whose values go up and down, and its samples. It costs less than the library's own, which makes a
    mapping and a tuple of each sample: a controller of hundreds of links feels that whenever it is scraped.

    ``labels`` names the labels of samples; ``value`` is that of a metric without any. ``name`` is without ``_total``.
    """

    type = "gauge"

    def __init__(self, name: str, documentation: str, value: float | None = None, labels: Sequence[str] = ()) -> None:
        self.name = f"{name}_total" if self.type == "counter" else name
        self.documentation = documentation
        self._labels = tuple(labels)
        self._samples: list[tuple[tuple[str, ...], float]] = [] if value is None else [((), value)]
        self._columns: list[tuple[Labelled, list[float | None]]] = []

    def add_metric(self, labels: Iterable[str], value: float) -> None:
        """A sample; ``labels`` are the values of the labels in their order."""
        self._samples.append((tuple(labels), value))

    def add_column(self, things: Labelled, values: Iterable[float | None]) -> None:
        """Samples of many things."""
        self._columns.append((things, list(values)))

    def lines(self) -> list[str]:
        """The samples as text; of series that are named twice the first counts."""
        known = _starts_of(self.name, self._labels)
        series: dict[str, float] = {}
        if len(known) > 2 * len(self._samples) + _MARGIN:
            # Names come from the network, and go.
            known.clear()
        for labels, value in self._samples:
            start = known.get(labels)
            if start is None:
                start = known[labels] = _start(self.name, self._labels, labels)
            series.setdefault(start, value)
        columns = [line for things, values in self._columns for line in things.lines(self.name, values)]
        return [*[start + _number(value) for start, value in series.items()], *columns]


class Counter(Gauge):
    """A metric whose values only grow, until what counts starts anew."""

    type = "counter"


_MARGIN = 100


@lru_cache(maxsize=1024)
def _starts_of(name: str, labels: tuple[str, ...]) -> dict[tuple[str, ...], str]:
    """By the values of the labels: how the line of a metric begins, of lines that were written lately."""
    return {}


def _start(name: str, names: Sequence[str], values: Sequence[str]) -> str:
    """How a line begins, up to the blank before its value."""
    words = ",".join(f'{key}="{label(value)}"' for key, value in sorted(zip(names, values, strict=True)))
    return f"{name}{{{words}}} " if words else f"{name} "


def text_of(families: Iterable[Family], most: int = MOST_SERIES) -> bytes:
    """The metrics as text; of series that are named twice the first counts, of each metric at most ``most`` lines."""
    lines: list[str] = []
    left_out = Gauge(
        "hyroads_metrics_left_out", "Lines of a metric that were left out, for there are too many", labels=("metric",)
    )
    for family in families:
        name, kind, found = _written(family)
        lines += (f"# HELP {name} {_help(family.documentation)}", f"# TYPE {name} {kind}")
        if len(found) > most:
            short = most
            while short and kind == "histogram" and not found[short - 1].startswith(f"{name}_sum"):
                # Half a histogram is none.
                short -= 1
            left_out.add_metric((name,), len(found) - short)
            found = found[:short]
        lines += found
    lines += (f"# HELP {left_out.name} {left_out.documentation}", f"# TYPE {left_out.name} gauge", *left_out.lines())
    return ("\n".join(lines) + "\n").encode()


def _written(family: Family) -> tuple[str, str, list[str]]:
    """The name, the kind and the lines of a metric of ours or of the library's."""
    if isinstance(family, Gauge):
        return family.name, family.type, family.lines()
    if family.type == "info":
        return f"{family.name}_info", "gauge", _lines(family)
    return f"{family.name}_total" if family.type == "counter" else family.name, family.type, _lines(family)


_NUMBERS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def _number(value: float) -> str:
    text = repr(float(value))
    return _NUMBERS.get(text, text)


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _lines(family: Family) -> list[str]:
    found: dict[str, str] = {}
    for sample in family.samples:
        if sample.name.endswith("_created"):
            continue
        words = ",".join([f'{key}="{label(value)}"' for key, value in sorted(sample.labels.items())])
        series = f"{sample.name}{{{words}}}" if words else sample.name
        if series not in found:
            found[series] = f"{series} {_number(sample.value)}"
    return list(found.values())


def certificates(ends_s: Mapping[str, float]) -> Iterator[Family]:
    """When the certificates of a program end, in Unix time, by their place in its settings."""
    family = Gauge("hyroads_certificate_end_time_seconds", "When a certificate ends, since 1970", labels=("place",))
    for place, end_s in ends_s.items():
        family.add_metric((place,), end_s)
    yield family


class RequestTimes:
    """How long REST requests took until their answer began, by method and resource, and how they were answered.

    A resource is the first part of the address below ``/api/v1`` as it is routed; addresses that lead nowhere are
    ``none``, so that nobody can make series by asking for what is not there.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._answers: dict[tuple[str, str, str], int] = {}

    def follow(self, app: Flask) -> None:
        """Measure all requests of an application. To be called before others look at requests."""

        def begin() -> None:
            g.began_s = self._clock()

        def end(answer: Response) -> Response:
            began_s = g.get("began_s")
            if began_s is not None:
                self.add(_method(), _resource(), answer.status_code, self._clock() - began_s)
            return answer

        app.before_request(begin)
        app.after_request(end)

    def add(self, method: str, resource: str, status: int, seconds: float) -> None:
        """One request more."""
        self._durations.setdefault((method, resource), Histogram(_BOUNDS_S)).add(seconds)
        key = (method, resource, str(status))
        self._answers[key] = self._answers.get(key, 0) + 1

    def collect(self) -> Iterator[Family]:
        """Both metrics."""
        seconds = HistogramMetricFamily(
            "hyroads_rest_request_seconds", "Time until the answer to a request began", labels=("method", "resource")
        )
        for labels, durations in sorted(self._durations.items()):
            seconds.add_metric(labels, durations.cumulative(), durations.total_s)
        answers = Counter("hyroads_rest_requests", "Requests answered", labels=("method", "resource", "code"))
        for (method, resource, code), count in sorted(self._answers.items()):
            answers.add_metric((method, resource, code), count)
        yield from (seconds, answers)


def _method() -> str:
    return request.method if request.method in _METHODS else "other"


def _resource() -> str:
    if request.url_rule is None:
        return "none"
    return request.url_rule.rule.removeprefix(PREFIX).strip("/").partition("/")[0]


class _Build(Collector):
    """Which program this is."""

    def __init__(self, program: str, version: str) -> None:
        self._labels = {"program": program, "version": version}

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterator[Family]:
        yield InfoMetricFamily("hyroads_build", "The program and its version", value=self._labels)


class Exposition:
    """The metrics of a program: its own, which ``collectors`` read from its state whenever somebody asks, those of REST
    requests, of the process, and its version. Nothing is in the library's global registry.
    """

    def __init__(
        self, program: str, version: str, collectors: Sequence[Collect], requests: RequestTimes | None = None
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Build(program, version))
        ProcessCollector(registry=self._registry)
        self._collectors = list(collectors)
        if requests is not None:
            self._collectors.append(requests.collect)

    def render(self) -> bytes:
        """The text format."""
        return text_of(self._families())

    def _families(self) -> Iterator[Family]:
        yield from self._registry.collect()
        for collect in self._collectors:
            yield from collect()
