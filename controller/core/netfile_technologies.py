"""The section ``technologies`` of a network file: which media are shared, and what contention costs on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.core.checking import Section
from hyroads.controller.core.network import Contention, Link, Network

_KEYS = ("shared", "contention")
_CONTENTION = tuple(kind.value for kind in Contention)


@dataclass(frozen=True)
class Technologies:
    """Technologies without a shared medium, and those whose stations collide; the others are shared and ideal."""

    unshared: frozenset[str]
    contention: Mapping[str, Contention] = field(default_factory=dict)


def is_ethernet(technology: str) -> bool:
    """Whether a technology is unshared by its name (``ethernet`` or ``ethernet-...``)."""
    return technology == "ethernet" or technology.startswith("ethernet-")


def parse_technologies(top: Section, links: Iterable[Link]) -> Technologies:
    """What the section says, and what names of technologies say where it says nothing."""
    used = dict.fromkeys(link.technology for link in links)
    shared = {technology: not is_ethernet(technology) for technology in used}
    contention: dict[str, Contention] = {}
    for technology, place in top["technologies"].entries() if "technologies" in top else ():
        if technology not in used:
            place.fail("no link is of this technology")
            continue
        section = place.section(_KEYS)
        if "shared" in section:
            shared[technology] = section["shared"].boolean(True)
        if "contention" in section:
            kind = Contention(section["contention"].choice(_CONTENTION, Contention.IDEAL))
            if kind is not Contention.IDEAL:
                contention[technology] = kind
                if not shared[technology]:
                    section["contention"].fail("nobody contends on a medium that is not shared")
    return Technologies(frozenset(technology for technology, is_shared in shared.items() if not is_shared), contention)


def technologies_document(network: Network) -> dict[str, dict[str, Any]] | None:
    """The section that :func:`parse_technologies` turns into the same; None where none is needed."""
    named_ethernet = {k for k in network.technologies if is_ethernet(k)}
    # Numbers of technologies follow from their order, which this section keeps where no links do.
    if network.unshared == named_ethernet and not network.discovered and not network.contention:
        return None
    return {k: _technology(k, network.unshared, network.contention) for k in network.technologies}


def _technology(name: str, unshared: Collection[str], contention: Mapping[str, Contention]) -> dict[str, Any]:
    document: dict[str, Any] = {"shared": name not in unshared}
    return document | ({"contention": contention[name].value} if name in contention else {})
