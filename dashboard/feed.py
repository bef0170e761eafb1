"""Whether the dashboard hears the controller: when to connect, what is wrong, when it has been silent for too long.

Pure: the time is an argument, in seconds of one clock. ``reader`` connects and reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hyroads.controller.core.strict_json import JsonError, parse

from .state import Changes, FeedError, NetworkState

FIRST_WAIT_S, MAX_WAIT_S = 0.25, 4.0
SILENT_S = 5.0
"""The live document comes each second: a controller that says nothing for so long hangs, or is cut off."""
MAX_EVENT_CHARACTERS = 64 << 20
KINDS = (
    "live", "link", "switch", "agent", "flow", "fault", "state_file", "controller", "client", "policy", "handover",
    "ncast", "session", "reservation", "plugin", "box",
)  # fmt: skip
SIGNS_OF_LIFE = frozenset({"message", ""})
"""Events without a kind only say that the controller is there, and where in its log we are."""


class Phase(Enum):
    """Of the connection to the controller."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Connection:
    """``since_s`` is when the phase began; ``reason`` says why it is lost."""

    phase: Phase
    since_s: float
    reason: str = ""


class Feed:
    """The state machine around a :class:`NetworkState`."""

    def __init__(self, state: NetworkState, now_s: float) -> None:
        self.state = state
        self.connection = Connection(Phase.CONNECTING, now_s)
        self.next_attempt_s = now_s
        self._wait_s = FIRST_WAIT_S
        self._heard_s = now_s
        self.last_event: int | None = None
        """For ``Last-Event-ID``: nothing that happened meanwhile is missed."""

    def connected(self, now_s: float) -> None:
        """A stream is open; the phase changes with its first live document."""
        self._heard_s = now_s

    def heard(self, now_s: float) -> None:
        """Something came, be it a sign of life."""
        self._heard_s = now_s

    def silent(self, now_s: float) -> bool:
        """Whether nothing came for too long."""
        return now_s - self._heard_s > SILENT_S

    def take(self, number: str, kind: str, data: str, now_s: float) -> Changes:
        """An event of the stream; FeedError if it is none of a controller's."""
        self._heard_s = now_s
        if number.isascii() and number.isdigit() and len(number) <= 18:
            self.last_event = int(number)
        if len(data) > MAX_EVENT_CHARACTERS:
            raise FeedError(f"event {kind[:40]!r}: larger than {MAX_EVENT_CHARACTERS} characters")
        if kind in SIGNS_OF_LIFE:
            return Changes()
        try:
            document = parse(data)
        except JsonError as error:
            raise FeedError(f"event {kind[:40]!r}: {error}") from error
        if kind != "live":
            return self.state.take_event(self.last_event or 0, kind, document)
        changes = self.state.take_live(document, now_s)
        if self.connection.phase is Phase.LIVE:
            return changes
        self.connection = Connection(Phase.LIVE, now_s)
        self._wait_s = FIRST_WAIT_S
        return Changes(ids=changes.ids, connection=True, tick=True)

    def lost(self, reason: str, now_s: float) -> Changes:
        """The stream ended, or could not be opened: the next attempt is later each time."""
        self.next_attempt_s = now_s + self._wait_s
        self._wait_s = min(MAX_WAIT_S, 2 * self._wait_s)
        if self.connection.phase is Phase.LOST and self.connection.reason == reason:
            return Changes()
        since_s = self.connection.since_s if self.connection.phase is Phase.LOST else now_s
        self.connection = Connection(Phase.LOST, since_s, reason)
        return Changes(connection=True)
