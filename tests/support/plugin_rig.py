"""A service of plugins with real processes, around a small REST API."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyroads.controller.core.services.view import LinkView, NetworkView
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.events import EventLog
from hyroads.controller.services.plugins import supervisor
from hyroads.controller.services.plugins.requests import Requests
from hyroads.controller.services.plugins.service import PluginService
from hyroads.plugins.host import Limits
from hyroads.plugins.kinds import Bounds, DiscoveredPlugin, Kind
from hyroads.rest.api import create_app

# Tests have no second to wait for each process that ended.
supervisor.RESTART_S = 0.1
WITHIN_S = 60.0
LIMITS = Limits()
# A plugin that does not hang has all the time of a busy machine; one that is to be found hanging has a second.
PATIENT, HASTY = Bounds(memory_mb=256, deadline_s=60.0), Bounds(memory_mb=256, deadline_s=1.0)
VIEW = NetworkView(1.0, {"a": "ap"}, {"l": LinkView("l", "a", "b", "wifi", True, 12.5, 0.25)})


def eventually(what: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + WITHIN_S
    while not (value := what()):
        assert time.monotonic() < until_s, f"not within {WITHIN_S} s: {value!r}"
        shim.sleep(0.01)
    return value


class Flows:
    """The part of the REST API's service that these plugins use."""

    def __init__(self) -> None:
        self.declared: list[Any] = []

    def flow_ids(self) -> list[str]:
        return [document["id"] for document in self.declared]

    def flows(self, flows: Any) -> list[Any]:
        return [document for document in self.declared if document["id"] in flows]

    def flow(self, flow: str) -> Any:
        return self.flows([flow])[0]

    def flow_pending(self, flow: str) -> list[str]:
        return []

    def declare_flow(self, document: Any, *, wait: bool) -> tuple[Any, bool]:
        shim.sleep(1.3)
        self.declared.append(document)
        return document, True


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.flows = Flows()
        self.events = EventLog(time.time, shim.Signal())
        self.service: PluginService | None = None

    def start(self, limits: Limits = LIMITS, **plugins: str) -> PluginService:
        return self.run([self.found(name, code) for name, code in plugins.items()], limits)

    def found(self, name: str, code: str, **more: Any) -> DiscoveredPlugin:
        path = self.folder / f"{name}.py"
        path.write_text("from hyroads.plugins.api import *\nimport os, sys, time\n" + textwrap.dedent(code))
        more = {"role": "application", "bounds": PATIENT, "kind": Kind.APP, **more}
        return DiscoveredPlugin(name, origin=f"file {path}", path=str(path), starts=True, **more)

    def run(self, found: list[DiscoveredPlugin], limits: Limits = LIMITS) -> PluginService:
        requests = Requests()
        requests.use(create_app(self.flows))  # type: ignore[arg-type]
        self.service = PluginService(found, requests, self.events, lambda: VIEW, time.monotonic, limits=limits)
        self.service.start()
        return self.service

    def told(self, kind: str) -> list[Any]:
        return [event.document for event in self.events.since(0) if event.kind == kind]

    def faults(self, name: str) -> list[tuple[str, str]]:
        return [(fault["kind"], fault["what"]) for fault in self.told("plugin.fault") if fault["name"] == name]
