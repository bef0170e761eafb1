"""Where the demos of the client stack run: namespaces of their own, a view, checks and the verdict.

These demos have no controller: the networks are foreign ones. What they check is what ``hyroads-client`` promises.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hyroads.mininet import run_directory
from hyroads.mininet.client_stack import ClientStack, Uplink, namespaces_of
from hyroads.mininet.control_sockets import StackError
from hyroads.mininet.isolation import run_isolated
from hyroads.mininet.programs import check_prerequisites, find_program, run

from .verdict import LONG_FACTOR, Check, DemoOptions

TOOLS = ("ip", "tc", "nft", "ping")
_PLAIN_INTERVAL_S = 2.0
_MOST_NOTES = 12


class StackView:
    """Lines for phases and results, and one every two seconds that says what each interface carries."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began_s = self._shown_s = time.monotonic()
        self._before: dict[str, tuple[float, int, int]] = {}

    def __enter__(self) -> StackView:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def phase(self, text: str) -> None:
        """Says what is being done now."""
        self._print(f"== {text}")

    def note(self, text: str) -> None:
        """Adds a result."""
        self._print(f"   {text}")

    def update(self, stack: ClientStack) -> None:
        """Shows the interfaces, now and then."""
        if time.monotonic() - self._shown_s >= _PLAIN_INTERVAL_S:
            self._shown_s = time.monotonic()
            parts = [f"{name} {state} up {up:.1f} down {down:.1f} Mb/s" for name, state, up, down in self.rows(stack)]
            self._print(f"   {self._shown_s - self._began_s:6.1f} s  " + "  ".join(parts))

    def rows(self, stack: ClientStack) -> list[tuple[str, str, float, float]]:
        """Name, state, and Mb/s sent and received since the last look, of each interface."""
        now_s, rows = time.monotonic(), []
        try:
            links = stack.request("status")["interfaces"]
        except StackError:
            return []
        for link in links:
            counted = (now_s, int(link["sent_bytes"]), int(link["received_bytes"]))
            then = self._before.get(link["name"], counted)
            if then[1] > counted[1]:
                # Another stack has begun.
                then = counted
            self._before[link["name"]] = counted
            span_s = max(1e-3, now_s - then[0])
            state = ("" if link["alive"] else "silent") if link["up"] else "no carrier"
            rows.append((link["name"], state, *(8e-6 * (counted[k] - then[k]) / span_s for k in (1, 2))))
        return rows

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LiveStackView(StackView):
    """A terminal's live view."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._phase = ""
        self._notes: list[str] = []
        self._live = Live(console=Console(file=stream), refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveStackView:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def phase(self, text: str) -> None:
        """Says what is being done now."""
        self._phase = text

    def note(self, text: str) -> None:
        """Adds a result."""
        self._notes = [*self._notes, text][-_MOST_NOTES:]

    def update(self, stack: ClientStack) -> None:
        """Shows the interfaces."""
        table = Table(title="interfaces of the client", title_justify="left", expand=False)
        for heading in ("interface", "up Mb/s", "down Mb/s", ""):
            table.add_column(heading, justify="right" if "Mb/s" in heading else "left")
        for name, state, up, down in self.rows(stack):
            table.add_row(name, f"{up:.2f}", f"{down:.2f}", state, style="red" if state else None)
        notes = (Text(note, style="red" if note.startswith("FAIL") else "green") for note in self._notes)
        elapsed_s = time.monotonic() - self._began_s
        self._live.update(Group(Text(f"{self._phase}   {elapsed_s:.0f} s", style="bold"), table, *notes))


@dataclass
class StackStage:
    """What a demo is given: where it may put files, how long its phases last, the view, and the checks so far."""

    name: str
    options: DemoOptions
    directory: Path
    view: StackView
    checks: list[Check] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @property
    def hold_s(self) -> float:
        """How long a phase lasts."""
        return self.options.seconds * (LONG_FACTOR if self.options.long else 1)

    def stack(self, uplinks: Sequence[Uplink]) -> ClientStack:
        """A client stack under the demo's name; one at a time."""
        return ClientStack(self.name, self.directory, uplinks)

    def ticking(self, stack: ClientStack) -> Callable[[float], None]:
        """A function that waits some seconds and keeps the view current."""

        def tick(seconds: float) -> None:
            until_s = time.monotonic() + seconds
            while (left_s := until_s - time.monotonic()) > 0:
                self.view.update(stack)
                time.sleep(min(0.25, left_s))

        return tick

    def check(  # noqa: PLR0917 - as Check
        self,
        what: str,
        theory: float,
        measured: float,
        unit: str = "Mb/s",
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Adds a :class:`~hyroads.mininet.demos.verdict.Check` and shows it."""
        self.checks.append(Check(what, theory, measured, unit, at_least, at_most))
        self.view.note(self.checks[-1].line())

    def write_csv(self, name: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A file in the folder of ``--out``."""
        folder = self.options.out or Path("out") / f"demo-{self.name}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
        self.files.append(folder / name)

    def finish(self) -> int:
        """Prints the verdict; returns the exit status: 0, or 1 if a check fails."""
        ok = bool(self.checks) and all(check.ok for check in self.checks)
        if self.options.json:
            checks = [check.document() for check in self.checks]
            print(json.dumps({"name": self.name, "checks": checks, "ok": ok, "files": [str(f) for f in self.files]}))
        else:
            print("\nVerdict")
            for check in self.checks:
                print(f"  {check.line()}")
            print(f"  {'all as theory says' if ok else 'falls short of theory'}", flush=True)
        return 0 if ok else 1


def run_stack_demo(
    demo: Callable[[StackStage], None],
    names: tuple[str, str],
    how: DemoOptions,
    uplinks: Sequence[Uplink],
    say: Callable[[str], None],
) -> int:
    """Runs a demo (``names``: its own, that of its network) in namespaces of its own; returns the exit status.

    ``uplinks`` are the most that it makes at a time. Nothing is left of it afterwards, however it ends.
    """
    check_prerequisites(TOOLS)
    for program in ("hyroads-client", "hyroads-medium"):
        find_program(program)
    for swept in run_directory.sweep():
        say(f"swept what a dead {swept} left behind")
    name, network = names
    directory = run_directory.claim(network)
    try:
        root = run_directory.namespace_name(network)
        directory.record([root, *namespaces_of(network, uplinks)])
        run("ip", "netns", "add", root)

        def work() -> int:
            view = (LiveStackView if how.live else StackView)(sys.stderr if how.json else sys.stdout)
            stage = StackStage(network, how, directory.path, view)
            with view:
                demo(stage)
            stage.name = name
            return stage.finish()

        return run_isolated(run_directory.NETNS_ROOT / root, work)
    finally:
        directory.release()
