"""Live multicast sessions: declared sessions and the network -> trees, and what switches are told of them. Pure.

    spec, hosts  ->  core session (trees)  ->  plan by names  ->  tree with label, branch per switch  ->  rollout

Each version of a source tree has a label of its own, so that every message takes exactly one of them. Its switches
learn it first; once all have confirmed, the edge of the source writes the new label; the old one stays until what is
behind it has arrived (the two-phase update of Reitblatt, Foster, Rexford, Schlesinger and Walker, "Abstractions for
network update", SIGCOMM 2012). Nothing remembers how far a change has come but what was told last, so that the next
change may overtake it at any moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hyroads.controller.core.addressing import hashed
from hyroads.controller.core.closed_loop import GroupAirtime
from hyroads.controller.core.interface_graph import FloatArray
from hyroads.controller.core.multicast import Media, Tree
from hyroads.controller.core.multicast_session import Session, adapted, refreshed
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.sessions import SessionSpec
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.intents import AttachedClient, SessionEntry, SessionMembers, SwitchIntent, TreeBranch
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.sessions import Names, RootedTree, TreePlan, rooted, tree_plan

DRAIN_S = 1.0
"""A message is delivered long before: queues of the media hold some hundred milliseconds."""

Confirmed = Callable[[str, int], bool]
"""Whether the switch of a node has confirmed the branch of a label (it is on the label's tree)."""
Enters = Callable[[RootedTree], bool]
"""Whether frames may enter a tree at the edge of its source, as far as that has confirmed; true if it is not there."""


@dataclass(frozen=True, slots=True)
class Retiring:
    """A tree that nothing enters any more; ``until_s`` is None while its edge has not confirmed that."""

    tree: RootedTree
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """The trees of one source: what is wanted, what frames enter, and what has to stay for a while.

    ``current`` without ``wanted``: the source leaves.
    """

    wanted: RootedTree | None = None
    current: RootedTree | None = None
    retiring: tuple[Retiring, ...] = ()

    @property
    def trees(self) -> Iterator[RootedTree]:
        """All trees whose branches switches shall have."""
        named = {tree.label: tree for tree in (self.wanted, self.current) if tree is not None}
        yield from named.values()
        yield from (old.tree for old in self.retiring if old.tree.label not in named)

    @property
    def is_over(self) -> bool:
        """Whether nothing of the source is left."""
        return self.wanted is None and self.current is None and not self.retiring

    @property
    def is_told(self) -> bool:
        """Whether the edge of the source was told to use the tree that is wanted, or none if none is."""
        wanted, current = self.wanted, self.current
        return current is None if wanted is None else current is not None and current.label == wanted.label


def advanced(rollout: Rollout, confirmed: Confirmed, enters: Enters, now_s: float) -> Rollout:
    """What may be told now, given what switches have confirmed."""
    wanted, current, retiring = rollout.wanted, rollout.current, rollout.retiring
    may_enter = wanted is not None and all(confirmed(node, wanted.label) for node in wanted.branches)
    is_new = wanted is not None and (current is None or current.label != wanted.label)
    if current is not None and (wanted is None or (is_new and may_enter)):
        retiring = (*retiring, Retiring(current))
        current = None
    if is_new and may_enter:
        current = wanted
    settled = (
        old if old.until_s is not None or enters(old.tree) else replace(old, until_s=now_s + DRAIN_S)
        for old in retiring
        if current is None or old.tree.label != current.label
    )
    alive = tuple(old for old in settled if old.until_s is None or now_s < old.until_s)
    result = Rollout(wanted, current, alive)
    return rollout if result == rollout else result


@dataclass(frozen=True, slots=True)
class Host:
    """A participant and where it is: ``node`` is the node whose switch delivers to it, or the plain client that it is;
    None: nowhere that is known. ``technology``: it is a station on that medium of the node that no file names.
    """

    name: str
    is_source: bool
    node: str | None = None
    mac: str | None = None
    ip: str | None = None
    technology: str | None = None


@dataclass(frozen=True, slots=True)
class LabelledPlan:
    """A tree as it was told to the switches: what the state file keeps of it."""

    plan: TreePlan
    label: int


@dataclass(frozen=True)
class World:
    """What sessions are planned on."""

    context: TopologyContext
    media: Media
    places: Mapping[str, Place]

    def client(self, host: Host) -> AttachedClient | None:
        """A host on a medium, as its access point sees it; None if it is at an access port, or nowhere."""
        addressing, node = self.context.addressing, host.node
        if node is None or host.mac is None:
            return None
        place = self.places.get(node) if host.technology is None else Place(node, host.technology)
        if place is None or (place.node, place.technology) not in addressing.interface_name:
            return None
        # Its label is not needed here: nothing is sent to it from elsewhere.
        return AttachedClient(host.mac, addressing.interface_name[place.node, place.technology], 0)

    def home(self, node: str) -> str:
        """The node whose switch delivers to a node of a tree."""
        return self.places[node].node if node in self.places else node

    def rooted(self, plan: TreePlan, label: int) -> RootedTree | None:
        """What the switches do for a tree."""
        context = self.context
        return rooted(Names(context.network, context.addressing, self.places), plan, label)


@dataclass(frozen=True)
class LiveSession:
    """A declared session, its hosts, its trees, and how far these are told; ``lost``: by source, who is not reached."""

    spec: SessionSpec
    hosts: tuple[Host, ...] = ()
    session: Session = field(default_factory=lambda: Session(""))
    rollouts: Mapping[str, Rollout] = field(default_factory=dict)
    lost: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def labels(self) -> frozenset[int]:
        """All labels in use."""
        return frozenset(tree.label for rollout in self.rollouts.values() for tree in rollout.trees)

    @property
    def is_told(self) -> bool:
        """Whether the edges of all sources were told of the trees that are wanted."""
        return all(rollout.is_told for rollout in self.rollouts.values())

    @property
    def plans(self) -> dict[str, LabelledPlan]:
        """The wanted tree of every source."""
        wanted = {source: rollout.wanted for source, rollout in self.rollouts.items()}
        return {source: LabelledPlan(tree.plan, tree.label) for source, tree in wanted.items() if tree is not None}

    def sources_at(self, node: str) -> tuple[Host, ...]:
        """The sources at a node."""
        found = (host for host in self.hosts if host.node == node and host.is_source and host.mac is not None)
        return tuple({host.mac: host for host in found}.values())


Lost = Mapping[str, frozenset[str]]
"""By source: the nodes that it does not reach."""


def planned(world: World, live: LiveSession, taken: Collection[int], *, quick: bool) -> LiveSession:
    """The session on the network as it is now, for the hosts that it has now; ``taken`` are labels of others."""
    session, lost = trees_for(world, live, quick)
    return replace(with_trees(world, live, session, taken), lost=lost)


def trees_for(world: World, live: LiveSession, quick: bool) -> tuple[Session, Lost]:
    """Trees on the network as it is now, with as little change as possible. The part that may take long."""
    nodes = {host.node for host in live.hosts if host.node is not None}
    sources = {host.node for host in live.hosts if host.node is not None and host.is_source}
    return adapted(world.media, live.session, sources, nodes, quick=quick)


def better_tree(world: World, live: LiveSession, source: str) -> Tree:
    """The tree of a source made anew, if that saves a lot. Takes long in large networks."""
    alone = Session(live.session.id, {source: live.session.trees[source]})
    return refreshed(world.media, alone).trees[source]


def with_better_trees(
    world: World, live: LiveSession, trees: Mapping[str, Tree], taken: Collection[int]
) -> LiveSession:
    """The session with other trees of some sources."""
    session = live.session
    return with_trees(world, live, Session(session.id, {**session.trees, **trees}, session.rate_mbps), taken)


def with_trees(world: World, live: LiveSession, session: Session, taken: Collection[int]) -> LiveSession:
    """The session with these trees; rollouts of trees that are what they were stay."""
    receivers = {host.node for host in live.hosts if host.node is not None}
    used = {*taken, *live.labels}
    rollouts = {}
    for source, tree in session.trees.items():
        # Hosts behind one access port hear each other without their switch.
        plan = tree_plan(world.media, tree, receivers - {source})
        before = live.rollouts.get(source, Rollout())
        rollouts[source] = replace(before, wanted=_labelled(world, live.spec.id, plan, before, used))
        used |= {tree.label for tree in rollouts[source].trees}
    for source, before in live.rollouts.items():
        if source not in rollouts and not before.is_over:
            rollouts[source] = replace(before, wanted=None)
    return replace(live, session=session, rollouts=rollouts)


def _labelled(world: World, session: str, plan: TreePlan, before: Rollout, used: Collection[int]) -> RootedTree | None:
    """A tree with a label: that which it has if nothing of it differs, else a hash of what it is that is free."""
    fresh = world.rooted(plan, 0)
    if fresh is None:
        return None
    for old in before.trees:
        if old.plan == plan and _shape(old) == _shape(fresh):
            return old
    name = ("tree", session, plan.source, json.dumps([plan.transmissions, sorted(plan.receivers)]))
    attempt, labels = 0, world.context.labels.all
    while (label := hashed(name, attempt, world.context.labels.secret)) in used or label in labels:
        attempt += 1
    return world.rooted(plan, label)


def _shape(tree: RootedTree) -> tuple[str, dict[str, TreeBranch]]:
    return tree.root, {node: replace(branch, label=0) for node, branch in tree.branches.items()}


def restored(world: World, spec: SessionSpec, plans: Mapping[str, LabelledPlan]) -> LiveSession:
    """A session as an earlier controller told it: its trees count as in force until another one is."""
    rollouts = {}
    for source, saved in plans.items():
        tree = world.rooted(saved.plan, saved.label)
        if tree is not None:
            rollouts[source] = Rollout(tree, tree)
    index = world.context.network.link_index
    links = {source: [index[link] for link in saved.plan.links] for source, saved in plans.items()}
    return LiveSession(spec, session=Session.of_links(spec.id, world.context.network, links), rollouts=rollouts)


def forgotten(live: LiveSession) -> LiveSession:
    """A session that shall end: no trees are wanted any more."""
    rollouts = {source: replace(rollout, wanted=None) for source, rollout in live.rollouts.items()}
    return replace(live, hosts=(), session=Session(live.spec.id), rollouts=rollouts)


def stepped(live: LiveSession, confirmed: Confirmed, enters: Enters, now_s: float) -> LiveSession:
    """What may be told now; the same object if nothing else than before."""
    after = {source: advanced(rollout, confirmed, enters, now_s) for source, rollout in live.rollouts.items()}
    same = all(after[source] is rollout for source, rollout in live.rollouts.items())
    if same and not any(rollout.is_over for rollout in after.values()):
        return live
    return replace(live, rollouts={source: rollout for source, rollout in after.items() if not rollout.is_over})


# -- what switches are told


@dataclass(frozen=True)
class SentRules:
    """What one switch is told of sessions."""

    branches: tuple[TreeBranch, ...] = ()
    entries: tuple[SessionEntry, ...] = ()
    members: tuple[SessionMembers, ...] = ()
    hears_reports: bool = False

    def added_to(self, intent: SwitchIntent) -> SwitchIntent:
        """The intent with these."""
        return replace(
            intent,
            branches=self.branches,
            entries=self.entries,
            members=self.members,
            hears_reports=self.hears_reports,
        )


def sent_of(world: World, sessions: Iterable[LiveSession]) -> dict[str, SentRules]:
    """By node, for all switches."""
    branches: dict[str, list[TreeBranch]] = {}
    entries: dict[str, list[SessionEntry]] = {}
    members: dict[str, list[SessionMembers]] = {}
    sessions = tuple(sessions)
    for live in sessions:
        here = _members(world, live)
        for node, some in here.items():
            members.setdefault(node, []).append(some)
        for source, rollout in live.rollouts.items():
            for tree in rollout.trees:
                for node, branch in tree.branches.items():
                    branches.setdefault(node, []).append(branch)
            if rollout.current is not None:
                found = _entries(world, live, source, rollout.current, here.get(rollout.current.root))
                entries.setdefault(rollout.current.root, []).extend(found)
        if live.session.trees and live.is_told:
            # The session has begun: what others send to its group goes nowhere.
            for node in world.context.addressing.dpid:
                entries.setdefault(node, []).append(SessionEntry(_match(live)))
    hears = any(live.spec.membership for live in sessions)
    return {
        node: SentRules(
            tuple(branches.get(node, ())), tuple(entries.get(node, ())), tuple(members.get(node, ())), hears
        )
        for node in world.context.addressing.dpid
    }


def _match(live: LiveSession, source: str | None = None) -> Match:
    return Match(eth_src=source, **live.spec.group.match)  # type: ignore[arg-type]


def _members(world: World, live: LiveSession) -> dict[str, SessionMembers]:
    """Who gets messages, by the node whose switch delivers them."""
    access: dict[str, tuple[str, ...]] = {}
    clients: dict[str, dict[str, AttachedClient]] = {}
    for host in live.hosts:
        if host.node is None:
            continue
        client = world.client(host)
        if client is not None:
            clients.setdefault(world.home(host.node), {})[client.mac] = client
        elif host.node in world.context.addressing.access_port:
            access[host.node] = (world.context.addressing.access_port[host.node],)
    return {
        node: SessionMembers(_match(live), access.get(node, ()), tuple(clients.get(node, {}).values()))
        for node in sorted({*access, *clients})
    }


def _entries(
    world: World, live: LiveSession, source: str, tree: RootedTree, members: SessionMembers | None
) -> Iterable[SessionEntry]:
    branch = tree.branches[tree.root]
    return [
        SessionEntry(_match(live, host.mac), branch, members, world.client(host)) for host in live.sources_at(source)
    ]


# -- airtime


Rates = Mapping[tuple[str, str], float]
"""Mb/s that goes over the media, by session and source node."""


def group_airtime(
    media: Media, sessions: Iterable[LiveSession], measured_mbps: Rates, promised_mbps: Mapping[str, float]
) -> GroupAirtime:
    """What all sessions take: rates promised or declared, or measured ones where these are more."""
    count = len(media.network.links)
    reserved, own = np.zeros(count), np.zeros(count)
    for live in sessions:
        least = max(live.spec.rate_mbps or 0.0, promised_mbps.get(live.spec.id, 0.0))
        for source, tree in live.session.trees.items():
            measured = measured_mbps.get((live.spec.id, source), 0.0)
            reserved += max(least, measured) * finite(media.domain_airtime(tree.links))
            for sent in media.transmissions(tree.links):
                if np.isfinite(sent.airtime_s_per_mb):
                    own[sent.links[0]] += measured * sent.airtime_s_per_mb
    return GroupAirtime(reserved, own)


def airtime_per_mbps(media: Media, live: LiveSession) -> FloatArray:
    """Share of every link's domain, float64[L], per Mb/s that every source sends."""
    total = np.zeros(len(media.network.links))
    for tree in live.session.trees.values():
        total += finite(media.domain_airtime(tree.links))
    return total


def finite(values: FloatArray) -> FloatArray:
    """A link that has gone since the tree was made takes nothing."""
    return np.where(np.isfinite(values), values, 0.0)
