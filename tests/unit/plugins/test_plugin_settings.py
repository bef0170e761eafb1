"""The parts ``plugins``, ``policies`` and ``sfnet`` of the settings."""

import datetime
from pathlib import Path

import pytest

from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.services.plugins.discovery import POLICIES
from hyroads.controller.settings.plugins import (
    BUILT_IN_POLICIES,
    SfnetSettings,
    parse_plugins,
    parse_policies,
    parse_sfnet,
)
from hyroads.plugins.kinds import Kind


def checked(parse, value, *more):
    problems = Problems("file")
    found = parse(Place(value, problems, "top"), *more)
    problems.raise_if_any()
    return found


def test_paths_are_relative_to_the_file_and_an_app_may_change_what_applications_may():
    (plugin,) = checked(parse_plugins, [{"name": "a-1", "path": "x/y.py"}], Path("/etc/hyroads"))
    assert (plugin.path, plugin.kind, plugin.role) == ("/etc/hyroads/x/y.py", Kind.APP, "application")
    (installed,) = checked(parse_plugins, [{"name": "b", "role": "viewer", "user": "nobody", "deadline_s": 1}], Path())
    assert installed.path is None and installed.kind is None and installed.bounds.user == "nobody"
    assert parse_plugins(None, Path()) == checked(parse_plugins, None, Path()) == ()


@pytest.mark.parametrize(
    ("plugin", "place"),
    [
        ({}, "top[0].name"),
        ({"name": 7}, "top[0].name"),
        ({"name": "a", "colour": 1}, "top[0].colour"),
        ({"name": "a", "kind": "king"}, "top[0].kind"),
        ({"name": "a", "role": "slice-owner"}, "top[0].role"),
        ({"name": "a", "settings": [1]}, "top[0].settings"),
        ({"name": "a", "settings": {"on": datetime.date(2026, 1, 1)}}, "top[0].settings"),
        ({"name": "a", "settings": {1: 2}}, "top[0].settings"),
        ({"name": "a", "deadline_s": 0}, "top[0].deadline_s"),
        ({"name": "a", "user": 0}, "top[0].user"),
        ({"name": "a", "path": "x\0"}, "top[0].path"),
    ],
)
def test_wrong_plugins_are_named(plugin, place):
    with pytest.raises(ConfigError) as error:
        checked(parse_plugins, [plugin], Path())
    assert error.value.place == place


def test_policies_are_the_built_in_ones():
    assert set(BUILT_IN_POLICIES) == set(POLICIES)
    assert checked(parse_policies, ["load", "signal", "load"]) == ("load", "signal")
    with pytest.raises(ConfigError):
        checked(parse_policies, ["hard"])


def test_sfnet():
    assert parse_sfnet(None) is None
    assert checked(parse_sfnet, {}) == SfnetSettings("127.0.0.1", 2209, ("lo",))
    assert checked(parse_sfnet, {"interfaces": [], "host": "0.0.0.0"}).is_loopback is False
    for wrong in ({"host": "localhost"}, {"port": 0}, {"interfaces": "lo"}, {"interfaces": [1]}, 7):
        with pytest.raises(ConfigError):
            checked(parse_sfnet, wrong)
