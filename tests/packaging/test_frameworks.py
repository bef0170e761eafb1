"""The controller starts on Ryu and on os-ken, and on Python 3.13, and confirms a switch over REST."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from controller_process import ControllerProcess, eventually
from scripted_switch import ScriptedSwitch

ROOT = Path(__file__).resolve().parents[2]
# Hides a package from the controller, runs it, and writes at its end which frameworks it has imported.
PROGRAM = """
import importlib.util, sys
hidden, found = sys.argv[1], importlib.util.find_spec
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] == hidden else found(name, package)
from hyroads.controller.framework.launcher import run_controller
import atexit
atexit.register(lambda: print("frameworks:", *sorted({"ryu", "os_ken"} & set(sys.modules)), flush=True))
raise SystemExit(run_controller())
"""
LEFT_OUT = "ryu,ovs,matplotlib,scikit-learn,fonttools,pillow,kiwisolver,contourpy,joblib,narwhals"
"""Packages without wheels, and large ones that a controller on os-ken runs without."""
OFFLINE = re.compile(r"NewConnectionError|Failed to establish|Temporary failure in name resolution|timed out")


def confirms_a_switch(controller: ControllerProcess) -> None:
    """Connect switch a of the triangle; over REST it is connected, has its rules, and is no longer pending."""
    before = controller.rest("GET", "/health")[1]
    assert "switch a" in before["pending"] and not before["switches"][0]["connected"]
    with closing(socket.create_connection(("127.0.0.1", controller.openflow), timeout=5)) as connection:
        switch = ScriptedSwitch(connection, 1)
        switch.start()

        def confirmed() -> dict[str, Any] | None:
            health = controller.rest("GET", "/health")[1]
            state = next(one for one in health["switches"] if one["node"] == "a")
            return state if state["connected"] and state["synced"] and "switch a" not in health["pending"] else None

        state = eventually(confirmed, 20.0)
        assert switch.flow_mods >= state["rules"] > 0, "confirmed, though the switch does not have these rules"
        connection.shutdown(socket.SHUT_RDWR)


def run_on(python: str, folder: Path, framework: str, hidden: str, environment: dict[str, str]) -> None:
    """Start the controller, let it confirm a switch, and see that it runs on ``framework`` alone."""
    process = ControllerProcess(folder, {}, environment)
    process.command = [python, "-c", PROGRAM, hidden]
    with process as controller:
        confirms_a_switch(controller)
    (used,) = re.findall(r"^frameworks: (.*)$", process.log.read_text(), re.MULTILINE)
    assert used == framework


@pytest.mark.parametrize(
    ("wanted", "hidden", "used"),
    [("ryu", "", "ryu"), ("os_ken", "", "os_ken"), ("", "ryu", "os_ken")],
    ids=["Ryu chosen", "os-ken chosen", "os-ken alone"],
)
def test_the_controller_confirms_a_switch_on(tmp_path: Path, wanted: str, hidden: str, used: str) -> None:
    run_on(sys.executable, tmp_path, used, hidden, {"HYROADS_FRAMEWORK": wanted})


def test_os_ken_takes_options_and_reports_wrong_ones() -> None:
    manager = Path(sys.executable).with_name("ryu-manager")
    environment = {**os.environ, "HYROADS_FRAMEWORK": "os_ken"}
    shown = subprocess.run([manager, "--help"], env=environment, text=True, capture_output=True, timeout=60)
    assert shown.returncode == 0 and "--ofp-tcp-listen-port" in shown.stdout, shown.stderr
    wrong = subprocess.run([manager, "--no-such"], env=environment, text=True, capture_output=True, timeout=60)
    assert wrong.returncode == 2 and "--no-such" in wrong.stderr


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0


def _pythons_3_13() -> Iterator[str]:
    """Python 3.13 on PATH, and those of pyenv, whose shim runs only a version that is switched on."""
    if (found := shutil.which("python3.13")) is not None:
        yield found
    if shutil.which("pyenv") is not None:
        listed = subprocess.run(["pyenv", "versions", "--bare"], check=False, capture_output=True, text=True).stdout
        for version in (each for each in listed.split() if each.startswith("3.13.")):
            prefix = subprocess.run(["pyenv", "prefix", version], check=False, capture_output=True, text=True).stdout
            yield f"{prefix.strip()}/bin/python3.13"


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Python 3.13 of this machine, and a folder with the pinned packages for it."""
    python = next(filter(_runs, _pythons_3_13()), None)
    if python is None:
        pytest.skip("there is no Python 3.13, neither on PATH nor in pyenv")
    folder = tmp_path_factory.mktemp("python3.13")
    pins, site = folder / "pins.txt", folder / "site"
    selected = [sys.executable, ROOT / "scripts/pins.py", ROOT / "requirements.txt", "--without", LEFT_OUT]
    pins.write_bytes(subprocess.run(selected, check=True, capture_output=True).stdout)
    options = ["-q", "--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes", "--python-version", "3.13"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "install", *options]
    done = subprocess.run([*pip, "--target", site, "-r", pins], text=True, capture_output=True, timeout=300)
    if done.returncode and OFFLINE.search(done.stderr):
        pytest.skip("no network: the packages for Python 3.13 cannot be installed")
    assert done.returncode == 0, done.stderr
    return python, site


def test_the_controller_confirms_a_switch_on_python_3_13(newest: tuple[str, Path], tmp_path: Path) -> None:
    python, site = newest
    # The folder `hyroads` of the checkout is a namespace package, importable without being installed.
    run_on(python, tmp_path, "os_ken", "", {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "HYROADS_FRAMEWORK": ""})
