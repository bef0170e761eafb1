"""What a follower makes of keys that come, change and go is what it would make of all of them."""

from __future__ import annotations

import json
import random

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.netfile import parse
from hyroads.controller.ha.etcd import Read
from hyroads.controller.ha.standby import Mirror
from hyroads.controller.ha.store import quoted

NETWORK = parse(
    {
        "nodes": {name: {"role": "ap"} for name in "abc"},
        "links": [
            {"id": f"{x}{y}", "from": x, "to": y, "technology": "wifi", "capacity_mbps": 10, "both": True}
            for x, y in ("ab", "bc")
        ],
        "interference": {"rule": "technology"},
    },
    "x",
)


def value_of(key: str, rng: random.Random) -> str:
    """Of a key: mostly one that makes sense."""
    if rng.random() < 0.1:
        return rng.choice(["", "[]", "null", '{"order": "x"}', '{"flow": 1, "number": "x", "paths": [5]}'])
    part, _, name = key.removeprefix("intents/").partition("/")
    if part == "removed":
        return "true"
    if part == "places":
        return json.dumps({"client": name[0], "flow": None, "node": "a", "technology": "wifi"})
    if part == "services":
        return json.dumps({"order": rng.randint(0, 9), "value": {"flow": name, "paths": [rng.randint(1, 3)]}})
    flow = {"id": name, "from": "a", "to": rng.choice("bc"), "weight": rng.randint(1, 3)}
    paths = [[1, "ab"], [2, "ab", "bc"], [True, "ab"]][: rng.randint(0, 3)]
    document = {"order": rng.randint(0, 9), "flow": flow if rng.random() < 0.8 else None}
    return json.dumps({**document, "number": rng.randint(16, 40), "paths": paths})


@examples(60)
@given(st.randoms(use_true_random=False))
def test_a_mirror_that_followed_is_as_one_that_begins(rng: random.Random) -> None:
    names = [f"intents/{part}/{quoted(name)}" for part in ("flows", "removed", "services/routes") for name in "xyz /"]
    names += ["intents/places/c/", "intents/places/d/", "intents/services/routes/="]
    names += ["intents/what", "intents/flows/%78"]
    followed, now = Mirror(), dict[str, str]()
    for revision in range(1, 12):
        before = dict(now)
        for key in rng.sample(names, rng.randint(0, 4)):
            if key in now and rng.random() < 0.5:
                del now[key]
            else:
                now[key] = value_of(key, rng)
        new = {key: text for key, text in now.items() if before.get(key) != text}
        gone = None if before.keys() <= now.keys() else frozenset(now)
        assert followed.take(Read(new, gone, revision, revision)) == (before != now)
        begun = Mirror()
        begun.take(Read(now, frozenset(now), revision, revision))
        assert dict(followed.keys) == dict(begun.keys) == now
        saved, wrong = followed.saved(NETWORK)
        expected, also_wrong = begun.saved(NETWORK)
        assert saved == expected and sorted(wrong) == sorted(also_wrong)
        again, _ = followed.saved(NETWORK)
        assert again == saved and (wrong or again.numbers.paths is saved.numbers.paths)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("intents/flows/x", "{"),
        ("intents/flows/x", '{"order": 0, "flow": 5, "number": null, "paths": []}'),
        ("intents/flows/x", '{"order": 0, "flow": {"from": "a", "to": "b"}, "number": null, "paths": []}'),
        ("intents/flows/x", '{"order": 0, "flow": {"id": "x", "from": "a", "to": "no"}, "number": 16, "paths": []}'),
        ("intents/flows/x%2Fy", '{"order": 0, "flow": null, "number": "x", "paths": []}'),
        ("intents/flows/x", '{"order": "a", "flow": null, "number": 16, "paths": []}'),
        ("intents/flows/x", '{"order": 0, "flow": null, "number": 16, "paths": [[0, "ab"]]}'),
        ("intents/places/c/", '{"client": "c"}'),
        ("intents/removed/x", "1"),
        ("intents/services/routes/x", "[]"),
    ],
    ids=["json", "flow", "no id", "node", "number", "order", "path", "place", "removed", "service"],
)
def test_broken_values_are_named_by_their_keys(key: str, text: str) -> None:
    mirror = Mirror()
    sound = {"intents/removed/y": "true", "intents/places/b/": '{"client": "b", "flow": null}'}
    mirror.take(Read({key: text, **sound}, None, 1, 1))
    saved, wrong = mirror.saved(NETWORK)
    assert saved.removed == {"y"}
    assert set(wrong) == {key, "intents/places/b/"}
