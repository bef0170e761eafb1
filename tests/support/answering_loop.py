"""A controller with its services and REST API, without sockets. Time is the test's; switches, agents and a multi-homed
client answer at once while they are connected, keep what they run while they are away, and say what they run when they
come back. Each can be made quiet: it stays connected, and does and answers nothing until it speaks again.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from flask import Flask
from scripted_devices import Switch as ScriptedSwitch
from silent_switch import SilentSwitch

from hyroads.controller.agents.clients import ClientReport, FlowReport
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.sessions import Session
from hyroads.controller.api.service import ControllerService
from hyroads.controller.app import wiring
from hyroads.controller.app.wiring import RestoredState, Services
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.netfile import load_text
from hyroads.controller.framework.ryu_shim import Signal
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.pending_names import agent_name, client_name, switch_name
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, initial
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import PROTECTION
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.telemetry import Telemetry
from hyroads.controller.settings.controller import load
from hyroads.controller.switches.sessions import SwitchSession
from hyroads.rest import access_rules, clients, handovers, multihomed, ncasts, plugins, quotas, reservations, sessions
from hyroads.rest.api import create_app
from hyroads.rest.contract import IDENTITY, Token

NETWORK = """
name: two-aps
nodes:
  a: {role: gateway}
  b: {role: ap}
  d: {role: ap}
  c: {role: client, agent: true}
  p: {role: client}
links:
  - {id: ab, from: a, to: b, technology: ethernet, capacity_mbps: 100, both: true}
  - {id: ad, from: a, to: d, technology: ethernet, capacity_mbps: 100, both: true}
  - {id: bc, from: b, to: c, technology: wifi1, capacity_mbps: 20, both: true}
  - {id: dc, from: d, to: c, technology: wifi2, capacity_mbps: 20, both: true}
  - {id: bp, from: b, to: p, technology: wifi1, capacity_mbps: 20, both: true}
  - {id: dp, from: d, to: p, technology: wifi1, capacity_mbps: 20, both: true}
interference: {rule: technology}
flows:
  - {id: down, from: a, to: c}
  - {id: side, from: b, to: c}
  - {id: plain, from: a, to: p}
"""
NODES = ("a", "b", "c", "d")
LAPTOP = "laptop"
"""A multi-homed client, with a flow of its own: number 7, by its interface wifi."""
TURN_S = 0.4
_PROTECTION = {(int(rule.table), rule.priority) for rule in PROTECTION.rules}
"""Rules beside access rules, which change nothing where a switch has no access rule."""


class Switch(ScriptedSwitch):
    """Keeps its rules and meters while it is away."""

    def __init__(self, dpid: int, names: list[str]) -> None:
        self.campus: Any = SimpleNamespace(counts=Counter())
        self.dpid, self.ports = dpid, names
        self.rules, self.groups = {}, set()
        self.meters: dict[int, bytes] = {}
        self.connection: SilentSwitch | None = None

    def answers(self) -> list[bytes]:
        """Carry out all that came, and answer it."""
        said: list[bytes] = []
        for message in self.connection.take() if self.connection is not None else ():
            if message[1] == wire.METER_MOD:
                self._change_meter(message)
            self._answer(SimpleNamespace(send=said.append), message)  # type: ignore[arg-type]
        return said

    def _change_meter(self, message: bytes) -> None:
        command, _, number = struct.unpack_from("!HHI", message, 8)
        if command == wire.METER_DELETE:
            self.meters.pop(number, None)
        else:
            self.meters[number] = message[16:]

    def runs(self) -> set[object]:
        """Its rules and meters."""
        rules = {item for item in self.rules.items() if item[0][:2] not in _PROTECTION}
        return rules | {("meter", *item) for item in self.meters.items()}


class Socket:
    """Drops what is sent; a session keeps it in its outbox."""


class Agent:
    """Runs the last configuration that came."""

    def __init__(self) -> None:
        self.revision = 0
        self.config: dict[str, Any] = {}
        self.rates: dict[tuple[int, int], float] = {}
        """By flow number and path id."""
        self.session: Session | None = None

    def answer(self) -> bool:
        """Answer all that came; whether that was anything."""
        session = self.session
        if session is None or not session._outbox.qsize():
            return False
        while session._outbox.qsize():
            message = json.loads(session._outbox.get_nowait())
            if message["type"] == "config":
                self.config, self.revision = message, message["revision"]
                self.rates = {
                    (flow["number"], path["id"]): path["rate_mbps"]
                    for flow in message["ingress"]
                    for path in flow["paths"]
                }
            for number, rates in message.get("rates", {}).items():
                self.rates.update({(int(number), int(path)): rate for path, rate in rates.items()})
            if message["type"] in {"config", "rates"}:
                session.answered({"type": "ok", "seq": message["seq"]})
        return True

    def runs(self, *, with_rates: bool) -> set[object]:
        """Its entries of flows, and on request their rates."""
        entries = {
            (kind, json.dumps(_without_rates(entry), sort_keys=True))
            for kind in ("ingress", "egress", "branch")
            for entry in self.config.get(kind) or ()
        }
        rates = {(key, round(rate or 0.0, 1)) for key, rate in self.rates.items()} if with_rates else set()
        return entries | rates


class Client:
    """A multi-homed client: carries out what its daemon is sent."""

    def __init__(self) -> None:
        self.policy: dict[str, Any] = {"interfaces": {"wifi": None, "lte": None}}
        self.mode = "full-speed"
        self.interface = "wifi"
        """Of its flow."""
        self.session: Session | None = None

    def answer(self) -> bool:
        """Answer all that came; whether that was anything."""
        session = self.session
        if session is None or not session._outbox.qsize():
            return False
        while session._outbox.qsize():
            message = json.loads(session._outbox.get_nowait())
            if message["type"] == "client-policy":
                self.policy = message["policy"]
            elif message["type"] == "client-mode":
                self.mode = message["mode"]
            elif message["type"] == "client-migrate":
                self.interface = message["interface"]
            session.answered({"type": "ok", "seq": message["seq"]})
        return True

    def report(self) -> ClientReport:
        """How it is."""
        return ClientReport(self.mode, flows=(FlowReport(7, "web", self.interface, 1.0, 1.0, 0),), flow_count=1)

    def runs(self) -> set[object]:
        """Its policy, its mode, and where its flow goes."""
        policy = json.dumps(self.policy, sort_keys=True)
        return {("policy", policy), ("mode", self.mode), ("interface", self.interface)}


class Current:
    """Stands for a part of the loop that requests go to now, so that all loops share one application: to make one takes
    longer than all else.
    """

    loop: AnsweringLoop

    def __init__(self, part: str) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        def call(*given: object, **named: object) -> Any:
            owner = Current.loop if self._part == "service" else Current.loop.services
            return getattr(getattr(owner, self._part), name)(*given, **named)

        return call


@cache
def application() -> Flask:
    """The REST API of whichever loop is the current one."""
    parts: list[tuple[Any, str]] = [
        (access_rules, "access_rules"),
        (clients, "directory"),
        (handovers, "handovers"),
        (multihomed, "multihomed"),
        (ncasts, "ncasts"),
        (plugins, "plugins"),
        (quotas, "owners"),
        (reservations, "reservations"),
        (sessions, "sessions"),
    ]
    service: Any = Current("service")
    owners: Any = Current("owners")
    return create_app(service, resources=[module.blueprint(Current(part)) for module, part in parts], owners=owners)


class AnsweringLoop:
    """``never`` are devices such as ``switch a`` and ``agent a`` that have not connected yet; :meth:`leave` and
    :meth:`come` end and begin connections, :meth:`hush` and :meth:`speak` end and begin answers.
    """

    def __init__(self, folder: Path, never: Iterable[str] = ()) -> None:
        self.now_s, self._slot_s = 100.0, 0.0
        file = folder / "hyroads.yaml"
        (folder / "network.yaml").write_text(NETWORK)
        file.write_text(f"network: {folder / 'network.yaml'}\nclients: {{{LAPTOP}: {{token: {'t' * 32}}}}}\n")
        file.chmod(0o600)
        settings = load({"HYROADS_CONFIG": str(file)})
        self.context = context = TopologyContext.of(load_text(NETWORK, "network"))
        flows = [DeclaredFlow(flow, Origin.FILE) for flow in context.network.flows]
        self.loop = EventLoop(
            context, settings, initial(context, flows), Numbers(), clock=self.clock,
            events=EventLog(self.clock, Signal()), save=lambda state, numbers: None,
        )  # fmt: skip
        self.loop._garbage.begin = lambda now_s: None  # type: ignore[method-assign]
        self.loop.progress = self.loop.saver.progress = self  # type: ignore[assignment]
        with mock.patch.object(wiring, "time", SimpleNamespace(monotonic=self.clock, time=self.clock)):
            telemetry = Telemetry(context, settings, self.clock, lambda: 0.0)
            restored = RestoredState(flows, Numbers(), {}, {}, [], [], {})
            self.services = Services(self.loop, telemetry, dict, restored, "test")
        self.services.clients.progress = self.services.multihomed._progress = self  # type: ignore[assignment]
        self.service = ControllerService(self.loop, "two-aps", waits=self.services.waits)
        self.switches = {node: Switch(dpid, context.addressing.port_names(node))
                         for node, dpid in context.addressing.dpid.items()}  # fmt: skip
        self.agents = {node: Agent() for node in context.own_agents}
        self.macs: dict[str, dict[str, str]] = {}
        """By node: what its switch reports of the addresses of its ports."""
        self.client = Client()
        self.quiet: set[str] = set()
        """Devices that are connected, if at all, and do and answer nothing."""
        self._keys = 0
        devices = [*map(switch_name, self.switches), *map(agent_name, self.agents), client_name(LAPTOP)]
        self.come(device for device in devices if device not in set(never))
        self.after(settings.timings.grace_s + 1.0)

    def clock(self) -> float:
        """Seconds."""
        return self.now_s

    # -- devices

    def come(self, devices: Iterable[str]) -> None:
        """These connect."""
        for kind, node in map(str.split, devices):
            if kind == "switch":
                switch = self.switches[node]
                self._keys += 1
                switch.connection = SilentSwitch(switch.dpid, switch.ports, self._keys)
                switch.connection.macs = self.macs.get(node, {})
                self.loop.switch_up(switch.connection)
            elif kind == "client":
                hello = Hello(node, "x", node, None, 0)
                self.client.session = session = Session(hello, "test", Socket(), self.clock)
                clients = self.services.multihomed
                clients.client_up(session)
                clients.client_policy(session, self.client.policy)
                clients.client_report(session, self.client.report())
            else:
                agent = self.agents[node]
                hello = Hello(node, "x", node, None, agent.revision)
                agent.session = session = Session(hello, "test", Socket(), self.clock)
                self.loop.agent_up(session)
                links = (link for link in self.context.network.links if link.target == node)
                self.loop.agent_links(session, {link.id: True for link in links})

    def leave(self, devices: Iterable[str]) -> None:
        """Connections of these end."""
        for kind, node in map(str.split, devices):
            if kind == "switch":
                gone, self.switches[node].connection = self.switches[node].connection, None
                assert gone is not None
                self.loop.switch_gone(gone)
            elif kind == "client":
                session, self.client.session = self.client.session, None
                assert session is not None
                session.finish()
                self.services.multihomed.client_down(session)
            else:
                agent = self.agents[node]
                session, agent.session = agent.session, None
                assert session is not None
                session.finish()
                self.loop.agent_down(session)

    def hush(self, devices: Iterable[str]) -> None:
        """These do and answer nothing from now on; what comes waits there."""
        self.quiet.update(devices)

    def speak(self) -> None:
        """All do and answer again, also what came meanwhile."""
        self.quiet.clear()

    # -- time

    def after(self, seconds: float) -> None:
        """Let time pass at once, once nothing is on its way, and all that is due happen."""
        self.settle()
        self.now_s += seconds
        self.settle()

    def wait(self, timeout_s: float) -> bool:
        """A request waits: time passes meanwhile (``services.port.ControllerPort.progress``)."""
        self.now_s += min(timeout_s, TURN_S)
        self.turn()
        return True

    def notify(self) -> None:
        """Who waits looks after each turn."""

    def settle(self) -> None:
        """Until nothing is sent any more."""
        for _ in range(60):
            if not self.turn():
                return
        raise AssertionError("it does not come to rest")

    def turn(self) -> bool:
        """Once through all loops; whether anything was answered."""
        self.loop._tick()
        self.loop._cycle()
        self.services.clients._turn()
        if self.loop.saver.pending:
            self.loop.saver.once()
        if self.now_s >= self._slot_s + TURN_S:
            self._slot_s = self.now_s
            with self.loop.slots:
                self.loop._slot()
        agents = [agent for node, agent in self.agents.items() if agent_name(node) not in self.quiet]
        switches = [switch for node, switch in self.switches.items() if switch_name(node) not in self.quiet]
        clients = [] if client_name(LAPTOP) in self.quiet else [self.client]
        answered = [device.answer() for device in (*agents, *clients)]
        return any([*answered, *[self._heard(switch) for switch in switches]])

    def _heard(self, switch: Switch) -> bool:
        said = switch.answers()
        session = self.loop.session_of(switch.connection) if switch.connection is not None else None
        for message in said if session is not None else ():
            self._take(session, message)
        return bool(said)

    def _take(self, session: SwitchSession, message: bytes) -> None:
        if message[1] == wire.BARRIER_REPLY:
            session.on_barrier(int.from_bytes(message[4:8], "big"))
        elif message[1] == wire.MULTIPART_REPLY:
            (kind,) = struct.unpack_from("!H", message, 8)
            if kind == wire.MULTIPART_FLOW:
                session.on_flow_stats(message)
                self.services.clients.wake()
            elif kind == wire.MULTIPART_GROUP_DESC:
                session.on_groups(message)
            elif kind == wire.MULTIPART_PORT_STATS:
                session.on_port_stats(message)
            elif kind == wire.MULTIPART_METER_FEATURES:
                session.on_meter_features(message)
            elif kind == wire.MULTIPART_METER_CONFIG:
                session.on_meter(message)

    def runs(self, *, with_rates: bool) -> dict[str, set[object]]:
        """What each device does now, by its name; rates of agents only on request."""
        return {
            **{switch_name(node): switch.runs() for node, switch in self.switches.items()},
            **{agent_name(node): agent.runs(with_rates=with_rates) for node, agent in self.agents.items()},
            client_name(LAPTOP): self.client.runs(),
        }

    # -- REST

    def ask(
        self, method: str, path: str, body: object = None, who: Token | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Status and document of a request; ``who`` sends it, else a program without a token."""
        Current.loop = self
        sender = {} if who is None else {IDENTITY: who}
        web = application().test_client()
        answer = web.open(f"/api/v1{path}", method=method, json=body, environ_overrides=sender)
        return answer.status_code, answer.get_json(silent=True) or {}

    def waiting(self) -> set[str]:
        """What /health says is pending."""
        return set(self.ask("GET", "/health")[1]["pending"])


def _without_rates(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_rates(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_rates(item) for name, item in value.items() if name != "rate_mbps"}
    return value
