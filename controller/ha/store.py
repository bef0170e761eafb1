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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any
from urllib.parse import quote, unquote

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.errors import HyroadsError

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


@dataclass(frozen=True, slots=True)
class FlowItem:
    """A declared flow. ``of`` is the same object as long as the document is the same."""

    id: str
    of: object
    document: Callable[[], Document]


@dataclass(frozen=True)
class Intents:
    """What is to be saved, see ``runtime.persistence.Saved``."""

    flows: Sequence[FlowItem] = ()
    removed: Iterable[str] = ()
    numbers: Mapping[str, int] | None = None
    paths: Mapping[str, Mapping[PathName, int]] | None = None
    places: Sequence[Document] = ()
    services: Mapping[str, Any] | None = None

    @classmethod
    def of_document(cls, document: Document) -> Intents:
        """Of the checked sections of a state file."""
        flows = [FlowItem(str(one["id"]), one, partial(dict, one)) for one in document.get("flows", ()) if "id" in one]
        given = document.get("paths", {})
        paths = {flow: {tuple(entry[1:]): entry[0] for entry in entries} for flow, entries in given.items()}
        rest = document.get("places", ()), document.get("services", {})
        return cls(flows, document.get("removed", ()), document.get("numbers", {}), paths, *rest)


class KeyEncoder:
    """Makes keys. What has not changed since the last time is not encoded again."""

    def __init__(self) -> None:
        self._orders: dict[str, dict[str, int]] = {}
        """By list: the order of its objects, by key."""
        self._flows: dict[str, tuple[tuple[object, ...], str]] = {}

    def adopt(self, values: Mapping[str, Any]) -> None:
        """Objects that are there keep the order that they have. ``values`` were parsed, by key."""
        self._orders, self._flows = {}, {}
        for key, value in values.items():
            order = value.get("order") if isinstance(value, dict) else None
            if isinstance(order, int):
                self._orders.setdefault(key[: key.rindex("/") + 1], {})[key] = order

    def encode(self, intents: Intents) -> dict[str, str]:
        """Values by key."""
        keys = self._of_flows(intents)
        keys |= {f"{_REMOVED}{quoted(flow)}": "true" for flow in intents.removed}
        places = {f"{_PLACES}{quoted(one['client'])}/{quoted(one['flow'] or '')}": one for one in intents.places}
        keys |= {key: json.dumps(one) for key, one in places.items()}
        for service, value in (intents.services or {}).items():
            keys |= self._of_service(f"{_SERVICES}{quoted(service)}/", value)
        if len(keys) > MAX_KEYS:
            raise StoreError(f"expected at most {MAX_KEYS} objects to save, got {len(keys)}")
        return keys

    def _of_flows(self, intents: Intents) -> dict[str, str]:
        numbers, paths = intents.numbers or {}, intents.paths or {}
        items = {f"{_FLOWS}{quoted(item.id)}": item for item in intents.flows}
        orders = self._ordered(_FLOWS, list(items))
        found: dict[str, tuple[tuple[object, ...], str]] = {}
        names = {f"{_FLOWS}{quoted(flow)}": flow for flow in (*(item.id for item in intents.flows), *numbers)}
        for key, flow in names.items():
            item = items.get(key)
            basis = (item.of if item else None, numbers.get(flow), paths.get(flow), orders.get(key))
            known = self._flows.get(key)
            if known is not None and all(a is b or a == b for a, b in zip(known[0], basis, strict=True)):
                found[key] = known
                continue
            ids = sorted((number, path) for path, number in (paths.get(flow) or {}).items())
            document = {
                "order": basis[3],
                "flow": item.document() if item else None,
                "number": basis[1],
                "paths": [[number, *path] for number, path in ids],
            }
            found[key] = basis, json.dumps(document)
        self._flows = found
        return {key: text for key, (_, text) in found.items()}

    def _of_service(self, prefix: str, value: Any) -> dict[str, str]:
        names = _names(value)
        if names is None:
            return {prefix + _WHOLE: json.dumps({"value": value})}
        items = {prefix + quoted(name): item for name, item in zip(names, value, strict=True)}
        orders = self._ordered(prefix, list(items))
        return {key: json.dumps({"order": orders[key], "value": item}) for key, item in items.items()}

    def _ordered(self, prefix: str, keys: Sequence[str]) -> Mapping[str, int]:
        """The order of each; what was there keeps its own, unless it is in another order now."""
        known = self._orders.get(prefix, {})
        stay = [known[key] for key in keys if key in known]
        new_last = all(key in known for key in keys[: len(stay)])
        if not new_last or any(a >= b for a, b in pairwise(stay)):
            orders = {key: number for number, key in enumerate(keys)}
        else:
            first = (stay[-1] + 1 if stay else 0) - len(stay)
            orders = {key: known.get(key, first + number) for number, key in enumerate(keys)}
        self._orders[prefix] = orders
        return orders


def decode_keys(keys: Keys) -> tuple[dict[str, Any], list[str]]:
    """The sections of a state file, and the keys whose values can't be used."""
    return decode_values({key: loaded(text) for key, text in keys.items()})


def decode_values(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The same of values that were parsed (None: that failed)."""
    found = _Decoded()
    wrong = [key for key in sorted(values) if not found.take(key, values[key])]
    return found.document(), wrong


class _Decoded:
    def __init__(self) -> None:
        self._document: dict[str, Any] = {"removed": [], "numbers": {}, "paths": {}, "places": []}
        self._lists: dict[str, list[tuple[int, str, Any]]] = {}
        self._services: dict[str, Any] = {}

    def take(self, key: str, value: Any) -> bool:
        """A key with its value; False if it is none that can be used."""
        match key.removeprefix(INTENTS).split("/"), value:
            case ["flows", name], {"flow": flow, "number": number, "paths": list(paths)}:
                self._take_flow(key, unquote(name), value, (flow, number, paths))
            case ["removed", name], True:
                self._document["removed"].append(unquote(name))
            case ["places", _, _], dict():
                self._document["places"].append(value)
            case ["services", name, "="], {"value": whole}:
                self._services[unquote(name)] = whole
            case ["services", name, _], {"order": int(order), "value": one}:
                self._lists.setdefault(unquote(name), []).append((order, key, one))
            case _:
                return False
        return True

    def _take_flow(self, key: str, name: str, value: Document, parts: tuple[Any, Any, list[Any]]) -> None:
        flow, number, paths = parts
        order = value.get("order")
        if isinstance(flow, dict):
            self._lists.setdefault(_FLOWS, []).append((order if isinstance(order, int) else 0, key, flow))
        if number is not None:
            self._document["numbers"][name] = number
        if paths:
            self._document["paths"][name] = paths

    def document(self) -> dict[str, Any]:
        """The sections."""
        lists = {
            name: [one for _, _, one in sorted(items, key=itemgetter(0, 1))] for name, items in self._lists.items()
        }
        flows = lists.pop(_FLOWS, [])
        return {"flows": flows, **self._document, "services": {**self._services, **lists}}


def difference(before: Keys, after: Keys) -> list[Operation]:
    """What brings one to the other."""
    gone: list[Operation] = [Delete(key) for key in before if key not in after]
    return [*gone, *(Put(key, value) for key, value in after.items() if before.get(key) != value)]


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
