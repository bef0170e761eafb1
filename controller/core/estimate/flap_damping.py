"""Links that come and go: held down after frequent failures, until they have been heard steadily again.

    penalty(t) = penalty(t0) 2^(-(t - t0) / half_life),   + ``per_flap`` each time the link goes down

The penalty is that of RFC 2439 ("BGP Route Flap Damping"). A link whose penalty exceeds ``suppress`` is *suppressed*:
it is to be held down though it may be heard. Unlike there the hold does not wait for the decay. It ends as soon as the
link was heard without a break for ``steady_s`` times the penalty that its last failure left, at most ``max_hold_s``.
One failure alone never suppresses: its link is used again as soon as it is back.

Two rules say when a failure is no reason to hold a link:

- :meth:`FlapDamping.excused` takes back the last failure of links that fell silent together (see :class:`HelloGraph`).
- :meth:`HelloGraph.holdable` names the suppressed links that may be held, so that what is connected stays connected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hyroads.controller.core.network import Link, Network

from .filters import EstimateError


@dataclass(frozen=True, slots=True)
class DampingSettings:
    """With these, three failures in four seconds suppress a link, or one every six seconds, for 3 to 15 s."""

    per_flap: float = 1.0
    suppress: float = 2.5
    half_life_s: float = 8.0
    steady_s: float = 1.0
    max_hold_s: float = 15.0

    def __post_init__(self) -> None:
        if min(self.per_flap, self.suppress, self.half_life_s, self.steady_s, self.max_hold_s) <= 0:
            raise EstimateError("damping needs positive times and penalties")
        if self.ceiling <= self.suppress:
            raise EstimateError("max_hold_s is too short for steady_s: nothing would ever be suppressed")

    @property
    def ceiling(self) -> float:
        """The largest penalty."""
        return self.max_hold_s / self.steady_s


@dataclass(frozen=True, slots=True)
class LinkHistory:
    """What is remembered of one link.

    ``up`` is the last report, and ``since_s`` when it changed to that. ``penalty`` is that at ``time_s``. While the
    link is ``suppressed``, it has to be up for ``hold_s`` on end. ``flaps`` counts failures, the last one at
    ``failed_s``. ``before`` is what is remembered if the last failure does not count.
    """

    up: bool
    since_s: float
    penalty: float
    time_s: float
    suppressed: bool = False
    hold_s: float = 0.0
    flaps: int = 0
    failed_s: float = -math.inf
    before: LinkHistory | None = None


@dataclass(frozen=True)
class FlapDamping:
    """Histories by link id; links that never failed have none and are usable."""

    settings: DampingSettings = field(default_factory=DampingSettings)
    histories: Mapping[str, LinkHistory] = field(default_factory=dict)

    def after(self, link: str, *, up: bool, now_s: float) -> FlapDamping:
        """With a report of a link. Reports that repeat what is known change nothing."""
        old = self._now(link, now_s) or LinkHistory(True, now_s, 0.0, now_s)
        if old.up == up:
            return self
        if up:
            return self._with({link: replace(old, up=True, since_s=now_s)})
        penalty = min(self.settings.ceiling, old.penalty + self.settings.per_flap)
        suppressed = old.suppressed or penalty > self.settings.suppress
        hold_s = self.settings.steady_s * penalty
        before = replace(old, before=None)
        return self._with(
            {link: LinkHistory(False, now_s, penalty, now_s, suppressed, hold_s, old.flaps + 1, now_s, before)}
        )

    def excused(self, links: Iterable[str]) -> FlapDamping:
        """The last failures of these links do not count. An excuse that is repeated changes nothing."""
        changed = {}
        for link in links:
            now = self.histories.get(link)
            if now is not None and now.before is not None:
                before = FlapDamping(self.settings, {link: now.before})._now(link, now.time_s) or now.before
                changed[link] = replace(before, up=now.up, since_s=now.since_s, failed_s=now.failed_s)
        return self._with(changed) if changed else self

    def released(self, links: Iterable[str]) -> FlapDamping:
        """These links are not to be held, until they fail again."""
        changed = {link: replace(self.histories[link], suppressed=False) for link in links if link in self.histories}
        return self._with(changed) if changed else self

    def usable(self, link: str, now_s: float) -> bool:
        """Whether a plan may use the link now."""
        history = self._now(link, now_s)
        return history is None or (history.up and not history.suppressed)

    def held_down(self, now_s: float) -> dict[str, float]:
        """Links that are up but suppressed -> when that ends, if they stay up. Those that failed most come first."""
        raw = (link for link, history in self.histories.items() if history.up and history.suppressed)
        now = {link: history for link in raw if (history := self._now(link, now_s)) and history.suppressed}
        worst_first = sorted(now, key=lambda link: (-now[link].penalty, link))
        return {link: now[link].since_s + now[link].hold_s for link in worst_first}

    def pruned(self, now_s: float) -> FlapDamping:
        """Without the histories of links that are up with a negligible penalty."""
        keep = {}
        for link, raw in self.histories.items():
            # One that is down has nothing to forget. Where links are discovered, most of those that could be are down.
            history = (self._now(link, now_s) or raw) if raw.up else raw
            if not history.up or history.suppressed or history.penalty > _NEGLIGIBLE * self.settings.per_flap:
                keep[link] = history
        return FlapDamping(self.settings, keep)

    def _with(self, changed: Mapping[str, LinkHistory]) -> FlapDamping:
        return FlapDamping(self.settings, {**self.histories, **changed})

    def _now(self, link: str, now_s: float) -> LinkHistory | None:
        history = self.histories.get(link)
        if history is None:
            return None
        elapsed_s = max(0.0, now_s - history.time_s)
        penalty = history.penalty * 2.0 ** (-elapsed_s / self.settings.half_life_s)
        steady = history.up and now_s - history.since_s >= history.hold_s
        suppressed = history.suppressed and not steady
        return replace(history, penalty=penalty, time_s=max(now_s, history.time_s), suppressed=suppressed)


@dataclass(frozen=True)
class HelloGraph:
    """The links of a network by node, for the two questions that damping has to ask of more than one link.

    ``watched`` are the links that hello frames watch: those between two nodes with agents. ``relays`` are the nodes
    that forward, which are all but plain clients.
    """

    links: Mapping[str, Link]
    outgoing: Mapping[str, tuple[Link, ...]]
    incoming: Mapping[str, tuple[Link, ...]]
    watched: frozenset[str]
    relays: frozenset[str]

    @classmethod
    def of(cls, network: Network, agents: Collection[str]) -> HelloGraph:
        """Of a network in which these nodes have an agent."""
        outgoing: dict[str, list[Link]] = {node: [] for node in network.nodes}
        incoming: dict[str, list[Link]] = {node: [] for node in network.nodes}
        for link in network.links:
            outgoing[link.source].append(link)
            incoming[link.target].append(link)
        return cls(
            {link.id: link for link in network.links},
            {node: tuple(links) for node, links in outgoing.items()},
            {node: tuple(links) for node, links in incoming.items()},
            frozenset(link.id for link in network.links if link.source in agents and link.target in agents),
            frozenset(node.id for node in network.nodes.values() if not node.is_plain_client),
        )

    def together(self, link: str, failed: Collection[str], lived: Callable[[Link], bool]) -> frozenset[str]:
        """The links of ``failed`` that fell silent together with ``link``, which is one of them.

        ``failed`` are links that fell silent within a short time, and ``lived`` says whether a link was heard before
        that. If two or more links into a node failed, and none that lived is left, the node does not listen. If
        that is so of the links out of a node, it does not speak. Either says nothing of the links. The result is empty
        if neither is so.
        """
        known = self.links[link]
        found: set[str] = set()
        for group in (self.incoming[known.target], self.outgoing[known.source]):
            lost = [other.id for other in group if other.id in failed]
            left = (other for other in group if other.id in self.watched and other.id not in failed and lived(other))
            if len(lost) > 1 and not any(left):
                found.update(lost)
        return frozenset(found)

    def holdable(self, wanted: Iterable[str], usable: Callable[[Link], bool]) -> frozenset[str]:
        """Which of the ``wanted`` links can be held down, all at once, without taking the last path from anybody.

        ``usable`` says which links could be used if none were held. Let G be the graph of these, and H that without the
        result. Every node that is reached from another one in G is reached from it in H; and nodes that are
        joined in G by pairs of links there and back on one technology, as broadcasts need, are so in H. Earlier
        ones of ``wanted`` have precedence. A search ends as soon as it has found the way around its link.
        """
        held: set[str] = set()

        def free(link: Link) -> bool:
            return link.id not in held and usable(link)

        for name in wanted:
            link = self.links.get(name)
            if link is None:
                continue
            was_free, was_pair = free(link), self._has_pair(link, free)
            held.add(name)
            one_way = not was_free or self._reaches(link, free)
            if not (one_way and (not was_pair or self._reaches(link, lambda other: self._has_pair(other, free)))):
                held.discard(name)
        return frozenset(held)

    def _has_pair(self, link: Link, free: Callable[[Link], bool]) -> bool:
        """Whether a link, and one back on its technology, are both free."""
        back = (other for other in self.outgoing[link.target] if other.target == link.source)
        return free(link) and any(other.technology == link.technology and free(other) for other in back)

    def _reaches(self, link: Link, free: Callable[[Link], bool]) -> bool:
        """Whether the end of a link is reached from its beginning over free links and nodes that forward."""
        seen, waiting = {link.source}, deque([link.source])
        while waiting:
            for other in self._ahead(waiting.popleft(), seen, free):
                if other == link.target:
                    return True
                seen.add(other)
                if other in self.relays:
                    waiting.append(other)
        return False

    def _ahead(self, node: str, seen: Collection[str], free: Callable[[Link], bool]) -> Iterator[str]:
        return (link.target for link in self.outgoing[node] if link.target not in seen and free(link))


_NEGLIGIBLE = 0.01
