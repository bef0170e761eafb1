"""A new controller meets switches that dial in one after the other: rules of learned hosts stay until all are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services import clients as core
from hyroads.controller.core.services.clients import are_all_told
from hyroads.controller.model.state import State, TopologyContext, initial
from hyroads.controller.ofp.diff import as_installed
from hyroads.controller.ofp.hosts import Here, There, host_rules
from hyroads.controller.runtime.address_book import AddressBook
from hyroads.controller.services.clients.locations import ClientService
from hyroads.controller.settings.clients import AccessSettings
from hyroads.controller.switches.host_layer import HostLayer

NODES = [f"n{i}" for i in range(5)]
TEXT = (
    "nodes:\n"
    + "".join(f"  {node}: {{role: ap, agent: false}}\n" for node in NODES)
    + "links:\n"
    + "".join(
        f"  - {{id: {a}-{b}, from: {a}, to: {b}, technology: plc, capacity_mbps: 100, both: true}}\n"
        for a, b in zip(NODES, NODES[1:] + NODES[:1], strict=True)
    )
    + "interference: {rule: technology}\n"
)
CONTEXT = TopologyContext.of(load_text(TEXT, "ring"))
GRACE_S = 15.0
MACS = [f"02:aa:00:00:00:{number:02x}" for number in range(15)]
HOMES = dict(zip(MACS, NODES * 3, strict=True))
FLOW_MOD, ADD, DELETES = 14, 0, (3, 4)


@dataclass
class Switch:
    """A session of the controller with a switch that has rules from before, and says yes to everything."""

    node: str
    now_s: list[float]
    ports: dict[str, int] = field(default_factory=dict)
    is_read: bool = False
    adds: int = 0
    deletes: int = 0

    def __post_init__(self) -> None:
        self.ports = {CONTEXT.addressing.access_port[self.node]: 100}
        xids = count(1)
        self._barriers: list[int] = []

        def reserve(number: int) -> int:
            first = next(xids)
            for _ in range(number):
                next(xids)
            return first

        self.hosts = HostLayer(self._send, reserve, lambda: self.now_s[0], pytest.fail)

    def read(self, homes: dict[str, str]) -> None:
        """What the earlier controller has put there."""
        for mac, home in homes.items():
            self.hosts.start(as_installed(self._rules(mac, home)))
        self.is_read = True

    def _rules(self, mac: str, home: str) -> Sequence[Any]:
        label = CONTEXT.labels.node[home]
        intent = Here(mac, next(iter(self.ports))) if home == self.node else There(mac, label)
        return host_rules((intent,), self.ports)

    def has(self, mac: str, home: str | None) -> bool:
        """Whether it has exactly what belongs to a host that is there."""
        known = self.hosts._installed.get(mac, {})
        wanted = {rule.key for rule in as_installed(self._rules(mac, home))} if home is not None else set()
        return known.keys() == wanted

    def _send(self, data: bytes) -> bool:
        while data:
            length = int.from_bytes(data[2:4], "big")
            message, data = data[:length], data[length:]
            if message[1] == FLOW_MOD:
                self.adds += message[25] == ADD
                self.deletes += message[25] in DELETES
            elif message[1] == 20:
                self._barriers.append(int.from_bytes(message[4:8], "big"))
        return True

    def confirm(self) -> None:
        """Answer what was asked for."""
        asked, self._barriers = self._barriers, []
        for xid in asked:
            self.hosts.on_barrier(xid)


class Connected:
    """Who is connected."""

    def __init__(self) -> None:
        self.switches: dict[str, Any] = {}
        self.state: State = initial(CONTEXT, [])
        self.addresses = AddressBook(CONTEXT.addresses)

    def wake(self) -> None: ...

    def place_client(self, client: str, place: Place) -> None:
        raise AssertionError(client)

    def fault(self, where: str, what: str) -> None:
        raise AssertionError((where, what))

    def exception(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error


class Restart:
    """Clients of a controller that has just started, and the switches of an earlier one."""

    def __init__(self) -> None:
        self.now_s = [100.0]
        self.network = Connected()
        self.switches = {node: Switch(node, self.now_s) for node in NODES}
        self.clients = ClientService(
            CONTEXT, AccessSettings(), self.network, lambda *_: None, lambda: self.now_s[0], switch_grace_s=GRACE_S
        )

    def dials_in(self, node: str) -> None:
        self.network.switches[node] = self.switches[node]
        self.turn()
        self.switches[node].read(HOMES)
        self.turn()

    def turn(self, after_s: float = 0.1) -> None:
        """The loop goes round, and switches confirm, until nothing more happens."""
        self.now_s[0] += after_s
        for _ in range(6):
            self.clients._turn()
            for node in self.network.switches:
                self.switches[node].confirm()

    @property
    def sent(self) -> tuple[int, int]:
        switches = self.switches.values()
        return sum(switch.adds for switch in switches), sum(switch.deletes for switch in switches)


@examples(20)
@given(order=st.permutations(NODES))
def test_nothing_is_sent_while_switches_come_back_one_after_the_other(order: list[str]) -> None:
    restart = Restart()
    for node in order:
        restart.dials_in(node)
    restart.turn()
    assert restart.sent == (0, 0)
    assert all(switch.has(mac, home) for switch in restart.switches.values() for mac, home in HOMES.items())


def test_hosts_of_a_switch_that_never_comes_back_go_after_the_grace_time() -> None:
    restart = Restart()
    missing, *others = NODES
    for node in others:
        restart.dials_in(node)
    restart.turn(GRACE_S - (restart.now_s[0] - 100.0) - 0.1)
    assert restart.sent == (0, 0)
    restart.turn(0.3)
    lost = [mac for mac, home in HOMES.items() if home == missing]
    assert restart.sent == (0, len(lost) * len(others))
    for node in others:
        for mac, home in HOMES.items():
            assert restart.switches[node].has(mac, None if home == missing else home)
    # It comes back late: its hosts are where they were.
    restart.dials_in(missing)
    restart.turn()
    restart.turn()
    assert all(switch.has(mac, home) for switch in restart.switches.values() for mac, home in HOMES.items())


def test_hosts_that_come_move_and_go_meanwhile_are_followed_at_once() -> None:
    restart = Restart()
    for node in NODES[:3]:
        restart.dials_in(node)
    new, actuator, leaver = "02:bb:00:00:00:01", MACS[4], MACS[1]
    assert HOMES[actuator] == "n4" and HOMES[leaver] == "n1"
    at_n0, now_s = Place("n0", WIRED), restart.now_s[0]
    restart.clients.take(core.seen(restart.clients.state, new, at_n0, now_s))
    restart.clients.take(core.seen(restart.clients.state, actuator, at_n0, now_s))
    restart.clients.take(core.left(restart.clients.state, leaver, Place("n1", WIRED), now_s))
    restart.turn()
    restart.turn(1.0)
    for node in NODES[:3]:
        switch = restart.switches[node]
        assert switch.has(new, "n0") and switch.has(actuator, "n0") and switch.has(leaver, None)
        others = HOMES.items() - {(mac, HOMES[mac]) for mac in (actuator, leaver)}
        assert all(switch.has(mac, home) for mac, home in others)


@given(st.sets(st.sampled_from(NODES)), st.floats(0, 100), st.floats(0, 100))
def test_all_are_told_when_all_were_read_or_the_time_is_over(read: set[str], age_s: float, grace_s: float) -> None:
    told = are_all_told(NODES, read, age_s, grace_s)
    assert told == (read == set(NODES) or age_s > grace_s)
