"""``hyroads ha`` against scripted controllers: what is shown, who is asked, and the exit status."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_rest import Server, says, serving

from hyroads.controller.cli.main import main

TOKEN = "a-token-of-the-operator-0123456789"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYROADS_TOKEN", TOKEN)
    monkeypatch.delenv("HYROADS_URL", raising=False)


def members(*servers: Server) -> list[dict[str, Any]]:
    return [
        {"name": name, "rest": server.url, "peer": "127.0.0.1:6655", "role": role, "schema": 2, "seen_s": 0.02}
        for name, role, server in zip("ab", ("leader", "follower"), servers, strict=False)
    ]


def document(*servers: Server, leads: bool = True, failing_since_s: float | None = None) -> dict[str, Any]:
    found = members(*servers)
    return {
        "name": "a",
        "role": "leader",
        "epoch": 7,
        "leader": {name: found[0][name] for name in ("name", "rest", "peer")} if leads else None,
        "members": found,
        "etcd": {"reachable": failing_since_s is None, "failing_since_s": failing_since_s},
        "schema": 2,
    }


def test_status_names_the_leader_and_the_members(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.acts = [says(200, document(server, server))]
        assert main(["ha", "status", "--url", server.url]) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    assert ["leader", "a,", server.url] in rows and ["epoch", "7"] in rows and ["etcd", "answers"] in rows
    assert ["b", "follower", server.url, "127.0.0.1:6655", "2", "0.02"] in rows


def test_status_is_the_default_and_its_json_is_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        found = document(server)
        server.acts = [says(200, found)]
        assert main(["ha", "--url", server.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_without_a_leader_the_exit_status_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.acts = [says(200, document(server, leads=False, failing_since_s=12.3))]
        assert main(["ha", "status", "--url", server.url]) == 1
    said = capsys.readouterr().out
    assert "nobody" in said and "no answer for 12 s" in said


def test_handover_names_who_shall_lead(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as leader, serving() as follower:
        found = says(200, document(leader, follower))
        follower.acts = [says(307, None, Location=f"{leader.url}/api/v1/ha/handover")] * 2
        leader.acts = [found, found, found]
        url = f"{follower.url},{leader.url}"
        assert main(["ha", "handover", "--to", "b", "--url", url]) == 0
        assert main(["ha", "handover", "--url", url]) == 0
        assert main(["ha", "finish-upgrade", "--url", leader.url]) == 0
        asked = [(method, path, json.loads(body or b"null")) for method, path, _, body in leader.asked]
    assert asked == [
        ("POST", "/api/v1/ha/handover", {"to": "b"}),
        ("POST", "/api/v1/ha/handover", {"to": None}),
        ("POST", "/api/v1/ha/finish-upgrade", None),
    ]
    assert "leader" in capsys.readouterr().out


@pytest.mark.parametrize(("more", "drain"), [([], True), (["--undo"], False)])
def test_the_member_that_is_named_is_drained_and_no_other(more: list[str], drain: bool) -> None:
    with serving() as a, serving() as b:
        a.acts, b.acts = [says(200, document(a, b))], [says(200, document(a, b))]
        assert main(["ha", "drain", "b", *more, "--url", f"{a.url},{b.url}"]) == 0
        assert [(method, path) for method, path, _, _ in a.asked] == [("GET", "/api/v1/ha")]
        ((method, path, headers, body),) = b.asked
    assert (method, path, json.loads(body)) == ("POST", "/api/v1/ha/drain", {"drain": drain})
    assert headers["Authorization"] == f"Bearer {TOKEN}"


def test_with_one_address_its_own_member_is_drained() -> None:
    with serving() as a:
        a.acts = [says(200, document(a))] * 2
        assert main(["ha", "drain", "--url", a.url]) == 0
        assert [path for _, path, _, _ in a.asked] == ["/api/v1/ha", "/api/v1/ha/drain"]


def test_what_can_not_be_drained_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as a, serving() as b, serving() as stranger:
        url = f"{a.url},{b.url}"
        a.acts = [says(200, document(a, b)), says(200, document(a, b)), says(200, document(a, stranger))]
        for words, error in (
            (["drain"], "expected with several addresses"),
            (["drain", "x"], "no member 'x'; there are: a, b"),
            (["drain", "b"], "is not among the addresses given"),
        ):
            assert main(["ha", *words, "--url", url]) == 2
            said = capsys.readouterr().err
            assert error in said and said.count("\n") == 1
        assert b.asked == stranger.asked == []


def test_a_controller_without_standby_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    refused = says(
        404, {"detail": "this controller has no ha in its settings", "status": 404}, "application/problem+json"
    )
    with serving(refused) as server:
        assert main(["ha", "status", "--url", server.url]) == 2
    assert "no ha in its settings" in capsys.readouterr().err
