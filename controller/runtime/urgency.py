"""What comes before slots and searches of a large network: links that were cut, and flows that somebody waits for.

A slot takes as long as all flows need, and would hold up whatever is deployed meanwhile at each of its steps. So it
waits until that is deployed, and a while at most; one slot takes place between two such waits. Searches run in threads
of the system and wait at a gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hyroads.controller.framework import ryu_shim as shim

CUT_S = 0.6
"""So long slots and other work wait at most until agents are told of a cut."""
DECLARED_S = 0.06
"""And until declared flows are confirmed: less than a slot, so that none is missed."""


class Urgency:
    """Times are by ``clock``, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until_s = -math.inf
        """-inf: nothing is urgent."""
        self._began_s, self._gave_way_at = 0.0, -1
        self._flows: set[str] = set()
        self._calm = shim.Signal()
        self.searches = shim.Gate()
        """Closed while something is planned, or urgent."""

    @property
    def is_there(self) -> bool:
        """Whether something is to be deployed first."""
        return self._until_s > self._clock()

    def begin(self, within_s: float, slots: int, flows: set[str] | None = None) -> None:
        """Something is to be deployed before the next slot, within a time: with ``flows``, these. ``slots`` have begun
        so far: where such things happen all the time, one slot takes place between two of them.
        """
        if not self.is_there and self._gave_way_at == slots:
            return
        if not self.is_there:
            self._began_s, self._gave_way_at, self._flows = self._clock(), slots, set()
            self.searches.close()
        self._flows |= flows or set()
        self._until_s = max(self._until_s, self._began_s + within_s)

    def deployed(self, carried_out: Callable[[set[str]], bool]) -> None:
        """All agents run what they shall; if flows are waited for as well, ``carried_out`` says whether they are."""
        if self._until_s > -math.inf and (not self._flows or carried_out(self._flows)):
            self.end()

    def end(self) -> None:
        """Nothing is urgent any more."""
        if self._until_s > -math.inf:
            self._until_s = -math.inf
            self._flows = set()
            self.searches.open()
            self._calm.notify()

    def wait(self) -> None:
        """Until nothing is urgent, in a green thread."""
        while (left_s := self._until_s - self._clock()) > 0:
            self._calm.wait(left_s)
