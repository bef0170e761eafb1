"""A rule of one switch: immutable, with its bytes made once."""

from __future__ import annotations

from dataclasses import dataclass, field

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.action import Action
from hyroads.controller.ofp.cookie import cookie_of
from hyroads.controller.ofp.match import Match

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

    match_fields: bytes = field(init=False, repr=False, compare=False)
    """The match as OXM fields in ascending order, without header and padding."""
    instructions: bytes = field(init=False, repr=False, compare=False)
    cookie: int = field(init=False, repr=False, compare=False)
    """The mark and the hash of the rule."""
    key: RuleKey = field(init=False, repr=False, compare=False)
    """What the switch tells rules apart by."""
    add_body: bytes = field(init=False, repr=False, compare=False)
    """The flow-mod that adds (or overwrites) this rule, without the OpenFlow header: the template."""

    def __post_init__(self) -> None:
        """Encodes the rule; raises OpenFlowError if that is not possible."""
        # Eagerly and not by cached_property, whose lock costs as much as the encoding. ``match_fields`` is canonical.
        fields = wire.match_fields(self.match)
        instructions = wire.instructions(self.actions, self.goto)
        cookie = cookie_of(self.table, self.priority, fields, instructions)
        body = wire.flow_mod_body(wire.ADD, self.table, self.priority, fields, instructions, cookie=cookie)
        keep = object.__setattr__
        keep(self, "match_fields", fields)
        keep(self, "instructions", instructions)
        keep(self, "cookie", cookie)
        keep(self, "key", (self.table, self.priority, fields))
        keep(self, "add_body", body)
