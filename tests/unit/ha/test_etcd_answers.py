"""What etcd answers is checked: whatever makes no sense is as good as no answer, and the next member is asked."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from scripted_rest import hangs_up, says, serving

pytest.importorskip("etcd3gw")

from hyroads.controller.ha.election import Campaign, HandOver, Identity, Member, Restore
from hyroads.controller.ha.etcd import Etcd, EtcdError
from hyroads.controller.ha.store import Compare, Transaction

KEY = "L2h5cm9hZHMvbi9lcG9jaA=="
HEADER = {"revision": "7"}
NOTHING = {"response_range": {"header": HEADER}}
SEEN = {"header": HEADER, "succeeded": True, "responses": [NOTHING] * 5}


def ranged(**kv: Any) -> dict[str, Any]:
    return {**SEEN, "responses": [{"response_range": {"kvs": [kv]}}, *[NOTHING] * 4]}


NONSENSE: list[Any] = [
    None,
    [],
    "x",
    {},
    {"header": HEADER, "succeeded": True},
    {**SEEN, "responses": [NOTHING] * 4},
    {**SEEN, "responses": [{"response_put": {}}] * 5},
    {**SEEN, "responses": [None] * 5},
    {**SEEN, "responses": 5},
    {**SEEN, "header": {}},
    {**SEEN, "header": {"revision": "x"}},
    ranged(value="e30=", mod_revision="1"),
    ranged(key=KEY, value="e30=", mod_revision="one"),
    ranged(key="!!!!!", value="e30=", mod_revision="1"),
    ranged(key=5, mod_revision="1"),
]


@pytest.mark.parametrize("answer", NONSENSE)
def test_an_answer_that_makes_no_sense_is_none(answer: Any) -> None:
    with serving(says(200, answer), says(200, answer)) as server, pytest.raises(EtcdError, match="does not answer"):
        Etcd([server.url], "/hyroads/n/", 1.0).seen()
    with serving(says(200, answer)) as bad, serving(says(200, SEEN)) as good:
        assert Etcd([bad.url, good.url], "/hyroads/n/", 1.0).seen().revision == 7


@pytest.mark.parametrize("act", [hangs_up, says(500, {"error": "no"}), says(200, b"<html>", "text/html")])
def test_a_member_that_fails_is_passed_over_and_not_asked_again(act: Any) -> None:
    with serving(act) as bad, serving(says(200, SEEN), says(200, SEEN)) as good:
        etcd = Etcd([bad.url, good.url], "/hyroads/n/", 1.0)
        assert [etcd.seen().revision for _ in range(2)] == [7, 7]
        assert len(bad.asked) == 1 and len(good.asked) == 2


def kv(name: str, value: str = "{}") -> dict[str, Any]:
    coded = [base64.b64encode(text.encode()).decode() for text in (f"/hyroads/n/intents/{name}", value)]
    return {"key": coded[0], "value": coded[1], "mod_revision": "8"}


def changed(*names: str, last: dict[str, Any]) -> dict[str, Any]:
    new = {"response_range": {"kvs": [kv(name) for name in names], "count": "1"}}
    return {"header": {"revision": "9"}, "succeeded": True, "responses": [NOTHING, new, {"response_range": last}]}


def test_names_are_asked_for_only_if_something_has_gone() -> None:
    known = {f"intents/{name}": "{}" for name in "ab"}
    with serving(says(200, changed("b", "c", last={"count": "3"}))) as server:
        read = Etcd([server.url], "/hyroads/n/", 1.0).changes(7, known)
        assert (read.names, read.values.keys(), read.revision) == (None, {"intents/b", "intents/c"}, 9)
        assert len(server.asked) == 1
    # One came and one went: as many as before are there.
    names = {"kvs": [kv("b"), kv("c")], "count": "2"}
    with serving(
        says(200, changed("c", last={"count": "2"})), says(200, changed("c", last=names)), says(200, SEEN)
    ) as server:
        read = Etcd([server.url], "/hyroads/n/", 1.0).changes(7, known)
        assert (read.names, read.values.keys()) == ({"intents/b", "intents/c"}, {"intents/c"})
        assert len(server.asked) == 2


def test_leadership_changes_only_if_owner_and_epoch_are_as_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Transaction] = []
    etcd, member = Etcd(["http://127.0.0.1:1"], "/hyroads/n/", 1.0), Member(Identity("b", "b1"), 5)
    monkeypatch.setattr(etcd, "_try", lambda transaction: sent.append(transaction) or True)
    etcd.campaign(Campaign(4, 7, 6), member)
    etcd.hand_over(HandOver(member, 4, 7, 6))
    etcd.restore(Restore(4, 6), member)
    epoch = Compare("/hyroads/n/epoch", revision=6)
    assert [set(each.compares) for each in sent] == [
        *[{Compare("/hyroads/n/owner", revision=7), epoch}] * 2,
        {Compare("/hyroads/n/owner", revision=0), epoch},
    ]
