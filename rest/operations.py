"""Operations: what was accepted and is not confirmed yet, to be asked for at ``/api/v1/operations/{id}``.

An operation is looked at when somebody asks for it; once it came to an end it stays there.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flask import Response, current_app
from flask.typing import ResponseReturnValue
from hyroads.controller.core.errors import HyroadsError
from hyroads.rest import schemas
from hyroads.rest.contract import PREFIX, Document, NotConfirmedError, NotFoundError
from hyroads.rest.paging import page
from hyroads.rest.replies import reply
from hyroads.rest.resource import Resource

MAX_KEPT = 2048
ADDRESS = f"{PREFIX}/operations"
EXTENSION = "hyroads.operations"

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
    reason: str | None = None
    finished_s: float | None = None

    def look(self, now_s: float) -> None:
        """Find out how it stands."""
        if self.state != "pending":
            return
        try:
            self.pending = tuple(self.poll())
        except HyroadsError as error:
            self.state, self.reason, self.pending = "failed", str(error), ()
        else:
            self.state = "pending" if self.pending else "confirmed"
        self.finished_s = None if self.state == "pending" else now_s

    def document(self) -> Document:
        """As it is answered."""
        return {
            "id": self.id,
            "what": self.what,
            "resource": self.resource,
            "state": self.state,
            "pending": list(self.pending),
            "reason": self.reason,
            "created_s": self.created_s,
            "finished_s": self.finished_s,
        }


class Operations:
    """The latest operations; of too many the oldest are forgotten."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, _Operation] = OrderedDict()

    def start(self, what: str, resource: str | None, poll: Poll) -> Document:
        """Something was accepted."""
        operation = _Operation(secrets.token_hex(8), what, resource, self._clock(), poll)
        self._kept[operation.id] = operation
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return self.document(operation.id)

    @property
    def ids(self) -> Sequence[str]:
        """Oldest first."""
        return tuple(self._kept)

    def documents(self, operations: Sequence[str]) -> list[Document]:
        """How these stand now."""
        return [self.document(operation) for operation in operations]

    def document(self, operation: str) -> Document:
        """How one stands now; NotFoundError."""
        found = self._kept.get(operation)
        if found is None:
            raise NotFoundError(f"no operation {operation[:64]!r}")
        found.look(self._clock())
        return found.document()


def accepted(what: str, resource: str | None, poll: Poll) -> Response:
    """202: an operation was begun, its address is told, and the address of what it is about."""
    operations: Operations = current_app.extensions[EXTENSION]
    document = operations.start(what, resource, poll)
    return reply(document, 202, location=f"{ADDRESS}/{document['id']}")


def confirmed(do: Callable[[], Response | None], later: Callable[[], Response], *, wait: bool = True) -> Response:
    """What ``do`` answers if it is confirmed; else ``later``, an operation: where nobody waits, where ``do`` says that
    it is not confirmed, or where it has nothing to answer yet.
    """
    try:
        answer = do()
    except NotConfirmedError:
        return later()
    return answer if answer is not None and wait else later()


def blueprint(operations: Operations) -> Resource:
    """The resource ``operations``."""
    blueprint = Resource("operations", url_prefix=ADDRESS, description="What is not confirmed yet")

    @blueprint.get("")
    @blueprint.arguments(schemas.PageQuery, location="query")
    @blueprint.response(200, schemas.OperationList)
    def list_operations(query: dict[str, object]) -> ResponseReturnValue:
        """The latest operations, oldest first."""
        return page("operations", operations.ids, operations.documents, query)

    @blueprint.get("/<operation>")
    @blueprint.response(200, schemas.OperationSchema)
    @blueprint.alt_response(404, schema=schemas.ProblemSchema)
    def show_operation(operation: str) -> ResponseReturnValue:
        """One operation: pending (and what has not confirmed), confirmed or failed (and why)."""
        return reply(operations.document(operation))

    return blueprint
