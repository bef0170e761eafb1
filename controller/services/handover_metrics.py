"""What handovers took, as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hyroads.controller.control.histogram import Histogram
from prometheus_client.core import HistogramMetricFamily


def handover_metrics(seconds: Mapping[tuple[str, str], Histogram]) -> Iterator[Any]:
    """By manager and outcome: from the request until the flows had moved, or it failed."""
    family = HistogramMetricFamily(
        "hyroads_handover_seconds", "From request to confirmed paths", labels=("manager", "outcome")
    )
    for labels, histogram in sorted(seconds.items()):
        family.add_metric(labels, histogram.cumulative(), histogram.total_s)
    yield family
