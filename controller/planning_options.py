"""What the settings say of plans and of the loop. Pure."""

from __future__ import annotations

from hyroads.controller.control.loop import DEFAULT_MARGIN, LoopOptions
from hyroads.controller.plan import Options
from hyroads.controller.settings import Settings
from hyroads.controller.state import Fabric


def options_of(settings: Settings) -> Options:
    """Planning options from the settings."""
    return Options(
        link_mtu=settings.link_mtu,
        queue_ms=settings.queue_ms,
        burst_ms=settings.burst_ms,
        max_hold_ms=settings.max_hold_ms,
        hello_interval_ms=settings.timings.hello_interval_ms,
        hello_dead_ms=settings.timings.hello_dead_ms,
    )


def loop_options_of(fabric: Fabric, settings: Settings) -> LoopOptions:
    """Options of the loop; the margin of the network file counts if the settings name none.

    :class:`ConfigError` if slices and network do not fit together.
    """
    settings.slices.check_network(fabric.network, fabric.document)
    declared = fabric.network.margin
    margin = settings.margin if settings.margin is not None else declared if declared is not None else DEFAULT_MARGIN
    tcp_margin, slot_s = max(margin, settings.tcp_margin), settings.slot_ms / 1e3
    return LoopOptions(margin, tcp_margin, settings.mode, slot_s, shares=settings.slices.shares)
