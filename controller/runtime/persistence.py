"""The state file: what survives a restart of the controller, as JSON.

It contains flows declared over REST, file flows that were removed, the numbers given to flows and paths, and what
services save. Whatever the file contains, the controller starts with the valid part of it. When it is written is
:mod:`.saver`'s matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from hyroads.controller.agents.frame_keys import is_secret, new_secret
from hyroads.controller.core.addressing import FIRST_FLOW, FIRST_PATH, LAST_FLOW, LAST_PATH, Numbers, PathName
from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.mappings import differing, in_order_of, ordered
from hyroads.controller.core.netfile_sections import MAX_FLOWS, flow_document, parse_flows
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.network import Place as Attached
from hyroads.controller.files.state import Content, Document, Format, JsonText, StateFile
from hyroads.controller.model.handover import Constrained, Key, places_of
from hyroads.controller.model.state import DeclaredFlow, Origin

BLOCK = 128
"""The texts of so many items are put together once as long as none of them changes."""


@dataclass(frozen=True)
class Saved:
    """The content of the file."""

    flows: tuple[FlowSpec, ...] = ()
    removed: frozenset[str] = frozenset()
    numbers: Numbers = field(default_factory=Numbers)
    constrained: Mapping[Key, Constrained] = field(default_factory=dict)
    """Where clients' flows were when no handover was on its way."""
    services: Mapping[str, Any] = field(default_factory=dict)
    """By service: what its service keeps, as it wrote it."""

    @cached_property
    def by_id(self) -> Mapping[str, FlowSpec]:
        """The flows by their ids."""
        return {flow.id: flow for flow in self.flows}


def parse_flow(document: Mapping[str, Any], network: Network, name: str) -> FlowSpec:
    """One flow as in the network file's section ``flows``; :class:`ConfigError` names the place inside it."""
    problems = Problems(name)
    top = Place({"flows": [dict(document)]}, problems).section(("flows",))
    flows = parse_flows(top, network.nodes, network.link_of)
    errors = [ConfigError(name, e.place.removeprefix("flows[0]").lstrip("."), e.problem) for e in problems.errors]
    if errors:
        raise ConfigError(errors[0].document, errors[0].place, errors[0].problem, errors[1:])
    return flows[0]


def _with_all_sections(document: Document) -> Document:
    """Version 1 -> 2: the first files of version 1 had neither places nor services, and none had a checksum."""
    empty: Document = {"flows": [], "removed": [], "numbers": {}, "paths": {}, "places": [], "services": {}}
    return {**empty, **document}


FORMAT = Format(
    version=2,
    sections={"flows": list, "removed": list, "numbers": dict, "paths": dict, "places": list, "services": dict},
    migrations={1: _with_all_sections},
    checked_from=2,
)


def decode(document: Document, name: str, network: Network) -> tuple[Saved, list[ConfigError]]:
    """The content, and why some of it is left out (the network file may have changed). ``document`` may have any values
    in its sections, and may lack some.
    """
    problems: list[ConfigError] = []

    def left_out(place: str, problem: str) -> None:
        problems.append(ConfigError(name, place, problem))

    flows = _flows(document.get("flows", ()), name, network, problems)
    removed = frozenset(each for each in document.get("removed", ()) if isinstance(each, str))
    if len(removed) < len(document.get("removed", ())):
        left_out("removed", "expected different ids of flows")
    numbers = Numbers(
        dict(_flow_numbers(document.get("numbers", {}), left_out)), dict(_path_ids(document.get("paths", {}), left_out))
    )
    places, misplaced = _places(document.get("places", ()), name, network)
    return Saved(flows, removed, numbers, places, document.get("services", {})), problems + misplaced


@dataclass(eq=False)
class _Block:
    """Keys that follow each other, and the text of all of them if it was put together."""

    keys: dict[str, None]
    text: str | None = None

    def with_text(self, texts: Mapping[str, str]) -> str:
        """The text, put together of those of the keys."""
        if self.text is None:
            self.text = ", ".join(map(texts.__getitem__, self.keys))
        return self.text


class _Texts:
    """The JSON of what a mapping has, in its order. An item that is the very object of the last time is not encoded
    again, and a block of such items is not put together again. ``encode`` makes the text of an item from its key and
    its value. Mappings must not be changed once they were given.
    """

    def __init__(self, encode: Callable[[str, Any], str]) -> None:
        self._encode = encode
        self._items: Mapping[str, Any] = {}
        self._texts: dict[str, str] = {}
        self._order: list[str] = []
        self._blocks: list[_Block] = []
        self._block_of: dict[str, _Block] = {}

    def of(self, items: Mapping[str, Any], begin: str, end: str) -> JsonText:
        """The texts of the items, with commas in between, between these."""
        if items is not self._items:
            changed = differing(self._items, items)
            for key in changed:
                if key in items:
                    self._texts[key] = self._encode(key, items[key])
                else:
                    del self._texts[key]
            self._arrange(items, changed)
            self._items = items
        parts = [part for block in self._blocks for part in (", ", block.with_text(self._texts))]
        return JsonText((begin, *parts[1:], end))

    def _arrange(self, items: Mapping[str, Any], changed: set[str]) -> None:
        """Mostly few keys are gone, or come last; else, and where blocks have become many, all are made anew."""
        are_few = len(changed) <= BLOCK
        if are_few:
            fresh = {key for key in changed if key in items and key not in self._block_of}
            for key in changed - fresh:
                self._touch(key, is_gone=key not in items)
            for key in ordered(fresh, items):
                self._append(key)
        if not are_few or list(items) != self._order or len(self._blocks) > 2 * (1 + len(items) // BLOCK):
            self._order, self._blocks, self._block_of = [], [], {}
            for key in items:
                self._append(key)

    def _touch(self, key: str, *, is_gone: bool) -> None:
        block = self._block_of[key]
        block.text = None
        if is_gone:
            del self._block_of[key], block.keys[key]
            self._order.remove(key)
            if not block.keys:
                self._blocks.remove(block)

    def _append(self, key: str) -> None:
        if not self._blocks or len(self._blocks[-1].keys) >= BLOCK:
            self._blocks.append(_Block({}))
        last = self._block_of[key] = self._blocks[-1]
        last.keys[key], last.text = None, None
        self._order.append(key)


class Encoder:
    """Makes the sections of the file. What has not changed since the last time is not encoded again: with 5,000 flows
    that is nearly all of a file of 2 MB, and the process does nothing else meanwhile.
    """

    def __init__(self) -> None:
        self._flows = _Texts(lambda _, flow: json.dumps(flow_document(flow)))
        self._paths = _Texts(lambda flow, paths: f"{json.dumps(flow)}: {_path_text(paths)}")
        self._numbers, self._routes = _Texts(_member), _Texts(_member)

    def encode(self, saved: Saved) -> Document:
        """The sections of the file."""
        return {
            "flows": self._flows.of(saved.by_id, "[", "]"),
            "removed": sorted(saved.removed),
            "numbers": self._numbers.of(saved.numbers.flows, "{", "}"),
            "paths": self._paths.of(saved.numbers.paths, "{", "}"),
            "places": places_document(saved.constrained),
            "services": JsonText(("{", *self._services(saved.services), "}")),
        }

    def _services(self, services: Mapping[str, Any]) -> Iterator[str]:
        for number, (name, content) in enumerate(sorted(services.items())):
            yield ", " if number else ""
            match content:
                # Of these there are as many as flows.
                case {"network": str(network), "paths": dict(paths), **others} if name == "routes" and not others:
                    yield f'{json.dumps(name)}: {{"network": {json.dumps(network)}, "paths": '
                    yield from self._routes.of(paths, "{", "}}")
                case _:
                    yield _member(name, content)


def _member(name: str, value: object) -> str:
    return f"{json.dumps(name)}: {json.dumps(value)}"


def places_document(constrained: Mapping[Key, Constrained]) -> list[dict[str, str | None]]:
    """Where clients' flows were, when no handover was on its way."""
    return [
        {"client": client, "flow": flow, "node": place.node, "technology": place.technology}
        for (client, flow), each in sorted(constrained.items(), key=str)
        if (place := each.stays) is not None
    ]


def _path_text(paths: Mapping[PathName, int]) -> str:
    return json.dumps([[number, *path] for path, number in sorted(paths.items(), key=itemgetter(1))])


def _flows(entries: Iterable[Any], name: str, network: Network, problems: list[ConfigError]) -> tuple[FlowSpec, ...]:
    """Flows that fit the network; the first of several with one id."""
    found: dict[str, FlowSpec] = {}
    for index, entry in enumerate(entries):
        where = f"flows[{index}]"
        if not isinstance(entry, Mapping):
            problems.append(ConfigError(name, where, "expected a flow"))
            continue
        try:
            flow = parse_flow(entry, network, name)
        except ConfigError as error:
            problems.append(ConfigError(name, f"{where}.{error.place}", error.problem))
            continue
        if flow.id in found or len(found) >= MAX_FLOWS:
            problems.append(ConfigError(name, where, f"expected at most {MAX_FLOWS} flows of different ids"))
        else:
            found[flow.id] = flow
    return tuple(found.values())


def _places(entries: Iterable[Any], name: str, network: Network) -> tuple[dict[Key, Constrained], list[ConfigError]]:
    """Where clients' flows are; places that the network file does not have any more are left out."""
    found: dict[Key, Constrained] = {}
    problems = []
    for index, entry in enumerate(entries):
        match entry:
            case {
                "client": str(client),
                "flow": str() | None as flow,
                "node": str(node),
                "technology": str(technology),
            }:
                place = Attached(node, technology)
                if place in places_of(network, client):
                    found[client, flow] = Constrained((place,), (place,))
                    continue
        problems.append(ConfigError(name, f"places[{index}]", "expected a client and a place of the network"))
    return found, problems


LeftOut = Callable[[str, str], None]


def _flow_numbers(entries: Mapping[str, Any], left_out: LeftOut) -> Iterator[tuple[str, int]]:
    taken: set[int] = set()
    for flow, number in entries.items():
        if type(number) is int and FIRST_FLOW <= number <= LAST_FLOW and number not in taken:
            taken.add(number)
            yield flow, number
        else:
            left_out(f"numbers.{flow}", f"expected a number from {FIRST_FLOW} to {LAST_FLOW} that no other flow has")


def _path_ids(entries: Mapping[str, Any], left_out: LeftOut) -> Iterator[tuple[str, dict[PathName, int]]]:
    for flow, given in entries.items():
        ids: dict[PathName, int] = {}
        for entry in given if isinstance(given, list) else (given,):
            match entry:
                case [int(number), str(), *_] if (
                    type(number) is int
                    and FIRST_PATH <= number <= LAST_PATH
                    and all(isinstance(link, str) for link in entry[1:])
                    and tuple(entry[1:]) not in ids
                    and number not in ids.values()
                ):
                    ids[tuple(entry[1:])] = number
                case _:
                    left_out(f"paths.{flow}", "expected ids of one byte, each with the links of its path")
        yield flow, ids


class Store:
    """The file; without a name nothing is saved."""

    def __init__(self, path: str | None) -> None:
        self.file = None if path is None else StateFile(Path(path), FORMAT)
        self.content = Content()
        """What was found at the start."""
        self._is_read = False
        self._encoder = Encoder()

    def read(self) -> None:
        """Read the file, once."""
        if self.file is not None and not self._is_read:
            self._is_read, self.content = True, self.file.load()

    def label_secret(self) -> str | None:
        """The secret with which labels are hashed: that of the file, or a new one for a network that has no file yet.
        None: labels are those that the network file tells, as before there were secrets.
        """
        if self.file is None:
            return None
        self.read()
        if self.content.document is None:
            return new_secret()
        match self.content.document.get("services"):
            case {"seals": {"secret": str(secret), "labels": True}} if is_secret(secret):
                return secret
        return None

    def load(self, network: Network) -> tuple[Saved, list[ConfigError]]:
        """What was saved, as far as it is sound, and what of it does not fit the network; nothing without a file."""
        self.read()
        if self.file is None or self.content.document is None:
            return Saved(), []
        return decode(self.content.document, str(self.file.path), network)

    def copy_aside(self) -> str | None:
        """Keeps what was read as it is, since the next save leaves some of it out; where, None if that failed."""
        return None if self.file is None else self.file.copy_aside()

    def save(self, saved: Saved) -> None:
        """Write if it differs from what was last written; OSError if it can't."""
        if self.file is not None:
            self.file.save(self._encoder.encode(saved))


def declared(network: Network, saved: Saved, known: Mapping[str, DeclaredFlow] | None = None) -> list[DeclaredFlow]:
    """Flows of the file that were not removed, then those declared over REST. Those that are the same as in ``known``
    are the very objects of there.
    """
    from_file = [declared_flow(flow, Origin.FILE, known) for flow in network.flows if flow.id not in saved.removed]
    there = {flow.spec.id for flow in from_file}
    return from_file + [declared_flow(flow, Origin.API, known) for flow in saved.flows if flow.id not in there]


def declared_flow(flow: FlowSpec, origin: Origin, known: Mapping[str, DeclaredFlow] | None) -> DeclaredFlow:
    """A declared flow: that of ``known`` if it is the same."""
    last = known.get(flow.id) if known is not None else None
    return last if last is not None and last.spec is flow and last.origin is origin else DeclaredFlow(flow, origin)


class ToSave:
    """Makes what is to be saved: what :func:`declared` needs to give the same flows again. Flows that are the very
    objects of the last time are not looked at again.
    """

    def __init__(self) -> None:
        self._flows: Mapping[str, DeclaredFlow] = {}
        self._network: Network | None = None
        self._specs: Mapping[str, FlowSpec] = {}
        """Of flows that were declared over REST."""
        self._in_file = self._removed = frozenset[str]()

    def of(
        self,
        network: Network,
        flows: Mapping[str, DeclaredFlow],
        numbers: Numbers,
        constrained: Mapping[Key, Constrained] | None = None,
        services: Mapping[str, Any] | None = None,
    ) -> Saved:
        """The content of the file for these flows, which are not changed any more."""
        changed = differing(self._flows, flows)
        known = {flow: flows[flow] for flow in changed if flow in flows}
        specs = {flow: each.spec for flow, each in known.items() if each.origin is Origin.API}
        self._specs = in_order_of(flows, self._specs, changed, specs)
        if network is not self._network:
            self._network, self._in_file, changed = network, frozenset(flow.id for flow in network.flows), set(flows)
            self._removed = self._in_file
        present = {flow for flow in changed & flows.keys() if flows[flow].origin is Origin.FILE}
        if changed:
            self._removed = (self._removed | (changed & self._in_file)) - present
        self._flows = flows
        saved = Saved(tuple(self._specs.values()), self._removed, numbers, constrained or {}, services or {})
        saved.__dict__["by_id"] = self._specs
        return saved


def to_save(
    network: Network,
    flows: Iterable[DeclaredFlow],
    numbers: Numbers,
    constrained: Mapping[Key, Constrained] | None = None,
    services: Mapping[str, Any] | None = None,
) -> Saved:
    """As :class:`ToSave` for flows of which none is known."""
    return ToSave().of(network, {flow.spec.id: flow for flow in flows}, numbers, constrained, services)
