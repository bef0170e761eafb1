"""The whole client against a server with FlowVisor's API and its bugs, over HTTPS."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from fake_flowvisor import PASSWORD, FakeFlowVisor, certificate, served

from hyroads.controller.cli.main import main
from hyroads.slices.core.slicefile import load_text
from hyroads.slices.flowvisor import reconcile as apply
from hyroads.slices.flowvisor.client import Access, Client, Event, Events
from hyroads.slices.flowvisor.desired import Desired, desired_of
from hyroads.slices.flowvisor.entries import FlowVisorError
from hyroads.slices.flowvisor.reconcile import Clock, differences, observe, reconcile, steps

# The server answers at once, so nothing is gained by waiting.
CLOCK = Clock(time.monotonic, lambda seconds: None)
SLICES = """
slices:
  - {name: production, controllers: [tcp:127.0.0.1:6653]}
  - name: web
    controllers: [tcp:127.0.0.1:6700]
    limits: {flow_mods_per_s: 100}
    flowspace:
      - {match: [{tcp_dst: 80, eth_type: 0x0800}, {tcp_src: 80, eth_type: 0x0800}], priority: 300}
      - {match: {eth_type: 0x88b5}, switches: [0x1122334455667788], priority: 200}
"""


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def fake() -> FakeFlowVisor:
    return FakeFlowVisor()


@pytest.fixture
def url(fake: FakeFlowVisor, pem: Path) -> Iterator[str]:
    with served(fake, pem) as address:
        yield address


@pytest.fixture
def client(url: str, pem: Path) -> Iterator[Client]:
    client = Client(Access(url, "fvadmin", PASSWORD, str(pem)))
    yield client
    client.close()


def wanted(text: str = SLICES) -> Desired:
    return desired_of(load_text(text, "test.yaml"))


def test_it_becomes_what_is_wanted_and_then_nothing_is_left_to_do(fake: FakeFlowVisor, client: Client) -> None:
    desired = wanted()
    reconcile(client, desired, CLOCK)
    assert fake.rules.keys() == desired.rules.keys() and len(fake.rules) == 4
    assert fake.slices["web"]["rate-limit"] == 100 and fake.slices["web"]["controller"] == ("127.0.0.1", 6700)
    assert differences(observe(client), desired) == ()
    assert all("flowspace" not in step.method for step in steps(observe(client), desired))


def test_a_change_replaces_entries_new_before_old_and_the_dead_stay_dead(fake: FakeFlowVisor, client: Client) -> None:
    reconcile(client, wanted(), CLOCK)
    changed = wanted(SLICES.replace("priority: 300", "priority: 310"))
    done = reconcile(client, changed, CLOCK)
    kinds = [step.method for step in done if "flowspace" in step.method]
    assert kinds == ["add-flowspace"] * 2 + ["remove-flowspace"] * 2
    again = wanted(SLICES.replace("priority: 300", "priority: 320"))
    reconcile(client, again, CLOCK)
    assert fake.rules.keys() == again.rules.keys()


def test_without_the_update_after_each_add_the_removed_would_come_back(
    fake: FakeFlowVisor, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile(client, wanted(), CLOCK)
    reconcile(client, wanted(SLICES.replace("priority: 300", "priority: 310")), CLOCK)
    monkeypatch.setattr(
        apply, "_true", lambda connection, method, given: method != "update-slice" and connection.call(method, given)
    )
    with pytest.raises(FlowVisorError, match="is left"):
        reconcile(client, wanted(SLICES.replace("priority: 300", "priority: 320")), CLOCK)


def test_entries_of_others_are_left_alone_and_slices_that_are_gone_go(fake: FakeFlowVisor, client: Client) -> None:
    fake.slices["theirs"] = {"admin-status": True}
    fake.rules["by-hand"] = {
        "name": "by-hand", "dpid": "all", "priority": 5, "match": {},
        "slice-action": [{"slice-name": "theirs", "permission": 6}],
    }  # fmt: skip
    reconcile(client, wanted(), CLOCK)
    reconcile(client, wanted("slices: [{name: production, controllers: [tcp:127.0.0.1:6653]}]"), CLOCK)
    assert fake.slices.keys() == {"fvadmin", "theirs", "production"}
    assert sorted(rule["name"].split("-")[0] for rule in fake.rules.values()) == ["by", "hr"]


def test_a_rule_that_someone_changed_under_our_name_is_put_right(fake: FakeFlowVisor, client: Client) -> None:
    desired = wanted()
    reconcile(client, desired, CLOCK)
    name = next(name for name, rule in desired.rules.items() if rule.slice_name == "web")
    client.call("update-flowspace", [{"name": name, "priority": 1}])
    assert fake.rules[name]["match"] == {}, "an update without a match widens it to everything"
    assert differences(observe(client), desired) == (f"{name} says something else",)
    reconcile(client, desired, CLOCK)
    assert differences(observe(client), desired) == ()


def test_a_failure_inside_names_the_step_and_going_on_finishes(fake: FakeFlowVisor, client: Client) -> None:
    fake.crash_on = {"add-flowspace"}
    with pytest.raises(FlowVisorError, match=r"step 3 of 6 \(add hr-.*failed inside"):
        reconcile(client, wanted(), CLOCK)
    fake.crash_on = set()
    reconcile(client, wanted(), CLOCK)
    assert len(fake.rules) == 4


def test_a_dead_worker_is_told(fake: FakeFlowVisor, client: Client) -> None:
    fake.worker_lives = False
    now = iter(range(1000))
    with pytest.raises(FlowVisorError, match="still pending after 20 s"):
        reconcile(client, wanted(), Clock(lambda: float(next(now)), lambda seconds: None))


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("no-such-method", None, "unknown method"),
        ("list-flowspace", None, "failed inside"),
        ("remove-slice", {"slice-name": "x"}, "no such slice"),
    ],
)
def test_refusals_have_words(client: Client, method: str, given: Any, words: str) -> None:
    with pytest.raises(FlowVisorError, match=f"{method}: .*{words}"):
        client.call(method, given)


def test_a_wrong_password_a_foreign_certificate_and_nobody_there(url: str, pem: Path) -> None:
    with pytest.raises(FlowVisorError, match="user name or password is wrong"):
        Client(Access(url, "fvadmin", "guess", str(pem))).call("list-slices")
    with pytest.raises(FlowVisorError, match="certificate verify failed"):
        Client(Access(url, "fvadmin", PASSWORD)).call("list-slices")
    with pytest.raises(FlowVisorError, match=r"no answer from https://127\.0\.0\.1:1/"):
        Client(Access("https://127.0.0.1:1/", "fvadmin", PASSWORD)).call("list-slices")
    with pytest.raises(FlowVisorError, match="expected https"):
        Access("http://127.0.0.1:8081/", "fvadmin", PASSWORD)
    assert PASSWORD not in repr(Access(url, "fvadmin", PASSWORD))


def test_tls_1_2_is_the_highest(url: str, pem: Path) -> None:
    context = Access(url, "fvadmin", PASSWORD, str(pem)).context()
    assert context.maximum_version.name == "TLSv1_2"


def test_events_arrive_and_forged_ones_do_not(fake: FakeFlowVisor, client: Client) -> None:
    seen: list[Event] = []
    events = Events(seen.append)
    thread = threading.Thread(target=events.serve)
    thread.start()
    try:
        events.register(client)
        fake.happen("DEVICE_CONNECTED", dpid="00:00:00:00:00:00:00:01")
        forged = b'{"method": "hyroads-event", "params": {"cookie": "guess"}}'
        for body in (forged, b"[", b"[]", b"{}"):
            with pytest.raises(HTTPError):
                urlopen(Request(events.url, body), timeout=5)
        events.unregister(client)
        fake.happen("DEVICE_CONNECTED", dpid="late")
    finally:
        events.close()
        thread.join()
    assert seen == [Event("DEVICE_CONNECTED", {"dpid": "00:00:00:00:00:00:00:01"})]


def test_the_command(
    fake: FakeFlowVisor, url: str, pem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "slices.yaml"
    path.write_text(SLICES)
    monkeypatch.setenv("HYROADS_FLOWVISOR_PASSWORD", PASSWORD)
    reach = ["--url", url, "--ca", str(pem)]
    assert main(["flowvisor", "check", str(path)]) == 0
    assert "2 slices, 4 flowspace entries" in capsys.readouterr().out
    assert main(["flowvisor", "status", str(path), *reach]) == 1
    assert main(["flowvisor", "apply", str(path), *reach]) == 0
    assert "read back and compared" in capsys.readouterr().out
    assert main(["flowvisor", "status", str(path), *reach]) == 0
    path.write_text(SLICES.replace("tcp_dst: 80, eth_type: 0x0800", "ipv6_src: '2001:db8::1'"))
    assert main(["flowvisor", "apply", str(path), *reach]) == 2
    assert "slice web, rule 0: ipv6_src=2001:db8::1: OpenFlow 1.0 has no such field" in capsys.readouterr().err
    assert len(fake.rules) == 4, "nothing was touched"
