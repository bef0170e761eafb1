"""The interference rule ``hearing``: who hears whom (spec 05; docs/closed-loop.md).

Links of one technology contend if an end of one hears, or is, an end of the other: a sender waits for what it hears,
and a receiver can't decode two at once. It is the geometric rule of the thesis with hearing in place of distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from hyroads.controller.core.interference import Interference, NearInterference
from hyroads.controller.core.network import Link


class HearingInterference(NearInterference):
    """Rule 'who hears whom': links contend if an end of one hears, or is, an end of the other on their technology.

    ``hears`` maps (node, technology) to the nodes heard there; its symmetric closure is taken.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        links: Sequence[Link],
        hears: Mapping[tuple[str, str], Iterable[str]],
        unshared: frozenset[str] = frozenset(),
    ) -> None:
        number = {node: i for i, node in enumerate(nodes)}
        media = [k for k in dict.fromkeys(link.technology for link in links) if k not in unshared]
        near = np.repeat(np.eye(len(number), dtype=bool)[None], len(media), axis=0)
        for (node, technology), others in hears.items():
            if technology in media and node in number:
                at = media.index(technology)
                for other in others:
                    if other in number:
                        near[at, number[node], number[other]] = near[at, number[other], number[node]] = True
        super().__init__(number, links, media, near)
        self._ids = tuple(link.id for link in links)

    def declaration(self) -> dict[str, object]:
        """As the rule ``conflicts``, each pair once."""
        return {"conflicts": _conflicts(self, self._ids)}


class AssumedHearing(HearingInterference):
    """Rule ``hearing`` of a network file, before anyone has listened: whoever a link joins hears the other."""

    def __init__(self, nodes: Sequence[str], links: Sequence[Link], unshared: frozenset[str] = frozenset()) -> None:
        hears: dict[tuple[str, str], set[str]] = {}
        for link in links:
            hears.setdefault((link.source, link.technology), set()).add(link.target)
        super().__init__(nodes, links, hears, unshared)

    def declaration(self) -> dict[str, object]:
        """The rule's name."""
        return {"rule": "hearing"}


def _conflicts(interference: Interference, ids: Sequence[str]) -> dict[str, list[str]]:
    pairs = {
        ids[first]: [ids[second] for second in interference.domain(first).tolist() if second > first]
        for first in range(len(ids))
    }
    return {link: others for link, others in pairs.items() if others}
