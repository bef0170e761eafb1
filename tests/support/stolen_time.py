"""Processor time taken from everything else; planted faults: a medium, or agents, that carry less than they should."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hyroads.mininet.programs import find_program

# Takes a share of one processor, in each 100 ms once, before everything else, and ends by itself.
BURNER = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))
end_s = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end_s:
    time.sleep(0.1 - time.monotonic() % 0.1)
    until_s = time.monotonic() + 0.1 * float(sys.argv[2])
    while time.monotonic() < until_s:
        pass
"""
MEDIUM = """#!{python}
import json, os, sys
path = sys.argv[sys.argv.index('--config') + 1]
document = json.load(open(path))
for link in document['links']:
    link['capacity_mbps'] *= {factor}
json.dump(document, open(path, 'w'))
os.execv({program!r}, sys.argv)
"""

# Python runs it at its start: the controller gives agents a part of the rates that it allocates.
AGENTS = """
import sys
if 'controller' in sys.orig_argv:
    from hyroads.controller.agents import configs
    by_flow, number_text = configs._by_flow, configs._number_text
    configs._by_flow = lambda values: by_flow({{key: {factor} * mbps for key, mbps in values.items()}})
    configs._number_text = lambda mbps: number_text(None if mbps is None else {factor} * mbps)
"""


@contextmanager
def stolen(share: float, most_s: float) -> Iterator[None]:
    """Takes the share of all processors while this is entered, at most for so many seconds."""
    words = (str(share), str(most_s))
    burners = [subprocess.Popen([sys.executable, "-c", BURNER, str(cpu), *words]) for cpu in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def weak_medium(folder: Path, factor: float) -> Path:
    """A folder for HYROADS_BIN whose medium gives each link the part ``factor`` of its capacity."""
    folder.mkdir()
    for name in ("hyroads-edge", "hyroads-client"):
        (folder / name).symlink_to(find_program(name))
    medium = folder / "hyroads-medium"
    medium.write_text(MEDIUM.format(python=sys.executable, factor=factor, program=find_program("hyroads-medium")))
    medium.chmod(0o755)
    return folder


def slow_agents(folder: Path, factor: float) -> Path:
    """A folder for PYTHONPATH with which agents pace at the part ``factor`` of the rates that they are allocated."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(AGENTS.format(factor=factor))
    return folder
