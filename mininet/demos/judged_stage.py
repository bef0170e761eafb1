"""A stage with a plain lane beside it, which decides what a check that falls short is worth (counter_check.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.reference import LEAST, TOO_SLOW, Lane, Reference, carried

from .checks import Check, CheckedStage, DemoOptions
from .counter_check import CounterCheck, Judgement, are_decided, counter_checks


class JudgedStage(CheckedStage):
    """The checks of a demo and the lane beside it."""

    def __init__(self, name: str, options: DemoOptions) -> None:
        super().__init__(name, options)
        self.lane = Lane()
        """The plain lane beside the run, once it has ended."""
        self.look_at_lane: Callable[[], Lane] = lambda: self.lane
        """Returns what the lane has carried so far, while the demo runs."""

    @property
    def why_slow(self) -> str:
        """What else is known of a slow machine; empty where nothing is."""
        return ""

    def check_tcp(self, check: Check, udp: Callable[[], Check]) -> None:
        """Adds the check of a TCP rate, which has ``during``.

        Where it falls short beside a lane that falls short, ``udp`` measures UDP over the same paths to decide.
        """
        assert check.adapts and check.during is not None  # noqa: S101 - a mistake of the demo
        if not check.ok and self.look_at_lane().ratio(*check.during) < LEAST:
            self.view.phase(f"{check.what}: UDP over the same paths, as the machine is slow")
            check = replace(check, udp=udp())
        self.add(check)

    @property
    def ok(self) -> bool:
        """Whether all checks hold, or hold beside what the machine gave the plain lane."""
        return bool(self.checks) and not self.not_made and not any(each.counts for each in self.counter_checks)

    @property
    def not_made(self) -> str:
        """Why the run counts as not made, neither passed nor failed; empty if it counts.

        A run whose checks hold has passed, however slow the machine was. One that falls short counts if a check falls
        short of the plain lane beside it, too, or if its rates hold beside the lane.
        """
        found = self.counter_checks
        if not found or any(each.counts for each in found) or are_decided(self.checks, found):
            return ""
        slow = f"; {self.why_slow}" if self.why_slow else ""
        return f"{TOO_SLOW}, {carried(min(each.reference for each in found))}{slow}"

    @property
    def counter_checks(self) -> list[CounterCheck]:
        """What the plain lane says to each check that falls short."""
        return counter_checks(self.checks, self.lane)

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {**super().document(), "counter_checks": [each.document() for each in self.counter_checks]}

    @contextmanager
    def beside(self, folder: Path, *, realtime: bool = False, shaped: bool = False) -> Iterator[Reference]:
        """Runs the lane while this is entered; ``folder`` takes its file. An error says if the lane fell short."""
        with Reference(folder, realtime=realtime, shaped=shaped) as reference:
            self.look_at_lane = reference.lane
            try:
                yield reference
            except HyroadsError as error:
                if why := reference.lane().why_slow:
                    raise EmulationError(f"{error}; {TOO_SLOW}, {why}") from error
                raise
        self.lane = reference.lane()

    def conclude(self) -> int:
        """Prints the verdict; returns the exit status. EmulationError if the run is not made."""
        status = self.finish()
        if self.not_made:
            raise EmulationError(f"demo {self.name} not made: {self.not_made}")
        return status

    def _conclusion(self) -> str:
        if found := self.counter_checks:
            end = f"not made: {self.not_made}" if self.not_made else super()._conclusion()
            if self.ok:
                count = sum(each.judgement is Judgement.OPEN for each in found)
                end = f"as theory says beside what the plain lane carried; checks not judged: {count}"
            return "\n  ".join([*(each.line() for each in found), end])
        slow = f", though the machine was slow {self.why_slow}" if self.ok and self.why_slow else ""
        return super()._conclusion() + slow
