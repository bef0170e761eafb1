"""Of twenty agents nine lie about the leader to two real controllers: writes and takeovers go on as without lies."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from controller_process import eventually
from ha_lab import Instance, Lab, lab
from identities import Device
from not_made import needs_etcd

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

AGENTS, LIARS, WRITES = 20, 9, 20


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


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    needs_etcd()
    folder = tmp_path_factory.mktemp("lies")
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
    with lab(folder, count=2, network=str(network)) as found:
        yield found


@pytest.fixture
def liars(pair: Lab) -> Iterator[Liars]:
    found = Liars(list(pair.instances.values()))
    eventually(lambda: found.epoch, 20)
    yield found
    found.close()


def test_leader_takes_all_writes_while_devices_show_greater_epochs(pair: Lab, liars: Liars) -> None:
    leader = pair.leader()
    epoch, liars.way = leader.ha["epoch"], "greater"
    time.sleep(1.0)
    for number in range(WRITES):
        body = {"id": f"w{number}", "from": "n0", "to": "n1"}
        assert leader.answer("POST", "/flows?wait=false", body)[0] == 202
    assert leader.leads and leader.ha["epoch"] == epoch

    def named() -> set[str]:
        errors = leader.rest("GET", "/health")[1]["last_errors"]
        return {one["where"] for one in errors if "quarantine" in one["what"]}

    assert eventually(named, 10) <= {f"node n{number}" for number in range(LIARS)}


def test_frozen_leader_is_replaced_though_devices_say_that_they_hear_it(pair: Lab, liars: Liars) -> None:
    pair.warm()
    leader = pair.leader()
    (other,) = pair.others(leader)
    epoch, liars.way = leader.ha["epoch"], "hears it"
    os.kill(leader.process.pid, signal.SIGSTOP)
    frozen_s = time.monotonic()
    try:
        eventually(lambda: other.leads, 10)
        took_s = time.monotonic() - frozen_s
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)
    # Its lease lasts 2 s, and was not waited for.
    assert took_s < 1.5 and other.ha["epoch"] == epoch + 1
    eventually(lambda: leader.ha.get("role") == "follower", 10)
