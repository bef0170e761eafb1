"""The controller's side of adoption: which boxes wait, which are adopted, which have left. Pure: time is an argument.

A box applies with its key, a secret (the claim) and what it is, and is *pending*. An operator adopts it as a node, and
it is *adopted*. A box that leaves, or fails to set itself up, has *left*; why is kept for an hour. :class:`Boxes` is
immutable: each change returns another one, or raises :class:`AdoptionError` and changes nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from hashlib import sha256

from .box_application import Application
from .errors import HyroadsError
from .identity import token_hash

MOST_OF_ADDRESS = 8
"""How many boxes of one network address may be pending."""
FORGET_PENDING_S, FORGET_LEFT_S = 600.0, 3600.0
"""A pending box that is silent for so long is forgotten, and one that has left so long ago."""
MOST_LEFT = 64
CLOCK_S = 12 * 3600.0
"""By how much the clock of a box may differ: its certificate is good from a day before it is made."""
CODE_LASTS_S, MOST_CODES = 3600.0, 16


class State(StrEnum):
    """What becomes of a box."""

    PENDING = "pending"
    ADOPTED = "adopted"
    LEFT = "left"


class Refusal(Enum):
    """Why something is refused."""

    UNKNOWN = "unknown"
    TAKEN = "taken"
    FULL = "full"
    WRONG = "wrong"


class AdoptionError(HyroadsError):
    """Something that a box or an operator wants is refused; ``refusal`` says why in one word, the text in one line."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        self.refusal = refusal
        super().__init__(text)


@dataclass(frozen=True)
class Adoption:
    """What an operator decided: the node, its ports (technology or ``host`` -> the box's interface), by whom, when."""

    node: str
    ports: Mapping[str, str]
    owner: str
    at_s: float
    """Unix time, as all times here."""
    certificate: str = field(repr=False, default="")
    """PEM text."""


@dataclass(frozen=True)
class Box:
    """One box. ``peer`` is the address it applied from, ``verified`` whether it knew a join code."""

    application: Application
    peer: str
    first_s: float
    seen_s: float
    verified: bool = False
    state: State = State.PENDING
    adoption: Adoption | None = None
    connected: bool = False
    """Whether its switch and agent were connected after the adoption."""
    problem: str = ""
    """Why it has left, if it said so."""

    @property
    def id(self) -> str:
        """Its name."""
        return self.application.id

    @property
    def node(self) -> str | None:
        """What it is adopted as."""
        return self.adoption.node if self.adoption is not None and self.state is State.ADOPTED else None

    def admits(self, claim: str) -> bool:
        """Whether the secret is this box's."""
        return hmac.compare_digest(token_hash(claim), self.application.claim)


@dataclass(frozen=True)
class Boxes:
    """All boxes that the controller knows, by id."""

    by_id: Mapping[str, Box] = field(default_factory=dict)
    most_pending: int = 32

    def __iter__(self) -> Iterator[Box]:
        return iter(self.by_id.values())

    # -- what boxes do

    def applied(self, application: Application, peer: str, now_s: float, *, verified: bool = False) -> Boxes:
        """A box applies, for the first time or again; a box that is adopted already stays so. One that knows a join
        code always has room, so that strangers can't keep it out.
        """
        known = self.by_id.get(application.id)
        if known is not None and known.state is not State.LEFT:
            if known.application.key != application.key or known.application.claim != application.claim:
                text = (
                    f"box {application.id} is {known.state} with another key; an operator can forget it, or use --name"
                )
                raise AdoptionError(Refusal.TAKEN, text)
            if known.state is State.ADOPTED:
                return self._with(replace(known, seen_s=now_s))
            again = replace(known, application=application, seen_s=now_s, verified=known.verified or verified)
            return self._with(again)
        twin = next(
            (box.id for box in self if box.application.key == application.key and box.state is not State.LEFT), ""
        )
        if twin:
            raise AdoptionError(Refusal.TAKEN, f"this box has joined as {twin} already")
        if not verified:
            self._check_room(peer)
        return self._with(Box(application, peer, now_s, now_s, verified))

    def seen(self, name: str, claim: str, now_s: float) -> Boxes:
        """A box polls."""
        return self._with(replace(self.claimed(name, claim), seen_s=now_s))

    def left(self, name: str, claim: str, problem: str, now_s: float) -> Boxes:
        """A box has undone everything, because its owner wants it or because of a problem; twice is as once."""
        box = self.claimed(name, claim)
        if box.state is State.LEFT:
            return self
        gone = replace(box, state=State.LEFT, problem=problem, connected=False, seen_s=now_s)
        boxes = self._with(gone)
        past = sorted((each for each in boxes if each.state is State.LEFT), key=lambda each: each.seen_s)
        return boxes._without(*(each.id for each in past[:-MOST_LEFT]))

    def claimed(self, name: str, claim: str) -> Box:
        """The box of this id whose secret is ``claim``. A guess does not show which ids there are."""
        box = self.by_id.get(name)
        if box is None or not box.admits(claim):
            raise AdoptionError(Refusal.UNKNOWN, f"box {name} is not known here: it was forgotten, or never joined")
        return box

    # -- what operators do

    def adoptable(self, name: str, node: str) -> Box:
        """The pending box of this id, if the node is free."""
        box = self.get(name)
        if box.state is not State.PENDING:
            raise AdoptionError(Refusal.TAKEN, f"box {name} is {box.state}{f' as {box.node}' if box.node else ''}")
        other = self.of_node(node)
        if other is not None:
            raise AdoptionError(Refusal.TAKEN, f"node {node} is box {other.id} already")
        return box

    def adopted(self, name: str, adoption: Adoption) -> Boxes:
        """An operator adopts a pending box."""
        box = self.adoptable(name, adoption.node)
        return self._with(replace(box, state=State.ADOPTED, adoption=adoption, connected=False))

    def confirmed(self, name: str) -> Boxes:
        """The switch and the agent of an adopted box are connected."""
        box = self.get(name)
        return self if box.connected or box.state is not State.ADOPTED else self._with(replace(box, connected=True))

    def forgotten(self, name: str) -> Boxes:
        """An operator removes a box, in whatever state."""
        return self._without(self.get(name).id)

    def get(self, name: str) -> Box:
        """The box of this id."""
        box = self.by_id.get(name)
        if box is None:
            raise AdoptionError(Refusal.UNKNOWN, f"no box {name[:64]!r}")
        return box

    def of_node(self, node: str) -> Box | None:
        """The box that is adopted as a node."""
        return next((box for box in self if box.node == node), None)

    # -- the rest

    def at(self, now_s: float) -> Boxes:
        """Without those that are silent for too long. A clock that was set back removes none."""
        old = [box.id for box in self if _is_over(box, now_s)]
        return self._without(*old) if old else self

    @property
    def tokens(self) -> dict[tuple[str, str], str]:
        """Hashes of the tokens of adopted boxes by (role, node)."""
        return {
            (role, box.node): known
            for box in self
            if box.node is not None
            for role, known in box.application.tokens.items()
        }

    def _check_room(self, peer: str) -> None:
        pending = [box for box in self if box.state is State.PENDING]
        if len(pending) >= self.most_pending:
            raise AdoptionError(
                Refusal.FULL, f"{self.most_pending} boxes are pending, as many as may be: try again later"
            )
        if sum(box.peer == peer for box in pending) >= MOST_OF_ADDRESS:
            raise AdoptionError(Refusal.FULL, f"{MOST_OF_ADDRESS} boxes of {peer} are pending, as many as may be")

    def _with(self, box: Box) -> Boxes:
        return replace(self, by_id={**self.by_id, box.id: box})

    def _without(self, *names: str) -> Boxes:
        return (
            replace(self, by_id={name: box for name, box in self.by_id.items() if name not in names}) if names else self
        )


def _is_over(box: Box, now_s: float) -> bool:
    lasts_s = {State.PENDING: FORGET_PENDING_S, State.LEFT: FORGET_LEFT_S}.get(box.state)
    return lasts_s is not None and now_s - box.seen_s > lasts_s


def check_clock(clock_s: float, now_s: float) -> None:
    """Refuse a box whose clock (Unix time, seconds) is so wrong that it would not take its certificate."""
    if abs(clock_s - now_s) > CLOCK_S:
        here, there = _date(clock_s), _date(now_s)
        text = f"the clock of the box says {here}, that of the controller {there}: set it, then join again"
        raise AdoptionError(Refusal.WRONG, text)


def _date(unix_s: float) -> str:
    """A day as YYYY-MM-DD."""
    from datetime import UTC, datetime, timedelta

    day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=max(-6e10, min(unix_s, 2.5e11)))
    return day.strftime("%Y-%m-%d")


def proof(code: str, end: str, pin: str, key: str) -> str:
    """What shows that an ``end`` (``box``, ``controller``) knows a join code and means this certificate and box key.

    ``pin`` and ``key`` are SHA-256 in hex digits, of the certificate and of the box's public key.
    """
    return hmac.new(normal_code(code).encode(), "\0".join((end, pin, key)).encode(), sha256).hexdigest()


def normal_code(code: str) -> str:
    """A join code as it counts: dashes, blanks and the size of letters do not."""
    return "".join(character for character in code.upper() if character.isalnum())


@dataclass(frozen=True)
class Codes:
    """Join codes that may still be used: code -> until when (Unix time), and the key of the box that used it."""

    live: Mapping[str, tuple[float, str | None]] = field(default_factory=dict, repr=False)

    def with_code(self, code: str, now_s: float) -> Codes:
        """One more; of too many the oldest goes."""
        newest = list(self.at(now_s).live.items())[1 - MOST_CODES :]
        return Codes(dict([*newest, (normal_code(code), (now_s + CODE_LASTS_S, None))]))

    def at(self, now_s: float) -> Codes:
        """Those that are good now."""
        return Codes({code: known for code, known in self.live.items() if known[0] > now_s})

    def used(self, shown: str, pin: str, key: str, now_s: float) -> tuple[Codes, str]:
        """A box shows a proof: the codes afterwards, and the controller's proof. A code is good for one box."""
        codes = self.at(now_s)
        for code, (until_s, user) in codes.live.items():
            if user in (None, key) and hmac.compare_digest(proof(code, "box", pin, key), shown):
                return Codes({**codes.live, code: (until_s, key)}), proof(code, "controller", pin, key)
        text = "the join code is wrong, used or too old, or something stands between the box and the controller"
        raise AdoptionError(Refusal.WRONG, text)
