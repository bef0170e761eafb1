"""The desk of multicast sessions: holds them, plans their trees on the living network, brings them to the switches.

It works in the coordinator's loop: before switches are told anything it follows the network and what they have
confirmed (``follow``), and adds what they shall do for sessions to their intents (``added_to``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from hyroads.controller import ryu_shim as shim
from hyroads.controller.control.live_network import LiveNetwork
from hyroads.controller.control.session_rollout import is_told
from hyroads.controller.control.sessions import (
    Host,
    LiveSession,
    Rates,
    Told,
    World,
    forgotten,
    group_airtime,
    improved,
    planned,
    restored,
    stepped,
    told_of,
)
from hyroads.controller.core.closed_loop import GroupAirtime
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.multicast import GroupRate, Media
from hyroads.controller.core.services.sessions import (
    Participant,
    SessionSpec,
    session_document,
    session_spec,
)
from hyroads.controller.ofp.compile import default_places
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.ofp.session_trees import RootedTree
from hyroads.controller.services.session_documents import Saved, from_saved, session_view, to_save
from hyroads.controller.state import Fabric
from hyroads.rest.contract import ConflictError, Document, NotConfirmedError, NotFoundError, TooBusyError

LOG = logging.getLogger("hyroads.sessions")
CONFIRM_WITHIN_S = 5.0
MAX_SESSIONS = 256
MAX_TREES = 4096
# On networks with so many links exchanges of branches take too long for somebody who waits.
QUICK_FROM_LINKS = 200
IMPROVE_AFTER_S = 2.0


_NOTHING = Told()


class Office(Protocol):
    """What the desk needs of the coordinator."""

    @property
    def fabric(self) -> Fabric:
        """The network file and what is derived from it."""

    def clock(self) -> float:
        """Monotonic time."""

    def live_network(self) -> LiveNetwork | None:
        """The network that is planned with; None: not yet."""

    def confirmed_intent(self, node: str) -> SwitchIntent | None:
        """What a switch has confirmed last; None while it is not connected or has confirmed nothing."""

    def nodes_connected(self) -> Sequence[str]:
        """Nodes whose switches are connected."""

    def wake(self) -> None:
        """There is something to tell switches."""

    def note_unsaved(self) -> None:
        """What is to be saved has changed."""

    def is_saved(self) -> bool:
        """Whether all that is to be saved is on disk."""

    def wait(self, timeout_s: float) -> None:
        """Let others run until something was confirmed, or the time is over."""

    def publish(self, kind: str, document: Mapping[str, Any]) -> object:
        """Tell listeners of an event."""

    def take_airtime(self, airtime: GroupAirtime) -> None:
        """Airtime of sessions, for the rates of flows."""


Find = Callable[[str], Host | None]
"""The host of a name (node id, MAC or IP), where it is now; None if nobody knows it."""


class SessionDesk:
    """One per controller; everything of it runs in green threads of one thread of the system."""

    def __init__(self, office: Office, find: Find, *, group_rate: GroupRate = GroupRate.NEIGHBOURS) -> None:
        self._office = office
        self._find = find
        self._group_rate = group_rate
        self._fabric = office.fabric
        self._saved: dict[str, Saved] = {}
        self._live: dict[str, LiveSession] = {}
        self._ending: dict[str, LiveSession] = {}
        self._world: World | None = None
        self._network: LiveNetwork | None = None
        self._told: dict[str, Told] = {}
        self._told_of: tuple[LiveSession, ...] = ()
        self._intents: dict[str, tuple[SwitchIntent, Told, SwitchIntent]] = {}
        self._rates: dict[tuple[str, str], float] = {}
        self._promised: Mapping[str, float] = {}
        self._improving = False
        self._count_endings = count(1)

    # -- the state file

    def restore(self, documents: object) -> list[ConfigError]:
        """Takes in what an earlier controller saved; what is wrong with some of it."""
        problems = []
        for document in documents if isinstance(documents, list) else ():
            try:
                saved = from_saved(document, self._fabric.network, "state file")
            except ConfigError as error:
                problems.append(error)
            else:
                self._saved[saved[0].id] = saved
        return problems

    def to_save(self) -> list[Document]:
        """What :meth:`restore` needs to go on from here."""
        waiting = [{**session_document(spec), "trees": {}} for spec, _, _ in self._saved.values()]
        return waiting + [to_save(live) for live in self._live.values()]

    # -- the coordinator's loop

    def follow(self) -> None:
        """Called before switches are told anything, and whenever one may have confirmed something."""
        network = self._office.live_network()
        if network is None:
            return
        if network is not self._network:
            self._on(network)
        for name, live in [*self._live.items(), *self._ending.items()]:
            after = stepped(live, self._confirmed, self._enters, self._office.clock())
            if after is not live:
                where = self._live if name in self._live and self._live[name] is live else self._ending
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
        self._network = network
        media = Media(network.network, group_rate=self._group_rate)
        world = self._world = World(self._fabric, media, default_places(self._fabric.addressing))
        for name, (spec, plans, hosts) in self._saved.items():
            self._live[name] = replace(restored(world, spec, plans), hosts=hosts)
        self._saved = {}
        for name, live in self._live.items():
            self._replan(name, live)
        if self._live:
            self._improve_later()

    def _replan(self, name: str, live: LiveSession) -> None:
        after = self._planned(live)
        if after.lost != live.lost:
            lost = sorted({node for nodes in after.lost.values() for node in nodes})
            self._office.publish("session.reach", {"id": name, "lost": lost})
        self._put(name, after)

    def _planned(self, live: LiveSession) -> LiveSession:
        """On the network of now, with its hosts where they are now."""
        if self._world is None:
            return live
        hosts = self._hosts(live)
        quick = len(self._fabric.network.links) >= QUICK_FROM_LINKS
        return planned(self._world, replace(live, hosts=hosts), self._labels(live.spec.id), quick=quick)

    def _put(self, name: str, live: LiveSession) -> None:
        before = self._live.get(name)
        self._live[name] = live
        if before is None or before.plans != live.plans or before.spec != live.spec:
            self._office.note_unsaved()
        self._count()
        self._office.wake()

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
        others = [live for name, live in self._live.items() if name != but]
        return {label for live in [*others, *self._ending.values()] for label in live.labels}

    def _tell(self) -> None:
        """Works out what all switches shall do, if any session changed."""
        sessions = (*self._live.values(), *self._ending.values())
        same = len(sessions) == len(self._told_of) and all(a is b for a, b in zip(sessions, self._told_of, strict=True))
        if same or self._world is None:
            return
        self._told_of = sessions
        told = told_of(self._world, sessions)
        self._told = {node: old if (old := self._told.get(node)) == new else new for node, new in told.items()}

    def _confirmed(self, node: str, label: int) -> bool:
        intent = self._office.confirmed_intent(node)
        return intent is not None and any(branch.label == label for branch in intent.branches)

    def _enters(self, tree: RootedTree) -> bool:
        intent = self._office.confirmed_intent(tree.root)
        labels = (entry.branch.label for entry in (intent.entries if intent else ()) if entry.branch is not None)
        return intent is None or tree.label in labels

    # -- better trees, when there is time

    def _improve_later(self) -> None:
        if not self._improving:
            self._improving = True
            shim.later(IMPROVE_AFTER_S, self._improve)

    def _improve(self) -> None:
        self._improving = False
        for name, live in list(self._live.items()):
            world = self._world
            if world is None or self._live.get(name) is not live:
                continue
            better = shim.aside(improved, world, live, self._labels(name))
            if self._live.get(name) is live and self._world is world and better.plans != live.plans:
                LOG.info("session %s: better trees", name)
                self._put(name, better)

    # -- airtime

    def _count(self) -> None:
        if self._world is not None:
            sessions = self._live.values()
            self._office.take_airtime(group_airtime(self._world.media, sessions, self._rates, self._promised))

    def measured(self, rates: Mapping[tuple[str, str], float]) -> None:
        """What sources send, in Mb/s as it goes over the media, by session and source node."""
        self._rates = dict(rates)
        self._count()

    def promise(self, rates_mbps: Mapping[str, float]) -> None:
        """What sources of sessions may send, by reservations."""
        self._promised = dict(rates_mbps)
        self._count()

    @property
    def rates(self) -> Rates:
        """What sources were measured to send."""
        return self._rates

    @property
    def sessions(self) -> Mapping[str, LiveSession]:
        """All that are declared, as they are now."""
        return self._live

    @property
    def media(self) -> Media | None:
        """What trees were planned on; None: nothing yet."""
        return None if self._world is None else self._world.media

    # -- REST

    def names(self) -> Sequence[str]:
        """See ``rest.sessions.Sessions``."""
        return tuple(self._live)

    def documents(self, names: Sequence[str]) -> list[Document]:
        """See ``rest.sessions.Sessions``."""
        return [self.document(name) for name in names if name in self._live]

    def document(self, name: str) -> Document:
        """See ``rest.sessions.Sessions``."""
        return session_view(self._get(name), self.media, self._rates, self.pending(name))

    def declare(self, document: Mapping[str, Any], *, wait: bool) -> tuple[Document, bool]:
        """See ``rest.sessions.Sessions``."""
        spec = session_spec(document, "request")
        known = self._live.get(spec.id)
        if known is not None:
            if known.spec != spec:
                raise ConflictError(f"session {spec.id!r} exists with other content")
        else:
            self._begin(spec)
        if wait:
            self._wait(spec.id)
        return self.document(spec.id), known is None

    def _begin(self, spec: SessionSpec) -> None:
        if len(self._live) >= MAX_SESSIONS:
            raise TooBusyError(f"there are {MAX_SESSIONS} sessions already")
        if spec.id in self._ending:
            # The labels of its last trees are still on their way out; new trees have other ones.
            self._ending[f"{spec.id} {next(self._count_endings)}"] = self._ending.pop(spec.id)
        self._admit(LiveSession(spec))
        self._office.publish("session.declared", session_document(spec))

    def _admit(self, live: LiveSession, found: Collection[str] = ()) -> None:
        """Plans a session as it shall be; if somebody new can't be reached nothing changes."""
        spec, before = live.spec, self._live.get(live.spec.id)
        self._check(spec, found)
        if self._world is None:
            raise TooBusyError("the controller is starting; nothing is planned yet")
        after = self._planned(live)
        known = {} if before is None else before.lost
        for source, nodes in sorted(after.lost.items()):
            for node in sorted(nodes - known.get(source, frozenset())):
                raise ConflictError(f"session {spec.id!r}: no way from {source} to {node}")
        self._put(spec.id, after)
        self._improve_later()

    def _check(self, spec: SessionSpec, found: Collection[str]) -> None:
        for other in self._live.values():
            if other.spec.id != spec.id and other.spec.group.meets(spec.group):
                raise ConflictError(f"group {spec.group.text} is that of session {other.spec.id!r}")
        trees = sum(len(live.session.trees) for live in self._live.values())
        if trees + sum(one.is_source for one in spec.participants) > MAX_TREES:
            raise TooBusyError(f"there would be more than {MAX_TREES} trees")
        known = self._live.get(spec.id)
        for place, one in enumerate(spec.participants):
            if (
                one.name not in found
                and self._find(one.name) is None
                and (known is None or known.spec.find(one.name) is None)
            ):
                raise ConfigError("request", f"participants[{place}]", f"no host {one.name[:64]!r} is known")

    def change(self, name: str, document: Mapping[str, Any], *, wait: bool) -> Document:
        """See ``rest.sessions.Sessions``."""
        live = self._get(name)
        fixed = {"id": name, "group": live.spec.group.text}
        wanted = {**session_document(live.spec), **document, **fixed}
        if "participants" in document and "sources" not in document:
            quiet = {one.name for one in live.spec.participants if not one.is_source}
            names = wanted["participants"] if isinstance(wanted["participants"], list) else []
            wanted["sources"] = [one for one in names if one not in quiet]
        return self._become(name, session_spec(wanted, "request"), wait=wait)

    def join(self, name: str, document: Mapping[str, Any], *, wait: bool) -> Document:
        """See ``rest.sessions.Sessions``."""
        new = Participant(str(document.get("name", "")), document.get("source", True) is True)
        return self._become(name, self._get(name).spec.with_participant(new), wait=wait)

    def leave(self, name: str, participant: str, *, wait: bool) -> Document:
        """See ``rest.sessions.Sessions``."""
        spec = self._get(name).spec
        if spec.find(participant) is None:
            raise NotFoundError(f"session {name!r} has no participant {participant[:64]!r}")
        return self._become(name, spec.without(participant), wait=wait)

    def member(self, name: str, host: Host, *, joins: bool) -> None:
        """A host joins under its MAC, or leaves under it, because it says so. HyroadsError if it can't."""
        live, mac = self._get(name), host.name
        spec = live.spec.with_participant(Participant(mac)) if joins else live.spec.without(mac)
        if spec != live.spec:
            # Where it was heard is where it is, until somebody knows better.
            self._admit(replace(live, spec=spec, hosts=(*live.hosts, host) if joins else live.hosts), {mac})
            self._office.publish("session.changed", session_document(spec))

    def _become(self, name: str, spec: SessionSpec, *, wait: bool) -> Document:
        live = self._get(name)
        if spec != live.spec:
            self._admit(replace(live, spec=spec))
            self._office.publish("session.changed", session_document(spec))
        if wait:
            self._wait(name)
        return self.document(name)

    def remove(self, name: str, *, wait: bool) -> None:
        """See ``rest.sessions.Sessions``."""
        self._get(name)
        self._ending[name] = forgotten(self._live.pop(name))
        self._rates = {key: value for key, value in self._rates.items() if key[0] != name}
        self._count()
        self._office.note_unsaved()
        self._office.publish("session.removed", {"id": name})
        self._office.wake()
        if wait:
            self._wait(name)

    def moved(self) -> None:
        """Hosts are elsewhere: sessions with one of them follow."""
        for name, live in list(self._live.items()):
            if self._hosts(live) != live.hosts:
                self._replan(name, live)

    def _get(self, name: str) -> LiveSession:
        live = self._live.get(name)
        if live is None:
            raise NotFoundError(f"no session {name[:64]!r}")
        return live

    def _wait(self, name: str) -> None:
        until_s = self._office.clock() + CONFIRM_WITHIN_S
        while pending := self.pending(name):
            left_s = until_s - self._office.clock()
            if left_s <= 0:
                raise NotConfirmedError(f"session {name}", pending)
            self._office.wait(min(left_s, 0.1))

    def pending(self, name: str) -> list[str]:
        """See ``rest.sessions.Sessions``."""
        live = self._live.get(name) or self._ending.get(name)
        if live is None:
            return []
        if self._world is None:
            return ["start"]
        nodes: set[str] = set()
        for rollout in live.rollouts.values():
            if rollout.wanted is not None and not is_told(rollout):
                missing = {node for node in rollout.wanted.branches if not self._confirmed(node, rollout.wanted.label)}
                nodes |= missing or {rollout.wanted.root}
            elif rollout.wanted is not None and not self._enters_now(rollout.wanted):
                nodes.add(rollout.wanted.root)
            elif rollout.wanted is None and rollout.current is not None:
                nodes.add(rollout.current.root)
            nodes |= {old.tree.root for old in rollout.retiring if self._enters_now(old.tree)}
        if not nodes and name in self._live:
            nodes = {node for node in self._office.nodes_connected() if not self._is_in_force(node)}
        return [*(f"switch {node}" for node in sorted(nodes)), *([] if self._office.is_saved() else ["state file"])]

    def _enters_now(self, tree: RootedTree) -> bool:
        return self._office.confirmed_intent(tree.root) is not None and self._enters(tree)

    def _is_in_force(self, node: str) -> bool:
        """Whether a switch has confirmed who gets and who may send the messages of sessions."""
        intent, told = self._office.confirmed_intent(node), self._told.get(node, Told())
        if intent is None or intent.hears_reports != told.hears_reports:
            return False
        return (intent.entries, intent.members) == (told.entries, told.members)
