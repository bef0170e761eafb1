"""The live document of a real event loop: each row says what the traffic meter does, and all of it stays small."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from office_loop import OfficeLoop
from told_meter import Heard, tell

from hyroads.controller.api.live import _LinkRows, _percent, _short
from hyroads.controller.core.growth import Counted
from hyroads.controller.core.link_busy import LinkBusy
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.traffic_meter import COUNTERS, RADIO, SNMP, TrafficMeter
from hyroads.rest.live import COLUMNS, SOURCES, LiveSchema

NETWORK = load_text(
    """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: ap}, p: {role: client}}
links:
  - {id: "a\\"b", from: a, to: b, technology: plc, capacity_mbps: 10}
  - {id: ab, from: a, to: b, technology: wifi, capacity_mbps: 20}
  - {id: ac, from: a, to: c, technology: wifi, capacity_mbps: 20}
  - {id: pb, from: p, to: b, technology: wifi, capacity_mbps: 20}
interference: {rule: technology}
""",
    "lab",
)
IDS = [link.id for link in NETWORK.links]
INTERFACES = [(node, technology) for node in "abc" for technology in ("plc", "wifi")]
RATES = st.sampled_from([0.0, 0.01, 0.5, 4.0, 12.34])
MEASURED = st.fixed_dictionaries(
    {
        "ports": st.dictionaries(st.sampled_from(INTERFACES), st.tuples(RATES, RATES)),
        "radios": st.dictionaries(
            st.sampled_from(INTERFACES), st.tuples(st.floats(0, 1), st.sampled_from([RADIO, SNMP]))
        ),
        "paths": st.dictionaries(st.integers(1, 3), st.tuples(st.sampled_from(IDS), RATES)),
    }
)


def fed(measured: dict[str, Any]) -> TrafficMeter:
    meter = TrafficMeter(NETWORK.links)
    for second in (1, 2, 3):
        for interface, (sent, received) in measured["ports"].items():
            meter.port(interface, counted(second, sent), second, counted(second, received))
        for interface, (busy, source) in measured["radios"].items():
            meter.radio(interface, busy, source, second)
        heard = {number: counted(second, mbps) for number, (_, mbps) in measured["paths"].items()}
        links = {number: (link,) for number, (link, _) in measured["paths"].items()}
        tell(meter, second, {("f", number): (links[number], Heard(of, of)) for number, of in heard.items()})
    return meter


def counted(second: int, mbps: float) -> Counted:
    return Counted(second, round(mbps * second * 125e3), round(mbps * second * 125))


@given(
    st.lists(st.tuples(MEASURED, st.lists(st.sampled_from([0.0, 7.5, 100.0]), min_size=4, max_size=4)), max_size=3),
    st.sets(st.sampled_from(IDS)),
    st.dictionaries(st.sampled_from(IDS), st.floats(0, 50)),
)
def test_each_row_is_what_the_meter_says_of_its_link_whatever_was_told_before(
    seconds: list[tuple[dict[str, Any], list[float]]], down: set[str], planned: dict[str, float]
) -> None:
    rows = _LinkRows(NETWORK.links)
    for measured, capacities in seconds:
        meter = fed(measured)
        rows.told(capacities, down, planned, [0.25] * 4)
        now = meter.snapshot(3.0)
        found = json.loads("{" + ",".join(rows.texts(now, NETWORK.interference).values()) + "}")
        assert list(found) == IDS
        shares = LinkBusy(NETWORK.links).columns(now, NETWORK.interference, capacities).busy.tolist()
        for link, capacity, share in zip(IDS, capacities, shares, strict=True):
            of = meter.link(link, 3.0)
            busy = None if math.isnan(share) else share
            by_counters = None if busy is None else COUNTERS
            assert of.busy in (None, busy), "radios go before counters"
            assert dict(zip(COLUMNS["links"], found[link], strict=True)) == {
                "up": int(link not in down),
                "capacity_mbps": capacity or None,
                "rate_mbps": json.loads(_short(of.rate_mbps)),
                "busy_percent": json.loads(_percent(busy)),
                "planned_mbps": json.loads(_short(planned.get(link, 0.0))),
                "planned_busy_percent": 25,
                "source": SOURCES.index((of.rate_from, of.busy_from or by_counters)),
            }


def test_list_of_links_has_the_busy_share_of_the_live_document(tmp_path: Path) -> None:
    office = OfficeLoop(tmp_path)
    client = office.app.test_client()

    def listed() -> dict[str, float | None]:
        return {link["id"]: link["busy_percent"] for link in client.get("/api/v1/links?limit=1000").json["links"]}

    before = listed()
    assert len(before) == 552 and set(before.values()) == {None}, "nothing is measured yet"
    office.second()
    office.second()
    live = {
        link: row[COLUMNS["links"].index("busy_percent")]
        for link, row in client.get("/api/v1/live").json["links"].items()
    }
    found = listed()
    assert len(set(found.values())) > 10
    assert {link: json.loads(_percent(busy / 100)) for link, busy in found.items() if busy is not None} == live
    link = next(iter(found))
    assert client.get(f"/api/v1/links/{link}").json["busy_percent"] == found[link]


@given(st.floats(0, 1e6))
def test_figures_have_three_digits_or_two_behind_the_point(value: float) -> None:
    assert json.loads(_short(value)) == pytest.approx(value, rel=0.0051, abs=0.00501)
    assert "e" not in _short(value) and len(_short(value)) <= max(4, len(f"{value:.0f}"))
    assert json.loads(_percent(value / 1e6)) == pytest.approx(value / 1e4, rel=0.5, abs=0.0501)


def test_the_document_of_the_office_takes_less_than_25_kb_and_is_as_its_schema_says(tmp_path: Path) -> None:
    office = OfficeLoop(tmp_path)
    # In the first second no rate is known: one reading is none, and each is a null.
    office.second()
    assert len(office.live.live().text.encode()) < 26_000
    for _ in range(5):
        office.second()
        text = office.live.live().text
        assert len(text.encode()) < 25_000
    document = json.loads(text)
    assert not LiveSchema().validate(document) and len(document["links"]) == 552
    assert all(len(row) == len(COLUMNS["links"]) for row in document["links"].values())
    office.second()
    changed = json.loads(office.live.live(document["version"]).text)
    assert changed["from"] == document["version"] and changed["links"], "all that is measured moved"
    assert all(document["links"][link] != row for link, row in changed["links"].items())
