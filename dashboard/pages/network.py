"""The page *Network*."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from ..state import NO_TOPOLOGY, Changes
from ..views import clients as client_view
from ..views import network as network_view
from ..views.network import DOMAIN_COLOUR, FLOW_COLOUR, Drawing
from .frame import Page, Show, TextTable, View, set_text

MAX_FLOWS = 60
SHOWN = {"links", "flows", "paths", "clients"}


class NetworkPage:
    """One browser's page."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.drawing = Drawing(NO_TOPOLOGY)
        self.series: dict[str, network_view.Series] = {}
        self.flow: str | None = None
        self.client: str | None = None
        self.link: str | None = None
        self._lit: dict[str, frozenset[str]] = {}
        self._flow_buttons: dict[str, Any] = {}
        with ui.element("div").classes("hr-columns"):
            self._draw_map()
            with ui.element("div").classes("hr-side"):
                self._draw_side()

    def _draw_map(self) -> None:
        with ui.element("div").style("flex:3 1 36rem"):
            # What is sent to the chart is not in its element: an update of that would draw the first options again.
            self._picture = ui.element("div").props('role="img" aria-label="network"')
            with self._picture:
                self.chart = ui.echart(network_view.options(self.drawing, {}, [])).classes("hr-map")
            self.chart.on("chart:click", self._clicked, ["seriesName", "name"])
            self.chart.on("chart:mouseover", self._hovered, ["seriesName", "name"], throttle=0.1)
            self.chart.on("chart:globalout", lambda: self._hover(None))
            self._legend = ui.element("ul").classes("hr-legend").props('aria-label="legend"')

    def _draw_side(self) -> None:
        _title("Flows")
        ui.label("Click a flow to light its links.").style("font-size:.8rem")
        self._flows = ui.element("div").classes("hr-list").props('role="group" aria-label="flows"')
        self._flow_title = _title("")
        self._paths = TextTable("path", "delivered", "planned", "lost", "delay", caption="paths of the flow")
        self._link_title = _title("Link")
        self._link = TextTable("", "", caption="link")
        self._client_title = _title("")
        self._client_part = ui.element("div")
        with self._client_part:
            self._places = TextTable("interface", "place", "signal", caption="places of the client")
            if self.view.session.may_change("handovers"):
                with ui.row().style("align-items:center"):
                    self._target = ui.select([], label="hand over to").style("min-width:10rem").props("outlined dense")
                    self._hand_over = ui.button("Hand over", on_click=self._steer)
            ui.label("Where it was:").style("font-size:.85rem")
            self._history = TextTable("since", "interface", "place", caption="where the client was")
        self._client_part.set_visibility(False)

    # -- what the user does

    def _clicked(self, event: Any) -> None:
        series, name = event.args.get("seriesName"), event.args.get("name")
        if series in (network_view.NODES, network_view.CLIENTS):
            if isinstance(name, str) and client_view.is_client(self.view.state, name):
                self.choose_client(None if self.client == name else name)
        elif isinstance(name, str):
            self._hover(name)

    def _hovered(self, event: Any) -> None:
        name = event.args.get("name")
        topology = self.view.state.topology
        self._hover(name if isinstance(name, str) and topology is not None and name in topology.links else None)

    def _hover(self, link: str | None) -> None:
        self.link = link
        self._show_link()
        self._light("domain", frozenset() if link is None else network_view.domain_of(self.view.state, link))

    def choose_flow(self, flow: str | None) -> None:
        """Light the links of a flow."""
        for one, button in self._flow_buttons.items():
            button.props(f'aria-pressed="{str(one == flow).lower()}"')
        self.flow = flow
        self._show_flow()

    def choose_client(self, client: str | None) -> None:
        """Show a client."""
        self.client = client
        self.view.want("/measurements", client is not None)
        self._client_part.set_visibility(client is not None)
        self._show_client()

    async def _steer(self) -> None:
        client, target = self.client, self._target.value
        if client is None or not isinstance(target, str) or target not in client_view.targets(self.view.state, client):
            ui.notify("Choose where to hand the client over to.")
            return
        node, _, technology = target.rpartition("/")
        self._hand_over.disable()
        problem = await self.view.do("handovers", lambda controller: controller.handover(client, (node, technology)))
        self._hand_over.enable()
        ui.notify(problem or f"{client} is handed over to {target}.", type="negative" if problem else "positive")

    # -- what the network does

    def show(self, changes: Changes) -> None:
        """What differs."""
        state = self.view.state
        if state.topology is not None and state.topology is not self.drawing.topology:
            self._show_topology()
        elif changes.topology or SHOWN & changes.ids.keys():
            new = self.drawing.series(state)
            different = network_view.changed(self.series, new)
            self.series = new
            if different:
                self.chart.run_chart_method("setOption", {"series": different})
        if changes.topology or changes.of("flows") or changes.of("paths"):
            self._show_flows()
            self._show_flow()
        if self.link is not None and self.link in changes.of("links"):
            self._show_link()
        if changes.tick or changes.of("clients") or changes.documents:
            self._show_client()

    def _show_topology(self) -> None:
        state = self.view.state
        self.drawing = Drawing(state.topology or NO_TOPOLOGY)
        self.series = self.drawing.series(state)
        self._lit = {}
        overlays = [self.drawing.overlay(*one) for one in self._overlays()]
        options = network_view.options(self.drawing, self.series, overlays)
        self.chart.run_chart_method("setOption", options, True)
        self._picture.props(f'aria-label="{_plain(network_view.summary(self.drawing.topology))}"')
        self._legend.clear()
        with self._legend:
            for label, colour, width, stroke in network_view.legend(self.drawing.topology):
                with ui.element("li"):
                    _sample(colour, width, stroke)
                    ui.label(label)

    def _overlays(self) -> list[tuple[str, frozenset[str], str, float]]:
        flow = frozenset() if self.flow is None else network_view.flow_links(self.view.state, self.flow)
        self._lit["flow"] = flow
        return [("domain", frozenset(), DOMAIN_COLOUR, 14.0), ("flow", flow, FLOW_COLOUR, 9.0)]

    def _light(self, name: str, links: frozenset[str]) -> None:
        if self._lit.get(name, frozenset()) != links:
            self._lit[name] = links
            data = self.drawing.overlay(name, links, "", 0)["data"]
            self.chart.run_chart_method("setOption", {"series": [{"id": name, "data": data}]})

    def _show_flows(self) -> None:
        rows = network_view.flow_rows(self.view.state)[:MAX_FLOWS]
        for flow in self._flow_buttons.keys() - {row["id"] for row in rows}:
            self._flow_buttons.pop(flow).delete()
        for row in rows:
            text = f"{row['id']}: {row['delivered']}"
            button = self._flow_buttons.get(row["id"])
            if button is None:
                with self._flows:
                    button = ui.button(text, on_click=lambda flow=row["id"]: self._toggle(flow))
                button.props('flat dense no-caps align=left aria-pressed="false"').style("color:#0b2f4a")
                self._flow_buttons[row["id"]] = button
            set_text(button, text)

    def _toggle(self, flow: str) -> None:
        self.choose_flow(None if self.flow == flow else flow)

    def _show_flow(self) -> None:
        state, flow = self.view.state, self.flow
        if flow is not None and flow not in state.live["flows"]:
            flow = self.flow = None
        rows = [] if flow is None else network_view.path_rows(state, flow)
        set_text(self._flow_title, network_view.flow_title(state, flow))
        self._paths.show([[row[name] for name in ("path", "delivered", "planned", "lost", "delay")] for row in rows])
        self._light("flow", frozenset() if flow is None else network_view.flow_links(state, flow))

    def _show_link(self) -> None:
        rows = [] if self.link is None else network_view.link_text(self.view.state, self.link)
        self._link.show(rows or [("", "Point at a link: its figures, and who shares its medium.")])

    def _show_client(self) -> None:
        if self.client is None:
            set_text(self._client_title, "")
            return
        state, client = self.view.state, self.client
        set_text(self._client_title, f"Client {client}")
        rows = client_view.place_rows(state, client)
        self._places.show([[row["interface"], row["place"], row["signal"]] for row in rows])
        past = client_view.history_rows(state, client, self.view.now_s)
        self._history.show([[row["age"], row["interface"], row["place"]] for row in past[:10]])
        if self.view.session.may_change("handovers"):
            targets = client_view.targets(state, client)
            if self._target.options != targets:
                self._target.set_options(targets, value=targets[0] if targets else None)


def _title(text: str) -> Any:
    with ui.element("h2"):
        return ui.label(text)


def _plain(text: str) -> str:
    """For an attribute."""
    return "".join(one if one.isalnum() or one in " .:-_" else " " for one in text)


def _sample(colour: str, width: float, stroke: object) -> None:
    dashes = (
        {"solid": "", "dashed": "6 3", "dotted": "2 3"}.get(stroke, "")
        if isinstance(stroke, str)
        else (" ".join(map(str, stroke)) if isinstance(stroke, list) else "")
    )
    with ui.element("svg").props('viewBox="0 0 40 10" aria-hidden="true"'):
        ui.element("line").props(
            f'x1="0" y1="5" x2="40" y2="5" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"'
        )


def build(view: View) -> Show:
    """The page."""
    page = NetworkPage(view)
    page._show_link()
    return page.show


PAGE = Page("/", "Network", build, wants=("/interference-domains",))
