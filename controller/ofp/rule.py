"""A rule of one switch: immutable, with its bytes made once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.action import Action
from hyroads.controller.ofp.cookie import cookie_of
from hyroads.controller.ofp.match import Match

RuleKey = tuple[int, int, bytes]
"""(table, priority, match fields): a switch holds at most one rule with a given key."""


@dataclass(frozen=True)
class Rule:
    """Packets of ``table`` that ``match`` get ``actions`` and then, with ``goto``, go on in that table.

    Without actions and ``goto`` they are dropped.
    """

    table: int
    priority: int
    match: Match
    actions: tuple[Action, ...] = ()
    goto: int | None = None

    @cached_property
    def match_fields(self) -> bytes:
        """The match as OXM fields in ascending order, without header and padding."""
        return wire.match_fields(self.match)

    @cached_property
    def instructions(self) -> bytes:
        """The instructions as bytes."""
        return wire.instructions(self.actions, self.goto)

    @cached_property
    def key(self) -> RuleKey:
        """What the switch tells rules apart by."""
        return (self.table, self.priority, self.match_fields)

    @cached_property
    def cookie(self) -> int:
        """The mark and the hash of the rule."""
        return cookie_of(self.table, self.priority, self.match_fields, self.instructions)

    @cached_property
    def add_body(self) -> bytes:
        """The flow-mod that adds (or overwrites) this rule, without the OpenFlow header: the template."""
        return wire.flow_mod_body(
            wire.ADD, self.table, self.priority, self.match_fields, self.instructions, cookie=self.cookie
        )
