"""A follower keeps up with etcd: while it is cut off, compacted meanwhile, or answers what makes no sense."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import pytest
from controller_process import eventually, free_ports
from ha_lab import FLOW, Instance
from not_made import needs_etcd
from stalling_proxy import StallingProxy

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from hyroads.mininet.etcd import Etcd


class Pair:
    """A leader, and a follower that reaches etcd over two proxies."""

    def __init__(self, folder: Path) -> None:
        client, peer = free_ports(2)
        self.etcd = Etcd(folder / "etcd", [(client, peer)], bound_to_parent=True)
        self.etcd.start()
        self.etcd.wait_ready()
        self.url = self.etcd.urls[0]
        self.ways = [StallingProxy(client) for _ in range(2)]
        self.leader = Instance(folder / "a", "a", self.etcd, {})
        ways: Any = SimpleNamespace(urls=[way.url for way in self.ways])
        self.follower = Instance(folder / "b", "b", ways, {})

    def __enter__(self) -> Pair:
        self.leader.__enter__()
        eventually(lambda: self.leader.leads)
        self.follower.__enter__()
        self.warm()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self.leader, self.follower):
            if hasattr(one, "process"):
                one.__exit__()
        for way in self.ways:
            way.close()
        self.etcd.stop()

    def warm(self) -> None:
        """Until both hear each other, and the follower could lead."""

        def is_so() -> bool:
            heard = [one["seen_s"] for each in (self.leader, self.follower) for one in each.ha.get("members", ())]
            return len(heard) == 4 and None not in heard and self.follower.rest("GET", "/health")[1]["ha"]["warm"]

        eventually(is_so)

    def ask(self, path: str, body: object) -> dict[str, Any]:
        request = Request(f"{self.url}/v3/{path}", json.dumps(body).encode())
        with urlopen(request, timeout=5) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def compact(self) -> None:
        """Nothing of what etcd's keys were before is left."""
        status = self.ask("maintenance/status", {})
        self.ask("kv/compaction", {"revision": status["header"]["revision"], "physical": True})

    def stall(self, *ways: int) -> None:
        for number, way in enumerate(self.ways):
            way.is_stalled = number in ways

    def declare(self, name: str) -> None:
        assert self.leader.answer("POST", "/flows?wait=false", {**FLOW, "id": name})[0] == 202
        eventually(lambda: "etcd" not in self.leader.answer("GET", f"/flows/{name}")[2]["pending"])

    def remove(self, name: str) -> None:
        self.leader.answer("DELETE", f"/flows/{name}?wait=false")
        eventually(lambda: name not in self.leader.flows())

    def is_even(self) -> bool:
        return self.follower.flows() == self.leader.flows()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    needs_etcd()
    with Pair(tmp_path_factory.mktemp("follow")) as found:
        yield found


def test_what_a_follower_could_not_read_it_reads_later(pair: Pair) -> None:
    """It hears of a change by the leader's heartbeats, and etcd is away just then."""
    pair.stall(0, 1)
    pair.declare("unread")
    # Longer than its attempts take.
    time.sleep(5.0)
    assert "unread" not in pair.follower.flows()
    assert not pair.follower.rest("GET", "/health")[1]["ha"]["warm"]
    pair.stall()
    eventually(pair.is_even, 8.0)
    pair.warm()


def test_what_etcd_forgets_between_two_reads_is_not_missed(pair: Pair) -> None:
    pair.declare("gone")
    eventually(pair.is_even, 8.0)
    pair.stall(0, 1)
    pair.declare("kept")
    pair.remove("gone")
    pair.compact()
    for number in range(3):
        pair.declare(f"more{number}")
    pair.remove("more1")
    pair.compact()
    time.sleep(3.0)
    pair.stall()
    eventually(pair.is_even, 8.0)
    assert {"kept", "more0", "more2"} <= pair.follower.flows() and "gone" not in pair.follower.flows()
    pair.warm()


def test_a_member_that_vanishes_without_a_word_is_passed_over(pair: Pair) -> None:
    """Its connections stay as they are: nothing is reset, nothing answers."""
    for way in (0, 1, 0):
        pair.stall(way)
        began_s = time.monotonic()
        pair.declare(f"vanished{way}-{began_s:.0f}")
        eventually(pair.is_even, 8.0)
        # One member's time, and that of a read.
        assert time.monotonic() - began_s < 4.0
        pair.declare(f"then{way}-{began_s:.0f}")
        began_s = time.monotonic()
        eventually(pair.is_even, 8.0)
        assert time.monotonic() - began_s < 1.0
    pair.stall()
    pair.warm()


@pytest.mark.parametrize("value", ["", "{", "7", '{"flow":{"id":5},"number":1,"paths":[]}', '{"flow":[],"paths":3}'])
def test_a_value_that_makes_no_sense_ends_nobody_who_follows(pair: Pair, value: str) -> None:
    prefix = "/hyroads/triangle/"
    keys = (prefix + "intents/flows/broken", prefix + "stamp")
    for key, text in zip(keys, (value, "1"), strict=True):
        put = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(text.encode()).decode()}
        pair.ask("kv/put", put)
    began_s = time.monotonic()
    pair.declare(f"after-{began_s}")
    eventually(pair.is_even, 8.0)
    assert pair.follower.rest("GET", "/health")[1]["counters"]["exceptions"] == 0
    pair.warm()
