"""devolo's adapters: what an overview means for an access point, and overviews that make no sense."""

from __future__ import annotations

import math
from dataclasses import replace

import devolo_adapter
import pytest
from devolo_adapter import ATTIC, BEHIND_HALL, HALL, OWN
from devolo_plc_api.plcnet_api.getnetworkoverview_pb2 import GetNetworkOverview
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.config import parse
from hyroads.controller.access_point.model import RadioError
from hyroads.controller.access_point.plc import AV2, GHN, Plc, l2_capacity_mbps
from hyroads.controller.access_point.plc_devolo import READ_EVERY_S, Adapter, DevoloReader, PairRate, view_of
from hyroads.controller.core.errors import ConfigError

ADAPTERS = [Adapter(OWN, True, 7, ["02AA00000001"]), Adapter(HALL, False, 7, [BEHIND_HALL]), Adapter(ATTIC, False, 7)]
RATES = [PairRate(OWN, HALL, 1300.4, 900.0), PairRate(HALL, OWN, 899.0, 1299.0), PairRate(ATTIC, OWN, 120.0, 80.0)]


def test_the_fake_is_an_overview_for_the_library() -> None:
    found = GetNetworkOverview()
    found.ParseFromString(devolo_adapter.overview(4))
    network = found.network
    assert [(each.mac_address, each.topology, each.technology) for each in network.devices] == [
        (OWN, GetNetworkOverview.Device.LOCAL, GetNetworkOverview.Device.HPAV_PANTHER),
        (HALL, GetNetworkOverview.Device.REMOTE, GetNetworkOverview.Device.HPAV_PANTHER),
        (ATTIC, GetNetworkOverview.Device.REMOTE, GetNetworkOverview.Device.HPAV_PANTHER),
    ]
    assert [(each.mac_address_from, each.tx_rate) for each in network.data_rates][:2] == [(OWN, 1300.4), (HALL, 899.0)]


def test_rates_of_the_own_adapter_count_before_those_that_other_adapters_report_of_it() -> None:
    view = view_of(ADAPTERS, RATES)
    assert (view.adapter, view.family) == ("00:0b:3b:c3:a4:e6", GHN)
    rows = [(each.mac, each.bridged_mac, each.tx_mbps, each.rx_mbps) for each in view.stations]
    assert rows == [
        ("00:0b:3b:c3:a4:e7", "b8:27:eb:41:c0:a1", 1300, 900),
        ("00:0b:3b:c3:a4:e8", "", 80, 120),
    ]
    assert view_of([replace(ADAPTERS[0], technology=4), *ADAPTERS[1:]], RATES).family == AV2


def test_neighbours_have_a_capacity_that_is_marked_as_assumed_and_no_busy_time() -> None:
    reading = Plc(DevoloReader("192.0.2.20", ask=lambda: (ADAPTERS, RATES))).read(0.0)
    first, second = reading.neighbours
    assert (first.mac, second.mac) == ("b8:27:eb:41:c0:a1", "00:0b:3b:c3:a4:e8")
    assert first.tx_capacity_kbps == round(1000 * l2_capacity_mbps(1300, GHN))
    assert first.modulation == "BLE 1300, G.hn as AV 200"
    assert reading.busy_source == "none"


def test_the_adapter_is_read_every_two_seconds_and_again_after_an_error() -> None:
    answers: list[object] = [(ADAPTERS, RATES), RadioError("away"), (ADAPTERS[:2], RATES)]
    queries: list[float] = []

    def ask() -> tuple[list[Adapter], list[PairRate]]:
        queries.append(0.0)
        answer = answers.pop(0)
        if isinstance(answer, RadioError):
            raise answer
        return answer  # type: ignore[return-value]

    reader = DevoloReader("192.0.2.20", ask=ask)
    assert len(reader.view(0.0).stations) == len(reader.view(READ_EVERY_S - 0.1).stations) == 2
    assert len(queries) == 1
    with pytest.raises(RadioError, match="away"):
        reader.view(READ_EVERY_S)
    assert len(reader.view(READ_EVERY_S + 0.1).stations) == 1 and len(queries) == 3


WRONG = {
    "no local adapter": (ADAPTERS[1:], RATES, "0 adapters as the local one"),
    "two local ones": ([ADAPTERS[0], replace(ADAPTERS[1], local=True)], RATES, "2 adapters as the local one"),
    "an address": ([*ADAPTERS, Adapter("00:0b\n", False)], RATES, "expected 12 hexadecimal digits"),
    "a rate that is no number": (ADAPTERS, [PairRate(OWN, HALL, math.nan, 1.0)], "a rate of nan"),
    "a negative rate": (ADAPTERS, [PairRate(OWN, HALL, -1.0, 1.0)], "a rate of -1"),
    "too many": ([ADAPTERS[0], *[ADAPTERS[1]] * 256], RATES, "names 257 adapters"),
    "a rate beyond the standard": (ADAPTERS, [PairRate(OWN, HALL, 5000.0, 1.0)], "more than G.hn can carry"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_overview_that_makes_no_sense_is_refused_in_one_line(what: str) -> None:
    adapters, rates, said = WRONG[what]
    with pytest.raises(RadioError, match=said) as raised:
        Plc(DevoloReader("192.0.2.20", ask=lambda: (adapters, rates))).read(0.0)
    assert "\n" not in str(raised.value)


@given(
    st.lists(st.builds(Adapter, st.text(max_size=13), st.booleans(), st.integers(), st.lists(st.text(), max_size=2))),
    st.lists(
        st.builds(PairRate, st.sampled_from([OWN, HALL, "x"]), st.sampled_from([OWN, ATTIC]), st.floats(), st.floats())
    ),
)
def test_any_overview_is_a_view_or_an_error(adapters: list[Adapter], rates: list[PairRate]) -> None:
    for each in (adapters, [*ADAPTERS, *adapters]):
        try:
            assert all(station.tx_mbps >= 0 for station in view_of(each, rates).stations)
        except RadioError as error:
            assert str(error).isprintable()


def test_the_file_names_the_adapter_by_its_address() -> None:
    def of(**more: str) -> str:
        entry = {"name": "eth1", "technology": "plc", "backend": "devolo", **more}
        return f'{{"node": "up", "interfaces": [{entry!r}]}}'.replace("'", '"')

    (interface,) = parse(of(adapter="192.0.2.20", password="secret"), "ap.json").interfaces
    assert (interface.adapter, interface.password, "secret" in repr(interface)) == ("192.0.2.20", "secret", False)
    for more, said in (({}, "adapter: expected the IP"), ({"adapter": "x"}, "adapter"),
                       ({"adapter": "192.0.2.20", "backend": "plc"}, "backend devolo with it")):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            parse(of(**more), "ap.json")
