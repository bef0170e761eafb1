"""Faults and warnings: the latest faults for health and events, log lines about new plans, a limit on the log, and its
JSON format.

The limit prevents that hostile peers fill the disk: what is beyond it is counted instead of written.
:func:`wait_until` is the one loop for those who wait for a confirmation, :func:`repeat` for what is done regularly.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.mappings import differing, ordered
from hyroads.controller.core.token_bucket import LimitedReports, TokenBucket
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.plan import FlowPlan, Plan

LOG = logging.getLogger("hyroads.controller")
MAX_FAULTS = 50
STRANGERS_BURST, STRANGERS_PER_S = 40, 2.0
CONFLICT_S = 10.0
"""Of one device, conflicts are told no more often."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that went wrong, for health."""

    time_s: float
    where: str
    what: str


@dataclass(eq=False)
class FaultLog:
    """The latest faults. Defects are counted in ``counters``."""

    clock: Callable[[], float]
    counters: Counter[str]
    events: EventLog

    def __post_init__(self) -> None:
        self._faults: deque[Fault] = deque(maxlen=MAX_FAULTS)
        self.stranger = LimitedReports(self.fault, self.clock, TokenBucket(STRANGERS_PER_S, STRANGERS_BURST))
        """Note what somebody did who may not do it, now and then."""
        self._conflict_s: dict[tuple[str, str], float] = {}

    def __iter__(self) -> Iterator[Fault]:
        return iter(tuple(self._faults))

    def fault(self, where: str, what: str) -> None:
        """Note something that went wrong."""
        self._note(where, what)
        LOG.warning("%s: %s", where, what)

    def conflict(self, role: str, node: str, peer: str, holder: str) -> None:
        """Somebody says that it is a device whose session, with ``holder``, lives: counted, and told now and then."""
        self.counters["identity_conflicts"] += 1
        now_s, key = self.clock(), (role, node)
        if now_s - self._conflict_s.get(key, -CONFLICT_S) < CONFLICT_S:
            return
        self._conflict_s[key] = now_s
        self.events.publish("identity.conflict", {"role": role, "node": node, "peer": peer, "holder": holder})
        LOG.warning("%s %s: a second one at %s is refused; the first, at %s, lives", role, node, peer, holder)

    def exception(self, where: str, error: BaseException) -> None:
        """Note a defect: never swallowed, never fatal."""
        self.counters["exceptions"] += 1
        self._note(where, f"{type(error).__name__}: {error}")
        level = logging.WARNING if isinstance(error, HyroadsError) else logging.ERROR
        LOG.log(level, "%s: %s", where, error, exc_info=error)

    def _note(self, where: str, what: str) -> None:
        self._faults.append(Fault(self.clock(), where, what))
        self.events.publish("fault", {"where": where, "what": what})


def log_plan(before: Plan | None, after: Plan, events: EventLog) -> None:
    """Tell what differs between two plans but for rates."""
    changed = differing(before.flows if before else {}, after.flows)
    for flow in ordered(changed & after.flows.keys(), after.flows):
        plan, old = after.flows[flow], before.flows.get(flow) if before else None
        if old is None or _route(old) != _route(plan):
            multipath = [{"id": p.id, "links": list(p.links), "rate_mbps": p.rate_mbps} for p in plan.paths]
            moved = {"id": flow, "state": plan.mode, "reason": plan.reason, "multipath": multipath}
            events.publish("flow.moved", moved)
            why = f" ({plan.reason})" if plan.reason else ""
            LOG.info("flow %s: %s%s: %s", flow, plan.mode, why, "; ".join(_paths(plan)))


def _route(plan: FlowPlan) -> tuple[object, ...]:
    return plan.mode, plan.reason, [path.id for path in plan.paths]


def _paths(plan: FlowPlan) -> list[str]:
    rates = ("" if path.rate_mbps is None else f" {path.rate_mbps:.2f} Mb/s" for path in plan.paths)
    return ["+".join(path.links) + rate for path, rate in zip(plan.paths, rates, strict=True)]


BURST, PER_SECOND = 100, 5.0
"""Warnings."""
BURST_BYTES, BYTES_PER_S = 262_144, 12_288
"""Of each level."""
MOST_BYTES = 8192
"""Of one record."""
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


class LogLimit(logging.Filter):
    """Bounds what is written of each level, in bytes, and of warnings also in records. The next record of that level
    that passes tells how many did not. A record that is very long is cut.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._bytes = {level: TokenBucket(BYTES_PER_S, BURST_BYTES) for level in _LEVELS}
        self._warnings = TokenBucket(PER_SECOND, BURST)
        self._left_out = dict.fromkeys(_LEVELS, 0)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        level = max((each for each in _LEVELS if each <= record.levelno), default=logging.DEBUG)
        now_s, size = self._clock(), self._bytes[level]
        if size.wait_s(now_s) > 0 or (level == logging.WARNING and not self._warnings.take(now_s)):
            self._left_out[level] += 1
            return False
        message = record.getMessage()
        if self._left_out[level]:
            message += f" ({self._left_out[level]} before at this level were left out)"
            self._left_out[level] = 0
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMAT.formatException(record.exc_info)
        if record.exc_text and len(record.exc_text) > MOST_BYTES:
            record.exc_text = f"...{record.exc_text[-MOST_BYTES:]}"
        record.msg, record.args = message if len(message) <= MOST_BYTES else f"{message[:MOST_BYTES]}...", None
        size.spend(LINE_BYTES + len(record.msg) + len(record.exc_text or ""))
        return True


LINE_BYTES = 80
"""What comes before a message."""
_FORMAT = logging.Formatter()


class JsonLines(logging.Formatter):
    """A record as one line of JSON: ``time`` (UTC, to the microsecond), ``level``, ``logger``, ``message`` and, with an
    exception, ``exception``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        document = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(document)


LOOK_EVERY_S = 0.1
AFTER_DEFECT_S = 1.0
Defect = Callable[[str, BaseException], None]


def repeat(work: Callable[[], object], every_s: float, where: str, defect: Defect) -> None:
    """Sleep and do ``work``, for ever, in the calling green thread. ``defect`` is told ``where`` what went wrong; a
    second later comes another try.
    """
    while True:
        shim.sleep(every_s)
        try:
            work()
        except Exception as error:  # noqa: BLE001 - counted and shown
            defect(where, error)
            shim.sleep(AFTER_DEFECT_S)


class Waits(Protocol):
    """What can be waited with."""

    def wait(self, timeout_s: float) -> object:
        """Let others run until something was confirmed, or the time is over."""


def wait_until(done: Callable[[], bool], within_s: float, clock: Callable[[], float], progress: Waits) -> bool:
    """Whether something became so in time. It is looked at first, and whenever something was confirmed."""
    until_s = clock() + within_s
    while not done():
        left_s = until_s - clock()
        if left_s <= 0:
            return False
        progress.wait(min(left_s, LOOK_EVERY_S))
    return True
