"""What the dashboard knows of the network: the live document, the topology, events, and 15 minutes of figures.

Pure: documents and the time go in, :class:`Changes` come out. Documents of the controller are checked where they enter:
what has not the expected shape raises :class:`FeedError`, and changes nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hyroads.controller.core.errors import HyroadsError

from .history import MAX_SERIES, History

Document = Mapping[str, Any]
Row = Sequence[Any]
SECTIONS: Final = ("links", "flows", "paths", "clients", "slices")
MAX_EVENTS = 2000
MAX_PLACES = 100
MAX_REASON = 300
MAX_IDS = 20_000
"""Of one section: a controller has fewer."""


class FeedError(HyroadsError):
    """A document is not what a controller sends."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a document has changed: ids by section, whether nodes or links are other ones, and events that came."""

    ids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    topology: bool = False
    connection: bool = False
    documents: frozenset[str] = frozenset()
    events: int = 0
    tick: bool = False
    """A second of figures is complete."""

    def and_then(self, later: Changes) -> Changes:
        """Both, one after the other."""
        sections = self.ids.keys() | later.ids.keys()
        return Changes(
            {section: self.of(section) | later.of(section) for section in sections},
            self.topology or later.topology,
            self.connection or later.connection,
            self.documents | later.documents,
            self.events + later.events,
            self.tick or later.tick,
        )

    def of(self, section: str) -> frozenset[str]:
        """Ids of a section that changed, came or went."""
        return self.ids.get(section, frozenset())


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node. ``up`` is None if it has neither switch nor agent."""

    id: str
    role: str
    position_m: tuple[float, float] | None
    up: bool | None


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """A directed link."""

    id: str
    source: str
    target: str
    technology: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes and links by id."""

    name: str
    version: int
    nodes: Mapping[str, NodeInfo]
    links: Mapping[str, LinkInfo]


NO_TOPOLOGY: Final = Topology("", 0, {}, {})


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened; ``time_s`` is Unix time."""

    id: int
    kind: str
    time_s: float
    document: Document


class NetworkState:
    """The state; ``revision`` rises with every change of it."""

    def __init__(self) -> None:
        self.revision = 0
        self.topology: Topology | None = None
        self.live: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        self.columns: dict[str, dict[str, int]] = {}
        self.sources: Sequence[Sequence[str | None]] = ()
        self.slot: Document = {}
        self.version: int | None = None
        self.wanted_topology: int | None = None
        self.events: deque[EventRow] = deque(maxlen=MAX_EVENTS)
        self.event_count = 0
        self.documents: dict[str, Document] = {}
        self.refusals: dict[str, str] = {}
        """Why the controller does not give a document, by the document's name."""
        self.history = History()
        self.places: dict[str, deque[tuple[float, str, str]]] = {}
        """By client: since when an interface is where."""
        self._links_of: dict[str, list[str]] = {}
        """By path, also of those that are gone and still in the history."""

    # -- what comes in

    def take_live(self, document: object, now_s: float) -> Changes:
        """The live document, or what changed of it; one for another version than ours is an error."""
        found = _mapping(document, "live")
        complete, version = bool(found.get("complete")), _whole(found, "version")
        if not complete and found.get("from") != self.version:
            raise FeedError(f"live: changes since {found.get('from')!r}, but we have {self.version}")
        columns = self._columns(found) if complete else self.columns
        parts = {section: _rows(found, section, columns.get(section, {})) for section in SECTIONS}
        gone = {one: _texts(ids, "gone") for one, ids in _mapping(found.get("gone", {}), "gone").items()}
        slot, topology = _mapping(found.get("slot", {}), "slot"), _whole(found, "topology_version")
        ids = {}
        for section in SECTIONS:
            known = self.live[section]
            left = known.keys() - parts[section].keys() if complete else gone.get(section, ())
            changed = {one for one, row in parts[section].items() if known.get(one) != row}
            changed |= {one for one in left if known.pop(one, None) is not None}
            known.update(parts[section])
            ids[section] = frozenset(changed)
        self.version, self.slot, self.columns, self.wanted_topology = version, slot, columns, topology
        if complete and isinstance(found.get("sources"), list):
            self.sources = found["sources"]
        self._note_places(ids["clients"], now_s)
        self._links_of |= self.paths_with_links(ids["paths"] & self.live["paths"].keys())
        self.history.add(now_s, self._figures())
        if len(self._links_of) > 2 * MAX_SERIES:
            shown = set(self.history.keys("paths"))
            self._links_of = {path: links for path, links in self._links_of.items() if path in shown}
        self.revision += 1
        return Changes(ids={section: of for section, of in ids.items() if of}, tick=True)

    def take_topology(self, document: object) -> Changes:
        """``/topology``."""
        found = _mapping(document, "topology")
        nodes = {one.id: one for one in (_node(each) for each in _list(found, "nodes"))}
        links = {one.id: one for one in (_link(each, nodes) for each in _list(found, "links"))}
        new = Topology(str(found.get("name") or ""), _whole(found, "version"), nodes, links)
        old, self.topology = self.topology, new
        if old is not None and (old.name, old.nodes, old.links) == (new.name, new.nodes, new.links):
            return Changes()
        self.revision += 1
        return Changes(topology=True)

    def take_event(self, number: int, kind: str, document: object) -> Changes:
        """An event. A link's state is known from it before the next live document comes."""
        found = _mapping(document, kind)
        self.events.append(EventRow(number, kind, _figure(found.get("time_s")) or 0.0, found))
        self.event_count += 1
        self.revision += 1
        link, ids = found.get("link"), {}
        row = self.live["links"].get(link) if isinstance(link, str) else None
        if kind in ("link.up", "link.down") and row is not None and "up" in self.columns.get("links", {}):
            at, up = self.columns["links"]["up"], int(kind == "link.up")
            if row[at] != up:
                self.live["links"][str(link)] = [*row[:at], up, *row[at + 1 :]]
                ids = {"links": frozenset({str(link)})}
        return Changes(ids=ids, events=1)

    def take_document(self, name: str, document: object) -> Changes:
        """Another document of the API, by the name it has here."""
        found = _mapping(document, name)
        refused = self.refusals.pop(name, None) is not None
        if self.documents.get(name) == found and not refused:
            return Changes()
        self.documents[name] = found
        self.revision += 1
        return Changes(documents=frozenset({name}))

    def take_refusal(self, name: str, reason: str) -> Changes:
        """The controller does not have this document, or not any more."""
        if self.refusals.get(name) == reason[:MAX_REASON]:
            return Changes()
        self.documents.pop(name, None)
        self.refusals[name] = reason[:MAX_REASON]
        self.revision += 1
        return Changes(documents=frozenset({name}))

    # -- what is asked

    def figure(self, section: str, one: str, column: str) -> Any:
        """A figure of a row by its column's name; None if there is none."""
        row, at = self.live[section].get(one), self.columns.get(section, {}).get(column)
        return None if row is None or at is None else row[at]

    def flow_paths(self, flow: str) -> dict[str, list[str]]:
        """The links of a flow's paths, by the path's id."""
        prefix = f"{flow}/"
        known = [path for path in self.live["paths"] if path.startswith(prefix) and path[len(prefix) :].isdigit()]
        return self.paths_with_links(known)

    def paths_with_links(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """The links of paths that are there, by the path's id."""
        return {path: list(self.figure("paths", path, "links") or ()) for path in paths}

    def links_of(self, path: str) -> list[str]:
        """The links of a path that is there or was; none if it is unknown."""
        return self._links_of.get(path, [])

    def _figures(self) -> dict[tuple[str, str], list[float | None]]:
        rows: dict[tuple[str, str], list[float | None]] = {}
        for section, names in HISTORY_COLUMNS.items():
            at = [self.columns.get(section, {}).get(name) for name in names]
            for one, row in self.live[section].items():
                rows[section, one] = [None if place is None else _figure(row[place]) for place in at]
        return rows

    def _columns(self, document: Document) -> dict[str, dict[str, int]]:
        columns = _mapping(document.get("columns"), "columns")
        return {one: {name: at for at, name in enumerate(_texts(names, one))} for one, names in columns.items()}

    def _note_places(self, clients: frozenset[str], now_s: float) -> None:
        for client in clients:
            at = self.live["clients"].get(client, {})
            known = self.places.setdefault(client, deque(maxlen=MAX_PLACES))
            for interface, place in at.items():
                text = "/".join(place) if place else "nowhere"
                last = next((one for _, of, one in reversed(known) if of == interface), None)
                if last != text:
                    known.append((now_s, interface, text))
        for client in self.places.keys() - self.live["clients"].keys():
            del self.places[client]


HISTORY_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "links": ("rate_mbps", "busy_percent"),
    "flows": ("delivered_mbps", "wanted_mbps", "planned_mbps", "lost_frames_per_s"),
    "paths": ("delivered_mbps", "planned_mbps", "lost_percent", "delay_ms"),
}


def _mapping(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FeedError(f"{place}: expected an object")
    return value


def _list(document: Document, name: str) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list) or len(value) > MAX_IDS:
        raise FeedError(f"{name}: expected a list of at most {MAX_IDS}")
    return value


def _texts(value: object, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise FeedError(f"{place}: expected a list of texts")
    return value


def _whole(document: Document, name: str) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise FeedError(f"{name}: expected a whole number")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _figure(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and _is_number(value) else None


def _rows(document: Document, section: str, columns: Mapping[str, int]) -> dict[str, Any]:
    rows = _mapping(document.get(section, {}), section)
    if len(rows) > MAX_IDS:
        raise FeedError(f"{section}: expected at most {MAX_IDS}")
    check = _CHECKS[section]
    for one, row in rows.items():
        if not check(row, columns):
            raise FeedError(f"{section}.{one[:64]}: not a row of {', '.join(columns) or 'its kind'}")
    return rows


def _is_row(row: object, columns: Mapping[str, int]) -> bool:
    return isinstance(row, list) and len(row) == len(columns)


def _is_path(row: object, columns: Mapping[str, int]) -> bool:
    if not isinstance(row, list) or len(row) != len(columns) or "links" not in columns:
        return False
    links = row[columns["links"]]
    return isinstance(links, list) and all(isinstance(link, str) for link in links)


def _is_client(row: object, _: Mapping[str, int]) -> bool:
    return isinstance(row, dict) and all(
        place is None or (isinstance(place, list) and len(place) == 2 and all(isinstance(one, str) for one in place))
        for place in row.values()
    )


def _is_slice(row: object, columns: Mapping[str, int]) -> bool:
    return isinstance(row, dict) and all(_is_row(one, columns) for one in row.values())


_CHECKS = {"links": _is_row, "flows": _is_row, "paths": _is_path, "clients": _is_client, "slices": _is_slice}


def _node(value: object) -> NodeInfo:
    found = _mapping(value, "node")
    switch, agent, position = found.get("switch"), found.get("agent"), found.get("position_m")
    states = [bool(part[name]) for part, name in ((switch, "connected"), (agent, "up")) if part and name in part]
    if position is not None and not (
        isinstance(position, list) and len(position) == 2 and all(_is_number(one) for one in position)
    ):
        raise FeedError("position_m: expected [x, y]")
    return NodeInfo(
        _text(found, "id"),
        str(found.get("role")),
        None if position is None else (float(position[0]), float(position[1])),
        all(states) if states else None,
    )


def _link(value: object, nodes: Mapping[str, NodeInfo]) -> LinkInfo:
    found = _mapping(value, "link")
    link = LinkInfo(*(_text(found, name) for name in ("id", "from", "to", "technology")))
    if link.source not in nodes or link.target not in nodes:
        raise FeedError(f"link {link.id[:64]}: between nodes that are not there")
    return link


def _text(document: Document, name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise FeedError(f"{name}: expected a text")
    return value
