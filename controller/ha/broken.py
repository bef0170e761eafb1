"""Which keys of etcd have values that can't be used: one log line for each, and all of them for health. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

MOST_SHOWN = 20
MOST_KEY = 200
"""Characters of a key that are shown."""


@dataclass(eq=False)
class BrokenKeys:
    """The broken keys by the reader that found them. ``report`` gets one line when some were not broken before."""

    report: Callable[[str], None]

    _found: dict[str, frozenset[str]] = field(default_factory=dict)
    _reported: frozenset[str] = frozenset()

    def take(self, reader: str, keys: Iterable[str]) -> None:
        """What a reader has found now, in place of what it found before."""
        self._found[reader] = frozenset(key[:MOST_KEY] for key in keys)
        all_keys = frozenset[str]().union(*self._found.values())
        new, self._reported = sorted(all_keys - self._reported), all_keys
        if new:
            more = f" and {len(new) - MOST_SHOWN} more" if len(new) > MOST_SHOWN else ""
            self.report(f"values can't be used and are left out: {', '.join(new[:MOST_SHOWN])}{more}")

    def shown(self) -> list[str]:
        """The first of them in order, for health."""
        return sorted(self._reported)[:MOST_SHOWN]
