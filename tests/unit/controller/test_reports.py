"""Measurements from the agents' reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planning import planned

from hyroads.controller.agents.protocol import ProtocolError, parse_line
from hyroads.controller.control.reports import ReportRegistry
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.plan import Plan
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, initial
from hyroads.rest.measurement_schemas import MeasurementsSchema

CONTEXT = TopologyContext.of(read_file(Path(__file__).resolve().parents[3] / "mininet" / "networks" / "triangle.yaml"))


@pytest.fixture
def plan() -> Plan:
    state = initial(CONTEXT, [DeclaredFlow(flow, Origin.FILE) for flow in CONTEXT.network.flows])
    return planned(CONTEXT, state)


def report(time_s: float, *, more: bool = False, **sides: Any) -> dict[str, Any]:
    head = {"type": "report", "seq": None, "time_s": time_s, "revision": 5, "unclassified": 0, "malformed": 0}
    return {**head, "cpu_s": 0.1, "more": more, "ingress": [], "egress": [], "links": [], **sides}


def sending(plan: Plan, megabytes: float) -> list[dict[str, Any]]:
    paths = [{"id": path.id, "sent_frames": 1, "sent_bytes": megabytes * 1e6} for path in plan.flows["f1"].paths]
    return [{"number": plan.flows["f1"].number, "queued": 2, "dropped": 0, "too_big": 0, "sent": 9, "paths": paths}]


def receiving(plan: Plan, megabytes: float) -> list[dict[str, Any]]:
    number = plan.flows["f1"].number
    return [{"number": number, "delivered_bytes": megabytes * 1e6, "lost": 3, "paths": []}]


def test_the_schema_says_what_is_there(plan: Plan) -> None:
    book = ReportRegistry(lambda: 100.0)
    link = {"link": "ab-plc", "up": True, "last_heard_ms": 3.0}
    for time_s in (10.0, 12.0):
        book.take("a", report(time_s, ingress=sending(plan, time_s)))
        book.take("b", report(time_s, egress=receiving(plan, time_s), links=[link]))
    document = book.document(plan)
    assert document["flows"] and document["links"] and document["agents"]
    others = {name: [] for name in ("interfaces", "slices", "radios", "devices", "snmp", "ports")}
    assert MeasurementsSchema().validate({**document, **others}) == {}
    # It says all of it: nothing else may be there, nothing may be missing.
    assert MeasurementsSchema().validate({**document, **others, "more": 1})
    del document["flows"][0]["paths"][0]["delay_ms"]
    assert MeasurementsSchema().validate({**document, **others})


def test_how_late_agents_were_woken_is_told_and_checked(plan: Plan) -> None:
    book = ReportRegistry(lambda: 100.0)
    late = {"max_ms": 31.5, "over_5_ms_s": 0.2, "over_20_ms_s": 0.1, "over_100_ms_s": 0.0}
    for node, told in (("a", {"woken_late": late}), ("b", {})):
        book.take(node, parse_line(json.dumps({**report(10.0), **told}).encode()))
    document = book.document(plan)
    assert {agent["node"]: agent["woken_late"] for agent in document["agents"]} == {"a": late, "b": None}
    others = {name: [] for name in ("interfaces", "slices", "radios", "devices", "snmp", "ports")}
    assert MeasurementsSchema().validate({**document, **others}) == {}
    for wrong in (5, [], {"max_ms": "late"}, {"over_5_ms_s": True}):
        with pytest.raises(ProtocolError):
            parse_line(json.dumps({**report(10.0), "woken_late": wrong}).encode())


def test_rates_are_growth_over_the_agents_own_time(plan: Plan) -> None:
    now = [100.0]
    book = ReportRegistry(lambda: now[0])
    book.take("a", report(10.0, ingress=sending(plan, 0)))
    book.take("b", report(70.0, egress=receiving(plan, 0)))
    (flow,) = book.document(plan)["flows"]
    assert flow["sent_mbps"] is None and flow["delivered_mbps"] is None and flow["queued"] == 2
    book.take("a", report(12.0, ingress=sending(plan, 2)))
    book.take("b", report(71.0, egress=receiving(plan, 1)))
    now[0] = 101.0
    document = book.document(plan)
    (flow,) = document["flows"]
    assert flow["sent_mbps"] == pytest.approx(2 * 8 * len(plan.flows["f1"].paths) / 2)
    assert flow["delivered_mbps"] == pytest.approx(8.0) and flow["lost"] == 3
    assert [path["sent_mbps"] for path in flow["paths"]] == pytest.approx([8.0, 8.0])
    assert {agent["node"]: agent["age_s"] for agent in document["agents"]} == {"a": 1.0, "b": 1.0}


def test_counters_that_went_back_give_no_rate(plan: Plan) -> None:
    book = ReportRegistry(lambda: 0.0)
    book.take("a", report(10.0, ingress=sending(plan, 5)))
    book.take("a", report(11.0, ingress=sending(plan, 1)))
    assert book.document(plan)["flows"][0]["sent_mbps"] is None
    book.forget("a")
    assert book.document(plan)["flows"] == []


def test_parts_of_a_report_make_one(plan: Plan) -> None:
    book = ReportRegistry(lambda: 0.0)
    links = [{"link": "ab-plc~", "up": True, "last_heard_ms": 1.0}]
    book.take("a", report(10.0, more=True, links=links))
    assert book.document(plan)["agents"] == []
    book.take("a", report(10.0, ingress=sending(plan, 5)))
    document = book.document(plan)
    assert len(document["flows"]) == 1 and [link["id"] for link in document["links"]] == ["ab-plc~"]
