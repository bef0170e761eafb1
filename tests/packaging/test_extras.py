"""Each role runs with the libraries of its extra, and no others; what the pages say of an access point is valid."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hyroads.controller.access_point.config import parse
from hyroads.controller.core.document import load_document

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "how-to"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# All that a role may import later is imported at once.
ROLES = {
    "ap": [
        "controller.cli.ap_agent",
        "controller.access_point.channel",
        "controller.access_point.wireless_agent",
        "controller.cli.box",
        "controller.access_point.doctor_facts",
    ],
    "client": ["controller.cli.client", "controller.client.daemon", "controller.client.kernel_runner"],
    "download": [
        "controller.cli.fetch",
        "controller.cli.proxy",
        "controller.download.proxy",
        "controller.download.fetch",
        "controller.download.metrics",
    ],
    "remote": [
        "controller.cli.network",
        "controller.cli.services",
        "controller.cli.slices",
        "controller.cli.slice_queues",
    ],
    "plan": [
        "controller.cli.plan",
        "controller.cli.allocate",
        "controller.cli.place",
        "controller.cli.check_config",
        "controller.cli.fair",
        "controller.cli.study",
    ],
    "controller": ["controller.app", "controller.measure.snmp_client", "controller.framework.launcher"],
    "controller-osken": ["controller.app", "controller.measure.snmp_client", "controller.framework.launcher"],
    "slicer": ["slices.server.run", "slices.server.web", "slices.flowvisor.client"],
    "snmpvisor": ["slices.snmpvisor.server", "slices.snmpvisor.metrics"],
}
PROGRAM = """
import importlib, importlib.metadata, importlib.util, sys
forbidden, modules = set(sys.argv[1].split(",")), sys.argv[2:]
class Missing:
    def find_spec(self, name, path=None, target=None):
        if path is None and name.split(".")[0] in forbidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
def version(name, of=importlib.metadata.version):
    if name in forbidden:
        raise importlib.metadata.PackageNotFoundError(name)
    return of(name)
importlib.metadata.version = version
def find_spec(name, package=None, of=importlib.util.find_spec):
    return None if name.split(".")[0] in forbidden else of(name, package)
importlib.util.find_spec = find_spec
sys.meta_path.insert(0, Missing())
if "eventlet" not in forbidden:
    from hyroads.controller.framework.launcher import prepare_eventlet
    prepare_eventlet()
for module in modules:
    importlib.import_module("hyroads." + module)
"""


def brought(requirements: Iterable[str]) -> set[str]:
    """Names of all distributions that come with these."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        wanted = Requirement(waiting.pop())
        name = canonicalize_name(wanted.name)
        if name == "hyroads":
            waiting += [each for extra in wanted.extras for each in EXTRAS[extra]]
        elif name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found.add(name)
            with suppress(metadata.PackageNotFoundError):
                waiting += metadata.requires(name) or []
    return found


@pytest.mark.parametrize("role", ROLES)
def test_a_role_needs_its_extra_alone(role: str) -> None:
    names = brought(EXTRAS[role]) | {"hyroads"}
    forbidden = set()
    for module, distributions in metadata.packages_distributions().items():
        others = {canonicalize_name(each) for each in distributions}
        if not names & others:
            forbidden |= {module, *others}
    # Up to Python 3.12 the module cgi of legacy-cgi is in the standard library, too.
    forbidden -= sys.stdlib_module_names
    assert "pytest" in forbidden
    command = [sys.executable, "-c", PROGRAM, ",".join(sorted(forbidden)), *ROLES[role]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_access_point_needs_nothing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == EXTRAS["ap"] == []


def test_the_examples_of_an_access_point_are_valid() -> None:
    page = (PAGES.parent / "reference" / "access-point-by-hand.md").read_text()
    (text,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert parse(text, "ap.json").node == "upstairs"
    assert parse((ROOT / "deploy/packages/ap.json").read_text(), "ap.json").interfaces
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    settings = load_document(text, "hyroads.yaml")
    known = (ROOT / "docs/reference/settings.md").read_text()
    assert isinstance(settings, dict) and all(key in known for key in settings)
    assert json.dumps(settings["listen"])
