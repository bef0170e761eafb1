"""Processor time taken from everything else, and a medium that carries less than the controller and theory believe."""

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
