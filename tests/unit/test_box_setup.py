"""A box: from the controller's answer to steps, and back again from wherever they end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.config import parse
from hyroads.controller.box.changes import Changes
from hyroads.controller.box.link import Link, normal_pin
from hyroads.controller.box.system import System, interfaces_of
from hyroads.controller.core.box_application import Interface
from hyroads.controller.core.box_record import Before, Phase, Record, check_again, record_of
from hyroads.controller.core.box_setup import (
    DEFAULTS,
    ETC,
    KEY,
    PORTS_UNIT,
    RADIOS,
    Commands,
    MakeFolder,
    Present,
    Run,
    Secrets,
    Setup,
    Step,
    WriteFile,
    plan,
    radios_document,
    setup_of,
)
from hyroads.controller.core.errors import ConfigError, HyroadsError

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PRESENT = Present(
    (
        Interface("eth0", "ethernet", 1500, "b8:27:eb:41:c0:a1", uplink=True, up=True),
        Interface("eth1", "ethernet", 1500, "b8:27:eb:41:c0:a2"),
        Interface("eth2", "ethernet", 1500, "b8:27:eb:41:c0:a3", up=True),
        Interface("wlan0", "wifi", 2304, "b8:27:eb:41:c0:a4"),
    ),
    bridges=("lan",),
    vlan_limit="2",
)
SECRETS = Secrets("the key\n", {"agent": "agent token", "radio": "radio token"})


def answer(**more: object) -> dict[str, Any]:
    ports = {"plc": "eth1", "wifi": "wlan0", "host": "eth2"}
    names = {"plc": "eth1", "wifi": "upstairs-wifi", "host": "upstairs-host"}
    return {
        "node": "upstairs", "dpid": f"{2:016x}", "bridge": "br0", "vlan_limit": 0, "controllers": [],
        "ports": {port: {"interface": ports[port], "name": names[port]} for port in ports},
        "openflow": {"port": 6653, "tls": True}, "agents": {"port": 6654, "tls": True},
        "certificate": PEM, "authority": PEM, **more,
    }  # fmt: skip


def setup(**more: object) -> Setup:
    return setup_of(answer(**more), "192.0.2.1")


def files(steps: list[Step]) -> dict[str, WriteFile]:
    return {step.path: step for step in steps if isinstance(step, WriteFile)}


def commands(steps: list[Step]) -> list[str]:
    return [shlex.join(run.words) for step in steps if isinstance(step, Commands) for run in step.do]


def test_the_plan_is_what_an_owner_would_type() -> None:
    steps = plan(setup(), SECRETS, PRESENT)
    written = files(steps)
    assert written[KEY].text == "the key\n" and (written[KEY].mode, written[KEY].owner) == (0o600, "hyroads-ap")
    defaults = written[DEFAULTS].text
    assert "CONTROLLER=192.0.2.1:6654\n" in defaults and f"--key {KEY}" in defaults and "agent token" not in defaults
    radios = parse(written[RADIOS].text, RADIOS)
    assert [(each.name, each.technology, each.backend) for each in radios.interfaces] == [
        ("eth1", "plc", "plc"),
        ("upstairs-wifi", "wifi", "linux-wifi"),
    ]
    assert "ExecStart=-ip link set dev eth2 name upstairs-host" in written[PORTS_UNIT].text
    assert "dev eth1 name" not in written[PORTS_UNIT].text
    last = commands(steps)[-1]
    assert last.startswith("ovs-vsctl --timeout=20 -- set-ssl") and "ssl:192.0.2.1:6653" in last
    assert "datapath-id=0000000000000002" in last and "datapath_type" not in last
    for port in ("eth1", "upstairs-wifi", "upstairs-host", "upstairs-acc", "upstairs-net"):
        assert f"-- add-port br0 {port}" in last
    assert "hyroads-edge@upstairs.service hyroads-ap-agent.service" in commands(steps)[-2]


def test_ethernet_in_the_place_of_wifi_is_not_read_as_a_radio() -> None:
    """Its kind decides, not the technology that it is a port of."""
    wired = replace(PRESENT, interfaces=[replace(each, kind="ethernet") for each in PRESENT.interfaces])
    assert [each["technology"] for each in radios_document(setup(), wired)["interfaces"]] == ["plc"]
    assert [each["technology"] for each in radios_document(setup(), PRESENT)["interfaces"]] == ["plc", "wifi"]


def test_what_a_node_lacks_is_not_set_up() -> None:
    plain = setup(openflow={"port": 1, "tls": False}, agents=None, controllers=["c1", "c2"])
    steps = plan(plain, SECRETS, replace(PRESENT, kernel_datapath=False, vlan_limit=None, has_certificate=True))
    last = commands(steps)[-1]
    assert "set-ssl" not in last and "tcp:c2:1" in last and "datapath_type=netdev" in last and "-acc" not in last
    assert not any("hyroads-edge@" in each for each in commands(steps))
    assert DEFAULTS not in files(steps)
    bridge = steps[-1]
    assert isinstance(bridge, Commands)
    assert "del-ssl" not in bridge.undo[0].words and "remove" in bridge.undo[0].words


@pytest.mark.parametrize(
    ("change", "present", "said"),
    [
        ({"ports": {"plc": {"interface": "eth9", "name": "eth9"}}}, PRESENT, "eth9 is not there"),
        ({"ports": {"plc": {"interface": "eth0", "name": "eth0"}}}, PRESENT, "controller is reached"),
        ({"ports": {"plc": {"interface": "eth1", "name": "wlan0"}}}, PRESENT, "wlan0 is there already"),
        ({"bridge": "lan"}, PRESENT, "a bridge lan is there already"),
        ({}, replace(PRESENT, has_certificate=True), "has a certificate already"),
    ],
)
def test_a_machine_that_is_not_ready_is_one_error(change: dict[str, Any], present: Present, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(setup(**change), SECRETS, present)


HOSTILE = ["", "../x", "a b", "a;reboot", "$(x)", "a\nb", "-x", "x" * 300, None, 7, [], {}]


@pytest.mark.parametrize("place", ["node", "dpid", "bridge", "certificate", "authority", "openflow", "agents", "ports"])
def test_a_hostile_controller_gets_no_word_into_a_file_or_a_command(place: str) -> None:
    for value in HOSTILE:
        if (place, value) in (("agents", None), ("ports", {})):
            continue
        with pytest.raises(ConfigError, match=place):
            setup_of(answer(**{place: value}), "192.0.2.1")
    for value in HOSTILE:
        for document in (
            {"controllers": [value]},
            {"ports": {"plc": {"interface": value, "name": "eth1"}}},
            {"ports": {"plc": {"interface": "eth1", "name": value}}},
        ):
            with pytest.raises(ConfigError):
                setup_of(answer(**document), "192.0.2.1")


def test_a_controller_is_dialled_by_a_host_or_an_address_alone() -> None:
    for dialled in ("c1.home", "192.0.2.1", "[fd00::1]"):
        assert setup_of(answer(), dialled).controllers == [dialled]
    for dialled in ("", "a b", 'a"', "a;b", "fd00::1", "[a]", "a\n"):
        with pytest.raises(ConfigError, match="controllers"):
            setup_of(answer(), dialled)


class Memory:
    """A machine in memory that fails, or loses its power, at a given step."""

    def __init__(
        self, fail_at: int = -1, error: Callable[[], BaseException] = lambda: HyroadsError("no space")
    ) -> None:
        self.files = {DEFAULTS: Before(DEFAULTS, b"CONTROLLER=127.0.0.1:6654\n", 0o640, 7, 8)}
        self.folders = {"/etc"}
        self.done: list[tuple[str, ...]] = []
        self.left, self.error = fail_at, error

    def turn(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise self.error()

    def read(self, path: str) -> Before:
        return self.files.get(path, Before(path, None))

    def write(self, file: WriteFile) -> None:
        self.turn()
        self.files[file.path] = Before(file.path, file.text.encode(), file.mode)
        self.turn()

    def put(self, file: Before) -> None:
        if file.data is None:
            self.files.pop(file.path, None)
        else:
            self.files[file.path] = file

    def has(self, path: str) -> bool:
        return path in self.folders

    def make_folder(self, path: str) -> None:
        self.turn()
        self.folders.add(path)

    def remove_folder(self, path: str) -> None:
        self.folders.discard(path)

    def run(self, run: Run, data: bytes = b"") -> bytes:
        self.turn()
        self.done.append(run.words)
        self.turn()
        return b""


def record() -> Record:
    tokens = {"agent": "a", "radio": "r"}
    return Record(Phase.PENDING, "https://c:1", "0" * 64, "box", "claim", tokens, "key")


def interrupted() -> Iterator[int]:
    yield from range(60)


@pytest.mark.parametrize(
    "error", [lambda: HyroadsError("no space"), KeyboardInterrupt, SystemExit], ids=["refused", "interrupted", "ended"]
)
def test_wherever_a_join_ends_what_it_did_is_undone_from_the_record_alone(error: Callable[[], BaseException]) -> None:
    steps = plan(setup(), SECRETS, PRESENT)
    ended = 0
    for at in interrupted():
        machine, stored = Memory(at, error), [record().text()]
        changes = Changes(machine, record(), lambda one, stored=stored: stored.append(one.text()))
        try:
            changes.take(steps)
        except BaseException:  # noqa: BLE001 - the machine's own, of any kind
            ended += 1
        # The process has ended: only the disk counts.
        known = record_of(stored[-1], "join.json")
        begun = [back for back in known.undo if isinstance(back, Commands)]
        again = Changes(machine, known, lambda one, stored=stored: stored.append(one.text()))
        machine.left, machine.done = -1, []
        again.take_back()
        fresh = Memory()
        assert (machine.files, machine.folders) == (fresh.files, fresh.folders), at
        wanted = [run.words for back in reversed(begun) for run in back.undo]
        assert machine.done == wanted
        assert record_of(stored[-1], "join.json").undo == []
        # Twice is as once.
        again.take_back()
        assert machine.files == fresh.files
    assert ended > 20


def test_what_cannot_be_undone_now_stays_in_the_record() -> None:
    machine, stored = Memory(), [record()]
    changes = Changes(machine, record(), stored.append)
    changes.take(plan(setup(), SECRETS, PRESENT))
    whole, machine.left = list(changes.record.undo), 0
    with pytest.raises(HyroadsError, match="no space"):
        changes.take_back()
    assert stored[-1].undo == whole
    changes.take_back()
    assert not changes.record.undo and machine.files == Memory().files


def test_nothing_is_begun_that_can_not_be_recorded() -> None:
    machine = Memory()

    def full(_: Record) -> None:
        raise HyroadsError("join.json: no space left")

    with pytest.raises(HyroadsError, match="no space left"):
        Changes(machine, record(), full).take(plan(setup(), SECRETS, PRESENT))
    assert machine.files == Memory().files and machine.folders == Memory().folders and machine.done == []


def test_the_record_is_read_as_it_was_written_or_refused() -> None:
    changes = Changes(Memory(), record(), lambda _: None)
    changes.take(plan(setup(), SECRETS, PRESENT))
    text = changes.record.text()
    again = record_of(text, "join.json")
    assert again.text() == text and "the key" not in repr(again)
    document = json.loads(text)
    for broken in ("", "{}", "[]", json.dumps({**document, "undo": [{}]}), json.dumps({**document, "undo": 7}),
                   json.dumps({**document, "phase": "x"}), json.dumps({**document, "tokens": 7})):  # fmt: skip
        with pytest.raises(ConfigError, match=r"join\.json"):
            record_of(broken, "join.json")


@given(
    st.sampled_from([None, "https://c:1", "https://d:1"]),
    st.sampled_from([None, "box", "attic"]),
    st.sampled_from([None, "0" * 64, "1" * 64]),
)
def test_a_second_join_continues_only_as_the_first_began(url: str | None, name: str | None, pin: str | None) -> None:
    is_same = url != "https://d:1" and name != "attic" and pin != "1" * 64
    for phase in Phase:
        known = replace(record(), phase=phase)
        if is_same:
            check_again(known, url or known.url, name, pin)
        else:
            with pytest.raises(HyroadsError, match="first hyroads box leave"):
                check_again(known, url or known.url, name, pin)


def test_ports_are_found_and_bridges_taps_and_tunnels_are_not() -> None:
    def link(name: str, kind: str | None = None, ip: str = "", **more: object) -> dict[str, Any]:
        info = {} if kind is None else {"linkinfo": {"info_kind": kind}}
        return {"ifname": name, "link_type": "ether", "mtu": 1500, "address": "00:00:5e:00:53:01", "flags": ["UP"],
                "addr_info": [{"local": ip}], **info, **more}  # fmt: skip

    said = [link("lo", link_type="loopback"), link("eth0", ip="192.0.2.7"), link("wlan0"), link("br0", "bridge"),
            link("up-acc", "tun"), link("veth1", "veth", flags=[]), link("vlan7", "vlan")]  # fmt: skip
    found = interfaces_of(said, "192.0.2.7", lambda name: name == "wlan0")
    assert [(each.name, each.kind, each.uplink, each.up) for each in found] == [
        ("eth0", "ethernet", True, True), ("wlan0", "wifi", False, True), ("veth1", "ethernet", False, False),
    ]  # fmt: skip


@pytest.mark.parametrize("url", ["http://c:1", "c", "https://", "https://c/x", "https://c:99999", "ftp://c"])
def test_an_address_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(HyroadsError, match=r"expected https://HOST:PORT"):
        Link.of(url)


def test_pins_are_compared_as_digits() -> None:
    assert normal_pin(":".join(["AB"] * 32)) == "ab" * 32
    for wrong in ("ab", "zz" * 32, "ab" * 33):
        with pytest.raises(HyroadsError, match="SHA-256"):
            normal_pin(wrong)


def test_files_come_back_with_their_mode_and_are_removed_if_they_were_not_there(tmp_path: Path) -> None:
    system, path = System(), tmp_path / "defaults"
    missing = system.read(str(path))
    path.write_text("old")
    path.chmod(0o640)
    before = system.read(str(path))
    system.put(replace(before, data=b"new", mode=0o600))
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600
    system.put(before)
    assert path.read_text() == "old" and path.stat().st_mode & 0o777 == 0o640
    system.put(missing)
    system.put(missing)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(HyroadsError, match="No such file"):
        system.put(replace(before, path=str(tmp_path / "none" / "file")))
    assert MakeFolder(ETC).path == "/etc/hyroads"
