"""What REST shows of the loop: estimates with their doubts, airtime of domains, what interfaces hear."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyroads.controller.api.network import flow_document, interfaces_document, links_document
from hyroads.controller.control.loop import LiveLoop
from hyroads.controller.control.reports import AgentRates
from hyroads.controller.control.routes import FlowRoute
from hyroads.controller.control.source import Heard
from hyroads.controller.core.closed_loop import Measurements
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.estimate.link_estimate import Sample, Source
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.files.documents import read_file

NETWORK = read_file(Path(__file__).resolve().parents[3] / "mininet" / "networks" / "triangle.yaml")
WIFI = ("a", "wifi")


class Instruments:
    """Modulation of one link, and one interface that hears a busy medium and then says nothing more."""

    def __init__(self) -> None:
        self.talks = True

    def take(self, now_s: float) -> Measurements:
        if not self.talks:
            return Measurements()
        return Measurements([Sample("ab-wifi", Source.MODULATION, 15.0, now_s)], {WIFI: 0.5})

    def heard(self) -> Heard:
        return HEARD


HEARD = Heard(observers=(WIFI, ("b", "plc")))


def loop_after(instruments: Instruments, slots: int) -> LiveLoop:
    loop = LiveLoop(NETWORK, instruments)
    spec = FlowSpec("f", "a", "b", paths=(("ab-wifi",),))
    loop.lay_out(NETWORK, {"f": FlowRoute(spec, "a", "b", spec.paths)})
    for slot in range(1, slots + 1):
        loop.turn(0.1 * slot, AgentRates({("f", ("ab-wifi",)): 3.0}, {"f": Offer(3.0, 9.0)}))
    return loop


def test_estimates_come_with_their_source_and_their_doubts() -> None:
    loop = loop_after(Instruments(), 20)
    links = links_document(loop, 2.0)
    assert links["ab-wifi"]["capacity_mbps"] == pytest.approx(15.0)
    known, unknown = links["ab-wifi"]["estimate"], links["ab-plc"]["estimate"]
    assert (known["source"], known["quality"], known["reason"]) == ("modulation", "good", None)
    assert (unknown["quality"], unknown["capacity_mbps"]) == ("missing", None) and unknown["reason"]
    assert links["ab-plc"]["capacity_mbps"] is None and links["ab-plc"]["declared_mbps"] == 10.0
    assert flow_document(loop, "f")["demand_mbps"] == pytest.approx(3.0 * 1.15)


def test_airtime_of_others_is_what_interfaces_hear_beyond_our_own() -> None:
    instruments = Instruments()
    loop = loop_after(instruments, 20)
    heard = {(each["node"], each["technology"]): each for each in interfaces_document(loop, 2.1)}
    assert heard[WIFI]["external"] == pytest.approx(0.5 - 3.0 / 15.0, abs=0.02)
    assert heard[WIFI]["age_s"] == pytest.approx(0.1) and heard[WIFI]["quality"] == "good"
    assert heard["b", "plc"]["age_s"] is None and heard["b", "plc"]["quality"] == "stale"
    assert links_document(loop, 2.1)["ab-wifi"]["external"] == pytest.approx(0.3, abs=0.02)
    instruments.talks = False
    loop.turn(6.0)
    assert {each["quality"] for each in interfaces_document(loop, 6.0)} == {"stale"}
    assert links_document(loop, 6.0)["ab-wifi"]["external"] == 0.0
