"""Which switches are connected, and how long those that are not may take to dial again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from hyroads.controller.state import Fabric
from hyroads.controller.switches import Connection, SwitchSession

LOG = logging.getLogger("hyroads.controller")


class SwitchBook:
    """``fault(where, what)`` is told of what went wrong, ``changed`` is called when a switch confirmed something."""

    def __init__(
        self,
        fabric: Fabric,
        clock: Callable[[], float],
        counters: Counter[str],
        fault: Callable[[str, str], None],
        changed: Callable[[], None],
    ) -> None:
        self.sessions: dict[str, SwitchSession] = {}
        """By node."""
        self._node_of_dpid = fabric.node_of_dpid
        self._clock = clock
        self._counters = counters
        self._fault = fault
        self._changed = changed
        self._lost: dict[str, float] = {}
        """Until when a switch without a connection may dial again."""

    def opened(self, connection: Connection) -> SwitchSession | None:
        """A switch is ready for requests; None if it is not of our network. Its newest connection counts."""
        node = self._node_of_dpid.get(connection.dpid)
        if node is None:
            self._fault(f"switch {connection.dpid:#x}", f"is not in the network ({connection.peer}), left alone")
            return None
        old = self.sessions.get(node)
        if old is not None and old.connection.key != connection.key:
            old.connection.close()
        session = SwitchSession(
            node, connection, self._clock, lambda what: self._switch_fault(node, what), self._changed
        )
        if old is not None:
            session.counters = old.counters
        self.sessions[node] = session
        self._lost.pop(node, None)
        LOG.info("switch %s connected from %s with ports %s", node, connection.peer, ", ".join(sorted(session.ports)))
        session.start()
        return session

    def of(self, connection: Connection) -> SwitchSession | None:
        """The session of a connection; None if it was replaced or is not of our network."""
        node = self._node_of_dpid.get(connection.dpid)
        session = self.sessions.get(node) if node is not None else None
        return session if session is not None and session.connection.key == connection.key else None

    def closed(self, connection: Connection) -> str | None:
        """A connection ended: the node that has none any more."""
        session = self.of(connection)
        if session is None:
            return None
        LOG.warning("switch %s: connection lost", session.node)
        del self.sessions[session.node]
        return session.node

    def wait_for(self, node: str, wait_s: float) -> None:
        """A switch without a connection has this time to dial again."""
        self._lost[node] = self._clock() + wait_s

    def is_awaited(self, node: str) -> bool:
        """Whether a switch that lost its connection may still dial again."""
        return node in self._lost

    def overdue(self) -> list[str]:
        """Nodes whose switches did not come back in time; each is named once."""
        now_s = self._clock()
        late = [node for node, until_s in self._lost.items() if now_s > until_s]
        for node in late:
            del self._lost[node]
            LOG.warning("switch %s did not come back", node)
        return late

    def _switch_fault(self, node: str, what: str) -> None:
        self._counters["openflow_errors"] += 1
        self._fault(f"switch {node}", what)
