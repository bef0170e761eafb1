"""The pages that are tables: *Clients*, *Slices*, *Sessions*, *Events*, *Health*."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nicegui import ui

from ..state import Changes, NetworkState
from ..views import tables
from ..views.tables import Rows
from .frame import Page, Show, TextTable, View


@dataclass(frozen=True)
class Part:
    """A table with a title, and what stands there while it is empty."""

    title: str
    columns: Sequence[str]
    rows: Callable[[NetworkState], Rows]
    empty: str


def _page(path: str, title: str, *parts: Part, wants: Sequence[str] = ()) -> Page:
    def build(view: View) -> Show:
        drawn = []
        for part in parts:
            with ui.element("div").classes("hr-part"):
                with ui.element("h2"):
                    ui.label(part.title)
                drawn.append((part, TextTable(*part.columns, caption=part.title), ui.label(part.empty)))

        def show(_: Changes) -> None:
            for part, table, empty in drawn:
                rows = part.rows(view.state)
                table.show(rows)
                if empty.visible == bool(rows):
                    empty.set_visibility(not rows)

        return show

    return Page(path, title, build, wants)


def _build_events(view: View) -> Show:
    words = ui.input("filter: words that must be there").props("outlined dense clearable").style("min-width:20rem")
    table = TextTable("time, UTC", "kind", "what", caption="events")

    def show(_: Changes) -> None:
        table.show(tables.event_rows(view.state.events, str(words.value or "")))

    words.on_value_change(lambda: show(Changes()))
    return show


CLIENTS = _page(
    "/clients",
    "Clients",
    Part("Clients", ("client", "interface", "node", "technology", "signal"), tables.client_rows, "No clients."),
    wants=("/measurements",),
)
SLICES = _page(
    "/slices",
    "Slices",
    Part(
        "Shares of airtime",
        ("slice", "technology", "share", "planned", "measured", "held to it"),
        tables.slice_rows,
        "No slices.",
    ),
    Part("Ports", ("slice", "switch", "ports"), tables.port_rows, "The controller is behind no slicer."),
    wants=("/slices",),
)
SESSIONS = _page(
    "/sessions",
    "Sessions",
    Part(
        "Multicast sessions",
        ("session", "owner", "group", "participants", "rate", "state", "why"),
        tables.session_rows,
        "No sessions.",
    ),
    Part("Reservations", ("id", "owner", "for", "rate", "state", "why"), tables.reservation_rows, "No reservations."),
    wants=("/sessions", "/reservations"),
)
EVENTS = Page("/events", "Events", _build_events)
HEALTH = _page(
    "/health",
    "Health",
    Part("Controller", ("", ""), tables.health_rows, "Nothing is known yet."),
    Part("Switches and agents", ("part", "node", "up", "in sync", "errors"), tables.part_rows, "None."),
    Part("Latest errors", ("time, UTC", "where", "what"), tables.error_rows, "None."),
    wants=("/health",),
)
