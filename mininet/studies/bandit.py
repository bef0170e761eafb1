"""Live study ``bandit``: HyMAB learns the best multipath of a flow (EPFL thesis 9056, Figures 4.1 and 4.6 to 4.8).

The controller plans with capacities that are wrong by 20 %; nobody tells it the true ones. Its radios hear busy times,
with noise. For each pair one network: what the flow carries once it has learned, beside the best of its multipaths by
the true capacities. The first pairs go on: a second flow comes and goes twice, a link loses three quarters of its
capacity, and the target's WiFi moves to another place.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.network import Network
from hyroads.controller.core.topologies import WIFI
from hyroads.controller.study.framework import AnyPlot, Cdf, Cell, Plot, Progress, Result, Settings
from hyroads.controller.study.intervals import interval_of
from hyroads.controller.study.verdicts import Band, Check, Kind, at_most
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.udp_load import UdpLoad

from .floor import SCALE, Floor, Pair
from .learning import (
    ARMS,
    BUSY_NOISE,
    PLANNER_NOISE,
    Arm,
    Truth,
    arm_of,
    arms_of,
    bandit_of,
    learning_trial,
    optimum_mbps,
    set_medium,
)
from .measuring import FLOW, IP_SHARE, MARGIN, OVERLOAD, Times, declare, received_bytes, times_of
from .rows import Measured, Trial, measure_pairs, not_made_notes, rows_table, shortfalls

TITLE = "A flow that learns its best multipath, with real packets"
FIGURES = "thesis, Figures 4.1 and 4.6 to 4.8"
TIMES_S = (55.0, 5_400.0)

PAIRS, QUICK_PAIRS = 50, 1
ACTING = 3
"""So many pairs, the first ones, go on after they have learned."""
WHOLE, QUICK = Times(30.0, 60.0), Times(5.0, 10.0)
BESIDE = "beside"
SAMPLE_S = 0.1
DROP_TO = 0.25
"""The share of its capacity that a link keeps."""
_WINDOW_S = 0.2
_HALVED, _RESTORED = 0.6, 0.9
_LEAST = 0.85
_LOOK_AT_ARM_EVERY = 5


@dataclass(frozen=True, slots=True)
class Acts:
    """How long each act lasts after a pair has learned, seconds; a second flow is there for ``beside_s``, twice."""

    beside_s: float
    drop_s: float
    move_s: float

    def __str__(self) -> str:
        return f"beside {self.beside_s:g} s, drop {self.drop_s:g} s, move {self.move_s:g} s"


WHOLE_ACTS, QUICK_ACTS = Acts(8.0, 40.0, 40.0), Acts(4.0, 8.0, 0.0)


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    times, acts = times_of(settings, WHOLE, QUICK), QUICK_ACTS if settings.quick else WHOLE_ACTS
    setting = f"{times}; {acts}; noise {PLANNER_NOISE:g}, {BUSY_NOISE:g}; margin {MARGIN:g}"
    trial_of = partial(_trial, times=times, acts=acts)
    found = measure_pairs("live-bandit", setting, (PAIRS, QUICK_PAIRS), trial_of, settings, progress)
    made = found.made
    return Result(
        TITLE,
        f"{len(found.pairs)} pairs of office22_panels, capacities x {SCALE:g}, ideal media; policy hymab, {ARMS} "
        f"multipaths, more UDP than fits; measured for {times} of learning; margin {MARGIN:g}. The controller plans "
        f"with capacities that have a noise of {PLANNER_NOISE:.0%}, busy times have {BUSY_NOISE:.0%}. "
        f"Seed {settings.seed}.",
        [rows_table(found.rows, _heads(), "What HyMAB carries once it has learned, Mb/s of L2 payload")],
        _plots(made),
        checks(made),
        [
            "The best is the exact optimum of the best of the flow's multipaths with the true capacities and all "
            "airtime; the flow leaves the margin free, and probes.",
            f"The first multipath of the plan is not the best in {first_is_not_best(made):.0%} of these pairs. 44 % "
            "are published for the testbed, whose errors are not known; here it follows from the chosen noise.",
            *not_made_notes(found.rows),
        ],
    )


def _trial(floor: Floor, number: int, pair: Pair, *, times: Times, acts: Acts) -> Trial:
    network, truth, options = learning_trial(floor, pair)
    places = _other_places(floor, network, pair, random.Random(f"{floor.seed}/{pair}/move"))  # noqa: S311 - simulation
    work = partial(measure, pair=pair, truth=truth, times=times, acts=acts if number <= ACTING else None, places=places)
    return Trial(number, network, work, options)


def _other_places(floor: Floor, network: Network, pair: Pair, rng: random.Random) -> list[dict[str, float]]:
    """What the WiFi links of the target would be where another node of the floor stands, in random order; 0 is none."""
    target = pair[1]
    capacity = {
        (link.source, link.target): link.capacity_mbps for link in floor.network.links if _wifi(link.technology)
    }
    ours = [link for link in network.links if _wifi(link.technology) and target in {link.source, link.target}]
    others = [node for node in floor.network.nodes if node not in pair]
    rng.shuffle(others)

    def at(link_source: str, link_target: str, place: str) -> float:
        ends = (place if link_source == target else link_source, place if link_target == target else link_target)
        # The node that stands there is near, but nobody measured how near: as the best link of the place.
        near = max((mbps for (source, _), mbps in capacity.items() if source == place), default=0.0)
        return near if ends[0] == ends[1] else capacity.get(ends, 0.0)

    return [{link.id: at(link.source, link.target, place) for link in ours} for place in others]


def _wifi(technology: str) -> bool:
    return technology == WIFI.technology


def measure(  # noqa: PLR0917 - bound by name
    emulation: Emulation, pair: Pair, truth: Truth, times: Times, acts: Acts | None, places: Sequence[Truth]
) -> Measured:
    """Learn; then the acts, if the pair has any."""
    set_medium(emulation, truth)
    for name, ends in ((FLOW, pair), (BESIDE, pair[::-1])):
        declare(emulation, ends, (), name, policy="hymab")
    with UdpLoad(emulation) as load:
        for name, ends in ((FLOW, pair), (BESIDE, pair[::-1])):
            load.open(name, *ends)
        watch = Watch(emulation, pair[1])
        arms = arms_of(emulation)
        worth = [optimum_mbps(emulation.network, arm, truth) for arm in arms]
        offer_mbps = OVERLOAD * max(worth)
        load.set_rate(FLOW, offer_mbps)
        watch.run(times.settle_s)
        measured_s = watch.run(times.measure_s)
        carried = watch.mbps(measured_s, watch.now_s)
        figures: dict[str, Any] = {"pair": "-".join(pair), "carried_mbps": carried, "worth_mbps": worth}
        if acts is not None:
            figures["acts"] = {"beside": _beside(watch, load, offer_mbps, acts.beside_s)}
            figures["acts"] |= _changes(emulation, watch, arms, truth, places, acts)
            figures["samples"] = [[round(at_s - watch.began_s, 2), total] for at_s, total in watch.samples]
    short = shortfalls({"HyMAB": (carried, max(worth) * (1.0 - MARGIN))}, _LEAST)
    return Measured(figures, short)


@dataclass
class Watch:
    """What the target's host has received, each tenth of a second, and the multipath in use, each half second."""

    emulation: Emulation
    target: str
    samples: list[tuple[float, int]] = field(default_factory=list)
    used: list[tuple[float, Arm]] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._take()

    @property
    def now_s(self) -> float:
        """When the last sample was taken."""
        return self.samples[-1][0]

    def _take(self) -> None:
        self.samples.append((time.monotonic(), received_bytes(self.emulation, self.target)))

    def run(self, seconds: float) -> float:
        """Samples for a time; returns when it began. EmulationError if the network breaks meanwhile."""
        from_s = time.monotonic()
        due_s, count = from_s, 0
        while time.monotonic() < from_s + seconds:
            self._take()
            if count % _LOOK_AT_ARM_EVERY == 0:
                self.emulation.check()
                bandit = bandit_of(self.emulation)
                self.used.append((time.monotonic(), arm_of(bandit["arms"][bandit["arm"]])))
            count += 1
            due_s += SAMPLE_S
            time.sleep(max(0.0, due_s - time.monotonic()))
        self._take()
        return from_s

    def mbps(self, from_s: float, to_s: float) -> float:
        """What arrived between two moments, Mb/s of L2 payload; on a busy machine samples come late, so from the last
        one before the first moment.
        """
        times_s = [at_s for at_s, _ in self.samples]
        first, last = (max(0, bisect_right(times_s, at_s) - 1) for at_s in (from_s, to_s))
        if last == first:
            raise EmulationError("too few samples of what arrives")
        return (self.samples[last][1] - self.samples[first][1]) * 8e-6 / IP_SHARE / (times_s[last] - times_s[first])

    def until_s(self, from_s: float, holds: Callable[[float], bool]) -> float | None:
        """Seconds from a moment until a fifth of a second begins in which what arrives is as wanted, within a tenth;
        None if there is none.
        """
        for at_s, _ in self.samples:
            if at_s >= from_s + _WINDOW_S and holds(self.mbps(at_s - _WINDOW_S + SAMPLE_S / 2, at_s)):
                return max(0.0, at_s - _WINDOW_S - from_s)
        return None


def _beside(watch: Watch, load: UdpLoad, offer_mbps: float, seconds: float) -> dict[str, Any]:
    """A second flow, from the target to the source, comes and goes twice."""
    halved_s, restored_s, levels = [], [], []
    begins_s = watch.now_s
    for _ in range(2):
        before_mbps = watch.mbps(watch.now_s - max(2.0, seconds / 2), watch.now_s)
        came_s = load.set_rate(BESIDE, offer_mbps)
        watch.run(seconds)
        halved_s.append(watch.until_s(came_s, lambda mbps, least=_HALVED * before_mbps: mbps <= least))  # type: ignore[misc]
        levels.append(watch.mbps(came_s + seconds / 2, watch.now_s) / max(before_mbps, 1e-9))
        went_s = load.set_rate(BESIDE, 0.0)
        watch.run(seconds)
        restored_s.append(watch.until_s(went_s, lambda mbps, least=_RESTORED * before_mbps: mbps >= least))  # type: ignore[misc]
    return {
        "from_s": begins_s - watch.began_s,
        "to_s": watch.now_s - watch.began_s,
        "halved_s": halved_s,
        "restored_s": restored_s,
        "levels": levels,
    }


def _changes(  # noqa: PLR0917 - bound by name
    emulation: Emulation, watch: Watch, arms: Sequence[Arm], truth: Truth, places: Sequence[Truth], acts: Acts
) -> dict[str, Any]:
    """A link of the multipath in use loses capacity; then it has it again, and the target's WiFi moves."""
    network, in_use = emulation.network, watch.used[-1][1]
    weak = _dropped(network, in_use, truth)
    found = {"drop": _change(emulation, watch, arms, {**truth, **weak}, acts.drop_s) | {"links": sorted(weak)}}
    moved = moved_truth(network, arms, truth, places) if acts.move_s else None
    if moved is not None:
        set_medium(emulation, truth)
        watch.run(acts.drop_s / 2)
        found["move"] = _change(emulation, watch, arms, moved, acts.move_s)
    return found


def _dropped(network: Network, arm: Arm, truth: Truth) -> dict[str, float]:
    """The first link of the multipath's path that carries most alone, and the same one back, with less capacity."""
    path = max(arm, key=lambda links: optimum_mbps(network, (links,), truth))
    first = network.links[network.link_index[path[0]]]
    both = {(first.source, first.target), (first.target, first.source)}
    return {
        link.id: truth[link.id] * DROP_TO
        for link in network.links
        if link.technology == first.technology and (link.source, link.target) in both
    }


def moved_truth(network: Network, arms: Sequence[Arm], truth: Truth, places: Sequence[Truth]) -> Truth | None:
    """The capacities at the first place where the best multipath is another one and carries a quarter or more of the
    best before; None if there is no such place.
    """
    before = [optimum_mbps(network, arm, truth) for arm in arms]
    for place in places:
        moved = {**truth, **place}
        after = [optimum_mbps(network, arm, moved) for arm in arms]
        if max(after) >= 0.25 * max(before) and after[before.index(max(before))] < 0.9 * max(after):
            return moved
    return None


def _change(emulation: Emulation, watch: Watch, arms: Sequence[Arm], after: Truth, seconds: float) -> dict[str, Any]:
    """Other capacities from now on: how soon a better multipath is in use, and what is carried at the end."""
    network, before = emulation.network, watch.used[-1][1]
    changed_s = time.monotonic()
    set_medium(emulation, after)
    watch.run(seconds)
    known: Collection[Arm] = {*arms, *arms_of(emulation), before}
    worth = {arm: optimum_mbps(network, arm, after) for arm in known}
    better = [arm for arm in known if worth[arm] > 1.01 * worth[before]]
    better_s = next((at_s - changed_s for at_s, arm in watch.used if at_s > changed_s and arm in better), None)
    best_mbps, carried = max(worth.values()), watch.mbps(watch.now_s - seconds / 4, watch.now_s)
    return {
        "from_s": changed_s - watch.began_s,
        "to_s": watch.now_s - watch.began_s,
        "is_better": bool(better),
        "better_s": better_s,
        "best_mbps": best_mbps,
        "carried_mbps": carried,
    }


def _heads() -> dict[str, Callable[[Mapping[str, Any]], Cell]]:
    def act(name: str, key: str, figures: Mapping[str, Any]) -> Cell:
        found = figures.get("acts", {}).get(name)
        if found is None:
            return None
        return float(found["carried_mbps"] / max(found["best_mbps"], 1e-9)) if key == "share" else found[key]

    return {
        "ends": lambda figures: figures["pair"],
        "first": lambda figures: figures["worth_mbps"][0],
        "best": lambda figures: max(figures["worth_mbps"]),
        "HyMAB": lambda figures: figures["carried_mbps"],
        "of the best": share_of_best,
        "drop: s": partial(act, "drop", "better_s"),
        "share": partial(act, "drop", "share"),
        "move: s": partial(act, "move", "better_s"),
        "share ": partial(act, "move", "share"),
    }


def share_of_best(figures: Mapping[str, Any]) -> float:
    """What a row's flow carries, of the best of its multipaths."""
    best_mbps = max(figures["worth_mbps"])
    return float(figures["carried_mbps"] / max(best_mbps, 1e-9))


def first_is_not_best(made: Sequence[Mapping[str, Any]]) -> float:
    """Share of pairs whose first multipath carries at least 1 % less than the best."""
    return float(np.mean([each["worth_mbps"][0] < 0.99 * max(each["worth_mbps"]) for each in made]))


_ACTS = {
    "beside": "A second flow comes and goes twice",
    "drop": "A link loses three quarters of its capacity",
    "move": "The target's WiFi moves",
}


def _plots(made: Sequence[Mapping[str, Any]]) -> list[AnyPlot]:
    shares = np.array([share_of_best(each) for each in made], dtype=np.float64)
    plots: list[AnyPlot] = [
        Cdf("shares", "HyMAB, of the best multipath (Figure 4.1)", "ratio", {"HyMAB": shares}, marks=((0.93, "0.93"),))
    ]
    for figures in (each for each in made if "acts" in each):
        plots += [
            Plot(
                name,
                f"{title}: pair {figures['pair']} (Figures 4.6 to 4.8)",
                "time, s",
                "Mb/s",
                *_course(figures, name),
            )
            for name, title in _ACTS.items()
            if name in figures["acts"]
        ]
        break
    return plots


def _course(figures: Mapping[str, Any], act: str) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """What arrived from two seconds before an act to its end: seconds since it began, and Mb/s each half second."""
    from_s, to_s = figures["acts"][act]["from_s"], figures["acts"][act]["to_s"]
    samples = np.array(figures["samples"], dtype=np.float64)
    at_s = np.arange(from_s - 2.0, to_s, 0.5)
    received = np.interp(at_s, samples[:, 0], samples[:, 1])
    return at_s[1:] - from_s, {"HyMAB": np.diff(received) * 8e-6 / IP_SHARE / 0.5}


def checks(made: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Shares, and whether changes are followed in time."""
    shares = np.array([share_of_best(each) for each in made], dtype=np.float64)
    mean = float(shares.mean())
    why = "" if mean >= 0.9 else _why(made)
    found = [
        Check(
            "HyMAB of the best multipath, mean",
            Band(0.9, 1.0, "0.9 to 1"),
            mean,
            interval_of(shares),
            Kind.PUBLISHED,
            "0.93",
            why,
        )
    ]
    acts = [each["acts"] for each in made if "acts" in each]
    besides = [each["beside"] for each in acts]
    if besides:
        halved = [one for each in besides for one in each["halved_s"]]
        found.append(_within("seconds until rates have halved when a second flow comes, median", halved, 0.5, "0.3"))
        levels = np.array([one for each in besides for one in each["levels"]], dtype=np.float64)
        what, half = "rate beside the second flow, of before, median", Band(0.4, 0.6, "0.4 to 0.6")
        found.append(Check(what, half, _median(levels), interval_of(levels, _median), Kind.PUBLISHED, "half"))
        # The first time its situation is known already, too: the flow was alone before.
        restored = [one for each in besides for one in each["restored_s"]]
        found.append(_within("seconds until rates are back when it has gone, median", restored, 1.5, "at once"))
    for act, published in (("drop", "a few tens of seconds"), ("move", "a few tens of seconds")):
        changed = [each[act] for each in acts if act in each and each[act]["is_better"]]
        if changed:
            times_s = [each["better_s"] for each in changed]
            found.append(_within(f"{act}: seconds until a better multipath is used, median", times_s, 30.0, published))
    return found


def _within(what: str, times_s: Sequence[float | None], most_s: float, published: str) -> Check:
    """Times, of which those that never came count as infinite."""
    values = np.array([np.inf if each is None else each for each in times_s], dtype=np.float64)
    median = float(np.median(values))
    measured = median if np.isfinite(median) else None
    unseen = int(np.isinf(values).sum())
    late = f"{unseen} of {len(values)} were not seen before the act ended" if unseen else "the cause is not known"
    why = "" if median <= most_s else f"{late}; samples are {SAMPLE_S:g} s apart"
    return Check(what, at_most(most_s), measured, interval_of(values, _median), Kind.PUBLISHED, published, why)


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values))


def _why(made: Sequence[Mapping[str, Any]]) -> str:
    worst = min(made, key=share_of_best)
    return (
        f"the margin takes {MARGIN:.0%}, and every multipath is probed several times at first, at a third of its rate, "
        f"which the time of learning does not leave behind; the worst pair is {worst['pair']} with "
        f"{share_of_best(worst):.2f}"
    )
