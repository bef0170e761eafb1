"""A real controller brings a campus of compiled devices into force on noisy air, and follows a cut."""

from __future__ import annotations

import json
import random
from pathlib import Path

from campus_devices import Air, CompiledDevices
from campus_loop import campus_flows
from controller_process import ControllerProcess, eventually

from hyroads.controller.core.netfile import to_document
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.topologies import campus
from hyroads.controller.runtime.persistence import Saved, Store

NODES, FLOWS = 10, 10


def test_compiled_devices_understand_the_controller_and_it_them(tmp_path: Path) -> None:
    network = campus(random.Random(1), NODES)
    document = {**to_document(network), "flows": []}
    document["flows"] = [flow_document(flow) for flow in campus_flows(network, FLOWS, random.Random(2))]
    path, state = tmp_path / "network.json", str(tmp_path / "state")
    path.write_text(json.dumps(document))
    # Labels without a secret: the devices know them from the network file.
    Store(state).save(Saved())
    settings = {"network": str(path), "capacities": "measured", "state_file": state, "timings": {"grace_s": 30.0}}
    with ControllerProcess(tmp_path, settings) as controller:
        devices = CompiledDevices(path, controller, radios=True, air=Air())
        try:

            def is_in_force() -> bool:
                health = controller.rest("GET", "/health")[1] or {"pending": ["no answer"], "switches": []}
                return not health["pending"] and len(health["switches"]) == NODES

            eventually(is_in_force)
            assert devices.ask("counts")["configured"] == NODES
            rows = devices.ask("counts")["counts"]["rows"]
            link = eventually(lambda: devices.ask("used")["links"])[0]
            devices.ask("cut", link=link)
            eventually(lambda: devices.ask("cut-ms")["ms"] is not None)
            devices.set_air(Air(moving=0.2))
            eventually(lambda: devices.ask("counts")["counts"]["rows"] > rows)
            assert devices.lateness()["reports"] > 0
            found = devices.ask("counts")
            assert found["counts"]["odd"] == 0 and found["lost_connections"] == 0
        finally:
            devices.close()
