"""n-cast switched on and off on a live flow, packet by packet."""

import pytest
from examples import seeds
from handover_sim import Controller, Settings, World

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import Confirmed, DesiredState, Passed, Phase
from hyroads.plugins.ncast import NCast

WIFI, PLC, LTE = Place("a", "wifi"), Place("b", "plc"), Place("x", "lte")
DELAYS = {WIFI: (0.001, 0.03), PLC: (0.004, 0.08), LTE: (0.05, 0.4)}


class Manager:
    """Looks to the simulation like a mobility manager."""

    def on(self, state, event, now_s):
        return state.on(event, now_s)

    def tick(self, state, now_s):
        return state.tick(now_s)

    def wanted(self, state):
        return state.wanted


class Switch(Controller):
    def begin(self, here: Place) -> None:
        self._become(NCast(frozenset(self.world.flows), (here,), (WIFI, PLC, LTE), self.world.now_s))

    def end(self, keep: Place) -> None:
        self._become(self.handover.switched_off(keep, self.world.now_s))

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.02)):
            self.world.run(self.world.now_s + 0.02)
            self._become(self.handover.tick(self.world.now_s))


@pytest.mark.parametrize("seed", seeds(8))
def test_on_and_off_without_losing_or_doubling_a_packet(seed):
    world = World(Settings(seed, DELAYS, marker_loss=0.3 * (seed % 2)), WIFI)
    world.present |= {PLC, LTE}
    switch, here = Switch(world, Manager()), WIFI
    for flow in world.flows.values():
        flow.send()
    for turn in range(12):
        switch.begin(here)
        # Sometimes it is switched off before it has begun.
        switch.run(world.rng.choice([0.05, 0.5, 2.0]))
        keep = (PLC, LTE, WIFI)[turn % 3]
        here = keep if switch.handover.phase is Phase.COPYING else here
        switch.end(keep)
        while not switch.handover.is_over:
            switch.run(0.1)
        assert switch.handover.phase is Phase.DONE
        assert switch.wanted == DesiredState((here,), (here,))
    for flow in world.flows.values():
        flow.running = False
    world.run(world.now_s + 5.0)
    for flow in world.flows.values():
        assert flow.receiver.delivered == list(range(flow.number))
        assert flow.receiver.duplicates > flow.number // 4


def test_steps():
    state = NCast(frozenset({"f"}), (WIFI,), (WIFI, PLC), 0.0)
    assert state.wanted == DesiredState((WIFI, PLC), (WIFI,))
    assert state.on(Confirmed(DesiredState((WIFI,), (WIFI,))), 1.0) == state
    copying = state.on(Confirmed(state.wanted), 1.0)
    assert copying.wanted.copies and copying.wanted.carry == (WIFI, PLC) and copying.due_s is None
    assert copying.tick(1e9) == copying and copying.switched_off(LTE, 2.0) == copying
    draining = copying.switched_off(PLC, 2.0)
    assert draining.wanted.carry == (PLC,) and not draining.wanted.copies and draining.due_s == 4.0
    assert draining.on(Passed("f", PLC), 2.1).phase is Phase.DRAINING
    assert draining.on(Passed("g", WIFI), 2.1).phase is Phase.DRAINING
    closing = draining.on(Passed("f", WIFI), 2.2)
    assert closing.wanted == DesiredState((PLC,), (PLC,)) == draining.tick(4.0).wanted
    assert closing.on(Confirmed(closing.wanted), 3.0).phase is Phase.DONE
    failed = state.tick(5.0)
    assert (
        failed.phase is Phase.FAILED and failed.wanted == DesiredState((WIFI,), (WIFI,)) and "confirm" in failed.reason
    )
