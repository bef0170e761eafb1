"""Who may use the dashboard: logins, sessions, web pages from elsewhere, headers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from hyroads.controller.core.errors import HyroadsError
from hyroads.dashboard.access import COOKIE, IDLE_S, MAX_SESSIONS, Guard, Session, Sessions, check_listen

PAGE = b"<html><script>1</script><script src=x></script><scripted></html>"


class Site:
    """The guard around a page that tells whether it was reached."""

    def __init__(self, *, login: bool = True, who: Mapping[str, Any] | None = None) -> None:
        self.now_s, self.sessions, self.reached = 0.0, Sessions(), []
        self.peer = "192.0.2.1"
        self.full: set[str] = set()
        """Names that have all places of their own."""
        self.who = {"good": {"name": "eve", "role": "viewer"}} if who is None else who
        own = Session("", "", "admin", None, 0.0, 0.0)
        self.guard = Guard(
            self.page, sessions=self.sessions, clock=lambda: self.now_s,
            local=None if login else lambda: own, identify=self.identify,
            admitted=lambda peer, name: peer == (self.peer, 4711) and name not in self.full,
        )  # fmt: skip

    async def identify(self, token: str) -> Mapping[str, Any]:
        if token not in self.who:
            raise HyroadsError("expected a bearer token (401)")
        return self.who[token]

    async def page(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.reached.append(scope["hyroads.session"].name)
        if scope["type"] == "http":
            headers = [(b"content-type", b"text/html"), (b"content-length", b"64")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": PAGE[:9], "more_body": True})
            await send({"type": "http.response.body", "body": PAGE[9:]})

    def ask(self, path: str = "/", method: str = "GET", body: bytes = b"", kind: str = "http", **headers: str) -> Any:
        given = {"host": "box:8090", **headers}
        scope = {"type": kind, "method": method, "path": path, "client": (self.peer, 4711),
                 "headers": [(name.encode(), value.encode()) for name, value in given.items()]}  # fmt: skip
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.guard(scope, receive, send))
        return Answer(sent)

    def log_in(self, token: str = "good", **headers: str) -> Any:
        given = {"origin": "https://box:8090", **headers}
        return self.ask("/login", "POST", f"token={token}".encode(), **given)


class Answer:
    def __init__(self, sent: list[dict[str, Any]]) -> None:
        self.kind = sent[0]["type"] if sent else ""
        self.status = sent[0].get("status") if sent else None
        self.headers = {name.decode(): value.decode() for name, value in sent[0].get("headers", [])} if sent else {}
        self.body = b"".join(one.get("body", b"") for one in sent[1:])

    @property
    def cookie(self) -> str:
        return self.headers["set-cookie"].partition(";")[0]


def test_without_a_login_nothing_is_shown() -> None:
    site = Site()
    assert site.ask().headers["location"] == "/login"
    assert site.ask("/_nicegui/x.js").status == 403
    assert site.ask("/", "POST", origin="https://box:8090").status == 403
    assert site.ask(kind="websocket", origin="https://box:8090").kind == "websocket.close"
    assert site.reached == []


def test_a_token_of_the_api_begins_a_session_that_only_this_site_sends() -> None:
    site = Site()
    answer = site.log_in()
    assert answer.status == 303
    assert answer.cookie.startswith(f"{COOKIE}=")
    assert "good" not in answer.headers["set-cookie"]
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))
    assert site.ask(cookie=answer.cookie).status == 200
    site.ask(kind="websocket", cookie=answer.cookie, origin="https://box:8090")
    assert site.reached == ["eve", "eve"]


def test_logging_out_ends_the_session_for_open_pages_too() -> None:
    site = Site()
    cookie = site.log_in().cookie
    [session] = site.sessions.all()
    assert site.ask("/logout", "POST", cookie=cookie, origin="https://elsewhere").status == 403
    assert not session.ended
    assert site.ask("/logout", "POST", cookie=cookie, origin="https://box:8090").status == 303
    assert session.ended
    assert site.ask(cookie=cookie).status == 303


def test_sessions_end_when_they_are_not_used_and_are_bounded() -> None:
    site = Site()
    cookie = site.log_in().cookie
    site.now_s = IDLE_S + 1
    assert site.ask(cookie=cookie).status == 303
    sessions = Sessions()
    for number in range(MAX_SESSIONS + 20):
        sessions.begin("x", "viewer", "t", float(number))
    assert len(sessions.all()) == MAX_SESSIONS


@pytest.mark.parametrize(
    ("who", "token"),
    [({}, "bad"), ({"any": {"name": None, "role": "admin"}}, "any"), ({}, ""), ({}, "%00"), ({}, "x" * 9000)],
)
def test_no_wrong_token_and_no_token_of_a_controller_without_any_logs_in(who: Any, token: str) -> None:
    site = Site(who=who)
    answer = site.log_in(token)
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    assert not site.sessions.all()


def test_guesses_are_slowed_down() -> None:
    site = Site()
    statuses = [site.log_in(f"guess{number}").status for number in range(30)]
    assert statuses.count(429) == 10
    site.now_s = 2.0
    assert site.log_in().status == 303


def test_guesses_from_one_address_slow_down_no_other() -> None:
    site = Site()
    for number in range(5):
        site.peer = f"2001:db8:0:1::{number + 1}"
        statuses = [site.log_in(f"guess{number}").status for number in range(6)]
    assert statuses.count(429) == 6, "addresses of one /64 share their attempts"
    site.peer = "2001:db8:0:2::1"
    assert site.log_in().status == 303


def test_session_that_has_all_its_connections_gets_no_more() -> None:
    site = Site()
    cookie = site.log_in().cookie
    [session] = site.sessions.all()
    assert site.ask(cookie=cookie).status == 200
    site.full = {session.id}
    assert site.ask(cookie=cookie).status == 429
    assert site.ask(kind="websocket", cookie=cookie, origin="https://box:8090").kind == "websocket.close"
    assert site.reached == ["eve"]


@pytest.mark.parametrize("origin", ["https://elsewhere", "null", "https://box:8090.elsewhere"])
def test_pages_from_elsewhere_log_nobody_in_and_open_no_socket(origin: str) -> None:
    site = Site()
    assert site.log_in(origin=origin).status == 403
    cookie = site.log_in().cookie
    assert site.ask(kind="websocket", cookie=cookie, origin=origin).kind == "websocket.close"
    assert site.ask(kind="websocket", cookie=cookie).kind == "websocket.close"
    assert site.reached == []


def test_on_loopback_there_is_no_login_but_no_other_name_counts() -> None:
    site = Site(login=False)
    assert site.ask(host="127.0.0.1:8090").status == 200
    assert site.ask(host="[::1]:8090").status == 200
    assert site.ask(host="elsewhere:8090").status == 403
    assert site.ask(kind="websocket", host="127.0.0.1:8090", origin="http://elsewhere").kind == "websocket.close"


def test_nothing_comes_from_elsewhere_and_scripts_need_the_pages_own_number() -> None:
    site = Site(login=False)
    answers = [site.ask(host="localhost") for _ in range(2)]
    for answer in answers:
        rules = dict(one.strip().partition(" ")[::2] for one in answer.headers["content-security-policy"].split(";"))
        assert rules["default-src"] == "'none'"
        assert rules["frame-ancestors"] == "'none'"
        assert not any(
            "http" in of or "*" in of or "unsafe-inline" in of for of in (rules["script-src"], rules["connect-src"])
        )
        number = rules["script-src"].split("'nonce-")[1].partition("'")[0]
        assert answer.body.count(f'<script nonce="{number}"'.encode()) == 2
        assert b"<scripted>" in answer.body
        assert int(answer.headers["content-length"]) == len(answer.body)
    assert answers[0].headers["content-security-policy"] != answers[1].headers["content-security-policy"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("0.0.0.0", None, None, "t", "http://127.0.0.1:8080"), "needs --cert, --key and --token-file"),
        (("0.0.0.0", "c", "k", None, "http://127.0.0.1:8080"), "needs --cert, --key and --token-file"),
        (("box", "c", None, "t", "http://127.0.0.1:8080"), "both or neither"),
        (("::", "c", "k", "t", "http://10.0.0.1:8080"), "by https only"),
    ],
)
def test_beyond_loopback_only_with_tls_and_tokens(given: Any, problem: str) -> None:
    with pytest.raises(HyroadsError, match=problem):
        check_listen(*given)


def test_what_may_listen() -> None:
    check_listen("127.0.0.1", None, None, None, "http://127.0.0.1:8080")
    check_listen("0.0.0.0", "c", "k", "t", "http://127.0.0.1:8080")
    check_listen("0.0.0.0", "c", "k", "t", "https://controller:8080")
