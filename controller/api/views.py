"""What REST shows as Ryu's own applications do, and the slicer that this controller is connected through, if any.

Answers have the shape of ``ofctl_rest`` and ``rest_topology``, because the framework's own functions make them from
live switches. The framework's parser is protected: messages pass the guard first, parts of an answer are counted, and a
long list of rules is parsed in pieces so that others can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.pending_names import switch_name
from hyroads.controller.ofp.wire import HEADER, MULTIPART_FLOW, MULTIPART_REPLY
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.settings.rest import SlicerPlace
from hyroads.controller.switches.sessions import SwitchSession
from hyroads.rest import contract
from hyroads.rest.client import ApiError, Client, ClientError, address
from hyroads.rest.contract import Document, Token
from hyroads.rest.endpoint import Answer
from hyroads.rest.slices import Changed

MAX_ANSWER_BYTES = 16 << 20
MAX_QUERIES = 8
# One query of a switch at a time, so that its answers can't pile up.
_REPLIES = (MULTIPART_REPLY, 23, 25)
_BODY_AT = 16

Waiters = dict[int, dict[int, tuple[Any, list[Any]]]]
"""As the framework's functions want it: switch -> transaction -> (event that is set at the end, answers)."""


@dataclass
class _Query:
    """A question to one switch."""

    received: int = 0
    refused: bool = False


class RyuQueries:
    """One per controller. ``take`` and ``refused`` are told what switches say, in the order in which they say it."""

    def __init__(self, event_loop: EventLoop) -> None:
        self._event_loop = event_loop
        self._waiters: Waiters = {}
        self._asking: dict[int, _Query] = {}

    def awaits(self, datapath: Any, message: bytes) -> bool:
        """Whether a message answers a query."""
        return HEADER.unpack_from(message)[3] in self._waiters.get(datapath.id, {})

    def take(self, datapath: Any, message: bytes) -> bool:
        """A well-formed message; True if it answers a query and is taken."""
        _, kind, length, xid = HEADER.unpack_from(message)
        waiting = self._waiters.get(datapath.id, {}).get(xid) if kind in _REPLIES else None
        query = self._asking.get(datapath.id)
        if waiting is None or query is None:
            return False
        done, answers = waiting
        query.received += length
        if query.received <= MAX_ANSWER_BYTES:
            answers.append(_answer(datapath, kind, message))
        if kind != MULTIPART_REPLY or not message[11] & 1:
            self._end(datapath.id, xid, done)
        return True

    def refused(self, datapath: Any, message: bytes) -> bool:
        """An error message; True if it is about a query, whose principal is told."""
        xid = HEADER.unpack_from(message)[3]
        waiting = self._waiters.get(datapath.id, {}).get(xid)
        query = self._asking.get(datapath.id)
        if waiting is None or query is None:
            return False
        query.refused = True
        self._end(datapath.id, xid, waiting[0])
        return True

    def _end(self, dpid: int, xid: int, done: Any) -> None:
        del self._waiters[dpid][xid]
        done.set()

    # -- questions (``rest.ryu.Queries``)

    def dpids(self) -> list[int]:
        """Of connected switches."""
        return sorted(session.connection.dpid for session in self._event_loop.switches.values())

    def ask(self, dpid: int, what: str, arguments: Mapping[str, Any]) -> Document:
        """The answer of a switch to one of the framework's queries."""
        session = self._event_loop.switches.get(self._event_loop.context.node_of_dpid.get(dpid, ""))
        if session is None:
            raise contract.NotFoundError(f"no switch {dpid}")
        problem = shim.match_problem(session.connection, arguments.get("flow", {}).get("match", {}))
        if problem is not None:
            raise contract.ValueRefusedError("match", problem)
        if dpid in self._asking or len(self._asking) >= MAX_QUERIES:
            raise contract.TooBusyError("others are asking already")
        query = self._asking[dpid] = _Query()
        try:
            answer: Document
            answer, was_told = shim.ask_switch(session.connection, what, self._waiters, arguments)
        finally:
            del self._asking[dpid]
            self._waiters.pop(dpid, None)
        if query.refused:
            raise contract.ValueRefusedError(what, "the switch refused to answer this")
        if not was_told:
            raise contract.NotConfirmedError(f"query of {what}", [switch_name(session.node)])
        if query.received > MAX_ANSWER_BYTES:
            raise contract.TooBusyError(f"the answer of switch {session.node} has more than {MAX_ANSWER_BYTES} bytes")
        return answer

    def switches(self) -> list[Document]:
        """Connected switches with their ports."""
        return [
            {"dpid": f"{session.connection.dpid:016x}", "ports": list(_ports(session).values())}
            for session in shim.cooperatively(self._sessions())
        ]

    def links(self) -> list[Document]:
        """Links that are up between connected switches; one of a shared medium is like one of its own."""
        event_loop, network = self._event_loop, self._event_loop.context.network
        ports = {session.node: _ports(session) for session in self._sessions()}
        names, found = event_loop.context.addressing.interface_name, []
        for link in shim.cooperatively(network.links):
            ends = [ports.get(n, {}).get(names.get((n, link.technology), "")) for n in (link.source, link.target)]
            if all(ends) and link.id not in event_loop.links.down:
                found.append({"src": ends[0], "dst": ends[1]})
        return found

    def hosts(self) -> list[Document]:
        """The hosts of nodes, at their access ports."""
        addressing = self._event_loop.context.addressing
        return [
            {"mac": addressing.host_mac[node], "ipv4": [addressing.host_ip[node]], "ipv6": [], "port": port}
            for node, port in (
                (session.node, _ports(session).get(addressing.access_port[session.node]))
                for session in shim.cooperatively(self._sessions())
            )
            if port is not None
        ]

    def _sessions(self) -> list[SwitchSession]:
        return sorted(self._event_loop.switches.values(), key=lambda session: session.connection.dpid)


def _ports(session: SwitchSession) -> dict[str, Document]:
    """Ports that are up, by name, in Ryu's shape."""
    dpid = f"{session.connection.dpid:016x}"
    return {
        name: {
            "dpid": dpid,
            "port_no": f"{number:08x}",
            "hw_addr": shim.port_mac(session.connection, number),
            "name": name,
        }
        for name, number in sorted(session.ports.items(), key=lambda item: item[1])
    }


class _Flows:
    """The rules of one part of an answer; parsed as they are asked for, while others run now and then."""

    def __init__(self, message: bytes) -> None:
        self.body = self._rules(message)

    @staticmethod
    def _rules(message: bytes) -> Iterator[Any]:
        place, count = _BODY_AT, 0
        while place < len(message):
            rule = shim.parse_flow(message, place)
            yield rule
            place += rule.length
            count += 1
            if count % 20 == 0:
                shim.sleep(0)


def _answer(datapath: Any, kind: int, message: bytes) -> Any:
    if kind == MULTIPART_REPLY and int.from_bytes(message[8:10]) == MULTIPART_FLOW:
        return _Flows(message)
    return shim.parse_message(datapath, message)


PRODUCTION = {
    "name": "production",
    "controllers": [],
    "permissions": ["read", "write"],
    "flowspace": [],
    "limits": {},
    "ssids": [],
}


def slices_before(place: SlicerPlace | None) -> NoSlicer | RemoteSlices:
    """What is asked about slices."""
    return NoSlicer() if place is None else RemoteSlices(place.url, place.ca)


class NoSlicer:
    """The controller is straight on the switches: every packet is production's."""

    def read(self, principal: Token, *path: str) -> Any:
        """Production alone."""
        if path == ("slices",):
            return [PRODUCTION]
        if path[:1] == ("slices",) and path[1] != PRODUCTION["name"]:
            raise contract.NotFoundError(f"there is no slice {path[1][:40]!a}")
        return PRODUCTION if len(path) == 2 else []

    def change(self, principal: Token, method: str, *path: str, document: Any = None, wait: bool = True) -> Changed:
        """There is nobody who could."""
        raise contract.ConflictError(
            "there is no slicer before this controller (setting slicer; docs/explanation/slicing.md)"
        )


@dataclass(eq=False)
class RemoteSlices:
    """Asks the slicer with the token of who asks us: what it may do is the slicer's to say."""

    url: str
    ca: str | None = None

    def read(self, principal: Token, *path: str) -> Any:
        """As the slicer answers."""
        if len(path) == 2:
            return self._ask(principal, "GET", *path).document
        with self._client(principal) as client:
            try:
                return list(client.listed(address(*path), path[-1]))
            except ClientError as error:
                raise _refused(error) from error

    def change(self, principal: Token, method: str, *path: str, document: Any = None, wait: bool = True) -> Changed:
        """As the slicer answers; what it has accepted only is an operation here, too."""
        answer = self._ask(principal, method, *path, document=document, query={} if wait else {"wait": "false"})
        if answer.status != 202:
            return Changed(answer.document)
        operation = answer.document["id"]

        def pending() -> Sequence[str]:
            found = self._ask(principal, "GET", "operations", operation).document
            return found["pending"] if found["state"] == "pending" else ()

        return Changed({}, answer.document["pending"] or ("the slicer",), pending)

    def _ask(self, principal: Token, method: str, *path: str, document: Any = None, query: Any = None) -> Answer:
        with self._client(principal) as client:
            try:
                return client.request(method, address(*path), document, query=query)
            except ClientError as error:
                raise _refused(error) from error

    def _client(self, principal: Token) -> Client:
        return Client(self.url, principal.token or None, tries=1, ca=self.ca)


def _refused(error: ClientError) -> contract.AnsweredError:
    if isinstance(error, ApiError) and error.problem:
        return contract.AnsweredError(error.status, error.problem)
    text = {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": f"the slicer: {error}"}
    return contract.AnsweredError(503, text)
