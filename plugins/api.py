"""What plugins are written against (docs/reference/plugins.md). Names here stay; what else HyRoads holds may change.

Three kinds, each an object at the top of a module: ``APP`` (:class:`App`), ``POLICY`` (:class:`MobilityPolicy`),
``MANAGER`` (:class:`MobilityManager`). Each foreign plugin runs in a process of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import (
    Arrived,
    Associated,
    Cancelled,
    Confirmed,
    DesiredState,
    Handover,
    Left,
    MobilityManager,
    Passed,
    Phase,
    Refused,
    Request,
    Steady,
    Timings,
)
from hyroads.controller.core.services.mobility import Event as MobilityEvent
from hyroads.controller.core.services.view import (
    ClientView,
    FlowView,
    LinkView,
    MobilityPolicy,
    NetworkView,
    Option,
    Radios,
    Wish,
)

API_VERSION = 1

__all__ = [
    "API_VERSION", "App", "Arrived", "Associated", "Cancelled", "ClientView", "Confirmed", "DesiredState",
    "Event", "FlowView", "Handover", "Left", "LinkView", "MobilityEvent", "MobilityManager", "MobilityPolicy",
    "Network", "NetworkView", "Option", "Passed", "Phase", "Place", "Radios", "Refused", "Request", "RequestError",
    "Requests", "Steady", "Timings", "Wish",
]  # fmt: skip

Document = Mapping[str, Any]
_WAIT = {True: "", False: "?wait=false"}


class RequestError(HyroadsError):
    """The controller refused a request: ``status`` and ``detail`` are those of the REST API's problem document."""

    def __init__(self, status: int, detail: str, problem: Document | None = None) -> None:
        self.status = status
        self.detail = detail
        self.problem = problem or {}
        super().__init__(f"{status}: {detail}")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; ids rise. ``missed`` events before it were dropped: they came faster than they went."""

    id: int
    kind: str
    document: Document
    missed: int = 0


class Requests(ABC):
    """What may be asked of the controller: the REST API's requests, in the role of who asks.

    They answer once switches and agents have confirmed, as over REST, and raise :class:`RequestError`.
    """

    @abstractmethod
    def request(self, method: str, path: str, body: Document | None = None) -> Any:
        """Any request of the REST API, by its path behind ``/api/v1``; the JSON of its answer."""

    def declare_flow(self, flow: Document, *, wait: bool = True) -> Any:
        """Carry a flow; ``flow`` as in ``POST /flows``. ``wait``: until it is confirmed; else it is an operation."""
        return self.request("POST", f"/flows{_WAIT[wait]}", flow)

    def remove_flow(self, flow: str, *, wait: bool = True) -> None:
        """Carry it no longer."""
        self.request("DELETE", f"/flows/{_part(flow)}{_WAIT[wait]}")

    def flow(self, flow: str) -> Any:
        """One flow, as in ``GET /flows/{id}``."""
        return self.request("GET", f"/flows/{_part(flow)}")

    def handover(
        self, client: str, to: Place, *, manager: str | None = None, flows: Sequence[str] | None = None
    ) -> Any:
        """Move a client, or some of its flows, without loss; :class:`RequestError` also if it failed."""
        chosen = {"manager": manager, "flows": None if flows is None else list(flows)}
        body = {"client": client, "to": {"node": to.node, "technology": to.technology}}
        done = self.request("POST", "/handovers", {**body, **{k: v for k, v in chosen.items() if v is not None}})
        if done["phase"] == Phase.FAILED.value:
            raise RequestError(409, str(done["reason"]))
        return done

    def ncast(self, flow: str, copies: int = 2) -> Any:
        """Send each packet of a flow by several paths."""
        return self.request("POST", "/ncasts", {"flow": flow, "copies": copies})

    def end_ncast(self, flow: str) -> None:
        """By one again."""
        self.request("DELETE", f"/ncasts/{_part(flow)}")

    def join_session(self, session: str, group: str, participant: str) -> Any:
        """Take part in a multicast session (a host by node id, MAC or IP); it is opened if it is not there."""
        join = "POST", f"/sessions/{_part(session)}/participants", {"name": participant}
        try:
            return self.request(*join)
        except RequestError as error:
            if error.status != 404:
                raise
        try:
            return self.request("POST", "/sessions", {"id": session, "group": group, "participants": [participant]})
        except RequestError as error:
            if error.status != 409:
                raise
        # Somebody else was first.
        return self.request(*join)

    def leave_session(self, session: str, participant: str) -> None:
        """Take part no longer."""
        self.request("DELETE", f"/sessions/{_part(session)}/participants/{_part(participant)}")

    def reserve(self, reservation: str, flow: str, rate_mbps: float) -> Any:
        """A least rate for a flow, if the airtime for it is there."""
        return self.request("POST", "/reservations", {"id": reservation, "flow": flow, "rate_mbps": rate_mbps})

    def end_reservation(self, reservation: str) -> None:
        """Promised no longer."""
        self.request("DELETE", f"/reservations/{_part(reservation)}")

    def topology(self) -> Any:
        """Nodes and links with all that is known of them, as in ``GET /topology``."""
        return self.request("GET", "/topology")

    def measurements(self) -> Any:
        """The latest reports, as in ``GET /measurements``."""
        return self.request("GET", "/measurements")


class Network(Requests):
    """The network as an application's plugin sees it, and what it may ask for."""

    @property
    @abstractmethod
    def settings(self) -> Document:
        """What the controller's settings say for this plugin."""

    @abstractmethod
    def view(self) -> NetworkView:
        """The network now: read-only, at most half a second old."""


class App:
    """An application's own plugin. All calls come one at a time, each with a bound (``deadline_s`` in the settings);
    time that the controller takes for requests does not count.
    """

    name: str = ""
    events: tuple[str, ...] = ()
    """Kinds of events that it wants; ``link`` stands for ``link.up`` and ``link.down`` as well."""
    every_s: float | None = None
    """How often :meth:`tick` is called; None: never."""

    def start(self, network: Network) -> None:
        """Called first, also after its process was started anew."""

    def on_event(self, network: Network, event: Event) -> None:
        """Something of ``events`` happened."""

    def tick(self, network: Network) -> None:
        """Time went by."""


def _part(name: str) -> str:
    return quote(name, safe="")
