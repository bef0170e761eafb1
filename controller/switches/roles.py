"""This controller's role at one switch: master or slave by OpenFlow's generation id (OpenFlow 1.3.5, section 6.3.6).

The epoch of a leader is the generation id. A switch refuses the changes of a slave, and the role requests of an older
generation: so a leader that was frozen and goes on changes nothing, whatever it believes. A switch tells nobody in
OpenFlow 1.3 that it has another master; a controller learns that from a refusal, and then asks whose generation it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct

from hyroads.controller.ofp import wire

NO_GENERATION = (1 << 64) - 1
"""What a switch answers while nobody has told it a generation id."""
BAD_REQUEST, BAD_TYPE, IS_SLAVE = 1, 1, 10
ROLE_REQUEST_FAILED, STALE = 11, 0
_ROLE = Struct("!I4xQ")


class Role(IntEnum):
    """Roles as on the wire; ``NO_CHANGE`` in a request only asks."""

    NO_CHANGE = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


def role_request(xid: int, role: Role, generation: int = 0) -> bytes:
    """The message that asks a switch for a role."""
    return wire.message(_ROLE.pack(role, generation), xid, wire.ROLE_REQUEST)


@dataclass
class SwitchRole:
    """``epoch`` is that of the leader, None for a follower. ``seen(generation)`` is told which generation a switch has,
    ``refused()`` of each message that it refused because another one is its master.
    """

    epoch: int | None
    next_xid: Callable[[int], int]
    seen: Callable[[int], None]
    refused: Callable[[], None]
    is_master: bool = False
    """Whether the switch has confirmed it, and has refused nothing since."""
    knows_roles: bool = True
    _xids: dict[int, Role] = field(default_factory=dict)

    def begin(self) -> bytes:
        """The first message of a connection: a leader asks to be master, a follower for the generation."""
        return self._ask(Role.NO_CHANGE if self.epoch is None else Role.MASTER, self.epoch or 0)

    def on_reply(self, xid: int, role: int, generation: int) -> bytes:
        """The switch tells our role and its generation; what to send next, if anything."""
        asked = self._xids.pop(xid, None)
        if asked is None:
            return b""
        self.is_master = self.epoch is not None and role == Role.MASTER and generation == self.epoch
        if generation != NO_GENERATION:
            self.seen(generation)
        if self.epoch is None and role != Role.SLAVE:
            return self._ask(Role.SLAVE, 0 if generation == NO_GENERATION else generation)
        return b""

    def on_error(self, xid: int, kind: int, code: int) -> tuple[bool, bytes]:
        """Whether an error is about roles, and what to send next.

        A message that a slave may not send counts as one, but is still to be told to whoever has sent it.
        """
        asked = self._xids.pop(xid, None)
        if asked is not None:
            return True, self._request_refused(asked, kind, code)
        if (kind, code) != (BAD_REQUEST, IS_SLAVE):
            return False, b""
        self.refused()
        was_master, self.is_master = self.is_master, False
        # Once, not for each message of a batch.
        return False, self._ask(Role.NO_CHANGE) if was_master else b""

    def _request_refused(self, asked: Role, kind: int, code: int) -> bytes:
        self.is_master = False
        if (kind, code) == (ROLE_REQUEST_FAILED, STALE):
            self.refused()
            return self._ask(Role.NO_CHANGE)
        if (kind, code) == (BAD_REQUEST, BAD_TYPE):
            # It can't be fenced; a leader goes on nevertheless, as without roles.
            self.knows_roles, self.is_master = False, self.epoch is not None
        return b""

    def _ask(self, role: Role, generation: int = 0) -> bytes:
        xid = self.next_xid(1)
        self._xids[xid] = role
        return role_request(xid, role, generation)


def parse_role_reply(message: bytes) -> tuple[int, int, int]:
    """(transaction id, role, generation id) of a checked role reply."""
    return wire.HEADER.unpack_from(message)[3], *_ROLE.unpack_from(message, 8)
