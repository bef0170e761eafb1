"""How long each slot of a controller took, exactly: the controller's own percentiles are over its last slots, whatever
these were. The program of the controller writes each duration to a file; a reading costs it nothing.
"""

from __future__ import annotations

import array
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The controller's own program, which writes each slot's duration in seconds as a float64.
PROGRAM = """
import struct
import hyroads.controller.control.slots as slots
log = open({path!r}, "ab", buffering=0)
end = slots.SlotClock.__exit__
def noted(self, kind, error, trace):
    before_s = self.histogram.total_s
    end(self, kind, error, trace)
    log.write(struct.pack("d", self.histogram.total_s - before_s))
slots.SlotClock.__exit__ = noted
from hyroads.controller.framework.launcher import run_controller
raise SystemExit(run_controller())
"""
_BYTES = 8


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank, of at least one value."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class SlotLog:
    """The file that a controller with ``program`` writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    @property
    def program(self) -> str:
        """What the controller's process runs: ``python -c``."""
        return PROGRAM.format(path=str(self._path))

    def place(self) -> int:
        """How many slots took place so far."""
        return self._path.stat().st_size // _BYTES

    def figures(self, since: int) -> dict[str, Any]:
        """Count, percentiles and the longest, in ms, of the slots after the first ``since``."""
        took_s = array.array("d", self._path.read_bytes()[_BYTES * since : _BYTES * self.place()])
        if not took_s:
            return {"slots": 0}
        shares = {f"p{100 * share:.0f}_ms": 1e3 * percentile(took_s, share) for share in (0.5, 0.99)}
        return {"slots": len(took_s), **shares, "max_ms": 1e3 * max(took_s)}
