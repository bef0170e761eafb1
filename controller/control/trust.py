"""Whether a flow with the policy ``auto`` follows the model or its own measurements (docs/explanation/bandit.md,
"Live"). Pure.

The model is believed until two probes in a row say that it is wrong: the optimum that was measured of the model's own
multipath differs from what the model says by more than 10 % and two standard errors, or another multipath measures
10 % better. It is believed again after three probes in a row that agree.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = 0.1
ERRORS = 2.0
DOUBTS = 2
AGREEMENTS = 3


@dataclass(frozen=True, slots=True)
class Trust:
    """``model``: it is believed; ``against``: probes in a row that said otherwise."""

    model: bool = True
    against: int = 0

    def after(
        self, measured_mbps: float, modelled_mbps: float, relative_error: float, best_mbps: float, own_mbps: float
    ) -> Trust:
        """After a probe. ``best_mbps`` and ``own_mbps`` are means of the best arm and of the model's."""
        allowed = TOLERANCE + ERRORS * relative_error
        differs = abs(measured_mbps - modelled_mbps) > allowed * max(modelled_mbps, 1e-9)
        worse = own_mbps > 0 and best_mbps > (1 + allowed) * own_mbps
        if (differs or worse) != self.model:
            return Trust(self.model, 0)
        against = self.against + 1
        if against >= (DOUBTS if self.model else AGREEMENTS):
            return Trust(not self.model, 0)
        return Trust(self.model, against)
