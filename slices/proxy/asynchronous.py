"""Which events a guest wants in which role (OpenFlow Switch Specification 1.3.5, section 7.3.10)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from hyroads.slices.proxy.refusal import bad_request
from hyroads.slices.proxy.roles import SLAVE

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
        place = _PLACES[kind] + (role == SLAVE)
        mask: int = _MASKS.unpack(self.masks)[place]
        return bool(mask >> min(reason, 31) & 1)
