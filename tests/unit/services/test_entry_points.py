"""Plugins are found under the names that they give themselves."""

import importlib
import tomllib
from pathlib import Path

import pytest

from hyroads.controller.core.services.mobility import MobilityManager
from hyroads.controller.core.services.view import MobilityPolicy

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
GROUPS = {"hyroads.mobility": MobilityManager, "hyroads.policies": MobilityPolicy}
POINTS = [(group, name, target) for group in GROUPS for name, target in PROJECT["entry-points"][group].items()]


@pytest.mark.parametrize(("group", "name", "target"), POINTS)
def test_entry_point(group, name, target):
    module, _, attribute = target.partition(":")
    plugin = getattr(importlib.import_module(module), attribute)
    assert plugin.name == name
    wanted = {part for part in vars(GROUPS[group]) if not part.startswith("_")}
    assert wanted <= set(dir(plugin)) and len(wanted) >= 3
