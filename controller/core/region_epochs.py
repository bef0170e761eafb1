"""Which controller of a neighbouring region is heard, by the epoch with which it says it leads that region. Pure.

The epoch that a controller names when it dials is a claim. It counts against a controller that is heard and lives only
if a controller of that region, dialled at its address of the settings, leads with it. So a claim ends with its
connection, and no claim keeps the region's leader out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeardEpochs:
    """The state of a neighbouring region as this one sees it."""

    shown: int = 0
    """The greatest epoch that a controller dialled at its address leads with; 0: none does."""
    living: int | None = None
    """The epoch of the connection that is heard, if it lives."""

    def refusal(self, region: str, epoch: int) -> str:
        """Why a controller that dials and claims an epoch is not heard; "" if it is heard from now on, and no other."""
        if epoch < self.shown:
            return f"region {region}: epoch {epoch} is over, who leads with {self.shown} is heard"
        if self.living is None:
            return ""
        if epoch == self.living:
            return f"region {region} is connected already: is there a second controller of it?"
        if epoch == self.shown:
            return ""
        return (
            f"region {region}: epoch {self.living} is heard and lives, and no controller that region.peers names "
            f"leads with epoch {epoch}"
        )
