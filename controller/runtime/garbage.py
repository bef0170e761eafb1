"""When the controller looks for cyclic garbage: between slots, and never at what has long been there.

Python's full collections walk through every object that lives, at a moment of their own choosing: 25 to 130 ms on the
plan of an office, more than a slot. Nearly all that is thrown away here goes by reference counting, and cycles (of
requests, exceptions, timers) die young. So the two young generations stay with Python; the old one is looked through
each few seconds, right after a slot, and what survives is then *frozen*: it is not walked through again, though it
is still freed by its reference count. Only cycles that were frozen alive stay behind; once the objects in use have
doubled all of them are looked through once.

What there is to look through grows with the time between two looks: where a look takes long the next ones are sooner,
so that none takes much longer than ``LOOK_S``.
Frozen objects are never counted, as Python walks through all of them for it (3 million: 0.3 s, three slots).

Python's thresholds of the young generations are kept. It counts objects made less objects freed, also old ones: with a
threshold of 10,000 so many objects were young after all that one look took 58 ms.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from dataclasses import dataclass

LOG = logging.getLogger("hyroads.controller")
EVERY_S = 5.0
# A look should take no longer; looks are no closer than that.
LOOK_S = 0.01
LEAST_S = 0.5
# Python's own count of young collections before an old one; so many never come.
NEVER = 2**30
SPARE_OBJECTS = 200_000
_worked_s = time.thread_time
"""Of the processor: that somebody else had it meanwhile is not what a look costs."""


@dataclass
class Garbage:
    """Made once per process, as collecting is a matter of the process. Inactive before :meth:`begin`."""

    every_s: float = EVERY_S
    spare_objects: int = SPARE_OBJECTS
    _due_s: float | None = None
    _looked_s: float = 0.0
    _whole: int = 0

    def begin(self, now_s: float) -> None:
        """The controller has settled: what is there now stays."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, NEVER)
        self._all(now_s)

    def hold(self) -> None:
        """Not even the young generations are looked through until the next slot has ended and nothing is urgent."""
        gc.disable()

    def after_slot(self, now_s: float, *, is_urged: bool = False) -> None:
        """There is time until the next slot; does something each ``every_s`` seconds at most. While somebody waits for
        something else (``is_urged``) it is put off, for as long again at most, and so is the end of :meth:`hold`.
        """
        is_put_off = is_urged and (self._due_s is None or now_s < self._due_s + self.every_s)
        if not is_put_off:
            gc.enable()
        if is_put_off or self._due_s is None or now_s < self._due_s:
            return
        in_use = sys.getallocatedblocks()
        if in_use > 2 * self._whole + self.spare_objects:
            LOG.info("looking for garbage among all objects: %d blocks of memory, %d before", in_use, self._whole)
            self._all(now_s)
            return
        self._recent(now_s)

    def _all(self, now_s: float) -> None:
        gc.unfreeze()
        self._recent(now_s)
        # That is no measure of what there will be to look through.
        self._due_s = now_s + self.every_s
        self._whole = sys.getallocatedblocks()

    def _recent(self, now_s: float) -> None:
        began_s = _worked_s()
        gc.collect()
        gc.freeze()
        share = LOOK_S / max(1e-6, _worked_s() - began_s)
        self._due_s = now_s + min(self.every_s, max(LEAST_S, (now_s - self._looked_s) * share))
        self._looked_s = now_s
