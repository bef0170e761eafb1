"""A document of many small parts that is read again and again: whoever has read it gets what changed since. Pure.

Every change of any part raises the version by one. :meth:`LiveLog.since` costs what the changed parts cost. Parts that
are gone are remembered for a while, so that readers drop them; a reader that comes later gets everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Parts = Mapping[str, Mapping[str, Any]]
"""By section and id; values are ready for JSON and don't change any more."""

MAX_GONE = 1024
FIRST, AFTER_RESTART, TOO_OLD = "first", "other-start", "too-old"


@dataclass(frozen=True, slots=True)
class Difference:
    """What a reader that has version ``since`` needs for ``version``. ``since`` is None if it gets everything, and
    must forget what it has; ``reason`` then says why: it named no version (FIRST), a version that this controller did
    not make (AFTER_RESTART), or one from before what is remembered (TOO_OLD).
    """

    since: int | None
    version: int
    reason: str | None
    changed: Mapping[str, Mapping[str, Any]]
    gone: Mapping[str, list[str]]


_GONE: Final = object()


class LiveLog:
    """``first`` is the version before any part is there. Later controllers must start above all versions of earlier
    ones.
    """

    def __init__(self, first: int = 0, *, max_gone: int = MAX_GONE) -> None:
        self.version = self._first = first
        self._max_gone = max_gone
        # In the order of their last changes.
        self._parts: dict[tuple[str, str], tuple[int, Any]] = {}
        self._gone: dict[tuple[str, str], int] = {}
        self._floor = first
        """Readers of older versions can't be told what is gone since."""

    def update(self, parts: Parts) -> bool:
        """The whole document as it is now; returns whether anything of it is new. All that differs is one change."""
        known = self._parts
        changed = [
            (key, value)
            for section, of_section in parts.items()
            for one, value in of_section.items()
            if (key := (section, one)) not in known or known[key][1] != value
        ]
        gone = [
            (key, _GONE)
            for key, (_, value) in known.items()
            if value is not _GONE and key[1] not in parts.get(key[0], {})
        ]
        if not changed and not gone:
            return False
        self.version += 1
        for key, value in (*changed, *gone):
            known.pop(key, None)
            self._gone.pop(key, None)
            known[key] = (self.version, value)
        for key, _ in gone:
            self._gone[key] = self.version
        while len(self._gone) > self._max_gone:
            oldest = next(iter(self._gone))
            self._floor = max(self._floor, self._gone.pop(oldest))
            del known[oldest]
        return True

    def since(self, version: int | None) -> Difference:
        """What changed after a version, or everything."""
        reason = None
        if version is None:
            reason = FIRST
        elif not self._first <= version <= self.version:
            reason = AFTER_RESTART
        elif version < self._floor:
            reason = TOO_OLD
        changed: dict[str, dict[str, Any]] = {}
        gone: dict[str, list[str]] = {}
        if version is None or reason is not None:
            for (section, one), (_, value) in self._parts.items():
                if value is not _GONE:
                    changed.setdefault(section, {})[one] = value
            return Difference(None, self.version, reason, changed, {})
        for (section, one), (of_version, value) in reversed(self._parts.items()):
            if of_version <= version:
                break
            if value is _GONE:
                gone.setdefault(section, []).append(one)
            else:
                changed.setdefault(section, {})[one] = value
        return Difference(version, self.version, None, changed, gone)
