"""Mappings made of others: what they contain, and what differs."""

from __future__ import annotations

import gc
import random

from hyroads.controller.core.mappings import differing, ordered, patched


def test_what_differs_is_found_whether_it_was_noted_or_not() -> None:
    rng = random.Random(1)
    made = [patched({key: object() for key in range(40)}, {99: object()})]
    for _ in range(120):
        base = made[-1] if rng.random() < 0.9 else rng.choice(made)
        keys = rng.sample(range(60), rng.randint(0, 5))
        new = {key: base.get(key, 0) if rng.random() < 0.2 else object() for key in keys}
        gone = rng.sample(range(60), rng.randint(0, 3))
        after = patched(base, new, gone)
        assert after == {key: value for key, value in base.items() if key not in gone} | new
        made.append(after)
    for _ in range(600):
        before, after = rng.choice(made), rng.choice(made)
        assert differing(before, after) == differing(dict(before), dict(after))


def test_a_mapping_with_the_same_values_is_the_same() -> None:
    value = object()
    base = patched({}, {"a": value})
    assert patched(base, {"a": value}, ["b"]) is base
    assert list(patched(base, {"b": 1, "a": 2})) == ["a", "b"]


def test_many_changes_are_found_as_well() -> None:
    first = patched({}, {"a": 0})
    last = first
    for step in range(100):
        last = patched(last, {f"k{step}": step})
    assert differing(first, last) == {f"k{step}" for step in range(100)}
    assert differing(last, patched(last, {f"m{i}": i for i in range(2000)})) == {f"m{i}" for i in range(2000)}


def test_the_collector_of_garbage_leaves_them_out() -> None:
    """It would walk through thousands of values for each change of one."""
    base = {key: [key] for key in range(10)}
    made = patched(base, {3: [4]})
    assert gc.is_tracked(base) and not gc.is_tracked(made)
    gc.collect()
    assert made[3] == [4] and made[4] is base[4] and not gc.is_tracked(patched(made, {5: []}))


def test_some_keys_are_in_the_order_of_all() -> None:
    assert list(ordered({"c", "a"}, dict.fromkeys("abc"))) == ["a", "c"]
    assert list(ordered({"b"}, dict.fromkeys("abc"))) == ["b"] and not ordered(set(), dict.fromkeys("abc"))
