"""The process that names a controller runs while the controller leads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from controller_process import eventually

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.runtime import announcer
from hyroads.controller.runtime.announcer import LOOK_EVERY_S, RESTART_AFTER_S, Announcer
from hyroads.controller.settings.boxes import BoxSettings
from hyroads.controller.settings.controller import Settings

SETTINGS = Settings(network="n.yaml", boxes=BoxSettings("authority", announce=("192.0.2.1",)))
PROGRAM = """
import pathlib, sys
file = pathlib.Path(sys.argv[1])
line = sys.stdin.readline()
file.write_text(line)
sys.stdin.read()
file.unlink()
"""


def test_runs_while_the_controller_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, leads = tmp_path / "named", [False]
    monkeypatch.setattr(announcer, "COMMAND", (sys.executable, "-c", PROGRAM, str(file)))
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    named = Announcer(SETTINGS, "hyroads.json", lambda: leads[0])
    assert named.look() == LOOK_EVERY_S and not file.exists()
    leads[0] = True
    for _ in range(2):
        assert named.look() == LOOK_EVERY_S
    wanted = {"addresses": ["192.0.2.1"], "port": 8080}
    eventually(lambda: file.exists() and json.loads(file.read_text() or "null") == wanted)
    leads[0] = False
    named.look()
    assert not file.exists()


def test_starts_again_after_its_process_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer, "COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    named = Announcer(SETTINGS, "hyroads.json", lambda: True)
    named.look()
    eventually(lambda: named.look() == RESTART_AFTER_S)
    assert named.look() == LOOK_EVERY_S
    named.stop()


def test_a_setting_without_its_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"boxes.announce: needs zeroconf: pip install 'hyroads\[announce\]'"):
        Announcer(SETTINGS, "hyroads.json", lambda: True)
    # Without the setting nothing is missing.
    Announcer(Settings(network="n.yaml"), "hyroads.json", lambda: True)
