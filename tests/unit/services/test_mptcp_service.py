"""The service of MPTCP connections: from packet-ins to documents, events, groups and rules."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import mptcp_frames as frames
import pytest

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.errors import ConfigError, OpenFlowError
from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.core.mptcp_connections import PENDING_S, REORDER_S, Outcome, Reason
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.services.client_tables import Address, Clients
from hyroads.controller.core.subflows import Subflow, TcpEnd, subflow_flows
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import SYN_COOKIES, SYN_METER, is_access, syn_copy, syn_no_copy
from hyroads.controller.ofp.guard import check
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import Priority, Table
from hyroads.controller.ofp.readback import cookie_of_packet_in
from hyroads.controller.ofp.rule import Rule
from hyroads.controller.runtime.address_book import AddressBook
from hyroads.controller.services import mptcp as service_module
from hyroads.controller.services.mptcp import EVENTS_BURST, LEFT_OUT_S, MAX_LEFT_OUT, REFUSED_EVERY_S, MptcpService
from hyroads.controller.settings.mptcp import MptcpSettings, parse_mptcp
from hyroads.controller.switches.access_layer import AccessLayer
from hyroads.rest.contract import NotFoundError
from hyroads.rest.metrics import text_of
from hyroads.slices.core.classifier import decode
from hyroads.slices.core.errors import MatchError

NET = """
nodes: {a: {role: ap, agent: false}, b: {role: ap, agent: false}, p: {role: client}, q: {role: client}}
links:
  - {id: ab, from: a, to: b, technology: plc, capacity_mbps: 20, both: true}
  - {id: ap, from: a, to: p, technology: wifi, capacity_mbps: 20, both: true}
  - {id: bq, from: b, to: q, technology: wifi, capacity_mbps: 20, both: true}
interference: {rule: technology}
"""
NETWORK = load_text(NET, "net")
ADDRESSING = Addressing.of(NETWORK)
P, Q, B = (ADDRESSING.host_mac[node] for node in ("p", "q", "b"))
X = "02:aa:00:00:00:01"
KEY = b"server-k"
C1, C2, S1 = "10.9.0.1", "10.9.0.2", "10.9.0.9"


def packet_in(frame: bytes, port: int, cookie: int | None = None) -> bytes:
    """A packet-in message of OpenFlow 1.3."""
    match = struct.pack("!HH", 1, 12) + b"\x80\x00\x00\x04" + struct.pack("!I", port) + bytes(4)
    cookie = next(iter(SYN_COOKIES)) if cookie is None else cookie
    body = struct.pack("!IHBBQ", wire.NO_BUFFER, len(frame), 1, Table.CLASSIFY, cookie) + match + bytes(2) + frame
    return wire.message(body, 0, wire.PACKET_IN)


class World:
    def __init__(self, **settings: Any) -> None:
        self.now_s = 1000.0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.clients = Clients()
        self.switches: dict[str, Any] = {}
        for node in ("a", "b"):
            layer = AccessLayer(lambda data: True, lambda count: 1, lambda: self.now_s, lambda what: None)
            self.switches[node] = SimpleNamespace(node=node, ports={f"{node}-host": 1, f"{node}-wifi": 2}, access=layer)
        port: Any = SimpleNamespace(
            context=SimpleNamespace(addressing=ADDRESSING, network=NETWORK),
            addresses=AddressBook(InterfaceAddresses.of(NETWORK, ADDRESSING)),
            switches=self.switches,
            events=SimpleNamespace(publish=lambda kind, document: self.events.append((kind, document))),
        )
        given = MptcpSettings(True, **{"clients": {"laptop": ("p", "q")}, **settings})
        self.service = MptcpService(port, given, lambda: self.clients, clock=lambda: self.now_s)

    def syn(self, options: bytes, node: str = "a", source: str = P, target: str = B, **how: Any) -> None:
        answers = how.get("answers", False)
        frame = frames.with_options(frames.PLAIN_ANSWER if answers else frames.PLAIN, options)
        ends = (how.get("ip", C1), how.get("to", S1), how.get("port", 1000), how.get("to_port", 80))
        message = packet_in(frames.with_macs(frames.from_to(frame, *ends), source, target), how.get("at", 2))
        check(message)
        assert cookie_of_packet_in(message) in SYN_COOKIES
        self.service.packet_in(self.switches[node], message)

    def answer(self, options: bytes, to: str, ip: str, port: int) -> None:
        self.syn(options, "b", B, to, ip=S1, to=ip, port=80, to_port=port, answers=True, at=1)

    def connect(self, port: int = 1000, source: str = P, key: bytes = KEY) -> None:
        self.syn(frames.capable(), source=source, port=port)
        self.answer(frames.capable_answer(key), source, C1, port)

    def join(self, source: str = Q, ip: str = C2) -> None:
        self.syn(frames.join(KEY, backup=True), "b", source, ip=ip)
        self.answer(frames.join_answer(), source, ip, 1000)

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.service.once()

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        self.service.once()
        events, self.events = self.events, []
        return events


def test_documents_events_and_groups():
    world = World()
    changed: list[str] = []
    world.service.listeners.append(changed.append)
    world.connect()
    [(kind, told)] = world.told()
    [name] = world.service.names()
    assert kind == "mptcp.connection" and (told["id"], told["client"], told["peer"]) == (name, "laptop", "b")
    one = world.service.group(name)
    assert world.service.groups() == [] and one is not None and len(one.subflows) == 1
    assert world.service.group("other") is None
    world.join()
    [(kind, told)] = world.told()
    assert kind == "mptcp.subflow_joined" and told["subflows"] == 2 and told["subflow"]["backup"]
    world.now_s += 2
    [document] = world.service.documents([name, "other"])
    assert document == world.service.document(name)
    assert (document["since_s"], document["mptcp_version"]) == (2.0, 1)
    assert document["subflows"][1] == {
        "client_ip": C2, "client_port": 1000, "peer_ip": S1, "peer_port": 80, "begun_by": "client", "address_id": 2,
        "backup": True, "enters_at": {"node": "b", "port_name": "b-wifi"},
        "peer_enters_at": {"node": "b", "port_name": "b-host"}, "since_s": 2.0,
    }  # fmt: skip
    [group] = world.service.groups()
    peer = TcpEnd("b", S1, 80)
    assert world.service.group(name) == group
    assert group.subflows == (Subflow(0, TcpEnd("p", C1, 1000), peer), Subflow(1, TcpEnd("q", C2, 1000), peer))
    assert f"{group.token:08x}" == name and len(subflow_flows(group)) == 4
    # Subflows of hosts that are no nodes have no routes of their own.
    world.syn(frames.join(KEY), "b", X, ip=C2)
    world.connect(source=X, port=77, key=b"server-2")
    assert len(world.service.names()) == 2 and world.service.groups() == [group]
    world.later(1)
    del changed[:], world.events[:]
    world.later(3600)
    assert [kind for kind, _ in world.told()] == ["mptcp.subflow_left"] * 3
    assert name in changed and world.service.names() == []
    with pytest.raises(NotFoundError):
        world.service.document(name)


def test_nothing_holds_or_tells_a_key():
    world = World()
    world.connect()
    world.syn(frames.option(0x00, 0x01, KEY), port=4)
    everything = (
        repr(vars(world.service.table)) + repr(world.told()) + repr(world.service.documents(world.service.names()))
    )
    for shown in (repr(KEY)[2:-1], KEY.hex(), str(list(KEY))):
        assert shown not in everything


def test_only_the_owner_of_a_connection_joins_it():
    world = World(clients={})
    world.connect()
    # Nobody has said that both radios are one client's.
    world.join()
    [_, (kind, told)] = world.told()
    assert kind == "mptcp.refused"
    assert told == {
        "reason": "token of another client", "host": "q", "at": {"node": "b", "port": "b-wifi"}, "count": 1,
    }  # fmt: skip


def test_an_address_that_is_known_to_be_anothers_is_of_no_use():
    world = World()
    world.clients = Clients(addresses={C1: Address(C1, P, False, 0.0), "fd00::9": Address("fd00::9", X, False, 0.0)})
    world.syn(frames.capable(), source=X)
    # Neither are those of the network's own hosts; its own client may use either radio.
    world.syn(frames.capable(), source=X, ip=ADDRESSING.host_ip["b"])
    assert world.service.table.reasons == {Reason.OTHERS_ADDRESS: 2} and world.service.table.pending_count == 0
    world.syn(frames.capable(), source=Q, port=2)
    assert world.service.table.counts[Outcome.WAITING] == 1


def test_refusals_are_told_once_in_a_while_and_bounded(monkeypatch):
    world = World()
    for port in range(100):
        world.syn(frames.join(KEY), source=X, ip=C2, port=port)
        world.later(0.01)
    world.later(REORDER_S)
    told = [document["count"] for kind, document in world.told() if kind == "mptcp.refused"]
    assert told == [1]
    world.later(REFUSED_EVERY_S)
    world.later(REFUSED_EVERY_S)
    assert [document["count"] for kind, document in world.told() if kind == "mptcp.refused"] == [99]
    assert world.service.table.reasons[Reason.UNKNOWN_TOKEN] == 100
    monkeypatch.setattr(service_module, "MAX_REFUSED", 5)
    for number in range(20):
        world.syn(frames.join(KEY), source=f"02:aa:00:00:01:{number:02x}", ip=C2)
    world.later(REORDER_S)
    assert sum(kind == "mptcp.refused" for kind, _ in world.told()) == 5
    assert world.service.events_left_out == 15


def test_events_of_connections_are_bounded():
    world = World()
    for number in range(400):
        world.connect(number, key=number.to_bytes(8, "big"))
    assert len(world.told()) == EVENTS_BURST
    assert world.service.events_left_out == 400 - EVENTS_BURST and len(world.service.names()) == 400


@pytest.mark.parametrize("options", [frames.capable(), b"", b"\x1e\x00\x00\x00"])
def test_a_host_that_floods_is_left_out_for_a_while_and_others_are_not(options):
    world = World(syns_per_s=100)
    wanted = world.switches["a"].access._wanted
    for port in range(1200):
        world.syn(options, source=X, port=port)
    mute = syn_no_copy(X)
    assert [*wanted.values()] == [mute]
    assert mute in world.service.entries("a").values() and mute not in world.service.entries("b").values()
    world.connect()
    assert len(world.service.names()) == 1
    assert [document["reason"] for kind, document in world.told() if kind == "mptcp.refused"] == ["too many SYNs"]
    for host in range(2 * MAX_LEFT_OUT):
        for port in range(100):
            world.syn(b"", source=f"02:aa:00:00:02:{host:02x}", port=port)
    assert len(wanted) == MAX_LEFT_OUT
    world.later(LEFT_OUT_S)
    assert not wanted and [*world.service.entries("a").values()] == [syn_copy(100)]
    world.later(PENDING_S)
    assert world.service.table.pending_count == 0


def test_a_busy_host_is_not_left_out():
    world = World(syns_per_s=100)
    for second in range(5):
        for port in range(35):
            world.syn(b"", source=X, port=port)
            world.connect(1000 * second + port, key=bytes((second, port)) * 4)
        world.later(1)
    assert not world.switches["a"].access._wanted and not world.switches["b"].access._wanted


def test_copies_that_nobody_understands_harm_nothing():
    world = World()
    for frame in (b"", bytes(20), frames.CAPABLE[:40], bytes(12) + b"\x08\x00" + bytes(100)):
        world.service.packet_in(world.switches["a"], packet_in(frame, 1))
    assert world.service.table.counts == {Outcome.MALFORMED: 4}
    world.service.packet_in(world.switches["a"], packet_in(frames.CAPABLE, 99))
    assert world.service.table.pending_count == 0
    world.switches["a"].ports = {"new": 99}
    world.service.packet_in(world.switches["a"], packet_in(frames.CAPABLE, 99))
    assert world.service.table.pending_count == 1
    with pytest.raises(OpenFlowError):
        world.service.packet_in(world.switches["a"], b"\x04\x0a\x00\x08\x00\x00\x00\x00")


def test_metrics_name_every_outcome():
    world = World()
    world.connect()
    world.join()
    lines = text_of(world.service.metrics()).decode().splitlines()
    counts = {"waiting": 2, "connection": 1, "subflow": 1}
    syns = [f'hyroads_mptcp_syns_total{{outcome="{one}"}} {counts.get(one, 0)}.0' for one in Outcome]
    assert not {"hyroads_mptcp_connections 1.0", "hyroads_mptcp_subflows 2.0", *syns} - {*lines}


def test_the_rules_of_a_switch():
    entry = syn_copy(700)
    assert entry.meter is not None and entry.meter.number == SYN_METER and entry.optional
    add, change = entry.meter.messages
    # Packets per second, and a burst of as many.
    assert add[:8] == struct.pack("!HHI", wire.METER_ADD, 2 | 4, SYN_METER)
    assert add[8:] == change[8:] == struct.pack("!HHII4x", 1, 16, 700, 700)
    for rule, eth_type in zip(entry.rules, (0x0800, 0x86DD), strict=True):
        assert is_access(rule.table, rule.priority) and rule.goto is None and rule.meter is None
        copy, mark, again = rule.actions
        assert (copy, again) == (act.ToController(128, SYN_METER), act.Resubmit(rule.table))
        assert mark == act.SetRegister2(1) and rule.match.register_2 == 0
        assert rule.match.eth_type == eth_type and rule.cookie in SYN_COOKIES
        # Layouts of Open vSwitch 3.1 (nicira-ext.h) and of ONF's extension 230.
        assert rule.match_fields.startswith(bytes.fromhex("0001040400000000"))
        assert rule.match_fields.endswith(bytes.fromhex("ffff55084f4e460000020002"))
        controller = bytes.fromhex("ffff002000002320002500000000000000000006008000000005000800004900")
        assert wire.actions((copy,)) == controller
        # A slice's guest can't have it: the slicer knows neither field.
        with pytest.raises(MatchError):
            decode(rule.match_fields)
    assert min(rule.priority for rule in entry.rules) > Priority.FLOW_FIRST + 59_000
    assert all(rule.priority > Priority.SYN_COPY and rule.match.eth_src == X for rule in syn_no_copy(X).rules)
    for wrong in (Match(tcp_flags=2), Match(eth_type=0x0800, ip_proto=6, tcp_flags=0x1000), Match(register_2=1 << 32)):
        with pytest.raises(OpenFlowError):
            Rule(Table.CLASSIFY, 1, wrong)


class Refusing:
    """A switch that refuses all rules, or all meters."""

    def __init__(self, what: int) -> None:
        self.what, self.xid, self.sent, self.reports = what, 0, b"", []
        self.now_s = 0.0
        self.layer = AccessLayer(self.send, self.next_xid, lambda: self.now_s, self.reports.append)
        self.layer.start([])

    def send(self, data: bytes) -> bool:
        self.sent += data
        return True

    def next_xid(self, count: int) -> int:
        self.xid += count
        return self.xid - count + 1

    def work(self) -> int:
        count = 0
        while self.sent:
            length, kind, xid = (
                int.from_bytes(self.sent[2:4], "big"),
                self.sent[1],
                int.from_bytes(self.sent[4:8], "big"),
            )
            message, self.sent = self.sent[:length], self.sent[length:]
            is_delete = kind == wire.FLOW_MOD and message[25] == wire.DELETE_STRICT
            if kind == wire.BARRIER_REQUEST:
                assert self.layer.on_barrier(xid)
            elif kind == self.what and not is_delete:
                assert self.layer.on_error(xid, 4, 6)
            count += 1
        return count


@pytest.mark.parametrize("what", [wire.FLOW_MOD, wire.METER_MOD])
def test_a_switch_may_refuse_to_copy_and_is_not_asked_again(what):
    switch, world = Refusing(what), World()
    session: Any = SimpleNamespace(access=switch.layer)
    assert world.service.syn_copies(session) is None
    switch.layer.want_all(world.service.entries("a"))
    assert world.service.syn_copies(session) is None
    assert switch.work()
    switch.work()
    assert world.service.syn_copies(session) == "refused" and switch.reports == []
    assert switch.layer.rule_count == 0
    switch.now_s += 100
    switch.layer.is_late()
    switch.layer.want_all(world.service.entries("a"))
    assert switch.work() == 0
    off = World()
    off.service.settings = MptcpSettings()
    assert off.service.syn_copies(session) == "off" and off.service.entries("a") == {}


def test_settings():
    def parsed(value: object) -> MptcpSettings:
        problems = Problems("settings")
        found = parse_mptcp(Place(value, problems, "mptcp"))
        problems.raise_if_any()
        return found

    assert parse_mptcp(None) == parsed({}) == MptcpSettings() and not MptcpSettings().recognise
    given = parsed({"recognise": True, "syns_per_s": 50, "clients": {"laptop": ["p", X.upper()]}})
    assert given.owners(ADDRESSING, "settings") == {P: "laptop", X: "laptop"}
    for wrong in (
        {"recognize": True}, {"recognise": 1}, {"syns_per_s": 1}, {"forget_s": 0}, {"clients": ["p"]},
        {"clients": {"laptop": []}}, {"clients": {"laptop": [1]}}, {"clients": {"laptop": [X] * 17}},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            parsed(wrong)
    for clients in ({"laptop": ("nobody",)}, {"laptop": ("p",), "phone": (P,)}):
        with pytest.raises(ConfigError, match=r"mptcp\.clients"):
            MptcpSettings(True, clients=clients).owners(ADDRESSING, "settings")
