"""Processor time taken from everything else; planted faults: a medium, agents or shaped links that carry too little."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hyroads.mininet.programs import find_program
from hyroads.mininet.reference import RATE_MBPS

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

# In the place of tc: each rate becomes a part of itself, but not that of the plain lane.
SHAPER = """#!{python}
import os, re, sys
words = sys.argv[1:]
for k, word in enumerate(words[:-1]):
    found = re.fullmatch(r"([0-9.]+)([km]bit)", words[k + 1])
    if word == "rate" and found and words[k + 1] != {lane!r}:
        words[k + 1] = f"{{round(float(found[1]) * (1000 if found[2] == 'mbit' else 1) * {factor})}}kbit"
os.execv({program!r}, [{program!r}, *words])
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


def slow_shapers(folder: Path, factor: float) -> Path:
    """A folder for PATH with which links that the kernel shapes have the part ``factor`` of their rates."""
    folder.mkdir()
    program = shutil.which("tc", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    shaper = folder / "tc"
    lane = f"{RATE_MBPS:g}mbit"
    shaper.write_text(SHAPER.format(python=sys.executable, factor=factor, lane=lane, program=program))
    shaper.chmod(0o755)
    return folder


def slow_agents(folder: Path, factor: float) -> Path:
    """A folder for PYTHONPATH with which agents pace at the part ``factor`` of the rates that they are allocated."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(AGENTS.format(factor=factor))
    return folder
