"""The two planes that can carry a client's packets, in one shape for the daemon: what is asked, and the host below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from .host import CapsHost, ClientHost, ClientPlan
from .json_lines import Document
from .kernel_plane import KernelPlane
from .kernel_runner import KernelRunner, TellPaths
from .program import Program, end_program


class Plane(Protocol):
    """Carries packets: :class:`.Program` (``plane: agent``) or :class:`.KernelRunner` (``plane: kernel``)."""

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
        if plane == "kernel":
            return KernelRunner(self._kernel_state, ready, event, tell_paths, say), CapsHost(self._folder)
        options = ["--state", str(self.flows), "--tun", self._tun, *(["--realtime"] if self._realtime else [])]
        return Program(options, self._control, ready, event, say), ClientHost(self._folder)

    async def clear_other(self, plane: str) -> None:
        """Take away what a daemon with the other plane has left when it was killed."""
        if plane == "agent" and self._kernel_state.exists():
            KernelPlane(self._kernel_state).remove()
            CapsHost(self._folder).undo()
        elif plane == "kernel" and not self._kernel_state.exists():
            await end_program(self._control)
            ClientHost(self._folder).undo(self._tun)
