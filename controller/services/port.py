"""What services need of the controller. The event loop (:mod:`hyroads.controller.runtime.event_loop`) provides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from hyroads.controller.agents.markers import SequenceMarkers
from hyroads.controller.control.live import Live
from hyroads.controller.control.unconfirmed import leader_unconfirmed
from hyroads.controller.core.network import Place
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.handover import Constrained, Key
from hyroads.controller.model.plan import Plan
from hyroads.controller.model.state import DeclaredFlow, State, TopologyContext
from hyroads.controller.runtime.address_book import AddressBook
from hyroads.controller.runtime.faults import Waits
from hyroads.controller.runtime.saver import Saver
from hyroads.controller.switches.sessions import SwitchSession

Publish = Callable[[str, Mapping[str, Any]], object]
"""Tells listeners of the REST API of an event: its kind, and its document."""


class ControllerPort(Protocol):
    """The controller as services see it. A service reads the network and its plan here, and changes them here."""

    @property
    def context(self) -> TopologyContext:
        """The network file, and what is derived from it."""

    @property
    def addresses(self) -> AddressBook:
        """The addresses of interfaces on the media."""

    @property
    def state(self) -> State:
        """Declared flows, path constraints of clients, and what is known of switches, agents and links."""

    @property
    def live(self) -> Live:
        """The control loop: the network with its current capacities, and the rates of flows."""

    @property
    def plan(self) -> Plan | None:
        """The latest plan; agents and switches may not have confirmed all of it yet."""

    @property
    def settled(self) -> bool:
        """Whether enough switches and agents have joined since the start for plans to be deployed."""

    @property
    def leads(self) -> bool:
        """Whether this controller changes devices; another one does if not."""

    @property
    def switches(self) -> Mapping[str, SwitchSession]:
        """Sessions of the connected switches, by node."""

    @property
    def markers(self) -> SequenceMarkers:
        """The sequence numbers that agents report of watched flows."""

    @property
    def saver(self) -> Saver:
        """Writes the state file, and takes back what can't be written."""

    @property
    def events(self) -> EventLog:
        """Publishes events to listeners of the REST API."""

    @property
    def progress(self) -> Waits:
        """Notified whenever something was confirmed or saved; for ``runtime.faults.wait_until``."""

    @property
    def leader_waits(self) -> Callable[[], frozenset[str] | None]:
        """While another controller leads: the switches (``switch NODE``) and agents (``agent NODE``) for whose
        confirmation it waits, by its own word. None: it has not said so of all that is declared here.
        """

    def clock(self) -> float:
        """Monotonic time in seconds."""

    def wake(self, *, now: bool = False) -> None:
        """Let the event loop run a cycle soon; ``now``: without waiting for further changes."""

    def note_unsaved(self) -> None:
        """What a service saves has changed: write the state file soon."""

    def change_flows(self, new: Iterable[DeclaredFlow], gone: Iterable[str]) -> None:
        """Declare and remove several flows at once, in one plan."""

    def constrain(self, changes: Mapping[Key, Constrained | None]) -> None:
        """Constrain flows of clients to paths; None lifts a constraint."""

    def place_client(self, client: str, place: Place) -> None:
        """A client without agent is attached at ``place`` from now on."""

    def carries(self, flows: Iterable[str]) -> bool:
        """Whether the first edges of these flows send by the planned paths only. Removed flows do not count."""

    def carried_out(self, flows: Iterable[str]) -> bool:
        """Whether all agents and switches have confirmed the plan of these flows. Removed flows do not count."""

    def unconfirmed(self, flows: Iterable[str], *, at: Iterable[str] = ()) -> list[str]:
        """Switches and agents that have not confirmed the plan of these flows, or their end, wherever they are. An
        empty list: all is confirmed. Flows may have begun or ended ``at`` these nodes before: what agents there still
        have of them counts, too.
        """

    def rates_unconfirmed(self) -> set[str]:
        """Agents that may send by other rates than those of the plan in force."""

    def fault(self, where: str, what: str) -> None:
        """Log and count something that went wrong."""

    def exception(self, where: str, error: BaseException) -> None:
        """Log and count a defect of the program."""


def pending_as_known(
    port: ControllerPort, pending: Callable[[], list[str]], concerns: Callable[[], Iterable[str]] | None = None
) -> list[str]:
    """What has not confirmed something. The controller that leads finds out by ``pending``. One that follows knows only
    for which devices the leader waits: it names those that the matter ``concerns`` (as of ``leader_waits``; None: all),
    or the leader while that has not said so.
    """
    if port.leads:
        return pending()
    waits = port.leader_waits()
    if waits is not None and concerns is not None:
        waits = waits.intersection(concerns())
    return sorted(leader_unconfirmed(waits))


def changed_since(
    changed: set[str] | None, known: Mapping[str, SwitchSession], switches: Mapping[str, SwitchSession]
) -> list[str]:
    """Nodes whose switches came, went or changed (``SwitchRegistry.watch``), which are removed from ``changed``; all
    ``known`` ones and those of ``switches`` if that is None.
    """
    if changed is None:
        return [*known, *(node for node in switches if node not in known)]
    nodes = list(changed)
    changed.clear()
    return nodes
