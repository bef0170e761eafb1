"""What a box remembers of its joining, and what follows from it when its owner types join or leave. Pure.

The record is written before each change, with the way back, so that a box that loses its power in between can undo it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from . import strict_json
from .box_setup import Commands, MakeFolder, Run, Step
from .checking import Place, Problems
from .errors import ConfigError, HyroadsError

VERSION = 1
_KEYS = ("version", "phase", "url", "pin", "id", "claim", "tokens", "key", "node", "undo")


class Phase(StrEnum):
    """How far a box has come."""

    PENDING = "pending"
    CHANGING = "changing"
    """Steps are being taken, or taken back."""
    JOINED = "joined"


@dataclass(frozen=True)
class Before:
    """A file as it was; None: it was not there."""

    path: str
    data: bytes | None = field(repr=False)
    mode: int = 0o644
    user: int = 0
    group: int = 0


@dataclass(frozen=True)
class NoFolder:
    """A folder was not there."""

    path: str


Undo = Before | NoFolder | Commands
"""A way back; of commands those in ``undo`` count."""


@dataclass(frozen=True)
class Record:
    """``url`` and ``pin`` are the controller's, ``claim`` and ``tokens`` are secrets, ``key`` is the private key (PEM).

    ``undo`` are the ways back of the steps that were begun, the oldest first.
    """

    phase: Phase
    url: str
    pin: str
    id: str
    claim: str = field(repr=False)
    tokens: dict[str, str] = field(repr=False)
    key: str = field(repr=False)
    node: str = ""
    undo: Sequence[Undo] = ()

    def text(self) -> str:
        """As it is stored; :func:`record_of` reads it."""
        document = {
            "version": VERSION,
            **{key: getattr(self, key) for key in _KEYS[2:9]},
            "phase": self.phase.value,
            "undo": [_undo_document(each) for each in self.undo],
        }
        return json.dumps(document, indent=1) + "\n"

    def begun(self, way_back: Undo) -> Record:
        """A step is about to be taken."""
        return replace(self, phase=Phase.CHANGING, undo=[*self.undo, way_back])

    def undone(self) -> Record:
        """The latest step was taken back."""
        return replace(self, phase=Phase.CHANGING, undo=self.undo[:-1])


def way_back(step: Step, before: Before | None, *, was_there: bool) -> Undo | None:
    """How a step is taken back; ``before`` is the file of a step that writes one, ``was_there`` is of a folder."""
    if isinstance(step, Commands):
        return step
    if isinstance(step, MakeFolder):
        return None if was_there else NoFolder(step.path)
    return before


def check_again(record: Record, url: str, name: str | None, pin: str | None) -> None:
    """HyroadsError if a second join differs from what the record says: leave comes first."""
    what = f"{record.node or record.id} at {record.url}"
    state = "has joined as" if record.phase is Phase.JOINED else "is joining as"
    wrong = [("controller", url, record.url), ("name", name, record.id), ("pin", pin, record.pin)]
    for word, given, known in wrong:
        if given is not None and given != known:
            raise HyroadsError(f"this box {state} {what}: for another {word} first hyroads box leave")


def record_of(text: str, name: str) -> Record:
    """Read what :meth:`Record.text` wrote; ConfigError that names the file ``name``."""
    try:
        document = strict_json.parse(text)
    except ValueError as error:
        raise ConfigError(name, "", f"expected the record of a box: {error}") from error
    problems = Problems(name)
    section = Place(document, problems).section(_KEYS, _KEYS)
    problems.raise_if_any()
    texts = {key: str(section[key].value) for key in ("url", "pin", "id", "claim", "key", "node")}
    tokens = {role: str(entry.value) for role, entry in section["tokens"].entries()}
    phase = Phase(section["phase"].choice([each.value for each in Phase], Phase.CHANGING.value))
    try:
        undo = [_undo_of(each) for each in section["undo"].value]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(name, "undo", f"expected ways back: {error}") from error
    problems.raise_if_any()
    return Record(phase, tokens=tokens, undo=undo, **texts)


def _undo_document(undo: Undo) -> dict[str, object]:
    if isinstance(undo, Commands):
        return {"commands": [{"words": list(run.words), "if_there": run.if_there} for run in undo.undo]}
    if isinstance(undo, NoFolder):
        return {"folder": undo.path}
    data = None if undo.data is None else base64.b64encode(undo.data).decode("ascii")
    return {"file": undo.path, "data": data, "mode": undo.mode, "user": undo.user, "group": undo.group}


def _undo_of(document: dict[str, object]) -> Undo:
    match document:
        case {"commands": list(runs)}:
            return Commands((), tuple(Run(tuple(map(str, run["words"])), str(run["if_there"])) for run in runs))
        case {"folder": str(path)}:
            return NoFolder(path)
        case {"file": str(path), "data": data, "mode": int(mode), "user": int(user), "group": int(group)}:
            return Before(path, None if data is None else base64.b64decode(str(data)), mode, user, group)
    raise ValueError("unknown form")
