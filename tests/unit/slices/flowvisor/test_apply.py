"""The whole client against a server with FlowVisor's API and its bugs, over HTTPS."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_flowvisor import PASSWORD, FakeFlowVisor
from fake_flowvisor_https import certificate, fingerprint, served

from hyroads.controller.cli.main import main
from hyroads.slices.core.slicefile import load_text
from hyroads.slices.flowvisor import reconcile as apply
from hyroads.slices.flowvisor.client import Access, Client
from hyroads.slices.flowvisor.desired import Desired, desired_of
from hyroads.slices.flowvisor.entries import FlowVisorError
from hyroads.slices.flowvisor.reconcile import Clock, differences, disturbances, idle, observe, reconcile, steps

# The server answers at once, so nothing is gained by waiting.
CLOCK = Clock(time.monotonic, lambda seconds: None)
SLICES = """
slices:
  - {name: production, controllers: [tcp:127.0.0.1:6653], permissions: [read]}
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
    assert sorted(fake.names) == sorted(desired.rules) and len(fake.rules) == 4
    web = fake.slices["web"]
    assert (web["rate-limit"], web["host"], web["port"]) == (100, "127.0.0.1", 6700)
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
    assert sorted(fake.names) == sorted(fake.in_force) == sorted(again.rules)


def test_without_the_update_after_each_add_the_removed_would_come_back(
    fake: FakeFlowVisor, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile(client, wanted(), CLOCK)
    reconcile(client, wanted(SLICES.replace("priority: 300", "priority: 310")), CLOCK)
    monkeypatch.setattr(
        apply, "_true", lambda connection, method, given: method != "update-slice" and connection.call(method, given)
    )
    reconcile(client, wanted(SLICES.replace("priority: 300", "priority: 320")), CLOCK)
    assert set(fake.in_force) > set(fake.names), "what FlowVisor lists does not tell of it"


BY_HAND = {"dpid": "all", "priority": 5, "match": {}, "slice-action": [{"slice-name": "theirs", "permission": 6}]}


def by_hand(client: Client, name: str = "by-hand", slice_name: str = "theirs", **more: Any) -> None:
    """Someone else's slice, if it is not there, and an entry for it."""
    if slice_name not in observe(client).slices:
        where = {"controller-url": "tcp:127.0.0.1:7001", "admin-contact": "they@localhost", "password": "x"}
        client.call("add-slice", {"slice-name": slice_name, **where})
    action = [{"slice-name": slice_name, "permission": more.pop("permission", 6)}]
    number = client.call("add-flowspace", [{**BY_HAND, "name": name, "slice-action": action, **more}])
    while client.call("list-fs-status", {"fs-id": number}) == "PENDING":
        pass


def test_entries_of_others_are_left_alone_and_slices_that_are_gone_go(fake: FakeFlowVisor, client: Client) -> None:
    by_hand(client)
    reconcile(client, wanted(), CLOCK)
    reconcile(client, wanted("slices: [{name: production, controllers: [tcp:127.0.0.1:6653]}]"), CLOCK)
    assert fake.slices.keys() == {"fvadmin", "theirs", "production"}
    assert sorted(name.split("-")[0] for name in fake.names) == ["by", "hr"]


def test_a_rule_that_someone_changed_under_our_name_is_put_right(fake: FakeFlowVisor, client: Client) -> None:
    desired = wanted()
    reconcile(client, desired, CLOCK)
    name = next(name for name, rule in desired.rules.items() if rule.slice_name == "web")
    client.call("update-flowspace", [{"name": name, "priority": 1}])
    assert fake.rules[-1]["match"] == {}, "an update without a match widens it to everything"
    assert differences(observe(client), desired) == (f"{name} says something else",)
    reconcile(client, desired, CLOCK)
    assert differences(observe(client), desired) == ()


def test_entries_of_a_disabled_slice_are_seen_and_not_added_again(fake: FakeFlowVisor, client: Client) -> None:
    desired = wanted()
    reconcile(client, desired, CLOCK)
    client.call("update-slice", {"slice-name": "web", "admin-status": False})
    assert differences(observe(client), desired) == ("slice web is disabled",)
    done = reconcile(client, desired, CLOCK)
    assert fake.slices["web"]["admin-status"] is True
    assert sorted(fake.names) == sorted(desired.rules)
    assert all("flowspace" not in step.method for step in done)


def test_a_disabled_slice_that_is_not_wanted_goes_with_its_entries(fake: FakeFlowVisor, client: Client) -> None:
    reconcile(client, wanted(), CLOCK)
    client.call("update-slice", {"slice-name": "web", "admin-status": False})
    with pytest.raises(FlowVisorError, match="unable to find flow entry"):
        client.call("remove-flowspace", [next(name for name in fake.names if "web" in name)])
    only = wanted("slices: [{name: production, controllers: [tcp:127.0.0.1:6653], permissions: [read]}]")
    reconcile(client, only, CLOCK)
    assert fake.slices.keys() == {"fvadmin", "production"} and fake.names == list(only.rules)


def test_controllers_pass_from_slice_to_slice(fake: FakeFlowVisor, client: Client) -> None:
    reconcile(client, wanted(), CLOCK)
    renamed = SLICES.replace("name: web", "name: shop")
    reconcile(client, wanted(renamed), CLOCK)
    assert fake.slices.keys() == {"fvadmin", "production", "shop"} and fake.slices["shop"]["port"] == 6700
    assert sorted(fake.names) == sorted(wanted(renamed).rules)
    more = renamed.replace("tcp:127.0.0.1:6700", "tcp:127.0.0.1:6701")
    more = more.replace("slices:\n", "slices:\n  - {name: a, controllers: [tcp:127.0.0.1:6700]}\n")
    reconcile(client, wanted(more), CLOCK)
    assert (fake.slices["a"]["port"], fake.slices["shop"]["port"]) == (6700, 6701)
    client.call("update-slice", {"slice-name": "shop", "admin-status": False})
    reconcile(client, wanted(more.replace("name: shop", "name: web")), CLOCK)
    assert fake.slices.keys() == {"fvadmin", "production", "web", "a"}


def test_an_entry_that_is_there_twice_is_told_and_put_right(fake: FakeFlowVisor, client: Client) -> None:
    desired = wanted()
    reconcile(client, desired, CLOCK)
    name = next(iter(desired.rules))
    by_hand(client, name, "production")
    assert fake.names.count(name) == 2
    assert differences(observe(client), desired) == (f"{name} is there more than once",)
    reconcile(client, desired, CLOCK)
    assert sorted(fake.names) == sorted(desired.rules)


def test_another_controller_is_told_and_put_right(fake: FakeFlowVisor, client: Client) -> None:
    desired = wanted()
    reconcile(client, desired, CLOCK)
    client.call("update-slice", {"slice-name": "web", "controller-host": "10.0.0.66", "controller-port": 1})
    words = "slice web has the controller tcp:10.0.0.66:1 instead of tcp:127.0.0.1:6700"
    assert differences(observe(client), desired) == (words,)
    reconcile(client, desired, CLOCK)
    assert (fake.slices["web"]["host"], fake.slices["web"]["port"]) == ("127.0.0.1", 6700)


def test_a_slice_of_ours_without_flowspace_goes_and_that_of_others_is_told(fake: FakeFlowVisor, client: Client) -> None:
    fake.crash_on = {"add-flowspace"}
    with pytest.raises(FlowVisorError, match="failed inside"):
        reconcile(client, wanted(), CLOCK)
    fake.crash_on = set()
    by_hand(client)
    client.call("remove-flowspace", ["by-hand"])
    only = wanted("slices: [{name: production, controllers: [tcp:127.0.0.1:6653]}]")
    assert "slice web is left" in differences(observe(client), only)
    assert idle(observe(client), only) == ("slice theirs is not in the file and has no flowspace",)
    reconcile(client, only, CLOCK)
    assert fake.slices.keys() == {"fvadmin", "theirs", "production"}


@pytest.mark.parametrize(
    ("slice_name", "entry", "words"),
    [
        ("theirs", {"priority": 400, "match": {"dl_type": 0x88B5}}, "is above slice web (dpid=11:22"),
        ("theirs", {"priority": 300, "match": {"nw_proto": 6}}, "is above slice web (dl_type=2048"),
        ("theirs", {"priority": 100, "match": {"dl_type": 0x88B5}}, "has write and shares packets with slice web"),
        ("web", {"priority": 1, "match": {"dl_vlan": 9}}, "gives slice web what the file does not: dl_vlan=9"),
        ("theirs", {"priority": 100, "match": {"dl_type": 0x88B5}, "permission": 2}, None),
        ("theirs", {"priority": 400, "match": {"dl_type": 0x88B5}, "dpid": "01"}, None),
        ("theirs", {"priority": 400, "match": {"dl_type": 0x0800, "nw_proto": 17}}, None),
    ],
)
def test_entries_of_others_that_share_packets_with_ours_are_told(
    client: Client, slice_name: str, entry: dict[str, Any], words: str | None
) -> None:
    desired = wanted(
        SLICES.replace("  - {name: production, controllers: [tcp:127.0.0.1:6653], permissions: [read]}", "")
    )
    reconcile(client, desired, CLOCK)
    by_hand(client, slice_name=slice_name, **entry)
    found = disturbances(observe(client), desired)
    if words is None:
        assert found == ()
    else:
        assert len(found) == 1 and found[0].startswith("entry by-hand ") and words in found[0]
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
        ("no-such-method", None, "Method not found"),
        ("list-flowspace", None, "requires: OBJECT; got: NO_PARAMS"),
        ("remove-slice", {"slice-name": "x"}, "Unknown slice name : x"),
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


def test_a_fingerprint_stands_for_the_certificate(fake: FakeFlowVisor, tmp_path: Path, pem: Path) -> None:
    unnamed = certificate(tmp_path, named=False)
    with served(fake, unnamed) as url:
        with pytest.raises(FlowVisorError, match="certificate verify failed"):
            Client(Access(url, "fvadmin", PASSWORD, str(unnamed))).call("list-slices")
        for text in (fingerprint(unnamed), fingerprint(unnamed).replace(":", "").lower()):
            client = Client(Access(url, "fvadmin", PASSWORD, fingerprint=text))
            assert client.call("list-slices")[0]["slice-name"] == "fvadmin"
            client.close()
        before = len(fake.calls)
        with pytest.raises(FlowVisorError, match="Fingerprints did not match"):
            Client(Access(url, "fvadmin", PASSWORD, fingerprint=fingerprint(pem))).call("list-slices")
        assert len(fake.calls) == before
    for wrong in ("", "12", "z" * 64, "0" * 63, "0" * 65, fingerprint(pem) + ":00"):
        with pytest.raises(FlowVisorError, match="fingerprint: expected the certificate's SHA-256"):
            Access(url, "fvadmin", PASSWORD, fingerprint=wrong)
    with pytest.raises(FlowVisorError, match="got both"):
        Access(url, "fvadmin", PASSWORD, str(pem), fingerprint(pem))


def test_old_ciphers_are_none_without_a_certificate(url: str) -> None:
    context = Access(url, "fvadmin", PASSWORD, legacy_tls=True).context()
    names = [cipher["name"] for cipher in context.get_ciphers()]
    assert names and not any(name.startswith(("ADH", "AECDH")) for name in names)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"Slice": 1}', '{"Slice": [1]}', '{"Slice": [{"name": "a"}]}', '{"Slice": [{}]}']
)
def test_a_configuration_that_makes_no_sense_is_one_error(text: str) -> None:
    class Odd:
        def call(self, method: str, parameters: Any = None) -> Any:
            return text if method == "save-config" else []

    with pytest.raises(FlowVisorError, match="the slices in its configuration can't be read"):
        observe(Odd())


def test_the_command(
    fake: FakeFlowVisor, url: str, pem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "slices.yaml"
    path.write_text(SLICES)
    monkeypatch.setenv("HYROADS_FLOWVISOR_PASSWORD", PASSWORD)
    reach = ["--url", url, "--fingerprint", fingerprint(pem)]
    assert main(["flowvisor", "check", str(path)]) == 0
    assert "2 slices, 4 flowspace entries" in capsys.readouterr().out
    assert main(["flowvisor", "status", str(path), *reach]) == 1
    assert main(["flowvisor", "apply", str(path), *reach]) == 0
    assert "read back and compared" in capsys.readouterr().out
    assert main(["flowvisor", "status", str(path), *reach]) == 0
    assert capsys.readouterr().out == "as the file says\n"
    client = Client(Access(url, "fvadmin", PASSWORD, str(pem)))
    by_hand(client, priority=9)
    client.close()
    assert main(["flowvisor", "plan", str(path), *reach]) == 0
    assert "warning: entry by-hand of slice theirs (every packet, priority 9)" in capsys.readouterr().err
    assert main(["flowvisor", "status", str(path), "--json", *reach]) == 1
    status = json.loads(capsys.readouterr().out)
    assert status["differences"] == [] and "is above slice production (every packet" in status["others"][0]
    path.write_text(SLICES.replace("tcp_dst: 80, eth_type: 0x0800", "ipv6_src: '2001:db8::1'"))
    assert main(["flowvisor", "apply", str(path), *reach]) == 2
    assert "slice web, rule 0: ipv6_src=2001:db8::1: OpenFlow 1.0 has no such field" in capsys.readouterr().err
    assert len(fake.rules) == 5, "nothing was touched"
