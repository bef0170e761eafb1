"""What sources of sessions send: counters of the rules by which their messages enter, asked for each second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from hyroads.controller import ryu_shim as shim
from hyroads.controller.control.sessions import LiveSession
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.readback import FlowStat
from hyroads.controller.switches import SwitchSession

INTERVAL_S = 1.0
MAX_SAMPLE_AGE_S = 3.0
# A message goes over the media whole, behind one label.
LABEL_BYTES = 4
_MEGABIT = 1e6 / 8

Key = tuple[str, str]
"""Session and source node."""
Rule = tuple[Key, str]
"""And the MAC address of the host."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    bytes: int
    mbps: float = 0.0


class SessionMeter:
    """Asks; ``told`` gets the Mb/s that every source sends."""

    def __init__(
        self,
        switches: Mapping[str, SwitchSession],
        sessions: Callable[[], Mapping[str, LiveSession]],
        told: Callable[[Mapping[Key, float]], None],
        clock: Callable[[], float],
    ) -> None:
        self._switches = switches
        self._sessions = sessions
        self._told = told
        self._clock = clock
        self._samples: dict[Rule, _Sample] = {}

    def run(self, exception: Callable[[str, BaseException], None]) -> None:
        """Work for ever, in the calling green thread."""
        while True:
            shim.sleep(INTERVAL_S)
            try:
                self.once()
            except Exception as error:  # noqa: BLE001 - the next second is another try; it is counted and shown
                exception("the meter of sessions", error)

    def once(self) -> None:
        """Tell what the answers to the last questions say, and ask again."""
        now_s = self._clock()
        rules = dict(self._rules())
        fresh = {
            rule: sample
            for rule, sample in self._samples.items()
            if rule in rules and now_s - sample.at_s < MAX_SAMPLE_AGE_S
        }
        rates: dict[Key, float] = {}
        for (key, _), sample in fresh.items():
            rates[key] = rates.get(key, 0.0) + sample.mbps
        if rates or self._samples:
            self._told(rates)
        self._samples = fresh
        by_switch: dict[str, dict[bytes, tuple[Rule, Match]]] = {}
        for rule, (node, match) in rules.items():
            by_switch.setdefault(node, {})[wire.match_fields(match)] = rule, match
        for node, asked in by_switch.items():
            session = self._switches.get(node)
            if session is not None and session.is_read:
                session.ask_counters([match for _, match in asked.values()], partial(self._take, asked))

    def _rules(self) -> Iterator[tuple[Rule, tuple[str, Match]]]:
        """The rules by which messages enter: the node, and the match."""
        for name, live in self._sessions().items():
            for source, rollout in live.rollouts.items():
                if rollout.current is None:
                    continue
                node = rollout.current.root
                for host in live.sources_at(source):
                    match = Match(eth_src=host.mac, **live.spec.group.match)  # type: ignore[arg-type]
                    yield ((name, source), str(host.mac)), (node, match)

    def _take(self, asked: Mapping[bytes, tuple[Rule, Match]], stat: FlowStat) -> None:
        now_s = self._clock()
        for rule, match in asked.values():
            # A plain client's rule names its port besides.
            if wire.match_fields(replace(match, in_port=None)) == _without_port(stat.rule.match_fields):
                total, before = stat.bytes + LABEL_BYTES * stat.packets, self._samples.get(rule)
                mbps = 0.0
                if before is not None and now_s > before.at_s and total >= before.bytes:
                    mbps = (total - before.bytes) / (now_s - before.at_s) / _MEGABIT
                self._samples[rule] = _Sample(now_s, total, mbps)


def _without_port(fields: bytes) -> bytes:
    """OXM fields without in_port, which comes first if it is there (class 0x8000, field 0, four bytes)."""
    canonical = wire.canonical_fields(fields)
    return canonical[8:] if canonical[:4] == b"\x80\x00\x00\x04" else canonical
