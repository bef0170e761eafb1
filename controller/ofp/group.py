"""A group of type ALL: a copy of the packet for every bucket. Immutable, with its bytes made once.

The id of a group is a mark and the hash of its buckets, so a group never changes: a switch that has the id has the
group, and other buckets are another group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.action import Action

MARK_VALUE = 0x4000_0000
MARK_MASK = 0xF000_0000
_HASH_MASK = 0x0FFF_FFFF

Bucket = tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """Carries out every bucket on a copy of its own; what a bucket rewrites is not seen by the others."""

    buckets: tuple[Bucket, ...]

    id: int = field(init=False)
    """The mark, and 28 bits of BLAKE2b over the buckets: n groups of a switch clash by chance with n^2 / 2^29."""
    add_body: bytes = field(init=False, repr=False, compare=False)
    """The group-mod that adds this group, without the OpenFlow header."""

    def __post_init__(self) -> None:
        """Encodes the group; raises OpenFlowError if that is not possible."""
        buckets = wire.buckets(self.buckets)
        digest = int.from_bytes(blake2b(buckets, digest_size=8).digest(), "big")
        number = MARK_VALUE | digest & _HASH_MASK
        object.__setattr__(self, "id", number)
        object.__setattr__(self, "add_body", wire.group_mod_body(wire.GROUP_ADD, number, buckets))


@dataclass(frozen=True, slots=True)
class GroupDelete:
    """A group of ours that is not wanted any more."""

    id: int

    @property
    def delete_body(self) -> bytes:
        """The group-mod that deletes it."""
        return wire.group_mod_body(wire.GROUP_DELETE, self.id)


def is_ours(number: int) -> bool:
    """Whether a group with this id was made by HyRoads."""
    return number & MARK_MASK == MARK_VALUE
