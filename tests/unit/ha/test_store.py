"""The saved state as etcd's keys: nothing is lost on the way there and back, and transactions are what etcd takes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.mappings import ObjectsById, patched
from hyroads.controller.ha.store import (
    INTENTS,
    MAX_BYTES,
    Compare,
    Delete,
    Intents,
    KeyEncoder,
    Put,
    StoreError,
    decode_keys,
    difference,
    loaded,
    quoted,
    transactions,
)

IDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
PATHS = st.lists(st.lists(IDS, min_size=1, max_size=3), max_size=3, unique_by=tuple)
SERVICE = st.one_of(
    st.lists(IDS, unique=True, max_size=4).map(lambda ids: [{"id": name, "value": 1} for name in ids]),
    st.lists(st.lists(IDS, max_size=2), max_size=3),
    st.dictionaries(IDS, st.integers(), max_size=3),
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    flows = draw(st.lists(IDS, unique=True, max_size=6))
    others = draw(st.lists(IDS.filter(lambda name: name not in flows), unique=True, max_size=3))
    numbers = {name: number for number, name in enumerate(draw(st.permutations([*flows, *others])), start=16)}
    paths = {name: [[n, *path] for n, path in enumerate(draw(PATHS), start=1)] for name in numbers}
    clients = draw(st.lists(st.tuples(IDS, st.none() | IDS), unique=True, max_size=3))
    return {
        "flows": [{"id": name, "from": "a", "to": "b"} for name in flows],
        "removed": draw(st.lists(IDS, unique=True, max_size=3)),
        "numbers": numbers,
        "paths": {name: found for name, found in paths.items() if found},
        "places": [{"client": client, "flow": flow, "node": "n", "technology": "t"} for client, flow in clients],
        "services": draw(st.dictionaries(IDS, SERVICE, max_size=3)),
    }


def normal(document: Mapping[str, Any]) -> dict[str, Any]:
    """What has no order, in one."""
    found = dict(document)
    found["removed"] = sorted(found["removed"])
    found["places"] = sorted(found["places"], key=json.dumps)
    return found


@examples(100)
@given(documents())
def test_a_document_comes_back_as_it_was(document: dict[str, Any]) -> None:
    keys = KeyEncoder().encode(Intents.of_document(document))
    found, wrong = decode_keys(keys)
    assert wrong == [] and normal(found) == normal(document)
    assert all(key.startswith(INTENTS) and len(key.split("/")) in (3, 4) for key in keys)


@examples(100)
@given(documents(), documents(), st.booleans())
def test_a_difference_brings_one_document_to_another(first: dict, second: dict, by_another: bool) -> None:
    encoder = KeyEncoder()
    keys = dict(encoder.encode(Intents.of_document(first)))
    if by_another:
        # A new leader goes on from what is there.
        encoder = KeyEncoder()
        encoder.adopt({key: loaded(text) for key, text in keys.items()})
    apply(keys, difference(keys, encoder.encode(Intents.of_document(second))))
    assert normal(decode_keys(keys)[0]) == normal(second)


def flows(*names: str) -> Intents:
    return Intents.of_document({"flows": [{"id": name} for name in names], "numbers": dict.fromkeys(names, 20)})


def test_one_flow_more_is_one_key_and_has_its_number_in_it() -> None:
    encoder = KeyEncoder()
    before = encoder.encode(flows("a", "c", "b"))
    assert set(before) == {f"intents/flows/{name}" for name in "acb"}
    (put,) = difference(before, encoder.encode(flows("a", "c", "b", "d")))
    assert isinstance(put, Put) and json.loads(put.value)["number"] == 20
    assert difference(before, encoder.encode(flows("a", "b"))) == [Delete("intents/flows/c")]
    # In another order all are numbered anew.
    assert len(difference(before, encoder.encode(flows("b", "a", "c")))) == 3


@examples(60)
@given(st.randoms(use_true_random=False))
def test_keys_that_follow_from_those_before_are_those_of_all_objects(rng: random.Random) -> None:
    """Flows, numbers, paths, routes and services come, change, go and come in another order."""
    encoder, now = KeyEncoder(), Intents(services={"routes": ObjectsById({})})
    keys: dict[str, str] = {}
    for _ in range(12):
        now = changed(now, rng)
        apply(keys, difference(keys, encoder.encode(now)))
        assert keys == encoder.encode(now)
        found, wrong = decode_keys(keys)
        assert wrong == [] and found["numbers"] == {f: n for f, n in now.numbers.items() if f in now.present}
        assert [one["id"] for one in found["flows"]] == list(now.flows)
        assert {one["id"]: one for one in found["flows"]} == now.flows
        assert found["paths"] == {
            flow: [[number, *path] for path, number in paths.items()]
            for flow, paths in now.paths.items()
            if flow in found["numbers"] and paths
        }
        services = {name: list(of.of.values()) if isinstance(of, ObjectsById) else of for name, of in plain(now)}
        assert found["services"] == services
        if rng.random() < 0.2:
            # Another leader goes on from what is there.
            encoder = KeyEncoder()
            encoder.adopt({key: loaded(text) for key, text in keys.items()})


def plain(now: Intents) -> list[tuple[str, Any]]:
    """Services of which there is a key."""
    return [(name, of) for name, of in now.services.items() if not isinstance(of, ObjectsById) or of.of]


def changed(now: Intents, rng: random.Random) -> Intents:
    """Some flows more or less, mostly as patched mappings."""
    names = rng.sample("abcdefghijkl", rng.randint(0, 3))
    gone = {name for name in names if name in now.flows and rng.random() < 0.5}
    new = {name: {"id": name, "weight": rng.randint(1, 3)} for name in names if name not in gone}
    flows = patched(now.flows, new, gone)
    if rng.random() < 0.15:
        flows = dict(rng.sample(list(flows.items()), len(flows)))
    numbers = patched(now.numbers, {name: rng.randint(16, 10_000) for name in [*new, *rng.sample("xyz", 1)]}, gone)
    paths = patched(now.paths, {name: {("l1",): 1, (rng.choice("lm"), "k"): 2} for name in new}, gone)
    objects = patched(now.services["routes"].of, {name: {"flow": name, "paths": [1]} for name in new}, gone)
    routes = ObjectsById(objects)
    others: dict[str, Any] = {"seals": {"secret": rng.randint(0, 2)}, "told": [{"id": n} for n in rng.sample("pqr", 2)]}
    services = {"routes": routes, **{name: of for name, of in others.items() if rng.random() < 0.7}}
    present = now.present if not names else frozenset(name for name in numbers if name != "y" or rng.random() < 0.5)
    return replace(now, flows=flows, numbers=numbers, paths=paths, present=present, services=services)


def apply(keys: dict[str, str], operations: list[Any]) -> None:
    for operation in operations:
        if isinstance(operation, Delete):
            del keys[operation.key]
        else:
            keys[operation.key] = operation.value


def test_a_service_that_becomes_another_kind_leaves_no_key_of_the_old() -> None:
    encoder, listed = KeyEncoder(), ObjectsById({"a": {"id": "a"}, "b": {"id": "b"}})
    kinds: list[dict[str, Any]] = [{"s": listed}, {"s": [{"id": "b"}]}, {"s": {"x": 1}}, {"s": listed}, {}]
    keys: dict[str, str] = {}
    for services in kinds:
        apply(keys, difference(keys, encoder.encode(Intents(services=services))))
        expected = {"s": list(listed.of.values())} if services.get("s") is listed else services
        assert decode_keys(keys)[0]["services"] == expected


def test_what_cannot_be_encoded_is_not_taken_for_known() -> None:
    encoder = KeyEncoder()
    bad = Intents(flows={"a": {"id": "a"}, "b": {"id": object()}}, numbers={"a": 16}, present=frozenset("a"))
    for _ in range(2):
        with pytest.raises(TypeError):
            encoder.encode(bad)
    good = replace(bad, flows={"a": bad.flows["a"]})
    assert set(encoder.encode(good)) == {"intents/flows/a"}


def test_transactions_are_bounded_and_compare_the_epoch() -> None:
    compare, stamp = Compare("/n/epoch", value="7"), Put("/n/stamp", "7")
    many = [Put(f"k{number}", "x") for number in range(300)]
    batches = list(transactions(many, "/n/", compare, stamp))
    assert [len(batch.operations) for batch in batches] == [128, 128, 47]
    assert all(batch.compares == (compare,) and batch.operations[-1] == stamp for batch in batches)
    large = list(transactions([Put(f"k{n}", "x" * 400_000) for n in range(5)], "/n/", compare, stamp))
    assert [len(batch.operations) for batch in large] == [3, 3, 2]
    assert list(transactions([], "/n/", compare, stamp)) == []
    with pytest.raises(StoreError, match=r"/n/k has \d+ bytes"):
        list(transactions([Put("k", "x" * MAX_BYTES)], "/n/", compare, stamp))


@examples(100)
@given(st.dictionaries(st.text(max_size=12).map(lambda text: INTENTS + text), st.text(max_size=12), max_size=5))
def test_values_of_others_are_left_out(keys: dict[str, str]) -> None:
    document, wrong = decode_keys(keys)
    assert set(wrong) <= set(keys) and document["flows"] == []


@given(IDS)
def test_a_name_is_one_part_of_a_key(name: str) -> None:
    assert "/" not in quoted(name) and quoted(name) != "="
