"""Foreign plugins, as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyroads.controller.services.plugins import PluginDesk
from hyroads.plugins.kinds import Kind
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


def plugin_metrics(desk: PluginDesk) -> Iterator[Any]:
    """By plugin: whether it can be used now, and what it did wrong so far."""
    up = GaugeMetricFamily("hyroads_plugin_up", "Whether the plugin runs", labels=("plugin", "kind"))
    faults = CounterMetricFamily("hyroads_plugin_faults", "Times that the plugin misbehaved", labels=("plugin", "kind"))
    for kind in Kind:
        for name, keeper in sorted(desk.keepers(kind).items()):
            up.add_metric((name, kind.value), float(keeper.usable))
            faults.add_metric((name, kind.value), keeper.health.total)
    yield up
    yield faults
