"""Rules and groups of one switch: immutable, with their bytes made once (docs/reference/openflow.md, section 3).

A rule's cookie and a group's id hold HyRoads' mark and a hash of what they say. So neither ever changes: a switch that
has the id has the group, and other buckets are another group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from . import wire
from .match import Action, Match

MARK = 0x48
MARK_VALUE = MARK << 56
MARK_MASK = 0xFF << 56
FULL_MASK = 0xFFFF_FFFF_FFFF_FFFF


def cookie_of(table: int, priority: int, match: bytes, instructions: bytes) -> int:
    """0x48 in the top byte, then 56 bits of BLAKE2b over table, priority, match and instructions.

    Equal cookies mean equal rules: with n rules on a switch two differ by chance with probability n^2 / 2^57.
    """
    digest = blake2b(match, digest_size=7)
    digest.update(table.to_bytes(1, "big") + priority.to_bytes(2, "big") + instructions)
    return MARK_VALUE | int.from_bytes(digest.digest(), "big")


def is_ours(cookie: int) -> bool:
    """Whether a rule with this cookie was installed by HyRoads."""
    return cookie & MARK_MASK == MARK_VALUE


RuleKey = tuple[int, int, bytes]
"""(table, priority, match fields): a switch holds at most one rule with a given key."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Packets of ``table`` that ``match`` get ``actions`` and then, with ``goto``, go on in that table.

    Without actions and ``goto`` they are dropped.
    """

    table: int
    priority: int
    match: Match
    actions: tuple[Action, ...] = ()
    goto: int | None = None
    meter: int | None = None
    """They pass this meter first."""

    match_fields: bytes = field(init=False, repr=False, compare=False)
    """The match as OXM fields in ascending order, without header and padding."""
    instructions: bytes = field(init=False, repr=False, compare=False)
    cookie: int = field(init=False, repr=False, compare=False)
    key: RuleKey = field(init=False, repr=False, compare=False)
    """What the switch tells rules apart by."""
    add_body: bytes = field(init=False, repr=False, compare=False)
    """The flow-mod that adds (or overwrites) this rule, without the OpenFlow header: the template."""

    def __post_init__(self) -> None:
        """Encodes the rule; raises OpenFlowError if that is not possible."""
        # Eagerly and not by cached_property, whose lock costs as much as the encoding. ``match_fields`` is canonical.
        fields = wire.match_fields(self.match)
        instructions = wire.instructions(self.actions, self.goto, self.meter)
        cookie = cookie_of(self.table, self.priority, fields, instructions)
        body = wire.flow_mod_body(wire.ADD, self.table, self.priority, fields, instructions, cookie=cookie)
        keep = object.__setattr__
        keep(self, "match_fields", fields)
        keep(self, "instructions", instructions)
        keep(self, "cookie", cookie)
        keep(self, "key", (self.table, self.priority, fields))
        keep(self, "add_body", body)


GROUP_MARK_VALUE = 0x4000_0000
GROUP_MARK_MASK = 0xF000_0000


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group of type ALL: carries out every bucket on a copy of its own, unseen by the others."""

    buckets: tuple[tuple[Action, ...], ...]

    id: int = field(init=False)
    """The mark, and 28 bits of BLAKE2b over the buckets: n groups of a switch clash by chance with n^2 / 2^29."""
    add_body: bytes = field(init=False, repr=False, compare=False)
    """The group-mod that adds this group, without the OpenFlow header."""

    def __post_init__(self) -> None:
        """Encodes the group; raises OpenFlowError if that is not possible."""
        buckets = wire.buckets(self.buckets)
        digest = int.from_bytes(blake2b(buckets, digest_size=8).digest(), "big")
        number = GROUP_MARK_VALUE | digest & ~GROUP_MARK_MASK & 0xFFFF_FFFF
        object.__setattr__(self, "id", number)
        object.__setattr__(self, "add_body", wire.group_mod_body(wire.GROUP_ADD, number, buckets))


def is_our_group(number: int) -> bool:
    """Whether a group with this id was made by HyRoads."""
    return number & GROUP_MARK_MASK == GROUP_MARK_VALUE
