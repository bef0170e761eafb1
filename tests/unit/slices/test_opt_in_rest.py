"""Users join slices and leave them over REST and by commands: who may what, what is told to whom, what survives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually
from slicer_lab import SlicerLab, slicer_lab

from hyroads.controller.cli.main import main
from hyroads.rest.client import ApiError, Client
from hyroads.slices.core.model import token_hash

ADMIN, OWNER, ANN, BOB = (f"the token of {name} 0123456789" for name in ("ops", "owner", "ann", "bob"))
TOKENS = {"ops": {"token": ADMIN}, "wall": {"token": "the token of the wall", "role": "viewer"}}
USERS = {
    "ann": {"token_sha256": token_hash(ANN), "addresses": ["10.0.0.1"], "macs": ["02:00:00:00:00:01"]},
    "bob": {"token_sha256": token_hash(BOB), "addresses": ["10.0.0.2"]},
}
LAB: dict[str, Any] = {"name": "lab", "owner_token_sha256": token_hash(OWNER), "opt_in": {}}
HIDDEN: dict[str, Any] = {
    "name": "hidden",
    "opt_in": {"users": ["bob"]},
    "flowspace": [{"match": {"ipv4_dst": "10.9.0.0/16"}, "priority": 200}],
}
SLICES = [LAB, HIDDEN]
OTHERS = {
    "match": {
        "eth_src": "02:00:00:00:00:63",
        "eth_dst": "02:00:00:00:00:64",
        "ipv4_src": "10.0.0.2",
        "ipv4_dst": "10.0.0.3",
    }
}
"""Packets of somebody else."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SlicerLab]:
    with slicer_lab(tmp_path, SLICES, users=USERS, api_tokens=TOKENS) as found:
        yield found


def refused(client: Client, method: str, path: str, document: Any = None) -> tuple[int, str]:
    with pytest.raises(ApiError) as error:
        client.request(method, path, document)
    return error.value.status, str(error.value)


def members(client: Client) -> list[tuple[str, str]]:
    return [(each["slice"], each["user"]) for each in client.listed("/opt-ins", "opt_ins") if each["joined"]]


def test_a_user_joins_with_its_own_traffic_and_takes_it_back(lab: SlicerLab) -> None:
    switch = lab.switch(1)
    before = switch.entries
    with lab.client(ANN) as ann:
        [offered] = ann.listed("/opt-ins", "opt_ins")
        assert offered == {"slice": "lab", "user": "ann", "joined": False, "open": True, "takes": [{}], "match": []}
        assert ann.change("PUT", "/opt-ins/lab/me", {}) == {"added": [], "changed": ["lab"], "removed": []}
        assert ann.change("PUT", "/opt-ins/lab/ann", {})["changed"] == [], "the same again changes nothing"
        mine = ann.get("/opt-ins/lab/me")
        assert mine["joined"] and {"eth_type": "0x0800", "ipv4_src": "10.0.0.1"} in mine["match"]
        assert {value for each in mine["match"] for name, value in each.items() if name != "eth_type"} == {
            "10.0.0.1", "02:00:00:00:00:01"}  # fmt: skip
        assert switch.entries == before + 6, "a change is answered when switches have confirmed it"
        assert ann.change("DELETE", "/opt-ins/lab/me")["changed"] == ["lab"]
        assert refused(ann, "DELETE", "/opt-ins/lab/me")[0] == 404
        assert not ann.get("/opt-ins/lab/me")["joined"]


@pytest.mark.parametrize(
    ("method", "path", "document", "code", "words"),
    [
        ("PUT", "/opt-ins/lab/bob", {}, 403, "your own name"),
        ("DELETE", "/opt-ins/lab/bob", None, 403, "your own name"),
        ("GET", "/opt-ins/lab/bob", None, 403, "your own name"),
        ("PUT", "/opt-ins/hidden/me", {}, 404, "no slice 'hidden' that is open for you"),
        ("PUT", "/opt-ins/nothing/me", {}, 404, "no slice 'nothing' that is open for you"),
        ("PUT", "/opt-ins/production/me", {}, 404, "open for you"),
        ("PUT", "/opt-ins/lab/me", OTHERS, 409, "nothing of"),
        ("PUT", "/opt-ins/lab/me", {"match": {"in_port": 3}}, 422, "in_port"),
        ("PUT", "/opt-ins/lab/me", {"match": {"tcp_dst": "1-65535", "udp_dst": 7}}, 422, "match"),
        ("PUT", "/opt-ins/lab/me", {"match": "all"}, 422, "match"),
        ("PUT", "/opt-ins/lab/me", {"match": []}, 422, "match"),
        ("PUT", "/opt-ins/lab/me", {"addresses": ["10.0.0.2"]}, 422, "Unknown field"),
        ("PUT", "/opt-ins/lab/me", {"priority": 60000}, 422, "Unknown field"),
        ("PUT", "/slices/lab", {}, 403, "may not do this"),
        ("PUT", "/slices", {"slices": []}, 403, "may not do this"),
        ("POST", "/slices/lab/flowspace", {}, 403, "may not do this"),
        ("DELETE", "/slices/lab", None, 403, "may not do this"),
        ("POST", "/reload", None, 403, "may not do this"),
        ("GET", "/slices/lab", None, 403, "another's"),
        ("GET", "/slices/lab/flowspace", None, 403, "another's"),
        ("GET", "/switches/0x1", None, 404, "no switch"),
    ],
)
def test_what_a_user_may_not(lab: SlicerLab, method: str, path: str, document: Any, code: int, words: str) -> None:
    before = lab.server.slicer.model
    with lab.client(ANN) as ann:
        status, text = refused(ann, method, path, document)
        assert status == code and words in text
        assert ann.get("/flowspace")["flowspace"] == [] and ann.get("/switches")["switches"] == []
        assert list(ann.listed("/slices", "slices")) == [{"name": "lab"}]
    assert lab.server.slicer.model is before


def test_who_else_may_what(lab: SlicerLab) -> None:
    with lab.operator() as operator, lab.client(OWNER) as owner, lab.client(ANN) as ann, lab.client(BOB) as bob:
        ann.change("PUT", "/opt-ins/lab/me", {})
        assert members(owner) == members(operator) == [("lab", "ann")] and members(bob) == []
        assert "only the user" in refused(owner, "PUT", "/opt-ins/lab/bob", {})[1]
        assert refused(owner, "DELETE", "/opt-ins/hidden/bob")[0] == 403
        assert operator.change("PUT", "/opt-ins/hidden/bob", {})["changed"] == ["hidden"]
        assert owner.change("DELETE", "/opt-ins/lab/ann")["changed"] == ["lab"]
        assert owner.change("PATCH", "/slices/lab", {"opt_in": {"open": False}})["changed"] == ["lab"]
        assert "is not open" in refused(ann, "PUT", "/opt-ins/lab/me", {})[1]
        assert "not opt_in" in refused(owner, "PATCH", "/slices/lab", {"opt_in": {"priority": 300}})[1]
        assert refused(operator, "PUT", "/opt-ins/lab/nobody", {})[0] == 404
        with lab.client("the token of the wall") as viewer:
            assert members(viewer) == [("hidden", "bob")] and refused(viewer, "DELETE", "/opt-ins/hidden/bob")[0] == 403


def test_whose_the_traffic_is_already_only_the_operator_is_told(lab: SlicerLab) -> None:
    with lab.operator() as operator, lab.client(ANN) as ann:
        operator.change("PATCH", "/slices/hidden", {"flowspace": [{"match": {"ipv4_src": "10.0.0.1"}, "priority": 53}]})
        status, text = refused(ann, "PUT", "/opt-ins/lab/me", {})
        assert status == 409 and "another slice's already" in text and "hidden" not in text
        assert "hidden" in refused(operator, "PUT", "/opt-ins/lab/ann", {})[1]


def test_what_operators_declare_goes_before_users(lab: SlicerLab) -> None:
    with lab.operator() as operator, lab.client(ANN) as ann, lab.client(BOB) as bob:
        ann.change("PUT", "/opt-ins/lab/me", {}), bob.change("PUT", "/opt-ins/lab/me", {})
        rule = {"match": {"ipv4_src": "10.0.0.2"}, "priority": 53}
        assert operator.change("PUT", "/slices/new", {"flowspace": [rule]}) == {
            "added": ["new"], "changed": ["lab"], "removed": []}  # fmt: skip
        assert members(operator) == [("lab", "ann")]
        gone = [e.document for e in bob.events(follow=False) if e.kind == "opt_in.removed"]
        assert [(e["slice"], e["user"]) for e in gone] == [("lab", "bob")]


def test_events_tell_users_what_is_theirs(lab: SlicerLab) -> None:
    lab.switch(1)
    with lab.operator() as operator, lab.client(OWNER) as owner, lab.client(ANN) as ann, lab.client(BOB) as bob:
        ann.change("PUT", "/opt-ins/lab/me", {})
        ann.change("PUT", "/opt-ins/lab/me", {"match": {"tcp_dst": 80}})
        bob.change("PUT", "/opt-ins/lab/me", {})
        ann.change("DELETE", "/opt-ins/lab/me")
        assert refused(ann, "PUT", "/opt-ins/hidden/me", {})[0] == 404

        def heard(client: Client) -> list[str]:
            return [e.kind for e in client.events(follow=False) if e.document.get("user") == "ann"]

        mine = ["opt_in.added", "opt_in.changed", "opt_in.removed"]
        assert heard(ann) == heard(owner) == heard(operator) == mine and heard(bob) == []
        assert {e.kind for e in bob.events(follow=False)} == {"opt_in.added"}
        operator.change("DELETE", "/slices/lab")
        eventually(lambda: "opt_in.removed" in {e.kind for e in bob.events(follow=False)})


def test_users_survive_restarts_and_reloads_as_long_as_they_may(tmp_path: Path) -> None:
    with slicer_lab(tmp_path, SLICES, users=USERS) as lab, lab.client(ANN) as ann, lab.client(BOB) as bob:
        ann.change("PUT", "/opt-ins/lab/me", {"match": {"tcp_dst": 80}})
        bob.change("PUT", "/opt-ins/lab/me", {})
        before = ann.get("/opt-ins/lab/me")
    with slicer_lab(tmp_path, SLICES, users=USERS) as lab, lab.client(ANN) as ann, lab.operator() as operator:
        assert ann.get("/opt-ins/lab/me") == before
        assert operator.change("POST", "/reload") == {"added": [], "changed": [], "removed": []}
        assert members(operator) == [("lab", "ann"), ("lab", "bob")]
        document = json.loads(lab.config.read_text())
        moved = {**USERS["ann"], "addresses": ["10.0.0.7"]}
        lab.config.write_text(json.dumps({**document, "users": {"ann": moved}}))
        assert operator.change("POST", "/reload")["changed"] == ["lab"]
        assert members(operator) == [("lab", "ann")]
        assert {"eth_type": "0x0800", "ip_proto": "6", "ipv4_src": "10.0.0.7", "tcp_dst": "80"} in ann.get(
            "/opt-ins/lab/me")["match"]  # fmt: skip
        with lab.client(BOB) as bob:
            assert refused(bob, "GET", "/opt-ins")[0] == 401, "who is no user any more has no token"
    with slicer_lab(tmp_path, [{"name": "lab"}], users=USERS) as lab, lab.operator() as operator:
        assert members(operator) == []
    state = json.loads((tmp_path / "state").read_text())
    assert state["version"] == 3 and state["opt_ins"] == []


def test_a_user_does_not_come_and_go_all_the_time(tmp_path: Path) -> None:
    with slicer_lab(tmp_path, SLICES, users=USERS) as lab, lab.operator() as operator:
        ann = lab.client(ANN, tries=1)
        with pytest.raises(ApiError, match="expected a pause") as error:
            for _ in range(40):
                ann.change("PUT", "/opt-ins/lab/me", {})
        assert error.value.status == 429
        for _ in range(20):
            operator.change("PUT", "/opt-ins/lab/ann", {})


def test_commands(lab: SlicerLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text(f"{ANN}\n")
    token.chmod(0o600)

    def ask(*words: str) -> int:
        return main(["slices", "--url", lab.url, "--token-file", str(token), *words])

    assert ask("opt-in", "lab", "--match", "tcp_dst=80") == 0
    assert capsys.readouterr().out == "changed lab\n"
    assert ask("list-opt-ins") == 0
    heads, row = capsys.readouterr().out.splitlines()
    assert heads.split() == ["slice", "user", "joined", "open", "packets"]
    assert row.split()[:4] == ["lab", "ann", "yes", "yes"] and "tcp_dst=80" in row and row.endswith("more)")
    assert ask("opt-out", "lab") == 0 and ask("opt-out", "lab") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert main(["slices", "--socket", lab.socket.removeprefix("unix:"), "opt-in", "lab", "--user", "bob"]) == 0
