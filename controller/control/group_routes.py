"""Paths of flows that are in one group as flows come, go and lose their paths (docs/explanation/routing.md). Pure.

Who is there is disturbed as little as possible:

    a flow comes         the others stay, or leave some of their paths to it if they would share a bottleneck with it;
                         they get other paths only if the group gains significantly
    a flow goes          the others stay
    a flow's paths die   it gets others at once, around those of the others, which stay
    capacities change    flows that the change affects get other paths if the group gains significantly

How paths are chosen is told in :mod:`hyroads.controller.core.flow_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.flow_groups import GroupFlow, GroupPaths, May
from hyroads.controller.core.network import Network

Choose = Callable[[tuple[GroupFlow, ...]], GroupPaths]
"""Chooses the paths of a group's flows."""
Paths = tuple[PathName, ...]


class Since(Enum):
    """How a flow comes to its paths: it is new in its group, lost all that it had, or has them still.

    ``FIXED`` are not the planner's to change: they are declared, a bandit's, or those of a handover.
    """

    NEW = "new"
    LOST = "lost"
    BEFORE = "before"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Member:
    """A flow of a group: node ids of its ends, and its paths over live links (link ids)."""

    source: str
    target: str
    paths: Paths
    since: Since


def joined(network: Network, members: Mapping[str, Member], choose: Choose, gain: float) -> dict[str, Paths]:
    """Paths of the members of one group (flow id -> member) of which some are new or lost theirs; all of them.

    ``gain`` is the share by which the group's total has to rise for flows that have paths to get others.
    """
    if len(members) < 2 or not any(member.since in _WITHOUT for member in members.values()):
        return {}
    comes = any(member.since is Since.NEW for member in members.values())
    found = choose(_flows(network, members, May.YIELD if comes else May.STAY))
    if comes and any(member.since is Since.BEFORE for member in members.values()):
        freely = choose(_flows(network, members, May.MOVE))
        if freely.total_mbps > (1 + gain) * found.total_mbps:
            found = freely
    return _named(network, members, found)


def gained(
    network: Network, members: Mapping[str, Member], affected: Collection[str], choose: Choose, gain: float
) -> dict[str, Paths]:
    """Paths of the members of one group if those that a change affects may move and the group gains enough by it.

    Empty if everything stays. All paths are over live links.
    """
    moving = {flow for flow, member in members.items() if flow in affected and member.since is not Since.FIXED}
    if not moving:
        return {}
    now = choose(_flows(network, members, May.STAY))
    flows = zip(members, _flows(network, members, May.STAY), strict=True)
    found = choose(tuple(GroupFlow(f.source, f.target, f.paths) if flow in moving else f for flow, f in flows))
    if found.total_mbps <= (1 + gain) * now.total_mbps:
        return {}
    return _named(network, members, found)


_WITHOUT = (Since.NEW, Since.LOST)


def _flows(network: Network, members: Mapping[str, Member], there: May) -> tuple[GroupFlow, ...]:
    """The members for the planner; ``there`` says what those may do that have their paths from before."""
    index = network.link_index
    may = {Since.NEW: May.MOVE, Since.LOST: May.MOVE, Since.BEFORE: there, Since.FIXED: May.STAY}
    found = []
    for member in members.values():
        paths = () if member.since in _WITHOUT else member.paths
        indices = tuple(tuple(index[link] for link in path) for path in paths)
        found.append(GroupFlow(member.source, member.target, indices, may[member.since]))
    return tuple(found)


def _named(network: Network, members: Mapping[str, Member], found: GroupPaths) -> dict[str, Paths]:
    names = (tuple(tuple(network.links[link].id for link in path) for path in paths) for paths in found.paths)
    return dict(zip(members, names, strict=True))
