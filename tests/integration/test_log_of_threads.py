"""Green threads and threads of the system log at the same time: none waits for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

# As the framework's manager sets a controller up, with a log that everybody writes to all the time.
PROGRAM = """
import logging, sys
from hyroads.controller.framework import ryu_shim as shim
shim.hub.patch()
logging.basicConfig(stream=sys.stderr, level=logging.INFO)
if {free}:
    shim.let_threads_log()
logging.getLogger().addHandler(logging.StreamHandler(open("/dev/null", "w")))
log, done = logging.getLogger("x"), []

def write(name, pause):
    for number in range(3000):
        log.info("%s %d", name, number)
        pause(0)
    done.append(name)

for number in range(3):
    shim.start_thread(write, f"system {{number}}", shim.original("time").sleep, name="x")
    shim.spawn(write, f"green {{number}}", shim.sleep)
while len(done) < 6:
    shim.sleep(0.05)
print("all done")
"""


def run(free: bool) -> str:
    command = [sys.executable, "-c", PROGRAM.format(free=free)]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except subprocess.TimeoutExpired:
        return "for ever"


def test_all_who_log_go_on() -> None:
    assert run(free=True) == "all done\n"


@pytest.mark.nightly
def test_they_would_not_with_locks_of_green_threads() -> None:
    assert run(free=False) != "all done\n"
