"""Operations, and idempotency keys.

*Operations* at ``/api/v1/operations/{id}`` are requests that were accepted and are not confirmed yet. The state of one
is looked up when it is read; once it has ended it stays as it is. Of several controllers, none answers 202 before what
was asked for is saved where the next leader reads it.

*Idempotency-Key* on POST: a request with the same key is carried out once, and its response is repeated. A failed
request had no effect and is not stored, so that trying again can succeed. The store of each token is bounded in
number, bytes and time, so that requests of one token never make the controller forget those of another. Stores belong
to one process; of several controllers, the one that leads passes responses to the rest.

An operation is known to the controller alone that began it: how it stands follows from what devices have told that one.
Of several controllers each knows by the id which operations are its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from flask import Response, current_app, g, request
from flask.typing import ResponseReturnValue

from hyroads.controller.core.errors import HyroadsError

from . import schemas
from .contract import PREFIX, Document, GoneError, NotConfirmedError, NotFoundError, NotSavedError
from .resource import Resource, page, page_schema, problem, reply

MAX_OPERATIONS = 2048
ADDRESS = f"{PREFIX}/operations"
EXTENSION = "hyroads.operations"
_IDS = re.compile(r"[0-9a-f]{16}")
UNCONFIRMED = "wait=false, or not confirmed in time"
"""Why 202 is answered."""

Poll = Callable[[], Sequence[str]]
"""What has not confirmed yet (nothing: confirmed); a HyroadsError says why it can't be any more."""


@dataclass(slots=True)
class _Operation:
    id: str
    what: str
    resource: str | None
    created_s: float
    poll: Poll
    state: str = "pending"
    pending: tuple[str, ...] = ()
    failure: HyroadsError | None = None
    finished_s: float | None = None

    def look(self, now_s: float) -> None:
        """Find out how it stands."""
        if self.state != "pending":
            return
        try:
            self.pending = tuple(self.poll())
        except HyroadsError as error:
            self.state, self.failure, self.pending = "failed", error, ()
        else:
            self.state = "pending" if self.pending else "confirmed"
        self.finished_s = None if self.state == "pending" else now_s

    def document(self) -> Document:
        """As it is answered."""
        names = ("id", "what", "resource", "state", "created_s", "finished_s")
        reason = None if self.failure is None else str(self.failure)
        return {**{name: getattr(self, name) for name in names}, "reason": reason, "pending": list(self.pending)}


class Operations:
    """The latest operations; of too many the oldest are forgotten. ``several``: other controllers begin some, too.

    None begins before ``saved`` has returned: where another controller may take over at any time, 202 shall mean that
    it will know what was asked for.
    """

    def __init__(
        self, clock: Callable[[], float], *, several: bool = False, saved: Callable[[], None] = lambda: None
    ) -> None:
        self._clock, self._several, self._saved = clock, several, saved
        self._own = secrets.token_hex(4)
        """What the ids of ours begin with."""
        self._operations: OrderedDict[str, _Operation] = OrderedDict()

    def start(self, what: str, resource: str | None, poll: Poll) -> Document:
        """Something was accepted; NotSavedError if it was taken back, or is not saved in time."""
        self._saved()
        operation = _Operation(self._own + secrets.token_hex(4), what, resource, self._clock(), poll)
        operation.look(self._clock())
        if isinstance(operation.failure, NotSavedError):
            raise operation.failure
        self._operations[operation.id] = operation
        if len(self._operations) > MAX_OPERATIONS:
            self._operations.popitem(last=False)
        return operation.document()

    @property
    def ids(self) -> Sequence[str]:
        """Oldest first."""
        return tuple(self._operations)

    def documents(self, operations: Sequence[str]) -> list[Document]:
        """How these stand now."""
        return [self.document(operation) for operation in operations]

    def document(self, operation: str) -> Document:
        """How one stands now; NotFoundError, GoneError."""
        found = self._operations.get(operation)
        if found is None and self._several and _IDS.fullmatch(operation) and not operation.startswith(self._own):
            raise GoneError(
                f"operation {operation!r} is known to the controller alone that began it, while that runs: read what it"
                " was about, or repeat the request with its Idempotency-Key"
            )
        if found is None:
            raise NotFoundError(f"no operation {operation[:64]!r}")
        found.look(self._clock())
        return found.document()


def accepted(what: str, resource: str | None, poll: Poll) -> Response:
    """202 with a new operation, its address, and the address of what it is about."""
    operations: Operations = current_app.extensions[EXTENSION]
    document = operations.start(what, resource, poll)
    return reply(document, 202, location=f"{ADDRESS}/{document['id']}")


def confirmed(
    what: str,
    resource: str | None,
    poll: Poll,
    do: Callable[[], Response | None],
    *,
    wait: bool = True,
) -> Response:
    """What ``do`` returns if it is confirmed, else 202 with an operation.

    An operation is begun without ``wait``, if ``do`` raises NotConfirmedError, and if it returns None.
    """
    try:
        answer = do()
    except NotConfirmedError:
        answer = None
    return answer if answer is not None and wait else accepted(what, resource, poll)


def removed(what: str, poll: Poll, remove: Callable[..., object], name: str, *, wait: bool) -> Response:
    """204 once ``remove(name, wait=wait)`` is confirmed, else 202 with an operation."""

    def do() -> Response:
        remove(name, wait=wait)
        return Response(status=204)

    return confirmed(f"{what} {name}", None, poll, do, wait=wait)


def blueprint(operations: Operations) -> Resource:
    """The resource ``operations``."""
    blueprint = Resource("operations", url_prefix=ADDRESS, description="What is not confirmed yet")

    @blueprint.endpoint(
        "get", "", {200: None}, page_schema("operations", schemas.OperationSchema), query=schemas.PageQuery
    )
    def list_operations(query: dict[str, object]) -> ResponseReturnValue:
        """The latest operations, oldest first."""
        return page("operations", operations.ids, operations.documents, query)

    gone = "of several controllers another one began it"

    @blueprint.endpoint("get", "/<operation>", {200: None, 404: None, 410: gone}, schemas.OperationSchema)
    def show_operation(operation: str) -> ResponseReturnValue:
        """One operation: pending (and what has not confirmed), confirmed or failed (and why)."""
        return reply(operations.document(operation))

    return blueprint


HEADER = "Idempotency-Key"
MAX_KEY_LENGTH = 128
MAX_REPLIES = 4096
MAX_REPLIES_BYTES = 8 << 20
REPLY_LIFETIME_S = 24 * 3600.0
# No request is at work for longer.
AT_WORK_S = 60.0

_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _StoredReply:
    """A request, and its response once there is one."""

    fingerprint: bytes
    until_s: float
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def text(self) -> str:
        """For other controllers."""
        coded = (base64.b64encode(data).decode("ascii") for data in (self.fingerprint, self.body))
        return json.dumps([self.status, self.headers, *coded])

    @classmethod
    def of(cls, text: str, until_s: float) -> _StoredReply | None:
        """What :meth:`text` gave; None if it is something else."""
        try:
            status, headers, fingerprint, body = json.loads(text)
            found = tuple((str(key), str(value)) for key, value in headers)
            return cls(base64.b64decode(fingerprint), until_s, int(status), found, base64.b64decode(body))
        except (ValueError, TypeError):
            return None


class SharedReplies(Protocol):
    """Answers that other controllers of the network know, too. Where they are can fail to answer."""

    def get(self, name: str) -> str | None:
        """What was put under a name; None: nothing, as far as is known."""

    def put(self, name: str, text: str) -> None:
        """Let others know for a day, if that is possible."""


class _Store:
    """Replies to the requests of one principal, by key; of too many the oldest are forgotten."""

    def __init__(self) -> None:
        self._replies: OrderedDict[str, _StoredReply] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> _StoredReply | None:
        """The reply to a request with this key, also one that has expired."""
        return self._replies.get(key)

    def put(self, key: str, stored: _StoredReply) -> None:
        """Remember a reply as the latest."""
        self.drop(key)
        self._replies[key] = stored
        self._bytes += len(stored.body)
        while len(self._replies) > MAX_REPLIES or self._bytes > MAX_REPLIES_BYTES:
            self.drop(next(iter(self._replies)))

    def drop(self, key: str) -> None:
        """Forget a reply."""
        stored = self._replies.pop(key, None)
        self._bytes -= len(stored.body) if stored is not None else 0

    def is_over(self, now_s: float) -> bool:
        """Whether all replies have expired."""
        return all(stored.until_s <= now_s for stored in self._replies.values())


class Idempotency:
    """Remembers replies by principal and key. Principals are tokens of the settings, slices, users and plugins."""

    def __init__(self, clock: Callable[[], float], shared: SharedReplies | None = None) -> None:
        self._clock, self._shared = clock, shared
        self._stores: dict[str, _Store] = {}

    def before(self) -> Response | None:
        """The answer of before; None: go on."""
        g.idempotency = None
        key = request.headers.get(HEADER)
        if key is None or request.method != "POST":
            return None
        if not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
            return problem(400, f"{HEADER}: expected 1 to {MAX_KEY_LENGTH} printable characters")
        name, fingerprint, now_s = (g.principal, key), _fingerprint(), self._clock()
        store = self._store(g.principal, now_s)
        stored = store.get(key)
        if stored is None or stored.until_s <= now_s:
            store.put(key, _StoredReply(fingerprint, now_s + AT_WORK_S))
            g.idempotency = name
            stored = self._elsewhere(name)
            if stored is None:
                return None
            g.idempotency = None
            store.put(key, stored)
        if stored.fingerprint != fingerprint:
            return problem(422, f"{HEADER}: was used for another request")
        if not stored.status:
            answer = problem(409, f"{HEADER}: the first request with it is still at work")
            answer.headers["Retry-After"] = "1"
            return answer
        answer = Response(stored.body, status=stored.status, headers=list(stored.headers))
        answer.headers["Idempotent-Replayed"] = "true"
        return answer

    def after(self, answer: Response) -> Response:
        """Remember what was done."""
        name: _Name | None = g.get("idempotency")
        if name is None:
            return answer
        principal, key = name
        store = self._store(principal, self._clock())
        stored = store.get(key)
        if stored is None:
            return answer
        if not 200 <= answer.status_code < 300 or answer.is_streamed:
            store.drop(key)
            return answer
        headers = tuple((key, value) for key, value in answer.headers if key in ("Content-Type", "Location", "Link"))
        until_s = self._clock() + REPLY_LIFETIME_S
        stored = _StoredReply(stored.fingerprint, until_s, answer.status_code, headers, answer.get_data())
        store.put(key, stored)
        if self._shared is not None:
            self._shared.put(_shared_name(name), stored.text())
        return answer

    def _elsewhere(self, name: _Name) -> _StoredReply | None:
        """The answer that another controller has given."""
        text = self._shared.get(_shared_name(name)) if self._shared is not None else None
        return None if text is None else _StoredReply.of(text, self._clock() + REPLY_LIFETIME_S)

    def _store(self, principal: str, now_s: float) -> _Store:
        found = self._stores.get(principal)
        if found is None:
            # A reload may remove tokens: the store of a removed one is dropped after its last reply has expired.
            self._stores = {name: store for name, store in self._stores.items() if not store.is_over(now_s)}
            found = self._stores[principal] = _Store()
        return found


def _shared_name(name: _Name) -> str:
    """One text for principal and key, which tells neither."""
    return hashlib.sha256("\0".join(name).encode()).hexdigest()


def _fingerprint() -> bytes:
    digest = hashlib.sha256(request.full_path.encode())
    digest.update(b"\0" + request.get_data())
    return digest.digest()
