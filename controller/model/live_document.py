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
        self._sections: dict[str, dict[str, tuple[int, Any]]] = {}
        """By section and id: the version of the last change, in the order of these, and the value."""
        self._gone: dict[tuple[str, str], int] = {}
        self._floor = first
        """Readers of older versions can't be told what is gone since."""

    def update(self, parts: Parts) -> bool:
        """The whole document as it is now; returns whether anything of it is new. All that differs is one change."""
        changed: list[tuple[str, str, Any]] = []
        for section in [*parts, *(self._sections.keys() - parts.keys())]:
            known, new = self._sections.setdefault(section, {}), parts.get(section, {})
            for one, value in new.items():
                old = known.get(one)
                if old is None or old[1] != value:
                    changed.append((section, one, value))
            left = sorted(one for one in known.keys() - new.keys() if known[one][1] is not _GONE)
            changed += [(section, one, _GONE) for one in left]
        if not changed:
            return False
        self.version += 1
        for section, one, value in changed:
            known = self._sections[section]
            known.pop(one, None)
            known[one] = (self.version, value)
            self._gone.pop((section, one), None)
            if value is _GONE:
                self._gone[section, one] = self.version
        while len(self._gone) > self._max_gone:
            section, one = oldest = next(iter(self._gone))
            self._floor = max(self._floor, self._gone.pop(oldest))
            del self._sections[section][one]
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
        if version is None or reason is not None:
            whole = {
                section: {one: value for one, (_, value) in known.items() if value is not _GONE}
                for section, known in self._sections.items()
            }
            return Difference(None, self.version, reason, {name: of for name, of in whole.items() if of}, {})
        changed: dict[str, dict[str, Any]] = {}
        gone: dict[str, list[str]] = {}
        for section, known in self._sections.items():
            for one, (of_version, value) in reversed(known.items()):
                if of_version <= version:
                    break
                if value is _GONE:
                    gone.setdefault(section, []).append(one)
                else:
                    changed.setdefault(section, {})[one] = value
        return Difference(version, self.version, None, changed, gone)
