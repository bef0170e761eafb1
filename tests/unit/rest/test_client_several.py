"""The Python client and several controllers: the dead are passed over, the leader is found, tokens stay where they are.

Servers are scripted and real: each request goes over a connection.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from controller_process import free_ports
from scripted_rest import Act, hangs_up, problem, says, serving

from hyroads.rest import client as module
from hyroads.rest.client import ApiError, Client, ClientError, NotConfirmedError
from hyroads.rest.endpoint import Endpoint, Endpoints

TOKEN = "a-token-of-the-operator-0123456789"
OPERATION = {"id": "9", "what": "declare flow f", "resource": "/api/v1/flows/f", "state": "pending", "pending": ["b"],
             "reason": None}  # fmt: skip


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    return slept


@pytest.fixture
def nobody() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_ports(1)[0]}"


def leads(url: str) -> Act:
    return says(307, None, Location=f"{url}/api/v1/flows")


def test_the_dead_are_passed_over_and_the_one_that_answers_is_kept(nobody: str, pauses: list[float]) -> None:
    answers = [says(200, {"ok": True})] * 3
    with serving(*answers) as living, Client(f"{nobody},{living.url}", TOKEN) as client:
        for _ in range(3):
            assert client.health() == {"ok": True}
        assert client.url == living.url
    assert len(living.asked) == 3 and pauses == []


def test_a_write_goes_to_the_leader_with_its_key_and_token() -> None:
    with (
        serving(says(201, {"id": "f"}), says(201, {"id": "g"})) as leader,
        serving(leads(leader.url)) as follower,
        Client([follower.url, leader.url], TOKEN) as client,
    ):
        assert client.declare_flow("f", "a", "b") == {"id": "f"}
        assert client.declare_flow("g", "a", "b") == {"id": "g"}
    assert len(follower.asked) == 1, "the leader is remembered"
    keys = {asked[2]["Idempotency-Key"] for asked in (follower.asked[0], leader.asked[0])}
    assert len(keys) == 1
    assert all(asked[2]["Authorization"] == f"Bearer {TOKEN}" for asked in leader.asked)
    assert leader.asked[0][3] == follower.asked[0][3] != b""


def test_a_token_goes_to_no_host_that_was_not_given() -> None:
    with serving() as stranger, serving(leads(stranger.url)) as follower:
        with Client(follower.url, TOKEN) as client, pytest.raises(ClientError, match=r"not among the addresses given"):
            client.declare_flow("f", "a", "b")
        assert len(follower.asked) == 1 and stranger.asked == []


def test_without_a_token_another_port_of_the_host_is_followed_but_no_other_host() -> None:
    with serving(says(201, {"id": "f"})) as leader, serving(leads(leader.url), leads("http://localhost:1")) as follower:
        with Client(follower.url) as client:
            assert client.declare_flow("f", "a", "b") == {"id": "f"}
        with Client(follower.url) as client, pytest.raises(ClientError, match="localhost:1"):
            client.declare_flow("f", "a", "b")


@pytest.mark.parametrize(
    "location", ["", "/api/v1/flows", "http://", "ftp://127.0.0.1", "http://x:99999", "http://[", "javascript:1", "\t"]
)
def test_where_a_leader_may_not_be_asked_the_others_are(location: str) -> None:
    """Its address may be another one from there, as behind a port that is forwarded."""
    with (
        serving(says(201, {"id": "f"})) as leader,
        serving(says(307, None, Location=location)) as follower,
        Client([follower.url, leader.url], TOKEN) as client,
    ):
        assert client.declare_flow("f", "a", "b") == {"id": "f"}


def test_a_redirection_to_the_dead_leader_is_asked_again_until_the_next_one_leads(
    nobody: str, pauses: list[float]
) -> None:
    answers = [leads(nobody)] * 3 + [says(201, {"id": "f"})]
    with serving(*answers) as other, Client([nobody, other.url], TOKEN) as client:
        assert client.declare_flow("f", "a", "b") == {"id": "f"}
    assert len(other.asked) == 4
    assert pauses == sorted(pauses) and 0.0 < sum(pauses) < 10.0


def test_followers_that_name_each_other_come_to_an_end(pauses: list[float]) -> None:
    with serving() as first, serving() as second:
        first.acts, second.acts = [leads(second.url)] * 50, [leads(first.url)] * 50
        with Client([first.url, second.url]) as client, pytest.raises(ClientError, match="another controller leads"):
            client.declare_flow("f", "a", "b")
        assert len(first.asked) + len(second.asked) == 2 * module.TRIES_OF_SEVERAL
    assert 5.0 < sum(pauses) < 20.0, "longer than any takeover, and not for ever"


def test_one_that_does_not_know_who_leads_is_asked_later(pauses: list[float]) -> None:
    with serving(problem(503), says(201, {"id": "f"})) as one, serving() as other:
        with Client([one.url, other.url]) as client:
            assert client.declare_flow("f", "a", "b") == {"id": "f"}
        assert other.asked == []
    assert pauses == [1.0]


def test_an_operation_of_a_leader_that_has_gone_is_asked_for_again_with_its_key() -> None:
    begun = says(202, OPERATION)
    with (
        serving(begun, hangs_up) as first,
        serving(problem(404), says(201, {"id": "f"})) as second,
        Client([first.url, second.url]) as client,
    ):
        assert client.declare_flow("f", "a", "b") == {"id": "f"}
    posts = [asked for asked in (*first.asked, *second.asked) if asked[0] == "POST"]
    assert len(posts) == 2 and len({asked[2]["Idempotency-Key"] for asked in posts}) == 1
    with (
        serving(begun, hangs_up) as first,
        serving(problem(404), problem(404)) as second,
        Client([first.url, second.url]) as client,
    ):
        client.remove_flow("f")
    with serving(begun, problem(404)) as one, Client(one.url) as client, pytest.raises(ApiError):
        client.declare_flow("f", "a", "b")


def test_an_answer_of_before_is_followed_by_what_it_is_about() -> None:
    """The next leader repeats the answer of the one before, whose operation nobody knows any more."""
    replayed = says(202, OPERATION, Idempotent_Replayed="true")
    with (
        serving(says(202, OPERATION), hangs_up) as first,
        serving(
            problem(410), replayed, says(200, {"id": "f", "pending": ["b"]}), says(200, {"id": "f", "pending": []})
        ) as second,
        Client([first.url, second.url]) as client,
    ):
        assert client.declare_flow("f", "a", "b") == {"id": "f", "pending": []}
    assert [path for _, path, _, _ in second.asked][2:] == ["/api/v1/flows/f"] * 2


def test_what_is_not_confirmed_stays_an_error() -> None:
    failed = {**OPERATION, "state": "failed", "reason": "it was removed"}
    with (
        serving(says(202, OPERATION), says(200, failed)) as one,
        serving() as other,
        Client([one.url, other.url]) as client,
        pytest.raises(NotConfirmedError, match="it was removed"),
    ):
        client.declare_flow("f", "a", "b")


def test_a_removal_that_a_dead_controller_never_heard_of_is_not_taken_for_done(nobody: str) -> None:
    with serving(problem(404)) as living, Client([nobody, living.url]) as client, pytest.raises(ApiError):
        client.remove_flow("f")


def test_events_go_on_at_another_controller(nobody: str) -> None:
    stream = b'id: 5\nevent: link.up\ndata: {"n": 5}\n\n'
    with serving(says(200, stream, "text/event-stream")) as living, Client([nobody, living.url], TOKEN) as client:
        assert next(client.events("link")).document == {"n": 5}


def test_one_of_them_alone() -> None:
    with serving() as one, serving(says(200, {"ok": True})) as other, Client([one.url, other.url], TOKEN) as client:
        with client.only(other.url) as alone:
            assert alone.health() == {"ok": True}
        with pytest.raises(ClientError, match="not among"):
            client.only("https://127.0.0.1")


def test_addresses_are_read_once_each_in_their_order() -> None:
    found = Endpoints("http://a, https://b:8443,http://a:80/")
    assert len(found) == 2 and found.current == Endpoint("http", "a", 80)
    found.turn()
    assert found.current.url == "https://b:8443"
    assert Endpoints("unix:/run/a,b").current == Endpoint("unix", "/run/a,b", 0)
    assert Endpoints("http://[::1]:8080").current.url == "http://[::1]:8080"
    for wrong in ("", "http://a,", [], ["http://a", "b"], "http://user:password@a"):
        with pytest.raises(ValueError, match=r"expected http|no address"):
            Endpoints(wrong)
