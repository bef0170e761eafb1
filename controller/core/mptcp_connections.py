"""Connections of MPTCP and their subflows, put together from the SYNs that edges see (:mod:`.mptcp`).

A subflow counts once both its SYN and its SYN/ACK came. The first one shows the token of the peer, the end that
answered; a join names it, and must come from the host that the connection belongs to. A peer's own join names the
client's token, which version 1 shows in no SYN: it is told by the client's address, if only one connection fits.

What two switches say may come in another order than it was sent: an answer waits for its SYN, and a join for its
connection, for ``REORDER_S``. Hosts may say what they like. Everything is bounded, overall and by host: a host that
fills a table loses its own entries, and others lose none.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from .mptcp import Kind, Syn, turned

_Key = TypeVar("_Key")
_Table = TypeVar("_Table", bound=MutableMapping[str, "Connection"])
REORDER_S = 2.0
PENDING_S = 10.0
"""The kernel sends a SYN again after 1, 3 and 7 s."""
AGAIN_S = 10.0
"""A join of a subflow as young as this is one more copy of its own SYN; later it is another subflow."""
MAX_SUBFLOWS = 16
MAX_SAME_TOKEN = 8
MAX_EARLY, MAX_EARLY_PER_HOST = 1024, 128


class Outcome(StrEnum):
    """What became of a segment with SYN. ``WAITING``: half of a handshake, whose other half has not come yet;
    ``UNANSWERED``: nor did it come in time. ``TOO_MANY``: a table is full.
    """

    PLAIN = "plain"
    WAITING = "waiting"
    CONNECTION = "connection"
    SUBFLOW = "subflow"
    REPEATED = "repeated"
    MALFORMED = "malformed"
    REFUSED = "refused"
    UNANSWERED = "unanswered"
    TOO_MANY = "too_many"


class Reason(StrEnum):
    """Why a join was refused."""

    UNKNOWN_TOKEN = "unknown token"  # noqa: S105
    OTHERS_TOKEN = "token of another client"  # noqa: S105
    OTHERS_ADDRESS = "address of another host"
    AMBIGUOUS = "several connections fit"
    TOO_MANY = "too many subflows"


class Happened(StrEnum):
    """What a notice tells."""

    CONNECTION = "connection"
    JOINED = "joined"
    LEFT = "left"
    REFUSED = "refused"


class At(NamedTuple):
    """Where frames of a host enter the network: a node, and the name of the port of its switch. ``host`` is the node of
    the network file that the frames' MAC belongs to; None: it is in no file.
    """

    node: str
    port: str
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the tables. A connection of whose subflows nothing was heard for ``forget_s`` is forgotten."""

    connections: int = 16_384
    per_client: int = 2048
    pending: int = 8192
    pending_per_host: int = 512
    forget_s: float = 3600.0


@dataclass(slots=True, eq=False)
class Subflow:
    """A TCP connection of an MPTCP connection. ``number`` is its own in the connection, ``key`` from the client's point
    of view (``mptcp.ends``). ``at`` is where the client's frames enter the network, ``peer_at`` where the peer's do.
    """

    number: int
    key: bytes
    by_peer: bool
    address_id: int
    backup: bool
    at: At
    peer_at: At
    since_s: float


@dataclass(slots=True, eq=False)
class Connection:
    """An MPTCP connection. ``client`` began it and ``peer`` answered: ids of hosts. ``token`` is the peer's."""

    id: str
    version: int
    token: int
    client: str
    peer: str
    since_s: float
    heard_s: float
    client_token: int | None = None
    begun: int = 0
    subflows: dict[bytes, Subflow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that others want to know: ``reason`` and ``host`` of a refused join, else connection and subflow."""

    what: Happened
    host: str
    connection: Connection | None = None
    subflow: Subflow | None = None
    reason: Reason | None = None
    at: At | None = None


class _Half(NamedTuple):
    """One segment of a handshake, who sent it, and where and when it came in."""

    syn: Syn
    host: str
    at: At
    since_s: float


_Asked = tuple[bytes, str]  # A SYN's key and its sender: who uses another's addresses meets only itself.
_Early = tuple[bytes, str, str]  # And who answers: nobody takes the place of the host that the SYN will go to.


class ConnectionTable:
    """Knows the MPTCP connections of a network. ``now_s`` of all methods is one monotonic clock's, in seconds.

    ``counts`` has the outcomes of all segments so far; ``notices`` what has happened and nobody has taken yet.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.counts: Counter[Outcome] = Counter()
        self.reasons: Counter[Reason] = Counter()
        self.notices: list[Notice] = []
        self.connections: OrderedDict[str, Connection] = OrderedDict()
        """Those heard longest ago come first."""
        self._pending: OrderedDict[_Asked, _Half] = OrderedDict()
        self._early: OrderedDict[_Early, _Half] = OrderedDict()
        self._unknown: OrderedDict[_Asked, tuple[float, _Half | None]] = OrderedDict()
        """Joins of unknown tokens, and their answers."""
        self._pending_of: Counter[str] = Counter()
        self._early_of: Counter[str] = Counter()
        """By the host that answers."""
        self._of_client: dict[str, OrderedDict[str, Connection]] = {}
        self._by_key: dict[bytes, tuple[Connection, Subflow]] = {}
        self._by_token: dict[int, dict[str, Connection]] = {}
        self._by_ends: dict[tuple[bytes, str], dict[str, Connection]] = {}
        """By a client's address and the peer."""

    @property
    def subflow_count(self) -> int:
        """Subflows of all connections."""
        return len(self._by_key)

    @property
    def pending_count(self) -> int:
        """Handshakes of which one half has come."""
        return len(self._pending) + len(self._early)

    # -- what comes

    def take(self, syn: Syn, host: str, to: str, at: At, now_s: float) -> Outcome:
        """A segment with SYN came in ``at`` some edge, from the MAC of ``host`` and to the MAC of the host ``to``: what
        becomes of it now.
        """
        half = _Half(syn, host, at, now_s)
        if syn.kind is Kind.MALFORMED:
            outcome = Outcome.MALFORMED
        else:
            outcome = self._answer(half, to, now_s) if syn.answers else self._ask(half, to, now_s)
        self.counts[outcome] += 1
        return outcome

    def refuse(self, reason: Reason, host: str, at: At) -> Outcome:
        """A segment with SYN is not taken into account, as somebody knows who sees more than SYNs."""
        self.counts[Outcome.REFUSED] += 1
        return self._refuse(reason, host, at)

    def touch(self, key: bytes, now_s: float) -> None:
        """A subflow has carried something, as somebody knows who sees more than its SYNs; ``key`` from either end."""
        if (found := self._find(key)) is not None:
            self._heard(found[0], now_s)

    def end(self, key: bytes) -> None:
        """A subflow is over, as somebody knows who sees more than its SYNs; ``key`` from either end."""
        if (found := self._find(key)) is not None:
            self._leave(*found)

    def become(self, connections: Iterable[Connection]) -> None:
        """From now on these are all connections, as an earlier controller knew them; nobody is told of that. Their ids
        and the keys of their subflows differ.
        """
        for old in list(self.connections.values()):
            self._forget(old)
        for connection in connections:
            subflows, begun = list(connection.subflows.values()), connection.begun
            connection.subflows = {}
            self._list(connection)
            for subflow in subflows:
                self._add(connection, subflow)
            connection.begun = begun
        self.notices.clear()

    def _find(self, key: bytes) -> tuple[Connection, Subflow] | None:
        return self._by_key.get(key) or self._by_key.get(turned(key))

    def expire(self, now_s: float) -> None:
        """Time has passed: halves of handshakes end, and connections that nobody has heard of for long."""
        while self._unknown and now_s - next(iter(self._unknown.values()))[0] >= REORDER_S:
            asked, (_, answer) = self._unknown.popitem(last=False)
            self._settle(asked, answer, now_s)
        while self._early and now_s - next(iter(self._early.values())).since_s >= REORDER_S:
            self._take_early(next(iter(self._early)))
            self.counts[Outcome.UNANSWERED] += 1
        while self._pending and now_s - (half := next(iter(self._pending.values()))).since_s >= PENDING_S:
            self._drop_pending((half.syn.key, half.host))
            self.counts[Outcome.UNANSWERED] += 1
        while self.connections:
            oldest = next(iter(self.connections.values()))
            if now_s - oldest.heard_s < self.limits.forget_s:
                break
            self._forget(oldest)

    # -- SYN

    def _ask(self, half: _Half, to: str, now_s: float) -> Outcome:
        syn, host = half.syn, half.host
        outcome = self._same_ends(half, now_s)
        if outcome is not None or syn.kind is Kind.PLAIN:
            return outcome or Outcome.PLAIN
        found = self._joined(syn, host) if syn.kind is Kind.JOIN else None
        if isinstance(found, Reason) and found is not Reason.UNKNOWN_TOKEN:
            return self._refuse(found, host, half.at)
        limits, asked = self.limits, (syn.key, host)
        if len(self._pending) >= limits.pending or self._pending_of[host] >= limits.pending_per_host:
            return Outcome.TOO_MANY
        self._pending[asked] = half
        self._pending_of[host] += 1
        if found is Reason.UNKNOWN_TOKEN:
            self._unknown[asked] = now_s, None
        early = self._take_early((syn.key, host, to))
        return Outcome.WAITING if early is None else self._complete(half, early, now_s)

    def _same_ends(self, half: _Half, now_s: float) -> Outcome | None:
        """What becomes of a SYN because of what is known of its addresses and ports; None: nothing is."""
        syn, host = half.syn, half.host
        if (syn.key, host) in self._pending:
            return Outcome.REPEATED
        if (known := self._find(syn.key)) is None:
            return None
        connection, subflow = known
        if host != (connection.peer if subflow.by_peer else connection.client):
            return self._refuse(Reason.OTHERS_ADDRESS, host, half.at)
        if syn.kind is Kind.PLAIN:
            # The ports are used again, or the kernel tries without MPTCP: the subflow that had them is over.
            self._leave(connection, subflow)
        elif syn.token is not None and syn.token in {connection.token, connection.client_token}:
            return Outcome.REPEATED if now_s - subflow.since_s < AGAIN_S else None
        return None

    def _joined(self, syn: Syn, host: str) -> Connection | Reason:
        """The connection that a join of ``host`` belongs to. RFC 8684, section 3.2: its token is its receiver's."""
        token = syn.token or 0
        if known := self._by_token.get(token):
            mine = [one for one in known.values() if host == (one.client if one.token == token else one.peer)]
            if len(mine) != 1:
                return Reason.AMBIGUOUS if mine else Reason.OTHERS_TOKEN
            return mine[0]
        size = (len(syn.key) - 4) // 2
        fits = self._by_ends.get((syn.key[size : 2 * size], host), {})
        others = [one for one in fits.values() if one.client_token is None] if len(fits) <= MAX_SUBFLOWS else []
        if len(fits) > MAX_SUBFLOWS or len(others) > 1:
            return Reason.AMBIGUOUS
        return others[0] if others else Reason.UNKNOWN_TOKEN

    # -- SYN/ACK

    def _answer(self, half: _Half, to: str, now_s: float) -> Outcome:
        key = turned(half.syn.key)
        if (asked := self._pending.get((key, to))) is not None:
            return self._complete(asked, half, now_s)
        if half.syn.kind is Kind.PLAIN:
            return Outcome.PLAIN
        # The ports of a known subflow may be used again, and the answer of another handshake come before its SYN.
        known = self._find(key) if half.syn.kind is Kind.CAPABLE else None
        if (key, to, half.host) in self._early or (known is not None and known[0].token == half.syn.token):
            return Outcome.REPEATED
        if len(self._early) >= MAX_EARLY or self._early_of[half.host] >= MAX_EARLY_PER_HOST:
            return Outcome.TOO_MANY
        self._early[key, to, half.host] = half
        self._early_of[half.host] += 1
        return Outcome.WAITING

    def _take_early(self, name: _Early) -> _Half | None:
        """The answer that waits for this SYN, which waits no longer."""
        if (half := self._early.pop(name, None)) is not None:
            self._early_of[half.host] -= 1
            if not self._early_of[half.host]:
                del self._early_of[half.host]
        return half

    def _complete(self, asked: _Half, answer: _Half, now_s: float) -> Outcome:
        """Both halves of a handshake are there."""
        syn, said, name = asked.syn, answer.syn, (asked.syn.key, asked.host)
        if said.kind is not syn.kind or (said.kind is Kind.CAPABLE and said.version != syn.version):
            # The other end speaks no MPTCP, or another version: they go on with TCP.
            self._drop_pending(name)
            return Outcome.PLAIN
        if syn.kind is Kind.CAPABLE:
            self._drop_pending(name)
            return self._begin(asked, answer, now_s)
        found = self._joined(syn, asked.host)
        if found is Reason.UNKNOWN_TOKEN and name in self._unknown:
            self._unknown[name] = asked.since_s, answer
            return Outcome.WAITING
        self._drop_pending(name)
        if isinstance(found, Reason):
            return self._refuse(found, asked.host, asked.at)
        return self._join(found, asked, answer, now_s)

    def _settle(self, name: _Asked, answer: _Half | None, now_s: float) -> None:
        """A join whose token nobody knew: by now its connection is known, or there is none."""
        if (asked := self._pending.get(name)) is None:
            return
        found = self._joined(asked.syn, asked.host)
        if answer is not None or isinstance(found, Reason):
            self._drop_pending(name)
        if isinstance(found, Reason):
            self.refuse(found, asked.host, asked.at)
        elif answer is not None:
            self.counts[self._join(found, asked, answer, now_s)] += 1

    def _drop_pending(self, name: _Asked) -> None:
        half = self._pending.pop(name)
        self._unknown.pop(name, None)
        self._pending_of[half.host] -= 1
        if not self._pending_of[half.host]:
            del self._pending_of[half.host]

    def _refuse(self, reason: Reason, host: str, at: At) -> Outcome:
        self.reasons[reason] += 1
        self.notices.append(Notice(Happened.REFUSED, host, reason=reason, at=at))
        return Outcome.REFUSED

    # -- connections

    def _begin(self, asked: _Half, answer: _Half, now_s: float) -> Outcome:
        token, client, peer = answer.syn.token or 0, asked.host, answer.host
        known = self._by_key.get(asked.syn.key)
        if known is not None and (known[0].token, known[0].client, known[0].peer) == (token, client, peer):
            return Outcome.REPEATED
        same = self._by_token.get(token, {})
        for old in [one for one in same.values() if (one.client, one.peer, one.token) == (client, peer, token)]:
            # No end has two connections with one token.
            self._forget(old)
        if len(self._by_token.get(token, ())) >= MAX_SAME_TOKEN:
            return Outcome.TOO_MANY
        self._make_room(client)
        connection = Connection(
            self._free_id(token), asked.syn.version, token, client, peer, now_s, now_s, asked.syn.token
        )
        self._list(connection)
        subflow = Subflow(0, asked.syn.key, False, 0, False, asked.at, answer.at, now_s)
        self._add(connection, subflow)
        self.notices.append(Notice(Happened.CONNECTION, client, connection, subflow))
        return Outcome.CONNECTION

    def _list(self, connection: Connection) -> None:
        self.connections[connection.id] = connection
        self._of_client.setdefault(connection.client, OrderedDict())[connection.id] = connection
        other = connection.token if connection.client_token is None else connection.client_token
        for token in {connection.token, other}:
            self._by_token.setdefault(token, {})[connection.id] = connection

    def _join(self, connection: Connection, asked: _Half, answer: _Half, now_s: float) -> Outcome:
        if len(connection.subflows) >= MAX_SUBFLOWS:
            return self._refuse(Reason.TOO_MANY, asked.host, asked.at)
        syn = asked.syn
        by_peer = syn.token != connection.token
        if by_peer and connection.client_token is None and syn.token is not None:
            connection.client_token = syn.token
            self._by_token.setdefault(syn.token, {})[connection.id] = connection
        key, first, second = (turned(syn.key), answer, asked) if by_peer else (syn.key, asked, answer)
        subflow = Subflow(connection.begun, key, by_peer, syn.address_id, syn.backup, first.at, second.at, now_s)
        self._add(connection, subflow)
        self._heard(connection, now_s)
        self.notices.append(Notice(Happened.JOINED, asked.host, connection, subflow))
        return Outcome.SUBFLOW

    def _add(self, connection: Connection, subflow: Subflow) -> None:
        known = self._find(subflow.key)
        if known is not None and known[0] is not connection:
            self._leave(*known)
        connection.begun += 1
        connection.subflows[subflow.key] = subflow
        self._by_key[subflow.key] = connection, subflow
        self._by_ends.setdefault(_address_of(connection, subflow), {})[connection.id] = connection
        if known is not None and known[0] is connection and known[1].key != subflow.key:
            self._leave(*known)
        elif known is not None and known[0] is connection:
            self.notices.append(Notice(Happened.LEFT, connection.client, *known))

    def _heard(self, connection: Connection, now_s: float) -> None:
        connection.heard_s = now_s
        self.connections.move_to_end(connection.id)
        self._of_client[connection.client].move_to_end(connection.id)

    def _make_room(self, client: str) -> None:
        """A client with more than its share loses its oldest connection; else the one that has most of all does."""
        own = self._of_client.get(client) or OrderedDict()
        full = len(self.connections) >= self.limits.connections
        if len(own) >= self.limits.per_client or (
            full and len(own) * (len(self._of_client) + (not own)) >= len(self.connections)
        ):
            self._forget(next(iter(own.values())))
        elif full:
            most = max(self._of_client.values(), key=len)
            self._forget(next(iter(most.values())))

    def _forget(self, connection: Connection) -> None:
        for subflow in list(connection.subflows.values()):
            self._leave(connection, subflow)

    def _leave(self, connection: Connection, subflow: Subflow) -> None:
        del connection.subflows[subflow.key]
        del self._by_key[subflow.key]
        mine = _address_of(connection, subflow)
        if all(_address_of(connection, other) != mine for other in connection.subflows.values()):
            _discard(self._by_ends, mine, connection.id)
        if not connection.subflows:
            del self.connections[connection.id]
            _discard(self._of_client, connection.client, connection.id)
            for token in {connection.token, connection.client_token} - {None}:
                _discard(self._by_token, token, connection.id)
        self.notices.append(Notice(Happened.LEFT, connection.client, connection, subflow))

    def _free_id(self, token: int) -> str:
        name, number = f"{token:08x}", 1
        while (found := name if number == 1 else f"{name}-{number}") in self.connections:
            number += 1
        return found

    def groups(self) -> Iterator[Connection]:
        """Connections with two subflows or more, which a network may send by different paths."""
        return (one for one in self.connections.values() if len(one.subflows) > 1)


def _address_of(connection: Connection, subflow: Subflow) -> tuple[bytes, str]:
    """The client's address in a subflow, and the peer."""
    return subflow.key[: (len(subflow.key) - 4) // 2], connection.peer


def _discard(table: dict[_Key, _Table], key: _Key | None, name: str) -> None:
    """Take a connection out of the table under ``key``; an empty table goes."""
    if key is not None and (found := table.get(key)) is not None:
        found.pop(name, None)
        if not found:
            del table[key]
