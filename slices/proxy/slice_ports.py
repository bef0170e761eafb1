"""Which ports of a switch each slice sees."""

from __future__ import annotations

from collections.abc import Mapping

from hyroads.slices.match import ALL
from hyroads.slices.model import PRODUCTION, FlowspaceRule, Permission, SliceModel

LOCAL = 0xFFFFFFFE
"""The switch's own host: a slice has it only by name, or as production."""


def ports_of_slices(model: SliceModel, dpid: int, names: Mapping[str, int]) -> dict[str, frozenset[int]]:
    """The ports of every slice that may own something on the switch; ``names`` are all its ports.

    Production sees those ports that no other slice owns whole.
    """
    present = frozenset(names.values())
    found, taken = {}, set()
    for name, each in model.slices.items():
        rules = [rule for rule in each.flowspace if rule.on(dpid)]
        if name != PRODUCTION and rules:
            mine = [_of_rule(rule, names, present) for rule in rules]
            found[name] = frozenset().union(*mine)
            if Permission.WRITE in each.permissions:
                taken |= {p for rule, ports in zip(rules, mine, strict=True) if ALL in rule.matches for p in ports}
    found[PRODUCTION] = present - taken
    return found


def _of_rule(rule: FlowspaceRule, names: Mapping[str, int], present: frozenset[int]) -> frozenset[int]:
    if rule.ports is None:
        return present - {LOCAL}
    return frozenset(names.get(port, -1) if isinstance(port, str) else port for port in rule.ports) & present
