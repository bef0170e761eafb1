"""What every demo has, with a controller or without: options, checks against theory, a view, and the verdict."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hyroads.controller.core.csv_text import csv_text
from hyroads.mininet.live_view import LiveView, View

LONG_FACTOR = 4
# The unit of rates.
RATE = "Mb/s"


@dataclass(frozen=True)
class DemoOptions:
    """How to run a demo; ``seconds`` is the length of each measurement, ``minutes`` that of the demo
    office and ``scale`` what its capacities are multiplied by, ``out`` the folder for CSV files and plots."""

    seconds: float = 8.0
    long: bool = False
    faults: bool = False
    json: bool = False
    live: bool = False
    out: Path | None = None
    minutes: float | None = None
    scale: float | None = None


@dataclass(frozen=True)
class Check:
    """A measured figure beside what theory gives; ``ok`` within the bounds on measured / theory."""

    what: str
    theory: float
    measured: float
    unit: str = "Mb/s"
    at_least: float | None = None
    at_most: float | None = None
    during: tuple[float, float] | None = None
    """When it was measured (seconds of CLOCK_MONOTONIC); None: over the whole run."""
    adapts: bool = False
    """Whether the traffic adapts by itself (TCP, a policy that learns), so that it loses more than time is stolen."""
    udp: Check | None = None
    """The rate of UDP over the same paths directly afterwards; measured if TCP falls short beside a lane that does."""

    @property
    def ratio(self) -> float:
        """Measured / theory; where theory says nothing at all, 1 if that is so and infinite if not."""
        if self.theory == 0:
            return 1.0 if self.measured == 0 else float("inf")
        return self.measured / self.theory

    @property
    def ok(self) -> bool:
        """Whether the figure is within its bounds."""
        above = self.at_least is None or self.ratio >= self.at_least
        return above and (self.at_most is None or self.ratio <= self.at_most)

    def document(self) -> dict[str, object]:
        """The entry of the JSON document; what is no number, such as the delay of no packet, is null."""
        figures = {"theory": self.theory, "measured": self.measured, "ratio": self.ratio}
        return {
            "what": self.what,
            **{name: round(value, 4) if math.isfinite(value) else None for name, value in figures.items()},
            "ok": self.ok,
        }

    def line(self) -> str:
        """One line of the verdict."""
        bounds = [
            *([f">= {self.at_least:.2f}"] if self.at_least is not None else []),
            *([f"<= {self.at_most:.2f}"] if self.at_most is not None else []),
        ]
        figures = f"theory {self.theory:6.2f}  measured {self.measured:6.2f} {self.unit:<7}"
        return (
            f"{'ok  ' if self.ok else 'FAIL'} {self.what:<57} {figures} ratio {self.ratio:5.3f} ({', '.join(bounds)})"
        )


def part_of(part: float, whole: float) -> float:
    """A measured part of a measured whole; 0 of nothing, so that a phase without any packet gets a verdict, too."""
    return part / whole if whole else 0.0


class CheckedStage:
    """Where a demo runs: its options, its view, the checks so far, and the files that it wrote."""

    def __init__(self, name: str, options: DemoOptions) -> None:
        self.name = name
        self.options = options
        self.checks: list[Check] = []
        self.skipped: list[dict[str, str]] = []
        """Checks that could not be made here: ``what`` and ``why``."""
        self.files: list[Path] = []
        """What has been written."""

    @cached_property
    def view(self) -> View:
        """The live view or plain lines; nothing on stdout with ``--json``."""
        return (LiveView if self.options.live else View)(sys.stderr if self.options.json else sys.stdout)

    @property
    def hold_s(self) -> float:
        """How long a phase lasts."""
        return self.options.seconds * (LONG_FACTOR if self.options.long else 1)

    @cached_property
    def folder(self) -> Path:
        """Where CSV files and plots go; made when it is first needed."""
        folder = self.options.out or Path("out") / f"demo-{self.name}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_csv(self, name: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
        """Writes a CSV file in the folder and adds it to the files."""
        path = self.folder / name
        path.write_text(csv_text(header, rows), encoding="utf-8")
        self.files.append(path)

    def check(  # noqa: PLR0917 - as Check
        self,
        what: str,
        theory: float,
        measured: float,
        unit: str = "Mb/s",
        at_least: float | None = None,
        at_most: float | None = None,
        during: tuple[float, float] | None = None,
        adapts: bool = False,
    ) -> None:
        """Adds a :class:`Check` and shows it."""
        self.add(Check(what, theory, measured, unit, at_least, at_most, during, adapts))

    def add(self, check: Check) -> None:
        """Adds a check and shows it."""
        self.checks.append(check)
        self.view.note(check.line())

    @property
    def ok(self) -> bool:
        """Whether there are checks and all hold."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    def skip(self, what: str, why: str) -> None:
        """Notes that a check is left out, and why; the others decide about the verdict."""
        self.skipped.append({"what": what, "why": why})
        self.view.note(f"skip {what}: {why}")

    def finish(self) -> int:
        """Prints the verdict, or the document with ``--json``; returns the exit status: 0, or 1 if a check fails."""
        print(json.dumps(self.document()) if self.options.json else self._verdict(), flush=True)
        return 0 if self.ok else 1

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints (docs/reference/emulation.md)."""
        return {
            "name": self.name,
            "checks": [check.document() for check in self.checks],
            **({"skipped": self.skipped} if self.skipped else {}),
            "ok": self.ok,
            "files": [str(path) for path in self.files],
        }

    def _verdict(self) -> str:
        lines = [check.line() for check in self.checks]
        lines += [f"skip {each['what']}: {each['why']}" for each in self.skipped]
        if self.files:
            lines.append(f"written to {self.folder}: {', '.join(path.name for path in self.files)}")
        return "\n  ".join([f"\nVerdict{self._known()}", *lines, self._conclusion()])

    def _known(self) -> str:
        """What the controller knew of the network, in brackets; nothing where there is none."""
        return ""

    def _conclusion(self) -> str:
        return "all as theory says" if self.ok else "falls short of theory"
