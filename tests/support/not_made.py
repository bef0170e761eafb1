"""Tests that were not made, neither passed nor failed: the machine was too slow for them, or the time is over.

They are skipped with the reason, and listed in the file that HYROADS_NOT_MADE_LIST names. With HYROADS_NOT_MADE=fail
they fail: what has failed once must be made. After HYROADS_TESTS_UNTIL_S (seconds since 1970) no test begins any more;
.ci/run sets it, for who waits there has an end.

Tests that need etcd are skipped where there is none; that is no list's business.
"""

import os
import time
from pathlib import Path

import pytest

NOT_MADE = "not made"


def must_be_made() -> bool:
    return os.environ.get("HYROADS_NOT_MADE") == "fail"


def not_made(why: str) -> BaseException:
    """What ends the test when it is raised."""
    return (pytest.fail.Exception if must_be_made() else pytest.skip.Exception)(f"{NOT_MADE}{why}")


def needs_etcd() -> str:
    """The path of the program; without one the test is skipped."""
    # Every run of tests has this module, few need etcd.
    from hyroads.mininet.etcd import etcd_program
    from hyroads.mininet.programs import EmulationError

    try:
        return etcd_program()
    except EmulationError as error:
        pytest.skip(str(error))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    until_s = os.environ.get("HYROADS_TESTS_UNTIL_S")
    if until_s and time.time() > float(until_s) and not must_be_made():
        raise not_made(": the time is over")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tests that were not made are listed where scripts/test.sh looks for them at the end."""
    listed = os.environ.get("HYROADS_NOT_MADE_LIST")
    if listed and report.skipped and isinstance(report.longrepr, tuple) and NOT_MADE in report.longrepr[2]:
        with Path(listed).open("a") as file:
            file.write(f"{report.nodeid}: {report.longrepr[2]}\n")
