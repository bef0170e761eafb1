"""Busy times, and what is left of them once our own traffic is taken away.

An *observer* is an interface (node, technology) with a counter of busy time: the time for which its medium was not free
to it. It is busy while any sender that it hears transmits, ours or not, so

    external = max(0, busy - sum_{l heard} x_l / c_l)

with x_l the measured rate of our traffic on link l and c_l its capacity. External traffic counts in the domain of a
link if an end of the link hears it, so a link gets the largest figure of its two ends.

Errors of c_l go into the difference, and on the safe side: if capacities are taken too high, our traffic is busier
than computed, the rest looks external, and the airtime of the domain still holds. Taken too low, the difference is
negative, and cut off at 0.

When our traffic has just changed, the two are not of the same moment, and x_l is only known to lie between what was
measured and what may have been sent meanwhile. Then the difference is a span, and what is believed moves only as far
as it has to to be inside.

*Filter.* Measurement noise must not move rates, and traffic that is not ours must get its airtime soon. Two differences
in a row on one side of the filtered value, both further away than ``step``, are a step: up, it is taken as it is; down,
it is followed with ``fall_tau_s``, or at once if our own traffic rose as much. Everything else is noise and averaged
with ``noise_tau_s``, alike up and down, so that it has no bias. What is given to the controller is 0 below ``floor``,
and changes only when the filtered value is more than ``dead_band`` away, or once in ``settle_s``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hyroads.controller.core.network import Network

from .filters import EstimateError

Interface = tuple[str, str]
"""(node id, technology); an emulator that knows whole domains may use (link id, technology)."""
FloatArray = NDArray[np.float64]


class Interfaces:
    """A numbering of interfaces, shared by all who speak of many of them: ``names`` in their order."""

    def __init__(self, names: Iterable[Interface]) -> None:
        self.names = tuple(names)
        self.place_of: Mapping[Interface, int] = {interface: at for at, interface in enumerate(self.names)}


@dataclass(frozen=True, eq=False)
class BusyShares(Mapping[Interface, float]):
    """Busy shares of some interfaces as an array in the order of all of ``interfaces``: ``share`` is nan where nothing
    was measured.
    """

    interfaces: Interfaces
    share: FloatArray

    @cached_property
    def is_told(self) -> NDArray[np.bool_]:
        """Of each interface, whether it was measured."""
        return ~np.isnan(self.share)

    @cached_property
    def _known(self) -> dict[Interface, float]:
        names = self.interfaces.names
        return {names[at]: float(self.share[at]) for at in np.flatnonzero(self.is_told).tolist()}

    def __getitem__(self, interface: Interface) -> float:
        return self._known[interface]

    def __iter__(self) -> Iterator[Interface]:
        return iter(self._known)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.is_told))


def latest(before: Mapping[Interface, float], later: Mapping[Interface, float]) -> Mapping[Interface, float]:
    """The last share of each interface in either; where both have one, that of ``later``."""
    if not before:
        return later
    if isinstance(before, BusyShares) and isinstance(later, BusyShares) and before.interfaces is later.interfaces:
        return BusyShares(later.interfaces, np.where(later.is_told, later.share, before.share))
    return {**before, **later}


@dataclass(frozen=True, slots=True)
class ExternalSettings:
    """Constants of the filter, see the module; an observer not heard of for ``stale_s`` is not used."""

    floor: float = 0.02
    step: float = 0.06
    noise_tau_s: float = 1.0
    fall_tau_s: float = 0.3
    dead_band: float = 0.015
    settle_s: float = 1.0
    stale_s: float = 3.0
    own_tau_s: float = 0.5
    taken_over: float = 0.6

    def __post_init__(self) -> None:
        if (
            min(self.noise_tau_s, self.fall_tau_s, self.stale_s, self.settle_s, self.own_tau_s) <= 0
            or min(self.floor, self.dead_band, self.step) < 0
        ):
            raise EstimateError("times of the external-airtime filter must be positive, shares 0 or more")


@dataclass(frozen=True, eq=False)
class External:
    """External airtime at the observers, arrays of their number: ``given`` is used, ``filtered`` follows the
    measurements, ``raw`` is the last (``least``: at least), ``time_s`` (-inf: never heard of) and ``moved_s`` say when.
    ``own`` is our own airtime of late.
    """

    given: FloatArray
    filtered: FloatArray
    raw: FloatArray
    least: FloatArray
    time_s: FloatArray
    moved_s: FloatArray
    own: FloatArray

    @staticmethod
    def nothing(observers: int) -> External:
        """Nothing measured yet."""
        zero, never = np.zeros(observers), np.full(observers, -np.inf)
        return External(zero, zero, zero, zero, never, never, zero)


@dataclass(frozen=True, eq=False)
class CarrierSensing:
    """Who hears what: ``heard`` is the observers x links matrix of ones where an observer hears a link transmit, and
    ``ends`` the L x 2 observers whose figure counts in the domain of each link (-1: none).
    """

    observers: tuple[Interface, ...]
    heard: sparse.csr_matrix
    ends: NDArray[np.intp]

    @staticmethod
    def of(
        network: Network, observers: Iterable[Interface], hears: Mapping[Interface, Collection[str]] | None = None
    ) -> CarrierSensing:
        """Observers are interfaces; ``hears`` tells which nodes each of them hears (``infer.topology`` knows).

        Without it an interface is taken to hear the links that contend with *every* link that ends there: under a
        geometric rule these are the ones with an end near it. Raises :class:`EstimateError` for an observer without
        links.
        """
        names = tuple(dict.fromkeys(observers))
        number = {name: i for i, name in enumerate(names)}
        ends = np.full((len(network.links), 2), -1, dtype=np.intp)
        mine: list[list[int]] = [[] for _ in names]
        for index, link in enumerate(network.links):
            for side, node in enumerate((link.source, link.target)):
                at = number.get((node, link.technology), -1)
                ends[index, side] = at
                if at >= 0:
                    mine[at].append(index)
        for name, links in zip(names, mine, strict=True):
            if not links:
                raise EstimateError(f"observer {name}: the network has no link there")
        if hears is None:
            heard = [_contending_with_all(network, links) for links in mine]
        else:
            sent_by: dict[Interface, list[int]] = {}
            for index, link in enumerate(network.links):
                sent_by.setdefault((link.source, link.technology), []).append(index)
            heard = [_heard_by(name, hears.get(name, ()), sent_by) for name in names]
        return CarrierSensing(names, _incidence(heard, len(network.links)), ends)

    def own_airtime(self, link_rates_mbps: FloatArray, capacity_mbps: FloatArray) -> FloatArray:
        """Airtime of our traffic at each observer; a used link without known capacity counts as busy all the time."""
        airtime = np.where(link_rates_mbps > 0, 1.0, 0.0)
        np.divide(link_rates_mbps, capacity_mbps, out=airtime, where=capacity_mbps > 0)
        return np.asarray(self.heard @ airtime)

    def per_link(self, values: FloatArray) -> FloatArray:
        """The larger of the values at the two ends of each link, shapes observers -> L; 0 without an observer."""
        padded = np.append(np.maximum(values, 0.0), 0.0)
        first, second = self._ends
        return np.asarray(np.maximum(padded[first], padded[second]))

    @cached_property
    def _ends(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.ascontiguousarray(self.ends[:, 0]), np.ascontiguousarray(self.ends[:, 1])

    def measured(self, busy: Mapping[Interface, float]) -> FloatArray:
        """The busy share of each observer; nan where there is none."""
        if not isinstance(busy, BusyShares):
            return np.array([busy.get(observer, np.nan) for observer in self.observers], dtype=float)
        places = self._places.get(busy.interfaces)
        if places is None:
            place_of = busy.interfaces.place_of
            found = [place_of.get(observer, len(place_of)) for observer in self.observers]
            places = self._places[busy.interfaces] = np.array(found, dtype=np.intp)
        return np.append(busy.share, np.nan)[places]

    @cached_property
    def _places(self) -> WeakKeyDictionary[Interfaces, NDArray[np.intp]]:
        """By numbering of interfaces: the places of the observers, the first one behind it if they are not there."""
        return WeakKeyDictionary()


def _contending_with_all(network: Network, links: Sequence[int]) -> NDArray[np.int32]:
    domains = [network.interference.domain(link) for link in links]
    times = np.bincount(np.concatenate(domains), minlength=len(network.links))
    return np.flatnonzero(times == len(domains)).astype(np.int32)


def _heard_by(
    observer: Interface, nodes: Collection[str], sent_by: Mapping[Interface, Sequence[int]]
) -> NDArray[np.int32]:
    """The links by which an observer and the nodes that it hears send."""
    node, technology = observer
    links = [link for sender in {node, *nodes} for link in sent_by.get((sender, technology), ())]
    return np.array(sorted(links), dtype=np.int32)


def _incidence(members: Sequence[NDArray[np.int32]], link_count: int) -> sparse.csr_matrix:
    bounds = np.cumsum([0, *(len(links) for links in members)])
    columns = np.concatenate(members) if members else np.zeros(0, dtype=np.int32)
    return sparse.csr_matrix((np.ones(len(columns)), columns, bounds), shape=(len(members), link_count))


@dataclass(frozen=True, eq=False)
class ExternalAirtime:
    """The filters of all observers; immutable: :meth:`after` gives the next one."""

    sensing: CarrierSensing
    settings: ExternalSettings = field(default_factory=ExternalSettings)
    state: External | None = None

    def after(
        self, busy: Mapping[Interface, float], own_airtime: FloatArray, now_s: float, most: FloatArray | None = None
    ) -> ExternalAirtime:
        """With measured busy times of some observers; ``own_airtime`` as from
        :meth:`CarrierSensing.own_airtime`, and what it may be at ``most`` (None: it is certain).
        """
        measured = self.sensing.measured(busy)
        old = self._state
        known = ~np.isnan(measured) & (old.time_s < now_s)
        raw = np.clip(measured - own_airtime, 0.0, 1.0)
        least = raw if most is None else np.clip(measured - np.maximum(own_airtime, most), 0.0, 1.0)
        new = self._next(old, raw, least, own_airtime, now_s)
        parts = (np.where(known, getattr(new, part.name), getattr(old, part.name)) for part in fields(External))
        return ExternalAirtime(self.sensing, self.settings, External(*parts))

    def with_carrier_sensing(self, sensing: CarrierSensing) -> ExternalAirtime:
        """With other observers, or others that they hear; observers that stay keep their state."""
        position = {observer: i for i, observer in enumerate(self.sensing.observers)}
        old = np.array([position.get(observer, -1) for observer in sensing.observers], dtype=np.intp)
        nothing = External.nothing(1)
        parts = (
            np.append(getattr(self._state, part.name), getattr(nothing, part.name))[old] for part in fields(External)
        )
        return ExternalAirtime(sensing, self.settings, External(*parts))

    def per_link(self, now_s: float) -> FloatArray:
        """External airtime in the domain of every link, shape L, in 0..1."""
        return self.sensing.per_link(np.where(self._is_stale(now_s), 0.0, self._state.given))

    def stale(self, now_s: float) -> tuple[Interface, ...]:
        """Observers that have not been heard of for too long, or never."""
        return tuple(self.sensing.observers[i] for i in np.flatnonzero(self._is_stale(now_s)).tolist())

    @cached_property
    def _state(self) -> External:
        return External.nothing(len(self.sensing.observers)) if self.state is None else self.state

    def _is_stale(self, now_s: float) -> NDArray[np.bool_]:
        return now_s - self._state.time_s > self.settings.stale_s

    def _next(self, old: External, raw: FloatArray, least: FloatArray, own: FloatArray, now_s: float) -> External:
        """The state of observers that were measured now."""
        settings, first = self.settings, np.isneginf(old.time_s)
        filtered = np.where(first, least, self._followed(old, raw, least, own, now_s))
        wanted = np.where(filtered > settings.floor, filtered, 0.0)
        moves = first | (np.abs(wanted - old.given) > settings.dead_band) | (now_s - old.moved_s > settings.settle_s)
        times_s = np.full(len(raw), now_s)
        given, moved_s = np.where(moves, wanted, old.given), np.where(moves, now_s, old.moved_s)
        share = np.where(first, 1.0, -np.expm1((old.time_s - now_s) / settings.own_tau_s))
        return External(given, filtered, raw, least, times_s, moved_s, old.own + share * (own - old.own))

    def _followed(self, old: External, raw: FloatArray, least: FloatArray, own: FloatArray, now_s: float) -> FloatArray:
        settings = self.settings
        # What is nearest to the filtered value in both spans.
        before, near = np.clip(old.filtered, old.least, old.raw), np.clip(old.filtered, least, raw)
        last, new = before - old.filtered, near - old.filtered
        falls = np.maximum(last, new) < -settings.step
        share = -np.expm1((old.time_s - now_s) / np.where(falls, settings.fall_tau_s, settings.noise_tau_s))
        steps_up = np.minimum(last, new) > settings.step
        # If our own traffic gained what external traffic lost, that was a flow which has just been declared.
        taken_over = falls & (own - old.own > -settings.taken_over * new)
        return np.where(steps_up | taken_over, (before + near) / 2, old.filtered + share * new)
