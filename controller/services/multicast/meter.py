"""Measures what sources of sessions send, by the counters of the rules by which their packets enter.

It also finds hosts by name: those of the network file, and those that were learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from hyroads.controller.control.sessions import Host, LiveSession
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import WIRED
from hyroads.controller.core.services.client_tables import Clients
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.readback import FlowStat
from hyroads.controller.switches.sessions import SwitchSession

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


@dataclass(eq=False)
class SessionMeter:
    """Asks; ``told`` gets the Mb/s that every source sends."""

    switches: Mapping[str, SwitchSession]
    sessions: Callable[[], Mapping[str, LiveSession]]
    told: Callable[[Mapping[Key, float]], None]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._samples: dict[Rule, _Sample] = {}

    def once(self) -> None:
        """Tell what the answers to the last questions say, and ask again."""
        now_s = self.clock()
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
            self.told(rates)
        self._samples = fresh
        by_switch: dict[str, dict[bytes, tuple[Rule, Match]]] = {}
        for rule, (node, match) in rules.items():
            by_switch.setdefault(node, {})[wire.match_fields(match)] = rule, match
        for node, asked in by_switch.items():
            session = self.switches.get(node)
            if session is not None and session.is_read:
                session.ask_counters([match for _, match in asked.values()], partial(self._take, asked))

    def _rules(self) -> Iterator[tuple[Rule, tuple[str, Match]]]:
        """The rules by which messages enter: the node, and the match."""
        for name, live in self.sessions().items():
            for source, rollout in live.rollouts.items():
                if rollout.current is None:
                    continue
                node = rollout.current.root
                for host in live.sources_at(source):
                    match = Match(eth_src=host.mac, **live.spec.group.match)  # type: ignore[arg-type]
                    yield ((name, source), str(host.mac)), (node, match)

    def _take(self, asked: Mapping[bytes, tuple[Rule, Match]], stat: FlowStat) -> None:
        now_s = self.clock()
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


def fixed_hosts(addressing: Addressing) -> Callable[[str], Host | None]:
    """Finds the hosts that the network file names: by node id, MAC or IP."""
    hosts = {
        node: Host(node, True, node, addressing.host_mac[node], addressing.host_ip[node])
        for node in addressing.node_number
    }
    by_name = {str(key): host for host in hosts.values() for key in (host.mac, host.ip)} | hosts
    return lambda name: by_name.get(name) or by_name.get(name.lower())


def known_hosts(addressing: Addressing, clients: Callable[[], Clients]) -> Callable[[str], Host | None]:
    """Finds these, and hosts that were learned: by MAC or IP."""
    fixed = fixed_hosts(addressing)

    def find(name: str) -> Host | None:
        host = fixed(name)
        if host is not None:
            return host
        known, text = clients(), name.lower()
        address = known.addresses.get(text)
        interface = known.interfaces.get(text if address is None else address.mac)
        if interface is None:
            return None
        place, ip = interface.place, text if address is not None else None
        if place is None:
            return Host(name, True, None, interface.mac, ip)
        wired = place.technology == WIRED
        return Host(name, True, place.node, interface.mac, ip, None if wired else place.technology)

    return find


def ports_of_hosts(addressing: Addressing) -> Callable[[str, str], tuple[str, str | None] | None]:
    """Where hosts behind a port of a node are: at its access port, or on a medium of it."""
    known: dict[tuple[str, str], tuple[str, str | None]] = {
        (node, port): (node, None) for node, port in addressing.access_port.items()
    }
    known.update({(node, name): (node, k) for (node, k), name in addressing.interface_name.items()})
    return lambda node, port: known.get((node, port))
