"""Two controllers of one campus of scripted devices, on a real etcd; devices count what a takeover sends."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from campus_devices import Devices
from controller_process import eventually, free_ports
from ha_lab import Instance
from not_made import needs_etcd

from hyroads.controller.core.netfile import to_document
from hyroads.controller.core.topologies import campus
from hyroads.mininet.etcd import Etcd

NODES = 12
ENDS = [("b1-2", "b1-1"), ("b1-1", "b1-5"), ("b1-6", "b1-1"), ("b1-4", "b1-8"), ("b2-2", "b2-1"), ("b2-3", "b2-4")]
NOTHING = {"adds": 0, "deletes": 0, "groups": 0, "configs": 0, "rates": 0}
# What is on its way comes to rest within this time.
QUIET_S = 3.0


class HaRig:
    """Two controllers of a campus of scripted devices; the second is started when it is needed."""

    def __init__(self, folder: Path, *, arrivals: bool = True, **more: Any) -> None:
        self.etcd = Etcd(folder / "etcd", [tuple(free_ports(2))], bound_to_parent=True)  # type: ignore[list-item]
        document = to_document(campus(random.Random(1), NODES))
        document["flows"] = [{"id": f"f{n}", "from": a, "to": b} for n, (a, b) in enumerate(ENDS)]
        network = folder / "network.json"
        network.write_text(json.dumps(document))
        settings = {"network": str(network), **more}
        self.leader, self.standby = (Instance(folder / name, name, self.etcd, settings) for name in "ab")
        self.etcd.start()
        self.etcd.wait_ready()
        self.leader.__enter__()
        self.devices = Devices(network, self.leader, self.standby, radios=False, arrivals=arrivals)

    def close(self) -> None:
        for one in (self.leader, self.standby):
            if hasattr(one, "process"):
                one.__exit__()
        self.devices.close()
        self.etcd.stop()

    def in_force(self, one: Instance) -> None:
        def is_so() -> bool:
            status, health = one.rest("GET", "/health")
            return bool(status) and health["ok"] and not health["pending"] and len(health["switches"]) == NODES

        eventually(is_so)
        time.sleep(QUIET_S)

    def warm(self) -> None:
        self.standby.__enter__()

        def is_so() -> bool:
            status, health = self.standby.rest("GET", "/health")
            up = bool(status) and sum(switch["connected"] for switch in health["switches"]) == NODES
            return up and sum(agent["up"] for agent in health["agents"]) == NODES and health["ha"]["warm"]

        eventually(is_so)
        time.sleep(QUIET_S)

    def ways(self, one: Instance) -> dict[str, Any]:
        """By flow: the links of each path, and the rate of all."""
        flows = one.rest("GET", "/flows")[1]["flows"]
        return {flow["id"]: ([path["links"] for path in flow["multipath"]], flow["rate_mbps"]) for flow in flows}

    def paths(self, one: Instance) -> dict[str, Any]:
        return {flow: paths for flow, (paths, _) in self.ways(one).items()}

    def changes(self) -> dict[str, int]:
        counts = self.devices.ask("counts")["counts"]
        return {name: counts.get(name, 0) for name in ("adds", "deletes", "groups", "configs", "rates")}

    def taken_over(self) -> dict[str, int]:
        """What was sent to change something by the one that leads after the leader was killed."""
        before = self.changes()
        self.leader.process.kill()
        eventually(lambda: self.standby.leads)
        self.in_force(self.standby)
        return {name: count - before[name] for name, count in self.changes().items()}


@contextmanager
def ha_rig(folder: Path, **more: Any) -> Iterator[HaRig]:
    """Where all is in force, and one controller leads."""
    needs_etcd()
    found = HaRig(folder, **more)
    try:
        found.in_force(found.leader)
        yield found
    finally:
        found.close()
