"""For all tests: the same examples in each run, however busy or strange the machine is that they run on."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# What tests share (``import rate_cases``); benchmarks use it as well.
sys.path.insert(0, str(Path(__file__).parent / "support"))
from ledger_hooks import pytest_collectreport, pytest_runtest_logreport  # noqa: F401

# The same examples each time, and a busy machine is no failure. A fifth of them (tests/support/examples.py) every day,
# half of them in ``make test``; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile(
    "thorough",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=20)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Where the models of tests/support/swarm.py begin. Workers inherit it from the process that starts them.
if "HYROADS_SEED" not in os.environ:
    IS_QUICK = settings.default is settings.get_profile("quick")
    os.environ["HYROADS_SEED"] = "0" if IS_QUICK else str(int.from_bytes(os.urandom(4), "big"))

# Tests that ask for it run longer at night.
NIGHTLY = bool(os.environ.get("HYROADS_NIGHTLY"))

# A shell starts background jobs with Ctrl-C ignored, and so would be everything that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Of all that is imported for the tests nothing becomes garbage, so there is no use in looking for it again and again.
gc.disable()


def pytest_report_header() -> str:
    """Where the models begin, to begin there again."""
    return f"models: HYROADS_SEED={os.environ['HYROADS_SEED']}"


def pytest_collection_finish() -> None:
    """All is imported: from now on there is garbage."""
    gc.freeze()
    gc.enable()


# Where files run side by side, those that take longest begin, so that all workers end at about the same time.
_LONGEST = (
    "triangle examples pages capacity_drop handover flows_come_and_go pair_tests learning state_file clients "
    "rest_openapi sfnet slicer_isolation plugin_processes slicer_conformance ofp_ovs slicer published_figures "
    "bandit_study plugins controller_app rest_live snmp edge rest_ryu querier"
)
_RADIOS = Path("/sys/module/mac80211_hwsim")
_PLACES = {f"test_{name}.py": place for place, name in enumerate(_LONGEST.split())}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The order of the files; within a file nothing changes. Tests of radios are made where the kernel has some."""
    # Workers compare their lists of tests, and refuse to run if the lists differ.
    by_place = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if by_place:
        raise pytest.UsageError(f"names of tests must be the same in each process; give ids: {', '.join(by_place)}")
    if not NIGHTLY:
        nightly = [item for item in items if item.get_closest_marker("nightly")]
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=nightly)
    items.sort(key=lambda item: _PLACES.get(item.path.name, len(_PLACES)))
    if not _RADIOS.exists():
        for item in items:
            if item.get_closest_marker("radio"):
                item.add_marker(pytest.mark.skip(reason="needs mac80211_hwsim: scripts/test.sh radio"))
