"""``placement``: the radios of a client go where its flows get the most together (docs/explanation/placement.md).

The best attachments, and what the present ones give, are in the view (:class:`~hyroads.plugins.api.Radios`). A client
moves once the same attachments have been the best for ``hold_s``, with a rate ``1 + gain`` times that of the present
ones, but not within ``stay_s`` of its last move. The gain keeps it from coming back at once, ``stay_s`` bounds how
often it moves, whatever is measured. All its radios move at once, so that no two of them meet at one access point on
the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.view import ClientView, NetworkView, Radios, Wish

Candidates = Mapping[str, tuple[tuple[Place, ...], float]]
"""By client: the attachments that are better, and since when."""


@dataclass(frozen=True, slots=True)
class Placement:
    """See the module. ``mode`` is one of ``core.network.ClientMode``: what radios are placed for."""

    places_radios: ClassVar[bool] = True

    name: str = "placement"
    mode: str = "full-speed"
    gain: float = 0.1
    hold_s: float = 2.0
    stay_s: float = 10.0

    def fresh(self) -> Candidates:
        """See :class:`MobilityPolicy`."""
        return {}

    def decide(self, memory: Candidates, view: NetworkView) -> tuple[Candidates, tuple[Wish, ...]]:
        """See :class:`MobilityPolicy`."""
        candidates: dict[str, tuple[tuple[Place, ...], float]] = {}
        wishes = []
        for name, client in view.clients.items():
            old = memory.get(name)
            if client.radios is None:
                # Nobody found out this time.
                if old is not None:
                    candidates[name] = old
                continue
            if not self._is_better(client, client.radios, view.time_s):
                continue
            best = client.radios.best
            since_s = old[1] if old is not None and old[0] == best else view.time_s
            candidates[name] = best, since_s
            if view.time_s - since_s >= self.hold_s:
                wishes.append((client.radios.best_mbps - client.radios.attached_mbps, self._wish(name, client.radios)))
        wishes.sort(key=lambda wish: (-wish[0], wish[1].client))
        return candidates, tuple(wish for _, wish in wishes)

    def _is_better(self, client: ClientView, radios: Radios, now_s: float) -> bool:
        if not radios.best or set(radios.best) == set(client.attached):
            return False
        # Who uses all its links at once has not been placed yet.
        stays = bool(client.attached) and now_s - client.since_s < self.stay_s
        return not stays and radios.best_mbps >= (1.0 + self.gain) * radios.attached_mbps

    def _wish(self, client: str, radios: Radios) -> Wish:
        first, *also = radios.best
        reason = f"{radios.best_mbps:.1f} Mb/s there, {radios.attached_mbps:.1f} here"
        return Wish(client, first, reason, tuple(also), radios.copies)


POLICY = Placement()
