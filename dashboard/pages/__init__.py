"""The pages. A new one is a :class:`~.frame.Page` in a file of its own, and stands in :func:`pages`."""

from __future__ import annotations

from . import boxes, flow, network, tables, what_if
from .frame import Page


def pages() -> list[Page]:
    """All, in the order of the menu."""
    return [
        network.PAGE,
        flow.PAGE,
        tables.CLIENTS,
        tables.SLICES,
        tables.SESSIONS,
        boxes.PAGE,
        tables.EVENTS,
        tables.HEALTH,
        what_if.PAGE,
    ]
