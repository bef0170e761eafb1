"""The service of boxes: they wait to be adopted, and an adopted box gets its setup (docs/reference/boxes.md).

The decisions are in ``core.adoption``. Here certificates are signed, changes saved, and waiting boxes answered.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

from hyroads.controller.core.adoption import (
    Adoption,
    AdoptionError,
    Box,
    Boxes,
    Codes,
    Refusal,
    State,
    check_clock,
)
from hyroads.controller.core.adoption_saved import restored_boxes, saved_boxes
from hyroads.controller.core.box_application import HOST, Application, application_of, chosen_ports
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import dpid_name
from hyroads.controller.files.authority import ISSUED, Authority, key_digest
from hyroads.controller.files.tls import fingerprint
from hyroads.controller.model.pending_names import agent_name, switch_name
from hyroads.controller.model.state import Presence
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.settings.boxes import BoxSettings, authority_of
from hyroads.controller.settings.controller import Settings
from hyroads.rest.contract import (
    ConflictError,
    Document,
    ForbiddenError,
    NotConfirmedError,
    NotFoundError,
    NotSavedError,
    Token,
    TooBusyError,
)

from .port import ControllerPort

LOG = logging.getLogger("hyroads.boxes")
CERTIFICATE_DAYS = 825
CONFIRM_S = 10.0
POLL_S = 6.0
"""How long a box is kept waiting; a connection without a token ends after 10 s."""
LOCAL = "local"
"""The owner of an adoption where no tokens are configured."""
_CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_ERRORS: Mapping[Refusal, type[Exception]] = {
    Refusal.UNKNOWN: NotFoundError,
    Refusal.TAKEN: ConflictError,
    Refusal.FULL: TooBusyError,
    Refusal.WRONG: ForbiddenError,
}


@dataclass(frozen=True)
class Adopting:
    """What a controller that adopts boxes has: an authority, settings, and the fingerprint that boxes are shown."""

    authority: Authority
    settings: BoxSettings
    pin: str

    @staticmethod
    def of(settings: Settings, document: str) -> Adopting | None:
        """By the settings; None: no box can join. ConfigError that names ``document``."""
        if settings.boxes is None or settings.rest_tls is None:
            return None
        authority = authority_of(settings.boxes, settings.dialled_by_boxes, document)
        return Adopting(authority, settings.boxes, fingerprint(settings.rest_tls.certificate))


@dataclass(eq=False)
class BoxService:
    """One per controller. ``clock`` gives Unix time in seconds; ``adopting`` is None where no box can join."""

    port: ControllerPort
    settings: Settings
    adopting: Adopting | None
    _: KW_ONLY
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        most = self.adopting.settings.most_pending if self.adopting is not None else 0
        self.boxes = Boxes(most_pending=most)
        self._codes = Codes()
        self.tokens_changed: Callable[[], None] = lambda: None
        """Called when other tokens are good than before."""

    @property
    def tokens(self) -> Mapping[tuple[str, str], str]:
        """Hashes of the tokens of adopted boxes by (role, node)."""
        return self.boxes.tokens

    # -- the state file

    def restore(self, documents: object) -> list[ConfigError]:
        """Take in the boxes of an earlier controller; returns the problems of those that are left out."""
        self.boxes, left_out = restored_boxes(documents, self.boxes.most_pending)
        return left_out

    def become(self, documents: object) -> list[ConfigError]:
        """Boxes are those that another controller, which leads, has saved."""
        left_out = self.restore(documents)
        self.tokens_changed()
        return left_out

    def to_save(self) -> list[Document]:
        """What :meth:`restore` needs."""
        return saved_boxes(self.boxes)

    # -- what boxes do

    def apply(self, document: Mapping[str, Any], peer: str) -> tuple[Document, bool]:
        """A box applies, for the first time or again: how it stands, and whether it is new. ConfigError, ConflictError,
        ForbiddenError, NotFoundError, TooBusyError.
        """
        adopting, now_s = self._adopting(), self.clock()
        given = dict(document)
        clock_s, shown = float(given.pop("clock_s")), given.pop("code_proof", None)
        application = application_of(given, "request")
        _check_key(application)
        codes, answer = self._codes, None
        with _refusals():
            check_clock(clock_s, now_s)
            if shown is not None:
                codes, answer = codes.used(str(shown), adopting.pin, application.key, now_s)
            boxes = self.boxes.at(now_s).applied(application, peer, now_s, verified=shown is not None)
        new = application.id not in self.boxes.by_id or self.boxes.get(application.id).state is State.LEFT
        self._codes, self.boxes = codes, boxes
        self.port.note_unsaved()
        if new:
            LOG.info("box %s of %s waits to be adopted: %s", application.id, peer, application.system)
            self.port.events.publish("box.pending", {"id": application.id, "address": peer})
        return {"id": application.id, "state": boxes.get(application.id).state.value, "code_proof": answer}, new

    def wait(self, name: str, claim: str, until: str) -> Document:
        """How a box stands, once it is ``until`` (adopted, or connected) or after some seconds; NotFoundError."""
        with _refusals():
            self.boxes = self.boxes.seen(name, claim, self.clock())
        wait_until(lambda: self._stands(name, until), POLL_S, self.port.clock, self.port.progress)
        with _refusals():
            box = self.boxes.claimed(name, claim)
            self.boxes = self.boxes.seen(name, claim, self.clock())
        pending = self._waits_for(box)
        setup = self._setup(box) if box.node is not None else None
        return {"id": name, "state": box.state.value, "connected": box.connected, "pending": pending, "setup": setup}

    def _stands(self, name: str, until: str) -> bool:
        box = self.boxes.by_id.get(name)
        return (
            box is None or box.state is State.LEFT or (box.connected if until == "connected" else box.node is not None)
        )

    def leave(self, name: str, claim: str, problem: str) -> None:
        """A box has undone everything; NotFoundError, NotSavedError."""
        if self._change(name, lambda: self.boxes.left(name, claim, problem, self.clock())):
            LOG.info("box %s has left%s", name, f": {problem}" if problem else "")
            self.port.events.publish("box.left", {"id": name, "problem": problem})

    # -- rest.boxes.BoxOperations

    def names(self) -> Sequence[str]:
        """Ids of all boxes, in the order in which they came."""
        self.boxes = self.boxes.at(self.clock())
        return tuple(self.boxes.by_id)

    def documents(self, names: Sequence[str]) -> list[Document]:
        """Boxes of these ids; unknown ids are left out."""
        return [self._document(self.boxes.by_id[name]) for name in names if name in self.boxes.by_id]

    def document(self, name: str) -> Document:
        """One box; NotFoundError."""
        with _refusals():
            return self._document(self.boxes.at(self.clock()).get(name))

    def adopt(self, name: str, document: Mapping[str, Any], who: Token, *, wait: bool) -> Document:
        """A box becomes a node: the box, once its switch and agent are connected. ConfigError, ConflictError,
        NotFoundError, NotSavedError, NotConfirmedError.
        """
        node, ports = str(document["as"]), dict(document.get("ports") or {})
        with _refusals():
            known = self.boxes.get(name)
        if known.node != node:
            self._adopt(name, node, ports, who)
        if wait and not wait_until(lambda: not self.pending(name), CONFIRM_S, self.port.clock, self.port.progress):
            raise NotConfirmedError(f"box {name}", self.pending(name))
        return self.document(name)

    def _adopt(self, name: str, node: str, ports: Mapping[str, str], who: Token) -> None:
        adopting, addressing = self._adopting(), self.port.context.addressing
        if node not in self.port.context.own_switches:
            raise ConfigError("request", "as", f"expected a node with a switch of the network file, got {node[:64]!a}")
        if addressing.has_agent(node) and addressing.agent_access_port[node] != f"{node}-acc":
            raise ConfigError("request", "as", "expected a node whose id is short: its agent's ports are named by it")
        with _refusals():
            box = self.boxes.adoptable(name, node)
        there = [each for each in self._connected(node) if each]
        if there:
            raise ConflictError(f"{' and '.join(there)}: connected already, so another device is this node")
        chosen = chosen_ports(ports, self._ports(node), box.application.interfaces)
        names = [node, dpid_name(addressing.dpid[node])]
        try:
            certificate = adopting.authority.sign(box.application.request, names, days=CERTIFICATE_DAYS, box=name)
        except OSError as error:
            raise NotSavedError(f"the certificate can't be noted in {ISSUED}: {error.strerror}") from None
        adoption = Adoption(node, chosen, who.name or LOCAL, self.clock(), certificate)
        self._change(name, lambda: self.boxes.adopted(name, adoption))
        LOG.info("box %s is adopted as %s by %s", name, node, adoption.owner)
        self.port.events.publish("box.adopted", {"id": name, "node": node, "owner": adoption.owner})

    def forget(self, name: str, who: Token) -> None:
        """Remove a box: what it knows the controller by is worth nothing any more. NotFoundError, NotSavedError."""
        with _refusals():
            box = self.boxes.get(name)
        self._change(name, lambda: self.boxes.forgotten(name))
        session = self.port.switches.get(box.node or "")
        if session is not None:
            session.connection.close()
        LOG.info("box %s is forgotten, by %s", name, who.name or LOCAL)
        self.port.events.publish("box.forgotten", {"id": name, "node": box.node})

    def pending(self, name: str) -> list[str]:
        """What of an adopted box has not connected yet; ConflictError if the box has left, NotFoundError."""
        self.follow()
        with _refusals():
            box = self.boxes.get(name)
        if box.state is State.LEFT:
            raise ConflictError(f"box {name} has left: {box.problem or 'its owner wanted it'}")
        return self._waits_for(box)

    def waits(self) -> set[str]:
        """Nothing: what boxes have to do is no state of switches and agents."""
        return set()

    def follow(self) -> None:
        """Note which adopted boxes have connected."""
        for box in self.boxes:
            if box.node is not None and not box.connected and not self._waits_for(box):
                self.boxes = self.boxes.confirmed(box.id)
                self.port.note_unsaved()
                self.port.events.publish("box.connected", {"id": box.id, "node": box.node})

    # -- join codes

    def new_code(self) -> Document:
        """A code that one box may join with within an hour; NotFoundError."""
        pin = self.pin()
        letters = "".join(secrets.choice(_CODE_LETTERS) for _ in range(20))
        code = "-".join(letters[at : at + 5] for at in range(0, len(letters), 5))
        self._codes = self._codes.with_code(code, self.clock())
        return {"code": code, **pin, "expires_s": self._codes.live[letters][0]}

    def pin(self) -> Document:
        """The fingerprint by which boxes know this controller; NotFoundError."""
        return {"pin": self._adopting().pin}

    # -- inside

    def _adopting(self) -> Adopting:
        if self.adopting is None:
            raise NotFoundError("boxes can't join this controller: it has no setting boxes")
        return self.adopting

    def _change(self, name: str, decide: Callable[[], Boxes]) -> bool:
        """Boxes are those that ``decide`` returns; whether they differ. Returns once that is saved, or raises and takes
        it back.
        """
        saver = self.port.saver
        # It may wait for the disk, and other boxes may change meanwhile.
        saver.check()
        with _refusals():
            boxes = decide()
        if boxes is self.boxes:
            return False
        change = saver.change(f"box {name}", partial(self._put_back, name, self.boxes.by_id.get(name)))
        self._use(boxes)
        saver.wait(change)
        return True

    def _put_back(self, name: str, before: Box | None) -> None:
        rest = {other: box for other, box in self.boxes.by_id.items() if other != name}
        self._use(replace(self.boxes, by_id={**rest, **({name: before} if before is not None else {})}))

    def _use(self, boxes: Boxes) -> None:
        before, self.boxes = self.boxes.tokens, boxes
        if boxes.tokens != before:
            self.tokens_changed()

    def _connected(self, node: str) -> tuple[str, str]:
        """Of a node, its switch and its agent, each by name if it is connected, else empty."""
        agent = self.port.state.agents.get(node) is Presence.UP
        return switch_name(node) if node in self.port.switches else "", agent_name(node) if agent else ""

    def _waits_for(self, box: Box) -> list[str]:
        if box.node is None:
            return []
        wanted = [switch_name(box.node)]
        if self.port.context.addressing.has_agent(box.node):
            wanted.append(agent_name(box.node))
        return [each for each in wanted if each not in self._connected(box.node)]

    def _ports(self, node: str) -> dict[str, str]:
        """The controller's name of the interface by port: each technology of a node, and the access port."""
        addressing = self.port.context.addressing
        media = {k: addressing.interface_name[node, k] for k in addressing.technologies(node)}
        return {**media, HOST: addressing.access_port[node]}

    def _setup(self, box: Box) -> Document | None:
        """What an adopted box has to know. None if its node is not in the network file any more."""
        adoption, adopting, addressing = box.adoption, self._adopting(), self.port.context.addressing
        if adoption is None or adoption.node not in addressing.dpid:
            return None
        node, settings = adoption.node, self.settings
        names = self._ports(node)
        agents = {"port": settings.agents.port, "tls": settings.agents_tls is not None}
        return {
            "node": node,
            "dpid": dpid_name(addressing.dpid[node]),
            "bridge": adopting.settings.bridge,
            "ports": {
                port: {"interface": interface, "name": names[port]}
                for port, interface in adoption.ports.items()
                if port in names
            },
            "controllers": list(adopting.settings.controllers),
            "openflow": {"port": settings.openflow.port, "tls": settings.tls is not None},
            "agents": agents if addressing.has_agent(node) else None,
            "vlan_limit": 0,
            "certificate": adoption.certificate,
            "authority": adopting.authority.text,
        }

    def _document(self, box: Box) -> Document:
        application, adoption = box.application, box.adoption
        return {
            "id": box.id,
            "state": box.state.value,
            "node": box.node,
            "connected": box.connected,
            "pending": self._waits_for(box),
            "key": application.key,
            "verified": box.verified,
            "peer": box.peer,
            "system": application.system,
            "interfaces": application.document()["interfaces"],
            "ports": dict(adoption.ports) if adoption is not None else {},
            "owner": adoption.owner if adoption is not None else None,
            "joined_s": box.first_s,
            "seen_ago_s": max(0.0, self.clock() - box.seen_s),
            "problem": box.problem or None,
        }


def _check_key(application: Application) -> None:
    """ConfigError if the request is not sound, or of another key than the box says."""
    try:
        found = key_digest(application.request)
    except ValueError as error:
        raise ConfigError("request", "request", f"expected a certificate request: {error}") from error
    if found != application.key:
        raise ConfigError("request", "key", "expected the SHA-256 of the key in the request")


class _refusals:
    """Inside it what the core refuses becomes an error of the REST API."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AdoptionError):
            raise _ERRORS[error.refusal](str(error)) from error
