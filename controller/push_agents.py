"""Brings joined agents to what they are ordered to run: whole configurations, or only rates where only rates differ."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.agent_protocol import AgentConfig, rates_document
from hyroads.controller.agents import Session
from hyroads.controller.plan import Plan
from hyroads.controller.push_gate import AgentView, Orders

LOG = logging.getLogger("hyroads.controller")
RATE_TOLERANCE = 0.005
RETRY_AFTER_S = 1.0


@dataclass
class AgentLink:
    """A joined agent and what it runs; ``known`` once its configuration from before our start was looked at."""

    session: Session
    acked: AgentConfig | None
    known: bool
    sent: AgentConfig | None = None
    rates: dict[tuple[int, int], float] = field(default_factory=dict)
    retry_at_s: float = 0.0
    errors: int = 0


class AgentPusher:
    """All joined agents. One request at a time is under way to each; ``wake`` is called when it is answered."""

    def __init__(
        self,
        clock: Callable[[], float],
        counters: Counter[str],
        fault: Callable[[str, str], None],
        wake: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._counters = counters
        self._fault = fault
        self._wake = wake
        self._links: dict[str, AgentLink] = {}

    def get(self, node: str) -> AgentLink | None:
        """The agent of a node if it has joined."""
        return self._links.get(node)

    def __len__(self) -> int:
        return len(self._links)

    def joined(self, session: Session, runs: AgentConfig | None) -> None:
        """An agent joined; ``runs`` is None if that is not known yet."""
        self._links[session.node] = AgentLink(session, runs, known=runs is not None)

    def left(self, session: Session) -> bool:
        """A session ended; False if another one of the same agent has taken its place."""
        link = self._links.get(session.node)
        if link is None or link.session is not session:
            return False
        del self._links[session.node]
        return True

    def views(self) -> dict[str, AgentView]:
        """What the gate needs to know."""
        return {node: AgentView(link.acked, link.sent) for node, link in self._links.items()}

    def synced(self, plan: Plan, node: str) -> bool:
        """Whether an agent is here and confirmed what is planned for it."""
        link = self._links.get(node)
        if link is None or link.acked is None or link.sent is not None:
            return False
        return link.acked.revision == plan.agents[node].revision

    def retry_due(self) -> bool:
        """Whether the time has come to try again what an agent refused."""
        now_s = self._clock()
        due = [link for link in self._links.values() if link.retry_at_s and now_s > link.retry_at_s]
        for link in due:
            link.retry_at_s = 0.0
        return bool(due)

    def push(self, plan: Plan, orders: Orders) -> None:
        """Send what differs from what an agent runs."""
        now_s = self._clock()
        for node, config in orders.agents.items():
            link = self._links[node]
            if link.sent is not None or link.retry_at_s > now_s:
                continue
            if not link.known:
                _recognise(link, (plan.agents[node], config))
            if link.acked is None or link.acked.revision != config.revision:
                self._send(link, config, {**config.document(), "revision": config.revision}, "agent_configs")
            elif _rates_differ(link.rates, config.rates):
                self._send(link, config, rates_document(config.rates), "agent_rates")

    def _send(self, link: AgentLink, config: AgentConfig, document: Mapping[str, Any], counter: str) -> None:
        link.sent = config
        self._counters[counter] += 1
        link.session.request(document, lambda problem: self._answered(link, config, problem))

    def _answered(self, link: AgentLink, config: AgentConfig, problem: str | None) -> None:
        link.sent = None
        if problem is None:
            link.acked, link.rates = config, dict(config.rates)
        else:
            link.errors += 1
            link.retry_at_s = self._clock() + RETRY_AFTER_S
            if not link.session.closed:
                self._fault(f"agent {link.session.node}", f"configuration refused: {problem}")
        self._wake()


def _recognise(link: AgentLink, candidates: tuple[AgentConfig, ...]) -> None:
    """An agent that ran before says by its revision whether it has what we want.

    Its rates are not known: they are sent once more, which disturbs nothing.
    """
    link.known = True
    link.acked = next((config for config in candidates if config.revision == link.session.hello.revision), None)
    if link.acked is not None:
        LOG.info("agent %s runs the wanted configuration", link.session.node)


def _rates_differ(have: Mapping[tuple[int, int], float], want: Mapping[tuple[int, int], float]) -> bool:
    """Whether some rate moved by more than a small share."""
    if have.keys() != want.keys():
        return True
    return any(abs(have[key] - rate) > RATE_TOLERANCE * max(rate, have[key]) for key, rate in want.items())
