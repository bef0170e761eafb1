"""Plugins in the real controller: from a file and from an installed package; one that loops for ever harms nobody."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from controller_process import ControllerProcess, eventually

FLOWS = """
from hyroads.plugins.api import App

class Flows(App):
    name = "flows"
    events = ("flow.declared",)

    def start(self, network):
        assert network.view().links["ab-plc"].capacity_mbps == 10.0
        network.request("POST", "/flows?wait=false", {"id": "mine", "from": "a", "to": network.settings["to"]})

    def on_event(self, network, event):
        print("declared", event.document["id"])

APP = Flows
"""

LOOPS = """
from hyroads.plugins.api import App

class Loops(App):
    name = "loops"
    every_s = 0.5

    def tick(self, network):
        while True:
            pass

APP = Loops
"""


# A plugin never runs as root, as which the tests do.
OTHER = {"user": "nobody"} if os.geteuid() == 0 else {}


def installed(folder: Path, name: str, code: str) -> Path:
    """What pip would have made of a package with an entry point."""
    folder.mkdir()
    (folder / f"{name}_module.py").write_text(code)
    info = folder / f"{name}_dist-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[hyroads.apps]\n{name} = {name}_module:APP\n")
    return folder


def plugin(controller: ControllerProcess, name: str) -> dict[str, Any]:
    status, document = controller.rest("GET", f"/plugins/{name}")
    assert status == 200
    return document


def test_file_package_and_a_plugin_that_loops(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOWS)
    packages = installed(tmp_path / "site", "loops", LOOPS)
    path = f"{packages}:{os.environ.get('PYTHONPATH', '')}"
    (tmp_path / "endless.py").write_text(LOOPS.replace('"loops"', '"endless"'))
    settings = {
        "plugins": [
            {"name": "flows", "path": "flows.py", "settings": {"to": "c"}, **OTHER},
            {"name": "endless", "path": "endless.py", **OTHER},
        ]
    }
    with ControllerProcess(tmp_path, settings, {"PYTHONPATH": path}) as controller:
        eventually(lambda: controller.rest("GET", "/flows/mine")[0] == 200)
        assert plugin(controller, "flows")["origin"] == f"file {tmp_path}/flows.py"
        eventually(lambda: "declared mine" in controller.log.read_text())
        loops = plugin(controller, "loops")
        assert (loops["state"], loops["origin"], loops["role"]) == ("off", "package loops-dist 1.2", "viewer")

        if os.geteuid() == 0:
            status, document = controller.rest("POST", "/plugins/loops/enable")
            assert status == 409 and "never runs as root" in document["detail"]
            assert plugin(controller, "loops")["state"] == "off"

        eventually(lambda: plugin(controller, "endless")["state"] == "disabled")
        assert plugin(controller, "endless")["faults"]["last"]["kind"] == "hung"
        before = eventually(lambda: controller.rest("GET", "/health")[1]["slots"])
        assert controller.rest("POST", "/plugins/endless/enable")[0] == 200
        eventually(lambda: plugin(controller, "endless")["state"] == "disabled")
        after = controller.rest("GET", "/health")[1]
        # Five seconds of a plugin that takes all the processor it can get.
        assert after["slots"]["count"] - before["count"] >= 40
        assert after["counters"]["exceptions"] == 0
        metrics = controller.metrics()
        assert 'hyroads_plugin_up{kind="app",plugin="flows"} 1.0' in metrics
        assert 'hyroads_plugin_faults_total{kind="app",plugin="endless"} 2.0' in metrics
        pid = plugin(controller, "flows")["process"]["pid"]
        assert Path(f"/proc/{pid}").stat().st_uid != 0
        controller.process.kill()
        controller.process.wait()
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())


@pytest.mark.parametrize(
    ("plugins", "says"),
    [
        ([{"name": "x", "path": "nowhere.py"}], "plugins[0].path"),
        ([{"name": "x", "path": "open.py"}], "can be written by everybody"),
        ([{"name": "x"}], "no installed plugin 'x'"),
        ([{"name": "hard", "path": "open.py"}], "built-in"),
        ([{"name": "X!"}], "plugins[0].name"),
        ([{"name": "x", "role": "king", "memory_mb": 1}], "plugins[0].memory_mb"),
        ([{"name": "x"}, {"name": "x"}], "there is a plugin 'x' already"),
        ([{"name": "x", "path": "mine.py", "user": "root"}], "plugins[0].user: a plugin never runs as root"),
        *([([{"name": "x", "path": "mine.py"}], "plugins[0].user: a plugin never runs as root")] if OTHER else []),
    ],
)
def test_wrong_settings_are_told_before_anything_listens(tmp_path: Path, plugins: object, says: str) -> None:
    (tmp_path / "open.py").write_text(FLOWS)
    (tmp_path / "open.py").chmod(0o666)
    (tmp_path / "mine.py").write_text(FLOWS)
    controller = ControllerProcess(tmp_path, {"plugins": plugins})
    with pytest.raises(AssertionError), controller:
        pass
    assert says in controller.log.read_text()
