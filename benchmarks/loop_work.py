"""CPU time of the controller's loop in a campus, in this process (tests/support/campus_loop.py): python
benchmarks/loop_work.py NODES FLOWS [--repeat N].

Of a slot, of a declared flow and of a cut link until all of it is in force: milliseconds on the loop's thread, median /
worst, and the longest stretch in which nothing else has its turn. What is planned in a thread of its own is not in it.
Of counters: microseconds for each report and each reading of radios that the compiled library has read of sockets and
decoded; all agents and all radios have told theirs once.
"""

from __future__ import annotations

import os

# Before numpy is imported: the figures are for one core.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import gc
import json
import logging
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hyroads.controller.agents.clients import ClientAccess
from hyroads.controller.agents.listeners import Radios
from hyroads.controller.agents.markers import SequenceMarkers
from hyroads.controller.agents.server import AgentServer
from hyroads.controller.core.identity import DeviceTokens
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.runtime.event_loop import STEP_S, EventLoop
from hyroads.controller.settings.controller import Timings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from campus_loop import CampusLoop

SLOTS = 20
FLUSHES = 40
WITHIN_S = 30.0


class Stretches:
    """The longest time on this thread between two moments at which others may run."""

    def __init__(self, campus: CampusLoop) -> None:
        self.longest_s = 0.0
        self._since_s = time.thread_time()
        for name in ("sleep", "in_thread"):
            setattr(shim, name, self._around(getattr(shim, name)))
        campus.loop.live._in_thread, campus.loop.live._pause = shim.in_thread, lambda: shim.sleep(0)
        # Each turn of the loop begins with this.
        setattr(campus.loop, "_tick", self._around(campus.loop._tick, counts=True))  # noqa: B010
        setattr(campus.loop, "_slot", self._slot(campus.loop._slot))  # noqa: B010
        setattr(campus.loop, "_is_overtaken", self._overtaken(campus.loop))  # noqa: B010
        campus.loop._deployer.is_overtaken = campus.loop._is_overtaken
        setattr(campus, "_answer", partial(self._answer, campus))  # noqa: B010

    def _around(self, function: Callable[..., Any], *, counts: bool = False) -> Callable[..., Any]:
        def around(*arguments: Any) -> Any:
            self.end()
            if counts:
                return function(*arguments)
            result = function(*arguments)
            self.begin()
            return result

        return around

    def _slot(self, slot: Callable[[], None]) -> Callable[[], None]:
        def around() -> None:
            # What agents told before it is not the controller's work.
            self.begin()
            slot()
            self.end()

        return around

    def _answer(self, campus: CampusLoop) -> None:
        """Each message of a device comes by itself."""
        while campus.answers:
            self.end()
            campus.answers.popleft()()
        self.end()

    def _overtaken(self, loop: EventLoop) -> Callable[[], bool]:
        is_overtaken = loop._is_overtaken

        def around() -> bool:
            # The time of the test stands still meanwhile.
            is_due = time.thread_time() >= self._since_s + STEP_S
            loop._paused_s = -math.inf if is_due else math.inf
            return is_overtaken()

        return around

    def begin(self) -> None:
        """Here it goes on."""
        self._since_s = time.thread_time()

    def end(self) -> None:
        """Others may run."""
        self.longest_s = max(self.longest_s, time.thread_time() - self._since_s)
        self.begin()


class Devices:
    """Agents and radios of a campus that tell their counters over sockets."""

    def __init__(self, campus: CampusLoop) -> None:
        # These sockets are not of TCP: what is sent can be read at once.
        setattr(shim, "no_delay", lambda connection: None)  # noqa: B010
        self._campus, loop = campus, campus.loop
        listener = cast("Any", SimpleNamespace(
            agent_up=lambda session: None, agent_down=lambda session: None, agent_links=loop.agent_links,
            agent_report=loop.agent_report, agent_reports=loop.agent_reports, is_starting=False,
            agent_misbehaved=print,
        ))  # fmt: skip
        nodes = frozenset(campus.agents)
        self.server = AgentServer(
            listener, nodes, Timings(), DeviceTokens(), campus.clock,
            radios=Radios(campus.ingest, listener, nodes, 100), markers=SequenceMarkers(),
            clients=ClientAccess(listener, {}),
        )  # fmt: skip
        self._sockets = {(role, node): self._dial(role, node) for role in ("agent", "radio") for node in nodes}
        self._until(lambda: len(self.server._poll._library_reads) == len(self._sockets))
        self._say({key: self._whole(*key) for key in self._sockets})
        # Whole readings have rows, which wait in a queue of their own.
        self._until(lambda: not self.server._readings._sessions)
        # From then on it is known what changes refer to.
        self.flush()

    def _dial(self, role: str, node: str) -> Any:
        here, there = shim.socket_pair()
        place = self.server._connections.enter(here, (node, 1))
        shim.spawn(self.server._serve_one, here, place)
        hello = {"type": "hello", "version": 1, "node": node, "program": "x", "boot": node, "token": None,
                 "revision": 0, "changes": True, "role": role}  # fmt: skip
        there.sendall(json.dumps(hello).encode() + b"\n")
        return there

    def _say(self, messages: dict[tuple[str, str], dict[str, Any]]) -> None:
        """Returns when all of it was read, and what are no counters was taken."""
        library = self.server._poll.library
        if library is None:
            raise SystemExit("the compiled library is not there: make build")
        for key, message in messages.items():
            self._sockets[key].sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        said_s = time.monotonic()
        self._until(lambda: library.taken_until_s() >= said_s)

    @staticmethod
    def _until(is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WITHIN_S
        while not is_so():
            shim.sleep(0.001)
            if time.monotonic() > until_s:
                raise SystemExit("what devices say is not read")

    def _interfaces(self, node: str) -> list[dict[str, Any]]:
        now_us = int(1e6 * self._campus.now_s)
        return [
            {"technology": technology, "busy_us": now_us // 2, "active_us": now_us}
            for technology in self._campus.context.addressing.technologies(node)
        ]

    def _whole(self, role: str, node: str) -> dict[str, Any]:
        if role == "agent":
            return self._campus._report(self._campus.agents[node])
        interfaces = [{**each, "neighbours": []} for each in self._interfaces(node)]
        return {"type": "radio", "seq": None, "time_s": self._campus.now_s, "interfaces": interfaces}

    def _changes(self, role: str, node: str) -> dict[str, Any]:
        time_s = self._campus.now_s
        if role == "radio":
            return {"type": "radio-changes", "time_s": time_s, "interfaces": self._interfaces(node)}
        whole = self._campus._report(self._campus.agents[node])
        counters = {"ingress": ("sent_bytes", "sent_frames"), "egress": ("received_bytes", "received_frames")}
        sides = {
            side: [
                {"number": flow["number"], "paths": [{name: path[name] for name in ("id", *names)}
                                                     for path in flow["paths"]]}
                for flow in whole[side]
            ]
            for side, names in counters.items()
        }  # fmt: skip
        return {"type": "changes", "time_s": time_s, **sides}

    def tell(self) -> int:
        """All tell what has changed in a slot; how many they are."""
        self._campus.now_s += 0.1
        for path in self._campus.carried:
            self._campus.carried[path] += 14_000
        self._say({key: self._changes(*key) for key in self._sockets})
        return len(self._sockets)

    def flush(self) -> float:
        """CPU time of the loop's thread for each message, in seconds."""
        # Nobody takes them before.
        self.server._poll._flush_at_s = math.inf
        count = self.tell()
        began_s = time.thread_time()
        self.server.flush()
        took_s = time.thread_time() - began_s
        reports = self._campus.loop.reports
        # Whoever asks for a report has it made, which is not what is measured here.
        told_s = {node: float(reports._reports.time_s[number]) for node, number in reports._numbers.items()}
        if {told_s.get(node) for node in self._campus.agents} != {self._campus.now_s} or any(
            self._campus.ingest.radios.age_s((node, technology), self._campus.now_s) != 0.0
            for node in self._campus.agents
            for technology in self._campus.context.addressing.technologies(node)
        ):
            raise SystemExit("not all counters were taken")
        return took_s / count


def shown(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f} / {1e3 * max(seconds):.1f}"


def measure(campus: CampusLoop, repeat: int, took: dict[str, list[float]], longest: dict[str, list[float]]) -> None:
    """Slots, declared flows, cuts and what follows them."""
    stretches = Stretches(campus)

    def run(what: str, work: Callable[[], float]) -> None:
        stretches.longest_s = 0.0
        stretches.begin()
        took.setdefault(what, []).append(work())
        stretches.end()
        longest.setdefault(what, []).append(stretches.longest_s)

    for _ in range(SLOTS):
        run("slot", campus.slot)
    for spec in campus.specs(repeat, random.Random(3), "new", 30_000):
        run("declare", lambda: campus.declare(spec))  # noqa: B023
        run("slot after a declare", campus.slot)
    rng = random.Random(4)
    for _ in range(repeat):
        link = rng.choice(campus.used())
        run("cut", lambda: campus.cut(link))  # noqa: B023
        run("slot after a cut", campus.slot)
        campus.slot()
        run("heal", lambda: campus.cut(link, up=True))  # noqa: B023
        run("slot after a heal", campus.slot)
        for _ in range(10):
            campus.slot()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int)
    parser.add_argument("flows", type=int)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only-counters", action="store_true", help="leave slots, flows and cuts out")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    took: dict[str, list[float]] = {}
    longest: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        campus = CampusLoop(Path(folder), asked.nodes, asked.flows)
        campus.settle()
        gc.collect()
        gc.freeze()
        gc.disable()
        if not asked.only_counters:
            measure(campus, asked.repeat, took, longest)
        devices = Devices(campus)
        flushes = [1e3 * devices.flush() for _ in range(FLUSHES)]
        print(f"{asked.nodes} nodes, {asked.flows} flows, counters: {shown(flushes)} us for each report or reading")
    for what, times in took.items():
        stretch = f", longest {shown(longest[what])} ms"
        print(f"{asked.nodes} nodes, {asked.flows} flows, {what}: {shown(times)} ms{stretch}")


if __name__ == "__main__":
    main()
