"""Which subflows the MPTCP connections of a client have, over which interfaces, and which of them are backups. Pure:
events of the kernel and states of interfaces in, commands out, time as an argument.

A connection has a subflow on each interface that its policy allows. ``full-speed`` uses all of them;
``cost-efficient`` keeps metered ones as backups while another one is there. MPTCP has no copies: in ``high-robustness``
a connection that began over hr0, where packets are copied, stays there and the others are backups; one that did not
uses all of them. In the other modes a subflow over hr0 is the backup of the others.

What the policy no longer allows becomes a backup at once, and ends when it has drained. What has lost its carrier or
its address ends at once, and the peer is told over another subflow, so that neither end waits for acknowledgements.
The last subflow of a connection is never ended.

A backup sends what has been given to it before, which may be a megabyte. So when an unmetered subflow comes to a
connection that had only metered ones, these end at once at both ends. What they have not sent goes by the new one, and
they come back as backups with nothing to send.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hyroads.controller.core.checking import describe

from .flow_match import Match
from .modes import ModeError, Modes
from .mptcp_netlink import Command, CreateSubflow, DestroySubflow, Endpoint, Event, EventKind, RemoveAddress, SetBackup
from .policy import COST_EFFICIENT, DIRECT, HIGH_ROBUSTNESS, FlowPolicy, Policy

MAX_CONNECTIONS = 4096
"""Of more connections the newest are left with the subflow that they have."""
MAX_REMOTES = 8
DRAIN_S = 1.0
"""From backup to the end of a subflow: what was sent by it has arrived, or has been sent again by another."""
RETURN_S = 1.0
"""A subflow that was ended to come back as a backup: REMOVE_ADDR of the old one must not meet the new one."""
RETELL_S = 0.5
"""Nothing acknowledges MP_PRIO (RFC 8684, section 3.3.8), so it is told twice."""
ESTABLISH_WITHIN_S = 3.0
RETRY_S = (0.2, 30.0)
STEADY_S = 5.0
"""A subflow that lived for so long was no failure."""
_MOST_ID = 255

Document = dict[str, Any]
Ends = tuple[Endpoint, Endpoint]


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of the policy as it is: ``usable`` if it is up, has a carrier and may carry something; ``addresses``
    by IP version; ``networks`` are those on its link.
    """

    name: str
    index: int
    usable: bool
    addresses: Mapping[int, str] = field(default_factory=dict)
    networks: tuple[str, ...] = ()


@dataclass(slots=True)
class _Subflow:
    """``interface`` None: hr0. ``backup`` is what the kernel was told, ``drained_s`` when it may end."""

    local: Endpoint
    remote: Endpoint
    local_id: int
    interface: str | None
    backup: bool
    since_s: float
    retell_s: float | None = None
    drained_s: float | None = None
    ended: bool = False


@dataclass(slots=True)
class _Attempt:
    """Subflows that were wanted on an interface: the end of waiting, how many have failed in a row, and what the last
    was to be.
    """

    until_s: float
    waiting: bool = False
    failures: int = 0
    backup: bool = False


@dataclass(slots=True)
class _Connection:
    token: int
    local: Endpoint
    remote: Endpoint
    established: bool = False
    ours: bool = False
    had_unmetered: bool = False
    remotes: dict[int, Endpoint] = field(default_factory=dict)
    subflows: dict[Ends, _Subflow] = field(default_factory=dict)
    attempts: dict[str, _Attempt] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    mode: str | None = None

    def id_of(self, address: str) -> int | None:
        """An address has the same id as long as the connection lives; None if there are no more."""
        taken = self.ids.values()
        if address not in self.ids:
            free = next((number for number in range(1, _MOST_ID + 1) if number not in taken), None)
            if free is None:
                return None
            self.ids[address] = free
        return self.ids[address]


class Subflows:
    """The connections of a client. ``own`` are hr0's addresses.

    After :meth:`event`, :meth:`configure` or :meth:`see`, and at :meth:`next_s`, ask :meth:`commands`.
    """

    def __init__(self, policy: Policy, modes: Modes, own: Sequence[str | None] = ()) -> None:
        self._policy, self._modes = policy, modes
        self._own = frozenset(address for address in own if address is not None)
        self._interfaces: Mapping[str, Interface] = {}
        self._connections: dict[int, _Connection] = {}
        self._due_s: dict[int, float] = {}
        self.ignored = 0
        """Connections beyond ``MAX_CONNECTIONS``."""

    @property
    def count(self) -> int:
        """How many connections there are, also those that are left alone."""
        return len(self._connections)

    def configure(self, policy: Policy, modes: Modes, own: Sequence[str | None], now_s: float) -> None:
        """Another policy, other modes, or other addresses of hr0."""
        self._policy, self._modes = policy, modes
        self._own = frozenset(address for address in own if address is not None)
        self._all_due(now_s)

    def choose(self, token: str, mode: str, now_s: float) -> None:
        """A mode for one connection, by its token as :meth:`documents` tell it. :class:`.ModeError` if
        there is none, or if it is to have copies and its flow goes direct.
        """
        found = next((each for each in self._connections.values() if f"{each.token:08x}" == token.lower()), None)
        if found is None:
            raise ModeError(f"unknown MPTCP connection {describe(token)}")
        flow = self._flow(found)
        if mode == HIGH_ROBUSTNESS and flow.via == DIRECT:
            raise ModeError(f"flow {flow.name} goes direct: {HIGH_ROBUSTNESS} needs via: waypoint")
        found.mode = mode
        self._due_s[found.token] = now_s

    def copied(self) -> list[FlowPolicy]:
        """A flow, with a match of its own, for each connection that was chosen to be robust and began over hr0: the
        packets of that subflow are to be copied.
        """
        return [
            replace(flow, name=f"{flow.name}#{each.token:08x}", match=Match.exactly(_pair(local), _pair(remote)))
            for each in self._connections.values()
            if each.mode == HIGH_ROBUSTNESS
            for local, remote in each.subflows
            if local.address in self._own
            for flow in [self._flow(each)]
        ]

    def see(self, interfaces: Mapping[str, Interface], now_s: float) -> None:
        """How the interfaces of the policy are now."""
        before, self._interfaces = self._interfaces, interfaces
        for connection in self._connections.values():
            for name, interface in interfaces.items():
                old = before.get(name)
                if interface.usable and (old is None or not old.usable or old.addresses != interface.addresses):
                    connection.attempts.pop(name, None)
        self._all_due(now_s)

    def _all_due(self, now_s: float) -> None:
        self._due_s = dict.fromkeys(self._connections, now_s)

    # What the kernel tells

    def event(self, event: Event, now_s: float) -> None:
        """An event of the kernel, in the order in which they come."""
        if event.kind in (EventKind.CREATED, EventKind.ESTABLISHED):
            self._begun(event, now_s)
        connection = self._connections.get(event.token)
        if connection is None:
            return
        self._due_s[event.token] = now_s
        if event.kind is EventKind.CLOSED:
            del self._connections[event.token], self._due_s[event.token]
        elif event.kind is EventKind.ANNOUNCED and event.remote is not None:
            if len(connection.remotes) < MAX_REMOTES or event.remote_id in connection.remotes:
                port = event.remote.port or connection.remote.port
                connection.remotes[event.remote_id] = Endpoint(event.remote.address, port)
        elif event.kind is EventKind.REMOVED:
            connection.remotes.pop(event.remote_id, None)
        elif event.local is not None and event.remote is not None:
            if event.kind is EventKind.SUBFLOW_ESTABLISHED:
                self._joined(connection, event, event.local, event.remote, now_s)
            elif event.kind is EventKind.SUBFLOW_CLOSED:
                self._parted(connection, event, event.local, event.remote, now_s)

    def _begun(self, event: Event, now_s: float) -> None:
        """A connection that this host opened; those that it accepted are their clients' business."""
        if event.server_side or event.local is None or event.remote is None:
            return
        connection = self._connections.get(event.token)
        if connection is None:
            if len(self._connections) >= MAX_CONNECTIONS:
                self.ignored += 1
                return
            connection = _Connection(event.token, event.local, event.remote)
            first = _Subflow(event.local, event.remote, 0, self._name_of(event.local), False, now_s)
            connection.subflows[event.local, event.remote] = first
            self._connections[event.token] = connection
        connection.established |= event.kind is EventKind.ESTABLISHED
        if not event.denies_join:
            connection.remotes.setdefault(0, connection.remote)

    def _joined(self, connection: _Connection, event: Event, local: Endpoint, remote: Endpoint, now_s: float) -> None:
        name = self._name_of(local, event.interface)
        attempt = connection.attempts.get(name or "", _Attempt(now_s))
        attempt.waiting, attempt.until_s, backup = False, now_s, attempt.waiting and attempt.backup
        connection.subflows[local, remote] = _Subflow(local, remote, event.local_id, name, backup, now_s)

    def _parted(self, connection: _Connection, event: Event, local: Endpoint, remote: Endpoint, now_s: float) -> None:
        gone = connection.subflows.pop((local, remote), None)
        name = self._name_of(local, event.interface) if gone is None else gone.interface
        if name is None or (gone is not None and gone.ended):
            return
        attempt = connection.attempts.setdefault(name, _Attempt(now_s))
        lived_s = 0.0 if gone is None else now_s - gone.since_s
        self._failed(attempt, now_s, failures=1 if lived_s >= STEADY_S else attempt.failures + 1)

    @staticmethod
    def _failed(attempt: _Attempt, now_s: float, failures: int) -> None:
        attempt.failures, attempt.waiting = failures, False
        attempt.until_s = now_s + min(RETRY_S[1], RETRY_S[0] * 2.0 ** min(failures - 1, 10))

    def refused(self, command: Command, now_s: float) -> None:
        """The kernel did not carry out a command: for a subflow that has ended meanwhile, mostly."""
        connection = self._connections.get(command.token)
        if connection is None:
            return
        if isinstance(command, CreateSubflow):
            name = self._name_of(command.local) or ""
            attempt = connection.attempts.setdefault(name, _Attempt(now_s))
            self._failed(attempt, now_s, attempt.failures + 1)
            self._due_s[command.token] = attempt.until_s
        elif isinstance(command, DestroySubflow):
            connection.subflows.pop((command.local, command.remote), None)
            self._due_s[command.token] = now_s

    def _name_of(self, local: Endpoint, index: int = 0) -> str | None:
        if local.address in self._own:
            return None
        for name, each in self._interfaces.items():
            if local.address in each.addresses.values() and index in (0, each.index):
                return name
        return next((name for name, each in self._interfaces.items() if index and each.index == index), None)

    # What is wanted

    def next_s(self) -> float | None:
        """When something is due; None: not before the next event."""
        return min(self._due_s.values(), default=None)

    def commands(self, now_s: float) -> list[Command]:
        """What is to be done now, in this order."""
        found: list[Command] = []
        for token in [token for token, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[token]
            connection = self._connections[token]
            if connection.established and self._is_ours(connection):
                found += self._wanted(connection, now_s)
                later = list(self._later(connection, now_s))
                if later:
                    self._due_s[token] = min(later)
        return found

    def _is_ours(self, connection: _Connection) -> bool:
        """Not those over interfaces that the policy does not name, and not those that end on a link."""
        for subflow in connection.subflows.values():
            if subflow.interface is None and subflow.local.address not in self._own:
                subflow.interface = self._name_of(subflow.local)
        if not connection.ours and (self._name_of(connection.local) or connection.local.address in self._own):
            target = ipaddress.ip_address(connection.remote.address)
            networks = (ipaddress.ip_network(one) for each in self._interfaces.values() for one in each.networks)
            connection.ours = not any(target in network for network in networks)
        return connection.ours

    def _flow(self, connection: _Connection) -> FlowPolicy:
        ends, flows = (_pair(connection.local), _pair(connection.remote)), self._policy.flows
        return next((each for each in flows if each.match.fits(*ends)), flows[-1])

    def _mode(self, connection: _Connection) -> str:
        return connection.mode or self._modes.of(self._policy, self._flow(connection))

    @property
    def _metered(self) -> set[str]:
        return {name for name, each in self._policy.interfaces.items() if each.metered}

    def _live(self, connection: _Connection) -> list[_Subflow]:
        """Established subflows over interfaces that carry."""
        return [each for each in connection.subflows.values() if not each.ended and self._carries(each)]

    def _carries(self, subflow: _Subflow) -> bool:
        if subflow.interface is None:
            return True
        interface = self._interfaces.get(subflow.interface)
        return interface is not None and interface.usable and subflow.local.address in interface.addresses.values()

    def _is_backup(self, connection: _Connection, name: str | None) -> bool:
        """Whether a subflow over an interface (None: hr0) is to be a backup."""
        allowed = self._flow(connection).interfaces
        others = [each for each in self._live(connection) if each.drained_s is None and each.interface != name]
        real = [each.interface for each in others if each.interface is not None and each.interface in allowed]
        mode = self._mode(connection)
        if name is None:
            return mode != HIGH_ROBUSTNESS and bool(real)
        if name not in allowed:
            return bool(real)
        if mode == HIGH_ROBUSTNESS:
            return any(each.interface is None for each in others)
        # Whatever the others do now: a backup that is alone carries all, and need not be told when they come back.
        saving = mode == COST_EFFICIENT and name in self._metered
        return saving and any(each not in self._metered for each in allowed)

    def _wanted(self, connection: _Connection, now_s: float) -> list[Command]:
        allowed = self._flow(connection).interfaces
        live = self._live(connection)
        settled = [each for each in live if each.interface is None or each.interface in allowed]
        for subflow in live:
            if subflow in settled:
                subflow.drained_s = None
            elif settled and subflow.drained_s is None:
                subflow.drained_s = now_s + DRAIN_S
        # Before others become backups, and before any ends, those that take over know it.
        told = sorted(self._told(connection, live, now_s), key=lambda each: each.backup)
        commands: list[Command] = [*told]
        for subflow in [each for each in connection.subflows.values() if not each.ended]:
            if subflow not in live and live:
                subflow.ended = True
                commands += [RemoveAddress(connection.token, subflow.local_id), _destroy(connection, subflow)]
            elif subflow in live and settled and subflow.drained_s is not None and subflow.drained_s <= now_s:
                subflow.ended = True
                commands.append(_destroy(connection, subflow))
        commands += self._relieved(connection, settled, now_s)
        return commands + list(self._new(connection, allowed, now_s))

    def _relieved(self, connection: _Connection, settled: Sequence[_Subflow], now_s: float) -> Iterator[Command]:
        """The metered subflows, if they were alone until now and the connection is to spare them."""
        metered = [each for each in settled if each.interface in self._metered]
        unmetered = any(each not in metered and each.interface is not None for each in settled)
        comes, connection.had_unmetered = unmetered and not connection.had_unmetered, unmetered
        if comes and self._mode(connection) == COST_EFFICIENT:
            for subflow in metered:
                subflow.ended = True
                connection.attempts[subflow.interface or ""] = _Attempt(now_s + RETURN_S)
                yield from (RemoveAddress(connection.token, subflow.local_id), _destroy(connection, subflow))

    def _told(self, connection: _Connection, live: Sequence[_Subflow], now_s: float) -> Iterator[SetBackup]:
        for subflow in live:
            backup = self._is_backup(connection, subflow.interface)
            again = subflow.retell_s is not None and subflow.retell_s <= now_s
            if backup != subflow.backup or again:
                subflow.retell_s = None if backup == subflow.backup else now_s + RETELL_S
                subflow.backup = backup
                yield SetBackup(connection.token, subflow.local, subflow.remote, backup)

    def _new(self, connection: _Connection, allowed: Sequence[str], now_s: float) -> Iterator[CreateSubflow]:
        there = {each.interface for each in self._live(connection)}
        for name in allowed:
            interface = self._interfaces.get(name)
            if name in there or interface is None or not interface.usable:
                continue
            attempt = connection.attempts.setdefault(name, _Attempt(now_s))
            if attempt.until_s > now_s:
                continue
            if attempt.waiting:
                self._failed(attempt, now_s, attempt.failures + 1)
                continue
            remote = _remote(connection, interface)
            local_id = None if remote is None else connection.id_of(interface.addresses[remote.version])
            if remote is not None and local_id is not None:
                local, backup = Endpoint(interface.addresses[remote.version]), self._is_backup(connection, name)
                attempt.waiting, attempt.until_s, attempt.backup = True, now_s + ESTABLISH_WITHIN_S, backup
                yield CreateSubflow(connection.token, local, remote, local_id, interface.index, backup)

    @staticmethod
    def _later(connection: _Connection, now_s: float) -> Iterator[float]:
        for subflow in connection.subflows.values():
            yield from (each for each in (subflow.retell_s, subflow.drained_s) if each is not None and each > now_s)
        yield from (each.until_s for each in connection.attempts.values() if each.until_s > now_s)

    def leave(self, interface: str | None) -> list[Command]:
        """Before the end: what leaves each connection one subflow, over ``interface`` if it has one there. The others
        would find no route any more.
        """
        commands: list[Command] = []
        for connection in self._connections.values():
            live = sorted(self._live(connection), key=lambda each: (each.interface != interface, each.backup))
            if not live or not connection.established or not self._is_ours(connection):
                continue
            if live[0].backup:
                commands.append(SetBackup(connection.token, live[0].local, live[0].remote, False))
            for subflow in live[1:]:
                commands += [RemoveAddress(connection.token, subflow.local_id), _destroy(connection, subflow)]
        return commands

    def documents(self) -> list[Document]:
        """The connections for the status: by token, the policy's flow, mode, where to, and the subflows."""
        return [
            {
                "token": f"{each.token:08x}",
                "name": self._flow(each).name,
                "mode": self._mode(each),
                "source": str(each.local),
                "destination": str(each.remote),
                "subflows": [_document(subflow) for subflow in each.subflows.values() if not subflow.ended],
            }
            for each in self._connections.values()
            if each.established and self._is_ours(each)
        ]


def _document(subflow: _Subflow) -> Document:
    return {
        "interface": subflow.interface,
        "source": str(subflow.local),
        "destination": str(subflow.remote),
        "backup": subflow.backup,
        "draining": subflow.drained_s is not None,
    }


def _destroy(connection: _Connection, subflow: _Subflow) -> DestroySubflow:
    return DestroySubflow(connection.token, subflow.local, subflow.remote)


def _remote(connection: _Connection, interface: Interface) -> Endpoint | None:
    """Where a new subflow from an interface goes: to the address of the connection, else to one that was announced."""
    found = (each for _, each in sorted(connection.remotes.items()) if each.version in interface.addresses)
    return next(found, None)


def _pair(end: Endpoint) -> tuple[str, int]:
    return end.address, end.port
