"""``load``: clients spread over access points and technologies, none to where it would be worse off.

On a medium, airtime is shared fairly among its clients (max-min with their demands), which is proportional fairness of
rates (Li, Pal, Yang, "Proportional fairness in multi-rate wireless LANs", INFOCOM 2008). A client may move if

    its own rate grows by ``gain`` or more, and  sum over all clients of log(rate) grows.

The second makes the sum a potential: in a network that does not change, moves come to an end. Of all such moves the
one that raises it most is wished for, one at a time, because the next one depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyroads.controller.core.services.view import ClientView, NetworkView, Option, Wish

_LEAST_MBPS = 1e-3
_NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class Load:
    """See the module. ``settle_s`` passes between two wishes, so that measurements follow."""

    name: str = "load"
    gain: float = 0.2
    stay_s: float = 10.0
    settle_s: float = 1.0

    def fresh(self) -> float:
        """See :class:`MobilityPolicy`: when it wished last."""
        return -math.inf

    def decide(self, memory: float, view: NetworkView) -> tuple[float, tuple[Wish, ...]]:
        """See :class:`MobilityPolicy`."""
        if view.time_s - memory < self.settle_s:
            return memory, ()
        best: tuple[float, Wish] | None = None
        crowds = crowds_of(view)
        now = {medium: rates_of(crowd) for medium, crowd in crowds.items()}
        for name in sorted(view.clients):
            client = view.clients[name]
            here = client.option(client.place)
            if here is None or view.time_s - client.since_s < self.stay_s:
                continue
            for there in client.options:
                grows = self._growth(crowds, now, client, (here, there))
                if grows is not None and (best is None or grows > best[0]):
                    best = grows, Wish(name, there.place, f"less crowded than {here.place}")
        return (memory, ()) if best is None else (view.time_s, (best[1],))

    def _growth(
        self, crowds: Crowds, now: Mapping[str, Rates], client: ClientView, move: tuple[Option, Option]
    ) -> float | None:
        """By how much the sum of log(rate) would grow; None if the move is not to be made. ``now``: rates by medium."""
        here, there = move
        if there.medium == here.medium or there.rate_mbps <= 0.0:
            return None
        after_there = rates_of((*crowds.get(there.medium, ()), (client, there)))
        if after_there[client.id] < (1.0 + self.gain) * now[here.medium][client.id]:
            return None
        after = rates_of(tuple(member for member in crowds[here.medium] if member[0] is not client))
        grows = _potential(after, after_there) - _potential(now[here.medium], now.get(there.medium, {}))
        return grows if grows > _NOISE else None


Rates = Mapping[str, float]
Crowds = Mapping[str, Sequence[tuple[ClientView, Option]]]
"""By medium: the clients on it, each with the option that it uses."""


def crowds_of(view: NetworkView) -> Crowds:
    """Who is on which medium."""
    crowds: dict[str, list[tuple[ClientView, Option]]] = {}
    for client in view.clients.values():
        option = client.option(client.place)
        if option is not None:
            crowds.setdefault(option.medium, []).append((client, option))
    return crowds


def rates_of(crowd: Sequence[tuple[ClientView, Option]]) -> dict[str, float]:
    """Rate of each client of a medium whose airtime is shared max-min, Mb/s."""
    needs = sorted((_need(client, option), client.id) for client, option in crowd)
    left, shares = 1.0, dict[str, float]()
    for position, (need, name) in enumerate(needs):
        shares[name] = min(need, left / (len(needs) - position))
        left -= shares[name]
    return {client.id: shares[client.id] * option.rate_mbps for client, option in crowd}


def _need(client: ClientView, option: Option) -> float:
    """Airtime that a client asks for: all of it if its demand is not bounded."""
    return math.inf if option.rate_mbps <= 0.0 else client.demand_mbps / option.rate_mbps


def _potential(*media: Mapping[str, float]) -> float:
    return sum(math.log(max(_LEAST_MBPS, rate)) for rates in media for rate in rates.values())


POLICY = Load()
