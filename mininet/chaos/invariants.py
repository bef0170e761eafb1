"""What must hold once nothing is broken: all is as before, rules are those of the plan, nobody leaks, REST is right."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.model.pending_names import agent_name
from hyroads.mininet.programs import EmulationError, Program
from hyroads.rest.client import Client, ClientError

from .faults import ChaosEmulation
from .plan import Part

# A process that has served more may keep so much more: descriptors, and memory as a factor and MiB. What it has for a
# while only, at less than so many looks in a row, is no leak.
LOOKS = 3
MORE_DESCRIPTORS = 6
MORE_MEMORY, MORE_MEMORY_MIB = 1.5, 24.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# What no program of ours may ever say.
_DEFECT = re.compile(rb"^(Traceback \(most recent call last\):|thread '.*' panicked at .*)", re.MULTILINE)
_SHOWN = 3
_VOLATILE = re.compile(r"\b(duration|n_packets|n_bytes|idle_age|hard_age)=[^, ]*,? ?")


@dataclass(frozen=True)
class Level:
    """What a process holds."""

    pid: int
    descriptors: int
    resident_mib: float


class Invariants:
    """Remembers how the network was at first, and says what differs from it."""

    def __init__(self, emulation: ChaosEmulation) -> None:
        self.emulation = emulation
        self._levels: dict[Part, Level] = {}
        self._looks: dict[Part, deque[Level]] = {}
        self._logs: dict[Path, int] = {}
        self._exceptions: dict[str, tuple[float, int]] = {}
        self._links = {(link.source, link.target, link.technology): link.id for link in emulation.network.links}
        self.flows = self._flows()
        self.rules = self._rules()
        self.leaks()
        self.defects()

    @property
    def clients(self) -> list[Client]:
        """One for each controller."""
        return [self.emulation.rest.only(url) for url in self.emulation.rest_urls]

    @property
    def leader(self) -> Client:
        """That of the controller that leads: others do not know what devices have confirmed."""
        for client in self.clients:
            with suppress(ClientError):
                told = client.health()["ha"]
                if told is None or told.get("role") == "leader":
                    return client
        raise EmulationError("no controller leads")

    # As before?

    def missing(self, *, changed: bool = True) -> str:
        """What is not up, nor (``changed``) as before, in a few words; empty if all is."""
        try:
            for part, program in self.emulation.programs():
                if not program.alive:
                    return f"{part} does not run"
            for client in self.clients:
                if why := _unhealthy(client.health()):
                    return why
            return self._not_up(self.leader.get("/topology")) or (self._other_flows() if changed else "")
        except HyroadsError as error:
            return str(error)

    def _not_up(self, topology: Mapping[str, Any]) -> str:
        down = [f"{link['id']} ({link['reason']})" for link in topology["links"] if not link["up"]]
        return f"links down: {some(down)}" if down else ""

    def _other_flows(self) -> str:
        now = self._flows()
        return some(
            [f"flow {flow} is {now.get(flow)}, was {was}" for flow, was in self.flows.items() if now.get(flow) != was]
        )

    def _flows(self) -> dict[str, tuple[str, int]]:
        """State and number of each flow."""
        return {flow["id"]: (flow["state"], flow["number"]) for flow in self.leader.flows()}

    # What holds

    def differences(self) -> list[str]:
        """What of rules and of REST is not as it should be; only when nothing is broken, and all is as before."""
        try:
            return [*self.wrong_rules(), *self.untrue()]
        except HyroadsError as error:
            return [f"no answer any more: {error}"]

    def not_held(self, *, is_back: bool) -> list[str]:
        """What of the rest did not hold since this was last asked; leaks only when all is as before (``is_back``)."""
        return [*(self.leaks() if is_back else ()), *self.defects()]

    def wrong_rules(self) -> list[str]:
        """Rules of switches beside those that were there at first, when the plan was the same, and their number beside
        what the controller says.
        """
        found = []
        said = {switch["node"]: switch["rules"] for switch in self.leader.health()["switches"]}
        for node, rules in self._rules().items():
            gone, new = self.rules[node] - rules, rules - self.rules[node]
            if gone or new:
                found.append(f"rules of {node}: {len(gone)} missing, {len(new)} too many: {some([*gone, *new])}")
            flows = sum(not rule.startswith("group_id=") for rule in rules)
            if self.emulation.slicer is None and said[node] != flows:
                found.append(f"rules of {node}: {flows}, and the controller says {said[node]}")
        return found

    def _rules(self) -> dict[str, frozenset[str]]:
        found = {}
        for node in self.emulation.addressing.dpid:
            switch = self.emulation.node(node)
            lines = [*switch.dpctl("dump-flows", "--no-stats").splitlines(), *switch.dpctl("dump-groups").splitlines()]
            rows = (_VOLATILE.sub("", line).strip() for line in lines)
            found[node] = frozenset(row for row in rows if "cookie=" in row or row.startswith("group_id="))
        return found

    def untrue(self) -> list[str]:
        """What REST says, beside what the medium and the agents say themselves."""
        found = []
        with self.emulation.shared.client() as client:
            truth = {name: link.up for name, link in client.stats().links.items()}
        for link in self.leader.get("/topology")["links"]:
            name = self._links.get((link["from"], link["to"], link["technology"]))
            if name in truth and link["up"] != truth[name]:
                found.append(f"REST: link {link['id']} {'up' if link['up'] else 'down'}, in truth not")
        sent = {
            node: {flow["number"] for flow in self.emulation.agent_report(node)["ingress"]}
            for node in self.emulation.agents()
        }
        told: dict[str, set[int]] = {node: set() for node in sent}
        for flow in self.leader.flows():
            if flow["state"] == "multipath":
                told[flow["ingress"]].add(flow["number"])
        for node, numbers in sent.items():
            if not told[node] <= numbers:
                found.append(
                    f"REST: flows {sorted(told[node] - numbers)} start at {node}, whose agent has not got them"
                )
        return found

    def leaks(self) -> list[str]:
        """Processes that hold clearly more than at first; one that was started again counts anew."""
        found = []
        for part, program in self.emulation.programs():
            level = _level(program)
            if level is None:
                continue
            first = self._levels.get(part)
            if first is None or first.pid != level.pid:
                self._levels[part] = level
                self._looks.pop(part, None)
                continue
            looks = self._looks.setdefault(part, deque(maxlen=LOOKS))
            looks.append(level)
            if len(looks) < LOOKS:
                continue
            descriptors, mib = min(each.descriptors for each in looks), min(each.resident_mib for each in looks)
            if descriptors > first.descriptors + MORE_DESCRIPTORS:
                found.append(f"{part}: {descriptors} descriptors, {first.descriptors} at first")
            if mib > MORE_MEMORY * first.resident_mib + MORE_MEMORY_MIB:
                found.append(f"{part}: {mib:.0f} MiB, {first.resident_mib:.0f} at first")
        return found

    def defects(self) -> list[str]:
        """Exceptions that controllers count, and tracebacks and panics in logs, since this was last asked."""
        found = []
        for client, url in zip(self.clients, self.emulation.rest_urls, strict=True):
            with suppress(ClientError):
                found += self._new_exceptions(url, client.health())
        logs = {program.log for _, program in self.emulation.programs()}
        logs |= set(self.emulation.switch.directory.glob("*.log"))
        for log in sorted(logs):
            found += self._new_lines(log)
        return found

    def _new_exceptions(self, url: str, health: Mapping[str, Any]) -> list[str]:
        count = int(health["counters"]["exceptions"])
        # Whoever was started again counts from zero.
        uptime_s, before = self._exceptions.get(url, (0.0, 0))
        before = before if health["uptime_s"] >= uptime_s else 0
        self._exceptions[url] = (health["uptime_s"], count)
        if count <= before:
            return []
        errors = [f"{error['where']}: {error['what']}" for error in health["last_errors"][-_SHOWN:]]
        return [f"{count - before} exceptions: {some(errors)}"]

    def _new_lines(self, log: Path) -> list[str]:
        seen = self._logs.get(log, 0)
        try:
            with log.open("rb") as file:
                file.seek(seen if log.stat().st_size >= seen else 0)
                text = file.read()
                self._logs[log] = file.tell()
        except OSError:
            return []
        found = []
        for match in _DEFECT.finditer(text):
            rest = text[match.start() :].decode("utf-8", "replace").splitlines()
            end = next((n for n, line in enumerate(rest) if n and line and not line.startswith((" ", "\t"))), len(rest))
            where = next((line.strip() for line in reversed(rest[:end]) if line.startswith("  File ")), "")
            found.append(
                " ".join([f"{log.name}:", rest[0][:200], where[:200], *(each[:200] for each in rest[end : end + 1])])
            )
        return found


def _unhealthy(health: Mapping[str, Any]) -> str:
    if health["pending"]:
        return f"not in force at {some(health['pending'])}"
    if health["settling"]:
        return "the controller settles"
    if health["state_file"] is not None and not health["state_file"]["ok"]:
        return f"state file: {health['state_file']['reason']}"
    away = [switch["node"] for switch in health["switches"] if not switch["connected"]]
    away += [agent_name(agent["node"]) for agent in health["agents"] if not agent["up"]]
    return f"not connected: {some(away)}" if away else ""


def _level(program: Program) -> Level | None:
    pid = program.pid
    if pid is None:
        return None
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return Level(pid, len(list(Path(f"/proc/{pid}/fd").iterdir())), pages * _PAGE_BYTES / 2**20)
    except OSError:
        return None


def some(words: list[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(map(str, words[:_SHOWN])) + more
