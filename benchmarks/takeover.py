"""A second controller takes over from one that is killed, or frozen and thawed: real controllers, switches and agents.

    python benchmarks/takeover.py --runs 10          root

Two controllers on one network, both connected to all switches and agents. The election is this program: it tells the
next one to lead ``--after-ms`` after the first one was frozen or killed. A UDP stream of 1,000 packets a second goes
over the multipath all the time. While the old leader is frozen it is asked over REST for another flow, which it tries
to bring about when it is thawed: all that it sends must be refused.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from failure_lab import DIAMOND

from hyroads.controller.core.netfile import parse
from hyroads.mininet.emulation import Emulation, EmulationOptions, controller_ports
from hyroads.mininet.probe import MAGIC_PORT, report
from hyroads.mininet.programs import Program, wait_until
from hyroads.mininet.runner import RunOptions, run_network

LED = Path(__file__).with_name("led_controller.py")
STREAM_S, PACKET_BYTES = 5.0, 600
THAW_AFTER_S = 1.0
NEW_FLOW = {"id": "late", "from": "d", "to": "a"}


class Led:
    """One controller and its socket."""

    def __init__(self, emulation: Emulation, number: int) -> None:
        self.ports = controller_ports(number)
        self.control = 9000 + number
        settings = json.loads((emulation.directory / "controller.json").read_text())
        settings["listen"] = {what: {"port": port} for what, port in self.ports.items()}
        settings["state_file"] = str(emulation.directory / f"state-{number}.json")
        path = emulation.directory / f"led-{number}.json"
        path.write_text(json.dumps(settings))
        command = [sys.executable, str(LED), str(path), str(self.control)]
        self.program = Program(f"controller {number}", command, path.with_suffix(".log"), niceness=-10)

    def start(self) -> None:
        self.program.start()

    def ask(self, words: str) -> dict[str, Any]:
        with socket.create_connection(("127.0.0.1", self.control), timeout=5) as connection:
            connection.sendall(words.encode() + b"\n")
            return json.loads(connection.makefile().readline())

    def ready(self) -> bool:
        with suppress(OSError, ValueError):
            status = self.ask("status")
            return status["settled"] and status["switches"] == 4 and status["agents"] == 4
        return False

    def declare_unread(self) -> socket.socket:
        """Asks for another flow without waiting for the answer: it is frozen."""
        body = json.dumps(NEW_FLOW)
        connection = socket.create_connection(("127.0.0.1", self.ports["rest"]), timeout=5)
        head = ["POST /api/v1/flows HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
        connection.sendall("\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode())
        return connection

    def forget(self) -> None:
        subprocess.run(["curl", "-s", "-X", "DELETE", f"http://127.0.0.1:{self.ports['rest']}/api/v1/flows/late"],
                       check=False, capture_output=True, timeout=10)  # fmt: skip


class LedEmulation(Emulation):
    """Both controllers are told whether they lead."""

    def _make_controller(self) -> Program:
        super()._make_controller()
        self.led = [Led(self, number) for number in range(2)]
        return self.led[0].program

    def start(self, say: Any) -> None:
        self.led[1].start()
        super().start(say)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Both have heard everybody, and the first leads."""
        for led in self.led:
            wait_until("controllers", led.ready, timeout_s, interval_s=0.1)
        self.led[0].ask("lead 1")
        wait_until("in force", lambda: not self.led[0].ask("status")["unsynced"], timeout_s, interval_s=0.1)


def devices(emulation: Emulation) -> dict[str, Any]:
    """What switches and agents have: rules, revisions, and the flows that agents send."""
    found: dict[str, Any] = {}
    for node in emulation.addressing.dpid:
        rules = emulation.node(node).dpctl("dump-flows", "--no-stats").splitlines()
        found[node] = sorted(line.strip() for line in rules if "cookie" in line)
        agent = emulation.agent_report(node)
        found[f"agent {node}"] = [agent["revision"], [flow["number"] for flow in agent["ingress"]]]
    return found


def stream(emulation: Emulation) -> tuple[subprocess.Popen, subprocess.Popen]:
    probe = [sys.executable, "-m", "hyroads.mininet.probe"]
    receive = [*emulation.inside("d"), *probe, "receive", "--seconds", str(STREAM_S + 2.5)]
    to = emulation.addressing.host_ip["d"]
    send = [*emulation.inside("a"), *probe, "send", "--to", to, "--seconds", str(STREAM_S)]
    send += ["--interval-ms", "1", "--bytes", str(PACKET_BYTES)]
    receiver = subprocess.Popen(receive, stdout=subprocess.PIPE, text=True)

    def listens() -> bool:
        found = subprocess.run([*emulation.inside("d"), "ss", "-Huln"], check=True, capture_output=True, text=True)
        return f":{MAGIC_PORT} " in found.stdout

    wait_until("receiver", listens, 10.0)
    sender = subprocess.Popen(send, stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    return receiver, sender


def one_run(emulation: LedEmulation, epoch: int, kill: bool, after_s: float) -> dict[str, Any]:
    old, new = emulation.led[(epoch + 1) % 2], emulation.led[epoch % 2]
    wait_until("both", lambda: old.ready() and new.ready(), 60.0, interval_s=0.1)
    time.sleep(1.0)
    before, was = new.ask("status"), devices(emulation)
    receiver, sender = stream(emulation)
    time.sleep(0.5)
    pid, asked = old.program.pid, old.ask("status")
    event_s = time.monotonic()
    os.kill(pid, signal.SIGKILL if kill else signal.SIGSTOP)
    time.sleep(max(0.0, event_s + after_s - time.monotonic()))
    new.ask(f"lead {epoch + 1}")
    unread = None if kill else old.declare_unread()
    time.sleep(THAW_AFTER_S)
    now = new.ask("status")
    row: dict[str, Any] = {"kind": "killed" if kill else "frozen", "quiet": devices(emulation) == was}
    row["ms"] = {what: (at - now["times"]["lead"]) * 1e3 for what, at in now["times"].items() if what != "lead"}
    row["flow_mods"] = now["flow_mods"] - before["flow_mods"]
    names = ("agent_configs", "agent_rates")
    row |= {name: now["counters"].get(name, 0) - before["counters"].get(name, 0) for name in names}
    if kill:
        old.start()
        wait_until("the old one", old.ready, 60.0, interval_s=0.1)
    else:
        row |= thawed(old, unread, pid, asked)
    arrivals = json.loads(receiver.communicate(timeout=30)[0])
    sent = json.loads(sender.communicate(timeout=30)[0])
    found = report(sent, arrivals)
    lost_ms = [(found.sent_at_s(number) - event_s) * 1e3 for number in found.lost]
    row["sent"], row["lost"], row["lost_ms"] = found.sent, len(lost_ms), [min(lost_ms), max(lost_ms)] if lost_ms else []
    return row


SENT, REFUSED = ("agent_configs", "agent_rates"), ("refused_as_slave", "refused_as_stale")


def thawed(old: Led, unread: Any, pid: int, asked: dict[str, Any]) -> dict[str, Any]:
    """The old leader goes on: what it sends to change something, how much of it is refused, and when it follows."""
    thaw_s = time.monotonic()
    os.kill(pid, signal.SIGCONT)
    time.sleep(1.5)
    status = old.ask("status")
    unread.close()
    old.forget()

    def since(names: tuple[str, ...]) -> int:
        return sum(status["counters"].get(name, 0) - asked["counters"].get(name, 0) for name in names)

    down = status["stepped_down_s"]
    return {
        "sent_by_old": since(SENT) + status["flow_mods"] - asked["flow_mods"],
        "refused": since(REFUSED),
        "stepped_down_ms": None if down is None else (down - thaw_s) * 1e3,
    }


def summary(rows: list[dict[str, Any]]) -> None:
    def of(values: list[float]) -> str:
        return f"{statistics.median(values):.1f} ({max(values):.1f})" if values else "-"

    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]
        print(f"{kind}, {len(mine)} runs, medians (worst):")
        for what in ("master", "obeyed", "in force"):
            print(f"  from lead to {what}, ms: {of([row['ms'][what] for row in mine if what in row['ms']])}")
        print(f"  packets lost: {sum(row['lost'] for row in mine)} of {sum(row['sent'] for row in mine)}")
        for what in ("flow_mods", "agent_configs", "agent_rates"):
            print(f"  {what} of the takeover: {of([row[what] for row in mine])}")
        print(f"  runs in which devices had the same before and after: {sum(row['quiet'] for row in mine)}")
        if kind == "frozen":
            for what in ("sent_by_old", "refused"):
                print(f"  {what} once it was thawed: {sum(row[what] for row in mine)}")
            steps = [row["stepped_down_ms"] for row in mine if row["stepped_down_ms"] is not None]
            print(f"  stepped down {len(steps)} times, ms after SIGCONT: {of(steps)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="of each kind")
    parser.add_argument("--after-ms", type=float, default=250.0, help="until the next one is told to lead")
    parser.add_argument("--kinds", nargs="+", default=["frozen", "killed"])
    arguments = parser.parse_args()

    def body(emulation: LedEmulation) -> int:
        rows, epoch = [], 0
        for kind in arguments.kinds:
            for _ in range(arguments.runs):
                epoch += 1
                row = one_run(emulation, epoch, kind == "killed", arguments.after_ms / 1e3)
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
        summary(rows)
        return 0

    options = RunOptions(publish=0, emulation=EmulationOptions(controllers=2))
    return run_network(parse(DIAMOND, "diamond"), "bench-takeover", body, options, lambda _: None, LedEmulation)


if __name__ == "__main__":
    sys.exit(main())
