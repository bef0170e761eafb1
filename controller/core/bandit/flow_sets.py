"""What a bandit does when other flows come and go (spec 03, section 3.3).

F_P is the greatest number of flows that interfere on a link of arm P. The rates of an arm were learned under its F_P,
so

- when F_P grows, its rates are scaled by F_old / F_new at once, long before a probe could tell;
- when some F_P shrinks, the rates that were learned when the same set of flows was last active are restored at once; if
  that set was never seen, the bandit restarts.

The set of active flows is known by a hash. The memory holds a bounded number of sets, the latest ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hyroads.controller.core.bandit.flow import BanditError, FlowBandit

_KEPT_SETS = 64


def flow_set_key(flows: Iterable[str]) -> str:
    """The hash of a set of flow ids; order and repetition do not matter."""
    digest = hashlib.blake2b(digest_size=16)
    for flow in sorted(set(flows)):
        encoded = flow.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class FlowSets:
    """The set in force (``key``, F_P of every arm in ``sharing``) and the bandits remembered by key."""

    key: str
    sharing: tuple[int, ...]
    known: Mapping[str, FlowBandit] = field(default_factory=dict)

    def moved(
        self, bandit: FlowBandit, key: str, sharing: Sequence[int], restore_on_growth: bool = False
    ) -> tuple[FlowBandit, FlowSets]:
        """Bandit and sets after the active flows became ``key`` with F_P = ``sharing``.

        The original restores only when flows leave; ``restore_on_growth`` also does so when a known set comes back by
        an arrival, where measured rates are better than scaled ones.
        """
        if len(sharing) != bandit.arms or not all(count >= 1 for count in sharing):
            raise BanditError(f"expected {bandit.arms} numbers of flows, at least 1, got {list(sharing)}")
        if key == self.key and tuple(sharing) == self.sharing:
            return bandit, self
        memory = self._remembering(bandit)
        known = memory.get(key)
        shrunk = any(new < old for new, old in zip(sharing, self.sharing, strict=True))
        if known is not None and (shrunk or restore_on_growth):
            bandit = known
        elif shrunk:
            bandit = bandit.restarted()
        else:
            bandit = bandit.scaled([old / new for old, new in zip(self.sharing, sharing, strict=True)])
        return bandit, FlowSets(key, tuple(sharing), memory)

    def forgotten(self, sharing: Sequence[int]) -> FlowSets:
        """The sets after the arms were recomputed: what was learned belongs to other arms."""
        return replace(self, sharing=tuple(sharing), known={})

    def _remembering(self, bandit: FlowBandit) -> dict[str, FlowBandit]:
        memory = {key: value for key, value in self.known.items() if key != self.key}
        memory[self.key] = bandit
        while len(memory) > _KEPT_SETS:
            del memory[next(iter(memory))]
        return memory
