"""The service of multicast sessions: declares and removes them, lets hosts join and leave, shows their state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from hyroads.controller.control.sessions import Host, LiveSession, forgotten
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.services.sessions import Participant, SessionSpec, session_document, session_spec
from hyroads.controller.model.pending_names import switch_name
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.runtime.saver import Change
from hyroads.controller.services.port import pending_as_known
from hyroads.rest.contract import ConflictError, Document, NotConfirmedError, NotFoundError, TooBusyError

from .documents import session_view
from .supervisor import SessionSupervisor

CONFIRM_WITHIN_S = 5.0
MAX_SESSIONS = 256
MAX_TREES = 4096


class SessionService(SessionSupervisor):
    """One per controller; everything of it runs in green threads of one thread of the system."""

    def names(self) -> Sequence[str]:
        """Ids of all sessions in order of declaration."""
        return tuple(self.sessions)

    def documents(self, names: Sequence[str]) -> list[Document]:
        """The sessions of these ids; unknown ids are left out."""
        return [self.document(name) for name in names if name in self.sessions]

    def document(self, name: str) -> Document:
        """The session of this id; NotFoundError if there is none."""
        pending = pending_as_known(self._port, partial(self.waits_for, name), self._all_switches)
        return session_view(self._get(name), self.media, self.rates, pending)

    def _all_switches(self) -> list[str]:
        # Each of them decides who may send to the group.
        return [switch_name(node) for node in self._port.context.own_switches]

    def declare(self, document: Mapping[str, Any], *, wait: bool) -> tuple[Document, bool]:
        """The session, declared now if it is new, and whether it is. ConfigError, ConflictError, TooBusyError,
        NotConfirmedError.
        """
        spec = session_spec(document, "request")
        known, change = self.sessions.get(spec.id), None
        if known is not None:
            if known.spec != spec:
                raise ConflictError(f"session {spec.id!r} exists with other content")
        else:
            change = self._begin(spec)
        if wait:
            self._wait(spec.id, change)
        return self.document(spec.id), known is None

    def _begin(self, spec: SessionSpec) -> Change | None:
        self._port.saver.check()
        if len(self.sessions) >= MAX_SESSIONS:
            raise TooBusyError(f"there are {MAX_SESSIONS} sessions already")
        if spec.id in self._ending:
            # The labels of its last trees are still on their way out; new trees have other ones.
            self._ending[f"{spec.id} {next(self._count_endings)}"] = self._ending.pop(spec.id)
        change = self._admit(spec)
        self._port.events.publish("session.declared", session_document(spec))
        return change

    def _admit(self, spec: SessionSpec, found: Collection[Host] = (), *, is_asked: bool = True) -> Change | None:
        """Plans a session as it shall be; if somebody new can't be reached nothing changes. ``found`` are hosts that
        were heard where they are. What is asked for is taken back if it can't be saved.
        """
        with self._planning:
            before = self.sessions.get(spec.id)
            self._check(spec, {host.name for host in found})
            last = before.hosts if before is not None else ()
            after = self._planned(spec, self._hosts(LiveSession(spec, (*last, *found))))
            known = {} if before is None else before.lost
            for source, nodes in sorted(after.lost.items()):
                for node in sorted(nodes - known.get(source, frozenset())):
                    raise ConflictError(f"session {spec.id!r}: no path from {source} to {node}")
            undo = partial(self._remove, spec.id) if before is None else partial(self._admit_again, before.spec)
            change = self._port.saver.change(f"session {spec.id}", undo) if is_asked else None
            self._put(spec.id, after)
        self._improve_later()
        return change

    def _admit_again(self, spec: SessionSpec) -> None:
        """What was asked for since could not be saved: the session is as before, for all who can be reached now."""
        with self._planning:
            live = self.sessions.get(spec.id, LiveSession(spec))
            self._put(spec.id, self._planned(spec, self._hosts(LiveSession(spec, live.hosts))))
        self._improve_later()

    def _check(self, spec: SessionSpec, found: Collection[str]) -> None:
        for other in self.sessions.values():
            if other.spec.id != spec.id and other.spec.group.meets(spec.group):
                raise ConflictError(f"group {spec.group.text} is that of session {other.spec.id!r}")
        trees = sum(len(live.session.trees) for live in self.sessions.values())
        if trees + sum(one.is_source for one in spec.participants) > MAX_TREES:
            raise TooBusyError(f"there would be more than {MAX_TREES} trees")
        known = self.sessions.get(spec.id)
        for place, one in enumerate(spec.participants):
            if (
                one.name not in found
                and self._find(one.name) is None
                and (known is None or known.spec.find(one.name) is None)
            ):
                raise ConfigError("request", f"participants[{place}]", f"no host {one.name[:64]!r} is known")

    def change(self, name: str, document: Mapping[str, Any], *, wait: bool) -> Document:
        """Change participants, sources or rate; errors as of :meth:`declare`, and NotFoundError."""
        live = self._get(name)
        fixed = {"id": name, "group": live.spec.group.text}
        wanted = {**session_document(live.spec), **document, **fixed}
        if "participants" in document and "sources" not in document:
            quiet = {one.name for one in live.spec.participants if not one.is_source}
            names = wanted["participants"] if isinstance(wanted["participants"], list) else []
            wanted["sources"] = [one for one in names if one not in quiet]
        return self._become(name, session_spec(wanted, "request"), wait=wait)

    def join(self, name: str, document: Mapping[str, Any], *, wait: bool) -> Document:
        """Add a participant; errors as of :meth:`change`."""
        new = Participant(str(document.get("name", "")), document.get("source", True) is True)
        return self._become(name, self._get(name).spec.with_participant(new), wait=wait)

    def leave(self, name: str, participant: str, *, wait: bool) -> Document:
        """Remove a participant; NotFoundError, NotConfirmedError."""
        spec = self._get(name).spec
        if spec.find(participant) is None:
            raise NotFoundError(f"session {name!r} has no participant {participant[:64]!r}")
        return self._become(name, spec.without(participant), wait=wait)

    def member(self, name: str, host: Host, *, joins: bool) -> None:
        """A host joins under its MAC, or leaves under it, because it says so. HyroadsError if it can't."""
        live, mac = self._get(name), host.name
        spec = live.spec.with_participant(Participant(mac)) if joins else live.spec.without(mac)
        if spec != live.spec:
            # Where it was heard is where it is, until somebody knows better.
            self._admit(spec, [host] if joins else [], is_asked=False)
            self._port.events.publish("session.changed", session_document(spec))

    def knows(self, name: str) -> bool:
        """Whether a session is declared, planned or not."""
        return name in self.sessions or name in self._saved

    def keep(self) -> None:
        """Something else about sessions is to be saved."""
        self._port.note_unsaved()

    def _become(self, name: str, spec: SessionSpec, *, wait: bool) -> Document:
        live, change = self._get(name), None
        if spec != live.spec:
            self._port.saver.check()
            change = self._admit(spec)
            self._port.events.publish("session.changed", session_document(spec))
        if wait:
            self._wait(name, change)
        return self.document(name)

    def remove(self, name: str, *, wait: bool) -> None:
        """End a session; NotFoundError, NotConfirmedError."""
        spec = self._get(name).spec
        self._port.saver.check()
        change = self._port.saver.change(f"session {name}", partial(self._admit_again, spec))
        self._remove(name)
        if wait:
            self._wait(name, change)

    def _remove(self, name: str) -> None:
        if name not in self.sessions:
            return
        self._ending[name] = forgotten(self.sessions.pop(name))
        self.rates = {key: value for key, value in self.rates.items() if key[0] != name}
        self._count()
        self._port.note_unsaved()
        self._port.events.publish("session.removed", {"id": name})
        self._port.wake(now=True)

    def _get(self, name: str) -> LiveSession:
        live = self.sessions.get(name)
        if live is None:
            raise NotFoundError(f"no session {name[:64]!r}")
        return live

    def pending(self, name: str) -> list[str]:
        """Switches that have not confirmed a session or its end, and the state file; NotSavedError."""
        self._port.saver.check_refused(f"session {name}")
        return self.waits_for(name)

    def _wait(self, name: str, change: Change | None = None) -> None:
        def is_over() -> bool:
            is_saved = change is None or change.is_saved
            return (is_saved and not self.waits_for(name)) or (change is not None and change.refusal is not None)

        is_confirmed = wait_until(is_over, CONFIRM_WITHIN_S, self._port.clock, self._port.progress)
        if change is not None:
            change.check()
        if not is_confirmed:
            raise NotConfirmedError(f"session {name}", self.waits_for(name) or [self._port.saver.where])
