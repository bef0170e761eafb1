"""Quotas of tokens: who has made which flows, sessions, reservations and n-casts, and how many each may have.

Things are counted as long as they are there, whoever removes them. A claim is held from before a thing is made until it
is there or is not, so requests that come together can't have more than one after the other could. Who has made what is
saved with the things themselves: a claim is there before these are saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hyroads.controller.core.errors import ConfigError
from hyroads.rest.contract import QUOTAS, Document, NotFoundError, QuotaError, Token

_Key = tuple[str, str]
"""Kind and id of a thing."""


@dataclass(eq=False)
class QuotaService:
    """``exists`` says of each kind whether there is a thing of that id. ``tokens`` are those of the settings."""

    tokens: Sequence[Token]
    exists: Mapping[str, Callable[[str], bool]]

    def __post_init__(self) -> None:
        self._owners: dict[_Key, str] = {}
        self._claims: Counter[_Key] = Counter()
        """How many requests are making a thing now."""

    @contextmanager
    def claim(self, kind: str, name: str, who: Token) -> Iterator[None]:
        """While something is made, unless it is there already; QuotaError if ``who`` has as many as it may have."""
        key = (kind, name)
        if self.exists[kind](name):
            yield
            return
        if not self._claims[key]:
            limit = dict(who.quotas).get(kind)
            self._owners.pop(key, None)
            if limit is not None and self._used(kind)[who.name] >= limit:
                raise QuotaError(who.name, kind, limit)
            if who.name:
                self._owners[key] = who.name
        self._claims[key] += 1
        try:
            yield
        finally:
            self._claims[key] -= 1
            if not self._claims[key]:
                del self._claims[key]
            if self.exists[kind](name):
                if who.name:
                    self._owners.setdefault(key, who.name)
            elif key not in self._claims:
                self._owners.pop(key, None)

    def _used(self, kind: str) -> Counter[str]:
        """How many things of a kind each token has, with those that are being made; what is gone is forgotten."""
        gone = [key for key in self._owners if key[0] == kind and not self._is_there(key)]
        for key in gone:
            del self._owners[key]
        return Counter(owner for (of, _), owner in self._owners.items() if of == kind)

    def _is_there(self, key: _Key) -> bool:
        return key in self._claims or self.exists[key[0]](key[1])

    # -- rest.quotas

    def names(self) -> Sequence[str]:
        """Names of all tokens."""
        return [token.name for token in self.tokens]

    def documents(self, names: Sequence[str]) -> list[Document]:
        """Their quotas; unknown ones are left out."""
        used = {kind: self._used(kind) for kind in QUOTAS}
        known = {token.name: token for token in self.tokens}
        return [_document(known[name], used) for name in names if name in known]

    def document(self, name: str) -> Document:
        """One token's; NotFoundError."""
        found = self.documents([name])
        if not found:
            raise NotFoundError(f"no token {name[:64]!r}")
        return found[0]

    # -- the state file

    def to_save(self) -> list[Document]:
        """What :meth:`restore` needs."""
        return [
            {"id": f"{kind}/{name}", "kind": kind, "name": name, "owner": owner}
            for (kind, name), owner in self._owners.items()
            if self._is_there((kind, name))
        ]

    def restore(self, documents: object) -> list[ConfigError]:
        """Take in what an earlier controller has saved; returns what is wrong with it."""
        problems: list[ConfigError] = []
        for index, document in enumerate(documents if isinstance(documents, list) else ()):
            found = document if isinstance(document, Mapping) else {}
            kind, name, owner = (found.get(key) for key in ("kind", "name", "owner"))
            if kind in QUOTAS and isinstance(name, str) and isinstance(owner, str) and owner:
                self._owners[kind, name] = owner
            else:
                where = f"services.quotas[{index}]"
                problems.append(ConfigError("state file", where, "expected kind, name and owner of a thing"))
        return problems

    def become(self, documents: object) -> list[ConfigError]:
        """Owners are those that another controller, which leads, has saved; what is wrong with some of them."""
        self._owners = {}
        return self.restore(documents)


def _document(token: Token, used: Mapping[str, Counter[str]]) -> Document:
    limits = dict(token.quotas)
    quotas = [{"quota": kind, "limit": limits.get(kind), "used": used[kind][token.name]} for kind in QUOTAS]
    return {"name": token.name, "role": token.role, "quotas": quotas}
