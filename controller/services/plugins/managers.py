"""A mobility manager that lives in a plugin's process, as handovers see it.

Handovers never wait for it: a step is sent to the plugin and leaves everything as it is; what the plugin answers counts
as soon as it is there (``wake`` tells). What it does wrong ends its handover, at the old place, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.core.services.mobility import DesiredState, Event, Handover, Phase, Request, before, settled
from hyroads.controller.framework import ryu_shim as shim
from hyroads.plugins.codec import encode
from hyroads.plugins.host import Step, sound_step

from .process import PluginFaultError

CALL_S = 1.0
MAX_STEPS_QUEUED = 64
MAX_HANDOVERS = 2000

Call = Callable[[str, Mapping[str, Any], float], Any]
Task = tuple[str, Mapping[str, Any]]


@dataclass
class Open:
    """A handover that the plugin runs. ``told``: events since it last changed, which it need not hear again."""

    handover: Handover
    wanted: DesiredState
    due_s: float | None = None
    steps: deque[Task] = field(default_factory=deque)
    told: set[Event] = field(default_factory=set)
    is_ticking: bool = False


@dataclass(eq=False)
class ForeignManager:
    """A ``MobilityManager`` in a plugin's process. ``call`` calls the plugin, ``wrong`` counts invalid answers."""

    name: str
    call: Call
    wrong: Callable[[str], None]
    wake: Callable[[], object]

    def __post_init__(self) -> None:
        self._open: OrderedDict[str, Open] = OrderedDict()
        self._busy: deque[str] = deque()
        self._working = False

    def start(self, request: Request, now_s: float) -> Handover:
        """The state of a new handover; its first step is sent to the plugin."""
        begun = Handover(request, Phase.ASSOCIATING, now_s)
        self._open[request.id] = Open(begun, before(begun))
        while len(self._open) > MAX_HANDOVERS:
            self._open.popitem(last=False)
        self._send(request.id, "start", {"request": encode(request), "now_s": now_s})
        return begun

    def on(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """Send an event to the plugin; the state as far as the plugin has answered."""
        known = self._open.get(handover.request.id)
        if known is None or handover.is_over or event in known.told:
            return self._now(handover)
        known.told.add(event)
        self._send(handover.request.id, "on", {"event": encode(event), "now_s": now_s})
        return self._now(handover)

    def tick(self, handover: Handover, now_s: float) -> Handover:
        """Tell the plugin that time passed, if it is due; the state as far as it has answered."""
        known = self._open.get(handover.request.id)
        if known is not None and not known.is_ticking and known.due_s is not None and now_s >= known.due_s:
            known.is_ticking = True
            self._send(handover.request.id, "tick", {"now_s": now_s})
        return self._now(handover)

    def due_s(self, handover: Handover) -> float | None:
        """When :meth:`tick` is next needed; None: not before the plugin answers."""
        known = self._open.get(handover.request.id)
        return None if known is None or known.handover.is_over or known.is_ticking else known.due_s

    def wanted(self, handover: Handover) -> DesiredState:
        """What the plugin wanted last of the client's flows."""
        known = self._open.get(handover.request.id)
        return settled(handover) if known is None or handover.is_over or known.handover != handover else known.wanted

    # -- the plugin's part

    def _now(self, handover: Handover) -> Handover:
        known = self._open.get(handover.request.id)
        return handover if known is None or handover.is_over else known.handover

    def _send(self, name: str, do: str, arguments: Mapping[str, Any]) -> None:
        known = self._open[name]
        if len(known.steps) >= MAX_STEPS_QUEUED:
            self._failed(known, arguments["now_s"])
            return
        known.steps.append((do, arguments))
        self._busy.append(name)
        if not self._working:
            self._working = True
            shim.spawn(self._work)

    def _work(self) -> None:
        """Runs until there is nothing more to ask."""
        try:
            while self._busy:
                known = self._open.get(self._busy.popleft())
                if known is not None and known.steps:
                    self._step(known, *known.steps.popleft())
        finally:
            self._working = False

    def _step(self, known: Open, do: str, arguments: Mapping[str, Any]) -> None:
        if known.handover.is_over:
            return
        given = arguments if do == "start" else {"handover": encode(known.handover), **arguments}
        try:
            step = sound_step(self.call(do, given, CALL_S), known.handover.request)
            if step is None:
                self.wrong(f"{do}: no sound answer")
        except PluginFaultError:
            step = None
        known.is_ticking = False
        if step is None:
            self._failed(known, arguments["now_s"])
        else:
            self._become(known, step)
        self.wake()

    def _become(self, known: Open, step: Step) -> None:
        if step.handover != known.handover:
            known.told.clear()
        known.handover, known.wanted, known.due_s = step.handover, step.wanted, step.due_s
        if known.handover.is_over:
            known.steps.clear()

    def _failed(self, known: Open, now_s: float) -> None:
        known.handover = known.handover.enter(Phase.FAILED, now_s, f"the plugin {self.name} failed")
        known.wanted, known.due_s = settled(known.handover), None
        known.steps.clear()
