"""The Ryu application: what it has of Ryu's stays Ryu's."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from hyroads.controller.app import HyRoads
from hyroads.controller.framework import ryu_shim as shim
print(*sorted(set(vars(HyRoads)) & set(dir(shim.AppBase)) - set(dir(object)) - {"__module__"}))
"""


def test_no_method_takes_the_place_of_one_of_ryus_own() -> None:
    """``_event_loop`` once did: the application started, and handled no event. Ryu is not imported into the tests."""
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["OFP_VERSIONS", "start"]
