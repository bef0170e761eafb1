"""The planes of a client, in one shape for the daemon: what is asked, and the host below. Two carry packets; the third
leaves that to the kernel, whose MPTCP connections are all that is managed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from .host import CapsHost, ClientHost, ClientPlan
from .json_lines import Document
from .kernel_plane import KernelPlane, has_carrier
from .kernel_runner import KernelRunner, TellPaths
from .policy import AGENT, KERNEL, MPTCP
from .program import Program, ProgramError, RefusedError, end_program
from .usage import interface_counters


class Plane(Protocol):
    """:class:`.Program` (``plane: agent``), :class:`.KernelRunner` (``kernel``) or :class:`NoPlane` (``mptcp``)."""

    starts: int
    """How often it was started; what it was told before counts no more."""

    @property
    def connected(self) -> bool:
        """Whether it can be asked."""

    async def keep(self) -> None:
        """Keeps it running, for ever."""

    async def request(self, document: Document) -> Document:
        """The answer; :class:`.ProgramError` if it is an error, or none comes."""

    async def stop(self) -> None:
        """End it in order."""


class PlaneHost(Protocol):
    """What else has to be changed of the host."""

    def prepare(self, plan: ClientPlan) -> None:
        """Before the plane is there."""

    def apply(self, plan: ClientPlan, left_bytes: Mapping[str, int]) -> None:
        """Once it is there, and again."""

    def undo(self, tun: str = "hr0") -> None:
        """Everything as before."""


class NoPlane:
    """``plane: mptcp``: no hr0 and no flows; the host's own routes count. ``ready`` is awaited once."""

    def __init__(self, ready: Callable[[], Awaitable[None]]) -> None:
        self._ready, self._names, self._begun_s = ready, list[str](), time.monotonic()
        self.starts, self.connected = 0, False

    async def keep(self) -> None:
        """Does nothing, for ever."""
        self.starts, self.connected = 1, True
        await self._ready()
        await asyncio.Event().wait()

    async def request(self, document: Document) -> Document:
        """The answer to ``configure`` or ``status``; :class:`RefusedError` to all else."""
        if not self.connected:
            raise ProgramError("the daemon is being started, try again")
        kind = document.get("type")
        if kind == "configure":
            self._names = [each["name"] for each in document["interfaces"]]
            return {"type": "ok"}
        if kind == "status":
            found = [(name, interface_counters(name)) for name in self._names]
            interfaces = [
                {"name": name, "up": has_carrier(name), "sent_bytes": counters[0], "received_bytes": counters[1]}
                for name, counters in found
                if counters is not None
            ]
            uptime_s = time.monotonic() - self._begun_s
            return {"type": "status", "program": "kernel", "uptime_s": uptime_s, "interfaces": interfaces}
        raise RefusedError(f"plane: mptcp has no flows to {kind}")

    async def stop(self) -> None:
        """There is nothing to end."""
        self.connected = False


class Planes:
    """Makes the plane that a policy names. ``folder`` is below /run, ``control`` the socket of ``hyroads-client``.

    With ``realtime`` that program asks for real-time priority.
    """

    def __init__(self, folder: Path, control: Path, tun: str, *, realtime: bool) -> None:
        self._folder, self._tun, self._realtime = folder, tun, realtime
        self._control = control
        self._kernel_state = folder / "client-kernel.json"
        self.flows = folder / "client-flows.state"
        """Where ``hyroads-client`` saves its flows."""

    def make(
        self,
        plane: str,
        ready: Callable[[], Awaitable[None]],
        event: Callable[[Document], None],
        tell_paths: TellPaths,
        say: Callable[[str], None],
    ) -> tuple[Plane, PlaneHost]:
        """The plane of this name, which does nothing yet, and its host."""
        if plane == MPTCP:
            return NoPlane(ready), CapsHost(self._folder)
        if plane == KERNEL:
            return KernelRunner(self._kernel_state, ready, event, tell_paths, say), CapsHost(self._folder)
        options = ["--state", str(self.flows), "--tun", self._tun, *(["--realtime"] if self._realtime else [])]
        return Program(options, self._control, ready, event, say), ClientHost(self._folder)

    async def clear_other(self, plane: str) -> None:
        """Take away what a daemon with the other plane has left when it was killed."""
        if plane != KERNEL and self._kernel_state.exists():
            KernelPlane(self._kernel_state).remove()
            CapsHost(self._folder).undo()
        elif plane != AGENT and not self._kernel_state.exists():
            await end_program(self._control)
            ClientHost(self._folder).undo(self._tun)
