"""The page *What if*."""

from __future__ import annotations

from nicegui import ui

from hyroads.controller.core.errors import HyroadsError

from ..state import Changes
from ..views import what_if
from .frame import Page, Show, TextTable, View, set_text


def build(view: View) -> Show:
    """The page: a form, and what theory says of it."""
    ui.label("What theory gives to all flows if a link is gone, or a flow more is there. The network is not touched.")
    with ui.row().style("align-items:center"):
        without = ui.select([], label="without links", multiple=True).style("min-width:14rem").props("outlined dense")
        source = ui.select([], label="new flow from", clearable=True).style("min-width:10rem").props("outlined dense")
        target = ui.select([], label="to", clearable=True).style("min-width:10rem").props("outlined dense")
        button = ui.button("Compute").props("no-caps")
    table = TextTable("flow", "theory now", "theory then", "paths then", caption="theory")
    note = ui.label()

    async def compute() -> None:
        button.disable()
        try:
            new = (source.value, target.value) if source.value and target.value else None
            if new is not None and new[0] == new[1]:
                raise HyroadsError("a flow goes from one node to another")
            asked = what_if.question(view.state, without.value or [], new)
            now, then = await view.worker.run(what_if.answer, asked)
            table.show(what_if.rows(now, then))
            exact = what_if.are_cliques(asked.domains)
            set_text(note, "" if exact else "Interference domains overlap: true rates may be higher.")
        except HyroadsError as error:
            set_text(note, str(error))
        finally:
            button.enable()

    button.on_click(compute)

    def show(changes: Changes) -> None:
        topology = view.state.topology
        if changes.topology and topology is not None:
            without.set_options(sorted(topology.links))
            for choice in (source, target):
                choice.set_options(sorted(topology.nodes))

    return show


PAGE = Page("/what-if", "What if", build, wants=("/interference-domains",))
