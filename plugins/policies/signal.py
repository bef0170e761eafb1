"""``signal``: a client with a weak link moves to a clearly better one, with hysteresis in level and in time.

It moves if its signal is below ``low_dbm`` and another place has been ``margin_db`` better for ``hold_s``; where nobody
tells signals, if another place's rate has been ``rate_ratio`` times its own. The margin is what keeps it from coming
back at once, ``stay_s`` what bounds how often it moves whatever the readings do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.view import ClientView, NetworkView, Option, Wish

Candidates = Mapping[str, tuple[Place, float]]
"""By client: the place that is better, and since when."""


@dataclass(frozen=True, slots=True)
class Signal:
    """See the module."""

    name: str = "signal"
    low_dbm: float = -70.0
    margin_db: float = 6.0
    rate_ratio: float = 1.5
    hold_s: float = 2.0
    stay_s: float = 10.0

    def fresh(self) -> Candidates:
        """See :class:`MobilityPolicy`."""
        return {}

    def decide(self, memory: Candidates, view: NetworkView) -> tuple[Candidates, tuple[Wish, ...]]:
        """See :class:`MobilityPolicy`."""
        candidates: dict[str, tuple[Place, float]] = {}
        wishes = []
        for name, client in view.clients.items():
            option = self._better(client, view.time_s)
            if option is None:
                continue
            old = memory.get(name)
            since_s = old[1] if old is not None and old[0] == option.place else view.time_s
            candidates[name] = (option.place, since_s)
            if view.time_s - since_s >= self.hold_s:
                wishes.append((self._gain(client, option), Wish(name, option.place, self._reason(option))))
        wishes.sort(key=lambda wish: (-wish[0], wish[1].client))
        return candidates, tuple(wish for _, wish in wishes)

    def _better(self, client: ClientView, now_s: float) -> Option | None:
        """The best place that is clearly better than where the client is; None if there is none."""
        here = client.option(client.place)
        if here is None or now_s - client.since_s < self.stay_s:
            return None
        others = [option for option in client.options if option.place != client.place and self._is_better(here, option)]
        return max(others, key=lambda option: (_level(option), option.rate_mbps, option.place), default=None)

    def _is_better(self, here: Option, there: Option) -> bool:
        if there.rate_mbps <= 0.0:
            return False
        if here.signal_dbm is not None and there.signal_dbm is not None:
            return here.signal_dbm < self.low_dbm and there.signal_dbm >= here.signal_dbm + self.margin_db
        return there.rate_mbps >= self.rate_ratio * here.rate_mbps

    def _gain(self, client: ClientView, option: Option) -> float:
        here = client.option(client.place)
        return option.rate_mbps / max(here.rate_mbps, 1e-9) if here is not None else 0.0

    def _reason(self, option: Option) -> str:
        signal = "" if option.signal_dbm is None else f"{option.signal_dbm:.0f} dBm, "
        return f"{signal}{option.rate_mbps:.1f} Mb/s there"


def _level(option: Option) -> float:
    return option.signal_dbm if option.signal_dbm is not None else float("-inf")


POLICY = Signal()
