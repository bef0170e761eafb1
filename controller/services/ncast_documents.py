"""n-casts in the state file: what a new controller needs to go on with them as if nothing had happened. Pure.

The agents go on copying while no controller is there. A new one must want from its first plan on exactly what the old
one wanted last: then nothing is sent to anybody, and no packet is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hyroads.controller.control.handover import Confined, Key
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.numbering import PathName

MAX_PATHS = 16
_DOCUMENT = "state file"
CHOSEN = ("shared_links", "contending_pairs", "expected_loss")


@dataclass(frozen=True, slots=True)
class KeptNCast:
    """An n-cast whose copies are sent. ``before``: the paths that carried the flow until then. ``chosen``: what was
    said of the choice of paths (docs/explanation/services.md, section 5); empty if they were given.
    """

    flow: str
    target: str
    paths: tuple[PathName, ...]
    before: tuple[PathName, ...]
    copying_after_s: float
    chosen: Mapping[str, Any]

    @property
    def key(self) -> Key:
        """What is confined."""
        return self.target, self.flow

    @property
    def confined(self) -> Confined:
        """What was wanted last."""
        return Confined(tuple(dict.fromkeys((*self.before, *self.paths))), self.paths, copies=True)


def ncast_document(kept: KeptNCast) -> dict[str, Any]:
    """What the state file keeps."""
    return {
        "flow": kept.flow,
        "paths": [list(path) for path in kept.paths],
        "before": [list(path) for path in kept.before],
        "copying_after_s": kept.copying_after_s,
        "chosen": dict(kept.chosen),
    }


def ncasts_from(
    documents: object, network: Network, flows: Mapping[str, FlowSpec]
) -> tuple[list[KeptNCast], list[ConfigError]]:
    """What :func:`ncast_document` kept; what the network or the flows do not have any more is left out."""
    found: dict[str, KeptNCast] = {}
    problems = []
    for index, document in enumerate(documents if isinstance(documents, list) else ()):
        try:
            kept = _kept(document, network, flows, f"services.ncasts[{index}]")
        except ConfigError as error:
            problems.append(error)
        else:
            found[kept.flow] = kept
    return list(found.values()), problems


def _kept(document: Any, network: Network, flows: Mapping[str, FlowSpec], where: str) -> KeptNCast:
    match document:
        case {
            "flow": str(flow),
            "paths": [_, _, *_] as paths,
            "before": [_, *_] as before,
            "copying_after_s": int() | float() as after_s,
            "chosen": dict(chosen),
        } if flow in flows:
            spec = flows[flow]
        case _:
            raise ConfigError(_DOCUMENT, where, "expected a flow that is declared, and its paths")
    said = {name: value for name, value in chosen.items() if name in CHOSEN and isinstance(value, int | float)}
    ways = [_paths(given, network, spec, where) for given in (paths, before)]
    return KeptNCast(flow, spec.target, ways[0], ways[1], float(after_s), said if len(said) == len(CHOSEN) else {})


def _paths(given: list[Any], network: Network, spec: FlowSpec, where: str) -> tuple[PathName, ...]:
    if len(given) <= MAX_PATHS and all(_is_path(path, network, spec) for path in given):
        found = tuple(tuple(path) for path in given)
        if len(set(found)) == len(found):
            return found
    raise ConfigError(_DOCUMENT, where, f"expected different paths from {spec.source} to {spec.target}")


def _is_path(path: object, network: Network, spec: FlowSpec) -> bool:
    if not isinstance(path, list) or not path or not all(_is_link(link, network.link_index) for link in path):
        return False
    links = [network.links[network.link_index[link]] for link in path]
    joined = all(first.target == second.source for first, second in pairwise(links))
    return joined and (links[0].source, links[-1].target) == (spec.source, spec.target)


def _is_link(link: object, known: Container[str]) -> bool:
    return isinstance(link, str) and link in known
