"""A second of metering in a controller's event loop: the traffic meter says what agents' reports do, entry by entry."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from campus_loop import CampusLoop
from told_meter import Heard, OneByOne

from hyroads.controller.core.growth import Counted
from hyroads.controller.core.path_columns import MeteredPath
from hyroads.controller.model.plan import MULTIPATH, FlowPlan
from hyroads.controller.runtime import telemetry as module
from hyroads.controller.runtime.telemetry import Telemetry


class Metered:
    """A campus whose traffic is metered, and what follows from its reports one by one."""

    def __init__(self, folder: Path) -> None:
        self.campus = CampusLoop(folder, 12, 30)
        self.campus.settle()
        loop = self.campus.loop
        self.telemetry = Telemetry(self.campus.context, loop.settings, self.campus.clock)
        self.telemetry.ingest = self.campus.ingest
        self.wanted = OneByOne(self.campus.network.links)

    def flows(self) -> dict[str, FlowPlan]:
        assert self.campus.loop.plan is not None
        return {name: flow for name, flow in self.campus.loop.plan.flows.items() if flow.mode == MULTIPATH}

    def second(self) -> None:
        for _ in range(10):
            self.campus.slot()
        self.telemetry.meter(self.campus.loop)
        metered, heard, ends = {}, {}, {}
        for name, flow in self.flows().items():
            here, there = flow.ingress or "", flow.egress or ""
            sent, received = self.entry(here, "ingress", flow), self.entry(there, "egress", flow)
            paths = zip(flow.paths, flow.separate_links, strict=True)
            metered[name] = tuple(MeteredPath(path.id, links, (here, path.links[0])) for path, links in paths)
            ends[name] = self.delivered(received)
            for path in flow.paths:
                heard[name, path.id] = self.heard(sent, received, path.id)
        self.wanted.tell(metered, heard, ends, self.campus.now_s)

    def entry(self, node: str, side: str, flow: FlowPlan) -> dict[str, Any]:
        found = self.campus.loop.reports.side(node, side, flow.number, 2.0).entry
        return {"paths": []} if found is None else dict(found)

    def delivered(self, entry: dict[str, Any]) -> tuple[Counted, int] | None:
        if "lost" not in entry:
            return None
        counted = Counted(self.campus.now_s, entry["delivered_bytes"], entry["delivered_frames"])
        return counted, entry["lost"]

    def heard(self, sending: dict[str, Any], receiving: dict[str, Any], number: int) -> Heard:
        sent, received = (
            next((path for path in entry["paths"] if path["id"] == number), None) for entry in (sending, receiving)
        )
        now_s = self.campus.now_s
        return Heard(
            sent and Counted(now_s, sent["sent_bytes"], sent["sent_frames"]),
            received and Counted(now_s, received["received_bytes"], received["received_frames"]),
            received and received["delay_ms"],
        )

    def compare(self) -> int:
        """How many paths carry something."""
        of, now_s, carry = self.telemetry.traffic, self.campus.now_s, 0
        for name, flow in self.flows().items():
            assert of.flow_reading(name, now_s) == self.wanted.flow_reading(name, now_s)
            for path in flow.paths:
                reading = of.path_reading((name, path.id), now_s)
                assert reading == self.wanted.path_reading((name, path.id), now_s)
                carry += bool(reading.sent_mbps)
        now, mbps = of.snapshot(now_s), self.wanted.links_mbps(now_s)
        assert set(now.paths) == set(mbps)
        assert all(now.reading(link).rate_mbps == pytest.approx(mbps[link]) for link in mbps)
        assert {link: octets for link, (octets, _) in of.bytes_of_links().items()} == self.wanted.carried
        sent = {each: points[-1].bytes[1] for each, points in self.telemetry.ingest.ports._agents.items()}
        assert sent == self.wanted.sent_bytes
        return carry


def test_the_meter_says_what_reports_say_whatever_happens_to_flows_and_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_PAUSE_S", 0.0)
    of = Metered(tmp_path)
    campus = of.campus
    for _ in range(3):
        of.second()
        carry = of.compare()
    assert carry > 20
    for spec in campus.specs(2, random.Random(3), "new", 30_000):
        campus.declare(spec)
    campus.cut(campus.used()[0])
    for _ in range(3):
        of.second()
        of.compare()
    gone = next(flow.ingress for flow in of.flows().values() if flow.ingress)
    campus.loop.reports.forget(gone)
    campus.carried.clear()
    for _ in range(3):
        of.second()
        of.compare()


def test_reports_that_are_too_old_tell_nothing(tmp_path: Path) -> None:
    of = Metered(tmp_path)
    of.second()
    campus = of.campus
    told = campus.loop.reports.totals(2.0)
    assert told.sent.told.any() and told.received.told.any() and told.delivered.told.any()
    campus.now_s += 2.5
    told = campus.loop.reports.totals(2.0)
    assert not (told.sent.told.any() or told.received.told.any() or told.delivered.told.any())
