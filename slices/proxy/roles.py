"""Roles of the controllers of one slice on one switch, and which events they want in which role (OpenFlow Switch
Specification 1.3.5, sections 6.3.6 and 7.3.10).

The proxy plays the switch's part: each slice has masters and slaves of its own, and nothing of it reaches the switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.slices.core.errors import ROLE_REQUEST_FAILED, Refused, bad_request

NO_CHANGE, EQUAL, MASTER, SLAVE = range(4)
_STALE, _BAD_ROLE, _IS_SLAVE = 0, 2, 10
_ROLE = Struct("!I4xQ")
_NOT_ASKED = (1 << 64) - 1


class Roles:
    """The roles of the guests of one slice; a new guest is equal."""

    def __init__(self) -> None:
        self._roles: dict[int, int] = {}
        self._generation: int | None = None

    def role(self, guest: int) -> int:
        """The role of a guest."""
        return self._roles.get(guest, EQUAL)

    def leave(self, guest: int) -> None:
        """A guest's connection is gone."""
        self._roles.pop(guest, None)

    def request(self, guest: int, message: bytes) -> bytes:
        """The reply to a role request; :class:`Refused` if it is stale or asks for no role."""
        if len(message) != 24:
            raise bad_request(6, f"role request of {len(message)} bytes")
        role, generation = _ROLE.unpack_from(message, 8)
        if role > SLAVE:
            raise Refused(ROLE_REQUEST_FAILED, _BAD_ROLE, f"role {role}")
        if role in {MASTER, SLAVE}:
            self._check_generation(generation)
        if role == MASTER:
            for other, was in self._roles.items():
                if was == MASTER:
                    self._roles[other] = SLAVE
        if role != NO_CHANGE:
            self._roles[guest] = role
        xid = int.from_bytes(message[4:8], "big")
        known = _NOT_ASKED if self._generation is None else self._generation
        return wire.message(_ROLE.pack(self.role(guest), known), xid, wire.ROLE_REPLY)

    def _check_generation(self, generation: int) -> None:
        """Refuses a generation older than the last, by the distance of sequence numbers modulo 2^64."""
        last = self._generation
        if last is not None and (generation - last) % (1 << 64) >= 1 << 63:
            raise Refused(ROLE_REQUEST_FAILED, _STALE, f"generation {generation} is older than {last}")
        self._generation = generation

    def check(self, guest: int) -> None:
        """Refuses a message that changes the switch if its sender is a slave."""
        if self.role(guest) == SLAVE:
            raise bad_request(_IS_SLAVE, "a slave can't change the switch")


_MASKS = Struct("!6I")
_PLACES = {10: 0, 12: 2, 11: 4}
"""Packet-in, port-status, flow-removed: where the pair of masks is, for master or equal and for slave."""
_DEFAULT = _MASKS.pack(7, 0, 7, 7, 15, 0)


@dataclass(frozen=True, slots=True)
class AsyncConfig:
    """Three pairs of masks as on the wire; by default slaves hear of ports only."""

    masks: bytes = _DEFAULT

    @classmethod
    def of_message(cls, message: bytes) -> AsyncConfig:
        """From a set-async message; :class:`Refused` if it has the wrong length."""
        if len(message) != 8 + _MASKS.size:
            raise bad_request(6, f"set-async of {len(message)} bytes")
        return cls(message[8:])

    def wants(self, kind: int, reason: int, role: int) -> bool:
        """Whether the guest wants this message in its role."""
        return bool(self.reasons(kind, role) >> min(reason, 31) & 1)

    def reasons(self, kind: int, role: int) -> int:
        """The reasons of this kind of message that the guest wants in its role, one bit each."""
        mask: int = _MASKS.unpack(self.masks)[_PLACES[kind] + (role == SLAVE)]
        return mask
