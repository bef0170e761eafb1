"""The page *Flow*: what a flow delivered, wanted and was planned to get over time; its paths; loss and delay; CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hyroads.controller.core.csv_text import csv_text

from ..state import HISTORY_COLUMNS, NetworkState

RECENT_TICKS = 60
"""The newest points of a curve are sent each second, all others once a minute."""
# Okabe and Ito, "Color Universal Design" (2008): told apart by colour-blind people, too.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
Points = list[tuple[float, float | None]]
Rows = Sequence[tuple[float, Sequence[float | None]]]


@dataclass(frozen=True, slots=True)
class Curve:
    """A named curve; ``points`` are Unix time in s and value, None where nothing was measured."""

    name: str
    points: Points
    colour: str
    dash: str = "solid"


@dataclass(frozen=True, slots=True)
class Graph:
    """Curves over time with one unit."""

    id: str
    title: str
    unit: str
    curves: Sequence[Curve]


def flows(state: NetworkState) -> list[str]:
    """All that are there, and those that were within the history."""
    return sorted({*state.live["flows"], *state.history.keys("flows")})


def graphs(state: NetworkState, flow: str, now_s: float, unix_s: float) -> list[Graph]:
    """All graphs of a flow. ``unix_s`` is Unix time at ``now_s``."""
    of_flow = state.history.rows(("flows", flow), now_s)
    paths = sorted(one for one in state.history.keys("paths") if one.rpartition("/")[0] == flow)
    of_paths = {path: state.history.rows(("paths", path), now_s) for path in paths}
    offset_s = unix_s - now_s

    def curve(
        name: str, rows: Sequence[tuple[float, Sequence[float | None]]], of: str, column: str, *look: str
    ) -> Curve:
        at = HISTORY_COLUMNS[of].index(column)
        return Curve(name, [(round(time_s + offset_s, 2), _short(row[at])) for time_s, row in rows], *look)

    def each(column: str) -> list[Curve]:
        return [
            curve(_path_name(state, path), of_paths[path], "paths", column, COLOURS[number % len(COLOURS)])
            for number, path in enumerate(paths)
        ]

    rates = [
        curve("delivered", of_flow, "flows", "delivered_mbps", COLOURS[0]),
        curve("wanted", of_flow, "flows", "wanted_mbps", COLOURS[2], "dotted"),
        curve("theory (planned)", of_flow, "flows", "planned_mbps", COLOURS[1], "dashed"),
    ]
    return [
        Graph("rate", "Rate", "Mb/s", rates),
        Graph("paths", "Delivered by path", "Mb/s", each("delivered_mbps")),
        Graph("loss", "Loss by path", "%", each("lost_percent")),
        Graph("delay", "Delay by path", "ms", each("delay_ms")),
    ]


def _path_name(state: NetworkState, path: str) -> str:
    links = state.links_of(path)
    return " + ".join(links) if links else f"path {path.rpartition('/')[2]}"


def _short(value: float | None) -> float | None:
    """History has single precision."""
    return None if value is None else float(f"{value:.5g}")


def options(graph: Graph) -> dict[str, Any]:
    """The chart of a graph, without data."""
    return {
        "animation": False,
        "aria": {"enabled": True, "label": {"description": f"{graph.title} in {graph.unit} over 15 minutes"}},
        "grid": {"left": 55, "right": 15, "top": 45, "bottom": 28},
        "legend": {"top": 0, "type": "scroll"},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "time"},
        "yAxis": {"type": "value", "name": graph.unit, "min": 0},
        "series": [],
    }


def series(graph: Graph, *, whole: bool) -> list[dict[str, Any]]:
    """Two series for a curve, which meet in a point: what is old enough not to be sent again, and the rest."""
    found = []
    for curve in graph.curves:
        # The boundary stays where it is for a minute, however often it is looked at.
        parts = {"recent": curve.points[-(_recent(curve.points) + 1) :]}
        if whole:
            parts["past"] = curve.points[: len(curve.points) - _recent(curve.points)]
        for part, points in parts.items():
            found.append(
                {
                    "id": f"{curve.name}/{part}",
                    "name": curve.name,
                    "type": "line",
                    "showSymbol": False,
                    "itemStyle": {"color": curve.colour},
                    "lineStyle": {"color": curve.colour, "type": curve.dash, "width": 2},
                    "data": [[round(1000 * time_s), value] for time_s, value in points],
                }
            )
    return found


def _recent(points: Points) -> int:
    """How many points are of the current minute."""
    if not points:
        return 0
    begins_s = points[-1][0] // RECENT_TICKS * RECENT_TICKS
    return next((number for number, (time_s, _) in enumerate(reversed(points)) if time_s < begins_s), len(points))


def minute(graph: Graph) -> int:
    """Changes when the older points have to be sent again."""
    return int(max((curve.points[-1][0] for curve in graph.curves if curve.points), default=0.0) // RECENT_TICKS)


def csv_of(found: Sequence[Graph]) -> str:
    """All curves as columns, a row for each time; empty where nothing was measured."""
    columns: dict[str, Mapping[float, float | None]] = {
        f"{graph.id}: {curve.name} ({graph.unit})": dict(curve.points) for graph in found for curve in graph.curves
    }
    times = sorted({time_s for points in columns.values() for time_s in points})
    rows = ([f"{time_s:.2f}", *(points.get(time_s) for points in columns.values())] for time_s in times)
    return csv_text(["unix_time_s", *columns], rows)
