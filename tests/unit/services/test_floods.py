"""When a port is held back, and when it is free again: laws on random arrivals and counters, and what switches get."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.client_tables import Clients, Happened
from hyroads.controller.core.services.clients import associated, cleared, heard, seen
from hyroads.controller.core.services.floods import FloodLimits, FloodWatch
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp.access import PORT_METER_FIRST, is_access
from hyroads.controller.ofp.hosts import Held, held_port_of, is_learned
from hyroads.controller.ofp.intents import AccessPort
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.port_meters import FRAMES_PER_S, metered_access_port, metered_station_port
from hyroads.controller.ofp.rules import check_rules, claim_matches, port_rules
from hyroads.controller.switches.access_layer import AccessLayer

HERE, THERE = Place("a", "host"), Place("b", "host")
LIMITS = FloodLimits(at_once=20, per_s=5.0)


def flooded(watch: FloodWatch, rate_per_s: float, for_s: float, place: Place = HERE) -> float | None:
    """When a flood begins, if new addresses come so fast."""
    for number in range(int(rate_per_s * for_s)):
        if watch.arrived(place, number / rate_per_s) is not None:
            return number / rate_per_s
    return None


@pytest.mark.parametrize(("rate_per_s", "begins_by_s"), [(50.0, 0.5), (1000.0, 0.03), (5.0, None), (1.0, None)])
def test_a_flood_is_noticed_soon_and_hosts_that_come_are_none(rate_per_s: float, begins_by_s: float | None) -> None:
    watch = FloodWatch(LIMITS)
    began_s = flooded(watch, rate_per_s, 60.0)
    assert (began_s is None) == (begins_by_s is None)
    assert began_s is None or began_s < (begins_by_s or 0.0)
    # Other ports are not concerned.
    assert set(watch.floods) <= {HERE} and watch.arrived(THERE, 60.0) is None


@examples(200)
@given(st.lists(st.tuples(st.sampled_from([HERE, THERE]), st.floats(0.0, 0.5)), max_size=200))
def test_no_more_than_the_bucket_holds_comes_in(arrivals: list[tuple[Place, float]]) -> None:
    watch, now_s = FloodWatch(LIMITS), 0.0
    let_in = {HERE: 0, THERE: 0}
    for place, after_s in arrivals:
        now_s += after_s
        watch.arrived(place, now_s)
        let_in[place] += place not in watch.floods
        assert let_in[place] <= LIMITS.at_once + LIMITS.per_s * now_s + 1e-6


def test_a_port_is_free_once_little_is_dropped() -> None:
    watch = FloodWatch(LIMITS)
    began_s = flooded(watch, 1000.0, 1.0) or 0.0
    now_s, counter = began_s, 0
    for _ in range(60):
        now_s, counter = now_s + 1.0, counter + 1000
        assert watch.counted(HERE, counter, now_s) is None, "it goes on"
        assert watch.arrived(HERE, now_s) is None, "it begins once"
    assert watch.counted(HERE, counter + 10, now_s + 1.0) is None
    over = watch.counted(HERE, counter + 20, now_s + 2.0)
    assert over is not None and (over.place, over.since_s, over.dropped) == (HERE, began_s, 60_020)
    assert not watch.floods and watch.counted(HERE, counter, now_s + 3.0) is None


def test_a_switch_that_counts_anew_or_not_at_all_holds_nobody_for_ever() -> None:
    watch = FloodWatch(LIMITS)
    flooded(watch, 1000.0, 1.0)
    for now_s, counter in ((1.0, 500), (2.0, 3), (3.0, 4)):
        assert watch.counted(HERE, counter, now_s) is None
    assert watch.counted(HERE, 5, 4.1) is not None
    flooded(watch, 1000.0, 1.0)
    assert watch.counted(HERE, None, 4.9) is None
    assert watch.counted(HERE, None, 6.0) is not None


def test_what_a_flood_left_is_forgotten_and_nobody_else() -> None:
    state = associated(Clients(), "02:00:00:00:00:01", HERE, 0.0).state
    for number, place in ((2, HERE), (3, HERE), (4, THERE), (5, HERE)):
        state = seen(state, f"02:00:00:00:00:{number:02x}", place, 10.0 if number < 5 else 1.0).state
    state = heard(state, HERE, ["02:00:00:00:00:03"], 11.0)
    change = cleared(state, HERE, 5.0)
    assert [(notice.what, notice.mac) for notice in change.notices] == [(Happened.LEFT, "02:00:00:00:00:02")]
    assert change.state.interfaces.keys() == state.interfaces.keys() - {"02:00:00:00:00:02"}


def test_what_a_port_sends_to_the_controller_is_metered_and_nothing_else() -> None:
    port = AccessPort("h", ("02:00:00:00:00:01",), guarded=True)
    entry, station = metered_access_port(100, port, 0), metered_station_port(7, 3)
    assert entry.meter is not None and station.meter is not None
    assert entry.meter.number != station.meter.number and entry.meter.packets_per_s == FRAMES_PER_S
    for one in (entry, station):
        assert one.optional and all(rule.meter == one.meter.number for rule in one.rules if one.meter)
        assert all(is_access(rule.table, rule.priority) and not is_learned(rule.priority) for rule in one.rules)
        assert len({rule.key for rule in one.rules}) == len(one.rules)
    # In front of each rule that sends what comes in there to the controller stands one with the meter.
    sent = [rule for rule in port_rules(100, port) if act.Output(act.CONTROLLER) in rule.actions]
    plain = {(rule.table, rule.match): rule.priority for rule in sent}
    metered = {(rule.table, rule.match): rule.priority for rule in entry.rules}
    assert plain and all(metered[key] > priority for key, priority in plain.items())
    claims = [rule for rule in check_rules() if rule.actions and rule.match.arp_spa is None and rule.match.eth_type]
    assert min(r.priority for r in entry.rules if r.table == Table.CHECK) > min(rule.priority for rule in claims)
    # Those that may be there are not held up.
    allowed = metered_access_port(100, AccessPort("h", (), guarded=True, serves_dhcp=True, routes=True), 0)
    assert not any(rule.match.udp_src or rule.match.icmpv6_type in {134, 137} for rule in allowed.rules)


@pytest.mark.parametrize("is_station", [False, True])
def test_a_held_port_lets_in_whom_it_knows(is_station: bool) -> None:
    rules = Held("h", is_station).rules({"h": 100})
    assert {held_port_of(rule) for rule in rules} == {100} and all(is_learned(rule.priority) for rule in rules)
    assert not Held("gone").rules({"h": 100})
    assert any(rule.table == Table.PORT for rule in rules) != is_station
    # Below hosts and claims that are known, above all that goes to the controller.
    entry = metered_station_port(100, 1) if is_station else metered_access_port(100, AccessPort("h", (), True), 0)
    by_match = {(rule.table, rule.match): rule.priority for rule in entry.rules}
    assert all(by_match[rule.table, rule.match] < rule.priority for rule in rules)
    assert next(claim_matches(100, "02:00:00:00:00:01", "10.0.0.1")).in_port == 100


class Layer:
    """The layer of a switch that carries out all that it is sent, and counts it by kind."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.xid = 0
        self.layer = AccessLayer(self._send, self._next, lambda: 0.0, pytest.fail)
        self.layer.start([])

    def _next(self, count: int) -> int:
        self.xid += count
        return self.xid - count + 1

    def _send(self, data: bytes) -> bool:
        while data:
            length = int.from_bytes(data[2:4], "big")
            self.sent.append(data[:length])
            data = data[length:]
        return True

    def kinds(self) -> list[tuple[int, int]]:
        """Kind and command of what was sent."""
        return [(message[1], int.from_bytes(message[8:10], "big")) for message in self.sent if message[1] == 29]


def test_a_switch_is_not_told_again_of_meters_that_it_has() -> None:
    entry = metered_access_port(100, AccessPort("h", (), guarded=True), 0)
    assert entry.meter is not None
    new = Layer()
    new.layer.meters_are({})
    new.layer.want_all({"port": entry})
    assert new.kinds() == [(29, 0), (29, 1)], "it is added, or changed"
    again, other = Layer(), b"\0\x08\0\0" + (PORT_METER_FIRST + 5).to_bytes(4, "big")
    again.layer.meters_are({entry.meter.number: entry.meter.config, PORT_METER_FIRST + 5: other})
    again.layer.want_all({"port": entry})
    assert again.kinds() == [(29, 2)], "only that goes which nobody wants any more"
    different = Layer()
    different.layer.meters_are({entry.meter.number: replace(entry.meter, packets_per_s=7).config})
    different.layer.want_all({"port": entry})
    assert different.kinds() == [(29, 0), (29, 1)]
