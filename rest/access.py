"""Access control: bearer tokens with roles, and a token bucket of requests for each principal.

Without configured tokens there is one principal, a program on this machine, which may do everything.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from flask import Response, g, request

from hyroads.controller.core.token_bucket import Buckets, Limit

from .contract import IDENTITY, PLACE, PREFIX, Token
from .resource import problem

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
EXTENSION = "hyroads.access"
READS = ("GET", "HEAD", "OPTIONS")

_ANYTHING = None
_NOBODY_KNOWN = Token("", "", "admin")
"""Who asks without a token where there are none."""
WRITES: Mapping[str, Collection[str] | None] = {
    "admin": _ANYTHING,
    "slice-owner": ("slices", "flowspace", "opt-ins"),
    "user": ("opt-ins",),
    "application": ("flows", "handovers", "ncasts", "sessions", "reservations", "access-rules"),
    "viewer": (),
}
"""Role -> the resources that it may change (None: all). Everybody may read everything; there are no secrets in it."""

# Pages that hold nothing of the network: a browser that opens them can't send a token along.
OPEN = (f"{PREFIX}/docs", f"{PREFIX}/openapi.json")
_PAGE = f"{PREFIX}/docs/"
OF_STRANGERS = re.compile(f"{PREFIX}/boxes(/[A-Za-z0-9_.-]+/(wait|leave))?")
"""Where machines without a token may POST: boxes apply there, and show a secret of their own."""
# Ryu's queries with a filter in their body.
READING_POSTS = ("/stats/flow/", "/stats/aggregateflow/")


STRANGERS = Limit(per_s=2.0, burst=20.0)
"""What an address may try without a token that we know."""


class Access:
    """Admits requests."""

    def __init__(
        self,
        tokens: Sequence[Token],
        limit: Limit | None,
        clock: Callable[[], float],
        find: Callable[[str], Token | None] | None = None,
    ) -> None:
        self._tokens = tuple(tokens)
        self._find = find
        self._clock = clock
        self._limit = limit
        self._buckets = None if limit is None else Buckets(limit)
        self._strangers = Buckets(STRANGERS)

    def use(self, tokens: Sequence[Token], limit: Limit | None) -> None:
        """Other tokens, and other limits, from the next request on."""
        self._tokens = tuple(tokens)
        if limit != self._limit:
            self._limit = limit
            self._buckets = None if limit is None else Buckets(limit)

    def admit(self) -> Response | None:
        """The answer to who may not do this; None: go on, ``g.principal`` is the name of who asks."""
        g.principal, g.identity = "", _NOBODY_KNOWN
        # Whoever asks: what a web page of somebody else's sends is the page's wish, not its reader's.
        if request.method not in READS and _is_from_another_page():
            return problem(403, "a web page from elsewhere may change nothing here")
        inside: Token | None = request.environ.get(IDENTITY)
        if inside is not None:
            # No token has such a name: what a plugin is called gives it neither a token's keys nor its limit.
            g.principal, g.identity = f"\0{inside.name}", inside
            if not may(inside.role):
                return problem(403, f"token {inside.name}: role {inside.role} may not do this")
        elif not self._tokens and (self._find is None or "Authorization" not in request.headers):
            # A web page that names us in its own domain (DNS rebinding) must not steer the network of its reader.
            if _host() not in LOOPBACK_NAMES:
                return problem(403, "without api_tokens only loopback may be named as host")
        elif _is_of_stranger():
            return self._count(self._strangers, request.remote_addr or "")
        elif not _is_open(request.path):
            refused = self._check_token()
            if refused is not None:
                return refused
        return _too_many_connections() or self._count(self._buckets, g.principal)

    def _check_token(self) -> Response | None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        known = [t for t in self._tokens if hmac.compare_digest(t.token.encode(), given.strip().encode())]
        other = self._find(given.strip()) if self._find is not None else None
        found = known[0] if known else other
        if scheme.lower() != "bearer" or found is None:
            answer = self._count(self._strangers, request.remote_addr or "") or problem(401, "expected a bearer token")
            if answer.status_code == 401:
                answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        g.principal, g.identity = found.name, found
        return None if may(found.role) else problem(403, f"token {found.name} is {found.role}: may not do this")

    def _count(self, buckets: Buckets | None, name: str) -> Response | None:
        wait_s = buckets.take(name, self._clock()) if buckets is not None else 0.0
        if not wait_s:
            return None
        answer = problem(429, "too many requests")
        answer.headers["Retry-After"] = str(int(wait_s) + 1)
        return answer


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(_PAGE)


def _is_of_stranger() -> bool:
    """Whether this is a request of a box, which has no token yet."""
    return request.method == "POST" and OF_STRANGERS.fullmatch(request.path) is not None


def _too_many_connections() -> Response | None:
    """Whoever may ask keeps its connection, unless it has too many. Pages that anybody may open prove nothing."""
    place = request.environ.get(PLACE)
    if place is None or _is_open(request.path) or place.authenticated(g.principal):
        return None
    answer = problem(429, "too many connections")
    answer.headers["Connection"] = "close"
    return answer


def may(role: str) -> bool:
    """Whether a role may do what the current request asks for."""
    if request.method in READS or (request.method == "POST" and request.path.startswith(READING_POSTS)):
        return True
    writes = WRITES[role]
    return writes is _ANYTHING or request.path.removeprefix(PREFIX).split("/")[1] in writes


def _is_from_another_page() -> bool:
    """Whether a browser says that a page asks which is not ours. A browser always says so where it may ask without
    asking us first; programs say nothing.
    """
    if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    scheme, _, host = origin.partition("://")
    return scheme not in ("http", "https") or host.lower() != request.host.lower()


def _host() -> str:
    return request.host if request.host.endswith("]") else request.host.rsplit(":", 1)[0]
