"""Demo ``ha``: three controllers stand by for each other while packets are counted.

The leader is killed, the next one is frozen and thawed, a third takes over on request, and etcd is stopped and comes
back. All the time a thousand UDP packets a second and one TCP connection go over the triangle's multipath, each in a
flow of its own, and flows are declared in between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyroads.mininet.etcd import Etcd
from hyroads.mininet.probe import MAGIC_PORT, StreamReport
from hyroads.mininet.programs import EmulationError, wait_until
from hyroads.mininet.standbys import Standbys
from hyroads.rest.client import ApiError, ClientError

from . import recording
from .recording import Panel, Recording
from .verdict import Stage

NETWORK = "triangle"
UDP, TCP, LATE = "packets", "connection", "late"
TCP_PORT = 5202
IPV4 = 0x0800
INTERVAL_S, PACKET_BYTES = 0.001, 200
SETTLE_S = 3.0
BEFORE_S = 2.0
# What the project promises.
PUSHES_S = 0.3
FROZEN_S = 1.0
TCP_AT_LEAST = 0.95
WRITTEN_S = 2.0
ETCD_AWAY_S = 10.0
ETCD_BACK_S = 5.0
# Longer than any of these, so that what falls short is measured, too.
PATIENCE_S = 20.0
LITTLE = 0.001
_FIRST_PORT = 6000


@dataclass(frozen=True)
class Event:
    """What happened at a moment of CLOCK_MONOTONIC, and the stream of packets around it."""

    title: str
    at_s: float
    stream: StreamReport


class Takeovers:
    """The traffic, the controllers, and what has been confirmed so far."""

    def __init__(self, stage: Stage, record: Recording, etcd: Etcd) -> None:
        self.stage, self.record, self.etcd = stage, record, etcd
        self.standbys = Standbys(stage.emulation)
        self.rest = self.standbys.anybody()
        self.confirmed: list[str] = []
        self.events: list[Event] = []

    def declare(self, flow: str) -> None:
        """A flow that carries nothing, as an application would declare it; counts once it is confirmed."""
        port = _FIRST_PORT + len(self.confirmed)
        # It may want all it can get until its demand is known: so little weight that nobody notices.
        self.rest.declare_flow(flow, "c", "a", match=_udp(port), weight=LITTLE)
        self.confirmed.append(flow)

    def under_packets(self, title: str, seconds: float, event: Callable[[], float]) -> None:
        """``event`` (returns when it happened) in a stream of packets; checks what both kinds of traffic lost."""
        at: list[float] = []
        stage = self.stage

        def during() -> None:
            time.sleep(BEFORE_S - 0.7)
            began_s = time.monotonic()
            at.append(event())
            stage.pause(max(0.0, began_s + seconds - time.monotonic()))

        # Events end on a condition, which may come late: the stream is longer than they should take.
        stream = stage.traffic("a", "c").stream(BEFORE_S + seconds + 1.0, INTERVAL_S, PACKET_BYTES, during)
        self.events.append(Event(title, at[0], stream))
        stage.check(f"{title}: packets lost of {stream.sent}", 0, len(stream.lost), "packets", at_most=1.0)

    def check_tcp(self) -> None:
        """Beside the seconds before each event; looked at in the end, when all is recorded."""
        for event in self.events:
            at_s = event.at_s - self.record.start_s
            before = self.record.mean_delivered(TCP, at_s - BEFORE_S + 0.5, at_s)
            after = self.record.mean_delivered(TCP, at_s, at_s + 1.0)
            self.stage.check(
                f"{event.title}: TCP in the second after", before, after, at_least=TCP_AT_LEAST, adapts=True
            )

    def check_flows(self) -> None:
        """Every confirmed flow is there, at each controller; no number twice."""
        missing, numbers = set(), []
        for name in self.standbys.programs:
            with self.standbys.client(name, timeout_s=5.0) as client:
                found = {flow["id"]: flow.get("number") for flow in client.flows()}
            missing |= {*self.confirmed, UDP, TCP} - found.keys()
            numbers.append([number for number in found.values() if number is not None])
        self.stage.check("confirmed flows that are missing", 0, len(missing), "flows", at_most=1.0)
        twice = sum(len(each) - len(set(each)) for each in numbers)
        self.stage.check("flow numbers in use twice", 0, twice, "numbers", at_most=1.0)


def _udp(port: int) -> dict[str, int]:
    return {"eth_type": IPV4, "udp_dst": port}


def run(stage: Stage) -> None:
    """One fault after another."""
    if stage.emulation.etcd is None:
        raise EmulationError("demo ha: expected --controllers 2 or more")
    rest = stage.emulation.rest
    rest.declare_flow(UDP, "a", "c", match=_udp(MAGIC_PORT))
    rest.declare_flow(TCP, "a", "c", match={"eth_type": IPV4, "tcp_dst": TCP_PORT})
    with (
        stage.traffic("a", "c").tcp_load(TCP_PORT),
        # The names of flows are asked for below, and not of a controller that is frozen.
        Recording(stage.emulation, ("a", "b"), names_every_s=float("inf")) as record,
    ):
        record.learn_names()
        scene = Takeovers(stage, record, stage.emulation.etcd)
        stage.view.phase("traffic begins")
        stage.pause(SETTLE_S)
        for fault in (killed, frozen, handed_over, etcd_away):
            fault(scene)
    scene.check_tcp()
    scene.check_flows()
    write(scene)


def killed(scene: Takeovers) -> None:
    """kill -9 of the leader; another flow is asked for at once."""
    stage, standbys, leader, epoch = scene.stage, scene.standbys, scene.standbys.leader(), scene.standbys.epoch()
    stage.view.phase(f"the leader, {leader}, is killed (kill -9)")
    took: list[float] = []

    def event() -> float:
        at_s = standbys.kill(leader)
        took.append(standbys.await_epoch(epoch, PATIENCE_S) - at_s)
        scene.declare("after-kill")
        took.append(time.monotonic() - at_s)
        # As a service manager would; not in the second in which TCP is measured.
        stage.pause(1.0)
        standbys.restart(leader)
        return at_s

    scene.under_packets("killed", max(2.0, stage.hold_s / 2), event)
    stage.check("killed: until all agents obey the next", PUSHES_S, took[0], "s", at_most=1.0)
    stage.check("killed: until a new flow is confirmed", WRITTEN_S, took[1], "s", at_most=1.0)
    standbys.wait_warm()


def frozen(scene: Takeovers) -> None:
    """SIGSTOP, a flow that only the frozen one is asked for, and SIGCONT: it may change nothing any more."""
    stage, standbys, leader, epoch = scene.stage, scene.standbys, scene.standbys.leader(), scene.standbys.epoch()
    stage.view.phase(f"the leader, {leader}, is frozen (SIGSTOP), and thawed")
    took: list[float] = []
    late = json.dumps({"id": LATE, "from": "c", "to": "a", "match": _udp(_FIRST_PORT - 1)}).encode()
    before: dict[str, Any] = {}

    def event() -> float:
        with standbys.frozen(leader) as at_s:
            took.append(standbys.await_epoch(epoch, PATIENCE_S) - at_s)
            scene.declare("while-frozen")
            stage.pause(max(0.5, stage.hold_s / 4))
            before.update(standbys.devices())
            with standbys.asked_unheard(leader, late):
                stage.pause(0.1)
        thawed_s = time.monotonic()
        wait_until(f"{leader} steps down", lambda: _role(standbys, leader) != "leader", PATIENCE_S)
        took.append(time.monotonic() - thawed_s)
        return at_s

    scene.under_packets("frozen", max(4.0, stage.hold_s / 2), event)
    stage.check("frozen: until all agents obey the next", FROZEN_S, took[0], "s", at_most=1.0)
    stage.view.note(f"     {leader} steps down {took[1] * 1e3:.0f} ms after it was thawed")
    after = standbys.devices()
    changed = sum(before[name] != after[name] for name in before)
    declared = sum(flow["id"] == LATE for flow in scene.rest.flows())
    stage.check("thawed: devices and flows that it changed", 0, changed + declared, "", at_most=1.0)
    standbys.wait_warm()


def _role(standbys: Standbys, name: str) -> str:
    return str((standbys.told(name) or {"role": "leader"})["role"])


def handed_over(scene: Takeovers) -> None:
    """On request."""
    stage, standbys, leader, epoch = scene.stage, scene.standbys, scene.standbys.leader(), scene.standbys.epoch()
    stage.view.phase(f"the leader, {leader}, hands over")
    took: list[float] = []

    def event() -> float:
        at_s = time.monotonic()
        scene.rest.request("POST", "/ha/handover", {"to": None})
        took.append(standbys.await_epoch(epoch, PATIENCE_S) - at_s)
        scene.declare("after-handover")
        return at_s

    scene.under_packets("handed over", max(2.0, stage.hold_s / 4), event)
    stage.check("handed over: until all agents obey the next", PUSHES_S, took[0], "s", at_most=1.0)


def etcd_away(scene: Takeovers) -> None:
    """All of etcd is stopped: traffic goes on, changes are refused, and are taken again when it is back."""
    stage, standbys, leader, epoch = scene.stage, scene.standbys, scene.standbys.leader(), scene.standbys.epoch()
    etcd = scene.etcd
    away_s = min(ETCD_AWAY_S, 1.25 * stage.hold_s)
    stage.view.phase(f"etcd is stopped for {away_s:.0f} s")
    wrong: list[str] = []
    took: list[float] = []

    def event() -> float:
        at_s = time.monotonic()
        etcd.stop()
        stage.pause(away_s / 4)
        for number in range(3):
            answer = _refusal(standbys, leader, number)
            wrong.extend([] if answer == "503" else [answer])
            stage.pause(away_s / 4)
        etcd.start()
        back_s = time.monotonic()
        etcd.wait_ready()
        scene.declare("after-etcd")
        took.append(time.monotonic() - back_s)
        return at_s

    scene.under_packets("etcd away", away_s + 3.0, event)
    if wrong:
        stage.view.note(f"     writes were answered with {', '.join(wrong)}")
    stage.check("etcd away: writes not answered by 503", 0, len(wrong), "writes", at_most=1.0)
    stage.check("etcd back: until a new flow is confirmed", ETCD_BACK_S, took[0], "s", at_most=1.0)
    changes = standbys.epoch() - epoch
    stage.check("etcd away: takeovers, of one that may be", 1, changes, "", at_most=1.0)


def _refusal(standbys: Standbys, leader: str, number: int) -> str:
    """How a write is answered."""
    body = {"id": f"refused-{number}", "from": "c", "to": "a", "match": _udp(_FIRST_PORT - 10 - number)}
    try:
        with standbys.client(leader, timeout_s=5.0) as client:
            return str(client.request("POST", "/flows", body).status)
    except ApiError as error:
        return str(error.status)
    except ClientError as error:
        return str(error)


def write(scene: Takeovers) -> None:
    """CSV of flows and of packets, plot."""
    stage, record = scene.stage, scene.record
    folder, at = stage.folder, record.grid()
    record.write_csv(folder / "flows.csv", [UDP, TCP])
    delays = [
        (arrival.sent_s - record.start_s, (arrival.received_s - arrival.sent_s) * 1e3)
        for event in scene.events
        for arrival in event.stream.arrivals
    ]
    stage.files.append(folder / "flows.csv")
    rows = ([f"{sent_s:.4f}", f"{delay_ms:.3f}"] for sent_s, delay_ms in delays)
    stage.write_csv("packets.csv", ["sent_s", "delay_ms"], rows)
    if not recording.can_draw():
        stage.view.note("no plot: Matplotlib is not installed (pip install 'hyroads[study]')")
        return
    lines = {flow: (at, record.delivered(flow, at)) for flow in (UDP, TCP)}
    panels = [
        Panel("delivered by the last agent", "Mb/s", lines),
        Panel("delay of packets, the greatest in each 0.1 s", "ms", {UDP: (at, _greatest(at, delays))}),
    ]
    marks = {event.at_s - record.start_s: event.title for event in scene.events}
    stage.files += recording.draw(folder, stage.name, panels, marks)


def _greatest(at: Any, delays: list[tuple[float, float]]) -> Any:
    """By moment: the greatest delay since the one before; nothing where no packet was sent."""
    found = np.full(len(at), np.nan)
    for sent_s, delay_ms in delays:
        slot = int(np.searchsorted(at, sent_s))
        if slot < len(found):
            found[slot] = np.nanmax([found[slot], delay_ms])
    return found
