"""Rows of a radio on air that never rests, for scripted access points: the same seed gives the same readings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
NOISE_DB = (-3, -2, -1, 1, 2, 3)
NOISE_OF_RATES = 0.05
NOISY_SHARE = 0.5
"""So many of the rows of a reading are measured again; the rest stays as it is."""
HEARD_WITHIN_MS = 100
STEPS = (1.0, 0.8, 0.6)
"""A row that moves takes one of these shares of its rate, and 0, 6 or 12 dB less signal."""
STEP_DB = 6


class NoisyAir:
    """The rows of one access point, by technology.

    In each reading half of the rows differ by 1 to 3 dB from the signal at rest, and their rates by up to 5 % from the
    rate at rest. ``moving`` is the probability that a row also takes another place in a reading, with another rate and
    another signal at rest, beyond any noise.
    """

    def __init__(self, rest: Mapping[str, Sequence[Row]], seed: str, moving: float = 0.0) -> None:
        self._random = random.Random(seed)
        self._moving = moving
        self._steps = {technology: [0] * len(rows) for technology, rows in rest.items()}
        self._rest = {technology: list(rows) for technology, rows in rest.items()}
        self._now = {technology: list(rows) for technology, rows in rest.items()}

    def read(self) -> Mapping[str, list[Row]]:
        """The rows of the next reading, by technology. Rows are never changed afterwards."""
        return {technology: self._read(technology) for technology in self._rest}

    def _read(self, technology: str) -> list[Row]:
        roll, steps, now = self._random.random, self._steps[technology], self._now[technology]
        for i, rest in enumerate(self._rest[technology]):
            moves = self._moving > 0 and roll() < self._moving
            if moves:
                steps[i] = (steps[i] + self._random.choice((1, 2))) % len(STEPS)
            row = now[i]
            if moves or roll() < NOISY_SHARE:
                signal = rest["signal_dbm"] - STEP_DB * steps[i] + NOISE_DB[int(6 * roll())]
                factor = STEPS[steps[i]] * (1 + NOISE_OF_RATES * (2 * roll() - 1))
                row = {**row, "signal_dbm": signal, "tx_mbps": round(rest["tx_mbps"] * factor, 3)}
            now[i] = {**row, "last_heard_ms": int(HEARD_WITHIN_MS * roll())}
        return list(now)
