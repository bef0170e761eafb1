"""Several real controllers on a real etcd: one leads, the others follow, and nothing that was confirmed is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from itertools import count
from random import Random
from threading import Thread, Timer

import metrics_page
import pytest
from controller_process import eventually
from ha_lab import FLOW, Instance, Lab, lab
from not_made import needs_etcd

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from hyroads.rest.client import Client, Event


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    needs_etcd()
    with lab(tmp_path_factory.mktemp("ha"), members=3) as found:
        yield found


def flow(name: str) -> dict[str, str]:
    return {**FLOW, "id": name}


def test_all_read_and_only_the_leader_writes(three: Lab) -> None:
    leader = three.leader()
    other, third = three.others(leader)
    status, headers, _ = other.answer("POST", "/flows?wait=false", flow("read"))
    assert status == 307
    assert headers["Location"] == f"http://127.0.0.1:{leader.port}/api/v1/flows?wait=false"
    assert leader.answer("POST", "/flows?wait=false", flow("read"))[0] == 202
    for one in (other, third):
        eventually(lambda one=one: "read" in one.flows())
        assert one.answer("GET", "/flows/read")[2]["number"] == leader.answer("GET", "/flows/read")[2]["number"]
    document = other.ha
    assert document["leader"]["name"] == leader.name and document["role"] == "follower"
    assert {one["name"]: one["role"] for one in document["members"]} == {
        leader.name: "leader", other.name: "follower", third.name: "follower",
    }  # fmt: skip
    assert document["etcd"] == {"reachable": True, "failing_since_s": None} and document["schema"] == 1


def test_the_page_lists_the_metrics_of_several_controllers(three: Lab) -> None:
    text = three.leader().metrics()
    parts = ("All programs", "The controller", "Several controllers")
    # This one is there once a device has refused something.
    assert metrics_page.check(text, *parts, absent=("hyroads_ha_refused_total",)) > 30
    metrics_page.lint(text)


def test_followers_show_what_the_leader_waits_for(three: Lab) -> None:
    """No switch is connected: nothing is confirmed, here as there."""
    leader = three.leader()
    rule = {"id": "no-mail", "action": "deny", "match": {"eth_type": 0x0800, "tcp_dst": 25}}
    for path, body in (("/access-rules", rule), ("/flows", flow("shown"))):
        assert leader.answer("POST", f"{path}?wait=false", body)[0] == 202
        place = f"{path}/{body['id']}"
        for one in three.others(leader):
            eventually(lambda one=one, place=place: one.answer("GET", place)[0] == 200)
            first = one.answer("GET", place)[2]
            assert first["pending"] and first["state"] in ("activating", "unreachable"), "confirmed by ignorance"
            eventually(lambda one=one, place=place: one.answer("GET", place)[2]["pending"] != ["leader"])
            known, shown = leader.answer("GET", place)[2], one.answer("GET", place)[2]
            assert known["pending"] and set(known["pending"]) <= set(shown["pending"])
        assert leader.answer("DELETE", f"{place}?wait=false")[0] == 202


def declare(three: Lab, name: str) -> None:
    assert three.leader().answer("POST", "/flows?wait=false", flow(name))[0] == 202
    # It is saved before the operation is confirmed; other instances show that.
    for one in three.instances.values():
        if one.process.poll() is None:
            eventually(lambda one=one: name in one.flows())


def test_a_killed_leader_is_replaced_and_its_flows_are_there(three: Lab) -> None:
    declare(three, "killed")
    split = {"n_cons": 30.0, "cost_share": 0.2, "n_chp": 50.0}
    private = {**flow("private"), "policy": "private", **split, "padding": {"gap_ms": 9, "deviation_ms": 30}}
    assert three.leader().answer("POST", "/flows?wait=false", private)[0] == 202
    for one in three.instances.values():
        eventually(lambda one=one: "private" in one.flows())
    leader, epoch = three.leader(), three.leader().ha["epoch"]
    number = leader.answer("GET", "/flows/killed")[2]["number"]
    killed_s = time.monotonic()
    leader.process.kill()
    new = three.leader(but=leader.name)
    took_s = time.monotonic() - killed_s
    leader.process.wait()
    # The lease of the owner lasts for 2 s; that was not waited for.
    assert took_s < 1.5 and new.ha["epoch"] == epoch + 1
    assert {"killed", "f1"} & new.flows() and new.answer("GET", "/flows/killed")[2]["number"] == number
    known = new.answer("GET", "/flows/private")[2]
    assert split.items() <= known.items()
    assert known["padding"] == {"gap_ms": 9.0, "deviation_ms": 30.0, "max_per_s": 200.0}
    declare(three, "after")
    leader.__enter__()
    three.warm()
    assert not leader.leads and {"killed", "after", "private"} <= leader.flows()


def test_an_idempotency_key_counts_at_the_next_leader(three: Lab) -> None:
    leader = three.leader()
    given = {"Idempotency_Key": "once", "method": "POST", "path": "/flows?wait=false", "body": flow("keyed")}
    first = leader.answer(**given)  # type: ignore[arg-type]
    assert first[0] == 202
    assert leader.answer("POST", "/ha/handover", {})[0] == 200
    new = three.leader(but=leader.name)
    again = new.answer(**given)  # type: ignore[arg-type]
    assert again[0] == 202 and again[2] == first[2] and again[1]["Idempotent-Replayed"] == "true"
    assert new.answer("POST", "/flows?wait=false", flow("other"), Idempotency_Key="once")[0] == 422
    three.warm()


def test_a_reader_of_events_goes_on_at_the_next_leader(three: Lab) -> None:
    leader = three.leader()
    last = leader.events()[-1][0]
    declare(three, "event1")
    leader.process.kill()
    new = three.leader(but=leader.name)
    leader.process.wait()
    declare(three, "event2")
    found = new.events(last)
    declared = [document["id"] for _, kind, document in found if kind == "flow.declared"]
    assert declared == ["event1", "event2"]
    assert "missed" not in {kind for _, kind, _ in found} and "ha.leads" in {kind for _, kind, _ in found}
    leader.__enter__()
    three.warm()
    # Also at one that was not there when it happened.
    numbers = [number for number, _, _ in new.events(last)]
    eventually(lambda: [number for number, _, _ in leader.events(last)][: len(numbers)] == numbers)


class Reader(Thread):
    """Reads events at any controller, and goes on at another one whenever its connection is lost."""

    def __init__(self, urls: list[str], last: int) -> None:
        super().__init__(daemon=True)
        self._client, self._last = Client(urls), last
        self.events: list[Event] = []

    def run(self) -> None:
        for event in self._client.events(last=self._last):
            self.events.append(event)
            if event.kind == "flow.declared" and event.document["id"] == "the-end":
                return


def declared_saved(leader: Instance, name: str) -> bool:
    """Whether a flow was declared, and saved before its controller was killed."""
    try:
        if leader.answer("POST", "/flows?wait=false", flow(name))[0] != 202:
            return False
        while "etcd" in leader.answer("GET", f"/flows/{name}")[2]["pending"]:
            time.sleep(0.002)
    except (OSError, KeyError, HTTPException):
        return False
    return True


def events_over(three: Lab, takeovers: int) -> None:
    """Flows are declared all the time; leaders hand over and are killed in turn, while somebody reads."""
    random, saved, asked, mark = Random(takeovers), set(), set(), f"over{takeovers}-"
    three.warm()
    start = three.leader().events()[-1][0]
    reader = Reader([f"http://127.0.0.1:{one.port}" for one in three.instances.values()], start)
    reader.start()
    for number in range(takeovers):
        leader, is_kill = three.leader(), number % 2 == 0
        act = leader.process.kill if is_kill else partial(leader.answer, "POST", "/ha/handover", {})
        timer = Timer(random.uniform(0.1, 0.5), act)
        timer.start()
        for step in range(200):
            name = f"{mark}{number}-{step}"
            asked.add(name)
            if not declared_saved(leader, name):
                break
            saved.add(name)
        timer.join()
        three.leader(but=leader.name)
        if is_kill:
            leader.process.wait()
            leader.__enter__()
        three.warm()
    declare(three, "the-end")
    reader.join(20.0)
    assert not reader.is_alive()
    found = [event.document["id"] for event in reader.events if event.kind == "flow.declared"]
    mine = [name for name in found if name.startswith(mark)]
    numbers = [event.id for event in reader.events]
    assert numbers == sorted(set(numbers)) and "missed" not in {event.kind for event in reader.events}
    assert len(mine) == len(set(mine)), "told twice"
    assert saved <= set(mine) <= asked, sorted(saved - set(mine))
    # Whoever knows the flows by events alone knows those that there are.
    known: set[str] = set()
    for event in reader.events:
        if event.kind == "flow.declared":
            known.add(event.document["id"])
        elif event.kind == "flow.removed":
            known.discard(event.document["id"])
    there = {name for name in three.leader().flows() if name.startswith(mark)}
    assert {name for name in known if name.startswith(mark)} == there
    three.leader().answer("DELETE", "/flows/the-end?wait=false")
    eventually(lambda: "the-end" not in three.leader().flows())


def test_a_reader_misses_no_event_over_takeovers(three: Lab) -> None:
    events_over(three, 2)


@pytest.mark.nightly
def test_a_reader_misses_no_event_over_many_takeovers(three: Lab) -> None:
    events_over(three, 20)


def test_an_operation_of_another_controller_says_what_to_do(three: Lab) -> None:
    leader = three.leader()
    begun = leader.answer("POST", "/flows?wait=false", flow("operation"))[2]["id"]
    assert leader.answer("GET", f"/operations/{begun}")[0] == 200
    assert leader.answer("GET", "/operations/nonsense")[0] == 404
    leader.process.kill()
    new = three.leader(but=leader.name)
    leader.process.wait()
    status, _, problem = new.answer("GET", f"/operations/{begun}")
    assert status == 410 and "Idempotency-Key" in problem["detail"]
    leader.__enter__()
    three.warm()
    # Nor does the one that was started again know it.
    assert leader.answer("GET", f"/operations/{begun}")[0] == 410


def test_a_frozen_leader_finds_out_that_it_leads_no_more(three: Lab) -> None:
    leader = three.leader()
    os.kill(leader.process.pid, signal.SIGSTOP)
    try:
        new = three.leader(but=leader.name)
        declared = new.answer("POST", "/flows?wait=false", flow("frozen"))[0]
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)
    assert declared == 202
    eventually(lambda: leader.ha.get("role") == "follower")
    eventually(lambda: "frozen" in leader.flows())
    assert [one.name for one in three.instances.values() if one.leads] == [new.name]
    three.warm()


@pytest.mark.nightly
def test_what_was_confirmed_outlives_kills_at_any_moment(three: Lab) -> None:
    """Flows are declared all the time; whatever was saved is there in the end, and no number is shared."""
    random, saved = Random(7), set()
    for number in range(6):
        leader = three.leader()
        killer = Timer(random.uniform(0.1, 0.9), leader.process.kill)
        killer.start()
        for step in count():
            name = f"kill{number}-{step}"
            try:
                leader.answer("POST", "/flows?wait=false", flow(name))
                while "etcd" in leader.answer("GET", f"/flows/{name}")[2]["pending"]:
                    time.sleep(0.002)
            except OSError:
                break
            saved.add(name)
        killer.join()
        leader.process.wait()
        leader.__enter__()
        three.warm()
    new = three.leader()
    assert saved <= new.flows() and len(saved) > 6
    numbers = [new.answer("GET", f"/flows/{name}")[2]["number"] for name in new.flows()]
    assert len(set(numbers)) == len(numbers)


def test_a_member_of_etcd_may_die(three: Lab) -> None:
    leader, epoch = three.leader(), three.leader().ha["epoch"]
    victim = three.etcd.programs[0]
    victim.stop()
    for number in range(5):
        declare(three, f"member{number}")
        time.sleep(0.3)
    assert three.leader().name == leader.name and leader.ha["epoch"] == epoch
    victim.start()
    three.etcd.wait_ready()


def test_without_etcd_the_leader_goes_on_and_refuses_what_is_new(three: Lab) -> None:
    leader, epoch = three.leader(), three.leader().ha["epoch"]
    before = leader.flows()
    three.etcd.stop()
    status, headers, problem = leader.answer("POST", "/flows", flow("refused"))
    assert status == 503 and headers["Retry-After"] == "1" and "etcd" in problem["detail"]
    assert leader.flows() == before
    time.sleep(4.0)
    assert leader.leads and leader.ha["etcd"]["failing_since_s"] > 2
    three.etcd.start()
    three.etcd.wait_ready()
    eventually(lambda: all(one.ha["etcd"]["reachable"] for one in three.instances.values()))
    eventually(lambda: leader.answer("POST", "/flows?wait=false", flow("again"))[0] == 202)
    assert leader.leads and leader.ha["epoch"] == epoch
    three.warm()


def test_accepted_without_waiting_means_saved(three: Lab) -> None:
    """A leader that does not hear etcd answers 503, not 202 for what the next leader would never know."""
    leader = three.leader()
    for program in three.etcd.programs:
        program.kill(signal.SIGSTOP)
    try:
        # The first request finds out; the second one meets a leader that knows.
        answers = [leader.answer("POST", "/flows?wait=false", flow(f"unsaved{number}")) for number in range(2)]
    finally:
        for program in three.etcd.programs:
            program.kill(signal.SIGCONT)
    for status, headers, problem in answers:
        assert status == 503 and headers["Retry-After"] == "1" and "etcd" in problem["detail"], problem
    eventually(lambda: three.leader().answer("POST", "/flows?wait=false", flow("saved"))[0] == 202)
    # As soon as it is answered, whoever leads next knows it; and nobody has what was refused.
    three.leader().process.kill()
    new = three.leader(but=leader.name)
    leader.process.wait()
    eventually(lambda: "saved" in new.flows())
    eventually(lambda: not {"unsaved0", "unsaved1"} & new.flows())
    leader.__enter__()
    three.warm()


def test_leadership_is_handed_over_and_drained(three: Lab) -> None:
    leader = three.leader()
    first, second = three.others(leader)
    assert leader.answer("POST", "/ha/handover", {"to": "nobody"})[0] == 409
    status, _, document = leader.answer("POST", "/ha/handover", {"to": first.name})
    assert status == 200 and document["role"] == "follower"
    eventually(lambda: first.leads)
    assert leader.answer("POST", "/ha/handover", {})[0] == 307
    status, _, document = first.answer("POST", "/ha/drain", {})
    assert status == 200 and document["role"] == "draining"
    new = three.leader()
    assert new.name != first.name
    assert new.answer("POST", "/ha/handover", {"to": first.name})[0] == 409
    assert first.answer("POST", "/ha/drain", {"drain": False})[2]["role"] == "follower"
    assert new.answer("POST", "/ha/finish-upgrade")[0] == 200
    assert second.answer("POST", "/ha/finish-upgrade")[0] in (200, 307)


def test_sessions_and_rules_are_there_after_a_takeover(three: Lab) -> None:
    leader = three.leader()
    rule = {"id": "r", "action": "deny", "client": "a", "match": {"eth_type": 2048}}
    status, _, told = leader.answer("POST", "/access-rules?wait=false", rule)
    assert status in (201, 202), told
    reserved = {"id": "x", "flow": "f1", "rate_mbps": 0.1}
    leader.answer("POST", "/reservations", reserved)
    names = [each["id"] for each in leader.answer("GET", "/reservations")[2]["reservations"]]
    for one in three.others(leader):
        eventually(lambda one=one: one.answer("GET", "/access-rules/r")[0] == 200)
    assert leader.answer("POST", "/ha/handover", {})[0] == 200
    new = three.leader()
    assert new.answer("GET", "/access-rules/r")[0] == 200
    assert [each["id"] for each in new.answer("GET", "/reservations")[2]["reservations"]] == names
    assert new.answer("DELETE", "/access-rules/r?wait=false")[0] in (202, 204)
    for one in three.others(new):
        eventually(lambda one=one: one.answer("GET", "/access-rules/r")[0] == 404)
