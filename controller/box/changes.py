"""Takes the steps of a plan and takes them back. The way back is stored before each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hyroads.controller.core.box_record import Before, NoFolder, Record, Undo, way_back
from hyroads.controller.core.box_setup import Commands, MakeFolder, Run, Step, WriteFile
from hyroads.controller.core.errors import HyroadsError


class Machine(Protocol):
    """What steps are taken with (:class:`~hyroads.controller.box.system.System`)."""

    def read(self, path: str) -> Before:
        """A file as it is now."""

    def write(self, file: WriteFile) -> None:
        """Write a file."""

    def put(self, file: Before) -> None:
        """Bring a file back."""

    def has(self, path: str) -> bool:
        """Whether something is there."""

    def make_folder(self, path: str) -> None:
        """Make a folder."""

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""

    def run(self, run: Run) -> bytes:
        """Run a command."""


@dataclass(eq=False)
class Changes:
    """``store`` writes the record to the disk; HyroadsError of a step or of the store stops where it is."""

    machine: Machine
    record: Record
    store: Callable[[Record], None]

    def take(self, steps: Sequence[Step]) -> None:
        """Take all steps in order; HyroadsError: :meth:`take_back` undoes those that were begun."""
        for step in steps:
            before = self.machine.read(step.path) if isinstance(step, WriteFile) else None
            was_there = isinstance(step, MakeFolder) and self.machine.has(step.path)
            back = way_back(step, before, was_there=was_there)
            if back is not None:
                self._keep(self.record.begun(back))
            self._take(step)

    def take_back(self) -> None:
        """Undo everything, the latest first. What can't be undone now stays in the record, and is one HyroadsError."""
        while self.record.undo:
            self._undo(self.record.undo[-1])
            self._keep(self.record.undone())

    def _take(self, step: Step) -> None:
        if isinstance(step, WriteFile):
            self.machine.write(step)
        elif isinstance(step, MakeFolder):
            self.machine.make_folder(step.path)
        else:
            for run in step.do:
                self.machine.run(run)

    def _undo(self, back: Undo) -> None:
        if isinstance(back, Before):
            self.machine.put(back)
        elif isinstance(back, NoFolder):
            self.machine.remove_folder(back.path)
        else:
            self._undo_commands(back)

    def _undo_commands(self, back: Commands) -> None:
        """Each is tried, so that one that fails keeps no other from its work."""
        failed: HyroadsError | None = None
        for run in back.undo:
            try:
                self.machine.run(run)
            except HyroadsError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _keep(self, record: Record) -> None:
        self.store(record)
        self.record = record
