"""Requests to etcd by its JSON gateway (``etcd3gw``), blocking: for threads of the system, never for green threads.

A request goes to the member that answered last, and to the others in turn if that one does not answer in time. What
became of a transaction that nobody answered is not known; whoever asks reads afterwards what is there.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from etcd3gw import Etcd3Client
from etcd3gw.exceptions import Etcd3Exception
from etcd3gw.lease import Lease
from requests.adapters import HTTPAdapter

from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.identity import CertificateRole
from hyroads.controller.files.tls import client_side
from hyroads.controller.framework.tls_client import require_role

from .election import Campaign, HandOver, Identity, Member, Owner, Restore, Seen
from .store import INTENTS, MAX_KEYS, Compare, Delete, Keys, Operation, Put, Transaction

OWNER, EPOCH, STAMP, SCHEMA_KEY, MEMBERS = "owner", "epoch", "stamp", "schema", "members/"
REPLIES, REPLIES_S, REPLIES_TOGETHER_S = "replies/", 24 * 3600, 4 * 3600
MAX_MEMBERS = 64
CONNECT_S = 0.3
"""How long a connection with a member may take, if a request may take longer."""
_API = "/v3/"
_NO_ANSWER = (Etcd3Exception, requests.RequestException, OSError, ValueError, LookupError, TypeError, AttributeError)
"""Raised by a request, or by an answer that makes no sense."""
Result = TypeVar("Result")
_Json = dict[str, Any]


class EtcdError(HyroadsError, OSError):
    """No member of etcd answered in time."""


class StaleEpochError(HyroadsError, OSError):
    """Another controller leads by now: nothing was written."""


@dataclass(frozen=True, slots=True)
class _Value:
    key: str
    text: str
    revision: int
    lease: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """To a transaction: ``parts`` are the values of each range that was read, ``counts`` how many keys are in it."""

    succeeded: bool
    revision: int
    parts: tuple[list[_Value], ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """The intents. ``names`` are all keys that are there, None if none has gone; ``values`` are those that were asked
    for, all or the new ones.
    """

    values: Keys
    names: frozenset[str] | None
    stamp: int
    revision: int


class Etcd:
    """One user of it; not for several threads at a time. ``prefix`` is the network's, and ends with a slash."""

    def __init__(self, urls: Sequence[str], prefix: str, timeout_s: float, tls: TlsFiles | None = None) -> None:
        self.prefix = prefix
        self._clients = [_client(url, timeout_s, tls) for url in urls]
        self._at = 0
        self._replies_lease, self._replies_until_s = 0, 0.0

    # -- leases

    def grant(self, ttl_s: int) -> int:
        """A new lease; EtcdError."""
        return self._ask(lambda client: client.lease(ttl_s).id)

    def keep(self, lease: int) -> bool:
        """Whether a lease still lives, for as long as when it was granted; EtcdError."""
        return self._ask(lambda client: Lease(lease, client).refresh()) > 0

    def revoke(self, lease: int) -> None:
        """End a lease, and all keys that live by it; EtcdError."""
        self._ask(lambda client: client.post(client.get_url("/lease/revoke"), json={"ID": lease}))

    # -- who leads

    def seen(self) -> Seen:
        """What there is of the election; EtcdError."""
        keys = (OWNER, EPOCH, STAMP, SCHEMA_KEY)
        reads = [_range(self.prefix + key) for key in keys]
        members = _range(self.prefix + MEMBERS, prefix=True, limit=MAX_MEMBERS)
        answer = self._transact((), (*reads, members))
        owner, epoch, stamp, schema = (values[0] if values else None for values in answer.parts[:4])
        members_found = [(value, _member(value)) for value in answer.parts[4]]
        found = [member for _, member in members_found if member is not None]
        broken = [value for value, member in members_found if member is None]
        broken += [owner] if owner is not None and not _owner(owner).name else []
        broken += [value for value in (epoch, schema) if value is not None and not _is_number(value)]
        return Seen(
            revision=answer.revision,
            owner=None if owner is None else _owner(owner),
            epoch=_number(epoch),
            epoch_revision=epoch.revision if epoch else 0,
            schema=_number(schema),
            stamp=stamp.revision if stamp else 0,
            members={member.identity.name: member for member in found},
            broken=frozenset(value.key[len(self.prefix) :] for value in broken),
        )

    def register(self, member: Member) -> bool:
        """Make an instance known under its lease, unless another one of its name is; EtcdError."""
        key = self.prefix + MEMBERS + member.identity.name
        put = Put(key, json.dumps(_document(member)), member.lease)
        if self._try(Transaction((Compare(key),), (put,))):
            return True
        (values,) = self._transact((), (_range(key),)).parts
        if not values or (found := _member(values[0])) is None or found.identity.boot != member.identity.boot:
            return False
        return self._try(Transaction((Compare(key, revision=values[0].revision),), (put,)))

    def campaign(self, action: Campaign, me: Member) -> bool:
        """Become the owner; whether that was done. EtcdError: perhaps."""
        compares = (
            Compare(self.prefix + OWNER, revision=action.owner_revision),
            Compare(self.prefix + EPOCH, revision=action.epoch_revision),
        )
        return self._try(Transaction(compares, self._owned(action.epoch, me)))

    def restore(self, action: Restore, me: Member) -> bool:
        """Put the owner's key again; whether that was done. EtcdError: perhaps."""
        epoch = Compare(self.prefix + EPOCH, revision=action.epoch_revision)
        return self._try(Transaction((Compare(self.prefix + OWNER), epoch), self._owned(action.epoch, me)[:1]))

    def hand_over(self, action: HandOver) -> bool:
        """Make another one the owner, under its lease; whether that was done. EtcdError: perhaps."""
        compares = (
            Compare(self.prefix + OWNER, revision=action.owner_revision),
            Compare(self.prefix + EPOCH, revision=action.epoch_revision),
        )
        return self._try(Transaction(compares, self._owned(action.epoch, action.to)))

    def _owned(self, epoch: int, by: Member) -> tuple[Put, Put]:
        document = {**_document(by), "epoch": epoch}
        return Put(self.prefix + OWNER, json.dumps(document), by.lease), Put(self.prefix + EPOCH, str(epoch))

    def has_epoch(self, epoch: int) -> Compare:
        """That nobody leads with a later one."""
        return Compare(self.prefix + EPOCH, value=str(epoch))

    # -- the state

    def intents(self) -> Read:
        """Keys below ``intents/`` and their values; EtcdError."""
        prefix = self.prefix + INTENTS
        answer = self._transact((), [_range(self.prefix + STAMP), _range(prefix, prefix=True, limit=MAX_KEYS)])
        read = self._read(answer)
        return replace(read, names=frozenset(read.values))

    def changes(self, since: int, known: Collection[str]) -> Read:
        """The values of keys that were changed after a revision, of which these were ``known``; EtcdError.

        What is not there any more was changed by nobody. Names are asked for only if there are fewer than there were:
        with thousands of flows they are a megabyte.
        """
        prefix = self.prefix + INTENTS
        new = [_range(self.prefix + STAMP), _range(prefix, prefix=True, limit=MAX_KEYS, since=since)]
        answer = self._transact((), [*new, _range(prefix, prefix=True, counts=True)])
        read = self._read(answer)
        if answer.counts[-1] == len(known) + sum(key not in known for key in read.values):
            return read
        answer = self._transact((), [*new, _range(prefix, prefix=True, limit=MAX_KEYS, names=True)])
        names = frozenset(value.key[len(self.prefix) :] for value in answer.parts[-1])
        return replace(self._read(answer), names=names)

    def _read(self, answer: _Answer) -> Read:
        stamp, values, *_ = answer.parts
        texts = {value.key[len(self.prefix) :]: value.text for value in values}
        return Read(texts, None, stamp[0].revision if stamp else 0, answer.revision)

    def write(self, transaction: Transaction) -> int:
        """Carry out a transaction that compares our epoch; the revision. StaleEpochError; EtcdError: perhaps it was."""
        answer = self._transact(transaction.compares, tuple(_operation(one) for one in transaction.operations))
        if not answer.succeeded:
            raise StaleEpochError("another controller leads by now")
        return answer.revision

    # -- answers to requests with an idempotency key

    def reply(self, name: str) -> str | None:
        """What :meth:`put_reply` put; EtcdError."""
        (values,) = self._transact((), (_range(self.prefix + REPLIES + name),)).parts
        return values[0].text if values else None

    def put_reply(self, name: str, text: str, epoch: int) -> None:
        """An answer, for a day or two; StaleEpochError, EtcdError."""
        now_s = time.monotonic()
        if not self._replies_lease or now_s > self._replies_until_s:
            # One lease for all answers of some hours.
            self._replies_lease, self._replies_until_s = (
                self.grant(REPLIES_S + REPLIES_TOGETHER_S),
                now_s + REPLIES_TOGETHER_S,
            )
        put = Put(self.prefix + REPLIES + name, text, self._replies_lease)
        self.write(Transaction((self.has_epoch(epoch),), (put,)))

    # -- requests

    def _try(self, transaction: Transaction) -> bool:
        operations = tuple(_operation(one) for one in transaction.operations)
        return self._transact(transaction.compares, operations).succeeded

    def _transact(self, compares: Sequence[Compare], operations: Sequence[_Json]) -> _Answer:
        body = {"compare": [_compare(one) for one in compares], "success": list(operations), "failure": []}
        # What can't be understood is as good as no answer.
        return self._ask(lambda client: _answer(client.transaction(body), operations))

    def _ask(self, request: Callable[[Etcd3Client], Result]) -> Result:
        """What a member answers. Each is tried once, and the first again: its connection may have been an old one."""
        failure: Exception | None = None
        for step in range(len(self._clients) + 1):
            at = (self._at + step) % len(self._clients)
            try:
                answer = request(self._clients[at])
            except _NO_ANSWER as error:
                failure = error
            else:
                self._at = at
                return answer
        detail = getattr(failure, "detail_text", None) or str(failure)
        asked = ", ".join(client.base_url for client in self._clients)
        raise EtcdError(f"etcd does not answer at {asked}: {type(failure).__name__}: {detail[:200]}")


class _MemberAdapter(HTTPAdapter):
    """Ends connections in the handshake unless the server's certificate has the role of etcd."""

    def __init__(self, tls: TlsFiles) -> None:
        self._context = client_side(tls, "settings", "ha.tls")
        require_role(self._context, CertificateRole.ETCD)
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        """Called by :class:`HTTPAdapter`."""
        super().init_poolmanager(*arguments, **keywords, ssl_context=self._context)


def _client(url: str, timeout_s: float, tls: TlsFiles | None) -> Etcd3Client:
    parts = urlsplit(url)
    session = requests.Session()
    # Proxies of the environment are not for etcd.
    session.trust_env = False
    if tls is not None:
        session.mount("https://", _MemberAdapter(tls))
        session.cert = (tls.certificate, tls.key)
        session.verify = tls.ca if tls.ca is not None else True
    host, port = parts.hostname or "", parts.port or 2379
    # A machine that is gone does not answer at all; requests take both times.
    timeouts: Any = min(timeout_s, CONNECT_S), timeout_s
    return Etcd3Client(host, port, parts.scheme, timeout=timeouts, api_path=_API, session=session)


def _answer(answer: Any, operations: Sequence[_Json]) -> _Answer:
    """What an answer to a transaction says; KeyError, TypeError, ValueError if it is none."""
    succeeded, responses = answer.get("succeeded") is True, answer.get("responses", [])
    if succeeded and len(responses) != len(operations):
        raise ValueError(f"expected {len(operations)} answers, got {len(responses)}")
    parts = tuple(_values(one) for one in responses if "response_range" in one) if succeeded else ()
    reads = sum("request_range" in one for one in operations)
    if succeeded and len(parts) != reads:
        raise ValueError(f"expected {reads} ranges, got {len(parts)}")
    counts = (int(one["response_range"].get("count", 0)) for one in responses if "response_range" in one)
    return _Answer(succeeded, int(answer["header"]["revision"]), parts, tuple(counts) if succeeded else ())


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _text(coded: str) -> str:
    return base64.b64decode(coded, validate=True).decode("utf-8", "replace")


def _end(prefix: str) -> str:
    """The first key after all that begin with a prefix, which ends with an ASCII character."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _range(
    key: str, *, prefix: bool = False, limit: int = 1, since: int = 0, names: bool = False, counts: bool = False
) -> _Json:
    found: _Json = {"key": _coded(key), "limit": limit}
    if prefix:
        found["range_end"] = _coded(_end(key))
    if since:
        found["min_mod_revision"] = since + 1
    if names:
        found["keys_only"] = True
    if counts:
        found["count_only"] = True
    return {"request_range": found}


def _compare(compare: Compare) -> _Json:
    key: _Json = {"key": _coded(compare.key), "result": "EQUAL"}
    if compare.value is not None:
        return {**key, "target": "VALUE", "value": _coded(compare.value)}
    return {**key, "target": "MOD", "mod_revision": compare.revision}


def _operation(operation: Operation) -> _Json:
    if isinstance(operation, Delete):
        return {"request_delete_range": {"key": _coded(operation.key)}}
    put: _Json = {"key": _coded(operation.key), "value": _coded(operation.value)}
    return {"request_put": {**put, "lease": operation.lease} if operation.lease else put}


def _values(response: Mapping[str, Any]) -> list[_Value]:
    found = response["response_range"].get("kvs", [])
    return [
        _Value(_text(one["key"]), _text(one.get("value", "")), int(one["mod_revision"]), int(one.get("lease", 0)))
        for one in found
    ]


def _number(value: _Value | None) -> int:
    return int(value.text) if value is not None and _is_number(value) else 0


def _is_number(value: _Value) -> bool:
    return value.text.isascii() and value.text.isdigit() and len(value.text) < 20


def _document(member: Member) -> _Json:
    me = member.identity
    return {"name": me.name, "boot": me.boot, "rest": me.rest, "peer": me.peer, "schema": me.schema,
            "lease": str(member.lease), "draining": member.draining}  # fmt: skip


def _member(value: _Value) -> Member | None:
    """What an instance has put; None if it can't be understood."""
    found = _loaded(value.text)
    match found:
        case {"name": str(name), "boot": str(boot), "rest": str(rest), "peer": str(peer), "schema": int(schema)}:
            return Member(Identity(name, boot, rest, peer, schema), value.lease, found.get("draining") is True)
    return None


def _owner(value: _Value) -> Owner:
    """Whoever it is; one that can't be understood has no name, and is taken over from like any other."""
    match _loaded(value.text):
        case {"name": str(name), "boot": str(boot), "epoch": int(epoch), "rest": str(rest), "peer": str(peer)}:
            return Owner(name, boot, epoch, value.revision, rest, peer)
    return Owner("", "", 0, value.revision)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
