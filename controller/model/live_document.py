"""A document of many small parts that is read again and again: whoever has read it gets what changed since. Pure.

Every change of any part raises the version by one. :meth:`LiveLog.since` costs what the changed parts cost. Parts that
are gone are remembered for a while, so that readers drop them; a reader that comes later gets everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


_NOTHING: Final = object()


class LiveLog:
    """``first`` is the version before any part is there. Later controllers must start above all versions of earlier
    ones.
    """

    def __init__(self, first: int = 0, *, max_gone: int = MAX_GONE) -> None:
        self.version = self._first = first
        self._max_gone = max_gone
        self._values: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, dict[str, int]] = {}
        """By section and id: the version of the last change, in the order of these; of what is gone, too."""
        self._gone: dict[tuple[str, str], int] = {}
        self._floor = first
        """Readers of older versions can't be told what is gone since."""

    def update(self, parts: Parts) -> bool:
        """The whole document as it is now; returns whether anything of it is new. All that differs is one change."""
        changed: dict[str, tuple[list[str], list[str]]] = {}
        for section in [*parts, *(self._values.keys() - parts.keys())]:
            known, new = self._values.setdefault(section, {}), parts.get(section, {})
            differ = [one for one, value in new.items() if known.get(one, _NOTHING) != value]
            left = sorted(known.keys() - new.keys())
            if differ or left:
                changed[section] = differ, left
        if not changed:
            return False
        self.version += 1
        for section, (differ, left) in changed.items():
            self._change(section, {one: parts[section][one] for one in differ}, left)
        while len(self._gone) > self._max_gone:
            section, one = oldest = next(iter(self._gone))
            self._floor = max(self._floor, self._gone.pop(oldest))
            del self._versions[section][one]
        return True

    def _change(self, section: str, new: Mapping[str, Any], left: Sequence[str]) -> None:
        known, versions = self._values[section], self._versions.setdefault(section, {})
        known.update(new)
        if 2 * len(new) > len(versions):
            # To leave the others is less than to take all of these out.
            others = sorted(versions.keys() - new.keys(), key=versions.__getitem__)
            versions = self._versions[section] = {one: versions[one] for one in others}
        else:
            for one in new:
                versions.pop(one, None)
        for one in left:
            versions.pop(one, None)
        versions.update(dict.fromkeys((*new, *left), self.version))
        if self._gone:
            for one in new:
                self._gone.pop((section, one), None)
        for one in left:
            del known[one]
            self._gone[section, one] = self.version

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
            whole = {section: dict(known) for section, known in self._values.items() if known}
            return Difference(None, self.version, reason, whole, {})
        changed: dict[str, dict[str, Any]] = {}
        gone: dict[str, list[str]] = {}
        for section, versions in self._versions.items():
            known = self._values[section]
            for one, of_version in reversed(versions.items()):
                if of_version <= version:
                    break
                if one in known:
                    changed.setdefault(section, {})[one] = known[one]
                else:
                    gone.setdefault(section, []).append(one)
        return Difference(version, self.version, None, changed, gone)
