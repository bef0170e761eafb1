"""What the controllers of neighbouring regions say to each other, checked and worked out. No I/O.

What a region wants of a neighbour is kept as a whole (:class:`Wanted`), and said as what differs from what the same
connection said before.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hyroads.controller.agents.configs import EgressFlow
from hyroads.controller.core.checking import interface_mac
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.interface_addresses import Interface
from hyroads.controller.core.mappings import differing
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import PRODUCTION
from hyroads.controller.core.region_view import RegionView
from hyroads.controller.model.state import DeclaredFlow, Origin, State, TopologyContext
from hyroads.controller.runtime.persistence import parse_flow

MAX_SEGMENTS, MAX_PATHS, MAX_SILENT, MAX_HOLD_MS = 10_000, 255, 10_000, 10_000
MAX_ADDRESSES = 10_000


class RegionError(HyroadsError):
    """A neighbour says what can't be."""


def view_of(context: TopologyContext) -> RegionView:
    """What the controller sees; RegionError if it runs the whole network."""
    if context.view is None:
        raise RegionError("this is not the controller of a region")
    return context.view


# -- what we want


Document = Mapping[str, Any]
Segments = Mapping[str, Mapping[str, Document]]
"""By node and flow."""


@dataclass(frozen=True)
class Wanted:
    """All that a region wants of a neighbour: ends of segments, and which links and border agents are no good.
    ``addresses`` are those that its boxes report of interfaces at links to the neighbour: node, technology, address.

    A region that has just started (``starting``) does not know of its devices yet: it says which segments it planned,
    once it can (None: not yet). A neighbour that has just started, too, goes by that; another one keeps what it has.
    """

    seq: int = 0
    segments: Segments | None = None
    silent: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    starting: bool = True
    addresses: tuple[tuple[str, str, str], ...] = ()

    def document(self, before: Wanted | None) -> dict[str, Any]:
        """A message: all of it, or what differs from what was said ``before``."""
        if self.segments is None:
            return {"type": "starting", "seq": self.seq}
        rest = {"seq": self.seq, "silent": list(self.silent), "away": list(self.away)}
        rest["addresses"] = [list(each) for each in self.addresses]
        if self.starting or before is None or before.starting or before.segments is None:
            kind = "starting" if self.starting else "wanted"
            return {"type": kind, **rest, "segments": [end for of in self.segments.values() for end in of.values()]}
        changed, gone = [], []
        for node in differing(before.segments, self.segments):
            had, has = before.segments.get(node, {}), self.segments.get(node, {})
            for flow in sorted(differing(had, has)):
                if flow in has:
                    changed.append(has[flow])
                else:
                    gone.append([node, flow])
        return {"type": "changed", "since": before.seq, **rest, "segments": changed, "gone": gone}


class SegmentMaker:
    """Ends of segments as they are told; what did not change is the very object of before."""

    def __init__(self, context: TopologyContext) -> None:
        self._view = view_of(context)
        self._node_of_mac = {mac: node for node, mac in context.addressing.host_mac.items()}
        self._flows: dict[str, tuple[DeclaredFlow, Document]] = {}
        self._made: dict[str, dict[str, Document]] = {}
        self._of: dict[str, tuple[Mapping[str, Document], Mapping[str, DeclaredFlow]]] = {}
        self.made = 0
        """How many flows were looked at so far."""

    def segments(self, node: str, ends: Mapping[str, Document], flows: Mapping[str, DeclaredFlow]) -> Segments:
        """By flow: the segments that end at a node, whose agent is to have ``ends``. A flow that is gone is told as it
        was, until its end is gone too.
        """
        had_ends, had_flows = self._of.get(node, ({}, {}))
        if ends is had_ends and flows is had_flows:
            return {node: self._made[node]}
        touched = {flow for flow, end in ends.items() if had_ends.get(flow) != end} if ends is not had_ends else set()
        touched |= {flow for flow in differing(had_flows, flows) if flow in ends}
        gone = had_ends.keys() - ends.keys()
        self._of[node] = (ends, flows)
        made = self._made.setdefault(node, {})
        if touched or gone:
            made = self._made[node] = {flow: told for flow, told in made.items() if flow not in gone}
        for flow in touched:
            told = self._told(node, flow, ends[flow], flows.get(flow))
            if told is not None and made.get(flow) != told:
                made[flow] = told
        self._forget(gone)
        return {node: made}

    def _told(self, node: str, flow: str, end: Document, declared: DeclaredFlow | None) -> Document | None:
        self.made += 1
        known = self._flows.get(flow)
        if declared is not None and (known is None or known[0] is not declared):
            whole = self._view.whole(declared.spec, self._node_of_mac)
            known = declared, flow_document(replace(whole, slice=PRODUCTION, group=None, paths=()))
            self._flows[flow] = known
        if known is None:
            return None
        what = {"number": end["number"], "paths": end["paths"], "ordered": end["reorder"]}
        return {"node": node, "end": {**what, "max_hold_ms": end["max_hold_ms"]}, "flow": known[1]}

    def _forget(self, flows: Iterable[str]) -> None:
        for flow in flows:
            if not any(flow in made for made in self._made.values()):
                self._flows.pop(flow, None)


# -- what a neighbour wants


@dataclass(frozen=True)
class Told:
    """What a neighbour wants of this region. ``flows`` go on from here, ``arriving`` are the ends by own node."""

    seq: int
    flows: Mapping[str, DeclaredFlow]
    arriving: Mapping[str, Mapping[str, EgressFlow]]
    silent: frozenset[str]
    away: frozenset[str] = frozenset()
    addresses: Mapping[Interface, str] = field(default_factory=dict)


def parse_wanted(
    document: Mapping[str, Any], sender: str, context: TopologyContext, state: State, before: Told | None = None
) -> Told:
    """What a neighbour says, checked; ``before`` is what it said last. RegionError or ConfigError."""
    view = view_of(context)
    segments, gone = document.get("segments"), document.get("gone", [])
    if not isinstance(segments, list) or len(segments) > MAX_SEGMENTS:
        raise RegionError(f"expected segments, {MAX_SEGMENTS} at most")
    flows: dict[str, DeclaredFlow] = {}
    arriving: dict[str, dict[str, EgressFlow]] = {}
    if document.get("type") == "changed":
        if before is None or document.get("since") != before.seq:
            raise RegionError("expected all that is wanted: what changed follows something else")
        flows = dict(before.flows)
        arriving = {node: dict(ends) for node, ends in before.arriving.items()}
        for node, name in _gone(gone, sender, view):
            flows.pop(name, None)
            arriving.get(node, {}).pop(name, None)
    for segment in segments:
        node, name, end, onward = _segment(segment, sender, context, state)
        arriving.setdefault(node, {})[name] = end
        flows.pop(name, None)
        if onward is not None:
            flows[name] = DeclaredFlow(onward, Origin.REGION)
    if sum(map(len, arriving.values())) > MAX_SEGMENTS:
        raise RegionError(f"expected segments, {MAX_SEGMENTS} at most")
    links = {link.id: link for link in context.network.links}
    silent = _names(document.get("silent"), "the ids of silent links")
    unknown = [link for link in silent if link not in links]
    if unknown:
        raise RegionError(f"{unknown[0][:64]!r} is no link")
    away = frozenset(_names(document.get("away", []), "the nodes whose agents are away"))
    theirs = frozenset(out.target for out, _ in view.pairs.get(sender, ()))
    seq = document.get("seq", 0)
    ends = {node: of for node, of in arriving.items() if of}
    addresses = _addresses(document.get("addresses", []), border_interfaces(context, sender))
    return Told(seq, flows, ends, frozenset(silent) & links_to(context, sender), away & theirs, addresses)


def _addresses(entries: object, interfaces: Container[Interface]) -> dict[Interface, str]:
    if not isinstance(entries, list) or len(entries) > MAX_ADDRESSES:
        raise RegionError(f"expected addresses, {MAX_ADDRESSES} at most")
    found = {}
    for entry in entries:
        match entry:
            case [str(node), str(technology), str(text)] if (node, technology) in interfaces and (
                mac := interface_mac(text)
            ) is not None:
                found[node, technology] = mac
            case _:
                raise RegionError("expected addresses of interfaces at the border as node, technology and address")
    return found


def border_interfaces(context: TopologyContext, region: str) -> frozenset[Interface]:
    """The interfaces of a region at links between it and this one."""
    of, name = view_of(context).region_of, view_of(context).name
    ends = ((link.source, link.target, link.technology) for link in context.network.links)
    pairs = [((a, k), (b, k)) for a, b, k in ends if {of[a], of[b]} == {name, region}]
    return frozenset(end for pair in pairs for end in pair if of[end[0]] == region)


def _segment(
    segment: object, sender: str, context: TopologyContext, state: State
) -> tuple[str, str, EgressFlow, Any | None]:
    view = view_of(context)
    match segment:
        case {"node": str(node), "end": dict(end), "flow": dict(flow)}:
            pass
        case _:
            raise RegionError("expected a segment with node, end and flow")
    if node not in view.ways_in.get(sender, ()) or not context.addressing.has_agent(node):
        raise RegionError(f"{node[:64]!r} is no node at a border with an agent")
    spec = parse_flow(flow, context.network, f"region {sender}")
    there, here = view.region_of[spec.source], view.region_of[spec.target]
    if view.exits.get(there) != sender:
        raise RegionError(f"flow {spec.id[:64]!r} comes from {there}, to which no way leads by {sender}")
    if here != view.name and view.exits.get(here, sender) == sender:
        raise RegionError(f"flow {spec.id[:64]!r} goes to {here}, to which no way leads but back to {sender}")
    name = view.imported_id(spec.id, sender, node)
    if (known := state.flows.get(name)) is not None and known.origin is not Origin.REGION:
        raise RegionError(f"a flow {name[:64]!r} is declared here")
    onward = view.onward(spec, sender, node, context.addressing.host_mac) if spec.target != node else None
    return node, name, _end(end, name, view.ranges[sender]), onward


def _gone(entries: object, sender: str, view: RegionView) -> Iterable[tuple[str, str]]:
    if not isinstance(entries, list) or len(entries) > MAX_SEGMENTS:
        raise RegionError("expected gone segments as node and flow")
    for entry in entries:
        match entry:
            case [str(node), str(flow)]:
                yield node, view.imported_id(flow, sender, node)
            case _:
                raise RegionError("expected gone segments as node and flow")


def _names(value: object, what: str) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_SILENT or not all(isinstance(name, str) for name in value):
        raise RegionError(f"expected {what}")
    return value


def _end(document: Mapping[str, Any], name: str, numbers: tuple[int, int]) -> EgressFlow:
    match document:
        case {"number": int(number), "paths": list(paths), "max_hold_ms": int(hold_ms), "ordered": bool(ordered)} if (
            numbers[0] <= number <= numbers[1]
            and len(paths) <= MAX_PATHS
            and all(type(path) is int and 0 <= path <= MAX_PATHS for path in paths)
            and 0 <= hold_ms <= MAX_HOLD_MS
        ):
            return EgressFlow(number, name, tuple(paths), hold_ms, ordered)
    raise RegionError("expected the end of a segment with number, paths, max_hold_ms and ordered")


def links_to(context: TopologyContext, region: str) -> frozenset[str]:
    """Own links to a neighbour."""
    view = view_of(context)
    ends = ((link.id, view.region_of[link.source], view.region_of[link.target]) for link in context.network.links)
    return frozenset(link for link, source, target in ends if (source, target) == (view.name, region))
