"""Where the demos of the client stack run: namespaces of their own, the rates of interfaces, checks and the verdict.

These demos have no controller: the networks are foreign ones. What they check is what ``hyroads-client`` promises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from hyroads.mininet import run_directory
from hyroads.mininet.client_stack import ClientStack, Uplink, namespaces_of
from hyroads.mininet.control_sockets import StackError
from hyroads.mininet.isolation import run_isolated
from hyroads.mininet.programs import check_prerequisites, find_program, run

from .checks import DemoOptions
from .judged_stage import JudgedStage

TOOLS = ("ip", "tc", "nft", "ping")


@dataclass(frozen=True)
class InterfaceRates:
    """One look at a client's interfaces: name, state, Mb/s sent and Mb/s received of each."""

    rows: tuple[tuple[str, str, float, float], ...]

    def line(self) -> str:
        """Each interface with its state."""
        return "  ".join(f"{name} {state} up {up:.1f} down {down:.1f} Mb/s" for name, state, up, down in self.rows)

    def tables(self) -> Sequence[Text | Table]:
        """One row for each interface."""
        table = Table(title="interfaces of the client", title_justify="left", expand=False)
        for heading in ("interface", "up Mb/s", "down Mb/s", ""):
            table.add_column(heading, justify="right" if "Mb/s" in heading else "left")
        for name, state, up, down in self.rows:
            table.add_row(name, f"{up:.2f}", f"{down:.2f}", state, style="red" if state else None)
        return [table]


class StackStage(JudgedStage):
    """What a demo is given: client stacks one at a time, under the name of its ``network``, and its checks."""

    def __init__(self, name: str, options: DemoOptions, network: str, directory: Path) -> None:
        super().__init__(name, options)
        self.network, self.directory = network, directory
        self._before: dict[str, tuple[float, int, int]] = {}

    def stack(self, uplinks: Sequence[Uplink]) -> ClientStack:
        """A client stack; one at a time."""
        return ClientStack(self.network, self.directory, uplinks)

    def ticking(self, stack: ClientStack) -> Callable[[float], None]:
        """A function that waits some seconds and keeps the view current."""

        def tick(seconds: float) -> None:
            until_s = time.monotonic() + seconds
            while (left_s := until_s - time.monotonic()) > 0:
                self.view.update(lambda: self._rates(stack))
                time.sleep(min(0.25, left_s))

        return tick

    def _rates(self, stack: ClientStack) -> InterfaceRates:
        """Of each interface since the last look; of none if the stack does not answer."""
        now_s, rows = time.monotonic(), []
        try:
            links = stack.request("status")["interfaces"]
        except StackError:
            return InterfaceRates(())
        for link in links:
            counted = (now_s, int(link["sent_bytes"]), int(link["received_bytes"]))
            then = self._before.get(link["name"], counted)
            if then[1] > counted[1]:
                # Another stack has begun.
                then = counted
            self._before[link["name"]] = counted
            span_s = max(1e-3, now_s - then[0])
            state = ("" if link["alive"] else "silent") if link["up"] else "no carrier"
            up_mbps, down_mbps = (8e-6 * (counted[k] - then[k]) / span_s for k in (1, 2))
            rows.append((link["name"], state, up_mbps, down_mbps))
        return InterfaceRates(tuple(rows))


def run_stack_demo(
    demo: Callable[[StackStage], None],
    names: tuple[str, str],
    how: DemoOptions,
    uplinks: Sequence[Uplink],
    say: Callable[[str], None],
    *,
    shaped: bool = False,
) -> int:
    """Runs a demo (``names``: its own, that of its network) in namespaces of its own; returns the exit status.

    ``uplinks`` are the most that it makes at a time. ``shaped``: the kernel alone carries the packets of this demo, so
    the lane beside it is one that the kernel shapes. Nothing is left of it afterwards, however it ends.
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
            stage = StackStage(name, how, network, directory.path)
            with stage.beside(directory.path, shaped=shaped), stage.view:
                demo(stage)
            return stage.conclude()

        return run_isolated(run_directory.NETNS_ROOT / root, work)
    finally:
        directory.release()
