"""The access point's wireless configuration as a part of snmpd: what is read, what a SET does, what is kept.

A SET is tested on the configuration in force, carried out by the back end when snmpd commits it, and kept in a file
once it is done. If the back end refuses, the configuration is as before and the manager hears commitFailed; why is said
in ``hyroadsWirelessProblem``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hyroads.controller.files.private import write_atomically

from .agentx import AgentXError, Session
from .mib import Oid, Table, Value
from .wireless import (
    RadioAbilities,
    Report,
    Wireless,
    WirelessError,
    document_of,
    first_of,
    made_up_mac,
    restored,
    with_addresses,
)
from .wireless_mib import COMMIT_FAILED, INCONSISTENT_VALUE, UNDO_FAILED, WIRELESS, SetError, Shown, objects, tried

LOOK_EVERY_S = 2.0
MOST_PATIENCE_S = 60.0
RETRY_S = 0.5
MAX_STATE_BYTES = 1 << 20


class Backend(Protocol):
    """Who carries it out."""

    def apply(self, wanted: Wireless, before: Wireless) -> None:
        """:class:`WirelessError`: it is as before."""

    def begin(self, wanted: Wireless, radios: set[str]) -> None:
        """These radios anew; :class:`WirelessError` if some of them could not."""

    def wrong(self, wanted: Wireless, first: bool) -> set[str]:
        """The radios that are not as wanted; :class:`WirelessError` if that can't be known."""

    def report(self, wanted: Wireless) -> Report:
        """What is on the air."""


class WirelessObjects(Table):
    """The wireless part of HYROADS-MIB as it is now, and the steps of a SET."""

    def __init__(
        self,
        abilities: Mapping[str, RadioAbilities],
        backend: Backend,
        state: Path | None,
        complain: Callable[[str], None],
        index_of: Callable[[str], int | None],
    ) -> None:
        self._abilities = abilities
        self._backend = backend
        self._state = state
        self._complain = complain
        self._index_of = index_of
        self._macs = {name: able.mac or own_mac(name) for name, able in abilities.items()}
        self.wireless = self._addressed(self._restored())
        self._before: Wireless | None = None
        self._wanted: Wireless | None = None
        self._problem = ""
        self._first = True
        self._look_s = self._begin_s = 0.0
        self._patience_s = LOOK_EVERY_S
        self._report = Report()
        super().__init__(objects(self._shown()))

    def look(self, now_s: float) -> None:
        """Now and then: what is on the air, and doing anew what was lost or failed at the start."""
        if now_s < self._look_s:
            return
        self._look_s = now_s + LOOK_EVERY_S
        try:
            wrong = self._backend.wrong(self.wireless, self._first)
            self._first = False
            if not wrong:
                self._patience_s = LOOK_EVERY_S
            elif now_s >= self._begin_s:
                # What is refused takes stations off the air each time it is tried.
                self._begin_s, self._patience_s = now_s + self._patience_s, min(MOST_PATIENCE_S, 2 * self._patience_s)
                self._backend.begin(self.wireless, wrong)
                self._problem = ""
        except WirelessError as error:
            self._say(str(error))
        self._report = self._backend.report(self.wireless)
        self._show()

    def _say(self, problem: str) -> None:
        self._problem = problem
        self._complain(problem)

    def _shown(self) -> Shown:
        numbers = {name: self._index_of(name) for name in self._abilities}
        known = {name: number for name, number in numbers.items() if number is not None}
        return Shown(self.wireless, self._abilities, self._report, known, self._problem)

    def _show(self) -> None:
        self.serve(objects(self._shown()))

    def test(self, bindings: Sequence[tuple[Oid, Value]]) -> None:
        """Whether it makes sense; :class:`SetError`."""
        self._before = self._wanted = None
        try:
            self._wanted = self._addressed(tried(self._shown(), bindings))
        except SetError as error:
            self._problem = str(error)
            self._show()
            raise
        except WirelessError as error:
            raise SetError(INCONSISTENT_VALUE, 1, str(error)) from error

    def commit(self) -> None:
        """Do it, and keep it."""
        wanted = self._wanted
        if wanted is None:
            raise SetError(COMMIT_FAILED, 1, "nothing was tested")
        before = self.wireless
        try:
            self._put(wanted, before)
        except (WirelessError, OSError) as error:
            self._say(str(error))
            self._show()
            raise SetError(COMMIT_FAILED, 1, str(error)) from error
        self._before, self._problem = before, ""
        self._show()

    def undo(self) -> None:
        """Another part of the SET, of another program, has failed."""
        if self._before is None:
            return
        try:
            self._put(self._before, self.wireless)
        except (WirelessError, OSError) as error:
            self._say(str(error))
            raise SetError(UNDO_FAILED, 1, str(error)) from error
        finally:
            self.cleanup()
            self._show()

    def cleanup(self) -> None:
        """The SET is over."""
        self._before = self._wanted = None

    def _put(self, wanted: Wireless, before: Wireless) -> None:
        if wanted == before:
            return
        self._keep(wanted)
        try:
            self._backend.apply(wanted, before)
        except WirelessError:
            self._keep(before)
            raise
        self.wireless = wanted
        self._report = self._backend.report(wanted)

    def _addressed(self, wireless: Wireless) -> Wireless:
        return with_addresses(wireless, self._macs)

    def _restored(self) -> Wireless:
        if self._state is None or not self._state.exists():
            return first_of(self._abilities.values())
        try:
            document = json.loads(self._state.read_bytes()[:MAX_STATE_BYTES])
        except (OSError, ValueError) as error:
            raise WirelessError(f"{self._state}: {error}") from error
        return restored(document, self._abilities)

    def _keep(self, wireless: Wireless) -> None:
        if self._state is not None:
            self._state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._state, json.dumps(document_of(wireless), indent=1))


def own_mac(interface: str) -> str:
    """The address of an interface; one from its name if it has none."""
    with contextlib.suppress(OSError):
        text = Path(f"/sys/class/net/{interface}/address").read_text(encoding="ascii").strip()
        if len(text) == len("00:00:00:00:00:00"):
            return text
    return made_up_mac(interface)


def interface_number(name: str) -> int | None:
    """Its number in IF-MIB; None: it is not there."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None


def serve(served: WirelessObjects, path: str, complain: Callable[[str], None], parent: int | None = None) -> None:
    """A part of the snmpd whose AgentX socket this is, for ever; with ``parent`` while it is our parent process."""
    while parent is None or os.getppid() == parent:
        try:
            _serve_once(served, path, parent)
        except (OSError, AgentXError) as error:
            if parent is None or os.getppid() == parent:
                complain(f"AgentX at {path}: {getattr(error, 'strerror', None) or error}")
        served.look(time.monotonic())
        time.sleep(RETRY_S)


def _serve_once(served: WirelessObjects, path: str, parent: int | None) -> None:
    """One connection."""
    session = Session(served, WIRELESS, "hyroads wireless")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(session.begin())
        while parent is None or os.getppid() == parent:
            if select.select([connection], [], [], LOOK_EVERY_S)[0]:
                data = connection.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("snmpd has ended")
                connection.sendall(session.received(data))
            served.look(time.monotonic())
