"""Which ports of a switch each slice sees."""

from __future__ import annotations

from collections.abc import Mapping

from hyroads.slices.model import PRODUCTION, Permission, Slice, SliceModel

LOCAL = 0xFFFFFFFE
"""The switch's own host: a slice has it only by name, or as production."""


Ports = tuple[frozenset[int], frozenset[int]]
"""What a slice sees, and which of these it owns whole."""


def ports_of_slice(each: Slice, dpid: int, names: Mapping[str, int]) -> Ports | None:
    """The ports of a slice (not production) by the names and numbers of the switch; None if it owns nothing there."""
    rules = [rule for rule in each.flowspace if rule.on(dpid)]
    if not rules:
        return None
    present = frozenset(names.values())
    ordinary = present - {LOCAL}
    seen: set[int] = set()
    whole: set[int] = set()
    for rule in rules:
        mine = ordinary if rule.ports is None else _named(rule.ports, names) & present
        seen |= mine
        if any(not match.mask for match in rule.matches):
            whole |= mine
    return frozenset(seen), frozenset(whole) if Permission.WRITE in each.permissions else frozenset()


def _named(ports: frozenset[int | str], names: Mapping[str, int]) -> frozenset[int]:
    return frozenset(names.get(port, -1) if isinstance(port, str) else port for port in ports)


class SlicePorts:
    """The ports of all slices on one switch; what has not changed is not computed again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Slice, Ports | None]] = {}
        self._names: dict[str, int] = {}

    def of(self, model: SliceModel, dpid: int, names: Mapping[str, int]) -> dict[str, frozenset[int]]:
        """The ports of every slice that may own something on the switch; ``names`` are all its ports.

        Production sees those ports that no other slice owns whole.
        """
        if names != self._names:
            self._known, self._names = {}, dict(names)
        before, self._known = self._known, {}
        found: dict[str, frozenset[int]] = {}
        taken: set[int] = set()
        for name, each in model.slices.items():
            if name == PRODUCTION:
                continue
            old = before.get(name)
            mine = old[1] if old is not None and old[0] is each else ports_of_slice(each, dpid, names)
            self._known[name] = each, mine
            if mine is not None:
                found[name] = mine[0]
                taken |= mine[1]
        found[PRODUCTION] = frozenset(names.values()) - taken
        return found
