"""Two controllers at a real Open vSwitch: the one of an older epoch changes nothing, whatever it believes."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Iterator

import ovs_rig
import pytest

from hyroads.controller.core.netfile import load_text
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.switches.roles import Role
from hyroads.controller.switches.server import SwitchRegistry
from hyroads.controller.switches.sessions import DesiredRules, SwitchSession

pytestmark = [pytest.mark.root, pytest.mark.skipif(not ovs_rig.available(), reason="needs root and Open vSwitch")]

NETWORK = """
nodes: {a: {role: ap}, b: {role: ap}}
links: [{id: ab, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}]
interference: {rule: technology}
"""
CONTEXT = TopologyContext.of(load_text(NETWORK, "pair"))
CHANGES = {wire.FLOW_MOD, wire.GROUP_MOD, wire.METER_MOD}


class Controller:
    """A registry over a bare connection to the bridge ``a``; messages that it sends are counted by kind."""

    def __init__(self, connection: ovs_rig.Connection) -> None:
        self.connection = connection
        self.dpid, self.key, self.peer = connection.dpid, id(connection), "bridge"
        self._ports = connection.ports()
        self.counters: Counter[str] = Counter()
        self.sent: Counter[int] = Counter()
        self.seen: list[tuple[int, str]] = []
        self.faults: list[str] = []
        self.port_events = 0
        self.registry = SwitchRegistry(
            CONTEXT,
            lambda: 0.0,
            self.counters,
            lambda where, what: self.faults.append(what),
            lambda: None,
            greater_epoch_seen=lambda epoch, who: self.seen.append((epoch, who)),
        )

    # -- what a session needs of a connection

    def ports(self) -> dict[str, int]:
        return self._ports

    def send(self, data: bytes) -> bool:
        self.connection.socket.sendall(data)
        while data:
            self.sent[data[1]] += 1
            data = data[int.from_bytes(data[2:4], "big") :]
        return True

    def close(self) -> None:
        self.connection.close()

    # -- what tests do

    @property
    def session(self) -> SwitchSession:
        return self.registry.sessions["a"]

    def connect(self) -> None:
        self.registry.opened(self)  # type: ignore[arg-type]
        self.turn()

    def turn(self) -> None:
        """Hear everything that comes, until nothing has for a while."""
        self.connection.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError, socket.timeout):
            while True:
                self._hear(self.connection.receive())

    def _hear(self, message: bytes) -> None:
        session, kind = self.session, message[1]
        if kind == wire.ROLE_REPLY:
            session.on_role(message)
        elif kind == wire.ERROR:
            session.on_error(message)
        elif kind == wire.BARRIER_REPLY:
            session.on_barrier(int.from_bytes(message[4:8], "big"))
        elif kind == wire.PORT_STATUS:
            self.port_events += 1
        elif kind == wire.MULTIPART_REPLY:
            hear = {
                wire.MULTIPART_FLOW: session.on_flow_stats,
                wire.MULTIPART_GROUP_DESC: session.on_groups,
                wire.MULTIPART_METER_CONFIG: session.on_meter,
            }
            hear.get(message[9], session.on_meter_features)(message)

    def push(self, label: int) -> None:
        self.session.want(DesiredRules(SwitchIntent("a", self.dpid, label, label + 1), {}))
        self.turn()

    @property
    def changes(self) -> int:
        return sum(self.sent[kind] for kind in CHANGES)


class Bridge:
    """The bridge ``a``, and a listener for each of two controllers."""

    def __init__(self, rig: ovs_rig.Rig) -> None:
        self.rig = rig
        rig.bridge("a", CONTEXT.addressing.dpid["a"], controlled=False)
        self.listeners = []
        for name in ("one", "two"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(rig.folder / f"{name}.controller"))
            listener.listen()
            self.listeners.append(listener)

    def controllers(self, *names: str) -> None:
        """What dials where; the switch keeps the connections that it has."""
        # A row each: where there are several, the bridge's name does not stand for one.
        rows: list[str] = []
        for number, name in enumerate(names):
            target = f'target="unix:{self.rig.folder / name}.controller"'
            rows += [f"--id=@c{number}", "create", "controller", target, "max_backoff=1000", "inactivity_probe=0", "--"]
        self.rig.vsctl(*rows, "set", "bridge", "a", f"controller=[{','.join(f'@c{n}' for n in range(len(names)))}]")

    def rules(self) -> list[str]:
        lines = self.rig.ofctl("--no-stats", "dump-flows", "a").splitlines()
        return sorted(line.strip() for line in lines if "cookie" in line or "table" in line)


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    with ovs_rig.Rig() as rig:
        bridge = Bridge(rig)
        yield bridge
        for listener in bridge.listeners:
            listener.close()


def test_an_older_epoch_changes_nothing_and_a_takeover_changes_nothing_either(bridge: Bridge) -> None:
    bridge.controllers("one")
    old = Controller(ovs_rig.Connection(bridge.listeners[0]))
    old.registry.lead(1)
    old.connect()
    old.push(100)
    rules = bridge.rules()
    assert old.session.synced and rules
    # A second controller flushes nothing, and as a follower sends nothing that changes anything.
    bridge.controllers("one", "two")
    new = Controller(ovs_rig.Connection(bridge.listeners[1]))
    new.registry.follow()
    new.connect()
    new.push(100)
    assert bridge.rules() == rules and new.changes == 0 and new.session.synced
    # Slaves hear of ports.
    bridge.rig.inside("ip", "link", "add", "extra", "type", "veth", "peer", "name", "extra-b")
    bridge.rig.port("a", "extra", 9)
    new.turn()
    assert new.port_events > 0
    # The takeover: master everywhere, and nothing is sent that changes anything.
    new.registry.lead(2)
    new.turn()
    new.push(100)
    assert new.session.may_change and new.session.synced
    assert new.changes == 0
    # The old one, frozen until now, goes on with other plans: all of it is refused, counted, and no fault.
    before = old.changes
    old.push(200)
    sent = old.changes - before
    assert bridge.rules() == rules
    assert old.counters["refused_as_slave"] == sent > 0
    assert old.seen == [(2, "switch a")] and not old.faults
    # It stands by its epoch once more: its role request is stale.
    old.registry.lead(1)
    old.turn()
    old.push(200)
    assert not old.session.may_change and bridge.rules() == rules
    old.registry.follow()
    old.turn()
    assert old.session.role is not None and old.session.is_read and not old.faults
    # What the new one wants it gets.
    new.push(300)
    assert new.session.synced and bridge.rules() != rules and not new.faults
    assert Role.MASTER in Role


def test_the_first_controller_flushes_and_a_second_one_does_not(bridge: Bridge) -> None:
    bridge.rig.ofctl("add-flow", "a", "table=3,priority=7,actions=drop")
    bridge.controllers("one")
    first = ovs_rig.Connection(bridge.listeners[0])
    assert not bridge.rules()
    bridge.rig.ofctl("add-flow", "a", "table=3,priority=7,actions=drop")
    kept = bridge.rules()
    bridge.controllers("one", "two")
    second = ovs_rig.Connection(bridge.listeners[1])
    assert bridge.rules() == kept
    for connection in (first, second):
        connection.close()
