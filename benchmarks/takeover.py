"""One of several controllers leads, and something happens to it or to etcd: real controllers, etcd and devices.

    python benchmarks/takeover.py --runs 10                                               root
    python benchmarks/takeover.py --kinds apart --controllers 2
    python benchmarks/takeover.py --kinds etcd-paused etcd-stopped etcd-member etcd-disk --runs 3

Several controllers on one network, all connected to all switches and agents, stand by for each other. A UDP stream of
1,000 packets a second goes over the multipath all the time. While the old leader is frozen it is asked over REST for
another flow, which it tries to bring about when it is thawed: all that it sends must be refused.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from failure_lab import DIAMOND
from takeover_faults import DISKS, ETCD_S, away, cut_rules, disk, dropped, folder_of
from takeover_losses import Losses, Seen, Witness, lost_of

from hyroads.controller.core.netfile import parse
from hyroads.controller.model.pending_names import agent_name
from hyroads.mininet.emulation import Emulation, EmulationOptions, controller_ports
from hyroads.mininet.probe import MAGIC_PORT, report
from hyroads.mininet.programs import EmulationError, Program, wait_until
from hyroads.mininet.runner import RunOptions, run_network
from hyroads.rest.client import Client

LED = Path(__file__).with_name("led_controller.py")
STREAM_S, PACKET_BYTES = 5.0, 600
SEVERAL = ("etcd-member", "etcd-disk-one")
"""Kinds that need several members of etcd."""
THAW_AFTER_S = 1.0
NEW_FLOW = {"id": "late", "from": "d", "to": "a"}
CONTROL_PORT = 9000
GROUP = 6100
"""Controllers have groups of their own from this one on, by which their packets are known."""
FIRST = ("chrt", "--rr", "1")
CUT_S, BUSY_S = 3.0, 0.3
READY_S = 60.0
KINDS = {
    "killed": "the leader is killed, and started again",
    "frozen": "the leader is stopped (SIGSTOP), and goes on once another one leads",
    "alone": "the same, and then it reaches devices alone, who are to tell it that it leads no more",
    "cut": "the leader does not reach etcd, devices and its peers for 3 s, nor they it",
    "apart": "the controllers alone do not reach each other for 5 s",
    "no-etcd": "the leader alone does not reach etcd for 15 s",
    "etcd-paused": "all members of etcd are stopped (SIGSTOP) for 5 s",
    "etcd-stopped": "all members are ended, and started again after a minute",
    "etcd-member": "one member is killed, and started again after 5 s",
    "etcd-disk": "no member can write to its disk for 5 s (a file system of its own, fsfreeze)",
    "etcd-disk-one": "one member can't, the one that leads the others",
    "busy": "Open vSwitch is stopped (SIGSTOP) for 0.3 s, as on a machine that is too busy: losses that say nothing",
}
ONE_MEMBER = """
With --controllers 2 --etcd-members 1 all of these run but {several}, which need three members.
"""


class Led:
    """One controller and its socket."""

    def __init__(self, program: Program, number: int) -> None:
        self.program, self.ports, self.control = program, controller_ports(number), CONTROL_PORT + number
        self.group = GROUP + number

    def ask(self) -> dict[str, Any]:
        with socket.create_connection(("127.0.0.1", self.control), timeout=5) as connection:
            connection.sendall(b"status\n")
            return json.loads(connection.makefile().readline())

    def epoch(self) -> int | None:
        with suppress(OSError, ValueError):
            return self.ask()["epoch"]
        return None

    def ready(self) -> bool:
        with suppress(OSError, ValueError):
            status = self.ask()
            return status["warm"] and status["switches"] == 4 and status["agents"] == 4 and not status["unsynced"]
        return False

    def await_ready(self) -> None:
        """Until it could lead, or leads; EmulationError, after what is known of why it could not."""
        try:
            wait_until(self.program.name, self.ready, READY_S, interval_s=0.1)
        except EmulationError:
            with suppress(OSError, ValueError):
                print(json.dumps(self.ask(), indent=1), file=sys.stderr)
            # It then says where its threads are.
            self.program.kill(signal.SIGUSR1)
            time.sleep(1.0)
            print(self.program.log.read_text()[-20_000:], file=sys.stderr)
            raise

    def declare_unread(self) -> socket.socket:
        """Asks for another flow without waiting for the answer: it is frozen."""
        body = json.dumps(NEW_FLOW)
        connection = socket.create_connection(("127.0.0.1", self.ports["rest"]), timeout=5)
        head = ["POST /api/v1/flows HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
        connection.sendall("\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode())
        return connection


class LedEmulation(Emulation):
    """Its controllers tell what they do. ``on_disks``: each member of etcd has a file system of its own."""

    on_disks = False
    first: tuple[str, ...] = ()
    """Before the commands of what carries the stream."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Controllers and etcd have machines of their own. Here each start of one would keep it from forwarding, and
        # niceness is of no use where the kernel shares the processors between sessions (sched_autogroup_enabled).
        self.switch.daemon.command = [*self.first, *self.switch.daemon.command]

    def _program(self, command: str, settings: dict[str, Any], suffix: str = "") -> Program:
        program = super()._program(command, settings, suffix)
        number = int(suffix.removeprefix("-") or 1) - 1
        path = program.log.with_suffix(".json")
        group = ["setpriv", "--regid", str(GROUP + number), "--clear-groups", "--"]
        words = [*group, sys.executable, str(LED), str(path), str(CONTROL_PORT + number)]
        return Program(program.name, words, program.log, niceness=-10)

    @property
    def led(self) -> list[Led]:
        return [Led(program, number) for number, program in enumerate(self.controllers)]

    def start(self, say: Callable[[str], None]) -> None:
        if self.on_disks:
            for member in self.etcd.programs:
                disk(folder_of(self, member))
        super().start(say)
        self.witness = Witness(self, ("a", "d"))

    def leader(self) -> Led | None:
        return next((led for led in self.led if led.program.alive and led.epoch() is not None), None)


def devices(emulation: Emulation) -> dict[str, Any]:
    """What switches and agents have: rules, revisions, and the flows that agents send."""
    found: dict[str, Any] = {}
    for node in emulation.addressing.dpid:
        rules = emulation.node(node).dpctl("dump-flows", "--no-stats").splitlines()
        found[node] = sorted(line.strip() for line in rules if "cookie" in line)
        agent = emulation.agent_report(node)
        found[agent_name(node)] = [agent["revision"], [flow["number"] for flow in agent["ingress"]]]
    return found


class Stream:
    """1,000 packets a second over the multipath, from now on."""

    def __init__(self, emulation: LedEmulation, seconds: float = STREAM_S) -> None:
        self._emulation, self._losses, self._began_s = emulation, Losses(emulation, ("a", "d")), time.monotonic()
        probe = [*emulation.first, sys.executable, "-m", "hyroads.mininet.probe"]
        receive = [*emulation.inside("d"), *probe, "receive", "--seconds", str(seconds + 2.5)]
        to = emulation.addressing.host_ip["d"]
        send = [*emulation.inside("a"), *probe, "send", "--to", to, "--seconds", str(seconds)]
        send += ["--interval-ms", "1", "--bytes", str(PACKET_BYTES)]
        self._receiver = subprocess.Popen(receive, stdout=subprocess.PIPE, text=True)

        def listens() -> bool:
            found = subprocess.run([*emulation.inside("d"), "ss", "-Huln"], check=True, capture_output=True, text=True)
            return f":{MAGIC_PORT} " in found.stdout

        wait_until("receiver", listens, 10.0)
        emulation.witness.start(emulation.first, seconds)
        self._sender = subprocess.Popen(send, stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)

    def end(self, event_s: float) -> dict[str, Any]:
        """What became of it: what was lost, where, and who had no processor meanwhile."""
        arrivals = json.loads(self._receiver.communicate(timeout=120)[0])
        sent = json.loads(self._sender.communicate(timeout=30)[0])
        found = report(sent, arrivals)
        lost_ms = [(found.sent_at_s(number) - event_s) * 1e3 for number in found.lost]
        row = {"sent": found.sent, "lost": len(lost_ms), "lost_ms": [min(lost_ms), max(lost_ms)] if lost_ms else []}
        late_ms = {"sender, worst": sent["late_s"] * 1e3, **self._losses.late_ms()}
        row |= {"lost_at": self._losses.since(), "late_ms": late_ms}
        row |= {"switch_waited_ms": self._losses.waited_ms(), "witness_ms": self._emulation.witness.worst_ms()}
        return row | {"seen": self._seen(event_s)}

    def _seen(self, event_s: float) -> list[Seen]:
        """What controllers saw meanwhile that makes them change something: ms after the event, who, what, where."""
        told = [(led.program.name, led.ask()["seen"]) for led in self._emulation.led if led.program.alive]
        seen = [(at_s, who, kind, what) for who, rows in told for at_s, kind, what in rows if at_s >= self._began_s]
        return [((at_s - event_s) * 1e3, who, kind, what) for at_s, who, kind, what in sorted(seen)]


def declare(led: Led, method: str = "POST", *, wait: bool = True) -> int:
    """The status of a request for another flow, or for its removal."""
    path = "/flows" if method == "POST" else f"/flows/{NEW_FLOW['id']}"
    path += "" if wait else "?wait=false"
    body = json.dumps(NEW_FLOW) if method == "POST" else None
    connection = HTTPConnection("127.0.0.1", led.ports["rest"], timeout=15)
    try:
        connection.request(method, f"/api/v1{path}", body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def one_cut(emulation: LedEmulation) -> dict[str, Any]:
    """The leader is cut off from everything, asked for a flow meanwhile, and comes back."""
    old, others, before, was = begin(emulation)
    sent = Stream(emulation)
    time.sleep(0.5)
    asked, event_s = old.ask(), time.monotonic()
    with dropped(*cut_rules(emulation, old, of=("etcd", "peers", "devices"))):
        row = taken_over(emulation, "cut", others, before, was, event_s)
        row["answer"] = declare(old, wait=False)
        time.sleep(max(0.0, CUT_S - (time.monotonic() - event_s)))
        was = devices(emulation)
    back_s = time.monotonic()
    time.sleep(3.0)
    row |= refusals(old.ask(), asked, back_s) | changes(emulation, was)
    return row | sent.end(event_s)


def one_without(emulation: LedEmulation, kind: str) -> dict[str, Any]:
    """Something is away for a while, and nobody, or one at most, is to take over."""
    old, _, _, _ = begin(emulation)
    began, length_s = old.ask(), ETCD_S[kind]
    sent = Stream(emulation, length_s + 4.0)
    event_s = time.monotonic()
    with away(emulation, old, kind):
        time.sleep(1.0)
        row: dict[str, Any] = {"kind": kind, "answer": declare(old)}
        time.sleep(max(0.0, length_s - (time.monotonic() - event_s)))
    row["rates meanwhile"] = old.ask()["counters"].get("agent_rates", 0) - began["counters"].get("agent_rates", 0)
    back_s = time.monotonic()
    wait_until(
        "writes", lambda: any(declare(led) in (200, 201, 202, 409) for led in emulation.led), 30.0, interval_s=0.1
    )
    row["writes_after_ms"] = (time.monotonic() - back_s) * 1e3
    time.sleep(2.0)
    leaders = [led for led in emulation.led if led.epoch() is not None]
    row["takeovers"] = max(led.ask()["ha"]["epoch"] for led in emulation.led) - began["epoch"]
    row["leaders"] = len(leaders)
    declare(leaders[0], "DELETE", wait=False)
    return row | sent.end(event_s)


def one_busy(emulation: LedEmulation) -> dict[str, Any]:
    """What forwards is kept from running, which no controller can help: it must be seen as that."""
    begin(emulation)
    sent = Stream(emulation)
    event_s = time.monotonic()
    emulation.switch.daemon.kill(signal.SIGSTOP)
    time.sleep(BUSY_S)
    emulation.switch.daemon.kill(signal.SIGCONT)
    return {"kind": "busy"} | sent.end(event_s)


def begin(emulation: LedEmulation) -> tuple[Led, list[Led], dict[int, dict[str, Any]], dict[str, Any]]:
    """The leader, the others and what they say, and what devices have, once all is well."""
    for led in emulation.led:
        led.await_ready()
    time.sleep(1.0)
    old = emulation.leader()
    assert old is not None
    others = [led for led in emulation.led if led.control != old.control]
    return old, others, {led.control: led.ask() for led in others}, devices(emulation)


def taken_over(
    emulation: LedEmulation, kind: str, others: list[Led], before: dict[int, Any], was: dict[str, Any], event_s: float
) -> dict[str, Any]:
    """What the next leader did, once there is one."""
    wait_until("a leader", lambda: any(led.epoch() is not None for led in others), 10.0, interval_s=0.02)
    time.sleep(THAW_AFTER_S)
    new = next(led for led in others if led.epoch() is not None)
    now, then = new.ask(), before[new.control]
    row: dict[str, Any] = {"kind": kind, "epoch": now["epoch"], "quiet": devices(emulation) == was}
    row["ms"] = {what: (at - event_s) * 1e3 for what, at in now["times"].items()}
    row["flow_mods"] = now["flow_mods"] - then["flow_mods"]
    row |= {name: now["counters"].get(name, 0) - then["counters"].get(name, 0) for name in SENT}
    row["leaders"] = sum(led.epoch() is not None for led in others)
    return row


def one_run(emulation: LedEmulation, kind: str) -> dict[str, Any]:
    if kind in ("cut", "busy"):
        return one_cut(emulation) if kind == "cut" else one_busy(emulation)
    if kind in ETCD_S:
        return one_without(emulation, kind)
    old, others, before, was = begin(emulation)
    sent = Stream(emulation)
    time.sleep(0.5)
    pid, asked = old.program.pid, old.ask()
    rules = cut_rules(emulation, old, of=("etcd", "peers")) if kind == "alone" else []
    with dropped(*rules):
        event_s = time.monotonic()
        os.kill(pid, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        unread = None if kind == "killed" else old.declare_unread()
        row = taken_over(emulation, kind, others, before, was, event_s)
        if kind == "killed":
            old.program.start()
            old.await_ready()
        else:
            row |= thawed(emulation, old, unread, pid, asked)
    return row | sent.end(event_s)


SENT, REFUSED = ("agent_configs", "agent_rates"), ("refused_as_slave", "refused_as_stale")


def thawed(emulation: LedEmulation, old: Led, unread: Any, pid: int, asked: dict[str, Any]) -> dict[str, Any]:
    """The old leader goes on: what it sends to change something, how much of it is refused, and when it follows."""
    was, answer = devices(emulation), ""
    thaw_s = time.monotonic()
    os.kill(pid, signal.SIGCONT)
    time.sleep(1.5)
    status = old.ask()
    with suppress(OSError):
        unread.settimeout(5.0)
        answer = unread.recv(200).split(b"\r\n")[0].decode()
    unread.close()
    return {"answer": answer, **refusals(status, asked, thaw_s), **changes(emulation, was)}


def changes(emulation: LedEmulation, was: dict[str, Any]) -> dict[str, Any]:
    """What an old leader has changed since devices had something, and whether the flow that it was asked for exists."""
    now = devices(emulation)
    new = emulation.leader()
    with Client(f"http://127.0.0.1:{new.ports['rest']}", timeout_s=5.0) as rest:
        declared = any(flow["id"] == NEW_FLOW["id"] for flow in rest.flows())
    return {"changed": sum(was[name] != now[name] for name in was), "late flow": declared}


def refusals(status: dict[str, Any], asked: dict[str, Any], back_s: float) -> dict[str, Any]:
    """What an old leader that is back has sent to change something, how much was refused, and when it followed."""

    def since(names: tuple[str, ...]) -> int:
        return sum(status["counters"].get(name, 0) - asked["counters"].get(name, 0) for name in names)

    down = status["stepped_down_s"]
    # Counted by session: those that are new have none of before.
    flow_mods = status["flow_mods"] - asked["flow_mods"]
    return {
        "sent_by_old": since(SENT) + (flow_mods if flow_mods >= 0 else status["flow_mods"]),
        "refused": since(REFUSED),
        "stepped_down_ms": None if down is None else (down - back_s) * 1e3,
    }


def summary(rows: list[dict[str, Any]]) -> None:
    def of(values: list[float]) -> str:
        return f"{statistics.median(values):.1f} ({max(values):.1f})" if values else "-"

    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]
        print(f"{kind}, {len(mine)} runs, medians (worst):")
        if "takeovers" in mine[0]:
            for what in ("takeovers", "rates meanwhile", "writes_after_ms", "answer"):
                print(f"  {what}: {of([row[what] for row in mine])}")
            print(f"  packets lost: {lost_of(mine)}")
            continue
        if kind == "busy":
            print(f"  packets lost: {lost_of(mine)}")
            continue
        for what in ("master", "obeyed", "in force"):
            print(f"  until {what}, ms: {of([row['ms'][what] for row in mine if what in row['ms']])}")
        print(f"  packets lost: {lost_of(mine)}")
        for what in ("flow_mods", "agent_configs", "agent_rates"):
            print(f"  {what} of the takeover: {of([row[what] for row in mine])}")
        print(f"  runs in which devices had the same before and after: {sum(row['quiet'] for row in mine)}")
        if "sent_by_old" in mine[0]:
            for what in ("sent_by_old", "refused", "changed"):
                print(f"  {what} once it was back: {sum(row[what] for row in mine)}")
            print(f"  runs in which the flow that it was asked for exists: {sum(row['late flow'] for row in mine)}")
            steps = [row["stepped_down_ms"] for row in mine if row["stepped_down_ms"] is not None]
            print(f"  stepped down {len(steps)} times, ms after that: {of(steps)}")


def main() -> int:
    told = [f"{kind:15}{what}" for kind, what in KINDS.items()]
    kinds = "\n".join(["kinds:", *told, ONE_MEMBER.format(several=", ".join(SEVERAL))])
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=kinds, formatter_class=how)
    parser.add_argument("--runs", type=int, default=10, help="of each kind")
    parser.add_argument("--kinds", nargs="+", default=["frozen", "killed"], choices=KINDS, metavar="KIND")
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--etcd-members", type=int, default=3)
    first = "what carries the stream goes before all other programs, for busy machines; takeovers take 50 ms longer"
    parser.add_argument("--first", action="store_true", help=first)
    parser.add_argument("--logs", type=Path, help="a folder for the logs of the controllers")
    arguments = parser.parse_args()
    if arguments.etcd_members == 1 and set(arguments.kinds) & set(SEVERAL):
        parser.error(f"{', '.join(SEVERAL)} need --etcd-members 3")
    LedEmulation.first = FIRST if arguments.first else ()
    LedEmulation.on_disks = bool(set(arguments.kinds) & set(DISKS))

    def body(emulation: LedEmulation) -> int:
        rows = []
        for kind in arguments.kinds:
            for _ in range(arguments.runs):
                row = one_run(emulation, kind)
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
        summary(rows)
        for led in emulation.led if arguments.logs is not None else ():
            shutil.copy(led.program.log, arguments.logs)
        return 0

    emulation = EmulationOptions(controllers=arguments.controllers, etcd_members=arguments.etcd_members)
    options = RunOptions(publish=0, emulation=emulation)
    return run_network(parse(DIAMOND, "diamond"), "bench-takeover", body, options, print, LedEmulation)


if __name__ == "__main__":
    sys.exit(main())
