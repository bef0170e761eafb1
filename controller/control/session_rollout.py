"""How a new source tree takes the place of an old one, so that every message takes exactly one of them. Pure.

Each version of a tree has a label of its own. Its switches learn it first; once all have confirmed, the edge of the
source writes the new label; the old one stays until what is behind it has arrived (the two-phase update of Reitblatt,
Foster, Rexford, Schlesinger and Walker, "Abstractions for network update", SIGCOMM 2012). Nothing remembers how far a
change has come but what was told last; a change may be overtaken by the next at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from hyroads.controller.ofp.session_trees import RootedTree

DRAIN_S = 1.0
"""A message is delivered long before: queues of the media hold some hundred milliseconds."""

Confirmed = Callable[[str, int], bool]
"""Whether the switch of a node has confirmed the branch of a label (it is on the label's tree)."""
Enters = Callable[[RootedTree], bool]
"""Whether frames may enter a tree at the edge of its source, as far as that has confirmed; true if it is not there."""


@dataclass(frozen=True, slots=True)
class Retiring:
    """A tree that nothing enters any more; ``until_s`` is None while its edge has not confirmed that."""

    tree: RootedTree
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """The trees of one source: what is wanted, what frames enter, and what has to stay for a while.

    ``current`` without ``wanted``: the source leaves.
    """

    wanted: RootedTree | None = None
    current: RootedTree | None = None
    retiring: tuple[Retiring, ...] = ()

    @property
    def trees(self) -> Iterator[RootedTree]:
        """All trees whose branches switches shall have."""
        named = {tree.label: tree for tree in (self.wanted, self.current) if tree is not None}
        yield from named.values()
        yield from (old.tree for old in self.retiring if old.tree.label not in named)

    @property
    def is_over(self) -> bool:
        """Whether nothing of the source is left."""
        return self.wanted is None and self.current is None and not self.retiring


def wanting(rollout: Rollout, tree: RootedTree | None) -> Rollout:
    """Another tree is wanted (None: none any more). One that was wanted before and never entered just goes."""
    return replace(rollout, wanted=tree)


def advanced(rollout: Rollout, confirmed: Confirmed, enters: Enters, now_s: float) -> Rollout:
    """What may be told now, given what switches have confirmed."""
    wanted, current, retiring = rollout.wanted, rollout.current, rollout.retiring
    may_enter = wanted is not None and all(confirmed(node, wanted.label) for node in wanted.branches)
    is_new = wanted is not None and (current is None or current.label != wanted.label)
    if current is not None and (wanted is None or (is_new and may_enter)):
        retiring = (*retiring, Retiring(current))
        current = None
    if is_new and may_enter:
        current = wanted
    settled = (_settled(old, enters, now_s) for old in retiring if current is None or old.tree.label != current.label)
    alive = tuple(old for old in settled if old.until_s is None or now_s < old.until_s)
    result = Rollout(wanted, current, alive)
    return rollout if result == rollout else result


def _settled(old: Retiring, enters: Enters, now_s: float) -> Retiring:
    return old if old.until_s is not None or enters(old.tree) else replace(old, until_s=now_s + DRAIN_S)


def is_told(rollout: Rollout) -> bool:
    """Whether the edge of the source was told to use the tree that is wanted, or none if none is."""
    wanted, current = rollout.wanted, rollout.current
    return current is None if wanted is None else current is not None and current.label == wanted.label
