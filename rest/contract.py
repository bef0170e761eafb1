"""What the REST API needs of the controller, and the errors that it may meet. No Ryu, no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hyroads.controller.core.errors import HyroadsError

PREFIX = "/api/v1"
IDENTITY = "hyroads.identity"
"""Key of the WSGI environment that holds the :class:`Token` of who asks from inside the controller: plugins, SFNet."""

Document = dict[str, Any]


class NotFoundError(HyroadsError):
    """There is nothing of that id."""


class ConflictError(HyroadsError):
    """The id is taken by something else, or what is asked for does not fit what is there."""


class TooBusyError(HyroadsError):
    """A bound is reached; later it may work."""


class NotConfirmedError(HyroadsError):
    """Accepted, but switches or agents did not confirm in time; ``pending`` names them."""

    def __init__(self, what: str, pending: list[str]) -> None:
        self.pending = pending
        super().__init__(f"{what}: not confirmed in time by {', '.join(pending)}")


class Service(Protocol):
    """Queries and commands; documents are JSON-ready (shapes: docs/controller.md, section 2)."""

    def flows(self) -> list[Document]:
        """All flows in order of declaration."""

    def flow(self, flow: str) -> Document:
        """One flow; NotFoundError."""

    def declare_flow(self, document: Mapping[str, Any], *, wait: bool) -> tuple[Document, bool]:
        """Declare a flow; the flow and whether it is new. ConfigError, ConflictError, NotConfirmedError."""

    def remove_flow(self, flow: str, *, wait: bool) -> None:
        """Remove a flow; NotFoundError, NotConfirmedError."""

    def topology(self) -> Document:
        """Nodes and links with their state."""

    def netjson(self) -> Document:
        """The live network as a NetJSON NetworkGraph."""

    def measurements(self) -> Document:
        """Latest reports of the agents."""

    def metrics(self) -> bytes:
        """All metrics in Prometheus' text format."""

    def health(self) -> Document:
        """What is connected, in sync, wrong."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token; ``role`` is ``admin`` or ``viewer`` (reads only)."""

    name: str
    token: str = field(repr=False)
    role: str
