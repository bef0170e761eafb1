"""The saved state as etcd's keys: one key an object, and the transactions that bring one state to another. Pure.

Below ``intents/`` of the network's prefix::

    flows/ID              what was declared over REST, the flow's number and the ids of its paths, in one value, so that
                          a number is never there without its flow
    removed/ID            a flow of the network file that was removed
    places/CLIENT/FLOW    where a client's flow was
    services/NAME/ID      what a service saves; a value that is no list of objects with ids of their own is one key

Order counts where people see it: an object keeps the number that it was given when it came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any
from urllib.parse import quote, unquote

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.mappings import ObjectsById, differing, ordered, patched

SCHEMA = 1
"""Of these keys. An instance reads and writes the schema before, too, until an upgrade is finished."""
MAX_OPERATIONS, MAX_BYTES = 127, 1 << 20
"""Of a transaction: etcd takes 128 operations and 1.5 MiB, of which one is the stamp and some are wrapping."""
MAX_KEYS = 500_000
INTENTS = "intents/"
_FLOWS, _REMOVED, _PLACES, _SERVICES = (f"{INTENTS}{part}/" for part in ("flows", "removed", "places", "services"))
_WHOLE = "="
"""In place of an id: the value of a service as it is. No quoted id has this character."""
_IDS = ("id", "name", "flow", "client")

Document = Mapping[str, Any]
Keys = Mapping[str, str]
"""Values (JSON) by key, without the prefix of the network."""


class StoreError(HyroadsError):
    """What is to be saved does not fit into etcd."""


@dataclass(frozen=True, slots=True)
class Put:
    """A key gets a value, under a lease if that is not 0."""

    key: str
    value: str
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """A key goes."""

    key: str


Operation = Put | Delete


@dataclass(frozen=True, slots=True)
class Compare:
    """A key has this value, or (``revision``) was changed last at a revision (0: it is not there)."""

    key: str
    value: str | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """All operations, if all comparisons hold."""

    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Intents:
    """What is to be saved, see ``runtime.persistence.Saved``. ``flows`` are by id, and ``document`` makes a document of
    one; of flows that are not ``present`` no number is saved. A service's :class:`ObjectsById` is saved as its list.

    Mappings must not be changed once they were given: what differs is found by the objects in them.
    """

    flows: Mapping[str, Any] = field(default_factory=dict)
    document: Callable[[Any], Document] = dict
    removed: Iterable[str] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    paths: Mapping[str, Mapping[PathName, int]] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    places: Sequence[Document] = ()
    services: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_document(cls, document: Document) -> Intents:
        """Of the checked sections of a state file."""
        flows = {str(one["id"]): one for one in document.get("flows", ()) if "id" in one}
        given, numbers = document.get("paths", {}), document.get("numbers", {})
        paths = {flow: {tuple(entry[1:]): entry[0] for entry in entries} for flow, entries in given.items()}
        rest = document.get("places", ()), document.get("services", {})
        return cls(flows, dict, document.get("removed", ()), numbers, paths, frozenset(numbers), *rest)


class _Orders:
    """The order of objects, by id: each keeps the number that it was given when it came, unless their order differs."""

    def __init__(self, known: dict[str, int] | None = None) -> None:
        self._known = known or {}
        self._names: list[str] = []
        """In this order."""

    def __getitem__(self, name: str) -> int | None:
        return self._known.get(name)

    def take(self, names: Mapping[str, object], changed: Collection[str]) -> set[str]:
        """These are there from now on; ``changed`` are all that came or went, and perhaps others. Who has another
        number than before.
        """
        now = list(names)
        new = ordered({name for name in changed if name in names and name not in self._known}, now)
        gone = {name for name in changed if name in self._known and name not in names}
        stay = [name for name in self._names if name not in gone] if gone else self._names
        if len(stay) + len(new) != len(now) or now[: len(stay)] != stay:
            return self._all_anew(now)
        for name in gone:
            del self._known[name]
        first = self._known[stay[-1]] + 1 if stay else 0
        self._known |= {name: number for number, name in enumerate(new, start=first)}
        self._names = now
        return set(new)

    def _all_anew(self, now: list[str]) -> set[str]:
        known, self._names = self._known, now
        stay = [known[name] for name in now if name in known]
        new_last = all(name in known for name in now[: len(stay)])
        if not new_last or any(a >= b for a, b in pairwise(stay)):
            self._known = {name: number for number, name in enumerate(now)}
        else:
            first = (stay[-1] + 1 if stay else 0) - len(stay)
            self._known = {name: known.get(name, first + number) for number, name in enumerate(now)}
        return {name for name, number in self._known.items() if known.get(name) != number}


class _List:
    """The keys of a list of objects, by their ids."""

    def __init__(self, orders: _Orders) -> None:
        self._orders = orders
        self._items: Mapping[str, Any] = {}

    def changes(self, prefix: str, items: Mapping[str, Any]) -> dict[str, str | None]:
        """The keys that have other values than the last time, None where there is none any more."""
        changed = differing(self._items, items)
        changed |= self._orders.take(items, changed)
        self._items = items
        return {
            prefix + quoted(name): _object_text(self._orders[name], items[name]) if name in items else None
            for name in sorted(changed)
        }


class KeyEncoder:
    """Makes keys. What has not changed since the last time is not encoded again, and of mappings that were made of
    those of the last time (``core.mappings``) only what they changed is looked at.
    """

    def __init__(self) -> None:
        self.adopt({})

    def adopt(self, values: Mapping[str, Any]) -> None:
        """Objects that are there keep the order that they have. ``values`` were parsed, by key."""
        orders: dict[str, dict[str, int]] = {}
        for key, value in values.items():
            order = value.get("order") if isinstance(value, dict) else None
            if isinstance(order, int):
                prefix, _, name = key.rpartition("/")
                orders.setdefault(f"{prefix}/", {})[unquote(name)] = order
        self._orders = {prefix: _Orders(known) for prefix, known in orders.items()}
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._keys: Keys = {}
        self._of_flows = Intents()
        self._lists: dict[str, _List] = {}
        self._others: Keys = {}
        """What was not made of mappings."""

    def encode(self, intents: Intents) -> Keys:
        """Values by key, in no order; a mapping that must not be changed. StoreError if there are too many."""
        try:
            changes = self._flows_changes(intents)
            others = {f"{_REMOVED}{quoted(flow)}": "true" for flow in intents.removed}
            places = {f"{_PLACES}{quoted(one['client'])}/{quoted(one['flow'] or '')}": one for one in intents.places}
            others |= {key: json.dumps(one) for key, one in places.items()}
            lists: set[str] = set()
            for service, value in intents.services.items():
                prefix = f"{_SERVICES}{quoted(service)}/"
                if isinstance(value, ObjectsById):
                    lists.add(prefix)
                    listed = self._lists.setdefault(prefix, _List(self._ordered_by(prefix)))
                    changes |= listed.changes(prefix, value.of)
                else:
                    others |= self._of_service(prefix, value)
            self._finish(changes, others, lists)
        except BaseException:
            # What was looked at already counts as known.
            self._begin_anew()
            raise
        if len(self._keys) > MAX_KEYS:
            raise StoreError(f"expected at most {MAX_KEYS} objects to save, got {len(self._keys)}")
        return self._keys

    def _finish(self, changes: dict[str, str | None], others: Keys, lists: set[str]) -> None:
        for prefix in self._lists.keys() - lists:
            changes |= self._lists.pop(prefix).changes(prefix, {})
        changes |= dict.fromkeys(self._others.keys() - others.keys() - changes.keys())
        changes |= {key: text for key, text in others.items() if self._others.get(key) != text}
        there = {key: text for key, text in changes.items() if text is not None}
        self._keys = patched(self._keys, there, changes.keys() - there.keys())
        self._others = others

    def _ordered_by(self, prefix: str) -> _Orders:
        return self._orders.setdefault(prefix, _Orders())

    def _flows_changes(self, intents: Intents) -> dict[str, str | None]:
        """The keys of flows that have other values than the last time, None where there is none any more."""
        last, self._of_flows, orders = self._of_flows, intents, self._ordered_by(_FLOWS)
        changed = differing(last.flows, intents.flows)
        changed |= orders.take(intents.flows, changed)
        changed |= differing(last.numbers, intents.numbers) | differing(last.paths, intents.paths)
        if intents.present is not last.present:
            changed |= intents.present ^ last.present
        found: dict[str, str | None] = {}
        for flow in sorted(changed):
            number = intents.numbers.get(flow) if flow in intents.present else None
            is_there = flow in intents.flows
            found[f"{_FLOWS}{quoted(flow)}"] = (
                self._flow_text(intents, flow, number) if is_there or number is not None else None
            )
        return found

    def _flow_text(self, intents: Intents, flow: str, number: int | None) -> str:
        is_there, paths = flow in intents.flows, intents.paths.get(flow, {}) if number is not None else {}
        document = {
            "order": self._ordered_by(_FLOWS)[flow] if is_there else None,
            "flow": intents.document(intents.flows[flow]) if is_there else None,
            "number": number,
            "paths": [[of, *path] for of, path in sorted((of, path) for path, of in paths.items())],
        }
        return json.dumps(document)

    def _of_service(self, prefix: str, value: Any) -> dict[str, str]:
        names = _names(value)
        if names is None:
            return {prefix + _WHOLE: json.dumps({"value": value})}
        items, orders = dict(zip(names, value, strict=True)), self._ordered_by(prefix)
        orders.take(items, items)
        return {prefix + quoted(name): _object_text(orders[name], of) for name, of in items.items()}


def _object_text(order: int | None, value: Any) -> str:
    return json.dumps({"order": order, "value": value})


def decode_keys(keys: Keys) -> tuple[dict[str, Any], list[str]]:
    """The sections of a state file, and the keys whose values can't be used."""
    decoder = Decoder()
    for key, text in keys.items():
        decoder.take(key, loaded(text))
    return decoder.document(), decoder.wrong


class Decoder:
    """The sections of a state file, of keys that come, change and go."""

    def __init__(self) -> None:
        self._removed: dict[str, str] = {}
        self._numbers: dict[str, Any] = {}
        self._paths: dict[str, Any] = {}
        self._places: dict[str, Any] = {}
        self._lists: dict[str, dict[str, tuple[int, str, Any]]] = {}
        self._services: dict[str, Any] = {}
        self._wrong: set[str] = set()

    @property
    def wrong(self) -> list[str]:
        """The keys whose values can't be used."""
        return sorted(self._wrong)

    def take(self, key: str, value: Any) -> None:
        """A key has a value, or another one than before; it was parsed (None: that failed)."""
        self.drop(key)
        match _parts(key), value:
            case ["flows", name], {"flow": flow, "number": number, "paths": list(paths)}:
                self._take_flow(key, unquote(name), value, (flow, number, paths))
            case ["removed", name], True:
                self._removed[key] = unquote(name)
            case ["places", _, _], dict():
                self._places[key] = value
            case ["services", name, "="], {"value": whole}:
                self._services[unquote(name)] = whole
            case ["services", name, _], {"order": int(order), "value": one}:
                self._lists.setdefault(unquote(name), {})[key] = order, key, one
            case _:
                self._wrong.add(key)

    def _take_flow(self, key: str, name: str, value: Document, parts: tuple[Any, Any, list[Any]]) -> None:
        flow, number, paths = parts
        order = value.get("order")
        is_sound = isinstance(order, int | None) and (
            flow is None or (isinstance(flow, dict) and flow.get("id") == name)
        )
        if not is_sound:
            self._wrong.add(key)
        if isinstance(flow, dict):
            self._lists.setdefault(_FLOWS, {})[key] = order if isinstance(order, int) else 0, key, flow
        if number is not None:
            self._numbers[name] = number
        if paths:
            self._paths[name] = paths

    def drop(self, key: str) -> None:
        """A key is not there any more, if it was."""
        self._wrong.discard(key)
        match _parts(key):
            case ["flows", name]:
                self._drop_of_list(_FLOWS, key)
                self._numbers.pop(unquote(name), None)
                self._paths.pop(unquote(name), None)
            case ["removed", _]:
                self._removed.pop(key, None)
            case ["places", _, _]:
                self._places.pop(key, None)
            case ["services", name, "="]:
                self._services.pop(unquote(name), None)
            case ["services", name, _]:
                self._drop_of_list(unquote(name), key)

    def _drop_of_list(self, name: str, key: str) -> None:
        objects = self._lists.get(name)
        if objects is not None and objects.pop(key, None) is not None and not objects:
            del self._lists[name]

    @property
    def place_keys(self) -> list[str]:
        """The keys of the places of the document, in its order."""
        return sorted(self._places)

    def document(self) -> dict[str, Any]:
        """The sections."""
        lists = {
            name: [one for _, _, one in sorted(objects.values(), key=itemgetter(0, 1))]
            for name, objects in self._lists.items()
        }
        return {
            "flows": lists.pop(_FLOWS, []),
            "removed": [name for _, name in sorted(self._removed.items())],
            # Of several flows with one number the first has it.
            "numbers": dict(sorted(self._numbers.items())),
            "paths": dict(self._paths),
            "places": [self._places[key] for key in self.place_keys],
            "services": {**self._services, **lists},
        }


def difference(before: Keys, after: Keys) -> list[Operation]:
    """What brings one to the other."""
    changed = sorted(key for key in differing(before, after) if before.get(key) != after.get(key))
    gone: list[Operation] = [Delete(key) for key in changed if key not in after]
    return [*gone, *(Put(key, after[key]) for key in changed if key in after)]


def transactions(operations: Iterable[Operation], prefix: str, compare: Compare, stamp: Put) -> Iterator[Transaction]:
    """As few as etcd takes, each with the comparison and the stamp; keys get the prefix. StoreError."""
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        one = _with_prefix(operation, prefix)
        bytes_ = len(one.key) + (len(one.value.encode()) if isinstance(one, Put) else 0)
        if bytes_ > MAX_BYTES:
            raise StoreError(f"{one.key} has {bytes_} bytes, more than the {MAX_BYTES} that etcd takes")
        if batch and (len(batch) >= MAX_OPERATIONS or size + bytes_ > MAX_BYTES):
            yield Transaction((compare,), (*batch, stamp))
            batch, size = [], 0
        batch.append(one)
        size += bytes_
    if batch:
        yield Transaction((compare,), (*batch, stamp))


def _with_prefix(operation: Operation, prefix: str) -> Operation:
    key = prefix + operation.key
    return Delete(key) if isinstance(operation, Delete) else Put(key, operation.value, operation.lease)


def _parts(key: str) -> list[str]:
    """Of a key below ``intents/``; none if it is not ours: of several keys that mean one name one alone is."""
    parts = key.removeprefix(INTENTS).split("/")
    return parts if all(part == _WHOLE or quoted(unquote(part)) == part for part in parts) else []


def quoted(name: str) -> str:
    """A part of a key: any text without slashes."""
    return quote(name, safe=":")


def _names(value: Any) -> list[str] | None:
    """The ids of the objects of a list, each once; None if it is something else."""
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return None
    for member in _IDS:
        names = [one.get(member) for one in value]
        if all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names):
            return [str(name) for name in names]
    return None


def loaded(text: str) -> Any:
    """JSON; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
