"""The service of boxes: what an adoption needs, what is saved or taken back, and what a box gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_rig import OPS, TRIANGLE, Rig, settings_of

from hyroads.controller.cli.main import main
from hyroads.controller.core.box_setup import setup_of
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import CertificateRole
from hyroads.controller.files.authority import ISSUED, Authority, revoked_in
from hyroads.controller.files.tls import CertificateCheck, Revoked, certificate_facts, certificate_names
from hyroads.controller.settings.controller import Settings, parse
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, NotSavedError, TooBusyError


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_of(tmp_path_factory.mktemp("authority"))


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


def test_certificate_of_adopted_box_is_noted_before_it_is_given_and_can_be_revoked(tmp_path: Path) -> None:
    rig = Rig(settings_of(tmp_path))
    rig.apply("box")
    rig.service.adopt("box", {"as": "b"}, OPS, wait=False)
    certificate = rig.service.boxes.get("box").adoption.certificate  # type: ignore[union-attr]
    (noted,) = (each for each in Authority.of(tmp_path).issued() if each.box == "box")
    assert noted.name == "b"
    assert main(["identity", "revoke", "b", "--folder", str(tmp_path)]) == 0
    revoked = Revoked(revoked_in(str(tmp_path / "revoked.pem")))
    check = CertificateCheck.of(CertificateRole.NODE, revoked=revoked)
    assert "is revoked" in check.fault(certificate_facts(certificate.encode()))


def test_box_is_not_adopted_while_its_certificate_can_not_be_noted(tmp_path: Path) -> None:
    rig = Rig(settings_of(tmp_path))
    rig.apply("box")
    issued = tmp_path / ISSUED
    issued.unlink()
    issued.mkdir()
    with pytest.raises(NotSavedError, match=ISSUED):
        rig.service.adopt("box", {"as": "b"}, OPS, wait=False)
    assert rig.service.boxes.get("box").node is None


def test_controller_that_can_not_note_certificates_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="not writable"):
        Rig(settings)
