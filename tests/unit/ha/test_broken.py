"""Broken values in etcd are reported once, each by its key."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from scripted_rest import says, serving

pytest.importorskip("etcd3gw")

from hyroads.controller.ha.broken import MOST_SHOWN, BrokenKeys
from hyroads.controller.ha.etcd import Etcd

PREFIX = "/hyroads/n/"


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def range_of(key: str, value: str) -> dict[str, Any]:
    return {"response_range": {"kvs": [{"key": coded(PREFIX + key), "value": coded(value), "mod_revision": "1"}]}}


def test_a_key_is_reported_when_it_breaks_and_again_only_after_it_was_mended() -> None:
    lines: list[str] = []
    broken = BrokenKeys(lines.append)
    for _ in range(3):
        broken.take("intents", ["intents/flows/x"])
        broken.take("election", [])
    assert len(lines) == 1 and "intents/flows/x" in lines[0]
    broken.take("election", ["members/b"])
    assert len(lines) == 2 and "members/b" in lines[1] and "intents" not in lines[1]
    assert broken.shown() == ["intents/flows/x", "members/b"]
    broken.take("intents", [])
    assert len(lines) == 2 and broken.shown() == ["members/b"]
    broken.take("intents", ["intents/flows/x"])
    assert len(lines) == 3


def test_thousands_of_broken_keys_make_one_short_line() -> None:
    lines: list[str] = []
    broken = BrokenKeys(lines.append)
    broken.take("intents", (f"intents/flows/{number:05}{'x' * 5000}" for number in range(5000)))
    assert len(lines) == 1 and len(lines[0]) < 5000 and lines[0].endswith(" and 4980 more")
    assert len(broken.shown()) == MOST_SHOWN


def test_broken_values_of_the_election_are_named() -> None:
    sound = json.dumps({"name": "a", "boot": "1", "rest": "", "peer": "", "schema": 1})
    members = range_of("members/a", sound)
    members["response_range"]["kvs"] += range_of("members/b", "{")["response_range"]["kvs"]
    parts = [range_of("owner", "[]"), range_of("epoch", "x"), range_of("stamp", "?"), range_of("schema", "1"), members]
    with serving(says(200, {"header": {"revision": "7"}, "succeeded": True, "responses": parts})) as server:
        seen = Etcd([server.url], PREFIX, 1.0).seen()
    assert seen.broken == {"owner", "epoch", "members/b"}
    assert set(seen.members) == {"a"} and seen.epoch == 0
