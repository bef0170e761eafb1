"""Where the loop's measurements come from: the protocol :class:`Source`, and the one that only knows the network file.

A source collects between two slots whatever access points say, and is asked once per slot. It must answer at once: the
loop waits for nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from hyroads.controller.core.closed_loop import Measurements, configured_samples
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Network


@dataclass(frozen=True, eq=False)
class Heard:
    """Who hears whom: a new object whenever it changed.

    ``observers`` are the interfaces (node, technology) whose busy shares may come; ``hears`` tells which nodes each of
    them hears (None: as the interference rule says). ``interference`` replaces the network's rule (None: it stays);
    it is over the links of the network that the source was made with, in their order.
    """

    observers: tuple[Interface, ...] = ()
    hears: Mapping[Interface, Collection[str]] | None = None
    interference: Interference | None = None


NOTHING_HEARD = Heard()


class Source(Protocol):
    """Measurements of access points."""

    def take(self, now_s: float) -> Measurements:
        """What came in since the last call: ``samples`` of links and ``busy`` shares of interfaces.

        ``path_mbps`` and ``offers`` are the agents' business and stay empty. Every busy share is over the time since
        the one before it; an interface without a new reading is left out.
        """

    def heard(self) -> Heard:
        """Who hears whom; the same object as long as nothing changed."""

    def complete(self) -> bool:
        """Whether everyone who measures has spoken since the start; what is planned before that lacks something."""


class ConfiguredSource:
    """The capacities of the network file, once: what a file says does not age."""

    def __init__(self, network: Network) -> None:
        self._network: Network | None = network

    def take(self, now_s: float) -> Measurements:
        """All capacities the first time, then nothing."""
        network, self._network = self._network, None
        return Measurements(configured_samples(network, now_s)) if network is not None else Measurements()

    def heard(self) -> Heard:
        """Nobody listens."""
        return NOTHING_HEARD

    def complete(self) -> bool:
        """A file has said everything."""
        return True
