"""Who may use the dashboard: sessions with tokens of the API, and what a browser is told of where things come from.

On loopback there is no login: the dashboard's own token counts. Beyond it everybody logs in with a token of the API,
which stays in this process; the browser gets a session cookie that no script can read and no other site can send.
:class:`Guard` is ASGI middleware around everything, WebSockets included.
"""

from __future__ import annotations

import html
import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from hyroads.controller.core.admission import network_of
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.token_bucket import Buckets, Limit

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
COOKIE: Final = "__Host-hyroads"
"""Browsers take a cookie of this name over TLS only, for this host and all of its paths."""
IDLE_S, LONGEST_S = 3600.0, 12 * 3600.0
MAX_SESSIONS = 256
MAX_FORM_BYTES = 8192
CHANGING_ROLES: Final[Mapping[str, tuple[str, ...]]] = {"handovers": ("admin", "application"), "boxes": ("admin",)}
"""Resource of the API that pages change -> the roles that may change it, as the API defines them."""
LOGIN, LOGOUT = "/login", "/logout"

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(slots=True)
class Session:
    """Somebody who may look; ``token`` is what the API is asked with for them."""

    id: str
    name: str
    role: str
    token: str | None
    began_s: float
    used_s: float
    ended: bool = False

    def may_change(self, resource: str) -> bool:
        """Whether the API lets the role of this session change a resource, such as ``handovers``."""
        return self.role in CHANGING_ROLES[resource]


class Sessions:
    """The sessions there are, of bounded number; time is an argument, in seconds."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def begin(self, name: str, role: str, token: str, now_s: float) -> Session:
        """A session; the one that was not used for longest ends if there are too many."""
        for session in list(self._sessions.values()):
            self.find(session.id, now_s)
        if len(self._sessions) >= MAX_SESSIONS:
            self.end(min(self._sessions.values(), key=lambda one: one.used_s).id)
        found = Session(secrets.token_urlsafe(32), name, role, token, now_s, now_s)
        self._sessions[found.id] = found
        return found

    def find(self, number: str, now_s: float, *, use: bool = False) -> Session | None:
        """The session, if it has not ended."""
        found = self._sessions.get(number)
        if found is None:
            return None
        if now_s - found.used_s > IDLE_S or now_s - found.began_s > LONGEST_S:
            self.end(number)
            return None
        if use:
            found.used_s = now_s
        return found

    def end(self, number: str) -> None:
        """It ends now; pages that are open notice."""
        found = self._sessions.pop(number, None)
        if found is not None:
            found.ended = True

    def all(self) -> list[Session]:
        """Those that have not ended."""
        return list(self._sessions.values())


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's loopback."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def policy(nonce: str) -> str:
    """The Content-Security-Policy: everything comes from here. NiceGUI compiles its templates in the browser, which is
    what ``unsafe-eval`` is for; a script that stands in a page needs the page's own nonce.
    """
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'; object-src 'none'"
    )


LocalSession = Callable[[], Session]
Admitted = Callable[[Any, str], bool]
"""Whether a connection, by the address and port of its peer, keeps its place as one of a name."""
ATTEMPTS = Limit(1.0, 20.0)
"""To log in, from one address."""
Identify = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Name and role of a token; HyroadsError if the controller does not take it or can't be reached."""


class Guard:
    """Admits requests. ``local`` is everybody's session where there is no login, ``identify`` asks whose a token is,
    ``admitted`` gives a connection the place of a session.
    """

    def __init__(
        self,
        app: App,
        *,
        sessions: Sessions,
        clock: Callable[[], float],
        local: LocalSession | None,
        identify: Identify,
        admitted: Admitted = lambda peer, name: True,
    ) -> None:
        self._app, self._sessions, self._clock = app, sessions, clock
        self._local, self._identify = local, identify
        self._admitted = admitted
        self._attempts = Buckets(ATTEMPTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or WebSocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            await _refuse(scope, receive, send, 403, refused)
            return
        session = self._session(headers)
        if scope["type"] == "http" and self._local is None and scope["path"] in (LOGIN, LOGOUT):
            await self._log_in_or_out(scope, receive, _Secured(send), session)
        elif session is None:
            await self._stranger(scope, receive, send)
        elif not self._admitted(scope.get("client"), session.id or "local"):
            await _refuse(scope, receive, send, 429, "too many connections")
        else:
            scope["hyroads.session"] = session
            await self._app(scope, receive, _Secured(send) if scope["type"] == "http" else send)

    def _refused(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        host = headers.get("host", "")
        if self._local is not None and _name_of(host) not in LOOPBACK_NAMES:
            # A web page that names us in its own domain (DNS rebinding) must not read or steer the network.
            return "without a login only loopback may be named as host"
        reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if reading:
            return None
        origin = headers.get("origin")
        if origin is None:
            # Browsers always say where such a request comes from.
            return None if scope["type"] == "http" and self._local is not None else "expected Origin"
        if origin.partition("://")[2].lower() != host.lower():
            return "a web page from elsewhere may not do this"
        return None

    def _session(self, headers: Mapping[str, str]) -> Session | None:
        if self._local is not None:
            return self._local()
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return None
        return None if cookie is None else self._sessions.find(cookie.value, self._clock(), use=True)

    async def _stranger(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD") or scope["path"].startswith("/_"):
            await _refuse(scope, receive, send, 403, "log in first")
            return
        await _answer(_Secured(send), 303, "", {"Location": LOGIN})

    async def _log_in_or_out(self, scope: Scope, receive: Receive, send: Send, session: Session | None) -> None:
        if scope["path"] == LOGOUT:
            if session is not None and scope["method"] == "POST":
                self._sessions.end(session.id)
            await _answer(send, 303, "", {"Location": LOGIN, "Set-Cookie": _cookie("", 0)})
            return
        if scope["method"] != "POST":
            await _answer(send, 200, login_page())
            return
        token = await _token(receive)
        address = str((scope.get("client") or ("",))[0])
        if self._attempts.take(network_of(address), self._clock()):
            await _answer(send, 429, login_page("Too many attempts: try again in a few seconds."), {"Retry-After": "2"})
            return
        try:
            who = await self._identify(token) if token else {}
        except HyroadsError as error:
            await _answer(send, 403, login_page(f"Not logged in: {error}"))
            return
        if not who.get("name"):
            # Without tokens of its own the controller takes any: that must be nobody's way in.
            problem = "the controller has no api_tokens, so nobody can log in" if token else "expected a token"
            await _answer(send, 403, login_page(f"Not logged in: {problem}."))
            return
        found = self._sessions.begin(str(who["name"]), str(who["role"]), token, self._clock())
        await _answer(send, 303, "", {"Location": "/", "Set-Cookie": _cookie(found.id, int(LONGEST_S))})


def _name_of(host: str) -> str:
    return host if host.endswith("]") else host.rsplit(":", 1)[0]


def _cookie(value: str, age_s: int) -> str:
    return f"{COOKIE}={value}; Path=/; Max-Age={age_s}; Secure; HttpOnly; SameSite=Strict"


async def _token(receive: Receive) -> str:
    """The field ``token`` of a form; empty if there is none."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > MAX_FORM_BYTES:
            return ""
        if not message.get("more_body"):
            break
    found = parse_qs(body.decode("ascii", "replace"), max_num_fields=4).get("token", [""])[0].strip()
    return found if found.isascii() and found.isprintable() else ""


class _Secured:
    """Adds the headers of security to an answer, and the nonce to the scripts that stand in a page."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._start: dict[str, Any] | None = None
        self._page = b""

    async def __call__(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message["headers"]}
            added = [(name.encode(), value.encode()) for name, value in self._headers().items()]
            others = [(name, value) for name, value in message["headers"] if name.lower() not in dict(added)]
            started = {**message, "headers": others + added}
            if headers.get(b"content-type", b"").startswith(b"text/html"):
                self._start = started
                return
            await self._send(started)
        elif self._start is not None and message["type"] == "http.response.body":
            self._page += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish()
        else:
            await self._send(message)

    async def _finish(self) -> None:
        started = self._start or {"headers": []}
        page = _SCRIPT.sub(b'<script nonce="' + self._nonce.encode() + b'"', self._page)
        headers = [
            (name, value)
            for name, value in started["headers"]
            if name.lower() not in (b"content-length", b"cache-control")
        ]
        headers += [(b"content-length", str(len(page)).encode()), (b"cache-control", b"no-store")]
        await self._send({**started, "headers": headers})
        await self._send({"type": "http.response.body", "body": page})

    def _headers(self) -> dict[str, str]:
        return {
            "content-security-policy": policy(self._nonce),
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            # With no-referrer browsers would not even tell us that our own form sends a token.
            "referrer-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
        }


# Texts of the network stand in pages as JSON without "<": no other script is in them.
_SCRIPT = re.compile(rb"<script(?=[\s>])")


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, text: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    await _answer(_Secured(send), status, f"hyroads dashboard: {text}\n", {"Content-Type": "text/plain; charset=utf-8"})


async def _answer(send: Send, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
    given = {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", **(headers or {})}
    encoded = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": text.encode()})


def login_page(problem: str = "") -> str:
    """A form without any script."""
    said = f'<p class="problem" role="alert">{html.escape(problem)}</p>' if problem else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>HyRoads: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{{font-family:sans-serif;max-width:24rem;margin:15vh auto;padding:0 1rem}}
input,button{{font:inherit;width:100%;padding:.5rem;margin:.3rem 0;box-sizing:border-box}}
.problem{{color:#a30000}}</style></head>
<body><main><h1>HyRoads</h1><form method="post" action="{LOGIN}">
<label for="token">Token of the API</label>
<input id="token" name="token" type="password" autocomplete="current-password" required>
<button type="submit">Log in</button></form>{said}</main></body></html>"""


def check_listen(host: str, certificate: str | None, key: str | None, token: str | None, url: str) -> None:
    """Raise a HyroadsError if pages would be served beyond this machine without TLS and a login."""
    if (certificate is None) != (key is None):
        raise HyroadsError("--cert and --key: expected both or neither")
    if is_loopback(host):
        return
    if certificate is None or token is None:
        raise HyroadsError(f"--listen {host}: beyond loopback needs --cert, --key and --token-file")
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise HyroadsError(f"--url {url}: tokens are sent to another machine by https only")
