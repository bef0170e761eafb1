"""From a command to running boxes: preconditions, the root, packages, isolation, and removal of every trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hyroads.mininet import cgroups, run_directory
from hyroads.mininet.isolation import EXIT_INTERRUPTED, run_isolated
from hyroads.mininet.programs import LAB_TOOLS, EmulationError, check_prerequisites, run

from . import packages, power_line
from .box import Box, Place
from .medium import Air, RadioChannel
from .root import SUITES, cache_folder, ready_root, recipe
from .wires import BoxPlan, Segment, check, make_segments

Say = Callable[[str], None]
_WATCH_INTERVAL_S = 0.2


@dataclass(frozen=True)
class LabOptions:
    """``suite`` of Debian, the ``mirror`` for it (a URL; None: the apt sources') and a folder with ``packages``.

    Without ``packages`` those of the checkout are built.
    """

    suite: str = SUITES[0]
    mirror: str | None = None
    packages: Path | None = None


@dataclass(frozen=True)
class LabPlan:
    """The boxes of a lab, their wires, and what their installers wrote: box -> path -> text."""

    boxes: Sequence[BoxPlan]
    segments: Sequence[Segment]
    installed: Mapping[str, Mapping[str, str]]
    power_lines: Sequence[power_line.PowerLine] = ()
    radio_channels: Sequence[RadioChannel | Air] = ()


@dataclass(frozen=True)
class Lab:
    """Running boxes and power lines, by name."""

    name: str
    boxes: Mapping[str, Box]
    say: Say
    power_lines: Mapping[str, power_line.RunningLine]

    def boot(self) -> None:
        """Switch all on, side by side, and wait until they run."""
        with ThreadPoolExecutor(len(self.boxes)) as pool:
            for done in [pool.submit(box.boot) for box in self.boxes.values()]:
                done.result()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside this a box that reboots is switched on again."""
        stop = threading.Event()
        watchers = [threading.Thread(target=self._revive, args=(box, stop), daemon=True) for box in self.boxes.values()]
        for watcher in watchers:
            watcher.start()
        try:
            yield
        finally:
            stop.set()
            for watcher in watchers:
                watcher.join()

    def _revive(self, box: Box, stop: threading.Event) -> None:
        while not stop.wait(_WATCH_INTERVAL_S):
            try:
                if box.revive():
                    self.say(f"box {box.name} has rebooted")
            except EmulationError as error:
                self.say(str(error))
                return


def run_lab(name: str, plan: LabPlan, options: LabOptions, body: Callable[[Lab], int], say: Say) -> int:
    """Run ``body`` on the booted boxes and return its status; nothing of the lab is left afterwards but the cache.

    Raises EmulationError for what is missing on this machine, and for a lab that can't be made.
    """
    check_prerequisites(LAB_TOOLS)
    check(plan.boxes, plan.segments)
    for swept in run_directory.sweep():
        say(f"removed what {swept}, which has ended, left behind")
    root, debs = root_and_packages(options, say)
    directory = run_directory.claim(name)
    try:
        groups = cgroups.lab_folders(name)
        own = run_directory.namespace_name(name)
        directory.record([own, *(run_directory.namespace_name(name, box.name) for box in plan.boxes)], groups)
        run("ip", "netns", "add", own)
        run("ip", "-n", own, "link", "set", "lo", "up")

        def work() -> int:
            # It is gone with the mount namespace, and all disks of boxes with it.
            run("mount", "-t", "tmpfs", "-o", "mode=0755", "hr-lab", str(directory.path))
            place = Place(name, root, directory.path, groups, debs, plan.segments)
            make_segments(plan.segments)
            lines = power_line.start_all(plan.power_lines, directory.path / "power-lines")
            for channel in plan.radio_channels:
                channel.start(directory.path / "radio-channels")
            lab = Lab(name, {each.name: Box(each, place) for each in plan.boxes}, say, lines)
            for box in lab.boxes.values():
                box.unpack(dict(plan.installed.get(box.name, {})))
            say(f"booting {len(lab.boxes)} boxes")
            lab.boot()
            with lab.watched():
                return body(lab)

        status = run_isolated(run_directory.NETNS_ROOT / own, work)
        if status == EXIT_INTERRUPTED:
            say(f"lab {name} ended")
        return status
    finally:
        directory.release()


def root_and_packages(options: LabOptions, say: Say) -> tuple[Path, Path]:
    """The root and the folder of packages; both are made at the same time if they are not there."""
    cache, wanted = cache_folder(), recipe(options.suite, options.mirror)
    with ThreadPoolExecutor(1) as pool:
        root = pool.submit(ready_root, wanted, cache, say)
        folder = options.packages or packages.built_packages(cache, say)
        packages.files_of(folder, wanted.architecture)
        return root.result(), folder.resolve()
