"""Joining as a box goes through it, on a machine in memory and with a controller that is played."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.box import joining, system
from hyroads.controller.box.discovery import Found
from hyroads.controller.box.joining import RECORD, Joining, Wanted
from hyroads.controller.box.link import Link, RefusedError, UnreachableError, WrongControllerError
from hyroads.controller.cli import box_join
from hyroads.controller.cli.main import main
from hyroads.controller.core.adoption import proof
from hyroads.controller.core.box_application import Interface
from hyroads.controller.core.box_record import Before
from hyroads.controller.core.box_setup import KEY, Run, WriteFile
from hyroads.controller.core.errors import HyroadsError

URL, PIN = "https://192.0.2.1:8080", "ab" * 32
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SETUP = {
    "node": "upstairs", "dpid": f"{2:016x}", "bridge": "br0", "vlan_limit": 0, "controllers": [],
    "ports": {"plc": {"interface": "eth1", "name": "eth1"}}, "openflow": {"port": 6653, "tls": True},
    "agents": {"port": 6654, "tls": True}, "certificate": PEM, "authority": PEM,
}  # fmt: skip
ADOPTED = {"state": "adopted", "connected": False, "pending": ["switch upstairs"], "setup": SETUP}
CONNECTED = {**ADOPTED, "connected": True, "pending": []}
WAITS = {"state": "pending", "connected": False, "pending": [], "setup": None}


class Memory:
    """A machine in memory. What ``broken`` says of a path or a command fails."""

    def __init__(self) -> None:
        self.files: dict[str, Before] = {}
        self.folders: set[str] = set()
        self.commands: list[str] = []
        self.broken: Callable[[str], BaseException | None] = lambda _: None
        self.kernel_datapath = False

    def _check(self, what: str) -> None:
        if error := self.broken(what):
            raise error

    def read(self, path: str) -> Before:
        return self.files.get(path, Before(path, None))

    def write(self, file: WriteFile) -> None:
        self.put(Before(file.path, file.text.encode(), file.mode))

    def put(self, file: Before) -> None:
        if file.data is None:
            self.files.pop(file.path, None)
            return
        self._check(file.path)
        self.files[file.path] = file

    def has(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def make_folder(self, path: str, mode: int = 0o755) -> None:
        self.folders.add(path)

    def remove_folder(self, path: str) -> None:
        self.folders.discard(path)

    def check_folder(self, path: str) -> None:
        self._check(path)

    def has_program(self, name: str) -> bool:
        return self.broken(name) is None

    def has_kernel_datapath(self) -> bool:
        return self.kernel_datapath

    def run(self, run: Run, data: bytes = b"") -> bytes:
        line = " ".join(run.words)
        self._check(line)
        self.commands.append(line)
        return b"[]" if line.endswith(" ssl") else b"made" if "openssl" in line else b""

    def operating_system(self) -> str:
        return "Debian"

    def interfaces(self, own_address: str) -> list[Interface]:
        return [
            Interface("eth0", "ethernet", 1500, "b8:27:eb:41:c0:a1", uplink=own_address == "192.0.2.7", up=True),
            Interface("eth1", "ethernet", 1500, "b8:27:eb:41:c0:a2"),
        ]


class Played:
    """A controller with prepared answers: each path gets the next of its own, then the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, list[Any]] = {"": [{"state": "pending", "code_proof": None}], "leave": [None]}
        self.heard: list[tuple[str, Mapping[str, Any]]] = []
        self.shown = PIN
        monkeypatch.setattr(Link, "meet", lambda _: (self.shown, "192.0.2.7"))
        monkeypatch.setattr(Link, "post", lambda link, path, body: self.post(link, path, body))  # noqa: PLW0108 - the link is an argument

    def post(self, link: Link, path: str, body: Mapping[str, Any]) -> Any:
        assert link.pin == PIN
        verb = path.removeprefix("/boxes").rpartition("/")[2]
        self.heard.append((verb, body))
        answers = self.answers[verb]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def said(self, verb: str) -> list[Mapping[str, Any]]:
        return [body for heard, body in self.heard if heard == verb]


class Rig:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine, self.controller = Memory(), Played(monkeypatch)
        self.lines: list[str] = []
        self.now_s = 1_790_000_000.0
        monkeypatch.setattr(joining.os, "geteuid", lambda: 0)
        machine: Any = self.machine
        self.joining = Joining(machine, self.lines.append, self.clock, lambda _: None)

    def clock(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def join(self, **more: Any) -> int:
        return self.joining.join(Wanted(**{"url": URL, **more}))

    @property
    def is_untouched(self) -> bool:
        return not self.machine.files and not self.machine.folders


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_a_box_waits_sets_itself_up_and_ends_once_it_is_connected(rig: Rig) -> None:
    rig.controller.answers["wait"] = [WAITS, UnreachableError("away"), ADOPTED, ADOPTED, CONNECTED]
    assert rig.join() == 0
    assert PIN in rig.lines[0] and "box b827eb-41c0a1, key" in rig.lines[1] and rig.lines[-1] == "upstairs is connected"
    (sent,) = rig.controller.said("")
    secrets = json.loads(rig.machine.files[RECORD].data or b"")
    assert rig.machine.files[RECORD].mode == 0o600 and rig.machine.files[KEY].data == b"made"
    # Only hashes of secrets leave the box before it is trusted.
    for secret in (secrets["claim"], *secrets["tokens"].values()):
        assert secret not in json.dumps(sent)
    assert rig.join() == 0 and rig.lines[-1] == "this box is upstairs already"
    assert rig.joining.leave() == 0
    assert rig.is_untouched and rig.lines[-1] == "left: upstairs" and len(rig.controller.said("leave")) == 1
    assert rig.joining.leave() == 0 and rig.lines[-1] == "this box has not joined"


@pytest.mark.parametrize("in_kernel", [False, True])
def test_the_bridge_forwards_in_user_space_only_where_the_kernel_has_no_datapath(rig: Rig, in_kernel: bool) -> None:
    rig.machine.kernel_datapath = in_kernel
    rig.controller.answers["wait"] = [ADOPTED, CONNECTED]
    assert rig.join() == 0
    assert any("datapath_type=netdev" in command for command in rig.machine.commands) != in_kernel


def test_a_datapath_that_is_built_into_the_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, int] = {}
    monkeypatch.setattr(system, "family_id", known.get)
    assert not system.System().has_kernel_datapath()
    known["ovs_datapath"] = 30
    assert system.System().has_kernel_datapath()


def test_without_an_address_the_network_names_the_controller_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    named = [[Found(URL, "DNS")]]
    monkeypatch.setattr(joining, "find_controllers", named.pop)
    rig.controller.answers["wait"] = [WAITS, KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        rig.join(url=None)
    rig.controller.answers["wait"] = [ADOPTED, CONNECTED]
    # It continues with the same one, and does not look again.
    assert rig.join(url=None) == 0 and named == []


REFUSED = {
    "clock": RefusedError(403, "the clock of the box says 1970-01-01, that of the controller 2026-09-21: set it"),
    "name": RefusedError(409, "box b827eb-41c0a1 is adopted with another key"),
    "full": UnreachableError("32 boxes are pending"),
    "away": UnreachableError("Connection reset"),
    "stop": KeyboardInterrupt(),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_box_that_is_refused_has_changed_nothing(rig: Rig, why: str) -> None:
    rig.controller.answers[""] = [REFUSED[why]]
    with pytest.raises(type(REFUSED[why])):
        rig.join()
    assert rig.is_untouched


def test_a_wrong_pin_and_an_impostor_who_lacks_the_code_are_found(rig: Rig) -> None:
    rig.controller.shown = "cd" * 32
    with pytest.raises(WrongControllerError, match=f"wrong pin.*{'cd' * 32}"):
        rig.join(pin=PIN)
    assert rig.is_untouched and not rig.controller.heard
    rig.controller.shown = PIN
    for answer in ({"code_proof": None}, {"code_proof": "0" * 64}, {}, []):
        rig.controller.answers[""] = [answer]
        with pytest.raises(WrongControllerError, match="does not know the join code"):
            rig.join(code="AAAA")
        assert rig.is_untouched
    rig.controller.answers[""] = [lambda body: {"code_proof": proof("AAAA", "controller", PIN, body["key"])}]
    rig.controller.answers["wait"] = [ADOPTED, CONNECTED]
    assert rig.join(code="aa-aa") == 0


def broken(word: str, error: BaseException) -> Callable[[str], BaseException | None]:
    return lambda what: error if word in what else None


@pytest.mark.parametrize("word", [KEY, "ap.json", "daemon-reload", "enable --now hyroads-edge@", "add-br"])
@pytest.mark.parametrize("error", [HyroadsError("No space left on device"), KeyboardInterrupt()], ids=["disk", "stop"])
def test_a_join_that_fails_is_undone_and_the_controller_hears_why(rig: Rig, word: str, error: BaseException) -> None:
    rig.controller.answers["wait"] = [ADOPTED]

    def once(what: str) -> BaseException | None:
        if word not in what:
            return None
        rig.machine.broken = lambda _: None
        return error

    rig.machine.broken = once
    with pytest.raises(type(error)):
        rig.join()
    assert rig.is_untouched
    (left,) = rig.controller.said("leave")
    assert left["problem"] in ("No space left on device", "interrupted")


def test_what_can_not_be_undone_waits_for_leave(rig: Rig) -> None:
    rig.controller.answers["wait"] = [ADOPTED]
    rig.machine.broken = broken("ovs-vsctl --timeout=20", HyroadsError("no database"))
    with pytest.raises(HyroadsError, match="no database"):
        rig.join()
    assert RECORD in rig.machine.files
    with pytest.raises(HyroadsError, match="no database"):
        rig.joining.leave()
    rig.machine.broken = lambda _: None
    assert rig.joining.leave() == 0 and rig.is_untouched


def test_a_box_that_lost_its_power_continues_with_the_same_key_after_undoing_the_rest(rig: Rig) -> None:
    rig.controller.answers["wait"] = [ADOPTED]

    class PowerLost(BaseException):
        pass

    rig.machine.broken = broken("add-br", PowerLost())
    with pytest.raises(PowerLost):
        rig.join(pin=PIN)
    assert KEY in rig.machine.files
    rig.machine.broken = lambda _: None
    rig.controller.answers["wait"] = [ADOPTED, CONNECTED]
    with pytest.raises(HyroadsError, match="first hyroads box leave"):
        rig.join(name="attic")
    assert rig.join() == 0
    assert "interrupted: undoing" in rig.lines[-6] or any("interrupted: undoing" in line for line in rig.lines)
    first, second = rig.controller.said("")
    assert (first["key"], first["claim"]) == (second["key"], second["claim"])


def test_a_forgotten_box_starts_over_and_an_interrupted_one_still_waits(rig: Rig) -> None:
    rig.controller.answers["wait"] = [WAITS, KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        rig.join()
    assert list(rig.machine.files) == [RECORD] and "still waits" in rig.lines[-1]
    rig.controller.answers["wait"] = [RefusedError(404, "not known")]
    with pytest.raises(HyroadsError, match="has forgotten box b827eb-41c0a1: join again"):
        rig.join()
    assert rig.is_untouched


def test_a_hostile_answer_is_one_line_and_undone(rig: Rig) -> None:
    for setup in ({**SETUP, "node": "../../etc"}, {**SETUP, "bridge": "a;b"}, {}, {**SETUP, "ports": {"plc": 7}}):
        rig.controller.answers["wait"] = [{**ADOPTED, "setup": setup}]
        with pytest.raises(HyroadsError, match="the controller's answer: "):
            rig.join()
        assert rig.is_untouched and not [each for each in rig.machine.commands if "add-br" in each]


def test_a_node_that_does_not_connect_stays_set_up_and_is_said(rig: Rig) -> None:
    rig.controller.answers["wait"] = [ADOPTED]
    assert rig.join() == 1
    assert rig.lines[-1] == "upstairs is set up, but not connected after 60 s: switch upstairs"
    assert KEY in rig.machine.files and rig.joining.leave() == 0


def test_a_controller_that_goes_after_the_adoption_is_not_waited_for_without_end(rig: Rig) -> None:
    rig.controller.answers["wait"] = [ADOPTED, UnreachableError("away")]
    assert rig.join() == 1
    assert rig.lines[-1].endswith("not connected after 60 s: controller")


def test_a_box_that_has_left_elsewhere_does_not_wait_on(rig: Rig) -> None:
    rig.controller.answers["wait"] = [{**WAITS, "state": "left"}]
    with pytest.raises(HyroadsError, match="has left: join again"):
        rig.join()
    assert rig.is_untouched


def test_a_second_join_or_leave_at_the_same_time_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setattr(box_join, "LOCK", str(lock))
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for words in (["join", URL], ["leave"]):
            assert main(["box", *words]) == 2
            assert capsys.readouterr().err == "hyroads: another hyroads box join or leave runs: end it first\n"


def test_a_machine_without_the_libraries_of_a_controller_has_the_verbs_of_a_box() -> None:
    program = (
        "import sys; sys.modules['yaml'] = None; from hyroads.controller.cli.box import verbs; print(*dict(verbs()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    found = done.stdout.split()
    assert {"join", "leave"} <= set(found) and "list" not in found, done.stderr


def test_leave_without_the_controller_says_what_is_left_to_do_there(rig: Rig) -> None:
    rig.controller.answers["wait"] = [ADOPTED, CONNECTED]
    assert rig.join() == 0
    rig.controller.answers["leave"] = [UnreachableError("https://192.0.2.1:8080: No route to host")]
    assert rig.joining.leave() == 0 and rig.is_untouched
    assert rig.lines[-2].endswith("forget this box at the controller: hyroads box forget b827eb-41c0a1")


@pytest.mark.parametrize("missing", ["openssl", "ovs-vsctl", "hyroads-edge"])
def test_a_missing_program_is_named_with_its_package(rig: Rig, missing: str) -> None:
    rig.machine.broken = broken(missing, HyroadsError("x"))
    with pytest.raises(HyroadsError, match=f"{missing} is not installed: apt install"):
        rig.join()
    assert rig.is_untouched and not rig.controller.heard


def test_a_machine_that_was_set_up_by_hand_is_left_alone(rig: Rig) -> None:
    rig.machine.files[KEY] = Before(KEY, b"mine")
    with pytest.raises(HyroadsError, match="set up by hand"):
        rig.join()
    assert list(rig.machine.files) == [KEY]
