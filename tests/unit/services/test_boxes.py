"""The service of boxes: what an adoption needs, what is saved or taken back, and what a box gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hyroads.controller.cli.main import main
from hyroads.controller.core.box_setup import setup_of
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import token_hash
from hyroads.controller.files.authority import key_digest
from hyroads.controller.files.documents import read_file
from hyroads.controller.files.tls import certificate_names
from hyroads.controller.model.state import Presence, TopologyContext
from hyroads.controller.services.boxes import Adopting, BoxService
from hyroads.controller.settings.controller import Settings, parse
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, NotSavedError, Token, TooBusyError

TRIANGLE = Path(__file__).resolve().parents[3] / "mininet" / "networks" / "triangle.yaml"
OPS = Token("ops", "", "admin")
NOW_S = 1_790_000_000.0


class Saver:
    """A state file that can be full."""

    def __init__(self) -> None:
        self.is_full, self.meanwhile = False, lambda: None

    def check(self) -> None:
        self.meanwhile()

    def change(self, what: str, undo: Callable[[], object]) -> Callable[[], object]:
        return undo

    def wait(self, undo: Callable[[], object]) -> None:
        if self.is_full:
            undo()
            raise NotSavedError("the state file can't be written: No space left on device")


class Connection:
    closed = False

    def close(self) -> None:
        self.closed = True


class Rig:
    def __init__(self, settings: Settings) -> None:
        self.happened: list[str] = []
        self.saver = Saver()
        self.port: Any = SimpleNamespace(
            context=TopologyContext.of(read_file(TRIANGLE)), state=SimpleNamespace(agents={}), switches={},
            saver=self.saver, events=SimpleNamespace(publish=lambda kind, _: self.happened.append(kind)),
            progress=SimpleNamespace(wait=lambda _: self.pass_time()), clock=lambda: self.now_s,
            note_unsaved=lambda: None,
        )  # fmt: skip
        self.now_s = 0.0
        self.service = BoxService(self.port, settings, Adopting.of(settings, "test"), clock=lambda: NOW_S)
        self.tokens: list[set[str]] = []
        self.service.tokens_changed = lambda: self.tokens.append({node for _, node in self.service.tokens})

    def pass_time(self) -> None:
        self.now_s += 1.0

    def apply(self, name: str) -> None:
        self.service.apply(application(name), "192.0.2.7")

    def connect(self, node: str) -> None:
        self.port.switches[node] = SimpleNamespace(connection=Connection())
        self.port.state.agents[node] = Presence.UP


def application(name: str, **more: object) -> dict[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "b")])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request = made.public_bytes(serialization.Encoding.PEM).decode()
    interfaces = [{"name": port, "kind": "ethernet", "mtu": 1500, "address": f"00:00:5e:00:53:0{i}"}
                  for i, port in enumerate(("a-wifi", "a-plc", "b-wifi", "b-plc"))]  # fmt: skip
    tokens = {role: token_hash(role + name) for role in ("agent", "radio")}
    return {"id": name, "key": key_digest(request), "claim": token_hash(name), "tokens": tokens, "request": request,
            "system": "Debian", "interfaces": interfaces, "clock_s": NOW_S, **more}  # fmt: skip


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("authority")
    for words in (["authority"], ["server", "c"]):
        assert main(["identity", *words, "--folder", str(folder)]) == 0
    tls = {"key": "c.key", "certificate": "c.pem"}
    document = {"network": str(TRIANGLE), "rest_tls": tls, "tls": tls, "boxes": {"authority": ".", "most_pending": 2}}
    return parse(document, str(folder / "hyroads.yaml"), {})


@pytest.fixture
def rig(settings: Settings) -> Iterator[Rig]:
    yield Rig(settings)


def test_an_adoption_is_confirmed_only_once_switch_and_agent_are_connected(rig: Rig) -> None:
    rig.apply("box")
    with pytest.raises(NotConfirmedError) as raised:
        rig.service.adopt("box", {"as": "a"}, OPS, wait=True)
    assert raised.value.pending == ["switch a", "agent a"] and rig.now_s >= 10
    rig.connect("a")
    # Asking for the same again changes nothing.
    document = rig.service.adopt("box", {"as": "a"}, OPS, wait=True)
    assert (document["connected"], document["pending"], document["owner"]) == (True, [], "ops")
    assert rig.happened == ["box.pending", "box.adopted", "box.connected"] and rig.tokens == [{"a"}]
    with pytest.raises(ConflictError, match="is adopted as a"):
        rig.service.adopt("box", {"as": "b"}, OPS, wait=True)


def test_a_box_gets_a_certificate_with_the_names_of_its_node_and_a_setup_that_it_can_read(rig: Rig) -> None:
    rig.apply("box")
    rig.service.adopt("box", {"as": "b"}, OPS, wait=False)
    setup = setup_of(rig.service.wait("box", "box", "adopted")["setup"], "192.0.2.1")
    assert certificate_names(setup.certificate.encode()) == ("b", f"{2:016x}")
    assert (setup.node, setup.bridge, setup.openflow.tls, setup.agents is not None) == ("b", "br0", True, True)
    assert {port.what: port.interface for port in setup.ports} == {"wifi": "b-wifi", "plc": "b-plc"}


def test_a_node_that_another_device_is_already_is_not_given_away(rig: Rig) -> None:
    rig.apply("box")
    rig.connect("a")
    with pytest.raises(ConflictError, match="switch a and agent a: connected already"):
        rig.service.adopt("box", {"as": "a"}, OPS, wait=True)
    for node in ("c", "zz", ""):
        with pytest.raises(ConfigError, match="node with a switch"):
            rig.service.adopt("box", {"as": node}, OPS, wait=True)
    assert rig.service.tokens == {} and rig.tokens == []


def test_what_can_not_be_saved_is_taken_back_and_other_boxes_stay(rig: Rig) -> None:
    rig.apply("box")
    rig.saver.is_full = True
    with pytest.raises(NotSavedError):
        rig.service.adopt("box", {"as": "a"}, OPS, wait=True)
    assert rig.service.document("box")["state"] == "pending" and rig.tokens == [{"a"}, set()]
    with pytest.raises(NotSavedError):
        rig.service.forget("box", OPS)
    assert rig.service.names() == ("box",)


def test_a_box_that_applies_while_another_change_waits_for_the_disk_is_not_lost(rig: Rig) -> None:
    rig.apply("box")
    rig.saver.meanwhile = lambda: rig.apply("other") if "other" not in rig.service.names() else None
    rig.service.adopt("box", {"as": "a"}, OPS, wait=False)
    assert rig.service.names() == ("box", "other")


def test_a_forgotten_box_is_cut_off(rig: Rig) -> None:
    rig.apply("box")
    rig.service.adopt("box", {"as": "a"}, OPS, wait=False)
    rig.connect("a")
    rig.service.forget("box", OPS)
    assert rig.port.switches["a"].connection.closed and rig.tokens == [{"a"}, set()]
    with pytest.raises(NotFoundError):
        rig.service.wait("box", "box", "adopted")


def test_a_box_that_fails_ends_the_operation_with_its_reason(rig: Rig) -> None:
    rig.apply("box")
    rig.service.adopt("box", {"as": "a"}, OPS, wait=False)
    rig.service.leave("box", "box", "no space left")
    with pytest.raises(ConflictError, match="has left: no space left"):
        rig.service.pending("box")
    assert rig.tokens == [{"a"}, set()]


def test_pending_boxes_are_bounded_and_come_back_after_a_restart(rig: Rig, settings: Settings) -> None:
    for name in ("one", "two"):
        rig.apply(name)
    with pytest.raises(TooBusyError, match="2 boxes are pending"):
        rig.apply("three")
    again = Rig(settings)
    assert again.service.restore(rig.service.to_save()) == [] and again.service.names() == ("one", "two")
    again.service.adopt("one", {"as": "a"}, OPS, wait=False)
    assert again.service.become([*again.service.to_save(), {"broken": 1}]) and again.service.names() == ("one", "two")


def test_without_the_setting_no_box_can_join(settings: Settings) -> None:
    plain = parse({"network": str(TRIANGLE)}, "hyroads.yaml", {})
    assert not plain.device_tokens.are_asked_for and settings.device_tokens.are_asked_for
    assert not settings.device_tokens.admits("agent", "a", None)
    rig = Rig(plain)
    for ask in (rig.service.pin, rig.service.new_code, lambda: rig.apply("box")):
        with pytest.raises(NotFoundError, match="no setting boxes"):
            ask()
    assert rig.service.names() == ()
