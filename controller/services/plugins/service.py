"""The service of plugins: finds them, runs the foreign ones, answers their requests, and exports their metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from hyroads.controller.core.services.mobility import MobilityManager
from hyroads.controller.core.services.view import NetworkView
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.events import EventLog
from hyroads.controller.services.steering.policies import ForeignPolicy, LocalPolicy, Policy
from hyroads.plugins.codec import encode
from hyroads.plugins.host import Limits
from hyroads.plugins.kinds import DiscoveredPlugin, Kind
from hyroads.plugins.policies import placement as placement_policy
from hyroads.plugins.policies.placement import Placement
from hyroads.rest.contract import PLUGIN, ConflictError, Document, NotConfirmedError, NotFoundError, Token

from .discovery import BUILT_IN, POLICIES, root_problem
from .managers import ForeignManager
from .process import AskRefusedError, Message
from .requests import Requests, refusal
from .supervisor import Supervisor

VIEW_AGE_S = 0.5
START_WITHIN_S = 5.0
LIMITS = Limits()
_NO_FAULTS = {"total": 0, "recent": 0, "times_disabled": 0, "last": None}


@dataclass(eq=False)
class PluginService:
    """One per controller. ``view`` makes what plugins see; ``policies_on`` are built-in ones,
    ``placement`` has the settings of the policy of that name.
    """

    found: InitVar[Sequence[DiscoveredPlugin]]
    requests: Requests
    events: EventLog
    view: Callable[[], NetworkView]
    clock: Callable[[], float]
    _: KW_ONLY
    policies_on: InitVar[Sequence[str]] = ()
    placement: Placement = placement_policy.POLICY
    defect: Callable[[str, BaseException], None] = lambda where, error: None
    limits: InitVar[Limits] = LIMITS

    def __post_init__(self, found: Sequence[DiscoveredPlugin], policies_on: Sequence[str], limits: Limits) -> None:
        self._view: tuple[float, bytes] = (float("-inf"), b"")
        self._supervisors = {
            one.name: Supervisor(one, self.events, self.clock, self._answer(one), limits) for one in found
        }
        self._managers = {
            name: ForeignManager(name, supervisor.call, supervisor.wrong, lambda: self.on_managers())  # noqa: PLW0108 - it is set later
            for name, supervisor in self.supervisors(Kind.MOBILITY).items()
        }
        self._foreign_policies = {
            name: ForeignPolicy(supervisor.call, supervisor.wrong)
            for name, supervisor in self.supervisors(Kind.POLICY).items()
        }
        self._policies = {name: self._built_in(name) for name in policies_on}
        self.on_managers: Callable[[], object] = lambda: None
        """Called when a foreign mobility manager has answered."""

    def use_policies(self, names: Sequence[str], placement: Placement) -> None:
        """Other built-in policies are on from now on; those that stay, with the same settings, go on as they are."""
        if placement != self.placement:
            self._policies.pop(placement.name, None)
        self.placement = placement
        self._policies = {name: self._policies.get(name) or self._built_in(name) for name in names}

    def _built_in(self, name: str) -> LocalPolicy:
        return LocalPolicy(self.placement if name == self.placement.name else POLICIES[name])

    def start(self) -> None:
        """Starts the plugins that the settings name."""
        for supervisor in self._supervisors.values():
            shim.spawn(supervisor.run)

    def stop(self) -> None:
        """Ends all of them."""
        for supervisor in self._supervisors.values():
            supervisor.want(False)

    def supervisors(self, kind: Kind) -> dict[str, Supervisor]:
        """The foreign plugins of a kind, by name."""
        return {name: supervisor for name, supervisor in self._supervisors.items() if supervisor.found.kind is kind}

    def managers(self) -> dict[str, MobilityManager]:
        """The foreign mobility managers that can be used now."""
        return {name: manager for name, manager in self._managers.items() if self._supervisors[name].usable}

    def policies(self) -> dict[str, Policy]:
        """The policies that are on and can be used now."""
        foreign = {name: one for name, one in self._foreign_policies.items() if self._supervisors[name].usable}
        return {**self._policies, **foreign}

    # -- rest.plugins.Plugins

    def documents(self) -> list[Document]:
        """All plugins, by kind and name."""
        names = sorted((kind, name) for name, kind in self._kinds().items())
        return [self.document(name) for _, name in names]

    def document(self, name: str) -> Document:
        """The plugin of this kind and name; NotFoundError if there is none."""
        kind = self._kinds().get(name)
        if kind is None:
            raise NotFoundError(f"no plugin {name[:64]!r}")
        supervisor = self._supervisors.get(name)
        if supervisor is None:
            head = {"name": name, "kind": kind.value, "origin": "built in", "role": None}
            state = "off" if kind is Kind.POLICY and name not in self._policies else "running"
            return {**head, "state": state, "enabled_in_s": None, "faults": _NO_FAULTS, "process": None}
        found = supervisor.found
        role = found.role if kind is Kind.APP else None
        head = {"name": name, "kind": kind.value, "origin": found.origin, "role": role}
        return {**head, **supervisor.document()}

    def enable(self, name: str) -> Document:
        """Start a plugin, even after faults; returns once it runs. NotFoundError, NotConfirmedError, ConflictError."""
        self.document(name)
        supervisor = self._supervisors.get(name)
        # What the settings name was looked at when they were read.
        problem = None if supervisor is None or supervisor.found.starts else root_problem(supervisor.found.bounds.user)
        if problem:
            raise ConflictError(f"{name}: {problem}, and name the plugin in the settings")
        if name in POLICIES and name not in self._policies:
            # One that is switched on remembers nothing.
            self._policies[name] = self._built_in(name)
        if supervisor is not None and supervisor.state != "running":
            supervisor.want(True)
            until_s = self.clock() + START_WITHIN_S
            while supervisor.state == "starting" and self.clock() < until_s:
                shim.sleep(0.02)
            if supervisor.state != "running":
                raise NotConfirmedError(f"plugin {name}", [f"plugin {name}"])
        return self.document(name)

    def disable(self, name: str) -> Document:
        """Stop a plugin until it is enabled again. NotFoundError, ConflictError."""
        self.document(name)
        supervisor = self._supervisors.get(name)
        if name in POLICIES:
            self._policies.pop(name, None)
            return self.document(name)
        if supervisor is None:
            raise ConflictError(f"{name} is built in: others fall back on it")
        supervisor.want(False)
        return self.document(name)

    def _kinds(self) -> dict[str, Kind]:
        return {**BUILT_IN, **{name: supervisor.found.kind for name, supervisor in self._supervisors.items()}}

    # -- what plugins ask for

    def _answer(self, found: DiscoveredPlugin) -> Callable[[str, Message], bytes]:
        who = Token(f"{PLUGIN}{found.name}", "", found.role, may_change=found.may_change)

        def answer(do: str, arguments: Message) -> bytes:
            try:
                if do == "view":
                    return self.view_text()
                if do == "request":
                    return self._request(who, arguments)
            except AskRefusedError:
                raise
            except Exception as error:
                self.defect(f"a request of plugin {found.name}", error)
                raise AskRefusedError(500, "the request met a defect of the controller; see its log") from error
            raise AskRefusedError(400, "expected a request or a view")

        return answer

    def _request(self, who: Token, arguments: Message) -> bytes:
        status, text = self.requests.ask(who, arguments.get("method"), arguments.get("path"), arguments.get("body"))
        if status >= 400:
            problem: dict[str, Any] = dict(refusal(text))
            raise AskRefusedError(status, str(problem.get("detail") or f"status {status}"), problem)
        return text

    def view_text(self) -> bytes:
        """The view as JSON, made at most twice a second however many ask."""
        now_s = self.clock()
        if now_s - self._view[0] > VIEW_AGE_S:
            view = self.view()
            shim.sleep(0)
            self._view = now_s, json.dumps(encode(view)).encode()
        return self._view[1]


def plugin_metrics(service: PluginService) -> Iterator[Any]:
    """By plugin: whether it can be used now, and what it did wrong so far."""
    up = GaugeMetricFamily("hyroads_plugin_up", "Whether the plugin runs", labels=("plugin", "kind"))
    faults = CounterMetricFamily("hyroads_plugin_faults", "Times that the plugin misbehaved", labels=("plugin", "kind"))
    for kind in Kind:
        for name, supervisor in sorted(service.supervisors(kind).items()):
            up.add_metric((name, kind.value), float(supervisor.usable))
            faults.add_metric((name, kind.value), supervisor.health.total)
    yield up
    yield faults
