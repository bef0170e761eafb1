"""The page *Network*: nodes by role and state, links by technology and measured busy share, clients, flows, domains.

Links of one technology and one class of busy share are one series of the chart, so that a change of a link sends two
series and not the whole drawing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..state import NetworkState, Topology
from .floor_plan import ASPECT, Point, positions

Series = dict[str, Any]
BOUNDS_PERCENT: Final = (0, 25, 50, 75)
"""Upper bounds of the classes of busy share, but for the last."""


@dataclass(frozen=True, slots=True)
class LinkClass:
    """How links look: ever darker blue and wider for busier ones, so that nobody needs to tell hues apart; a cut link
    is red, and crossed out.
    """

    id: str
    label: str
    colour: str
    width: float


UNKNOWN: Final = LinkClass("unknown", "busy share not measured", "#8a8a8a", 1.0)
DOWN: Final = LinkClass("down", "down", "#d40000", 3.0)
CLASSES: Final = (
    LinkClass("idle", "idle (0 %)", "#8da3b5", 1.2),
    LinkClass("b25", "busy, up to 25 %", "#4a8fc7", 2.0),
    LinkClass("b50", "25 to 50 %", "#1f6cb0", 2.8),
    LinkClass("b75", "50 to 75 %", "#124080", 3.6),
    LinkClass("b100", "75 to 100 %", "#06132e", 4.6),
)
ALL_CLASSES: Final = (*CLASSES, UNKNOWN, DOWN)
STROKES: Final = ("solid", "dashed", "dotted", [10, 3, 2, 3], [14, 4], [4, 8])
ROLES: Final[Mapping[str, tuple[str, str]]] = {
    "gateway": ("diamond", "gateway"),
    "ap": ("roundRect", "access point"),
    "client": ("circle", "client"),
    "switch": ("rect", "switch"),
}
NODE_UP, NODE_DOWN, NODE_UNKNOWN = "#ffffff", "#d40000", "#e4e7ea"
FLOW_COLOUR, DOMAIN_COLOUR = "#e69f00", "#f4dd7e"
CLIENT_COLOUR = "#b3446c"
NODES, CLIENTS = "nodes", "clients"
BEND = 0.06


def link_class(up: object, busy_percent: float | None) -> LinkClass:
    """The class of a link by its row."""
    if up == 0:
        return DOWN
    if busy_percent is None:
        return UNKNOWN
    return CLASSES[min(bisect_left(BOUNDS_PERCENT, busy_percent), len(CLASSES) - 1)]


def technologies(topology: Topology) -> list[str]:
    """All, in the order in which they get strokes."""
    return sorted({link.technology for link in topology.links.values()})


def stroke(technology: str, known: Sequence[str]) -> object:
    """The stroke of a technology's links."""
    return STROKES[known.index(technology) % len(STROKES)]


class Drawing:
    """The chart of one topology; made again if that changes."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.places: Mapping[str, Point] = positions(topology)
        self.technologies = technologies(topology)
        self._bends = _bends(topology, self.technologies)

    def series(self, state: NetworkState) -> dict[str, Series]:
        """All series that everybody sees, by their ids."""
        found = {NODES: self._nodes(state), CLIENTS: self._clients(state)}
        members: dict[tuple[str, str], list[str]] = {}
        for link in self.topology.links.values():
            known = link_class(state.figure("links", link.id, "up"), state.figure("links", link.id, "busy_percent"))
            members.setdefault((link.technology, known.id), []).append(link.id)
        for technology in self.technologies:
            for each in ALL_CLASSES:
                links = members.get((technology, each.id), [])
                found[f"links/{technology}/{each.id}"] = self._links(technology, each, links)
        return found

    def overlay(self, name: str, links: Collection[str], colour: str, width: float) -> Series:
        """Links that are lit: a flow's, or those of an interference domain."""
        return {
            "id": name,
            "type": "lines",
            "coordinateSystem": "cartesian2d",
            "silent": True,
            "z": 1,
            "animation": False,
            "lineStyle": {"color": colour, "width": width, "opacity": 0.85, "cap": "round"},
            "data": [self._line(link) for link in sorted(links) if link in self.topology.links],
        }

    def _links(self, technology: str, of: LinkClass, links: Sequence[str]) -> Series:
        return {
            "id": f"links/{technology}/{of.id}",
            "name": f"{technology}, {of.label}",
            "type": "lines",
            "coordinateSystem": "cartesian2d",
            "z": 4 if of is DOWN else 3,
            "animation": False,
            "lineStyle": {
                "color": of.colour, "width": of.width, "opacity": 1, "type": stroke(technology, self.technologies)
            },
            "emphasis": {"lineStyle": {"width": of.width + 2}},
            "label": {"show": of is DOWN, "position": "middle", "formatter": "✕", "color": DOWN.colour, "fontSize": 18},
            "data": [self._line(link) for link in links],
        }  # fmt: skip

    def _line(self, link: str) -> dict[str, Any]:
        of = self.topology.links[link]
        bend = self._bends.get(link, BEND)
        return {
            "name": link,
            "coords": [self.places[of.source], self.places[of.target]],
            "lineStyle": {"curveness": bend},
        }

    def _nodes(self, state: NetworkState) -> Series:
        placed = {client for client, at in state.live["clients"].items() if any(at.values())}
        data = []
        for node in self.topology.nodes.values():
            fill = NODE_UNKNOWN if node.up is None else NODE_UP if node.up else NODE_DOWN
            symbol = ROLES.get(node.role, ("triangle", node.role))[0]
            style = {"color": fill, "borderColor": CLIENT_COLOUR if node.id in placed else "#222222", "borderWidth": 2}
            data.append({"name": node.id, "value": self.places[node.id], "symbol": symbol, "itemStyle": style})
        return {
            "id": NODES, "name": "nodes", "type": "scatter", "symbolSize": 22, "z": 5, "animation": False,
            "label": {"show": True, "formatter": "{b}", "position": "top", "color": "#111111", "fontSize": 12},
            "data": data,
        }  # fmt: skip

    def _clients(self, state: NetworkState) -> Series:
        """A dot for each interface of a client, beside the node that it is at."""
        dots, beside = [], dict.fromkeys(self.places, 0)
        for client, at in sorted(state.live["clients"].items()):
            for place in at.values():
                if place and place[0] in self.places:
                    x, y = self.places[place[0]]
                    number = beside[place[0]] = beside[place[0]] + 1
                    dots.append({"name": client, "value": [x + 0.03 * ((number - 1) % 6) - 0.05, y - 0.055]})
        return {
            "id": CLIENTS, "name": "clients", "type": "scatter", "symbol": "circle", "symbolSize": 9, "z": 6,
            "animation": False, "itemStyle": {"color": CLIENT_COLOUR, "borderColor": "#ffffff", "borderWidth": 1},
            "data": dots,
        }  # fmt: skip


def _bends(topology: Topology, known: Sequence[str]) -> dict[str, float]:
    """Links between the same nodes lie side by side; the two directions bend to opposite sides."""
    return {one: BEND + 0.09 * known.index(link.technology) for one, link in topology.links.items()}


def options(drawing: Drawing, series: Mapping[str, Series], overlays: Sequence[Series]) -> dict[str, Any]:
    """The whole chart."""
    axis = {"type": "value", "show": False, "min": 0}
    zoom = {"type": "inside", "filterMode": "none"}
    return {
        "animation": False,
        "aria": {"enabled": True, "label": {"description": summary(drawing.topology)}},
        "grid": {"left": 0, "right": 0, "top": 0, "bottom": 0},
        "xAxis": {**axis, "max": ASPECT},
        "yAxis": {**axis, "max": 1},
        "dataZoom": [{**zoom, "xAxisIndex": 0}, {**zoom, "yAxisIndex": 0}],
        "series": [*overlays, *series.values()],
    }


def summary(topology: Topology) -> str:
    """What the picture shows, in words."""
    return f"Network {topology.name}: {len(topology.nodes)} nodes and {len(topology.links)} links."


def changed(old: Mapping[str, Series], new: Mapping[str, Series]) -> list[Series]:
    """Ids and data of the series that differ: what has to be sent."""
    return [{"id": one, "data": of["data"]} for one, of in new.items() if old.get(one, {}).get("data") != of["data"]]


# -- the tables beside the drawing


def figure(value: float | None, unit: str) -> str:
    """For people; what is not measured is not shown as 0."""
    return "not measured" if value is None else f"{value:g} {unit}"


def flow_rows(state: NetworkState) -> list[dict[str, Any]]:
    """A row a flow."""
    return [
        {
            "id": flow,
            "mode": state.figure("flows", flow, "mode"),
            "delivered": figure(state.figure("flows", flow, "delivered_mbps"), "Mb/s"),
            "planned": figure(state.figure("flows", flow, "planned_mbps"), "Mb/s"),
        }
        for flow in sorted(state.live["flows"])
    ]


def flow_title(state: NetworkState, flow: str | None) -> str:
    """Flow and owner, as far as the controller names one; empty without a flow."""
    if flow is None:
        return ""
    at, row = state.columns.get("flows", {}).get("owner"), state.live["flows"].get(flow)
    return f"Flow {flow}" if at is None or row is None else f"Flow {flow}, owner {row[at]}"


def path_rows(state: NetworkState, flow: str) -> list[dict[str, str]]:
    """The paths of a flow with what they carry."""
    return [
        {
            "path": " + ".join(links),
            "delivered": figure(state.figure("paths", path, "delivered_mbps"), "Mb/s"),
            "planned": figure(state.figure("paths", path, "planned_mbps"), "Mb/s"),
            "lost": figure(state.figure("paths", path, "lost_percent"), "%"),
            "delay": figure(state.figure("paths", path, "delay_ms"), "ms"),
        }
        for path, links in sorted(state.flow_paths(flow).items())
    ]


def flow_links(state: NetworkState, flow: str) -> frozenset[str]:
    """Exactly the links of its paths that may carry something: a path without rate stands by."""
    paths = state.flow_paths(flow)
    used = [path for path in paths if state.figure("paths", path, "planned_mbps") != 0]
    return frozenset(link for path in used or paths for link in paths[path])


def domain_of(state: NetworkState, link: str) -> frozenset[str]:
    """Links that can't transmit at the same time as this one."""
    domains = state.documents.get("/interference-domains", {}).get("interference_domains")
    found: list[list[str]] = [one["links"] for one in domains or () if link in one.get("links", ())]
    named = next((of for of in found if of[0] == link), None)
    return frozenset(named or (min(found, key=len) if found else ()))


def link_text(state: NetworkState, link: str) -> list[tuple[str, str]]:
    """Everything of a link, as pairs of words."""
    of = state.topology.links.get(link) if state.topology is not None else None
    if of is None:
        return []

    def value(column: str) -> Any:
        return state.figure("links", link, column)

    return [
        ("link", f"{link}: {of.source} to {of.target} by {of.technology}"),
        ("state", "down" if value("up") == 0 else "up"),
        ("measured rate", figure(value("rate_mbps"), "Mb/s")),
        ("measured busy share", figure(value("busy_percent"), "%")),
        ("planned rate", figure(value("planned_mbps"), "Mb/s")),
        ("planned busy share of its domain", figure(value("planned_busy_percent"), "%")),
        ("capacity", "not known" if value("capacity_mbps") is None else f"{value('capacity_mbps'):g} Mb/s"),
    ]


def legend(topology: Topology) -> list[tuple[str, str, float, object]]:
    """What strokes mean: label, colour, width, stroke."""
    known = technologies(topology)
    of_technology = [(one, "#333333", 2.0, stroke(one, known)) for one in known]
    return [*((of.label, of.colour, of.width, "solid") for of in ALL_CLASSES), *of_technology]
