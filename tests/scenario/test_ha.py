"""Controllers that stand by for each other: the demo, what is left behind, and at night many kills and an upgrade."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from not_made import needs_etcd
from scene_process import make, see

from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.run_directory import find_network

THREE = EmulationOptions(controllers=3, etcd_members=1)
KILLS = 20
SEED = 20261124
# The controller that is killed has so long until the next one is, at random.
PAUSES_S = (0.3, 2.0)


@pytest.fixture(autouse=True, scope="module")
def etcd() -> None:
    needs_etcd()


@pytest.mark.slow
def test_the_demo_holds(hyroads, document_of) -> None:
    done = hyroads(*("demo", "ha", "--json", "--name", "t-ha", "--publish", "0", "--seconds", "2"), timeout_s=150.0)
    assert done.returncode in (0, 1), done.stderr
    checks = document_of(done.stdout)["checks"]
    assert len(checks) == 18 and [check for check in checks if not check["ok"]] == []


def test_ctrl_c_leaves_nothing_of_controllers_and_etcd(lab) -> None:
    network = lab.emulate("t-ha-end", "--controllers", "2", "--etcd-members", "3")
    found = network.processes()
    assert sum("etcd --name" in command for command in found.values()) == 3
    assert sum(" controller --config" in command for command in found.values()) == 2
    assert network.interrupt() == 130
    assert lab.leftovers("t-ha-end") == [] and lab.alive(list(found)) == []


# -- at night


def application_of(emulation: Emulation, **how: Any) -> Any:
    from ha_application import Application

    from hyroads.mininet.standbys import Standbys

    standbys = Standbys(emulation)
    for flow in ("down", "up"):
        ends = ("g", "c") if flow == "down" else ("c", "g")
        standbys.anybody().declare_flow(flow, *ends)
    application = Application(standbys, SEED, **how)
    application.start()
    return standbys, application


def judge(standbys: Any, application: Any) -> dict[str, Any]:
    """What each controller says in the end, beside what was confirmed."""
    application.finish()
    time.sleep(1.0)
    wrong = []
    for name in standbys.programs:
        with standbys.client(name, timeout_s=10.0) as client:
            wrong += [f"{name}: {what}" for what in application.wrong(list(client.flows()))]
    found = {"done": application.done, "failed": application.failed, "wrong": wrong}
    return {**found, "requests_s": sorted(application.took_s, key=lambda each: -each[1])}


def kills(emulation: Emulation) -> dict[str, Any]:
    """The leader is killed again and again, at random moments of what the application does."""
    moments = random.Random(SEED)
    standbys, application = application_of(emulation)
    took_s, epoch = [], standbys.epoch()
    for _ in range(KILLS):
        time.sleep(moments.uniform(*PAUSES_S))
        leader = standbys.leader()
        at_s = standbys.kill(leader)
        took_s.append(standbys.await_epoch(epoch, 30.0) - at_s)
        epoch = standbys.epoch()
        time.sleep(moments.uniform(*PAUSES_S))
        standbys.restart(leader)
        standbys.wait_warm()
    return {**judge(standbys, application), "took_s": took_s}


def upgrade(emulation: Emulation) -> dict[str, Any]:
    """Each controller is drained, ended and started again, under packets, requests and handovers of the client."""
    standbys, application = application_of(emulation, move_share=0.6)
    order = [name for name in standbys.programs if name != standbys.leader()]

    def during() -> None:
        for name in [*order, standbys.leader()]:
            with standbys.client(name, timeout_s=10.0) as client:
                client.request("POST", "/ha/drain", {"drain": True})
            standbys.programs[name].stop(10.0)
            standbys.restart(name)
            standbys.wait_warm()

    from hyroads.mininet.traffic import Traffic

    traffic = Traffic(emulation, "g", "c", lambda: None)
    stream = traffic.stream(75.0, 0.001, 200, during)
    return {**judge(standbys, application), "lost": len(stream.lost), "sent": stream.sent}


MOVES = ([("b", "wifi2")], [("a", "wifi1"), ("b", "plc")], [("b", "wifi2"), ("a", "wifi1")])


def moves(emulation: Emulation) -> dict[str, Any]:
    """The client has moved when the others are started again, and then the leader is killed."""
    from hyroads.mininet.standbys import Standbys

    standbys = Standbys(emulation)
    applications = standbys.anybody(timeout_s=5.0)
    for flow, ends in (("down", ("g", "c")), ("up", ("c", "g"))):
        applications.declare_flow(flow, *ends)
    differs = []
    for places in MOVES:
        for place in places:
            applications.handover("c", place, manager="hard")
            time.sleep(1.0)
        leader = standbys.leader()
        for name in [name for name in standbys.programs if name != leader]:
            standbys.programs[name].stop(10.0)
            standbys.restart(name)
        differs += [f"{places}: {device}" for device in changed_by_a_kill(standbys)]
    return {"differs": differs}


def changed_by_a_kill(standbys: Any) -> list[str]:
    """Devices that have something else once another controller leads than before the leader was killed."""
    standbys.wait_warm()
    time.sleep(3.0)
    before, epoch, leader = standbys.devices(), standbys.epoch(), standbys.leader()
    standbys.kill(leader)
    standbys.await_epoch(epoch, 10.0)
    time.sleep(2.0)
    after = standbys.devices()
    standbys.restart(leader)
    standbys.wait_warm()
    return [device for device in before if before[device] != after[device]]


def copies(emulation: Emulation) -> dict[str, Any]:
    """A flow of the client is sent by two interfaces at once when the leader is killed, and by one later on."""
    from hyroads.mininet.standbys import Standbys
    from hyroads.mininet.traffic import Traffic

    standbys, differs, said = Standbys(emulation), [], []
    applications = standbys.anybody(timeout_s=5.0)
    for flow, ends in (("down", ("g", "c")), ("up", ("c", "g"))):
        applications.declare_flow(flow, *ends)
    time.sleep(2.0)

    def during() -> None:
        applications.request("POST", "/ncasts", {"flow": "down", "copies": 2})
        time.sleep(2.0)
        said.append(applications.request("GET", "/ncasts").document)
        differs.extend(changed_by_a_kill(standbys))
        said.append(applications.request("GET", "/ncasts").document)
        applications.request("DELETE", "/ncasts/down")

    stream = Traffic(emulation, "g", "c", lambda: None).stream(25.0, 0.001, 200, during)
    return {"differs": differs, "said": said, "lost": len(stream.lost), "sent": stream.sent}


def scene(out: Path) -> int:
    """Which one is in the name of the file."""
    body = {"kills": kills, "upgrade": upgrade, "moves": moves, "copies": copies}[out.stem]
    network = yaml.safe_load(find_network("roaming").read_text())
    del network["flows"]
    return make(network, f"t-ha-{out.stem}", body, out, THREE)


@pytest.mark.nightly
@pytest.mark.alone
def test_what_was_confirmed_is_so_after_many_kills(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "kills.json", lambda seen: not seen["wrong"], tries=2, timeout_s=900.0)
    print(found, file=sys.stderr)
    assert found["wrong"] == [] and found["failed"] == []
    assert len(found["took_s"]) == KILLS and sorted(found["took_s"])[KILLS // 2] <= 0.3
    assert min(found["done"].values()) > KILLS


@pytest.mark.nightly
@pytest.mark.alone
def test_an_upgrade_of_one_after_another_loses_nothing(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "upgrade.json", lambda seen: not seen["lost"], tries=2, timeout_s=400.0)
    print(found, file=sys.stderr)
    assert found["wrong"] == [] and found["failed"] == []
    assert found["lost"] == 0 and found["sent"] > 50_000
    assert min(found["done"].values()) > 10


@pytest.mark.nightly
def test_a_takeover_changes_nothing_after_the_client_has_moved(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "moves.json", lambda seen: not seen["differs"], tries=1, timeout_s=300.0)
    assert found["differs"] == []


@pytest.mark.nightly
def test_copies_go_on_under_the_next_leader(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "copies.json", lambda seen: not seen["differs"], tries=1, timeout_s=300.0)
    print(found, file=sys.stderr)
    assert found["differs"] == [] and found["lost"] == 0 and found["sent"] > 20_000
    before, after = (each["ncasts"] for each in found["said"])
    assert before == after and before[0]["phase"] == "copying"
