"""The rates of all flows with bandits on a living network (docs/explanation/bandit.md, "Live").

Each slot, in this order: routes and flows that came or went, what probes measured, what bandits want next, who of those
that want to probe may (``core.bandit.probe_schedule``), and the rates of all flows with bandits. While a flow probes,
the flows that interfere with it keep the rates they have, or their changes would be taken for its own busy time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.bandit.flow import flow_set_key
from hyroads.controller.core.bandit.policy import FloatArray
from hyroads.controller.core.bandit.probe_schedule import ProbeRequest, ProbeSlot, flow_conflicts, schedule
from hyroads.controller.core.estimate.busy_time import CarrierSensing, Interface
from hyroads.controller.core.infer.change import Change
from hyroads.controller.core.network import Network
from hyroads.controller.core.rates.allocation import path_names

from .arm_airtime import Arm, Competitor, airtime_shares, carrier_sensing_of, domain_load, flow_counts
from .learned import Learned
from .learner import Learner, Saturation
from .probing import LEAD_S, PART_SLOTS, SETTLE_S, Readings
from .rate_override import Fixed, RateOverride, SlotView
from .routes import FlowRoute

# External airtime that rises by this much more than the last silent part heard is worth a probe, once in a while;
# with so much of it probes have silent parts. Less is noise, and probes that take it for their own leave it its place.
EXTERNAL_JUMP = 0.15
ALERT_AGAIN_S = 5.0
# After a probe reports still tell of it.
UNSETTLED_SLOTS = 3


class Learning(RateOverride):
    """The learners of all flows whose policy learns."""

    def __init__(
        self,
        readings: Readings,
        read_soon: Callable[[str, float], object],
        *,
        margin: float = 0.05,
        tcp_margin: float = 0.05,
        slot_s: float = 0.1,
        seed: int = 1,
    ) -> None:
        """``readings`` are the counters of an interface of about the last two seconds, oldest first. ``read_soon`` has
        all interfaces of a node read after a delay in seconds. ``tcp_margin`` is for flows that are declared to be TCP,
        whose acknowledgements need airtime.
        """
        self._readings, self._read_soon = readings, read_soon
        self.use_margins(margin, tcp_margin)
        self._slot_s = slot_s
        self._rng = np.random.default_rng(seed)
        self._learners: dict[str, Learner] = {}
        self._armed: tuple[object, bool] = (None, False)
        """Routes, and whether any of them has arms."""
        self._demand: dict[str, Saturation] = {}
        self._network: Network | None = None
        self._heard: CarrierSensing | None = None
        self._hears: dict[Interface, frozenset[int]] = {}
        self._conflicts: Mapping[str, frozenset[str]] = {}
        self._touched: set[str] = set()
        self._quiet_from: dict[str, int] = {}
        """When the reports of a flow that probed tell of its usual rates again, by slot."""
        self._alerted_s: dict[str, float] = {}
        self._share: dict[str, dict[str, float]] = {}
        self._frozen: dict[str, Mapping[PathName, float]] = {}
        self._governed: frozenset[str] = frozenset()
        self._taken: Mapping[str, Learned] = {}
        self.learned: Mapping[str, Learned] = {}
        """What is known of each flow, for another controller; replaced, never changed, so that any thread may look."""

    def take(self, learned: Mapping[str, Learned]) -> None:
        """Go on from what another controller has learned, with the flows that are there when the next slot begins."""
        self._taken = self.learned = learned
        # What we knew when we decided ourselves, if ever, is older.
        self._learners, self._demand, self._governed = {}, {}, frozenset()
        self._share, self._frozen, self._network = {}, {}, None

    def use_margins(self, margin: float, tcp_margin: float) -> None:
        """See :class:`RateOverride`."""
        self._margin, self._tcp_margin = margin, max(margin, tcp_margin)

    def alerted(self, changes: tuple[Change, ...], now_s: float) -> None:
        """Links whose capacity changed significantly: what was learned of arms that hear them is void."""
        self._touched.update(change.link for change in changes)

    def decide(self, view: SlotView) -> Mapping[str, Fixed]:
        """The rates of flows that probe, or that use what they measured, and of the flows around probes."""
        if self._armed[0] is not view.routes:
            self._armed = view.routes, any(route.arms for route in view.routes.values())
        if not self._learners and not self._armed[1]:
            return {}
        self._go_on(view)
        self._watch(view)
        self._look_for_losses(view)
        others = self._competitors(view)
        self._follow(view, others)
        for flow, learner in self._learners.items():
            self._step(view, flow, learner)
        self._taken = {}
        self._grant(view, others)
        rates = self._rates(view, others)
        self._tell()
        return rates

    def without_busy_time(self) -> frozenset[Interface]:
        """See :class:`RateOverride`."""
        return frozenset(interface for learner in self._learners.values() for interface in learner.unread)

    def document(self, flow: str) -> dict[str, Any] | None:
        """The part ``bandit`` of a flow over REST; None for a flow without a bandit."""
        learner = self._learners.get(flow)
        if learner is None:
            return None
        demand = self._demand.get(flow)
        return {**learner.document(self._share.get(flow, {})), "active": demand is not None and flow in self._governed}

    def _go_on(self, view: SlotView) -> None:
        """Flows whose bandits decided at another controller would take more there, too."""
        for flow, learned in self._taken.items():
            if learned.governs and flow in view.routes:
                offer = view.agents.offers.get(flow)
                sent_mbps = 0.0 if offer is None else offer.sent_mbps
                self._demand[flow] = Saturation(view.now_s, view.now_s, sent_mbps, sent_mbps)

    def _tell(self) -> None:
        new = {flow: each.learned(governs=flow in self._governed) for flow, each in self._learners.items()}
        if new.keys() != self.learned.keys() or any(self.learned[flow] is not each for flow, each in new.items()):
            self.learned = new

    def _watch(self, view: SlotView) -> None:
        """Who sends, and who would send more; not while reports tell of a probe."""
        self._demand = {flow: demand for flow, demand in self._demand.items() if flow in view.routes}
        for flow, offer in view.agents.offers.items():
            if view.slot < self._quiet_from.get(flow, 0) or flow not in view.routes:
                if flow in self._demand:
                    self._demand[flow] = self._demand[flow].unchanged(view.now_s)
                continue
            carried = sum(view.agents.path_mbps.get((flow, path), 0.0) for path in view.routes[flow].paths)
            self._demand[flow] = self._demand_of(flow).after(offer, carried, view.now_s)

    def _look_for_losses(self, view: SlotView) -> None:
        """Rates that lose much may be wrong, whatever was measured: then a probe comes at once."""
        for flow, learner in self._learners.items():
            short = learner.probe is None and self._demand_of(flow).falls_short(view.now_s)
            if short and view.now_s - self._alerted_s.get(flow, -ALERT_AGAIN_S) >= ALERT_AGAIN_S:
                self._alerted_s[flow] = view.now_s
                learner.suspect(view.slot)

    def _demand_of(self, flow: str) -> Saturation:
        return self._demand.get(flow, Saturation())

    def _competitors(self, view: SlotView) -> dict[str, Competitor]:
        """All active multipath flows by id, with the load of their usual rates."""
        found = {}
        for flow, route in view.routes.items():
            demand = self._demand_of(flow)
            if route.reason is None and demand.is_active(view.now_s):
                load = domain_load(view.network, self._usual(view, flow, route))
                found[flow] = Competitor(load, demand.is_saturated(view.now_s))
        return found

    def _usual(self, view: SlotView, flow: str, route: FlowRoute) -> dict[PathName, float]:
        learner = self._learners.get(flow)
        if learner is not None and flow in self._governed:
            return learner.sent_on(learner.arm_in_use, self._share.get(flow, {}))
        rates = _last_rates(view).get(flow, dict.fromkeys(route.paths, 0.0))
        used = {path: rate for path, rate in rates.items() if rate > 0}
        return used or rates

    def _follow(self, view: SlotView, others: Mapping[str, Competitor]) -> None:
        """Learners of the routes of now, with the airtime and the flows around them."""
        wanted = {flow: route for flow, route in view.routes.items() if route.arms and route.reason is None}
        network_changed = self._hear(view) or view.network is not self._network
        arms_changed = network_changed or {f: lr.arms for f, lr in self._learners.items()} != {
            f: _arms(route) for f, route in wanted.items()
        }
        self._learners = {flow: learner for flow, learner in self._learners.items() if flow in wanted}
        for flow, route in wanted.items():
            arms = _arms(route)
            share = self._share[flow] = self._shares(view, flow, arms, others)
            learner = self._learners.get(flow)
            if learner is None or learner.spec != route.spec:
                made = self._learners[flow] = Learner(route.spec, view.network, self._hears, arms, share)
                if flow in self._taken:
                    made.take(self._taken[flow], share)
                    # Airtime that was silent there has to do with it.
                    self._share[flow] = self._shares(view, flow, arms, others)
            elif learner.arms != arms or network_changed or self._touched:
                learner.with_network(view.network, self._hears, arms, share, frozenset(self._touched))
        if arms_changed:
            index = view.network.link_index
            used = {f: {index[link] for a in lr.arms for p in a for link in p} for f, lr in self._learners.items()}
            self._conflicts = flow_conflicts(view.network, used)
            self._network = view.network
        self._touched.clear()
        for flow, learner in self._learners.items():
            around = [other for name, other in others.items() if name != flow]
            counts = flow_counts(len(view.network.links), around)
            sharing = [_most(view.network, counts, arm) for arm in learner.arms]
            learner.moved(flow_set_key({*others, flow}), sharing)

    def _hear(self, view: SlotView) -> bool:
        """Whether interfaces hear other links than before."""
        heard = None if view.last is None else view.last.state.external.sensing
        if self._hears and heard is self._heard and view.network is self._network:
            return False
        before, self._heard = self._hears, heard
        self._hears = carrier_sensing_of(view.network, heard)
        return self._hears != before

    def _shares(
        self, view: SlotView, flow: str, arms: Iterable[Arm], others: Mapping[str, Competitor]
    ) -> dict[str, float]:
        """By link of the arms: the share of time for this flow."""
        external = _external(view)
        learner, index = self._learners.get(flow), view.network.link_index
        links = {link for arm in arms for path in arm for link in path}
        if learner is not None:
            self._look_at_external(view, flow, learner, external, links)
            # Both instruments must agree: the loop's estimate takes wrong capacities for external traffic.
            for link, silent in learner.silent.items():
                if link in index:
                    external[index[link]] = min(external[index[link]], silent)
        around = [other for name, other in others.items() if name != flow]
        margin = self._tcp_margin if view.routes[flow].spec.is_tcp else self._margin
        shares = airtime_shares(around, external, margin)
        return {link: float(shares[index[link]]) for link in links}

    def _look_at_external(
        self, view: SlotView, flow: str, learner: Learner, external: FloatArray, links: Iterable[str]
    ) -> None:
        index = view.network.link_index
        jump = max((external[index[link]] - learner.silent.get(link, 0.0) for link in links), default=0.0)
        if jump > EXTERNAL_JUMP and view.now_s - self._alerted_s.get(flow, -ALERT_AGAIN_S) >= ALERT_AGAIN_S:
            self._alerted_s[flow] = view.now_s
            learner.alerted()

    def _step(self, view: SlotView, flow: str, learner: Learner) -> None:
        received = {path: rate for (name, path), rate in view.agents.arrived_mbps.items() if name == flow}
        learner.advance(view.now_s, self._readings, received, self._share[flow])
        if learner.probe is not None:
            return
        if self._demand_of(flow).is_saturated(view.now_s):
            learner.next_trial(view.slot, self._rng)
        else:
            learner.wanted = None

    def _grant(self, view: SlotView, others: Mapping[str, Competitor]) -> None:
        """Begins the probes that interfere with none under way."""
        requests, running = [], []
        for flow, learner in self._learners.items():
            if learner.probe is not None:
                running.append(ProbeSlot(flow, view.slot, max(learner.probe.slots_left, 1)))
            elif learner.wanted is not None:
                slots = PART_SLOTS * (1 + len(learner.arms[learner.wanted]))
                requests.append(ProbeRequest(flow, learner.since, slots))
        for granted in schedule(self._conflicts, requests, view.slot, 1, running):
            learner = self._learners[granted.flow]
            arm = learner.arms[learner.wanted or 0]
            around = self._interferers(view, granted.flow, arm, others)
            index, external = view.network.link_index, _external(view)
            heard = any(external[index[link]] >= EXTERNAL_JUMP for path in arm for link in path)
            load = sum((others[name].load for name in around), external)
            occupied = {link: float(load[index[link]]) for path in arm for link in path}
            learner.begin(view.now_s, self._share[granted.flow], silent=bool(around) or heard, occupied=occupied)

    def _interferers(self, view: SlotView, flow: str, arm: Arm, others: Mapping[str, Competitor]) -> frozenset[str]:
        index = view.network.link_index
        links = sorted({index[link] for path in arm for link in path})
        return frozenset(name for name, other in others.items() if name != flow and (other.load[links] > 0).any())

    def _rates(self, view: SlotView, others: Mapping[str, Competitor]) -> dict[str, Fixed]:
        fixed: dict[str, Fixed] = {}
        frozen: dict[str, Mapping[PathName, float]] = {}
        for flow, learner in self._learners.items():
            if learner.probe is not None:
                rates = learner.probe.rates()
                fixed[flow] = Fixed(rates, rates)
                self._quiet_from[flow] = view.slot + UNSETTLED_SLOTS
                if learner.probe.is_fresh:
                    for node in {node for node, _ in learner.probe.observers}:
                        self._read_soon(node, SETTLE_S)
                        self._read_soon(node, PART_SLOTS * self._slot_s - LEAD_S)
                for name in self._interferers(view, flow, learner.probe.rows.arm, others):
                    frozen[name] = self._frozen.get(name) or _last_rates(view).get(name, {})
            elif learner.knows and not learner.follows_model and self._demand_of(flow).is_saturated(view.now_s):
                fixed[flow] = Fixed(learner.sent_on(learner.arm_in_use, self._share[flow]))
        self._governed = frozenset(fixed)
        self._frozen = {name: rates for name, rates in frozen.items() if rates and name not in fixed}
        return {**{name: Fixed(rates) for name, rates in self._frozen.items()}, **fixed}


def _arms(route: FlowRoute) -> tuple[Arm, ...]:
    return tuple(tuple(route.paths[i] for i in arm) for arm in route.arms)


def _last_rates(view: SlotView) -> dict[str, dict[PathName, float]]:
    """The rates in force by flow and path."""
    if view.last is None:
        return {}
    state, by_flow = view.last.state, dict[str, list[PathName]]()
    for flow, path in path_names(state.problem.layout):
        by_flow.setdefault(flow, []).append(tuple(state.network.links[link].id for link in path))
    return {
        flow: dict(zip(paths, state.pushed[flow], strict=True))
        for flow, paths in by_flow.items()
        if len(state.pushed.get(flow, ())) == len(paths)
    }


def _external(view: SlotView) -> FloatArray:
    """The share of time [L] of traffic that is not ours; zeros while it is not known of this network."""
    size = len(view.network.links)
    found = np.zeros(size) if view.last is None else np.array(view.last.state.external.per_link(view.now_s))
    return found if len(found) == size else np.zeros(size)


def _most(network: Network, counts: FloatArray, arm: Arm) -> int:
    return int(max(counts[network.link_index[link]] for path in arm for link in path))
