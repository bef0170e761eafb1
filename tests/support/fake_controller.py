"""A controller's REST API over a network that tests steer: the real resources, on figures that are set by hand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flask import request
from werkzeug.serving import WSGIRequestHandler, make_server

from hyroads.controller.core.network import Network
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.live_document import LiveLog
from hyroads.rest import events, identity, live
from hyroads.rest.api import create_app
from hyroads.rest.contract import Document, Token
from hyroads.rest.live import COLUMNS, SOURCES, LiveText
from hyroads.rest.resource import Resource, reply


class _Bell:
    """Wakes the threads that serve streams."""

    def __init__(self) -> None:
        self._condition = threading.Condition()

    def notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def wait(self, timeout_s: float) -> bool:
        with self._condition:
            return self._condition.wait(timeout_s)


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any, **__: Any) -> None:
        """Nothing."""


class FakeController:
    """Runs as a context. ``rows`` are the live document's parts; ``publish`` sends an event. ``resources`` gives more
    resources of the API, for each start.
    """

    def __init__(
        self,
        network: Network,
        *,
        tokens: tuple[Token, ...] = (),
        port: int = 0,
        resources: Callable[[], Sequence[Resource]] = tuple,
    ) -> None:
        self.network, self.tokens, self._wanted_port, self._more = network, tokens, port, resources
        self.port = port
        self.rows: dict[str, dict[str, Any]] = {name: {} for name in ("links", "flows", "paths", "clients", "slices")}
        self.rows["links"] = {link.id: [1, link.capacity_mbps, 0, 0, 0, 0, 0] for link in network.links}
        self.topology_version = 1
        self.documents: dict[str, Document] = {}
        self.handovers: list[Document] = []
        self.asked: list[str] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeController:
        self.log = EventLog(time.time, _Bell())
        self._live = LiveLog(self.log.last)
        app = create_app(
            None,
            self.tokens,
            resources=[
                events.blueprint(self.log, live=self.live, heartbeat_s=1.0),
                live.blueprint(self),
                identity.blueprint(),
                *self._documents(),
                *self._more(),
            ],
        )
        self._server = make_server("127.0.0.1", self._wanted_port, app, threaded=True, request_handler=_Quiet)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self._server.shutdown()
        self._server.server_close()

    def live(self, since: int | None = None) -> LiveText:
        if getattr(self, "closed", False):
            raise ConnectionAbortedError
        with self._lock:
            self._live.update({name: dict(rows) for name, rows in self.rows.items()})
            found = self._live.since(since)
        document = {
            "from": found.since, "version": found.version, "complete": found.since is None, "reason": found.reason,
            "age_s": 0.0, "topology_version": self.topology_version,
            "slot": {"count": 1, "missed": 0, "slot_ms": 100},
            **({"columns": COLUMNS, "sources": SOURCES} if found.since is None else {}),
            **{name: dict(found.changed.get(name, {})) for name in self.rows},
            "gone": {name: list(ids) for name, ids in found.gone.items()},
        }  # fmt: skip
        return LiveText(found.version, json.dumps(document))

    def publish(self, kind: str, **document: Any) -> None:
        self.log.publish(kind, document)

    # -- what tests do

    def set_link(self, link: str, **columns: Any) -> None:
        row = list(self.rows["links"][link])
        for name, value in columns.items():
            row[COLUMNS["links"].index(name)] = value
        self.rows["links"][link] = row

    def cut(self, link: str) -> None:
        """As the controller tells it: at once as an event."""
        self.set_link(link, up=0)
        self.publish("link.down", link=link, reason="silent")

    def restore(self, link: str) -> None:
        self.set_link(link, up=1)
        self.publish("link.up", link=link)

    def flow(self, flow: str, paths: list[list[str]], mbps: float) -> None:
        """A flow with equal paths."""
        self.rows["flows"][flow] = ["multipath", None, mbps * len(paths), mbps * len(paths), 0, None, "video"]
        for number, links in enumerate(paths, start=1):
            self.rows["paths"][f"{flow}/{number}"] = [links, mbps, mbps, mbps, 0, 2.5]

    def place(self, client: str, node: str, technology: str, mac: str = "02:00:00:00:00:0c") -> None:
        self.rows["clients"][client] = {mac: [node, technology]}

    def topology(self) -> Document:
        nodes = [
            {
                "id": node.id,
                "role": node.role.value,
                "position_m": node.position_m and list(node.position_m),
                "switch": None if node.is_plain_client else {"dpid": 1, "connected": True, "ports": {}},
                "agent": {"up": True, "revision": 1} if node.agent else None,
                "host": None,
            }
            for node in self.network.nodes.values()
        ]
        links = [
            {"id": link.id, "from": link.source, "to": link.target, "technology": link.technology, "up": True,
             "delay_ms": link.delay_ms, "loss": link.loss, "capacity_mbps": link.capacity_mbps}
            for link in self.network.links
        ]  # fmt: skip
        media = sorted({link.technology for link in self.network.links})
        return {"name": self.network.name, "version": self.topology_version, "nodes": nodes, "links": links,
                "technologies": media}  # fmt: skip

    def domains(self) -> Document:
        links, found = self.network.links, {}
        for number, link in enumerate(links):
            members = tuple(links[one].id for one in self.network.interference.domain(number).tolist())
            found.setdefault(members, link.id)
        return {"interference_domains": [{"id": one, "links": list(of)} for of, one in found.items()], "next": None}

    def _documents(self) -> list[Resource]:
        made = {"topology": self.topology, "interference-domains": self.domains}
        found = []
        for name in ("topology", "interference-domains", "measurements", "health", "flows", "clients", "sessions",
                     "slices", "reservations", "plugins"):  # fmt: skip
            resource = Resource(name)

            def read(name: str = name) -> Any:
                self.asked.append(name)
                return reply(made[name]() if name in made else self.documents.get(name, {name: [], "next": None}))

            resource.add_url_rule("", f"read-{name}", read, methods=["GET"])
            found.append(resource)
        handovers = Resource("handovers")

        def begin() -> Any:
            document: Mapping[str, Any] = request.get_json()
            self.handovers.append(dict(document))
            place = document["to"]
            self.place(document["client"], place["node"], place["technology"])
            return reply({"id": "1", **document}, 201)

        handovers.add_url_rule("", "begin", begin, methods=["POST"])
        return [*found, handovers]
