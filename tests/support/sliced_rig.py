"""The rig of ``ovs_rig`` with a slicer between: every connection is that of one slice that owns everything."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import ovs_rig
from raw_guest import inside

GUEST_PORT = 6801


class SlicedRig(ovs_rig.Rig):
    """Bridges connect to the slicer, and it to us."""

    def __enter__(self) -> SlicedRig:
        super().__enter__()
        self.dpids: dict[str, int] = {}
        self.waiting: dict[int, ovs_rig.Connection] = {}
        self.guests = inside(self.namespace, lambda: socket.create_server(("127.0.0.1", GUEST_PORT)))
        slices = [{"name": "production", "controllers": [f"tcp:127.0.0.1:{GUEST_PORT}"], "limits": {"tables": 100}}]
        config = self.folder / "slicer.json"
        config.write_text(json.dumps({"slices": slices, "patience_s": 600}))
        command = (sys.executable, "-m", "hyroads.controller.cli", "slicer", "--config", str(config))
        with (self.folder / "slicer.log").open("wb") as log:
            self.slicer = subprocess.Popen(["ip", "netns", "exec", self.namespace, *command], stdout=log, stderr=log)
        return self

    def __exit__(self, *words: object) -> None:
        self.slicer.terminate()
        self.slicer.wait(10)
        self.guests.close()
        super().__exit__(*words)

    def bridge(self, name: str, dpid: int, *, controlled: bool = True) -> None:
        super().bridge(name, dpid, controlled=False)
        if controlled:
            self.dpids[name] = dpid
            self.vsctl("set-controller", name, "tcp:127.0.0.1:6633")
            self.vsctl("set", "controller", name, "max_backoff=1000")

    def connect(self, bridge: str) -> ovs_rig.Connection:
        while self.dpids[bridge] not in self.waiting:
            found = ovs_rig.Connection(self.guests)
            self.waiting[found.dpid] = found
        return self.waiting.pop(self.dpids[bridge])
