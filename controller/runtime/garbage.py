"""When the controller looks for cyclic garbage: between slots, and never at what has long been there.

Python's full collections walk through every object that lives, at a moment of their own choosing: 25 to 130 ms on the
plan of an office, more than a slot. Nearly all that is thrown away here goes by reference counting, and cycles (of
requests, exceptions, timers) die young. So the two young generations stay with Python; the old one is looked through
each few seconds, right after a slot, and what survives is then *frozen*: it is not walked through again, though it
is still freed by its reference count. Only cycles that were frozen alive stay behind; once the frozen objects have
doubled all of them are looked through once. They are counted only if there may be too many: counting them takes 26 ms
where there are two million.

Python's thresholds of the young generations are kept. It counts objects made less objects freed, also old ones: with a
threshold of 10,000 so many objects were young after all that one look took 58 ms.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass

LOG = logging.getLogger("hyroads.controller")
EVERY_S = 5.0
# Python's own count of young collections before an old one; so many never come.
NEVER = 2**30
SPARE_OBJECTS = 200_000


@dataclass
class Garbage:
    """Made once per process, as collecting is a matter of the process. Inactive before :meth:`begin`."""

    every_s: float = EVERY_S
    spare_objects: int = SPARE_OBJECTS
    _due_s: float | None = None
    _whole: int = 0
    _frozen_at_most: int = 0

    def begin(self, now_s: float) -> None:
        """The controller has settled: what is there now stays."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, NEVER)
        self._all(now_s)

    def after_slot(self, now_s: float, *, is_urged: bool = False) -> None:
        """There is time until the next slot; does something each ``every_s`` seconds. While somebody waits for
        something else (``is_urged``) it is put off, for as long again at most.
        """
        if self._due_s is None or now_s < self._due_s + (self.every_s if is_urged else 0.0):
            return
        most = 2 * self._whole + self.spare_objects
        if self._frozen_at_most > most:
            # Some of those that were frozen are gone since.
            self._frozen_at_most = gc.get_freeze_count()
        if self._frozen_at_most > most:
            LOG.info("looking for garbage among %d objects", self._frozen_at_most)
            self._all(now_s)
            return
        self._recent(now_s)

    def _all(self, now_s: float) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._whole = self._frozen_at_most = gc.get_freeze_count()
        self._due_s = now_s + self.every_s

    def _recent(self, now_s: float) -> None:
        gc.collect()
        self._frozen_at_most += len(gc.get_objects(generation=2))
        gc.freeze()
        self._due_s = now_s + self.every_s
