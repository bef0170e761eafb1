"""What every demo has: its options, its stage (emulation, view, checks) and the verdict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hyroads.controller.core.network import Network
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.live_view import View, make_view
from hyroads.mininet.sampling import Sampler
from hyroads.mininet.traffic import Traffic


@dataclass(frozen=True)
class DemoOptions:
    """How to run a demo; ``seconds`` is the length of each measurement."""

    seconds: float
    long: bool = False
    faults: bool = False
    json: bool = False
    live: bool = False


@dataclass(frozen=True)
class Check:
    """A measured figure beside what theory gives; ``ok`` within the bounds on measured / theory."""

    what: str
    theory: float
    measured: float
    unit: str = "Mb/s"
    at_least: float | None = None
    at_most: float | None = None

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
        """The entry of the JSON document (spec 07.3); an infinite ratio is null."""
        ratio = None if self.ratio == float("inf") else round(self.ratio, 4)
        return {
            "what": self.what,
            "theory": round(self.theory, 4),
            "measured": round(self.measured, 4),
            "ratio": ratio,
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


class Stage:
    """Where a demo runs: the emulation, the view, traffic, and the checks so far."""

    def __init__(self, emulation: Emulation, options: DemoOptions, declared: Network) -> None:
        self.emulation = emulation
        self.options = options
        self.declared = declared
        self.checks: list[Check] = []

    @cached_property
    def view(self) -> View:
        """The live view, plain lines, or nothing on stdout with ``--json``."""
        sampler = Sampler(self.emulation, tuple(self.emulation.network.nodes))
        return make_view(sampler, live=self.options.live, stream=sys.stderr if self.options.json else sys.stdout)

    def traffic(self, source: str, target: str, also: Callable[[], None] = lambda: None) -> Traffic:
        """Traffic that keeps the view current, and calls ``also`` as often."""

        def tick() -> None:
            also()
            self.view.update()

        return Traffic(self.emulation, source, target, tick)

    def add(self, check: Check) -> Check:
        """Adds a check and shows it."""
        self.checks.append(check)
        self.view.note(check.line())
        return check

    @property
    def ok(self) -> bool:
        """Whether there are checks and all hold."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    def document(self, name: str) -> dict[str, Any]:
        """The JSON document of spec 07.3."""
        return {"name": name, "checks": [check.document() for check in self.checks], "ok": self.ok}

    def print_verdict(self) -> None:
        """The verdict lines."""
        print("\nVerdict")
        for check in self.checks:
            print(f"  {check.line()}")
        print("  all as theory says" if self.ok else "  falls short of theory", flush=True)
