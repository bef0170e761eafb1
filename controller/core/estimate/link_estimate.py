"""The capacity of every link from several sources of samples: modulation, agents' measurements, configuration.

Each (link, source) has a filter of its own (``filters``); they are never mixed into one average, because a source that
is wrong is wrong for minutes. An estimate is the value of the *best fresh* source:

    agent (measured on traffic) > modulation (what the radio or modem says) > configured (what a file says)

and it carries where it is from, how old it is, and how far it may be trusted. Two measured sources that differ by more
than ``contradiction_ratio`` (and by more than their noise explains) are ``CONTRADICTORY``: the smaller value is
given, as an overload costs more than an idle share of time, and the reason names both. What is older than
``stale_s`` is ``STALE``; after ``gone_s`` it is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from .filter_bank import FilterBank, FloatArray, IndexArray
from .filters import EstimateError, Filtered, FilterSettings, Quality


class Source(StrEnum):
    """Where a sample is from, best first."""

    AGENT = "agent"
    MODULATION = "modulation"
    CONFIGURED = "configured"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured capacity at ``time_s``."""

    link: str
    source: Source
    capacity_mbps: float
    time_s: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.capacity_mbps) and self.capacity_mbps >= 0):
            raise EstimateError(f"link {self.link!r}: a capacity must be a finite rate, got {self.capacity_mbps}")


@dataclass(frozen=True, slots=True)
class LinkEstimate:
    """What is believed of a link: ``capacity_mbps`` (None: nothing is known), and why.

    ``relative_error`` is the standard error of the filtered value over the value; ``confidence`` is in 0..1.
    """

    link: str
    capacity_mbps: float | None
    source: Source | None
    age_s: float | None
    quality: Quality
    confidence: float
    relative_error: float
    reason: str


@dataclass(frozen=True)
class LinkSettings:
    """Constants of the estimator; docs/explanation/closed-loop.md says why these.

    A source is unsure below ``min_samples`` or above ``unsure_error``.
    """

    filter: FilterSettings = field(default_factory=FilterSettings)
    stale_s: float = 3.0
    gone_s: float = 30.0
    min_samples: int = 3
    unsure_error: float = 0.1
    contradiction_ratio: float = 0.3
    contradiction_sigma: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.stale_s <= self.gone_s:
            raise EstimateError("expected 0 < stale_s <= gone_s")


@dataclass(frozen=True, eq=False)
class Samples(Sequence[Sample]):
    """Many samples as arrays: positions in ``links``, capacities, and when each was measured; all of one source."""

    links: tuple[str, ...]
    source: Source
    at: IndexArray
    capacity_mbps: FloatArray
    time_s: FloatArray
    others: tuple[Sample, ...] = ()
    """More of any source; they come first."""

    def __len__(self) -> int:
        return len(self.others) + len(self.at)

    @cached_property
    def _all(self) -> tuple[Sample, ...]:
        rows = zip(self.at.tolist(), self.capacity_mbps.tolist(), self.time_s.tolist(), strict=True)
        return (*self.others, *(Sample(self.links[i], self.source, mbps, time_s) for i, mbps, time_s in rows))

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        return self._all[index]


_Column = tuple[IndexArray, FloatArray, FloatArray]
"""Numbers of links, capacities in Mb/s and times in s, of one length."""


class _Numbers:
    """The numbering of links, shared by the estimators of all slots: filter n of a source is that of link n."""

    def __init__(self, technology: Mapping[str, str]) -> None:
        self.of = {link: number for number, link in enumerate(technology)}
        self.links = self._same = tuple(technology)

    def are_all(self, links: tuple[str, ...]) -> bool:
        """Whether these are all links in their order. Mostly it is the very object that was asked for before."""
        if links is self._same:
            return True
        if links != self.links:
            return False
        self._same = links
        return True

    def columns(self, samples: Iterable[Sample]) -> Iterator[tuple[Source, _Column]]:
        """Samples by source, those of each link in the order of their times; :class:`EstimateError` for an unknown
        link.
        """
        if isinstance(samples, Samples) and self.are_all(samples.links):
            if not (np.isfinite(samples.capacity_mbps).all() and (samples.capacity_mbps >= 0).all()):
                raise EstimateError("a capacity must be a finite rate")
            found = self._by_source(samples.others) if samples.others else {}
            mine = samples.at, samples.capacity_mbps, samples.time_s
            others = found.get(samples.source)
            found[samples.source] = mine if others is None else _joined(others, mine)
        else:
            found = self._by_source(samples)
        return ((source, self._in_time(*column)) for source, column in found.items() if len(column[0]))

    def _by_source(self, samples: Iterable[Sample]) -> dict[Source, _Column]:
        of, rows = self.of, dict[Source, list[tuple[int, float, float]]]()
        try:
            for each in samples:
                rows.setdefault(each.source, []).append((of[each.link], each.capacity_mbps, each.time_s))
        except KeyError as unknown:
            raise EstimateError(f"a sample names the unknown link {unknown}") from None
        return {source: _column(told) for source, told in rows.items()}

    def _in_time(self, at: IndexArray, capacity_mbps: FloatArray, time_s: FloatArray) -> _Column:
        """In an order in which filters may take them: that of the times, which matters only within a filter."""
        if not (time_s[1:] < time_s[:-1]).any() or np.bincount(at, minlength=len(self.links)).max() <= 1:
            return at, capacity_mbps, time_s
        order = np.argsort(time_s, kind="stable")
        return at[order], capacity_mbps[order], time_s[order]


def _column(rows: Sequence[tuple[int, float, float]]) -> _Column:
    at, capacity_mbps, time_s = zip(*rows, strict=True)
    return np.array(at, dtype=np.intp), np.array(capacity_mbps, dtype=float), np.array(time_s, dtype=float)


def _joined(first: _Column, second: _Column) -> _Column:
    at, capacity_mbps, time_s = (np.concatenate(both) for both in zip(first, second, strict=True))
    return at, capacity_mbps, time_s


@dataclass(frozen=True, eq=False)
class LinkEstimator:
    """The filters of all links; immutable: :meth:`after` gives the next one. ``technology`` is by link id, ``banks``
    has the filters of each source that has said something, one per link.
    """

    technology: Mapping[str, str]
    settings: LinkSettings = field(default_factory=LinkSettings)
    banks: Mapping[Source, FilterBank] = field(default_factory=dict)
    numbering: _Numbers | None = None

    def after(self, samples: Iterable[Sample]) -> LinkEstimator:
        """With more samples, in the order of their times; :class:`EstimateError` for a link that nobody declared."""
        numbers, filters = self.numbers, self.settings.filter
        banks = {
            source: self.bank(source).updated(at, values, times_s, filters)
            for source, (at, values, times_s) in numbers.columns(samples)
        }
        return LinkEstimator(self.technology, self.settings, {**self.banks, **banks}, numbers) if banks else self

    @cached_property
    def numbers(self) -> _Numbers:
        """The numbering of links and filters."""
        return _Numbers(self.technology) if self.numbering is None else self.numbering

    def bank(self, source: Source) -> FilterBank:
        """The filters of a source, in the order of the links."""
        known = self.banks.get(source)
        return FilterBank.empty(len(self.technology), self.settings.filter) if known is None else known

    def _track(self, link: str, source: Source) -> Filtered | None:
        bank = self.banks.get(source)
        return None if bank is None else bank.at(self.numbers.of[link])

    def estimate(self, link: str, now_s: float) -> LinkEstimate:
        """What is believed of one link now."""
        tracks = ((source, self._track(link, source)) for source in Source)
        known = {source: track for source, track in tracks if track is not None}
        # What a file says does not age.
        age = {s: 0.0 if s is Source.CONFIGURED else max(0.0, now_s - t.time_s) for s, t in known.items()}
        fresh = [source for source in known if age[source] <= self.settings.stale_s]
        measured = [source for source in fresh if source is not Source.CONFIGURED]
        old = [s for s in known if self.settings.stale_s < age[s] <= self.settings.gone_s]
        if measured:
            return self._of_fresh(link, known, measured, age)
        if old:
            source = min(old, key=lambda s: age[s])
            reason = f"the last sample ({source}) is {age[source]:.1f} s old"
            reason += "; a configured value exists but was not measured" if fresh else ""
            return self._made(link, known[source], source, age[source], quality=Quality.STALE, reason=reason)
        if fresh:
            reason = "nothing was measured; the configured value is used"
            source = Source.CONFIGURED
            return self._made(link, known[source], source, 0.0, quality=Quality.UNSURE, reason=reason)
        return LinkEstimate(link, None, None, None, Quality.MISSING, 0.0, math.inf, "nothing was measured")

    def estimates(self, now_s: float) -> Estimates:
        """What is believed of all links now, in the order of declaration."""
        return Estimates(self, now_s)

    def planned_mbps(self, now_s: float, stale_share: float) -> FloatArray:
        """``capacity_mbps`` of all estimates, in their order: ``stale_share`` of it if stale, 0 if unknown."""
        measured = [bank for source, bank in self.banks.items() if source is not Source.CONFIGURED]
        if len(measured) == 1:
            return self._planned_from(measured[0], now_s, stale_share)
        said = _Columns.of(self, now_s)
        mean, old, age_s = said.mean, said.old, said.age_s
        lower = np.minimum(mean[:, _AGENT], mean[:, _MODULATION])
        best = np.where(said.fresh[:, _AGENT], mean[:, _AGENT], mean[:, _MODULATION])
        youngest = np.argmin(np.where(old, age_s, np.inf), axis=1)
        stale = stale_share * np.where(youngest == _AGENT, mean[:, _AGENT], mean[:, _MODULATION])
        unmeasured = np.where(said.count[:, _CONFIGURED] > 0, mean[:, _CONFIGURED], 0.0)
        otherwise = np.where(old.any(axis=1), stale, unmeasured)
        return np.where(said.fresh.any(axis=1), np.where(said.contradict, lower, best), otherwise)

    def _planned_from(self, bank: FilterBank, now_s: float, stale_share: float) -> FloatArray:
        """The same where only one source measures."""
        settings, age_s = self.settings, now_s - bank.time_s
        is_known = bank.count > 0
        fresh = is_known & (age_s <= settings.stale_s)
        if fresh.all():
            return bank.mean.copy()
        old, told = is_known & (age_s <= settings.gone_s), self.banks.get(Source.CONFIGURED)
        unmeasured: FloatArray | float = 0.0 if told is None else np.where(told.count > 0, told.mean, 0.0)
        return np.where(fresh, bank.mean, np.where(old, stale_share * bank.mean, unmeasured))

    def qualities(self, now_s: float) -> dict[Quality, int]:
        """How many estimates are of which quality; those that occur."""
        said, settings = _Columns.of(self, now_s), self.settings
        rows, best = np.arange(len(said.mean)), np.where(said.fresh[:, _AGENT], _AGENT, _MODULATION)
        mean, error = said.mean[rows, best], said.error[rows, best]
        scatters = (mean > 0) & (error > settings.unsure_error * mean)
        is_good = (said.count[rows, best] >= settings.min_samples) & ~scatters
        is_fresh, is_old = said.fresh.any(axis=1), said.old.any(axis=1)
        is_told = said.count[:, _CONFIGURED] > 0
        which = {
            Quality.CONTRADICTORY: said.contradict,
            Quality.GOOD: is_fresh & ~said.contradict & is_good,
            Quality.STALE: ~is_fresh & is_old,
            Quality.UNSURE: (is_fresh & ~said.contradict & ~is_good) | (~is_fresh & ~is_old & is_told),
            Quality.MISSING: ~is_fresh & ~is_old & ~is_told,
        }
        counts = {quality: int(np.count_nonzero(rows)) for quality, rows in which.items()}
        return {quality: count for quality, count in counts.items() if count}

    def _of_fresh(
        self, link: str, known: Mapping[Source, Filtered], fresh: Sequence[Source], age: Mapping[Source, float]
    ) -> LinkEstimate:
        best = fresh[0]
        pair = next(((a, b) for a, b in pairwise(fresh) if self._contradict(known[a], known[b])), None)
        if pair is not None:
            lower = min(pair, key=lambda s: known[s].mean)
            said = " and ".join(f"{s} says {known[s].mean:.3g} Mb/s" for s in pair)
            reason = f"{said}: the smaller is used"
            return self._made(link, known[lower], lower, age[lower], quality=Quality.CONTRADICTORY, reason=reason)
        track, quality, reason = known[best], Quality.UNSURE, ""
        if track.count < self.settings.min_samples:
            reason = f"{track.count} of {self.settings.min_samples} samples so far"
        elif _relative_error(track) > self.settings.unsure_error:
            reason = f"samples scatter: standard error {100 * _relative_error(track):.0f} %"
        else:
            quality = Quality.GOOD
        return self._made(link, track, best, age[best], quality=quality, reason=reason)

    def _made(
        self, link: str, track: Filtered, source: Source, age_s: float, *, quality: Quality, reason: str
    ) -> LinkEstimate:
        error = _relative_error(track)
        fresh = math.exp(-age_s / self.settings.stale_s)
        many = min(1.0, track.count / self.settings.min_samples)
        confidence = fresh * many / (1.0 + (error / self.settings.unsure_error) ** 2) * _TRUST[quality]
        return LinkEstimate(link, track.mean, source, age_s, quality, confidence, error, reason)

    def _contradict(self, first: Filtered, second: Filtered) -> bool:
        """More than the ratio apart, and more than their noise explains; one sample each proves nothing."""
        if min(first.count, second.count) < self.settings.min_samples:
            return False
        apart = abs(first.mean - second.mean)
        noise = math.hypot(first.standard_error, second.standard_error)
        larger = max(first.mean, second.mean)
        return apart > self.settings.contradiction_ratio * larger and apart > self.settings.contradiction_sigma * noise


_AGENT, _MODULATION, _CONFIGURED = range(len(Source))


@dataclass(frozen=True, eq=False)
class _Columns:
    """The filters of all links at a time: rows are links; columns are sources, those that measure in ``fresh``, ``old``
    and ``age_s``.
    """

    mean: FloatArray
    count: NDArray[np.int64]
    error: FloatArray
    age_s: FloatArray
    fresh: NDArray[np.bool_]
    old: NDArray[np.bool_]
    contradict: NDArray[np.bool_]

    @staticmethod
    def of(estimator: LinkEstimator, now_s: float) -> _Columns:
        """What filters say."""
        settings, banks = estimator.settings, [estimator.bank(source) for source in Source]
        mean, variance, time_s, weight = (
            np.column_stack([getattr(bank, name) for bank in banks])
            for name in ("mean", "variance", "time_s", "weight")
        )
        count = np.column_stack([bank.count for bank in banks])
        age_s, is_known = np.maximum(0.0, now_s - time_s[:, :_CONFIGURED]), count[:, :_CONFIGURED] > 0
        fresh = is_known & (age_s <= settings.stale_s)
        old = is_known & (age_s > settings.stale_s) & (age_s <= settings.gone_s)
        error = np.sqrt(variance * weight)
        lower = np.minimum(mean[:, _AGENT], mean[:, _MODULATION])
        higher = np.maximum(mean[:, _AGENT], mean[:, _MODULATION])
        noise = np.hypot(error[:, _AGENT], error[:, _MODULATION])
        contradict = (
            fresh.all(axis=1)
            & (count[:, :_CONFIGURED].min(axis=1) >= settings.min_samples)
            & (higher - lower > settings.contradiction_ratio * higher)
            & (higher - lower > settings.contradiction_sigma * noise)
        )
        return _Columns(mean, count, error, age_s, fresh, old, contradict)


@dataclass(frozen=True, eq=False)
class Estimates(Mapping[str, LinkEstimate]):
    """What is believed of all links at a time, worked out where it is asked for."""

    estimator: LinkEstimator
    now_s: float

    def __getitem__(self, link: str) -> LinkEstimate:
        if link not in self.estimator.technology:
            raise KeyError(link)
        return self.estimator.estimate(link, self.now_s)

    def __iter__(self) -> Iterator[str]:
        return iter(self.estimator.technology)

    def __len__(self) -> int:
        return len(self.estimator.technology)

    def qualities(self) -> dict[Quality, int]:
        """:meth:`LinkEstimator.qualities` at this time."""
        return self.estimator.qualities(self.now_s)

    def planned_mbps(self, stale_share: float, links: Iterable[str]) -> FloatArray:
        """:meth:`LinkEstimator.planned_mbps` at this time, of some links."""
        numbers, wanted = self.estimator.numbers, tuple(links)
        planned = self.estimator.planned_mbps(self.now_s, stale_share)
        return planned if numbers.are_all(wanted) else planned[[numbers.of[link] for link in wanted]]


_TRUST = {
    Quality.GOOD: 1.0,
    Quality.UNSURE: 0.5,
    Quality.CONTRADICTORY: 0.25,
    Quality.STALE: 0.25,
    Quality.MISSING: 0.0,
}


def _relative_error(track: Filtered) -> float:
    return track.standard_error / track.mean if track.mean > 0 else 0.0
