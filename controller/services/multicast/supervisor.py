"""Plans the trees of multicast sessions on the live network, and adds them to what switches shall do.

It works in the event loop. Before switches are sent anything, ``follow`` takes in changes of the network and what
switches confirmed; ``added_to`` adds the rules of sessions to the intent of a switch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from hyroads.controller.control import sessions as control
from hyroads.controller.control.live import inline
from hyroads.controller.control.live_network import LiveNetwork
from hyroads.controller.control.sessions import Host, LiveSession, SentRules, World
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.mappings import differing
from hyroads.controller.core.multicast import GroupRate, Media, Tree
from hyroads.controller.core.services.sessions import SessionSpec
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.pending_names import START, switch_name
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.ofp.sessions import RootedTree
from hyroads.controller.services.port import ControllerPort
from hyroads.rest.contract import Document, NotFoundError, TooBusyError

from .documents import Saved, from_saved, to_save

LOG = logging.getLogger("hyroads.sessions")
# On networks with so many links trees are worked out in a thread of their own.
LARGE_FROM_LINKS = 200
# With so many links times participants exchanges of branches take too long for somebody who waits: they follow later.
QUICK_FROM = 200
IMPROVE_AFTER_S = 2.0
# Rests so many times as long as it has worked.
IDLE_SHARE = 3.0

_NOTHING = SentRules()

Find = Callable[[str], Host | None]
"""The host of a name (node id, MAC or IP), where it is now; None if nobody knows it."""


class SessionSupervisor:
    """One per controller; everything of it runs in green threads of one thread of the system."""

    def __init__(self, port: ControllerPort, find: Find, *, group_rate: GroupRate = GroupRate.NEIGHBOURS) -> None:
        self._port = port
        self._find = find
        self._group_rate = group_rate
        self._context = port.context
        self._saved: dict[str, Saved] = {}
        self._documents: dict[str, Document] = {}
        self.sessions: dict[str, LiveSession] = {}
        """All that are declared, as they are now."""
        self._ending: dict[str, LiveSession] = {}
        self._world: World | None = None
        self._network: LiveNetwork | None = None
        self._told: dict[str, SentRules] = {}
        self.changed_nodes: set[str] = set()
        """Nodes for which :meth:`added_to` may give something else than before; whoever asks it removes them."""
        self._told_of: tuple[LiveSession, ...] = ()
        self._intents: dict[str, tuple[SwitchIntent, SentRules, SwitchIntent]] = {}
        self.rates: control.Rates = {}
        """What sources were measured to send."""
        self._promised: Mapping[str, float] = {}
        self._improving = False
        self._replanning = False
        # Trees of large networks take long: they are worked out in a thread of their own, one session at a time.
        self._is_large = len(self._context.network.links) >= LARGE_FROM_LINKS
        self._in_thread = shim.in_thread if self._is_large else inline
        self._planning = shim.new_lock()
        self._count_endings = count(1)

    # -- the state file

    def restore(self, documents: object) -> list[ConfigError]:
        """Takes in what an earlier controller saved; what is wrong with some of it."""
        problems = []
        taken: set[int] = set()
        for document in documents if isinstance(documents, list) else ():
            try:
                saved = from_saved(document, self._context.network, "state file")
            except ConfigError as error:
                problems.append(error)
                continue
            spec, plans, hosts = saved
            if any(spec.id == other.id or spec.group.meets(other.group) for other, _, _ in self._saved.values()):
                problems.append(ConfigError("state file", "sessions", f"{spec.id!r} or its group is there twice"))
                continue
            # A label is that of one tree. Trees that are planned anew get new ones.
            labels = [plan.label for plan in plans.values()]
            are_distinct = len(set(labels)) == len(labels) and not taken.intersection(labels)
            taken.update(labels)
            self._saved[spec.id] = (spec, plans if are_distinct else {}, hosts)
            self._documents[spec.id] = document
        return problems

    def become(self, documents: object) -> list[ConfigError]:
        """Sessions are those that another controller, which leads, has saved; what is wrong with some of it."""
        self._saved, self._documents, self.sessions, self._ending = {}, {}, {}, {}
        # They are planned anew at the next turn, as after a start.
        self.changed_nodes |= self._told.keys()
        self._network, self._told, self._told_of, self._intents = None, {}, (), {}
        problems = self.restore(documents)
        self._port.wake()
        return problems

    def to_save(self) -> list[Document]:
        """What :meth:`restore` needs to go on from here."""
        waiting = [self._documents[name] for name in self._saved]
        return waiting + [to_save(live) for live in self.sessions.values()]

    # -- the event loop's turns

    def follow(self) -> None:
        """Called before switches are told anything, and whenever one may have confirmed something."""
        port = self._port
        if not port.settled or port.plan is None:
            return
        network = port.live.network
        if network is not self._network:
            self._on(network)
        for name, live in [*self.sessions.items(), *self._ending.items()]:
            after = control.stepped(live, self._confirmed, self._enters, self._port.clock())
            if after is not live:
                where = self.sessions if name in self.sessions and self.sessions[name] is live else self._ending
                where[name] = after
        self._ending = {name: live for name, live in self._ending.items() if live.rollouts}
        self._tell()

    def added_to(self, node: str, intent: SwitchIntent) -> SwitchIntent:
        """The intent of a switch, with what it shall do for sessions."""
        told = self._told.get(node)
        if told is None or told == _NOTHING:
            return intent
        known = self._intents.get(node)
        if known is None or known[0] is not intent or known[1] is not told:
            self._intents[node] = known = (intent, told, told.added_to(intent))
        return known[2]

    def _on(self, network: LiveNetwork) -> None:
        """Other links or capacities: trees follow, as little as possible."""
        self._network, self._world = network, None
        if not (self._saved or self.sessions or self._ending):
            return
        world = self._planned_on(network)
        for name, (spec, plans, hosts) in self._saved.items():
            self.sessions[name] = replace(control.restored(world, spec, plans), hosts=hosts)
        self._saved = {}
        if not self._is_large:
            self._replan_all()
        elif not self._replanning:
            self._replanning = True
            shim.spawn(self._guarded, self._replan_aside)

    def _planned_on(self, network: LiveNetwork) -> World:
        """What sessions are planned on; made when there are any."""
        if self._world is None:
            media = Media(network.network, group_rate=self._group_rate)
            self._world = World(self._context, media, network.places)
        return self._world

    def _guarded(self, work: Callable[[], None]) -> None:
        """In a green thread of its own: what goes wrong is noted, and the next change is another try."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - counted and shown
            self._port.exception("sessions", error)

    def _replan_aside(self) -> None:
        with self._planning:
            self._replanning = False
            self._replan_all()

    def _replan_all(self) -> None:
        for name in list(self.sessions):
            self._replan(name)
        if self.sessions:
            self._improve_later()

    def _replan(self, name: str) -> None:
        live = self.sessions.get(name)
        if live is None:
            return
        try:
            after = self._planned(live.spec, self._hosts(live))
        except NotFoundError:
            return
        if after.lost != live.lost:
            lost = sorted({node for nodes in after.lost.values() for node in nodes})
            self._port.events.publish("session.reach", {"id": name, "lost": lost})
        self._put(name, after)

    def _planned(self, spec: SessionSpec, hosts: tuple[Host, ...]) -> LiveSession:
        """A session as it shall be, on the network of now. Others may be confirmed, and the network change, meanwhile;
        then what was worked out is worked out again. NotFoundError if it is removed meanwhile.
        """
        is_new = spec.id not in self.sessions
        while True:
            if self._network is None:
                raise TooBusyError("the controller is starting; nothing is planned yet")
            world, before = self._planned_on(self._network), self.sessions.get(spec.id) or LiveSession(spec)
            wanted = replace(before, spec=spec, hosts=hosts)
            is_quick = len(hosts) * len(self._context.network.links) > QUICK_FROM
            session, lost = self._in_thread(control.trees_for, world, wanted, is_quick)
            if is_new is (spec.id in self.sessions):
                raise NotFoundError(f"session {spec.id!r} came or went meanwhile")
            now = self.sessions.get(spec.id, before)
            if self._world is world and now.session is before.session:
                now = replace(now, spec=spec, hosts=hosts, lost=lost)
                return control.with_trees(world, now, session, self._labels(spec.id))

    def _put(self, name: str, live: LiveSession) -> None:
        before = self.sessions.get(name)
        self.sessions[name] = live
        if before is None or before.plans != live.plans or before.spec != live.spec:
            self._port.note_unsaved()
        self._count()
        self._port.wake(now=True)

    def _hosts(self, live: LiveSession) -> tuple[Host, ...]:
        """The participants where they are now; one that nobody knows any more is where it was last."""
        last = {host.name: host for host in live.hosts}
        found = []
        for participant in live.spec.participants:
            name = participant.name
            host = self._find(name) or last.get(name) or Host(name, True)
            found.append(replace(host, name=name, is_source=participant.is_source))
        return tuple(found)

    def _labels(self, but: str) -> set[int]:
        others = [live for name, live in self.sessions.items() if name != but]
        return {label for live in [*others, *self._ending.values()] for label in live.labels}

    def _tell(self) -> None:
        """Works out what all switches shall do, if any session changed."""
        sessions = (*self.sessions.values(), *self._ending.values())
        same = len(sessions) == len(self._told_of) and all(a is b for a, b in zip(sessions, self._told_of, strict=True))
        if same or self._world is None:
            return
        self._told_of = sessions
        told = control.sent_of(self._world, sessions)
        before = self._told
        self._told = {node: old if (old := before.get(node)) == new else new for node, new in told.items()}
        self.changed_nodes |= differing(before, self._told)

    def _confirmed(self, node: str, label: int) -> bool:
        intent = self._confirmed_intent(node)
        return intent is not None and any(branch.label == label for branch in intent.branches)

    def _confirmed_intent(self, node: str) -> SwitchIntent | None:
        """What a switch confirmed last; None while it is not connected or has confirmed nothing."""
        session = self._port.switches.get(node)
        return session.confirmed.intent if session is not None and session.confirmed is not None else None

    def _enters(self, tree: RootedTree) -> bool:
        intent = self._confirmed_intent(tree.root)
        labels = (entry.branch.label for entry in (intent.entries if intent else ()) if entry.branch is not None)
        return intent is None or tree.label in labels

    # -- better trees, when there is time

    def _improve_later(self) -> None:
        if not self._improving:
            self._improving = True
            shim.later(IMPROVE_AFTER_S, partial(self._guarded, self._improve))

    def _improve(self) -> None:
        self._improving = False
        for name, live in list(self.sessions.items()):
            world = self._world
            trees = self._better_trees(name, live, world) if world is not None else None
            now = self.sessions.get(name)
            if world is None or trees is None or now is None:
                continue
            better = control.with_better_trees(world, now, trees, self._labels(name))
            if better.plans != now.plans:
                LOG.info("session %s: better trees", name)
                self._put(name, better)

    def _better_trees(self, name: str, live: LiveSession, world: World) -> dict[str, Tree] | None:
        """All trees, one after the other, most of the time idle: nobody waits. None if something changes meanwhile."""
        trees = {}
        for source in live.session.trees:
            now = self.sessions.get(name)
            if now is None or now.session is not live.session or self._world is not world:
                return None
            began_s = self._port.clock()
            trees[source] = shim.in_thread(control.better_tree, world, live, source)
            shim.sleep(IDLE_SHARE * (self._port.clock() - began_s))
        now = self.sessions.get(name)
        return trees if now is not None and now.session is live.session and self._world is world else None

    # -- airtime

    def _count(self) -> None:
        if self._world is not None:
            sessions = self.sessions.values()
            airtime = control.group_airtime(self._world.media, sessions, self.rates, self._promised)
            self._port.live.use_groups(airtime)

    def measured(self, rates: Mapping[tuple[str, str], float]) -> None:
        """What sources send, in Mb/s as it goes over the media, by session and source node."""
        self.rates = dict(rates)
        self._count()

    def promise(self, rates_mbps: Mapping[str, float]) -> None:
        """What sources of sessions may send, by reservations."""
        self._promised = dict(rates_mbps)
        self._count()

    @property
    def media(self) -> Media | None:
        """What trees were planned on; None: nothing yet."""
        return None if self._world is None else self._world.media

    def moved(self, mac: str) -> None:
        """A host is elsewhere, or was heard for the first time: sessions that it takes part in follow."""
        for name, live in list(self.sessions.items()):
            concerned = any(host.mac in (mac, None) for host in live.hosts)
            if concerned and self._hosts(live) != live.hosts:
                self._replan(name)

    # -- what is confirmed

    def waits_for(self, name: str) -> list[str]:
        """What has not confirmed a session or its end yet, and where it is not saved."""
        return [*sorted(self.unconfirmed(name)), *self._port.saver.unsaved]

    def unconfirmed(self, name: str) -> set[str]:
        """Switches that have not confirmed a session or its end yet, also while they are away."""
        if self._network is None:
            return {START}
        nodes = self._nodes_of(self.sessions.get(name) or self._ending.get(name)) | self._behind()
        return {switch_name(node) for node in nodes}

    def waits(self) -> set[str]:
        """Switches that have not confirmed what sessions want of them."""
        live = [*self.sessions.values(), *self._ending.values()]
        nodes = {node for each in live for node in self._nodes_of(each)}
        return {switch_name(node) for node in nodes.union(self._behind() if live else ())}

    def _behind(self) -> set[str]:
        """Nodes whose switches have not confirmed the trees of sessions, or who gets and may send their messages."""
        # A session may have changed since the last turn of the event loop.
        self._tell()
        return {node for node in self._port.context.own_switches if not self._is_in_force(node)}

    def _nodes_of(self, live: LiveSession | None) -> set[str]:
        """Nodes whose switches have not confirmed the trees of a session."""
        nodes: set[str] = set()
        for rollout in live.rollouts.values() if live is not None else ():
            if rollout.wanted is not None and not rollout.is_told:
                missing = {node for node in rollout.wanted.branches if not self._confirmed(node, rollout.wanted.label)}
                nodes |= missing or {rollout.wanted.root}
            elif rollout.wanted is not None and not self._enters_now(rollout.wanted):
                nodes.add(rollout.wanted.root)
            elif rollout.wanted is None and rollout.current is not None:
                nodes.add(rollout.current.root)
            # A root that is away may still send into a tree.
            nodes |= {old.tree.root for old in rollout.retiring if self._enters(old.tree)}
        return nodes

    def _enters_now(self, tree: RootedTree) -> bool:
        return self._confirmed_intent(tree.root) is not None and self._enters(tree)

    def _is_in_force(self, node: str) -> bool:
        """Whether a switch has confirmed who gets and who may send the messages of sessions, and by which trees."""
        intent, told = self._confirmed_intent(node), self._told.get(node, SentRules())
        if intent is None or intent.hears_reports != told.hears_reports:
            return False
        return (intent.branches, intent.entries, intent.members) == (told.branches, told.entries, told.members)
