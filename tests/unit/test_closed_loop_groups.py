"""Multicast sessions in the closed loop: flows leave them their airtime, and what they send is nobody else's."""

from __future__ import annotations

import numpy as np
import pytest

from hyroads.controller.core.closed_loop import GroupAirtime, LoopState, Measurements, configured_samples, slot
from hyroads.controller.core.demand import Demands
from hyroads.controller.core.estimate.busy_time import CarrierSensing, ExternalAirtime
from hyroads.controller.core.estimate.link_estimate import LinkEstimator
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.rates import rate_problem

NET = load_text(
    """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: ap}}
links:
  - {id: ab, from: a, to: b, technology: wifi, capacity_mbps: 20}
  - {id: cb, from: c, to: b, technology: wifi, capacity_mbps: 20}
interference: {rule: technology}
flows: [{id: f, from: a, to: b}]
""",
    "net",
)
HEARS = [("a", "wifi"), ("b", "wifi"), ("c", "wifi")]
SLOT_S = 0.1


def after(slots: int, groups: GroupAirtime | None, busy: float | None) -> tuple[float, np.ndarray]:
    """The flow's rate and external airtime after some slots in which all radios are busy for a share of time."""
    problem = rate_problem(NET, {"f": [(0,)]}, flows=NET.flows, margin=0.0)
    external = ExternalAirtime(CarrierSensing.of(NET, HEARS))
    state = LoopState(
        NET, problem, LinkEstimator({link.id: link.technology for link in NET.links}), external, Demands()
    )
    shares = {} if busy is None else dict.fromkeys(HEARS, busy)
    for number in range(slots):
        now_s = SLOT_S * (number + 1)
        taken = Measurements(configured_samples(NET, now_s), shares, {}, {}, None, groups)
        state = slot(state, taken, now_s).state
    return float(sum(state.pushed["f"])), state.external.per_link(now_s)


def groups(reserved: float, own: float) -> GroupAirtime:
    return GroupAirtime(np.full(2, reserved), np.array([0.0, own]))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_flows_leave_sessions_what_is_reserved_for_them(share: float) -> None:
    assert after(3, None, None)[0] == pytest.approx(20.0, rel=1e-3)
    assert after(3, groups(share, 0.0), None)[0] == pytest.approx(20.0 * (1 - share), rel=1e-3)


def test_what_sessions_are_measured_to_send_is_not_counted_twice() -> None:
    # c sends for 0.4 of the time: all of it is the session's, then half of it, then none.
    for own, stranger in ((0.4, 0.0), (0.2, 0.2), (0.0, 0.4)):
        rate, external = after(60, groups(own, own), 0.4)
        assert external.max() == pytest.approx(stranger, abs=0.02)
        assert rate == pytest.approx(20.0 * 0.6, rel=0.03)
