"""The systemd units: valid, confined, and what they start takes the options that they give."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
NAMES = {"ap-agent", "controller", "dashboard", "edge@", "guest-network", "slicer", "snmpvisor", "waypoint@"}
MOST_EXPOSED = 3.0
with_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


def analyze(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, words)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)


def service(unit: Path) -> dict[str, list[str]]:
    """Keys of [Service] with all their values: a key may be there several times."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_every_process_has_its_unit() -> None:
    assert {unit.stem.removeprefix("hyroads-") for unit in UNITS} == NAMES


@with_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_exposure_is_low(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED * 10 - 1:.0f}", unit)
    found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) < MOST_EXPOSED and done.returncode == 0, done.stdout


@with_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    # The programs are where a package puts them; here others stand for them.
    text = unit.read_text()
    for program in set(re.findall(r"/usr/bin/(hyroads[\w-]*)", text)):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(text.replace("/usr/bin/hyroads", f"{tmp_path}/hyroads"))
    for name in ("network-online", "multi-user", "sysinit", "basic", "shutdown"):
        (tmp_path / f"{name}.target").write_text(f"[Unit]\nDescription={name}\nDefaultDependencies=no\n")
    (tmp_path / "system.slice").write_text("[Unit]\nDescription=slice\nDefaultDependencies=no\n")
    done = analyze("verify", "--man=no", copy, SYSTEMD_UNIT_PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@with_systemd
def test_a_wrong_unit_is_found(tmp_path: Path) -> None:
    # Else the two tests above could pass for another reason.
    unit = tmp_path / "wrong.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nWatchDogSec=much\nUser=root\n")
    assert "Unknown key" in analyze("verify", "--man=no", unit, SYSTEMD_UNIT_PATH=str(tmp_path)).stderr
    assert analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED * 10 - 1:.0f}", unit).returncode != 0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_nobody_is_root_and_what_notifies_is_watched(unit: Path) -> None:
    keys = service(unit)
    assert keys["User"] == ["hyroads-ap" if unit.stem in {"hyroads-edge@", "hyroads-ap-agent"} else keys["User"][0]]
    assert keys["User"][0].startswith("hyroads") and "DynamicUser" not in keys
    allowed = {"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_NICE"} if unit.stem == "hyroads-edge@" else set()
    allowed |= {"CAP_NET_ADMIN", "CAP_SYS_NICE"} if unit.stem == "hyroads-waypoint@" else set()
    allowed |= {"CAP_NET_RAW"} if unit.stem == "hyroads-ap-agent" else set()
    allowed |= (
        {"CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW"} if unit.stem == "hyroads-guest-network" else set()
    )
    allowed |= {"CAP_NET_BIND_SERVICE"} if unit.stem == "hyroads-snmpvisor" else set()
    assert set(keys["CapabilityBoundingSet"][0].split()) == allowed
    assert set(keys.get("AmbientCapabilities", [""])[0].split()) == allowed
    assert ("WatchdogSec" in keys) == (keys["Type"] == ["notify"])
    users = (unit.parent / "sysusers.conf").read_text() + (unit.parent / "sysusers-ap.conf").read_text()
    assert re.search(rf"^u {keys['User'][0]} ", users, re.MULTILINE), "nobody creates the user"


@pytest.mark.parametrize("unit", [u for u in UNITS if "/usr/bin/hyroads " in u.read_text()], ids=lambda u: u.stem)
def test_the_command_takes_the_options_of_its_unit(unit: Path) -> None:
    from hyroads.controller.cli.main import COMMANDS, _Parser, load

    (line,) = service(unit)["ExecStart"]
    name, *options = line.split()[1:]
    if name not in COMMANDS:
        pytest.skip(f"there is no command {name} yet")
    parser = _Parser(prog=name)
    load(name).add_arguments(parser)
    parser.parse_args([word for word in options if not word.startswith("$")])


def test_the_edge_takes_the_options_of_its_unit() -> None:
    (line,) = service(ROOT / "deploy" / "systemd" / "hyroads-edge@.service")["ExecStart"]
    usage = (ROOT / "dataplane" / "src" / "edge" / "options.rs").read_text()
    given = re.findall(r"--[\w-]+", line)
    assert given and all(f"\n  {option} " in usage for option in given)
