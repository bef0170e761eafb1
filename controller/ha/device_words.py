"""What devices say of the leader, and which of them contradict most devices or etcd. Pure: time is an argument.

A stolen device has a valid token and may say anything. So no word of one device counts: that the leader lives is what
most of those say that were queried a moment ago, and an epoch that is greater than etcd's is what most devices show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

ANSWER_S = 0.1
"""A device that has not answered for so long counts as one that does not hear the leader."""
QUARANTINE_S = 60.0
READ_AGAIN_S = 0.25
"""Between two reads of etcd that devices cause."""
_READS = 2
"""The second read after an epoch was shown began after that."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A device whose words do not count for ``QUARANTINE_S``."""

    node: str
    why: str


@dataclass
class _Vote:
    at_s: float
    epoch: int
    heard_s: float

    def hears(self, epoch: int, now_s: float, silence_s: float) -> bool:
        """Whether it says that the leader of an epoch lives."""
        return self.epoch == epoch and now_s - self.heard_s < silence_s


@dataclass
class _Shown:
    """``epoch`` is the greatest; etcd has not reached ``first``, shown before, in ``reads`` reads since."""

    epoch: int
    first: int
    reads: int = 0


@dataclass
class DeviceWords:
    """By node. ``count`` is how many nodes have a device that is connected."""

    count: int = 0
    _open: dict[str, float] = field(default_factory=dict)
    """When a query was sent that is not answered."""
    _votes: dict[str, _Vote] = field(default_factory=dict)
    _shown: dict[str, _Shown] = field(default_factory=dict)
    _quarantined: dict[str, float] = field(default_factory=dict)
    """Until when."""
    _caused_s: float = float("-inf")
    """When a device caused a read of etcd last."""

    # -- whether the leader lives

    def queried(self, node: str, now_s: float) -> None:
        """A device is sent a query for when it heard the leader."""
        if now_s - self._open.get(node, float("-inf")) >= 2 * ANSWER_S:
            self._open[node] = now_s

    def says(self, node: str, epoch: int, heard_s: float, now_s: float) -> None:
        """A device answers: it heard the leader of an epoch, the greatest that it knows, at some time."""
        if self._open.pop(node, None) is not None:
            self._votes[node] = _Vote(now_s, epoch, min(heard_s, now_s))

    def shift(self, gap_s: float) -> None:
        """This process did not run for some time, in which no device was silent."""
        self._open = {node: at_s + gap_s for node, at_s in self._open.items()}
        for vote in self._votes.values():
            vote.at_s += gap_s
            vote.heard_s += gap_s

    def lives(self, epoch: int, now_s: float, silence_s: float) -> bool:
        """Whether most devices that were queried within the last ``silence_s`` hear the leader of an epoch; 0: none."""
        voters = list(self._voters(now_s, silence_s))
        hearing = sum(vote.hears(epoch, now_s, silence_s) for _, vote in voters)
        return epoch > 0 and 2 * hearing > len(voters)

    def outvoted(self, epoch: int, now_s: float, silence_s: float) -> list[Contradiction]:
        """Devices that say they hear the leader of an epoch long after most have heard it last; called once it counts
        as dead. They are in quarantine from now on.
        """
        voters = list(self._voters(now_s, silence_s))
        deaf = [vote.heard_s for _, vote in voters if not vote.hears(epoch, now_s, silence_s) and vote.epoch == epoch]
        if not deaf:
            return []
        last_s = max(deaf) + silence_s / 2
        found = [node for node, vote in voters if vote.hears(epoch, now_s, silence_s) and vote.heard_s > last_s]
        return [
            self._accuse(node, f"it says that it hears epoch {epoch}, and most devices do not", now_s) for node in found
        ]

    def _voters(self, now_s: float, silence_s: float) -> Iterator[tuple[str, _Vote]]:
        for node, queried_s in self._open.items():
            if ANSWER_S <= now_s - queried_s < silence_s and self._counts(node, now_s):
                yield node, _Vote(queried_s, 0, float("-inf"))
        for node, vote in self._votes.items():
            is_late = now_s - self._open.get(node, now_s) >= ANSWER_S
            if now_s - vote.at_s < silence_s and not is_late and self._counts(node, now_s):
                yield node, vote

    # -- epochs

    def shows(self, node: str, epoch: int, known: int, now_s: float) -> bool:
        """A device shows the greatest epoch that it knows; whether etcd is to be read: it is greater than ``known``."""
        before = self._shown.get(node)
        if before is None:
            self._shown[node] = _Shown(epoch, epoch)
        elif epoch > before.epoch:
            before.epoch = epoch
        if epoch <= known or not self._counts(node, now_s) or now_s - self._caused_s < READ_AGAIN_S:
            return False
        self._caused_s = now_s
        return True

    @property
    def epoch_of_most(self) -> int:
        """The greatest epoch that more than half of all devices show, or a greater one; 0: none."""
        shown = sorted((each.epoch for each in self._shown.values()), reverse=True)
        place = max(self.count, len(shown)) // 2
        return shown[place] if place < len(shown) else 0

    def etcd_read(self, known: int, now_s: float) -> list[Contradiction]:
        """Etcd was read, and no epoch is greater than ``known``: devices that still show one are in quarantine."""
        found = []
        for node, shown in self._shown.items():
            if shown.first <= known:
                shown.first, shown.reads = shown.epoch, 0
                continue
            shown.reads += 1
            if shown.reads >= _READS and self._counts(node, now_s):
                why = f"it shows epoch {shown.epoch}, and etcd's is {known}"
                found.append(self._accuse(node, why, now_s))
        return found

    def _counts(self, node: str, now_s: float) -> bool:
        return now_s >= self._quarantined.get(node, now_s)

    def _accuse(self, node: str, why: str, now_s: float) -> Contradiction:
        self._quarantined[node] = now_s + QUARANTINE_S
        return Contradiction(node, why)
