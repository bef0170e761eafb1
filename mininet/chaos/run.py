"""A run of chaos on an emulated network: the traffic, each event of the plan with what came of it, and the verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hyroads.controller.core.network import Network
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.machine import MachineWatch
from hyroads.mininet.programs import EmulationError, wait_until
from hyroads.mininet.reference import LEAST, Lane, Reference, carried
from hyroads.mininet.runner import RunOptions, run_network
from hyroads.rest.client import ApiError, ClientError

from .faults import ChaosEmulation, Faults, left_out
from .invariants import Invariants, some
from .plan import ALL, MINUTE_S, QUIET_S, SETTLE_S, Allowance, Event, Group, Kind, allowance, parts_of, plan, ways
from .streams import PING, TCP, UDP, Streams, Told

Say = Callable[[str], None]
POLL_S = 0.1
# Streams flow again when all had an arrival within this time; what is late has so long to arrive.
FLOWING_S, LATE_S = 0.8, 0.5
# Who is late is waited for so many times as long as is allowed; then nothing has healed.
PATIENCE = 2.0
MOST_UDP, MOST_PINGS, MOST_TCP = 6, 4, 2
_NETWORK_READY_S = 60.0
_ASKED = "chaos-asked"
_DECLARE_S = 20.0
_SAME_RANGE_S = 0.02
# What a late machine costs an event, at most, of the time that the plain lane beside it lost: faults are noticed by
# programs that wait for each other.
COST_OF_LOST_TIME = 2.0


@dataclass
class Outcome:
    """What came of an event; times are seconds since the run began, and None where something did not happen."""

    event: Event
    began_s: float
    mended_s: float
    back_s: float | None
    missing: str
    lost_s: float
    lost_back_s: float
    wrong: list[str] = field(default_factory=list)
    slow: str = ""
    """What was lost or late and does not count, because the plain lane beside it lost as much."""

    @property
    def ok(self) -> bool:
        """Whether all healed and held."""
        return self.back_s is not None and not self.wrong

    def line(self) -> str:
        """One line of progress."""
        word = "ok  " if self.ok else "FAIL"
        back = (
            f"back after {self.back_s - self.mended_s:4.1f} s"
            if self.back_s is not None
            else f"not back: {self.missing}"
        )
        lost = f"lost {self.lost_s:.2f} + {self.lost_back_s:.2f} s"
        slow = f" (slow machine: {self.slow})" if self.slow else ""
        return "\n       ".join([f"{word} {back}, {lost}{slow}", *self.wrong])

    def document(self) -> dict[str, Any]:
        """The entry of the report."""
        faults = [{"part": str(f.part), "kind": f.kind.value, "amount": f.amount} for f in self.event.faults]
        return {
            "number": self.event.number,
            "faults": faults,
            "began_s": round(self.began_s, 2),
            "mended_s": round(self.mended_s, 2),
            "back_s": None if self.back_s is None else round(self.back_s, 2),
            "missing": self.missing,
            "lost_s": round(self.lost_s, 3),
            "lost_back_s": round(self.lost_back_s, 3),
            "wrong": self.wrong,
            "slow": self.slow,
            "ok": self.ok,
        }


class Chaos:
    """The events of a plan on a running network."""

    def __init__(self, emulation: ChaosEmulation, streams: Streams, lane: Callable[[], Lane], say: Say) -> None:
        self.emulation, self.streams, self.lane, self.say = emulation, streams, lane, say
        self.faults = Faults(emulation)
        self.invariants = Invariants(emulation)
        self.began_s = time.monotonic()
        self.outcomes: list[Outcome] = []

    def run(self, events: Sequence[Event], most_s: float) -> None:
        """One event after the other, while there is time: on a slow machine not all are reached, and that is said."""
        for event in events:
            time.sleep(QUIET_S)
            elapsed_s = time.monotonic() - self.began_s
            if elapsed_s > most_s:
                self.say(
                    f"{elapsed_s:6.1f} s  the time is over: events {event.number} to {len(events)} are not reached"
                )
                return
            self.say(f"{elapsed_s:6.1f} s  {event.number:3} of {len(events)}: {event}, {event.hold_s:g} s")
            self.outcomes.append(self._one(event))
            self.say(f"       {self.outcomes[-1].line()}")

    def _one(self, event: Event) -> Outcome:
        """One event, from the first fault until all is as before."""
        allowed = allowance(event)
        wrong = [f"{part} had ended by itself" for part in self._died()]
        began_s = time.monotonic()
        try:
            wrong += self._break(event)
        finally:
            for fault in event.faults:
                self.faults.undo(fault)
        mended_s = time.monotonic()
        wrong += [f"{part} ended of it" for part in self._died() if part not in allowed.ends]
        back_s, missing = self._heal(allowed, mended_s)
        wrong += self._rest_again(event) if back_s is not None else []
        time.sleep(LATE_S)
        different = self.invariants.differences() if back_s is not None else []
        if different and self.invariants.missing():
            # A switch whose probe was not answered in time may dial anew only after the fault has ended.
            back_s, missing = self._heal(allowed, mended_s)
            different = self.invariants.differences() if back_s is not None else []
        lost = self.streams.tell(began_s, mended_s)
        over_s = back_s or time.monotonic() - LATE_S
        lost_back = self.streams.tell(mended_s, over_s)
        lane = self.lane()

        def short(within: Allowance) -> list[str]:
            return _losses(within, lost, lost_back, mended_s - began_s) + _lateness(within, back_s, mended_s)

        counted = short(beside(allowed, lane, began_s, over_s))
        excused = short(allowed) if not counted else []
        wrong += counted
        wrong += [*different, *self.invariants.not_held(is_back=back_s is not None)]
        return Outcome(
            event,
            began_s - self.began_s,
            mended_s - self.began_s,
            None if back_s is None else back_s - self.began_s,
            missing,
            _worst(lost),
            _worst(lost_back),
            wrong,
            f"{carried(lane.worst_ratio(began_s, over_s))}; {some(excused)}" if excused else "",
        )

    def _break(self, event: Event) -> list[str]:
        """Breaks the parts and waits; what was wrong meanwhile."""
        for number, fault in enumerate(event.faults):
            time.sleep(event.stagger_s if number else 0.0)
            self.faults.do(fault)
        over_s = time.monotonic() + event.hold_s
        wrong = self._rest_meanwhile(event)
        time.sleep(max(0.0, over_s - time.monotonic()))
        return wrong

    def _rest_meanwhile(self, event: Event) -> list[str]:
        """A change that cannot be saved is refused, and not in force."""
        if not _disk_of_controller(event) or len(event.faults) > 1 or self.emulation.etcd is not None:
            return []
        source, target, *_ = self.emulation.network.nodes
        try:
            self.emulation.rest.declare_flow(_ASKED, source, target, match={"eth_type": 0x0800, "udp_dst": 9})
        except ApiError as error:
            return [] if error.status >= 500 else [f"REST refused a flow that cannot be saved with {error.status}"]
        except ClientError:
            return []
        return ["REST took a flow that cannot be saved"]

    def _rest_again(self, event: Event) -> list[str]:
        """What was refused is not there, and is taken now."""
        if not _disk_of_controller(event) or len(event.faults) > 1 or self.emulation.etcd is not None:
            return []
        rest = self.emulation.rest
        wrong = []
        try:
            if _ASKED in {flow["id"] for flow in rest.flows()}:
                wrong.append("a flow that was refused is there")
            else:
                source, target, *_ = self.emulation.network.nodes
                rest.declare_flow(_ASKED, source, target, match={"eth_type": 0x0800, "udp_dst": 9})
            rest.request("DELETE", f"/flows/{_ASKED}")
        except ClientError as error:
            wrong.append(f"REST refuses a flow after the disk is back: {error}")
        # Its rules go with it.
        over_s = time.monotonic() + _DECLARE_S
        while self.invariants.missing() and time.monotonic() < over_s:
            time.sleep(POLL_S)
        return wrong

    def _died(self) -> list[Any]:
        """Parts that have ended though nobody killed them; they are started again."""
        found = []
        for part, program in self.emulation.programs():
            if not program.alive and part not in self.faults.broken:
                found.append(part)
                with suppress(EmulationError):
                    program.start()
        return found

    def _heal(self, allowed: Allowance, mended_s: float) -> tuple[float | None, str]:
        """When all was as before, and all streams flowed; what is missing if that was not in time."""
        missing, patience_s = "", PATIENCE * allowed.back_s
        while (now_s := time.monotonic()) < mended_s + patience_s:
            missing = self.invariants.missing() or self._silent(now_s, mended_s)
            if not missing:
                return now_s, ""
            time.sleep(POLL_S)
            self._died()
        return None, missing

    def _silent(self, now_s: float, mended_s: float) -> str:
        """Streams of which nothing arrives."""
        told = self.streams.tell(max(mended_s, now_s - FLOWING_S), now_s)
        silent = [each.name for each in told if not each.arrived]
        return f"nothing arrives of {', '.join(silent[:3])}" if silent else ""


def _disk_of_controller(event: Event) -> bool:
    return any(f.part.group is Group.CONTROLLER and f.kind in (Kind.FULL, Kind.READ_ONLY) for f in event.faults)


def _worst(told: Sequence[Told]) -> float:
    return max((each.lost_s for each in told if each.kind != TCP), default=0.0)


def beside(allowed: Allowance, lane: Lane, from_s: float, to_s: float) -> Allowance:
    """What an event between two moments may cost beside what the plain lane lost in them."""
    if lane.worst_ratio(from_s, to_s) >= LEAST:
        return allowed
    more_s = COST_OF_LOST_TIME * lane.missing_s(from_s, to_s)
    lost_s, lost_back_s, back_s = (getattr(allowed, name) + more_s for name in ("lost_s", "lost_back_s", "back_s"))
    return replace(allowed, lost_s=lost_s, lost_back_s=lost_back_s, back_s=back_s)


def _losses(allowed: Allowance, lost: Sequence[Told], lost_back: Sequence[Told], hold_s: float) -> list[str]:
    """Streams that lost more than is allowed, or carried something wrong."""
    found = []
    for when, told, most_s in (
        ("meanwhile", lost, allowed.lost_s),
        ("after it", lost_back, allowed.lost_back_s),
    ):
        for each in told:
            if each.broken:
                found.append(f"{each.name}: {each.broken} connections broke {when}")
            if each.kind != TCP and each.lost_s > most_s + _SAME_RANGE_S:
                found.append(f"{each.name}: {each.lost_s:.2f} s lost {when}, {_limit(most_s, hold_s)} are allowed")
    return found


def _lateness(allowed: Allowance, back_s: float | None, mended_s: float) -> list[str]:
    """What healed, and took longer than is allowed."""
    if back_s is None or back_s - mended_s <= allowed.back_s:
        return []
    return [f"back only after {back_s - mended_s:.1f} s, {allowed.back_s:.0f} s are allowed"]


def _limit(most_s: float, hold_s: float) -> str:
    return f"{hold_s if most_s == ALL else most_s:.2f} s"


def open_streams(emulation: Emulation, network: Network, streams: Streams) -> list[tuple[str, str, str]]:
    """UDP and TCP between the ends of the network's flows, pings from its first node to the last others."""
    first, *others = network.nodes
    ends = [(flow.source, flow.target) for flow in network.flows] or [(first, others[-1])]
    found = [(UDP, *pair) for pair in ends[:MOST_UDP]]
    found += [(TCP, *pair) for pair in ends[-MOST_TCP:]]
    found += [(PING, first, other) for other in others[-MOST_PINGS:]]
    for kind, source, target in found:
        streams.open(kind, source, target)
    return found


def verdict(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Counts of what went wrong."""
    wrong = [each for outcome in outcomes for each in outcome.wrong]
    return {
        "events": len(outcomes),
        "unhealed": sum(outcome.back_s is None for outcome in outcomes),
        "exceptions": sum("exceptions" in each or "Traceback" in each or "panicked" in each for each in wrong),
        "leaks": sum("at first" in each for each in wrong),
        "wrong": len(wrong),
        "slow": sum(bool(outcome.slow) for outcome in outcomes),
    }


def write_report(path: Path, head: dict[str, Any], outcomes: Sequence[Outcome], watch: MachineWatch) -> None:
    """All of a run as JSON."""
    ok = bool(outcomes) and all(outcome.ok for outcome in outcomes)
    document = {
        **head,
        "verdict": verdict(outcomes),
        "ok": ok,
        "machine": watch.result().document(believable=True),
        "events": [outcome.document() for outcome in outcomes],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class ChaosOptions:
    """How long, which sequence, among which faults (``plan.ways``), and where the report goes."""

    minutes: float
    seed: int
    only: tuple[str, ...] = ()
    out: Path | None = None


def run_chaos(network: Network, name: str, how: ChaosOptions, options: RunOptions, say: Say) -> int:
    """Brings the network up, breaks it and mends it, prints the verdict; exit status 0, or 1 if anything is wrong.

    EmulationError if it could not run.
    """
    events, lacking = events_of(network, how, options.emulation)

    def body(emulation: Emulation) -> int:
        if not isinstance(emulation, ChaosEmulation):
            raise EmulationError("chaos needs disks and clocks that can be broken")
        print("".join(f"left out: {words}\n" for words in lacking), end="")
        reference = Reference(emulation.directory, realtime=emulation.options.realtime)
        with Streams(emulation) as streams, MachineWatch(emulation) as watch, reference:
            opened = open_streams(emulation, network, streams)
            print(f"{len(events)} events (seed {how.seed}) under {len(opened)} streams of packets", flush=True)
            chaos = _warm(emulation, streams, reference)
            try:
                chaos.run(events, how.minutes * MINUTE_S)
            finally:
                chaos.faults.undo_all()
                head = {"network": network.name or name, "minutes": how.minutes, "seed": how.seed}
                head["left_out"] = lacking
                if how.out is not None:
                    write_report(how.out, head, chaos.outcomes, watch)
        return _conclude(chaos.outcomes)

    return run_network(network, name, body, options, say, ChaosEmulation)


def events_of(network: Network, how: ChaosOptions, emulation: EmulationOptions) -> tuple[tuple[Event, ...], list[str]]:
    """The plan of a run on this machine, and what is left out of it and why; EmulationError if there is no event."""
    parts = parts_of(
        network,
        controllers=emulation.controllers,
        etcd=emulation.etcd_members,
        radios=emulation.measured or emulation.radios,
        snmp=emulation.snmp,
        sliced=emulation.sliced,
    )
    groups = {part.group for part in parts}
    # With etcd no state is on a disk of the controller's.
    aside = {(Group.CONTROLLER, Kind.READ_ONLY)} if emulation.etcd_members else set()
    among = [way for way in ways(how.only) if way[0] in groups and way not in aside]
    if not among:
        raise EmulationError(
            f"--only {' '.join(how.only)!a}: no fault of this network has that in its name (see --plan)"
        )
    lacking = {way: why for way, why in left_out().items() if way in among}
    events = plan(network, how.minutes, how.seed, parts, [way for way in among if way not in lacking])
    if not events:
        raise EmulationError(f"--minutes {how.minutes:g}: too short for any event that this machine can do")
    return events, [f"{group}: {kind}: {why}" for (group, kind), why in lacking.items()]


def _warm(emulation: ChaosEmulation, streams: Streams, reference: Reference) -> Chaos:
    """Waits until all streams flow and hosts are known, then looks at how the network is."""

    def flowing() -> bool:
        now_s = time.monotonic()
        return all(each.arrived for each in streams.tell(now_s - FLOWING_S, now_s))

    wait_until("traffic", flowing, _NETWORK_READY_S, interval_s=POLL_S)
    emulation.wait_ready()
    _wait_quiet(emulation)
    return Chaos(emulation, streams, reference.lane, lambda words: print(words, flush=True))


def _wait_quiet(emulation: ChaosEmulation) -> None:
    """Waits until everything has been up for a while: that is what must be so again after each event."""
    first = Invariants(emulation)
    quiet_s = [time.monotonic()]

    def quiet() -> bool:
        if first.missing(changed=False):
            quiet_s[0] = time.monotonic()
        return time.monotonic() > quiet_s[0] + SETTLE_S

    wait_until("the network", quiet, _NETWORK_READY_S, interval_s=POLL_S)


def _conclude(outcomes: Sequence[Outcome]) -> int:
    counts = verdict(outcomes)
    ok = bool(outcomes) and all(outcome.ok for outcome in outcomes)
    words = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"{'ok  ' if ok else 'FAIL'} {words}", flush=True)
    return 0 if ok else 1
