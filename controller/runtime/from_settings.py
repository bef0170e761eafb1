"""What plans, and what holds links, made from the settings of a controller."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hyroads.controller.agents.configs import HelloConfig
from hyroads.controller.control.link_holds import TOGETHER_S, LinkHolds
from hyroads.controller.control.live import Live, inline
from hyroads.controller.control.loop import DEFAULT_MARGIN, LiveLoop, LoopOptions
from hyroads.controller.control.rate_override import RateOverride
from hyroads.controller.control.routes import Routes
from hyroads.controller.control.source import ConfiguredSource, Source
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.network import Network
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.plan import Options
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.settings.controller import MEASURED, Settings

from .urgency import CUT_S, Urgency

# With so many links planning takes long enough to be in the way of slots: it runs in a thread of its own.
LARGE = 200


def options_of(settings: Settings) -> Options:
    """Planning options from the settings."""
    return Options(
        queue_ms=settings.queue_ms,
        burst_ms=settings.burst_ms,
        max_hold_ms=settings.max_hold_ms,
        hello_interval_ms=settings.timings.hello_interval_ms,
        hello_dead_ms=settings.timings.hello_dead_ms,
    )


def loop_options_of(network: Network, settings: Settings) -> LoopOptions:
    """Options of the loop; the margin of the network file counts if the settings name none.

    :class:`ConfigError` if slices and network do not fit together.
    """
    settings.slices.check_network(network, settings.network)
    declared = network.margin
    margin = settings.margin if settings.margin is not None else declared if declared is not None else DEFAULT_MARGIN
    tcp_margin, slot_s = max(margin, settings.tcp_margin), settings.slot_ms / 1e3
    return LoopOptions(margin, tcp_margin, settings.mode, slot_s, shares=settings.slices.shares)


def live_of(
    context: TopologyContext,
    settings: Settings,
    numbers: Numbers,
    source: Source | None,
    override: RateOverride | None,
    *,
    routes: Routes | None,
    urgency: Urgency,
) -> Live:
    """What plans, with the numbers and routes of before; slots and searches give way to ``urgency``."""
    options, is_large = options_of(settings), len(context.network.links) >= LARGE
    measured_by = source or ConfiguredSource(context.network)
    return Live(
        context,
        numbers,
        options,
        LiveLoop(context.network, measured_by, loop_options_of(context.network, settings), override),
        measures=settings.capacities == MEASURED,
        routes=routes,
        in_thread=shim.in_thread if is_large else inline,
        in_background=shim.Background("search").run if is_large else inline,
        in_parts=is_large,
        turns=shim.new_lock(),
        pause=partial(shim.sleep, 0) if is_large else lambda: None,
        give_way=urgency.give_way if is_large else None,
        aside=urgency.aside if is_large else None,
        let_others=partial(urgency.searches.wait, CUT_S),
    )


def holds_of(context: TopologyContext, settings: Settings, hellos: Iterable[HelloConfig]) -> LinkHolds:
    """What holds links that fail again and again; ``hellos`` are those that agents send."""
    together_s = max([TOGETHER_S, *(2 * hello.dead_ms / 1e3 for hello in hellos)])
    return LinkHolds(context, is_on=settings.flap_damping, together_s=together_s)
