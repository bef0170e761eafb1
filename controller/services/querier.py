"""Asks hosts behind access ports, and stations, which groups they want (``core.services.querier``).

Only while some session follows what hosts say, and only at switches that hand reports up: elsewhere nobody would hear
the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv4Address

from hyroads.controller.core.services.membership import query_of
from hyroads.controller.core.services.querier import (
    LINK_LOCAL,
    Address,
    Querier,
    QueryTimes,
    begun,
    heard,
    query_frame,
    turned,
)
from hyroads.controller.ofp import wire
from hyroads.controller.settings_querier import QuerierSettings
from hyroads.controller.switches import SwitchSession

Station = tuple[str, str, str]
"""Node, port and MAC of a host on a medium."""


class QuerierDesk:
    """One per controller. ``access_port`` has the names of access ports by node."""

    def __init__(
        self,
        switches: Mapping[str, SwitchSession],
        access_port: Mapping[str, str],
        settings: QuerierSettings,
        clock: Callable[[], float],
    ) -> None:
        self._switches = switches
        self._access_port = access_port
        self._settings = settings
        self._clock = clock
        self._queriers: tuple[Querier, ...] = ()

    @property
    def membership_s(self) -> float:
        """How long a report counts."""
        times: QueryTimes = self._settings.times
        return max((querier.membership_s for querier in self._queriers), default=times.membership_s)

    def hears(self, node: str) -> bool:
        """Whether a switch hands up what hosts say."""
        session = self._switches.get(node)
        confirmed = session.confirmed if session is not None else None
        return confirmed is not None and confirmed.intent.hears_reports

    def heard(self, frame: bytes) -> None:
        """A frame that came in at a port: another querier may ask."""
        query = query_of(frame)
        if query is not None:
            family, now_s = query.source.version, self._clock()
            self._queriers = tuple(
                heard(querier, query, now_s) if querier.address.version == family else querier
                for querier in self._queriers
            )

    def once(self, stations: Iterable[Station], *, needed: bool) -> None:
        """Ask, if it is time to."""
        if not needed:
            self._queriers = ()
            return
        now_s = self._clock()
        if not self._queriers:
            addresses: tuple[Address, ...] = (IPv4Address(self._settings.address), LINK_LOCAL)
            self._queriers = tuple(begun(address, self._settings.times, now_s) for address in addresses)
        after = [turned(querier, now_s) for querier in self._queriers]
        self._queriers = tuple(querier for querier, _ in after)
        for querier, is_due in after:
            if is_due:
                self._ask(querier, tuple(stations))

    def _ask(self, querier: Querier, stations: tuple[Station, ...]) -> None:
        for node, session in list(self._switches.items()):
            if self.hears(node):
                for port, mac in self._targets(node, stations):
                    if port in session.ports:
                        session.connection.send(wire.sent_out(0, query_frame(querier, mac), session.ports[port]))

    def _targets(self, node: str, stations: tuple[Station, ...]) -> Iterator[tuple[str, str | None]]:
        """Ports to ask at, and whom: all who are there, or one station."""
        yield self._access_port[node], None
        yield from ((port, mac) for at, port, mac in stations if at == node)
