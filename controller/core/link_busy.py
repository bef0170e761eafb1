"""The busy share of each link: what radios measure, else the airtime that its interference domain carries. Pure.

Where no radio at an end of a link measures how busy the medium is, the share of a link is the sum over the links of
its interference domain (Henri, EPFL thesis 9056, 2018, equation 2.2)

    busy = min(1, sum of rate / capacity)

with measured rates. Traffic of a port that several links leave, and that no path of an agent explains, counts at the
fastest of these links, so the share is a lower bound. If a link of the domain has a sender without counters, or
sends although its capacity is unknown, the share is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .estimate.busy_time import Interface
from .interference import Interference
from .network import Link
from .traffic_meter import Busy, LinkReading, Snapshot

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

_NO_RATE = (None, None)
_NOT_BUSY = Busy(-1.0, "", 0.0)


class LinkColumns(NamedTuple):
    """Measured figures of all links, in the order of the network's links.

    ``busy`` is a share of time, float64[L], from 0 to 1, NaN where it is unknown. ``radio_at`` is the interface whose
    radio says so, as an index into ``LinkBusy.interfaces``, -1 without a radio (intp[L]). ``readings`` are the rates of
    the links (by index) that differ from that of their interface.
    """

    busy: FloatArray
    radio_at: IndexArray
    readings: Mapping[int, LinkReading]


class LinkBusy:
    """Works out busy shares of the links of one network; ``links`` are in its order.

    A call of :meth:`columns` takes time in proportion to the links, and to the links in the domains of those that send.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self._ids = [link.id for link in links]
        self._at = {link: at for at, link in enumerate(self._ids)}
        ends = [((link.source, link.technology), (link.target, link.technology)) for link in links]
        self.interfaces: list[Interface] = list(dict.fromkeys(end for pair in ends for end in pair))
        place = {interface: at for at, interface in enumerate(self.interfaces)}
        self.sender = np.array([place[leaving] for leaving, _ in ends], dtype=np.intp)
        """Index of the interface that each link leaves."""
        self._receiver = np.array([place[arriving] for _, arriving in ends], dtype=np.intp)
        self._leaving: dict[Interface, list[int]] = {}
        for at, (leaving, _) in enumerate(ends):
            self._leaving.setdefault(leaving, []).append(at)
        self._sums: _DomainSums | None = None

    def columns(self, now: Snapshot, interference: Interference, capacity_mbps: Sequence[float]) -> LinkColumns:
        """Measured figures of all links.

        ``now`` is a snapshot of the traffic meter, ``interference`` that of the network as it counts now, and
        ``capacity_mbps`` are the capacities of its links in Mb/s (0: unknown).
        """
        shares = np.array([now.busy.get(each, _NOT_BUSY).share for each in self.interfaces])
        radio_at = np.where(shares[self.sender] >= shares[self._receiver], self.sender, self._receiver)
        by_radio = shares[radio_at] if len(shares) else np.zeros(0)
        counted = np.array([each in now.idle for each in self.interfaces], dtype=bool)[self.sender]
        readings = self._readings(now, counted)
        if (by_radio >= 0).all():
            return LinkColumns(by_radio, radio_at, readings)
        airtime = self._airtime(now, counted, readings, np.asarray(capacity_mbps, dtype=np.float64))
        if self._sums is None or self._sums.interference is not interference:
            self._sums = _DomainSums(interference)
        by_counters = np.minimum(1.0, self._sums.of(airtime))
        return LinkColumns(
            np.where(by_radio >= 0, by_radio, by_counters), np.where(by_radio >= 0, radio_at, -1), readings
        )

    def _readings(self, now: Snapshot, counted: NDArray[np.bool_]) -> dict[int, LinkReading]:
        apart = np.flatnonzero(~counted).tolist()
        on_paths = [self._at[link] for link in now.paths if link in self._at]
        return {at: now.reading(self._ids[at]) for at in {*apart, *on_paths}}

    def _airtime(
        self,
        now: Snapshot,
        counted: NDArray[np.bool_],
        readings: Mapping[int, LinkReading],
        capacity_mbps: FloatArray,
    ) -> FloatArray:
        """Share of time that each link takes by itself, float64[L], NaN where it is unknown. ``counted`` says which
        links leave a port with a counter, bool[L].
        """
        rates = np.array([now.idle.get(each, _NO_RATE)[0] for each in self.interfaces], dtype=np.float64)
        rate_mbps = rates[self.sender]
        for at, reading in readings.items():
            rate_mbps[at] = np.nan if reading.rate_mbps is None else reading.rate_mbps
        # What a counted port sends and no link has is in ``now.unexplained``.
        rate_mbps[counted & np.isnan(rate_mbps)] = 0.0
        for interface, mbps in now.unexplained.items():
            links = self._leaving[interface]
            rate_mbps[links[int(np.argmax(capacity_mbps[links]))]] += mbps
        known = capacity_mbps > 0.0
        airtime: FloatArray = np.divide(rate_mbps, capacity_mbps, out=np.full(len(rate_mbps), np.nan), where=known)
        # A link that sends nothing takes no time, nor does one that is down and has no counters.
        airtime[(rate_mbps == 0.0) | (~known & np.isnan(rate_mbps))] = 0.0
        return airtime


class _DomainSums:
    """Sums over interference domains, by classes of links with the same domain; no L x L structure is built."""

    def __init__(self, interference: Interference) -> None:
        self.interference = interference
        self._class_of = np.asarray(interference.classes(), dtype=np.intp)
        self._count = int(self._class_of.max(initial=-1)) + 1
        self._first = np.zeros(self._count, dtype=np.intp)
        self._first[self._class_of[::-1]] = np.arange(len(self._class_of))[::-1]
        self._near: dict[int, IndexArray] = {}

    def of(self, values: FloatArray) -> FloatArray:
        """By link the sum of ``values`` over its domain, NaN if one of them is NaN; both float64[L]."""
        by_class = np.bincount(self._class_of, weights=values, minlength=self._count)
        total = np.zeros(self._count)
        # A link is in the domain of another one iff that is in its own, so only links with a value have to be visited.
        for number in np.flatnonzero(by_class != 0.0).tolist():
            total[self._classes_near(number)] += by_class[number]
        return total[self._class_of]

    def _classes_near(self, number: int) -> IndexArray:
        known = self._near.get(number)
        if known is None:
            domain = self.interference.domain(int(self._first[number]))
            known = self._near[number] = np.unique(self._class_of[domain])
        return known
