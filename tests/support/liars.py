"""Agents of which some lie about the leader, connected to several real controllers."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

from ha_lab import Instance
from identities import Device

AGENTS, LIARS = 20, 9


def network_of(folder: Path) -> Path:
    """A network file with a node for each agent."""
    nodes = {f"n{number}": {"role": "ap"} for number in range(AGENTS)}
    links = [
        {"id": f"l{number}", "from": f"n{number}", "to": f"n{number + 1}", "technology": "plc", "capacity_mbps": 50,
         "both": True}
        for number in range(AGENTS - 1)
    ]  # fmt: skip
    network = folder / "network.json"
    network.write_text(
        json.dumps({"name": "lies", "nodes": nodes, "links": links, "interference": {"rule": "technology"}})
    )
    return network


class Liars:
    """All agents, each connected to all controllers. The first :data:`LIARS` lie as ``way`` says."""

    def __init__(self, instances: list[Instance]) -> None:
        self.way = ""
        self.epoch, self.forged = 0, 1_000
        self.heard_s = [0.0] * AGENTS
        self.devices = [self._dial(one, number) for number in range(AGENTS) for one in instances]

    def _dial(self, one: Instance, number: int) -> Device:
        device = Device(one.agents, f"n{number}", None)
        threading.Thread(target=self._live, args=(number, device), daemon=True).start()
        return device

    def _live(self, number: int, device: Device) -> None:
        """Answer until the end. A session that named the greatest epoch is the leader's."""
        own = 0
        with suppress(OSError, ValueError):
            while message := device.hear():
                if message["type"] == "lead":
                    own, self.epoch = message["epoch"], max(self.epoch, message["epoch"])
                if own and own == self.epoch:
                    self.heard_s[number] = time.monotonic()
                if message["type"] == "ping":
                    device.say({"type": "pong", "seq": message["seq"], **self._word(number)})
                elif message.get("seq") is not None:
                    device.say({"type": "ok", "seq": message["seq"]})

    def _word(self, number: int) -> dict[str, int]:
        heard_ms = round((time.monotonic() - self.heard_s[number]) * 1e3)
        if not self.epoch:
            return {}
        if number >= LIARS or not self.way:
            return {"epoch": self.epoch, "heard_ms": heard_ms}
        if self.way == "greater":
            self.forged += 1
            return {"epoch": self.forged, "heard_ms": 0}
        return {"epoch": self.epoch, "heard_ms": 0}

    def close(self) -> None:
        for device in self.devices:
            device.close()
