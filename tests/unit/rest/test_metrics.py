"""Prometheus' text format with labels that come from the network: it stays readable, unambiguous and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from hyroads.rest.metrics import LONGEST_LABEL, Exposition, RequestTimes, label, text_of

# Lone surrogates, too: a file's name or a JSON document may have them.
ANY_TEXT = st.text(st.characters(), max_size=3 * LONGEST_LABEL)


def parsed(text: bytes) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def gauge(*names: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily("things", "Things", labels=("name",))
    for number, name in enumerate(names):
        family.add_metric((name,), number)
    return family


@given(st.lists(ANY_TEXT, unique=True, max_size=8))
def test_no_name_breaks_the_format_or_is_taken_for_another(names: list[str]) -> None:
    found = parsed(text_of([gauge(*names)]))
    assert set(found) == {"things", "hyroads_metrics_left_out"}
    assert [sample.value for sample in found["things"].samples] == [float(n) for n in range(len(names))]
    written = [sample.labels["name"] for sample in found["things"].samples]
    assert len(set(written)) == len(names)
    plain = [name for name in names if name.isprintable() and len(name) <= LONGEST_LABEL]
    assert set(plain) <= set(written)


def test_long_values_are_cut_and_stay_apart() -> None:
    one, other = "x" * 5000 + "1", "x" * 5000 + "2"
    assert len(label(one)) == LONGEST_LABEL and label(one) != label(other) and label(one) == label(one)


def test_a_series_that_is_named_twice_is_written_once() -> None:
    (family,) = [one for name, one in parsed(text_of([gauge("a", "a")])).items() if name == "things"]
    assert [sample.value for sample in family.samples] == [0.0]


def test_lines_beyond_the_bound_are_counted_and_no_histogram_is_cut_in_half() -> None:
    seconds = HistogramMetricFamily("took_seconds", "Times", labels=("name",))
    for name in "abcd":
        seconds.add_metric((name,), [("1.0", 2.0), ("+Inf", 3.0)], 4.0)
    found = parsed(text_of([gauge(*map(str, range(25))), seconds], most=10))
    assert len(found["things"].samples) == 10
    kept = {sample.labels["name"] for sample in found["took_seconds"].samples}
    assert kept == {"a", "b"} and len(found["took_seconds"].samples) == 8
    left_out = {s.labels["metric"]: s.value for s in found["hyroads_metrics_left_out"].samples}
    assert left_out == {"things": 15.0, "took_seconds": 8.0}


def test_a_program_says_which_it_is_and_what_it_takes() -> None:
    def collect() -> Iterator[Any]:
        yield CounterMetricFamily("turns", "Turns", value=3)

    found = parsed(Exposition("tester", "1.2.3", [collect]).render())
    (build,) = found["hyroads_build_info"].samples
    assert (build.labels, build.value) == ({"program": "tester", "version": "1.2.3"}, 1.0)
    assert found["turns"].samples[0].name == "turns_total" and found["process_cpu_seconds"].samples[0].value > 0


def test_requests_are_measured_by_method_resource_and_status() -> None:
    now = iter([1.0, 1.25, 2.0, 2.0, 3.0, 3.0])
    times, app = RequestTimes(lambda: next(now)), Flask("test")
    times.follow(app)
    app.add_url_rule("/api/v1/flows/<flow>", "flow", lambda flow: flow)
    web = app.test_client()
    for method, address in (("GET", "/api/v1/flows/a"), ("GET", "/x/y"), ("BREW", "/tea")):
        web.open(address, method=method)
    found = parsed(text_of(times.collect()))
    answers = {tuple(sorted(s.labels.values())): s.value for s in found["hyroads_rest_requests"].samples}
    assert answers == {("200", "GET", "flows"): 1.0, ("404", "GET", "none"): 1.0, ("404", "none", "other"): 1.0}
    buckets = {
        s.labels["le"]: s.value
        for s in found["hyroads_rest_request_seconds"].samples
        if s.name.endswith("_bucket") and s.labels["resource"] == "flows"
    }
    assert (buckets["0.1"], buckets["0.5"], buckets["+Inf"]) == (0.0, 1.0, 1.0)
