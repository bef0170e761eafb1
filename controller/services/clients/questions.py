"""Asks hosts whether they are still where they were, and keeps what waits for the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services.client_tables import Clients, Question
from hyroads.controller.core.services.probes import probe_frames
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp import wire
from hyroads.controller.switches.sessions import SwitchSession

REPEAT_S = 0.1
"""A probe or its answer may be lost: it is sent again until the time to answer is over."""
LAST_CALL_S = 3.0
"""So long before a silent host is forgotten it is asked each second."""
MAX_LAST_CALLS = 64
"""Hosts that are asked so in one second."""


class Questions:
    """``switches`` are those that are read, by node; ``clock`` gives monotonic seconds."""

    def __init__(
        self, context: TopologyContext, switches: Mapping[str, SwitchSession], clock: Callable[[], float]
    ) -> None:
        self._addressing, self._switches, self._clock = context.addressing, switches, clock
        own = context.addressing
        self._own_ips = {own.host_mac[client]: (own.host_ip[client],) for client in own.attachments}
        self._again_s: dict[tuple[str, str | None], float] = {}
        self._waiting: dict[str, Callable[[], None]] = {}

    def repeat(self, state: Clients) -> None:
        """Ask all that is open, again if it was asked a while ago; forget what waits for questions that are not."""
        now_s, questions = self._clock(), state.questions
        for key in [key for key in self._again_s if key not in questions]:
            del self._again_s[key]
        if self._waiting:
            open_macs = {question.mac for question in questions.values() if question.ip is None}
            self._waiting = {mac: call for mac, call in self._waiting.items() if mac in open_macs}
        for key, question in questions.items():
            if now_s >= self._again_s.get(key, 0.0):
                self._again_s[key] = now_s + REPEAT_S
                self._ask(question, state)

    def _ask(self, question: Question, state: Clients) -> None:
        known = addresses_of(state, question.mac) if question.ip is None else (question.ip,)
        self.probe(question.mac, question.place, known)

    def probe(self, mac: str, place: Place, addresses: Iterable[str]) -> None:
        """Send frames to a host that it answers if it is there."""
        session, node = self._switches.get(place.node), place.node
        wired = place.technology == WIRED
        names = self._addressing.access_port if wired else {}
        name = names.get(node) or self._addressing.interface_name.get((node, place.technology), "")
        number = session.ports.get(name) if session is not None else None
        if session is None or number is None or not session.may_change:
            return
        frames = probe_frames(mac, [*self._own_ips.get(mac, ()), *addresses])
        session.connection.send(b"".join(wire.packet_out(0, frame, out=number) for frame in frames))

    def hold(self, mac: str, send_on: Callable[[], None]) -> None:
        """A frame of somebody at a new place waits: the latest one."""
        self._waiting[mac] = send_on

    def moved(self, mac: str) -> Callable[[], None] | None:
        """What to do with the frame that waited for a host to move; None: there is none."""
        return self._waiting.pop(mac, None)

    def is_heard(self, place: Place) -> bool:
        """Whether all that a switch has said was read."""
        session = self._switches.get(place.node)
        return session is None or not session.connection.has_unread()


def addresses_of(state: Clients, mac: str) -> tuple[str, ...]:
    """IP addresses of an interface, the one that was claimed last at the end."""
    return tuple(address.ip for address in state.addresses.values() if address.mac == mac)
