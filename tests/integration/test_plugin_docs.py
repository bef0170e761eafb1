"""The example of docs/reference/plugins.md, as it stands there, in the real controller."""

from __future__ import annotations

import os
import re
from pathlib import Path

from controller_process import ControllerProcess, eventually

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "plugins.md"


def test_the_example_of_the_page(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found
    (tmp_path / "way_back.py").write_text(found[1])
    plugin = {"name": "way-back", "path": "way_back.py", "settings": {"word": "camera"}}
    if os.geteuid() == 0:
        plugin["user"] = "nobody"
    with ControllerProcess(tmp_path, {"plugins": [plugin]}) as controller:
        eventually(lambda: "watching for camera" in controller.log.read_text())
        for flow in ("camera", "other"):
            assert controller.rest("POST", "/flows?wait=false", {"id": flow, "from": "a", "to": "c"})[0] == 202
        back = eventually(lambda: (answer := controller.rest("GET", "/flows/camera-back"))[0] == 200 and answer[1])
        assert (back["from"], back["to"], back["weight"]) == ("c", "a", 0.5)
        assert controller.rest("GET", "/flows/other-back")[0] == 404
        assert controller.rest("DELETE", "/flows/camera?wait=false")[0] == 202
        eventually(lambda: controller.rest("GET", "/flows/camera-back")[0] == 404)
        told = controller.rest("GET", "/plugins/way-back")[1]
        assert told["state"] == "running" and told["faults"]["total"] == 0
