"""Subflows of a client's MPTCP connections: laws on a small model of the kernel, and the kernel's own messages."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.client import host
from hyroads.controller.client.flow_match import Match
from hyroads.controller.client.modes import ModeError, Modes
from hyroads.controller.client.mptcp import (
    DRAIN_S,
    MAX_CONNECTIONS,
    MAX_REMOTES,
    RETURN_S,
    Interface,
    Subflows,
)
from hyroads.controller.client.mptcp_netlink import (
    Command,
    CreateSubflow,
    DestroySubflow,
    Endpoint,
    Event,
    EventKind,
    RemoveAddress,
    SetBackup,
    parse_event,
)
from hyroads.controller.client.mptcp_runner import PathManager
from hyroads.controller.client.policy import MODES, Policy, load_text
from hyroads.controller.kernel.netlink import NetlinkError, attribute_map

SERVER = Endpoint("198.51.100.9", 7000)
TOKEN = 0xC6EC14C5
POLICY = "interfaces: {wlan0: {}, lan0: {}, wwan0: {metered: true}}\nplane: mptcp\n"
ADDRESSES = {"wlan0": "10.1.0.2", "lan0": "10.3.0.2", "wwan0": "10.2.0.2"}
OWN = "10.171.0.2"


def policy(text: str = POLICY) -> Policy:
    return load_text(text, "client.yaml")


def interfaces(**usable: bool) -> dict[str, Interface]:
    """All of them up, but for those that are named."""
    return {
        name: Interface(name, number, usable.get(name, True), {4: address}, (f"{address[:-2]}.0/24",))
        for number, (name, address) in enumerate(ADDRESSES.items(), start=2)
    }


class Kernel:
    """The kernel's end for one connection: what it was told, and what it tells."""

    def __init__(self, subflows: Subflows, local: str = "10.1.0.2") -> None:
        self.manager = subflows
        self.now_s = 100.0
        self.ports = iter(range(40_000, 60_000))
        self.backups: dict[tuple[Endpoint, Endpoint], bool] = {}
        self.ids: dict[tuple[Endpoint, Endpoint], int] = {}
        self.forgets: Iterator[bool] = iter(())
        self.done: list[Command] = []
        self.refuses: Iterator[bool] = iter(())
        self.first = Endpoint(local, next(self.ports))

    def begin(self, *, denies_join: bool = False, server_side: bool = False) -> None:
        for kind in (EventKind.CREATED, EventKind.ESTABLISHED):
            self.tell(Event(kind, TOKEN, self.first, SERVER, denies_join=denies_join, server_side=server_side))
        self.backups[self.first, SERVER] = False
        self.ids[self.first, SERVER] = 0

    def tell(self, event: Event) -> None:
        self.manager.event(event, self.now_s)

    def run(self, seconds: float = 0.0) -> None:
        """Carries out what is due until then."""
        end_s = self.now_s + seconds
        for _ in range(200):
            for command in self.manager.commands(self.now_s):
                self._do(command)
            next_s = self.manager.next_s()
            if next_s is None or next_s > end_s:
                break
            self.now_s = max(self.now_s, next_s)
        else:
            pytest.fail("it never comes to rest")
        self.now_s = end_s

    def _do(self, command: Command) -> None:
        self.done.append(command)
        if isinstance(command, CreateSubflow | DestroySubflow) and next(self.refuses, False):
            if isinstance(command, DestroySubflow):
                # That one had just ended by itself.
                self.backups.pop((command.local, command.remote), None)
            self.manager.refused(command, self.now_s)
        elif isinstance(command, CreateSubflow):
            local = replace(command.local, port=next(self.ports))
            self.backups[local, command.remote] = command.backup
            self.ids[local, command.remote] = command.local_id
            self._event(EventKind.SUBFLOW_ESTABLISHED, local, command.remote, command.local_id, command.interface)
        elif isinstance(command, SetBackup):
            assert (command.local, command.remote) in self.backups
            self.backups[command.local, command.remote] = command.backup
        elif isinstance(command, DestroySubflow):
            if not self._end(command.local, command.remote):
                self.manager.refused(command, self.now_s)
        elif not next(self.forgets, False):
            for local, remote in [ends for ends in self.backups if self.ids[ends] == command.local_id]:
                self._end(local, remote)

    def _end(self, local: Endpoint, remote: Endpoint) -> bool:
        if (local, remote) not in self.backups:
            return False
        assert len(self.backups) > 1, "the last subflow was ended"
        del self.backups[local, remote]
        self._event(EventKind.SUBFLOW_CLOSED, local, remote, self.ids[local, remote])
        return True

    def _event(self, kind: EventKind, local: Endpoint, remote: Endpoint, local_id: int = 0, index: int = 0) -> None:
        self.tell(Event(kind, TOKEN, local, remote, local_id, interface=index))

    def subflows(self) -> dict[str, bool]:
        """Address -> whether the subflow from there is a backup."""
        assert len({local.address for local, _ in self.backups}) == len(self.backups), "two subflows from one address"
        return {local.address: backup for (local, _), backup in self.backups.items()}


def begun(text: str = POLICY, mode: str = "full-speed", own: str | None = None) -> Kernel:
    manager = Subflows(policy(text), Modes(mode), (own,))
    kernel = Kernel(manager, own or "10.1.0.2")
    manager.see(interfaces(), kernel.now_s)
    kernel.begin()
    kernel.run(1.0)
    return kernel


def test_the_modes() -> None:
    kernel = begun()
    assert kernel.subflows() == {"10.1.0.2": False, "10.3.0.2": False, "10.2.0.2": False}
    kernel.manager.configure(policy(), Modes("cost-efficient"), (), kernel.now_s)
    kernel.run(1.0)
    assert kernel.subflows() == {"10.1.0.2": False, "10.3.0.2": False, "10.2.0.2": True}
    kernel.manager.choose(f"{TOKEN:08x}", "full-speed", kernel.now_s)
    with pytest.raises(ModeError, match="unknown MPTCP connection '00000000'"):
        kernel.manager.choose("00000000", "full-speed", kernel.now_s)
    kernel.run()
    assert kernel.subflows()["10.2.0.2"] is False
    (document,) = kernel.manager.documents()
    assert (document["token"], document["name"], document["mode"]) == ("c6ec14c5", "rest", "full-speed")
    assert [each["interface"] for each in document["subflows"]] == ["wlan0", "lan0", "wwan0"]


def test_over_hr0_copies_are_robust_and_the_interfaces_fast() -> None:
    kernel = begun(own=OWN)
    assert kernel.subflows() == {OWN: True, "10.1.0.2": False, "10.3.0.2": False, "10.2.0.2": False}
    kernel.manager.choose("c6ec14c5", "high-robustness", kernel.now_s)
    kernel.run()
    assert kernel.subflows() == {OWN: False, "10.1.0.2": True, "10.3.0.2": True, "10.2.0.2": True}
    (flow,) = kernel.manager.copied()
    assert flow.name == "rest#c6ec14c5"
    assert flow.match.fits((OWN, kernel.first.port), ("198.51.100.9", 7000))
    assert not flow.match.fits((OWN, kernel.first.port + 1), ("198.51.100.9", 7000))
    kernel.manager.choose("c6ec14c5", "full-speed", kernel.now_s)
    assert kernel.manager.copied() == []


def test_before_one_becomes_a_backup_the_others_are_none() -> None:
    kernel = begun(own=OWN)
    kernel.done.clear()
    kernel.manager.choose("c6ec14c5", "high-robustness", kernel.now_s)
    kernel.run()
    assert [each.backup for each in kernel.done if isinstance(each, SetBackup)] == [False, True, True, True]
    kernel.done.clear()
    kernel.run(5.0)
    assert len(kernel.done) == 4, "told again once, as nothing acknowledges it"
    kernel.run(60.0)
    assert len(kernel.done) == 4


def test_a_lost_carrier_ends_the_subflow_at_once_and_the_peer_is_told() -> None:
    kernel = begun(mode="cost-efficient")
    kernel.done.clear()
    kernel.manager.see(interfaces(wlan0=False, lan0=False), kernel.now_s)
    kernel.run()
    assert kernel.subflows() == {"10.2.0.2": True}
    kinds = [type(each) for each in kernel.done]
    assert kinds == [RemoveAddress, DestroySubflow, RemoveAddress, DestroySubflow]
    kernel.manager.see(interfaces(lan0=False), kernel.now_s)
    kernel.run(2 * RETURN_S)
    assert kernel.subflows() == {"10.1.0.2": False, "10.2.0.2": True}


def test_a_metered_subflow_that_was_alone_is_relieved_of_what_it_has_not_sent() -> None:
    kernel = begun(mode="cost-efficient")
    kernel.manager.see(interfaces(wlan0=False, lan0=False), kernel.now_s)
    kernel.run(1.0)
    kernel.manager.see(interfaces(lan0=False), kernel.now_s)
    kernel.run()
    assert kernel.subflows() == {"10.1.0.2": False}
    kernel.run(2 * RETURN_S)
    assert kernel.subflows() == {"10.1.0.2": False, "10.2.0.2": True}
    kernel.done.clear()
    kernel.manager.see(interfaces(), kernel.now_s)
    kernel.run(10.0)
    assert [type(each) for each in kernel.done] == [CreateSubflow], "only the first that comes relieves"


def test_without_any_carrier_the_connection_waits() -> None:
    kernel = begun()
    kernel.manager.see(interfaces(wlan0=False, lan0=False, wwan0=False), kernel.now_s)
    kernel.run(60.0)
    assert len(kernel.subflows()) == 3
    kernel.manager.see(interfaces(lan0=False, wwan0=False), kernel.now_s)
    kernel.run(1.0)
    assert kernel.subflows() == {"10.1.0.2": False}


def test_what_is_no_longer_allowed_is_a_backup_first_and_drains() -> None:
    kernel = begun()
    only = policy(POLICY + "flows: [{name: one, match: {tcp_dst: 7000}, interfaces: [lan0]}]\n")
    kernel.manager.configure(only, Modes(), (), kernel.now_s)
    kernel.run(0.9 * DRAIN_S)
    assert kernel.subflows() == {"10.1.0.2": True, "10.3.0.2": False, "10.2.0.2": True}
    assert all(each["draining"] for each in kernel.manager.documents()[0]["subflows"] if each["backup"])
    kernel.run(0.2 * DRAIN_S)
    assert kernel.subflows() == {"10.3.0.2": False}


def test_what_is_allowed_again_while_it_drains_stays() -> None:
    kernel = begun()
    only = policy(POLICY + "flows: [{name: one, match: {tcp_dst: 7000}, interfaces: [lan0]}]\n")
    kernel.manager.configure(only, Modes(), (), kernel.now_s)
    kernel.run(0.5 * DRAIN_S)
    kernel.manager.configure(policy(), Modes(), (), kernel.now_s)
    kernel.run(3 * DRAIN_S)
    assert kernel.subflows() == {"10.1.0.2": False, "10.3.0.2": False, "10.2.0.2": False}
    assert not [each for each in kernel.done if isinstance(each, DestroySubflow)]


def test_another_address_of_an_interface_is_used_and_the_old_one_ends() -> None:
    kernel = begun()
    changed = interfaces()
    changed["wlan0"] = replace(changed["wlan0"], addresses={4: "10.1.0.77"})
    kernel.manager.see(changed, kernel.now_s)
    kernel.run()
    assert kernel.subflows() == {"10.1.0.77": False, "10.3.0.2": False, "10.2.0.2": False}


def test_subflows_that_fail_are_tried_again_ever_more_seldom() -> None:
    kernel = begun()
    kernel.refuses = iter([True] * 1000)
    kernel.manager.see(interfaces(wwan0=False), kernel.now_s)
    kernel.run()
    kernel.manager.see(interfaces(), kernel.now_s)
    kernel.done.clear()
    kernel.run(120.0)
    assert 5 <= len([each for each in kernel.done if isinstance(each, CreateSubflow)]) <= 12
    kernel.refuses = iter(())
    kernel.run(31.0)
    assert kernel.subflows()["10.2.0.2"] is False


def test_a_subflow_that_is_never_established_is_given_up_and_tried_again() -> None:
    manager = Subflows(policy(), Modes())
    kernel = Kernel(manager)
    manager.see(interfaces(lan0=False), kernel.now_s)
    kernel.begin()
    first = manager.commands(kernel.now_s)
    assert [type(each) for each in first] == [CreateSubflow]
    assert manager.commands(kernel.now_s + 1.0) == []
    assert manager.next_s() == kernel.now_s + 3.0
    assert manager.commands(kernel.now_s + 3.0) == []
    assert manager.commands(kernel.now_s + 3.3) == first


@pytest.mark.parametrize(
    ("local", "remote"),
    [("127.0.0.1", "127.0.0.1"), ("172.17.0.1", "198.51.100.9"), ("10.1.0.2", "10.1.0.99"), ("10.1.0.2", "10.2.0.9")],
)
def test_connections_elsewhere_and_on_a_link_are_left_alone(local: str, remote: str) -> None:
    manager = Subflows(policy(), Modes())
    manager.see(interfaces(), 0.0)
    for kind in (EventKind.CREATED, EventKind.ESTABLISHED):
        manager.event(Event(kind, TOKEN, Endpoint(local, 40000), Endpoint(remote, 7000)), 0.0)
    assert manager.commands(0.0) == []
    assert manager.documents() == []
    manager.event(Event(EventKind.CLOSED, TOKEN), 1.0)
    assert manager.next_s() is None


def test_connections_that_others_opened_are_theirs() -> None:
    manager = Subflows(policy(), Modes())
    kernel = Kernel(manager)
    manager.see(interfaces(), kernel.now_s)
    kernel.begin(server_side=True)
    assert manager.commands(kernel.now_s) == []


def test_a_peer_that_denies_joins_to_its_first_address_is_joined_at_an_announced_one() -> None:
    manager = Subflows(policy(), Modes())
    kernel = Kernel(manager)
    manager.see(interfaces(lan0=False), kernel.now_s)
    kernel.begin(denies_join=True)
    assert manager.commands(kernel.now_s) == []
    for number in range(1, 40):
        kernel.tell(Event(EventKind.ANNOUNCED, TOKEN, remote=Endpoint(f"198.51.100.{10 + number}"), remote_id=number))
    kernel.run(1.0)
    (made,) = (each for each in kernel.done if isinstance(each, CreateSubflow))
    assert made.remote == Endpoint("198.51.100.11", 7000)
    for number in range(1, MAX_REMOTES + 1):
        kernel.tell(Event(EventKind.REMOVED, TOKEN, remote_id=number))
    manager.see(interfaces(), kernel.now_s)
    assert not [each for each in manager.commands(kernel.now_s) if isinstance(each, CreateSubflow)]


def test_connections_are_bounded() -> None:
    manager = Subflows(policy(), Modes())
    for token in range(MAX_CONNECTIONS + 5):
        manager.event(Event(EventKind.CREATED, token, Endpoint("10.1.0.2", 4000), SERVER), 0.0)
    assert manager.ignored == 5
    manager.event(Event(EventKind.CLOSED, 0), 0.0)
    manager.event(Event(EventKind.CREATED, 1 << 31, Endpoint("10.1.0.2", 4000), SERVER), 0.0)
    assert manager.ignored == 5


def test_at_the_end_each_connection_has_one_subflow() -> None:
    kernel = begun(mode="cost-efficient")
    commands = kernel.manager.leave("wwan0")
    assert [type(each) for each in commands] == [SetBackup] + 2 * [RemoveAddress, DestroySubflow]
    assert isinstance(commands[0], SetBackup)
    assert (commands[0].local.address, commands[0].backup) == ("10.2.0.2", False)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (Match(), True),
        (Match("tcp", destination_ports=((7000, 7000),)), True),
        (Match("tcp", destination_ports=((443, 443),)), False),
        (Match("udp"), False),
        (Match(destination="198.51.100.0/24"), True),
        (Match(source="10.2.0.0/16"), False),
        (Match(destination="2001:db8::/32"), False),
        (Match(dscp=0), False),
        (Match(application="firefox"), False),
    ],
)
def test_which_flows_of_the_policy_are_for_a_connection(match: Match, expected: bool) -> None:
    assert match.fits(("10.1.0.2", 40000), (SERVER.address, SERVER.port)) is expected


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("usable"), st.sampled_from(sorted(ADDRESSES)), st.booleans()),
        st.tuples(st.just("mode"), st.sampled_from(MODES), st.none()),
        st.tuples(st.just("allow"), st.sets(st.sampled_from(sorted(ADDRESSES)), min_size=1), st.none()),
        st.tuples(st.just("closed"), st.integers(0, 3), st.none()),
        st.tuples(st.just("wait"), st.floats(0.0, 3.0), st.none()),
    ),
    max_size=12,
)


@examples(150)
@given(steps=STEPS, seed=st.integers(0, 1000), refusals=st.floats(0.0, 0.4), own=st.sampled_from([None, OWN]))
def test_whatever_happens_it_settles_as_policy_and_interfaces_say(
    steps: list[tuple[str, object, object]], seed: int, refusals: float, own: str | None
) -> None:
    chance = random.Random(seed)
    kernel = begun(own=own)
    kernel.refuses = kernel.forgets = iter(lambda: chance.random() < refusals, None)
    usable, mode, allowed = dict.fromkeys(ADDRESSES, True), "full-speed", set(ADDRESSES)
    for kind, value, flag in steps:
        if kind == "usable":
            usable[str(value)] = bool(flag)
            kernel.manager.see(interfaces(**usable), kernel.now_s)
        elif kind in ("mode", "allow"):
            mode = str(value) if kind == "mode" else mode
            allowed = set(value) if isinstance(value, set) else allowed
            kernel.manager.configure(_with(allowed), Modes(mode), (own,), kernel.now_s)
        elif kind == "closed" and len(kernel.backups) > int(str(value)):
            local, remote = [*kernel.backups][int(str(value))]
            del kernel.backups[local, remote]
            kernel.tell(Event(EventKind.SUBFLOW_CLOSED, TOKEN, local, remote))
        kernel.run(float(str(value)) if kind == "wait" else 0.01)
    kernel.refuses = kernel.forgets = iter(())
    kernel.run(100.0)
    _check(kernel.subflows(), usable, allowed, mode, own)
    kernel.done.clear()
    kernel.run(600.0)
    assert kernel.done == [], "settled"


def _with(allowed: set[str]) -> Policy:
    return policy(f"{POLICY}flows: [{{name: one, interfaces: [{', '.join(sorted(allowed))}]}}]\n")


def _check(
    found: Mapping[str, bool], usable: Mapping[str, bool], allowed: set[str], mode: str, own: str | None
) -> None:
    wanted = {ADDRESSES[name] for name in allowed if usable[name]}
    if not wanted:
        return
    over_own = own in found
    assert set(found) - {own} == wanted
    robust = mode == "high-robustness" and over_own
    free = allowed - {"wwan0"}
    for address in wanted:
        saving = mode == "cost-efficient" and bool(free) and address == ADDRESSES["wwan0"]
        assert found[address] is (robust or saving)
    if over_own:
        assert found[str(own)] is not robust


def test_a_kernel_without_mptcp_is_told_of_once_and_nothing_else_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host, "_PROC", tmp_path)
    manager = PathManager(tmp_path)
    for _ in range(3):
        manager.configure(policy(), Modes())
    assert caplog.messages == [
        "mptcp: this kernel has no MPTCP with a path manager in user space: connections have one subflow"
    ]
    assert manager.documents() == []
    with pytest.raises(ModeError, match="unknown MPTCP connection"):
        manager.choose("c6ec14c5", "full-speed")
    manager.stop()
    assert [*tmp_path.iterdir()] == []


# What the kernel (6.18) said in a connection from 10.9.0.2 and 10.9.1.2 to 198.51.100.9, port 7000.
CREATED = "0101000008000100c514ecc60600020002000000080005000a09000208000700c633640906000900c400000006000a001b58000005000300000000000500040000000000"  # noqa: E501
CREATED_MAPPED = "010100000800010085db2bd0060002000a0000001400060000000000000000000000ffff0a0900021400080000000000000000000000ffffc633640906000900a13e000006000a001b58000005000300000000000500040000000000"  # noqa: E501
JOINED = "0a01000008000100c514ecc60600020002000000080005000a09010208000700c633640906000900a40d000006000a001b5800000500030001000000050004000000000005000b000000000008000f0003000000"  # noqa: E501
CLOSED = "0301000008000100c514ecc6"


def test_the_kernel_s_own_messages_are_understood() -> None:
    created = parse_event(bytes.fromhex(CREATED))
    assert created == Event(EventKind.CREATED, TOKEN, Endpoint("10.9.0.2", 50176), SERVER)
    mapped = parse_event(bytes.fromhex(CREATED_MAPPED))
    assert mapped is not None
    assert (mapped.local, mapped.remote) == (Endpoint("10.9.0.2", 41278), SERVER)
    joined = parse_event(bytes.fromhex(JOINED))
    local = Endpoint("10.9.1.2", 41997)
    assert joined == Event(EventKind.SUBFLOW_ESTABLISHED, TOKEN, local, SERVER, 1, interface=3)
    assert parse_event(bytes.fromhex(CLOSED)) == Event(EventKind.CLOSED, TOKEN)
    assert parse_event(b"\x63\x01\x00\x00") is None, "kinds of later kernels are passed over"


@examples(200)
@given(
    message=st.sampled_from([CREATED, CREATED_MAPPED, JOINED, CLOSED]),
    cut=st.integers(0, 110),
    changes=st.lists(st.tuples(st.integers(0, 109), st.integers(0, 255)), max_size=4),
)
def test_broken_messages_are_refused_by_the_module_s_own_error(
    message: str, cut: int, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(bytes.fromhex(message)[:cut])
    for place, value in changes:
        if place < len(data):
            data[place] = value
    try:
        event = parse_event(bytes(data))
    except NetlinkError:
        return
    manager = Subflows(policy(), Modes())
    manager.see(interfaces(), 0.0)
    if event is not None:
        manager.event(event, 0.0)
        manager.commands(0.0)


def test_commands_as_the_kernel_wants_them() -> None:
    kind, body = CreateSubflow(TOKEN, Endpoint("10.9.1.2"), SERVER, 1, 3, backup=True).message()
    told = attribute_map(body)
    local, remote = attribute_map(told[1]), attribute_map(told[6])
    assert (kind, told[4]) == (10, bytes.fromhex("c514ecc6"))
    assert (local[1], local[2], local[3], local[6], local[7]) == (
        b"\2\0",
        b"\1",
        bytes((10, 9, 1, 2)),
        b"\4\0\0\0",
        b"\3\0\0\0",
    )
    assert (remote[3], remote[5]) == (bytes((198, 51, 100, 9)), (7000).to_bytes(2, "little"))
    for command, number in (
        (SetBackup(TOKEN, Endpoint("2001:db8::1", 1), SERVER, backup=False), 7),
        (RemoveAddress(TOKEN, 1), 9),
        (DestroySubflow(TOKEN, Endpoint("10.9.1.2", 1), SERVER), 11),
    ):
        assert command.message()[0] == number
        assert 4 in attribute_map(command.message()[1])
