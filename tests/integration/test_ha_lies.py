"""Of twenty agents nine lie about the leader to two real controllers: writes and takeovers go on as without lies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from controller_process import eventually
from ha_lab import Lab, lab
from liars import LIARS, Liars, network_of
from not_made import needs_etcd

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

WRITES = 20


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    needs_etcd()
    folder = tmp_path_factory.mktemp("lies")
    with lab(folder, count=2, network=str(network_of(folder))) as found:
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
