"""The dashboard before a busy office of 22 nodes: loading, from a cut to the changed pixel, processor time, memory.

    python benchmarks/dashboard.py [--seconds 20] [--cuts 20]

Needs the extra ``dashboard``, Playwright and chromium. The controller is a stand-in whose figures all move each second.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from dashboard_process import Dashboard, Window, browser
from fake_controller import FakeController

from hyroads.controller.core.topologies import office22_panels

RED = (0xD4, 0x00, 0x00)


def shake(fake: FakeController, rng: random.Random) -> None:
    """All measured figures move a little, as on a network in use."""
    for link in fake.network.links:
        busy = max(0, min(100, round(rng.gauss(50, 20))))
        fake.set_link(link.id, rate_mbps=round(rng.uniform(0, 20), 2), busy_percent=busy)


def cpu_share(process: psutil.Process, seconds: float, window: Window) -> float:
    """Share of a core that a process takes, while the browser works."""
    before = process.cpu_times()
    window.page.wait_for_timeout(1000 * seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / seconds


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--cuts", type=int, default=20)
    options = parser.parse_args()
    rng, stop = random.Random(1), threading.Event()
    fake = FakeController(office22_panels(random.Random(1)))
    shake(fake, rng)

    def moves() -> None:
        while not stop.wait(1.0):
            shake(fake, rng)

    with tempfile.TemporaryDirectory() as folder, fake, Dashboard(fake.url, Path(folder)) as dashboard:
        process = psutil.Process(dashboard.process.pid)
        with browser() as chromium:
            context = chromium.new_context()
            windows = [Window(context, dashboard.url)]
            for which in ("first", "warm"):
                began_s = time.monotonic()
                windows[0].open()
                windows[0].until(windows[0].drawn)
                print(f"{which} load until links are drawn: {time.monotonic() - began_s:.2f} s")
            delays = []
            for _ in range(options.cuts):
                windows[0].page.wait_for_timeout(rng.uniform(200, 1200))
                link = rng.choice(fake.network.links).id
                began_s = time.monotonic()
                fake.cut(link)
                windows[0].until(lambda: windows[0].pixels(RED) > 0)
                delays.append(time.monotonic() - began_s)
                fake.restore(link)
                windows[0].until(lambda: windows[0].pixels(RED) == 0)
            delays.sort()
            found = f"median {statistics.median(delays):.2f} s, worst {delays[-1]:.2f} s"
            print(f"cut to red pixel, {len(delays)} cuts: {found}")
            threading.Thread(target=moves, daemon=True).start()
            print(f"{len(fake.network.links)} links, all figures move each second")
            for count in (1, 4):
                while len(windows) < count:
                    windows.append(Window(chromium.new_context(), dashboard.url))
                    windows[-1].open()
                    windows[-1].until(windows[-1].drawn)
                windows[0].page.wait_for_timeout(3000)
                share = cpu_share(process, options.seconds, windows[0])
                print(f"{count} browsers: {share:.1%} of a core, {process.memory_info().rss / 2**20:.0f} MiB")
            stop.set()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
