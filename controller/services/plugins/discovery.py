"""Finds plugins: built in, installed (entry points) and in files that the settings name. Imports no foreign code."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.services.view import MobilityPolicy
from hyroads.controller.services.mobility.requests import BUILT_IN as MANAGERS
from hyroads.controller.settings.plugins import PluginSetting
from hyroads.plugins.kinds import GROUPS, NAME, DiscoveredPlugin, Kind
from hyroads.plugins.policies import load, placement, signal

POLICIES: Mapping[str, MobilityPolicy[Any]] = {
    policy.name: policy for policy in (signal.POLICY, load.POLICY, placement.POLICY)
}
BUILT_IN: Mapping[str, Kind] = {**dict.fromkeys(POLICIES, Kind.POLICY), **dict.fromkeys(MANAGERS, Kind.MOBILITY)}
OURS = "hyroads."


def discover(settings: Sequence[PluginSetting], document: str) -> tuple[tuple[DiscoveredPlugin, ...], list[str]]:
    """All foreign plugins, and what is wrong with installed ones. Those that the settings name start with the
    controller; a wrong one there is a :class:`ConfigError`.
    """
    # One look at all packages: each takes tens of milliseconds.
    points = entry_points()
    installed, problems = _installed(point for group in GROUPS.values() for point in points.select(group=group))
    found = dict(installed)
    for index, setting in enumerate(settings):
        where = f"plugins[{index}]"
        if setting.name in BUILT_IN:
            raise ConfigError(document, f"{where}.name", f"{setting.name!r} is the name of a built-in plugin")
        found[setting.name] = _configured(setting, installed, document, where)
    return tuple(found.values()), problems


def _installed(points: Iterable[EntryPoint]) -> tuple[dict[str, DiscoveredPlugin], list[str]]:
    kinds = {group: kind for kind, group in GROUPS.items()}
    found: dict[str, DiscoveredPlugin] = {}
    problems = []
    for point in points:
        if point.module.startswith(OURS):
            continue
        name, package = point.name, point.dist.name if point.dist is not None else "?"
        if not NAME.fullmatch(name) or name in BUILT_IN or name in found:
            problems.append(f"the plugin {name[:41]!r} of {package} has a name that is taken, or none that is allowed")
            continue
        origin = f"package {package} {point.dist.version}" if point.dist is not None else "package"
        found[name] = DiscoveredPlugin(
            name, kinds[point.group], origin, module=point.module, attribute=point.attr or None
        )
    return found, problems


def _configured(
    setting: PluginSetting, installed: Mapping[str, DiscoveredPlugin], document: str, where: str
) -> DiscoveredPlugin:
    if setting.path is None:
        known = installed.get(setting.name)
        if known is None or setting.kind not in (None, known.kind):
            kinds = "" if setting.kind is None else f" {setting.kind.value}"
            raise ConfigError(document, f"{where}.name", f"no installed{kinds} plugin {setting.name!r}; or give a path")
        found = known
    else:
        path = Path(setting.path).resolve()
        problem = file_problem(path)
        if problem:
            raise ConfigError(document, f"{where}.path", f"{setting.path}: {problem}")
        found = DiscoveredPlugin(setting.name, setting.kind or Kind.APP, f"file {path}", path=str(path))
    problem = root_problem(setting.bounds.user)
    if problem:
        raise ConfigError(document, f"{where}.user", problem)
    rights = replace(found, role=setting.role, may_change=setting.may_change)
    return replace(rights, starts=True, settings=setting.settings, bounds=setting.bounds)


def root_problem(user: str | None) -> str | None:
    """Why a plugin that is given this user would run as root, and what to do; None if it would not."""
    try:
        uid = os.geteuid() if user is None else pwd.getpwnam(user).pw_uid
    except KeyError:
        # That is a fault of the plugin, told when it starts.
        return None
    if uid != 0:
        return None
    return (
        "a plugin never runs as root: give it a user, such as nobody, or run the controller as a user of its own, as "
        "hyroads-controller.service does"
    )


def file_problem(path: Path) -> str | None:
    """Why a file can't be a plugin; None if it can. What others may write must not run with our rights."""
    try:
        known, folder = path.stat(), path.parent.stat()
    except OSError as error:
        return error.strerror or "can't be read"
    if not stat.S_ISREG(known.st_mode) or path.suffix != ".py":
        return "expected a file that ends with .py"
    for what, status in (("it", known), ("its folder", folder)):
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & stat.S_IWOTH and not sticky:
            return f"{what} can be written by everybody"
        if status.st_uid not in (0, os.geteuid()):
            return f"{what} belongs to somebody else than the controller's user and root"
    return None
