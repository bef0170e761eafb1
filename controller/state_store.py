"""What survives a restart, in one JSON file: flows declared over REST, file flows removed, numbers given, and
what the desks of services keep.

Written whole to a temporary file beside it and moved over it, so that a crash leaves the old or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyroads.controller.control.handover import Confined, Key, places_of
from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile_flows import flow_document, parse_flows
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.services.place import Place as Attached
from hyroads.controller.netfile_io import read_text
from hyroads.controller.numbering import FIRST_FLOW, FIRST_PATH, LAST_FLOW, LAST_PATH, Numbers
from hyroads.controller.state import DeclaredFlow, Origin

VERSION = 1


@dataclass(frozen=True)
class Saved:
    """The content of the file."""

    flows: tuple[FlowSpec, ...] = ()
    removed: frozenset[str] = frozenset()
    numbers: Numbers = field(default_factory=Numbers)
    confined: Mapping[Key, Confined] = field(default_factory=dict)
    """Where clients' flows were when no handover was on its way."""
    services: Mapping[str, Any] = field(default_factory=dict)
    """By service: what its desk keeps, as it wrote it."""


def parse_flow(document: Mapping[str, Any], network: Network, name: str) -> FlowSpec:
    """One flow as in the network file's section ``flows``; :class:`ConfigError` names the place inside it."""
    problems = Problems(name)
    top = Place({"flows": [dict(document)]}, problems).section(("flows",))
    links = {link.id: link for link in network.links}
    flows = parse_flows(top, network.nodes, links)
    errors = [ConfigError(name, e.place.removeprefix("flows[0]").lstrip("."), e.problem) for e in problems.errors]
    if errors:
        raise ConfigError(errors[0].document, errors[0].place, errors[0].problem, errors[1:])
    return flows[0]


def decode(text: str, name: str, network: Network) -> tuple[Saved, list[ConfigError]]:
    """The content, and why some flows of it are left out (the network file may have changed)."""
    document = load_document(text, name)
    if not isinstance(document, Mapping) or document.get("version") != VERSION:
        raise ConfigError(name, "version", f"expected a state file of version {VERSION}")
    flows, problems = [], []
    for entry in document.get("flows", []):
        try:
            flows.append(parse_flow(entry, network, name))
        except ConfigError as error:
            problems.append(error)
    services = document.get("services", {})
    if not isinstance(services, Mapping):
        raise ConfigError(name, "services", "expected what services keep, by their names")
    places, misplaced = _places(document.get("places", []), name, network)
    removed, numbers = frozenset(document.get("removed", [])), _numbers(document, name)
    return Saved(tuple(flows), removed, numbers, places, services), problems + misplaced


def encode(saved: Saved) -> str:
    """The text of the file."""
    document = {
        "version": VERSION,
        "flows": [flow_document(flow) for flow in saved.flows],
        "removed": sorted(saved.removed),
        "numbers": dict(sorted(saved.numbers.flows.items())),
        "paths": {
            flow: [[number, *path] for path, number in sorted(paths.items(), key=lambda item: item[1])]
            for flow, paths in sorted(saved.numbers.paths.items())
        },
        "places": [
            {"client": client, "flow": flow, "node": place.node, "technology": place.technology}
            for (client, flow), confined in sorted(saved.confined.items(), key=str)
            if (place := confined.stays) is not None
        ],
        "services": dict(sorted(saved.services.items())),
    }
    return json.dumps(document, indent=1) + "\n"


def _places(entries: Any, name: str, network: Network) -> tuple[dict[Key, Confined], list[ConfigError]]:
    """Where clients' flows are; places that the network file does not have any more are left out."""
    found: dict[Key, Confined] = {}
    problems = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        match entry:
            case {
                "client": str(client),
                "flow": str() | None as flow,
                "node": str(node),
                "technology": str(technology),
            }:
                place = Attached(node, technology)
                if place in places_of(network, client):
                    found[client, flow] = Confined((place,), (place,))
                    continue
        problems.append(ConfigError(name, f"places[{index}]", "expected a client and a place of the network"))
    return found, problems


def _numbers(document: Mapping[str, Any], name: str) -> Numbers:
    try:
        flows = {str(flow): int(number) for flow, number in document.get("numbers", {}).items()}
        paths = {
            str(flow): {tuple(str(link) for link in links): int(number) for number, *links in entries}
            for flow, entries in document.get("paths", {}).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(name, "numbers", "expected the numbers of flows and paths") from error
    ids = [number for given in paths.values() for number in given.values()]
    if not all(FIRST_FLOW <= number <= LAST_FLOW for number in flows.values()):
        raise ConfigError(name, "numbers", f"expected numbers from {FIRST_FLOW} to {LAST_FLOW}")
    if len(set(flows.values())) != len(flows) or not all(FIRST_PATH <= number <= LAST_PATH for number in ids):
        raise ConfigError(name, "numbers", "expected distinct flow numbers, and path ids of one byte")
    return Numbers(flows, paths)


class Store:
    """The file; without a name nothing is kept."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._written: str | None = None

    def load(self, network: Network) -> tuple[Saved, list[ConfigError]]:
        """What was saved; nothing if there is no file yet."""
        if self._path is None or not self._path.exists():
            return Saved(), []
        return decode(read_text(self._path), str(self._path), network)

    def save(self, saved: Saved) -> None:
        """Write if it differs from what was last written; OSError if it can't."""
        if self._path is None:
            return
        text = encode(saved)
        if text == self._written:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        self._written = text


def declared(network: Network, saved: Saved) -> list[DeclaredFlow]:
    """Flows of the file that were not removed, then those declared over REST."""
    from_file = [DeclaredFlow(flow, Origin.FILE) for flow in network.flows if flow.id not in saved.removed]
    known = {flow.spec.id for flow in from_file}
    return from_file + [DeclaredFlow(flow, Origin.API) for flow in saved.flows if flow.id not in known]


def to_save(
    network: Network,
    flows: Iterable[DeclaredFlow],
    numbers: Numbers,
    confined: Mapping[Key, Confined] | None = None,
    services: Mapping[str, Any] | None = None,
) -> Saved:
    """What :func:`declared` needs to give the same flows again."""
    flows = list(flows)
    present = {flow.spec.id for flow in flows if flow.origin is Origin.FILE}
    return Saved(
        flows=tuple(flow.spec for flow in flows if flow.origin is Origin.API),
        removed=frozenset(flow.id for flow in network.flows if flow.id not in present),
        numbers=numbers,
        confined=confined or {},
        services=services or {},
    )
