"""Which OpenFlow framework a controller runs on."""

from __future__ import annotations

import pytest

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.framework.launcher import chosen_framework


@pytest.mark.parametrize(
    ("wanted", "installed", "chosen"),
    [
        (None, {"ryu", "os_ken"}, "ryu"),
        (None, {"ryu"}, "ryu"),
        (None, {"os_ken"}, "os_ken"),
        ("os_ken", {"ryu", "os_ken"}, "os_ken"),
        ("os-ken", {"ryu", "os_ken"}, "os_ken"),
        ("ryu", {"ryu", "os_ken"}, "ryu"),
    ],
)
def test_the_environment_chooses_among_installed_frameworks(
    wanted: str | None, installed: set[str], chosen: str
) -> None:
    assert chosen_framework(wanted, installed.__contains__) == chosen


@pytest.mark.parametrize(
    ("wanted", "installed", "problem"),
    [
        (None, set(), "controller-osken"),
        ("os_ken", {"ryu"}, "HYROADS_FRAMEWORK"),
        ("pox", {"ryu", "pox"}, "HYROADS_FRAMEWORK"),
    ],
)
def test_a_framework_that_cannot_run_is_an_error(wanted: str | None, installed: set[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        chosen_framework(wanted, installed.__contains__)
