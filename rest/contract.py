"""What the REST API needs of the controller, and the errors that it may meet. No Ryu, no sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from hyroads.controller.core.errors import HyroadsError

PREFIX = "/api/v1"
IDENTITY = "hyroads.identity"
"""Key of the WSGI environment that holds the :class:`Token` of who asks from inside the controller: plugins, SFNet."""

PLACE = "hyroads.place"
"""Key of the WSGI environment: the place of the connection, with ``authenticated(name)``; False: it has too many."""

Document = dict[str, Any]


class NotFoundError(HyroadsError):
    """There is nothing of that id."""


class GoneError(HyroadsError):
    """There was something of that id, and nobody knows any more how it stands; the text says what to do."""


class ConflictError(HyroadsError):
    """The id is taken by something else, or what is asked for does not fit what is there.

    ``details`` are further members of the problem document.
    """

    details: Mapping[str, Any] = MappingProxyType({})


class ValueRefusedError(HyroadsError):
    """A value of the request is none that is expected; ``place`` says which."""

    def __init__(self, place: str, problem: str) -> None:
        self.place, self.problem = place, problem
        super().__init__(f"{place}: {problem}")


class TooBusyError(HyroadsError):
    """A bound is reached; later it may work."""


class TooOftenError(HyroadsError):
    """Who asks has asked for as much as may be; after ``wait_s`` seconds it may work."""

    def __init__(self, what: str, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(f"{what}: expected a pause of {wait_s:.0f} s")


class NotConfirmedError(HyroadsError):
    """Accepted, but switches or agents did not confirm in time; ``pending`` names them."""

    def __init__(self, what: str, pending: list[str]) -> None:
        self.pending = pending
        super().__init__(f"{what}: not confirmed in time by {', '.join(pending)}")


class NotSavedError(HyroadsError):
    """What was asked for could not be written to the state file, and is not in force."""


class StoreAwayError(NotSavedError):
    """The same, because etcd can't be reached or another controller leads; later it may work."""


class Listed(Protocol):
    """What a resource that is a list of things needs of the controller."""

    def names(self) -> Sequence[str]:
        """The ids of all things, in the order in which they are listed."""

    def documents(self, names: Sequence[str]) -> list[Document]:
        """The documents of those of these ids that are there."""

    def document(self, name: str) -> Document:
        """The document of one; raises NotFoundError."""


class Service(Protocol):
    """Queries and commands; documents are JSON-ready (shapes: docs/reference/rest.md). Links are long lists in large
    networks."""

    def flow_ids(self) -> Sequence[str]:
        """Ids of all flows in order of declaration."""

    def flows(self, flows: Sequence[str]) -> list[Document]:
        """Some flows; those that are (still) there."""

    def flow(self, flow: str) -> Document:
        """One flow; NotFoundError."""

    def declare_flow(self, document: Mapping[str, Any], *, wait: bool) -> tuple[Document, bool]:
        """Declare a flow; the flow and whether it is new. ConfigError, ConflictError, NotConfirmedError."""

    def flow_pending(self, flow: str) -> list[str]:
        """What has not confirmed its part of a flow; NotFoundError if it was removed."""

    def remove_flow(self, flow: str, *, wait: bool) -> None:
        """Remove a flow; NotFoundError, NotConfirmedError."""

    def removal_pending(self, flow: str) -> list[str]:
        """What has not let go of a removed flow; ConflictError if it was declared again."""

    def topology(self) -> Document:
        """Nodes and links with their state."""

    def topology_version(self) -> str:
        """The version of the topology, unlike that of any other run of the controller."""

    def netjson(self) -> Document:
        """The live network as a NetJSON NetworkGraph."""

    def nodes(self) -> list[Document]:
        """All nodes."""

    def node(self, node: str) -> Document:
        """One node; NotFoundError."""

    def links(self) -> list[Document]:
        """All links."""

    def link(self, link: str) -> Document:
        """One link; NotFoundError."""

    def link_measurements(self, link: str) -> Document:
        """What is measured of one link; NotFoundError."""

    def domains(self) -> list[Document]:
        """The distinct interference domains."""

    def paths(self, source: str, target: str, *, shortest: int, depth: int | None, arms: int) -> Document:
        """What the planner finds; NotFoundError, ValueRefusedError, TooBusyError."""

    def measurements(self) -> Document:
        """Latest reports of the agents."""

    def metrics(self) -> bytes:
        """All metrics in Prometheus' text format."""

    def health(self) -> Document:
        """What is connected, in sync, wrong."""


class ForbiddenError(HyroadsError):
    """Who asks may not do this, or not to this."""


class NotOwnerError(ForbiddenError):
    """The token may not change a thing, because another token owns it. The text does not name the owner."""

    def __init__(self, who: str, kind: str, name: str) -> None:
        what = kind.replace("_", " ").removesuffix("s")
        super().__init__(f"token {who}: {what} {name[:64]!r} belongs to another token, which has given no leave")


class QuotaError(ForbiddenError):
    """A quota of the token is used up: ``used`` of ``limit`` are in use, and the request does not fit."""

    def __init__(self, who: str, quota: str, limit: float, used: float) -> None:
        self.details = {"quota": quota, "limit": limit, "used": used}
        what = f"all {limit:.6g} are in use" if used >= limit else f"{used:.6g} of {limit:.6g} are in use"
        super().__init__(f"token {who}: quota {quota}: {what}; remove one, or ask for more")


OPERATOR = "operator"
"""The owner of things that files declare, that are made without a token, or that have no known owner."""

PLUGIN = "plugin "
"""What the names of plugins begin with as owners; tokens have no such names."""

COUNTED = ("flows", "sessions", "reservations", "ncasts")
"""Kinds of things of which tokens may have a number; each is a resource of that name."""

RESERVED_MBPS, RESERVED_AIRTIME = "reserved_mbps", "reserved_airtime"
QUOTAS = (*COUNTED, RESERVED_MBPS, RESERVED_AIRTIME)
"""Names of quotas; the last two bound what all reservations of a token take together."""

Thing = tuple[str, str]
"""Kind and id of what has an owner: ``flows``, ``sessions``, ``ncasts``, ``reservations``, ``handovers`` or
``access_rules``. The flows of a group are a thing of kind ``groups``, the handovers of a client, as long as they are
not over, one of kind ``clients``.
"""


class Owners(Protocol):
    """Knows whose each thing is, and how many each token has."""

    def claim(self, thing: Thing, who: Token) -> AbstractContextManager[bool]:
        """While something is made: whether it is new; QuotaError if ``who`` has as many already, ConflictError if
        another token is making it, too.
        """

    def check(self, thing: Thing, who: Token) -> None:
        """NotOwnerError if a thing is there and ``who`` may not change it."""

    def owner(self, thing: Thing) -> str:
        """Name of the token that owns a thing, or OPERATOR."""


class AnsweredError(HyroadsError):
    """Somebody whom we asked has refused; ``problem`` is the document to hand on."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status, self.problem = status, problem
        super().__init__(str(problem.get("detail", "")))


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token; ``role`` is one of ``access.WRITES``."""

    name: str
    token: str = field(repr=False)
    role: str
    slices: frozenset[str] = frozenset()
    """The slices that it is the owner's of."""
    clients: frozenset[str] = frozenset()
    """Of an application: hosts (node id or MAC address) for whose frames it may make access rules."""
    access_rules: int = 64
    """Of an application: how many access rules it may have."""
    quotas: tuple[tuple[str, float], ...] = ()
    """By name (``QUOTAS``): how much it may have; of the rest as much as there is room for."""
    may_change: frozenset[str] = frozenset()
    """Names of tokens whose things it may change, too; OPERATOR: what belongs to the operator."""

    def may_change_of(self, owner: str) -> bool:
        """Whether the holder may change what a token of this name owns."""
        return self.role == "admin" or owner == self.name or owner in self.may_change
