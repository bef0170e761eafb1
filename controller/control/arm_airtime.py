"""What the paths of an arm cost in airtime, measured or modelled, and the optimal rates that follow. Pure.

The rows of the optimum (``core.optimum``) are not links but *groups* of interfaces that hear the same
links of the arm: they are busy at the same times, so averaging them takes out their readers' noise before the LP. What
a path costs at an interface does not depend on the arm that it was probed for, so all samples of a path count.

:func:`airtime_shares` says how much airtime a flow with a bandit may use where (1 / F_l of Henri, EPFL thesis 9056,
2018, chapter 4), beside flows that use less than their share and traffic that is not ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.bandit.policy import FloatArray
from hyroads.controller.core.estimate.busy_time import CarrierSensing, Interface
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import rates_from_airtime

# More interfaces than this in a group cost readings and tell little more.
MOST_IN_GROUP = 4

Arm = tuple[PathName, ...]


@dataclass(frozen=True, eq=False)
class ArmRows:
    """Of an arm: its links by path, the groups of interfaces that are read, and the links that each group hears."""

    arm: Arm
    groups: tuple[tuple[Interface, ...], ...]
    heard: tuple[frozenset[str], ...]


def carrier_sensing_of(network: Network, known: CarrierSensing | None = None) -> dict[Interface, frozenset[int]]:
    """The links that every interface hears: as measured where ``known`` says, else as the interference rule does."""
    ends = {(node, link.technology) for link in network.links for node in (link.source, link.target)}
    found: dict[Interface, frozenset[int]] = {}
    for sensing in (CarrierSensing.of(network, sorted(ends)), known):
        if sensing is None or sensing.heard.shape[1] != len(network.links):
            continue
        bounds, columns = sensing.heard.indptr.tolist(), sensing.heard.indices.tolist()
        for i, observer in enumerate(sensing.observers):
            found[observer] = frozenset(columns[bounds[i] : bounds[i + 1]])
    return found


def arm_rows(network: Network, arm: Arm, hears: Mapping[Interface, Collection[int]] | None = None) -> ArmRows:
    """The groups of an arm: interfaces at the ends of its links, put together if they hear the same links of it, and
    some others that hear just the same.
    """
    hears = carrier_sensing_of(network) if hears is None else hears
    index, links = network.link_index, network.links
    own = {index[name]: name for path in arm for name in path}
    heard: dict[Interface, set[str]] = {}
    for link, name in own.items():
        for node in (links[link].source, links[link].target):
            interface = (node, links[link].technology)
            near = {own[m] for m in hears.get(interface, ()) if m in own}
            heard.setdefault(interface, {name}).update({name} | near)
    groups: dict[tuple[str, frozenset[str]], list[Interface]] = {}
    for interface, names in sorted(heard.items()):
        groups.setdefault((interface[1], frozenset(names)), []).append(interface)
    for interface in sorted(hears.keys() - heard.keys()):
        group = groups.get((interface[1], frozenset(own[m] for m in hears[interface] if m in own)), [])
        if 0 < len(group) < MOST_IN_GROUP:
            group.append(interface)
    return ArmRows(arm, tuple(tuple(group) for group in groups.values()), tuple(names for _, names in groups))


@dataclass(frozen=True, eq=False)
class PathSample:
    """A path alone was sent at a rate; ``busy`` is the share of time that this made every interface busy.

    The interfaces in ``unmeasured`` were not read: their shares follow from the rate at which packets arrived.
    """

    rate_mbps: float
    busy: Mapping[Interface, float]
    unmeasured: frozenset[Interface] = frozenset()


def mean_airtime(samples: Sequence[PathSample], group: Collection[Interface]) -> tuple[float, bool] | None:
    """The mean airtime in s/Mb of a path at a group of interfaces, and whether it was measured; None without samples.

    Measured and unmeasured samples are not mixed: those of the newest sample's kind count. Of unmeasured ones it is the
    median: a probe in which too little arrives, because a report or an agent was late, costs a path many times its
    airtime, and no error in the other direction makes up for that.
    """
    found = [(s.busy[i] / s.rate_mbps, i not in s.unmeasured) for s in samples for i in group if i in s.busy]
    if not found:
        return None
    is_measured = found[-1][1]
    of_kind = [airtime for airtime, measured in found if measured == is_measured]
    return float(np.mean(of_kind) if is_measured else np.median(of_kind)), is_measured


@dataclass(frozen=True, eq=False)
class Airtime:
    """Airtime per Mb/s of an arm's paths, ``alpha`` [groups, paths] in s/Mb; ``dead`` paths carry nothing."""

    rows: ArmRows
    alpha: FloatArray
    dead: frozenset[int] = frozenset()
    _optimum: dict[bytes, tuple[float, ...]] = field(default_factory=dict, init=False, repr=False)
    """The rates of the shares that were asked for last: they are asked for again and again, shares seldom change."""

    def best_mbps(self, share: Mapping[str, float]) -> list[float]:
        """What every path carries alone if of the time of every link at most ``share`` may be used."""
        most = (self.alpha / self._shares(share)[:, None]).max(axis=0)
        return [0.0 if i in self.dead or not worst > 0 else float(1 / worst) for i, worst in enumerate(most)]

    def rates_mbps(self, share: Mapping[str, float]) -> tuple[float, ...]:
        """The optimal rates if of the time of every link at most ``share`` may be used; 0 for paths that are dead."""
        shares = self._shares(share)
        key = shares.tobytes()
        if key not in self._optimum:
            self._optimum.clear()
            self._optimum[key] = self._best_rates_mbps(shares)
        return self._optimum[key]

    def _best_rates_mbps(self, shares: FloatArray) -> tuple[float, ...]:
        alive = [i for i in range(len(self.rows.arm)) if i not in self.dead and self.alpha[:, i].any()]
        rates = np.zeros(len(self.rows.arm))
        if alive:
            rates[alive] = rates_from_airtime(self.alpha[:, alive], 1.0 / shares)
        return tuple(rates.tolist())

    def _shares(self, share: Mapping[str, float]) -> FloatArray:
        least = [min(share.get(link, 1.0) for link in links) for links in self.rows.heard]
        shares: FloatArray = np.clip(np.array(least), 1e-3, 1.0)
        return shares


def measured_airtime(
    rows: ArmRows, samples: Mapping[PathName, Sequence[PathSample]], dead: Collection[PathName] = ()
) -> Airtime | None:
    """What samples say of an arm; None if they don't cover all its paths and groups, or a path made nothing busy.

    With one path at a time the least squares of busy = alpha x are means of busy / x.
    """
    alpha = np.zeros((len(rows.groups), len(rows.arm)))
    for column, path in enumerate(rows.arm):
        if path in dead:
            continue
        for row, group in enumerate(rows.groups):
            found = mean_airtime(samples.get(path, ()), group)
            if found is None:
                return None
            alpha[row, column] = found[0]
        if not alpha[:, column].any():
            return None
    return Airtime(rows, alpha, frozenset(i for i, path in enumerate(rows.arm) if path in dead))


def modelled_airtime(rows: ArmRows, network: Network) -> Airtime:
    """The same from the capacities and domains that plans count on; paths over links without capacity are dead."""
    index = network.link_index
    alpha = np.zeros((len(rows.groups), len(rows.arm)))
    dead = set()
    for i, path in enumerate(rows.arm):
        capacity = {name: network.links[index[name]].capacity_mbps for name in path}
        if not all(capacity.values()):
            dead.add(i)
            continue
        for row, heard in enumerate(rows.heard):
            alpha[row, i] = sum(1.0 / capacity[name] for name in path if name in heard)
    return Airtime(rows, alpha, frozenset(dead))


# Below this it is hello frames and noise.
LEAST_EXTERNAL = 0.05


@dataclass(frozen=True, eq=False)
class Competitor:
    """Another flow: the ``load`` [L] that it puts on the domain of each link, 0 where it interferes with nothing, and
    whether it would take more.
    """

    load: FloatArray
    greedy: bool


def domain_load(network: Network, paths: Mapping[PathName, float]) -> FloatArray:
    """Airtime [L] in the domain of each link of paths that carry so many Mb/s, by the capacities that plans count on.

    A path that carries nothing yet puts a trace of load on its domains.
    """
    index, load = network.link_index, np.zeros(len(network.links))
    for path, rate_mbps in paths.items():
        for name in path:
            link = index[name]
            capacity = network.links[link].capacity_mbps
            busy = min(rate_mbps / capacity, 1.0) if capacity > 0 else 0.0
            load[network.interference.domain(link)] += max(busy, 1e-6)
    return load


def flow_counts(size: int, competitors: Sequence[Competitor]) -> FloatArray:
    """F [L]: how many flows interfere on each link, this one included."""
    return 1.0 + sum(((other.load > 0).astype(float) for other in competitors), np.zeros(size))


def airtime_shares(competitors: Sequence[Competitor], external: FloatArray, margin: float) -> FloatArray:
    """[L]: the share of time that is left for a flow: an equal one, or more if the others need less.

    External traffic counts like a flow that takes what it takes.
    """
    size = len(external)
    others = np.where(external >= LEAST_EXTERNAL, external, 0.0)
    everyone = flow_counts(size, competitors) + (others > 0)
    greedy = flow_counts(size, [other for other in competitors if other.greedy])
    modest = sum((other.load for other in competitors if not other.greedy), np.zeros(size))
    free = 1.0 - margin
    shares: FloatArray = np.maximum(free / everyone, (free - modest - others) / greedy)
    return shares
