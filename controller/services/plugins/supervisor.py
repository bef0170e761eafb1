"""Keeps one foreign plugin running while it is enabled and healthy; counts its faults."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.events import EventLog
from hyroads.plugins.api import Event
from hyroads.plugins.codec import CodecError, decode, encode
from hyroads.plugins.host import Fault, Health, Limits
from hyroads.plugins.host import Kind as FaultKind
from hyroads.plugins.kinds import DiscoveredPlugin, Kind
from hyroads.plugins.sfnet.messages import wants

from .process import Answer, PluginFaultError, PluginProcess, usage

LOG = logging.getLogger("hyroads.plugins")
RESTART_S = 1.0
IDLE_S = 0.5
LEAST_TICK_S = 0.05
LOOK_S = 1.0
BUSY_SHARE, BUSY_LOOKS = 0.5, 20

Document = dict[str, Any]


@dataclass(eq=False)
class Supervisor:
    """One plugin."""

    found: DiscoveredPlugin
    events: EventLog
    clock: Callable[[], float]
    answer: Answer
    limits: Limits

    def __post_init__(self) -> None:
        self.health = Health()
        self.wanted = self.found.starts
        self.process: PluginProcess | None = None
        self.ready = False
        self.starts = 0
        self._bell = shim.Signal()
        self._last_fault: Fault | None = None
        self._busy_looks = 0
        self._looked = (0.0, 0.0)

    # -- what others ask and want

    @property
    def usable(self) -> bool:
        """Whether it can be called now."""
        return self.ready and self.process is not None and self.process.ended is None

    def want(self, wanted: bool) -> None:
        """It shall run, or not. Wanting it by hand forgives what it did."""
        self.wanted = wanted
        if wanted:
            self.health = self.health.enabled()
        elif self.process is not None:
            self.process.kill(PluginFaultError(FaultKind.EXITED, "disabled"))
        self._bell.notify()

    def call(self, do: str, arguments: Mapping[str, Any], deadline_s: float) -> Any:
        """An answer of a policy or a mobility manager; :class:`PluginFaultError`, which is counted."""
        process = self.process
        if process is None or not self.usable:
            raise PluginFaultError(FaultKind.EXITED, "it does not run")
        try:
            return process.call(do, arguments, deadline_s)
        except PluginFaultError as fault:
            # How a process ended is counted where it is kept, once.
            if process.ended is None:
                self._note(fault)
            raise

    def wrong(self, what: str) -> None:
        """It answered what can't be used."""
        self._note(PluginFaultError(FaultKind.WRONG, what))

    @property
    def state(self) -> str:
        """A word for people."""
        if not self.wanted:
            return "off"
        if not self.health.usable(self.clock()):
            return "disabled"
        return "running" if self.usable else "starting"

    def document(self) -> Document:
        """What is known of it (docs/reference/plugins.md, section 4)."""
        now_s, fault, until_s = self.clock(), self._last_fault, self.health.until_s
        last = fault and {"kind": fault.kind.value, "what": fault.what, "age_s": now_s - fault.at_s}
        return {
            "state": self.state,
            "enabled_in_s": until_s - now_s if until_s is not None and self.state == "disabled" else None,
            "faults": {
                "total": self.health.total,
                "recent": len(self.health.faults),
                "times_disabled": self.health.times_disabled,
                "last": last,
            },
            "process": None if self.process is None or self.process.ended else self._figures(self.process),
        }

    def _figures(self, process: PluginProcess) -> Document:
        times = sorted(process.call_s)
        memory_mb, cpu_s = usage(process.pid) or (None, None)
        return {
            "pid": process.pid,
            "starts": self.starts,
            "calls": process.calls,
            "call_ms": {"p50": times[len(times) // 2] * 1e3, "max": times[-1] * 1e3} if times else None,
            "memory_mb": memory_mb,
            "cpu_s": cpu_s,
        }

    # -- its green thread

    def run(self) -> None:
        """For ever."""
        while True:
            if not self.wanted or not self.health.usable(self.clock()):
                self._bell.wait(IDLE_S)
                continue
            try:
                self._live()
            except PluginFaultError as fault:
                if self.wanted:
                    self._note(fault)
            except OSError as error:
                self._note(PluginFaultError(FaultKind.EXITED, f"can't be started: {error.strerror}"))
            finally:
                self._end()
            self._bell.wait(RESTART_S)

    def _live(self) -> None:
        """From the start of its process to its end."""
        self.starts += 1
        self.process = PluginProcess(self.found, self.answer, self.clock)
        told = self.process.load()
        if told.get("name") != self.found.name:
            raise PluginFaultError(FaultKind.WRONG, f"calls itself {str(told.get('name'))[:41]!r}")
        self.ready, self._busy_looks, self._looked = True, 0, (self.clock(), 0.0)
        self._changed("running")
        if self.found.kind is Kind.APP:
            self._serve_app(self.process, told)
        while self._goes_on(self.process):
            self._bell.wait(LOOK_S)

    def _end(self) -> None:
        self.ready = False
        if self.process is not None:
            self.process.kill(PluginFaultError(FaultKind.EXITED, "no longer needed"))
            self.process = None
            self._changed(self.state)

    def _goes_on(self, process: PluginProcess) -> bool:
        """Whether it may run on; raises how its process ended."""
        self._watch(process)
        if process.ended is not None and self.wanted:
            raise process.ended
        return self.wanted and process.ended is None and self.health.usable(self.clock())

    def _serve_app(self, process: PluginProcess, told: Mapping[str, Any]) -> None:
        """Events as they come, and ticks."""
        wanted, every_s = _wishes(told)
        log, clock = self.events, self.clock
        last, tick_s = log.last, clock()
        self._counted(process, "start", {})
        while self._goes_on(process):
            if every_s is not None and clock() >= tick_s:
                # Ticks that could not be called in time are left out.
                tick_s = max(tick_s + every_s, clock())
                self._counted(process, "tick", {})
                continue
            missed = max(0, log.first - last - 1)
            for event in log.since(last):
                last = event.id
                if wanted and wants(wanted, event.kind):
                    told_event = encode(Event(event.id, event.kind, dict(event.document), missed))
                    self._counted(process, "event", {"event": told_event})
                    missed = 0
                    break
            else:
                left_s = LOOK_S if every_s is None else min(LOOK_S, max(0.0, tick_s - clock()))
                log.wait(last, left_s)

    def _counted(self, process: PluginProcess, do: str, arguments: Mapping[str, Any]) -> None:
        """A call whose failure is counted; the process goes on unless it has ended."""
        try:
            process.call(do, arguments)
        except PluginFaultError as fault:
            if process.ended is not None:
                raise
            self._note(fault)

    def _watch(self, process: PluginProcess) -> None:
        """A plugin that keeps a processor busy by itself, between calls, hangs in its own way."""
        now_s = self.clock()
        then_s, before_s = self._looked
        if now_s - then_s < LOOK_S or process.ended is not None:
            return
        spent_s = (usage(process.pid) or (0.0, before_s))[1]
        self._busy_looks = self._busy_looks + 1 if spent_s - before_s > BUSY_SHARE * (now_s - then_s) else 0
        self._looked = (now_s, spent_s)
        if self._busy_looks >= BUSY_LOOKS:
            process.kill(PluginFaultError(FaultKind.HUNG, f"kept a processor busy for {BUSY_LOOKS * LOOK_S:g} s"))

    def _note(self, error: PluginFaultError) -> None:
        fault = Fault(error.kind, str(error), self.clock())
        self.health = self.health.after(fault, self.limits)
        self._last_fault, name = fault, self.found.name
        disabled = not self.health.usable(self.clock())
        LOG.warning("plugin %s: %s: %s%s", name, fault.kind, fault.what, "; disabled" if disabled else "")
        document = {"name": name, "kind": fault.kind.value, "what": fault.what, "disabled": disabled}
        self.events.publish("plugin.fault", document)

    def _changed(self, state: str) -> None:
        LOG.info("plugin %s: %s", self.found.name, state)
        self.events.publish("plugin.changed", {"name": self.found.name, "state": state})


def _wishes(told: Mapping[str, Any]) -> tuple[tuple[str, ...], float | None]:
    """Which events an app wants, and how often it is to be called; its process may say anything."""
    try:
        kinds, every_s = decode(tuple[str, ...], told.get("events")), decode(float | None, told.get("every_s"))
    except CodecError as error:
        raise PluginFaultError(FaultKind.WRONG, f"events, every_s: {error}") from error
    return kinds, None if every_s is None else max(LEAST_TICK_S, every_s)
