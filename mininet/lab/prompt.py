"""The prompt of a lab: ``upstairs ping attic`` runs a command in a box, ``setup`` and ``measure`` do the whole page."""

from __future__ import annotations

import cmd
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from hyroads.controller.core.errors import HyroadsError
from hyroads.mininet.programs import EmulationError

from .box import Box
from .run import Lab


class LabPrompt(cmd.Cmd):
    """Reads commands until ``exit`` or the end of the input; the name of a box before a command says where it runs."""

    def __init__(self, lab: Lab, setup: Callable[[], None], measure: Callable[[], int], source: TextIO) -> None:
        super().__init__(stdin=source)
        self.use_rawinput = source is sys.stdin and source.isatty()
        self.prompt = "hyroads-lab> " if source.isatty() else ""
        self.lab = lab
        self.status = 0
        """Exit status of the latest ``measure``."""
        self._setup, self._measure = setup, measure

    def run(self) -> int:
        """Serve the user; the exit status."""
        while True:
            try:
                self.cmdloop()
                return self.status
            except KeyboardInterrupt:
                print("^C", file=self.stdout)
            except HyroadsError as error:
                print(f"hyroads: {error}", file=sys.stderr, flush=True)

    def default(self, line: str) -> None:
        """A command in a box; anything else is no command."""
        name, _, words = line.partition(" ")
        box = self.lab.boxes.get(name)
        if box is None:
            raise EmulationError(f"{name[:40]}: neither a box ({', '.join(self.lab.boxes)}) nor a command (see help)")
        self._in_box(box, words.strip() or "bash")

    def do_boxes(self, _line: str) -> None:
        """List the boxes with the ports that they have."""
        for box in self.lab.boxes.values():
            ports = [f"{port.name} at {port.segment}" for port in box.plan.ports]
            ports += [f"{radio.name}, a radio" for radio in box.plan.radios]
            print(f"{box.name:<12} {'on ' if box.alive else 'off'}  {', '.join(ports)}", file=self.stdout)

    def do_on(self, line: str) -> None:
        """Switch a box on that has been switched off. Usage: on BOX"""
        box = self.lab.boxes.get(line.strip())
        if box is None:
            raise EmulationError(f"usage: on BOX, one of {', '.join(self.lab.boxes)}")
        if not box.alive:
            box.boot()

    def do_setup(self, _line: str) -> None:
        """Set all boxes up as the how-to pages say."""
        self._setup()

    def do_measure(self, _line: str) -> None:
        """Measure, and print the verdict."""
        self.status = self._measure()

    def do_exit(self, _line: str) -> bool:
        """End the lab."""
        return True

    do_quit = do_EOF = do_exit

    def emptyline(self) -> bool:
        """Nothing happens."""
        return False

    def precmd(self, line: str) -> str:
        """A line that begins with # is a comment."""
        return "" if line.lstrip().startswith("#") else line

    def completenames(self, text: str, *ignored: object) -> list[str]:
        """Names of boxes and of commands."""
        names = [*self.lab.boxes, "boxes", "setup", "measure", "on", "help", "exit"]
        return [name for name in names if name.startswith(text)]

    def _in_box(self, box: Box, line: str) -> None:
        box.typed.append(line)
        interactive = self.use_rawinput
        done = subprocess.run(box.shell(line), stdin=None if interactive else subprocess.DEVNULL, check=False)
        if done.returncode:
            print(f"{box.name}# {shlex.split(line)[0]}: status {done.returncode}", file=sys.stderr, flush=True)


def serve(lab: Lab, setup: Callable[[], None], measure: Callable[[], int], script: Path | None) -> int:
    """The prompt for a user, or for the lines of a file; the exit status."""
    if script is None:
        return LabPrompt(lab, setup, measure, sys.stdin).run()
    with script.open(encoding="utf-8") as lines:
        return LabPrompt(lab, setup, measure, lines).run()
