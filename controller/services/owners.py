"""Whose each thing is, and how much each token may have.

Who makes a flow, session, reservation or n-cast over REST owns it; this is saved beside the things. Access rules and
handovers carry their owner themselves, and flows of files belong to the operator.

Things are counted until they are removed, by any token. A claim is held from before a thing is made until it
is there or is not, so requests that come together can't have more than one after the other could. A claim is there
before the thing is saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.interface_graph import FloatArray
from hyroads.rest.contract import (
    COUNTED,
    OPERATOR,
    QUOTAS,
    RESERVED_AIRTIME,
    RESERVED_MBPS,
    ConflictError,
    Document,
    NotFoundError,
    NotOwnerError,
    QuotaError,
    Thing,
    Token,
)

_FEW = 8192
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Kind:
    """Things of one kind: ``exists`` says whether there is one of an id, ``owner`` whose it is where the thing itself
    says so; None: who has claimed it owns it.
    """

    exists: Callable[[str], bool]
    owner: Callable[[str], str | None] = lambda name: None


@dataclass(frozen=True, eq=False)
class ReservedLoad:
    """What one reservation takes: Mb/s in all, and the share of each link's domain, float64[L]."""

    mbps: float
    airtime: FloatArray


@dataclass(eq=False)
class OwnerService:
    """``tokens`` are those of the settings. ``sets`` gives the things that are touched together: all flows of a group
    (kind ``groups``), all handovers of a client that are not over (``clients``). ``reserved`` gives the load of each
    reservation; None: the controller is starting.
    """

    tokens: Sequence[Token]
    kinds: Mapping[str, Kind]
    sets: Mapping[str, Callable[[str], Iterable[Thing]]] = field(default_factory=dict)
    reserved: Callable[[], Mapping[str, ReservedLoad] | None] = lambda: None

    def __post_init__(self) -> None:
        self._owners: dict[Thing, str] = {}
        self._claims: Counter[Thing] = Counter()
        """How many requests are making a thing now."""
        self._most = _FEW

    # -- rest.contract.Owners

    @contextmanager
    def claim(self, thing: Thing, who: Token) -> Iterator[bool]:
        """While something is made; yields False if it is there already. QuotaError, ConflictError."""
        kind, name = thing
        if self.kinds[kind].exists(name):
            yield False
            return
        if not self._claims[thing]:
            self._check_count(kind, who)
            self._forget_gone()
            self._owners.pop(thing, None)
            if who.name:
                self._owners[thing] = who.name
        elif self._owners.get(thing, "") != who.name:
            raise ConflictError(f"another token is making {name[:64]!r}")
        self._claims[thing] += 1
        try:
            yield True
        finally:
            self._claims[thing] -= 1
            if not self._claims[thing]:
                del self._claims[thing]
                if not self.kinds[kind].exists(name):
                    self._owners.pop(thing, None)

    def check(self, thing: Thing, who: Token) -> None:
        """NotOwnerError if a thing is there and ``who`` may not change it."""
        kind, name = thing
        parts = self.sets[kind](name) if kind in self.sets else (thing,)
        for part in parts:
            if self._is_there(part) and not who.may_change_of(self.owner(part)):
                raise NotOwnerError(who.name, *part)

    def owner(self, thing: Thing) -> str:
        """Name of the token that owns a thing, or OPERATOR."""
        kind, name = thing
        return self.kinds[kind].owner(name) or self._owners.get(thing) or OPERATOR

    def _is_there(self, thing: Thing) -> bool:
        return thing in self._claims or self.kinds[thing[0]].exists(thing[1])

    # -- quotas

    def _check_count(self, kind: str, who: Token) -> None:
        limit = dict(who.quotas).get(kind)
        used = self._used(kind)[who.name] if limit is not None else 0
        if limit is not None and used >= limit:
            raise QuotaError(who.name, kind, limit, used)

    def _used(self, kind: str) -> Counter[str]:
        """How many things of a kind each token has, with those that are being made."""
        there = (thing for thing in self._owners if thing[0] == kind and self._is_there(thing))
        return Counter(map(self.owner, there))

    def _forget_gone(self) -> None:
        """Now and then: a removal that can't be saved is taken back, and the thing has its owner again."""
        if len(self._owners) >= self._most:
            self._owners = {thing: owner for thing, owner in self._owners.items() if self._is_there(thing)}
            self._most = max(_FEW, 2 * len(self._owners))

    def check_reserved(self, name: str, load: ReservedLoad) -> None:
        """Whether a reservation may have this load; QuotaError if that is beyond the quotas of who owns it."""
        owner = self.owner(("reservations", name))
        limits = dict(next((token.quotas for token in self.tokens if token.name == owner), ()))
        if not limits.keys() & {RESERVED_MBPS, RESERVED_AIRTIME}:
            return
        rest = {other: one for other, one in (self.reserved() or {}).items() if other != name}
        before, after = self._sums(owner, rest), self._sums(owner, {**rest, name: load})
        for quota, amount in after.items():
            limit = limits.get(quota)
            if limit is not None and amount > limit * (1 + _ROUNDING):
                raise QuotaError(owner, quota, limit, before[quota])

    def _sums(self, owner: str, loads: Mapping[str, ReservedLoad]) -> dict[str, float]:
        """What the reservations of a token take: Mb/s, and the share of the domain where they take most."""
        mine = [load for name, load in loads.items() if self.owner(("reservations", name)) == owner]
        busiest = np.sum([load.airtime for load in mine], axis=0).max(initial=0.0) if mine else 0.0
        return {RESERVED_MBPS: sum(load.mbps for load in mine), RESERVED_AIRTIME: float(busiest)}

    # -- rest.quotas

    def names(self) -> Sequence[str]:
        """Names of all tokens."""
        return [token.name for token in self.tokens]

    def documents(self, names: Sequence[str]) -> list[Document]:
        """Their quotas; unknown ones are left out."""
        used, loads = {kind: self._used(kind) for kind in COUNTED}, self.reserved()
        known = {token.name: token for token in self.tokens}
        return [self._document(known[name], used, loads) for name in names if name in known]

    def document(self, name: str) -> Document:
        """One token's; NotFoundError."""
        found = self.documents([name])
        if not found:
            raise NotFoundError(f"no token {name[:64]!r}")
        return found[0]

    def _document(
        self, token: Token, counts: Mapping[str, Counter[str]], loads: Mapping[str, ReservedLoad] | None
    ) -> Document:
        limits = dict(token.quotas)
        used: dict[str, float | None] = {kind: counts[kind][token.name] for kind in COUNTED}
        used |= dict.fromkeys((RESERVED_MBPS, RESERVED_AIRTIME)) if loads is None else self._sums(token.name, loads)
        quotas = [{"quota": name, "limit": limits.get(name), "used": used[name]} for name in QUOTAS]
        return {"name": token.name, "role": token.role, "quotas": quotas}

    # -- the state file

    def to_save(self) -> list[Document]:
        """What :meth:`restore` needs."""
        return [
            {"id": f"{kind}/{name}", "kind": kind, "name": name, "owner": owner}
            for (kind, name), owner in self._owners.items()
            if self._is_there((kind, name))
        ]

    def restore(self, documents: object) -> list[ConfigError]:
        """Restore the state that an earlier controller saved; returns its faults."""
        problems: list[ConfigError] = []
        for index, document in enumerate(documents if isinstance(documents, list) else ()):
            found = document if isinstance(document, Mapping) else {}
            kind, name, owner = (found.get(key) for key in ("kind", "name", "owner"))
            if kind in COUNTED and isinstance(name, str) and isinstance(owner, str) and owner:
                self._owners[kind, name] = owner
            else:
                where = f"services.quotas[{index}]"
                problems.append(ConfigError("state file", where, "expected kind, name and owner of a thing"))
        return problems

    def become(self, documents: object) -> list[ConfigError]:
        """Take the owners that the leader has saved; returns a fault for each that cannot be used."""
        self._owners = {}
        return self.restore(documents)
