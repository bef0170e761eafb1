"""The page *Flow*."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from hyroads.controller.core.errors import HyroadsError

from ..state import Changes
from ..views import flow as flow_view
from ..views.flow import Graph
from ..views.network import path_rows
from ..worker import picture
from .frame import Page, Show, TextTable, View


class FlowPage:
    """One browser's page."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.flow: str | None = view.query.get("id")
        self._minutes: dict[str, int] = {}
        with ui.row().style("align-items:center"):
            self._choice = ui.select([], label="flow", on_change=self._chosen).style("min-width:14rem")
            self._choice.props("outlined dense")
            for form in ("csv", "svg", "pdf"):
                ui.button(f"Export {form.upper()}", on_click=lambda form=form: self._export(form)).props("no-caps")
            if "grafana" in view.links:
                ui.link("older figures", view.links["grafana"]).props('rel="noreferrer"')
        self._paths = TextTable("path", "delivered", "planned", "lost", "delay", caption="paths of the flow")
        self._charts: dict[str, Any] = {}
        for graph in flow_view.graphs(view.state, "", 0.0, 0.0):
            with ui.element("div").classes("hr-part").style("width:100%"):
                with ui.element("h2"):
                    ui.label(f"{graph.title}, {graph.unit}")
                with ui.element("div").props(f'role="img" aria-label="{graph.title} over time"'):
                    self._charts[graph.id] = ui.echart(flow_view.options(graph)).classes("hr-chart")

    def _graphs(self) -> list[Graph]:
        return flow_view.graphs(self.view.state, self.flow or "", self.view.now_s, time.time())

    def _chosen(self, event: Any) -> None:
        if event.value != self.flow:
            self.flow = event.value
            self._minutes.clear()
            self.show(Changes(tick=True))

    async def _export(self, form: str) -> None:
        if self.flow is None:
            return
        graphs = self._graphs()
        try:
            content = (
                flow_view.csv_of(graphs).encode()
                if form == "csv"
                else await self.view.worker.run(picture, f"Flow {self.flow}", graphs, form)
            )
        except HyroadsError as error:
            ui.notify(str(error), type="negative")
            return
        name = "".join(one if one.isalnum() else "-" for one in self.flow)
        ui.download.content(content, f"flow-{name}.{form}")

    def show(self, changes: Changes) -> None:
        """A second more."""
        if not (changes.tick or changes.topology):
            return
        known = flow_view.flows(self.view.state)
        if self.flow not in known:
            self.flow = known[0] if known else None
        if self._choice.options != known or self._choice.value != self.flow:
            self._choice.set_options(known, value=self.flow)
        rows = [] if self.flow is None else path_rows(self.view.state, self.flow)
        self._paths.show([[row[name] for name in ("path", "delivered", "planned", "lost", "delay")] for row in rows])
        for graph in self._graphs():
            minute = flow_view.minute(graph)
            is_new = graph.id not in self._minutes
            whole = is_new or self._minutes[graph.id] != minute
            self._minutes[graph.id] = minute
            new = {"series": flow_view.series(graph, whole=whole)}
            if is_new:
                self._charts[graph.id].run_chart_method("setOption", {**flow_view.options(graph), **new}, True)
            else:
                self._charts[graph.id].run_chart_method("setOption", new)


def build(view: View) -> Show:
    """The page."""
    return FlowPage(view).show


PAGE = Page("/flow", "Flow", build)
