"""Bytes that interfaces carried, by month (UTC), so that monthly caps hold over restarts and crashes.

Counted are the kernel's own counters of an interface, both directions: they include what does not go over hr0, and go
on while no program of ours runs. A counter that went down began anew: the interface was made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hyroads.controller.files.state import Content, Format, StateFile

GIB = 1 << 30
FORMAT = Format(1, {"boot": str, "counters": dict, "months": dict}, {}, 1, whole=lambda document: Usage("", document))
SAVE_EVERY_S = 60.0
SAVE_SHARE = 0.01
"""Of a cap: a crash loses at most that, or a minute."""
MONTHS_SAVED = 13
_LEAST_RESERVE_BYTES = 4 << 20
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATISTICS = "/sys/class/net/{}/statistics"


def month_of(time_s: float) -> str:
    """The month of a time (seconds since 1970), such as ``2026-11``."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m")


class Usage:
    """Bytes by month and interface. Times are seconds since 1970 and come from outside; pure."""

    def __init__(self, boot: str, saved: Mapping[str, Any] | None = None) -> None:
        self._boot = boot
        self._counters: dict[str, int] = {}
        self._months: dict[str, dict[str, int]] = {}
        self.unsaved_bytes: dict[str, int] = {}
        if saved is not None:
            self._months = {month: _bytes(given) for month, given in saved["months"].items()}
            # After a boot all counters began at 0: all that they show was carried since.
            counters = _bytes(saved["counters"])
            self._counters = counters if saved["boot"] == boot else dict.fromkeys(counters, 0)

    def count(self, interface: str, counter_bytes: int, now_s: float) -> None:
        """What an interface's counter shows now. What it showed when it was first seen is not counted."""
        before = self._counters.get(interface, counter_bytes)
        carried = counter_bytes - before if counter_bytes >= before else counter_bytes
        self._counters[interface] = counter_bytes
        if carried:
            month = self._months.setdefault(month_of(now_s), {})
            month[interface] = month.get(interface, 0) + carried
            self.unsaved_bytes[interface] = self.unsaved_bytes.get(interface, 0) + carried

    def used_bytes(self, interface: str, now_s: float) -> int:
        """What an interface carried in this month."""
        return self._months.get(month_of(now_s), {}).get(interface, 0)

    def document(self) -> dict[str, Any]:
        """What is saved; the last ``MONTHS_SAVED`` months."""
        months = {month: dict(self._months[month]) for month in sorted(self._months)[-MONTHS_SAVED:]}
        return {"boot": self._boot, "counters": dict(self._counters), "months": months}


def _bytes(given: Mapping[str, Any]) -> dict[str, int]:
    """Of a file: interface -> bytes, without what makes no sense."""
    return {
        str(name): value
        for name, value in given.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
    }


class Caps:
    """Which interfaces have carried what they may. A cap is a promise, so an interface stops before it is reached, by
    what it may carry until the next look but one; and it stays stopped until the month ends or the cap is raised.
    """

    def __init__(self) -> None:
        self._stopped: dict[str, tuple[str, float]] = {}
        self._peak_bytes_per_s: dict[str, float] = {}
        self._last: dict[str, tuple[float, int]] = {}

    def used_up(
        self, usage: Usage, cap_gib: Mapping[str, float], rate_mbps: Mapping[str, float | None], now_s: float
    ) -> set[str]:
        """Those with a cap that may carry nothing more in this month. Ask again at least every second."""
        month = month_of(now_s)
        stopped = set()
        for name, gib in cap_gib.items():
            used = usage.used_bytes(name, now_s)
            reserve = 2 * self._most_bytes(name, used, rate_mbps.get(name), now_s)
            reserve = max(reserve, min(SAVE_SHARE * gib * GIB, _LEAST_RESERVE_BYTES))
            if self._stopped.get(name) == (month, gib) or used + reserve >= gib * GIB:
                self._stopped[name] = month, gib
                stopped.add(name)
        return stopped

    def _most_bytes(self, name: str, used: int, rate_mbps: float | None, now_s: float) -> float:
        """What an interface carries in a second, in both directions together."""
        last_s, last = self._last.get(name, (now_s, used))
        if now_s > last_s and used > last:
            seen = (used - last) / max(now_s - last_s, 0.1)
            self._peak_bytes_per_s[name] = max(self._peak_bytes_per_s.get(name, 0.0), seen)
        self._last[name] = now_s, used
        return max(self._peak_bytes_per_s.get(name, 0.0), (rate_mbps or 0.0) * 125_000)


class UsageFile:
    """Keeps :class:`Usage` on disk: at most once a minute, after a hundredth of a cap, and at the end."""

    def __init__(self, path: Path, boot: str | None = None) -> None:
        self._file = StateFile(path, FORMAT)
        self.content: Content = self._file.load()
        boot = _BOOT_ID.read_text(encoding="ascii").strip() if boot is None else boot
        self.usage = Usage(boot, self.content.document)
        self._saved_s = -SAVE_EVERY_S

    def save_if_due(self, cap_gib: Mapping[str, float], now_s: float) -> bool:
        """Save if there is a reason to; ``now_s`` is monotonic. OSError if it can't be written."""
        unsaved = self.usage.unsaved_bytes
        share = any(unsaved.get(name, 0) >= SAVE_SHARE * gib * GIB for name, gib in cap_gib.items())
        if not unsaved or (not share and now_s - self._saved_s < SAVE_EVERY_S):
            return False
        self.save()
        self._saved_s = now_s
        return True

    def save(self) -> None:
        """Save now; OSError if it can't be written."""
        self._file.save(self.usage.document())
        self.usage.unsaved_bytes.clear()


def counter_bytes(interface: str) -> int | None:
    """What the kernel's counters of an interface show, received and sent together; None if there is no such one."""
    counters = interface_counters(interface)
    return None if counters is None else sum(counters)


def interface_counters(interface: str) -> tuple[int, int] | None:
    """Bytes that the kernel has counted at an interface: sent, received; None if there is no such one."""
    folder = Path(_STATISTICS.format(interface))
    try:
        sent, received = (int((folder / name).read_text(encoding="ascii")) for name in ("tx_bytes", "rx_bytes"))
    except (OSError, ValueError):
        return None
    return sent, received
