"""Emulation on kernels that differ: generic netlink, built-in Open vSwitch, no IPv6, no BBR."""

from __future__ import annotations

import errno
import struct
import subprocess

import pytest

from hyroads.controller.kernel.generic_netlink import GenericNetlink, family_id
from hyroads.controller.kernel.netlink import Message, NetlinkError, acknowledged_number, check_end, text_attribute
from hyroads.mininet import hybrid, shared_medium
from hyroads.mininet.demos import triangle
from hyroads.mininet.demos.checks import Check
from hyroads.mininet.demos.verdict import Stage
from hyroads.mininet.reference import Lane
from hyroads.mininet.traffic import has_congestion_control


def test_the_family_that_knows_all_others_has_its_fixed_number():
    assert family_id("nlctrl") == 16


def test_a_family_that_the_kernel_does_not_have():
    assert family_id("hyroads_none") is None
    with pytest.raises(NetlinkError, match="no generic netlink family hyroads_none") as caught:
        GenericNetlink("hyroads_none")
    assert caught.value.number == errno.ENOENT


def test_families_are_listed_by_name():
    with GenericNetlink("nlctrl", version=2) as control:
        listed = control.dump(3)
        assert any(b"nlctrl\0" in entry for entry in listed)
        assert control.command(3, text_attribute(2, "nlctrl")) == 0


@pytest.mark.parametrize(("number", "expected"), [(0, 0), (7, 7)])
def test_an_acknowledgement_may_carry_a_number(number: int, expected: int):
    assert acknowledged_number(Message(2, 0, struct.pack("=i", number) + bytes(16))) == expected


@pytest.mark.parametrize("payload", [b"", b"\1\2\3"])
def test_a_short_acknowledgement_is_an_error(payload: bytes):
    with pytest.raises(NetlinkError, match="too short"):
        acknowledged_number(Message(2, 0, payload))


def test_a_refusal_is_named():
    with pytest.raises(NetlinkError, match="EPERM"):
        acknowledged_number(Message(2, 0, struct.pack("=i", -errno.EPERM) + bytes(16)))


def test_refusal_at_the_end_of_a_list_is_an_error():
    """As of stations of an interface that is no radio: the list is empty, and its end says why."""
    with pytest.raises(NetlinkError, match="not supported") as caught:
        check_end(Message(3, 0, struct.pack("=i", -errno.EOPNOTSUPP)))
    assert caught.value.number == errno.EOPNOTSUPP
    for ended in (b"", bytes(4)):
        check_end(Message(3, 0, ended))


@pytest.fixture
def modprobe(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    asked: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: asked.append(words))
    return asked


def families(monkeypatch: pytest.MonkeyPatch, *answers: int | None) -> None:
    rest = list(answers)
    monkeypatch.setattr(hybrid, "family_id", lambda name: rest.pop(0) if name == "ovs_datapath" else None)


def test_open_vswitch_in_the_kernel_is_used_without_a_module(monkeypatch, modprobe):
    families(monkeypatch, 23, 23)
    assert hybrid.datapath_type() == "system"
    assert modprobe == []


def test_its_module_is_loaded_first_where_there_is_one(monkeypatch, modprobe):
    families(monkeypatch, None, 23)
    assert hybrid.datapath_type() == "system"
    assert modprobe == [["modprobe", "-q", "openvswitch"]]


def test_without_any_the_bridges_run_in_user_space(monkeypatch, modprobe):
    families(monkeypatch, None, None)
    assert hybrid.datapath_type() == "netdev"


def test_a_kernel_without_ipv6_has_nothing_to_silence(monkeypatch, tmp_path):
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(shared_medium, "run", lambda *words: ran.append(words))
    monkeypatch.setattr(shared_medium, "IPV6_SETTINGS", tmp_path / "none")
    shared_medium.silence_ipv6("a.1-host")
    assert ran == []
    monkeypatch.setattr(shared_medium, "IPV6_SETTINGS", tmp_path)
    shared_medium.silence_ipv6("a.1-host")
    assert ran == [("sysctl", "-qw", "net.ipv6.conf.a/1-host.disable_ipv6=1")]


def test_congestion_controls_are_asked_of_the_kernel():
    assert has_congestion_control("reno")
    assert not has_congestion_control("hyroads-none")


class Quiet:
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def phase(self, text: str) -> None:
        self.notes.append(text)


def test_a_check_that_cannot_be_made_here_is_left_out_and_named(monkeypatch):
    stage = Stage.__new__(Stage)
    stage.checks, stage.skipped = [Check("x", 10.0, 9.9, at_least=0.9)], []
    stage.lane = Lane()
    stage.__dict__["view"] = Quiet()
    monkeypatch.setattr(triangle, "has_congestion_control", lambda name: name == "cubic")
    triangle.tcp(stage, triangle.Theory(10.0, 16.0, 15.0), 1.0, "bbr")
    assert stage.skipped == [
        {"what": "TCP bbr over the multipath", "why": "this kernel has no TCP congestion control bbr"}
    ]
    assert len(stage.checks) == 1
    assert stage.ok
    assert any(note.startswith("skip TCP bbr") for note in stage.view.notes)
