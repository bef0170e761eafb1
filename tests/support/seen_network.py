"""The triangle as the dashboard knows it, from documents of a controller whose figures are set by hand."""

from __future__ import annotations

import json
from pathlib import Path

from fake_controller import FakeController

from hyroads.controller.files.documents import read_file
from hyroads.controller.model.live_document import LiveLog
from hyroads.dashboard.state import NetworkState
from hyroads.rest.live import COLUMNS, SOURCES

NETWORK = read_file(Path(__file__).parents[2] / "mininet/networks/triangle.yaml")


class Seen:
    """The triangle's state, as the dashboard has it from documents."""

    def __init__(self) -> None:
        self.fake, self.state = FakeController(NETWORK), NetworkState()
        self.state.take_topology(self.fake.topology())
        self.state.take_document("/interference-domains", self.fake.domains())
        self.look()

    def look(self, now_s: float = 0.0) -> None:
        log = LiveLog(1)
        log.update({name: dict(rows) for name, rows in self.fake.rows.items()})
        found = log.since(None)
        document = {"from": None, "version": found.version, "complete": True, "topology_version": 1, "gone": {},
                    "columns": COLUMNS, "sources": SOURCES, **found.changed}  # fmt: skip
        self.state.take_live(json.loads(json.dumps(document)), now_s)
