"""Links that failed too often lately are held down for a while (``core.estimate.flap_damping``). Pure.

A link is held only while nobody loses the last path by that. Links that fall silent together at one node, as they do
when it starts anew, are excused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hyroads.controller.core.estimate.flap_damping import FlapDamping, HelloGraph
from hyroads.controller.core.network import Link
from hyroads.controller.model.state import Presence, State, TopologyContext, links_held

# Silence is noticed after the dead time (140 ms); two observers notice it up to a hello interval and a nap apart.
TOGETHER_S = 0.3
# Failures of long ago are forgotten this often while nothing else happens.
FORGET_EACH_S = 1.0
# What is forgotten is looked for so often: each report of a link would else cost what the network has of them.
PRUNE_EACH_S = 0.1
# Which of many suppressed links can be held is asked for again after so much for each of them beyond a few: some twenty
# times of what the answer takes. Hundreds that come back one by one would keep the loop for ten seconds.
FEW_SUPPRESSED, PAUSE_PER_LINK_S = 32, 0.0005


class LinkHolds:
    """Says which links of a network are held. ``is_on``: any are; ``together_s``: links that fall silent within this
    time do so together.
    """

    def __init__(self, context: TopologyContext, *, is_on: bool = True, together_s: float = TOGETHER_S) -> None:
        self.damping = FlapDamping()
        self._context, self._is_on, self._together_s = context, is_on, together_s
        agents = [node for node in context.network.nodes if context.addressing.has_agent(node)]
        self._graph = HelloGraph.of(context.network, agents)
        # Holds are looked at when one ends, or when something changes that they depend on.
        self._held_for: tuple[object, ...] = (None,) * 6
        self._next_release_s, self._pruned_s, self._holds_until_s = 0.0, -math.inf, -math.inf

    def reported(self, before: State, after: State, now_s: float) -> State:
        """After agents told of links: those that failed too often lately are held down for a while.

        While one of these comes and goes, no plan may use it: the version stays, for there is nothing to plan anew.
        """
        result = self.damped(after, now_s)
        same = result.silent | result.held == before.silent | before.held
        return replace(result, version=before.version) if same else result

    def damped(self, state: State, now_s: float) -> State:
        """The state with the links held down that are to be held now. To be called after every change of the state.

        A link is held because it failed too often, and only while nobody loses the last path by that.
        """
        if not self._is_on or not (self.damping.histories or state.silent):
            return state
        basis = (state.silent, state.held, state.switches, state.ports, state.agents, state.capacity_mbps)
        same = all(now is before for now, before in zip(basis, self._held_for, strict=True))
        if same and now_s < self._next_release_s:
            return state
        heard = self._note_silence(state, now_s)
        if now_s < self._holds_until_s:
            return self._holds_for_now(state, heard, basis, now_s)
        if now_s >= self._pruned_s + PRUNE_EACH_S:
            self._pruned_s, self.damping = now_s, self.damping.pruned(now_s)
        suppressed = self.damping.held_down(now_s)
        held = self._graph.holdable(suppressed, partial(self._is_usable, replace(state, held=frozenset())))
        # A link that others need now is used until it fails again, so that plans do not follow every turn.
        self.damping = self.damping.released(suppressed.keys() - held)
        self._next_release_s = min((suppressed[link] for link in held), default=now_s + FORGET_EACH_S)
        self._holds_until_s = now_s + PAUSE_PER_LINK_S * max(0, len(suppressed) - FEW_SUPPRESSED)
        result = links_held(state, held)
        self._held_for = (result.silent, result.held, *basis[2:])
        return result

    def _holds_for_now(self, state: State, heard: Sequence[str], basis: tuple[object, ...], now_s: float) -> State:
        """The state with the links held that were, and with those suppressed ones that were heard just now, until it is
        asked for again who needs them."""
        back = (link for link in heard if not self.damping.usable(link, now_s))
        held = (state.held | frozenset(back)) - state.silent
        self._next_release_s = self._holds_until_s
        result = links_held(state, held) if held != state.held else state
        self._held_for = (result.silent, result.held, *basis[2:])
        return result

    def _note_silence(self, state: State, now_s: float) -> list[str]:
        """Tells damping which links are silent. Those that fell silent together at one node are excused. The links that
        are heard again.
        """
        known = self.damping.histories
        fell = [link for link in state.silent if link not in known or known[link].up]
        heard = [link for link, history in known.items() if not history.up and link not in state.silent]
        for link in [*fell, *heard]:
            self.damping = self.damping.after(link, up=link not in state.silent, now_s=now_s)
        if fell:
            since_s = now_s - self._together_s
            failed = {link for link, history in self.damping.histories.items() if history.failed_s >= since_s}
            for link in fell:
                self.damping = self.damping.excused(self._graph.together(link, failed, partial(self._is_heard, state)))
        return heard

    def _is_heard(self, state: State, link: Link) -> bool:
        """Whether hello frames of a link arrive, as far as is known."""
        speak = all(state.agents.get(node) is Presence.UP for node in (link.source, link.target))
        return speak and (link.id in state.held or state.link_down(self._context, link) is None)

    def _is_usable(self, state: State, link: Link) -> bool:
        """Whether plans can use a link in a state."""
        has_capacity = state.capacity_mbps is not None or link.capacity_mbps > 0
        return has_capacity and state.link_fault(self._context, link) is None
