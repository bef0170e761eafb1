"""For all tests: the same examples in each run, however busy or strange the machine is that they run on."""

import gc
import os
import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# What tests share (``import rate_cases``); benchmarks use it as well.
sys.path.insert(0, str(Path(__file__).parent / "support"))

# The same examples each time, and a busy machine is no failure. A fifth of them (tests/support/examples.py) every day,
# all of them in ``make test``; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile(
    "thorough", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=20)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A shell starts background jobs with Ctrl-C ignored, and so would be everything that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Of all that is imported for the tests nothing becomes garbage, so there is no use in looking for it again and again.
gc.disable()


def pytest_collection_finish() -> None:
    """All is imported: from now on there is garbage."""
    gc.freeze()
    gc.enable()
