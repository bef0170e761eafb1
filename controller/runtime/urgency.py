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
RECENT_S = 1.0
"""Who declares flows often declares more within this time, and the solver takes longest in slots after new ones."""


class Urgency:
    """Times are by ``clock``, in seconds. ``holds`` is told when something is urgent (True) and when nothing is any
    more, ``stops`` for how long what runs :meth:`aside` shall stop at most, in seconds; 0: it goes on.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        holds: Callable[[bool], None] = lambda is_urgent: None,
        stops: Callable[[float], None] = lambda during_s: None,
    ) -> None:
        self._clock, self._holds, self._stops = clock, holds, stops
        self._until_s = -math.inf
        """-inf: nothing is urgent."""
        self._began_s, self._gave_way_at = -math.inf, -1
        self._flows: set[str] = set()
        self._is_cut = False
        self.others_s = math.inf
        """How long others took when they ran within a slot the last time."""
        self.goes_first = False
        """Whether a flow is declared, or was since the last slot began."""
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
            self._began_s, self._gave_way_at, self._flows, self._is_cut = self._clock(), slots, set(), False
            self.searches.close()
            self._holds(True)
        self._flows |= flows or set()
        self._is_cut |= flows is None
        self.goes_first |= flows is not None
        self._until_s = max(self._until_s, self._began_s + within_s)
        # After a cut who would be stopped may be what it waits for.
        self._stops(0.0 if self._is_cut else max(0.0, self._until_s - self._clock()))

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
            self._stops(0.0)
            self._holds(False)
            self._calm.notify()

    def slot_begins(self) -> None:
        """Nothing is urgent any more, and what was is not what others wait for."""
        self.end()
        self.goes_first = False

    def wait(self) -> None:
        """Until nothing is urgent, in a green thread."""
        while (left_s := self._until_s - self._clock()) > 0:
            self._calm.wait(left_s)

    def give_way(self) -> None:
        """Within a slot: let others run, and wait for declared flows, also for those that are declared now."""
        began_s = self._clock()
        shim.sleep(0)
        self.others_s = self._clock() - began_s
        self.wait_for_flows()

    def aside(self, function: Callable[[], int]) -> int:
        """Within a slot: what a function of milliseconds gives, while others run; it stops for declared flows. While
        none were declared lately it is simply called, and also in a thread of the system, where others run anyway.
        """
        if self._clock() >= self._began_s + RECENT_S or not shim.is_green():
            return function()
        found: int = shim.in_thread(function)
        self.wait_for_flows()
        return found

    def wait_for_flows(self) -> None:
        """Until no declared flow is urgent; after a cut at once, as that may need who waits here."""
        while not self._is_cut and (left_s := self._until_s - self._clock()) > 0:
            self._calm.wait(left_s)
