"""``Idempotency-Key`` on POST: the same request with the same key is done once and answered alike.

What failed had no effect and is not remembered, so that trying again can succeed. The store is bounded in number, bytes
and time; it belongs to one process.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from flask import Response, g, request
from hyroads.rest.problems import problem

HEADER = "Idempotency-Key"
MAX_KEY_LENGTH = 128
MAX_KEPT = 4096
MAX_KEPT_BYTES = 8 << 20
KEPT_S = 24 * 3600.0
# No request is at work for longer.
AT_WORK_S = 60.0

_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A request, and its answer once there is one."""

    fingerprint: bytes
    until_s: float
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Idempotency:
    """Remembers answers by asker and key."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[_Name, _Kept] = OrderedDict()
        self._bytes = 0

    def before(self) -> Response | None:
        """The answer of before; None: go on."""
        g.idempotency = None
        key = request.headers.get(HEADER)
        if key is None or request.method != "POST":
            return None
        if not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
            return problem(400, f"{HEADER}: expected 1 to {MAX_KEY_LENGTH} printable characters")
        name, fingerprint, now_s = (g.asker, key), _fingerprint(), self._clock()
        kept = self._kept.get(name)
        if kept is None or kept.until_s <= now_s:
            self._keep(name, _Kept(fingerprint, now_s + AT_WORK_S))
            g.idempotency = name
            return None
        if kept.fingerprint != fingerprint:
            return problem(422, f"{HEADER}: was used for another request")
        if not kept.status:
            answer = problem(409, f"{HEADER}: the first request with it is still at work")
            answer.headers["Retry-After"] = "1"
            return answer
        answer = Response(kept.body, status=kept.status, headers=list(kept.headers))
        answer.headers["Idempotent-Replayed"] = "true"
        return answer

    def after(self, answer: Response) -> Response:
        """Remember what was done."""
        name: _Name | None = g.get("idempotency")
        kept = self._kept.get(name) if name is not None else None
        if name is None or kept is None:
            return answer
        if not 200 <= answer.status_code < 300 or answer.is_streamed:
            self._drop(name)
            return answer
        headers = tuple((key, value) for key, value in answer.headers if key in ("Content-Type", "Location", "Link"))
        until_s = self._clock() + KEPT_S
        self._keep(name, _Kept(kept.fingerprint, until_s, answer.status_code, headers, answer.get_data()))
        return answer

    def _keep(self, name: _Name, kept: _Kept) -> None:
        self._drop(name)
        self._kept[name] = kept
        self._bytes += len(kept.body)
        while len(self._kept) > MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: _Name) -> None:
        kept = self._kept.pop(name, None)
        self._bytes -= len(kept.body) if kept is not None else 0


def _fingerprint() -> bytes:
    digest = hashlib.sha256(request.full_path.encode())
    digest.update(b"\0" + request.get_data())
    return digest.digest()
