"""The page *Boxes*: machines that wait to become nodes are adopted here, and boxes are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from hyroads.controller.core.errors import HyroadsError
from hyroads.rest.client import address

from ..state import Changes
from ..views import boxes
from ..views.tables import Rows
from .frame import Page, Show, View, set_text

RESOURCE = "boxes"
Chosen = Callable[[str], None]
PENDING = ("box", "system", "interfaces", "last heard", "key (SHA-256)", "join code")
ADOPTED = ("box", "node", "state", "ports", "last heard", "adopted by")
LEFT = ("box", "why", "last heard")


class BoxTable:
    """A table with a row for each box, and buttons in each row; ``buttons`` are called with the box's id."""

    def __init__(self, title: str, titles: Sequence[str], buttons: Mapping[str, Chosen]) -> None:
        self._buttons, self._width = buttons, len(titles)
        self._cells: dict[str, list[Any]] = {}
        with ui.element("div").classes("hr-part"):
            with ui.element("h2"):
                ui.label(title)
            self._table = ui.element("table").classes("hr-table").props(f'aria-label="{title.lower()} boxes"')
            with self._table:
                with ui.element("thead"), ui.element("tr"):
                    for column in (*titles, *(["actions"] if buttons else [])):
                        with ui.element("th").props('scope="col"'):
                            ui.label(column)
                self._body = ui.element("tbody")
            self._empty = ui.label().style("overflow-wrap:anywhere")

    def show(self, rows: Rows, empty: str = "None.") -> None:
        """These rows, or the text ``empty``. A row whose box stays keeps its buttons, so that a click never means
        another box.
        """
        set_text(self._empty, "" if rows else empty)
        if self._table.visible != bool(rows):
            self._table.set_visibility(bool(rows))
        shown = [row[0] for row in rows]
        if list(self._cells) != shown:
            if list(self._cells) != shown[: len(self._cells)]:
                self._body.clear()
                self._cells.clear()
            for box in shown[len(self._cells) :]:
                self._cells[box] = self._row(box)
        for row in rows:
            for cell, text in zip(self._cells[row[0]], row, strict=True):
                set_text(cell, text)

    def _row(self, box: str) -> list[Any]:
        with self._body, ui.element("tr"):
            cells = []
            for _ in range(self._width):
                with ui.element("td"):
                    cells.append(ui.label())
            if self._buttons:
                with ui.element("td"):
                    for text, chosen in self._buttons.items():
                        button = ui.button(text, on_click=lambda chosen=chosen: chosen(box)).props("dense no-caps flat")
                        button.props["aria-label"] = f"{text} {box}"
        return cells


class AdoptDialog:
    """Chooses the node that a box becomes. ``accepted`` is called with box and node once the controller accepts."""

    def __init__(self, view: View, accepted: Callable[[str, str], None]) -> None:
        self._view, self._accepted, self._box = view, accepted, ""
        with ui.dialog().props('aria-label="Adopt a box"') as self._dialog, ui.card():
            self._title, self._check = ui.label().style("font-weight:600"), ui.label()
            self._free = ui.select([], label="as node").style("width:100%")
            self._other = ui.input("or the id of another node").style("width:100%")
            self._ports = ui.input("ports, if the box has other names: plc=eth1 host=eth2").style("width:100%")
            self._problem = ui.label().props('role="alert"').style("color:#a30000")
            with ui.row():
                self._adopt = ui.button("Adopt", on_click=self._go).props("no-caps")
                ui.button("Cancel", on_click=self._dialog.close).props("no-caps flat")

    def open(self, box: str) -> None:
        """For a box."""
        self._box = box
        set_text(self._title, f"Adopt {box}")
        set_text(self._check, boxes.check_text(self._view.state, box))
        set_text(self._problem, "")
        free = boxes.free_nodes(self._view.state)
        self._free.set_options(free, value=free[0] if len(free) == 1 else None)
        self._other.set_value("")
        self._ports.set_value("")
        self._dialog.open()

    async def _go(self) -> None:
        box, node = self._box, str(self._other.value or "").strip() or str(self._free.value or "")
        self._adopt.disable()
        problem = await self._ask(box, node)
        self._adopt.enable()
        set_text(self._problem, problem or "")
        if problem is None:
            self._dialog.close()
            self._accepted(box, node)

    async def _ask(self, box: str, node: str) -> str | None:
        """The reason why the controller does not accept it."""
        if not node:
            return "Choose the node that the box becomes."
        try:
            ports = boxes.ports_of(str(self._ports.value or ""))
        except HyroadsError as error:
            return str(error)
        body = {"as": node, **({"ports": ports} if ports else {})}
        # The page follows what becomes of it: a box needs longer than a request may take.
        return await self._view.do(
            RESOURCE, lambda client: client.change("POST", address(RESOURCE, box, "adopt"), body, wait=False)
        )


class ForgetDialog:
    """Confirms that a box is to be forgotten. ``forgotten`` is called with its id once the controller has done it."""

    def __init__(self, view: View, forgotten: Chosen) -> None:
        self._view, self._forgotten, self._box = view, forgotten, ""
        with ui.dialog().props('aria-label="Forget a box"') as self._dialog, ui.card():
            self._title = ui.label().style("font-weight:600")
            ui.label("Its token is worth nothing afterwards, and its node is free for another box.")
            self._problem = ui.label().props('role="alert"').style("color:#a30000")
            with ui.row():
                self._forget = ui.button("Forget", on_click=self._go).props("no-caps color=negative")
                ui.button("Cancel", on_click=self._dialog.close).props("no-caps flat")

    def open(self, box: str) -> None:
        """For a box."""
        self._box = box
        set_text(self._title, f"Forget {box}?")
        set_text(self._problem, "")
        self._dialog.open()

    async def _go(self) -> None:
        box = self._box
        self._forget.disable()
        problem = await self._view.do(RESOURCE, lambda client: client.change("DELETE", address(RESOURCE, box)))
        self._forget.enable()
        set_text(self._problem, problem or "")
        if problem is None:
            self._dialog.close()
            self._forgotten(box)


class BoxesPage:
    """One browser's page."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._accepted: tuple[str, str] | None = None
        """Box and node of an adoption that is not confirmed yet."""
        self._pin = ui.label().style("overflow-wrap:anywhere")
        self._outcome = ui.label().props('role="status"').style("font-weight:600")
        adopt: dict[str, Chosen] = {}
        forget: dict[str, Chosen] = {}
        if view.session.may_change(RESOURCE):
            adopt["Adopt"] = AdoptDialog(view, self._has_accepted).open
            forget["Forget"] = ForgetDialog(view, self._has_forgotten).open
        self._pending = BoxTable("Pending", PENDING, {**adopt, **forget})
        self._adopted = BoxTable("Adopted", ADOPTED, forget)
        self._left = BoxTable("Left", LEFT, forget)

    def show(self, _: Changes) -> None:
        """What differs."""
        state = self.view.state
        set_text(self._pin, boxes.pin_text(state))
        self._pending.show(boxes.pending_rows(state), boxes.empty_text(state))
        self._adopted.show(boxes.adopted_rows(state))
        self._left.show(boxes.left_rows(state))
        if self._accepted is not None:
            found = boxes.outcome(state, *self._accepted)
            set_text(self._outcome, found.text)
            if found.done:
                self._accepted = None

    def _has_accepted(self, box: str, node: str) -> None:
        self._accepted = (box, node)
        self.show(Changes())

    def _has_forgotten(self, box: str) -> None:
        if self._accepted is not None and self._accepted[0] == box:
            self._accepted = None
        set_text(self._outcome, f"{box} is forgotten.")


def build(view: View) -> Show:
    """The page."""
    return BoxesPage(view).show


PAGE = Page("/boxes", "Boxes", build, wants=(boxes.BOXES, boxes.CODES, boxes.HEALTH))
