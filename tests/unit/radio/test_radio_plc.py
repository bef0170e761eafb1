"""Power line: what a scripted adapter answers, as readings."""

import homeplug_frames as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point import homeplug
from hyroads.controller.access_point.homeplug_events import RxCounts, TxCounts
from hyroads.controller.access_point.model import RadioError
from hyroads.controller.access_point.plc import AV2, AV_200, FAMILIES, GREEN_PHY, Plc, l2_capacity_mbps
from hyroads.controller.access_point.plc_busy import BusyMeter, BusyView, LinkCounts
from hyroads.controller.access_point.plc_reader import HomePlugReader

NEAR, FAR = "00:0b:3b:aa:00:02", "00:0b:3b:aa:00:03"
BEHIND = "02:00:01:02:00:02"
STATIONS = [(NEAR, 2, BEHIND, 132, 98), (FAR, 3, "ff:ff:ff:ff:ff:ff", 0, 45)]
SILENT = object()


class Adapter:
    """A port behind which an adapter answers from a table: type of the request -> answers."""

    address = made.HOST

    def __init__(self, **changed):
        self.answers = {
            0x6048: [made.network_stats([(s[0], s[3], s[4]) for s in STATIONS])],
            0xA000: [made.software_version()],
            0xA038: [made.network_info(STATIONS)],
            0xA030: [made.link_stats((100, 0, 0, 500, 5), (0, 0, 0, 0, 0, 0))],
            0xA034: [],
            0xA070: [],
        }
        self.answers |= {int(key[1:], 16): value for key, value in changed.items()}
        self.requests, self.queue, self.dropped = [], [], False

    def send(self, frame):
        kind = int.from_bytes(frame[15:17], "little")
        self.requests.append((kind, frame[14]))
        answers = self.answers.get(kind, [])
        for answer in answers(frame) if callable(answers) else answers:
            # Counters carry the number of the station that the request names.
            tei = {made.mac(s[0]): s[1] for s in STATIONS}.get(frame[23:29], 2)
            self.queue.append(answer[:23] + bytes([tei]) + answer[24:] if kind == 0xA030 else answer)

    def receive(self, timeout_s):
        return self.queue.pop(0) if self.queue else None

    def lost(self):
        return self.dropped

    def close(self):
        pass


def radio(adapter):
    return Plc(HomePlugReader("eth1", lambda name: adapter))


def test_reads_rates_both_ways_and_the_address_behind_the_adapter():
    near, far = radio(Adapter()).read(0.0).neighbours
    assert (near.mac, far.mac) == (BEHIND, FAR)
    assert near.tx_capacity_kbps == pytest.approx(78_029, abs=1)  # (132 + 0.65) / 1.7
    assert near.rx_capacity_kbps == pytest.approx(58_029, abs=1)
    assert far.tx_capacity_kbps == 0
    assert near.modulation == "BLE 132 PBerr 1.0%, HomePlug AV 500 as AV 200"


def test_adapter_of_another_vendor_is_read_by_the_standard_message():
    adapter = Adapter(xA000=[], xA038=[], xA030=[])
    near, _ = radio(adapter).read(0.0).neighbours
    assert (near.mac, near.tx_capacity_kbps) == (NEAR, 78_029)
    assert {kind for kind, _ in adapter.requests} == {0x6048, 0xA000}


def test_adapter_that_knows_its_vendors_messages_alone_is_read():
    near, _ = radio(Adapter(x6048=[])).read(0.0).neighbours
    assert (near.mac, near.tx_capacity_kbps) == (BEHIND, 78_029)


def test_rates_above_one_byte_are_read_by_version_2():
    versions = {1: made.network_stats([(NEAR, 255, 255)]), 2: made.network_stats([(NEAR, 1200, 300)], version=2)}
    near = radio(Adapter(x6048=lambda frame: [versions[frame[14]]], xA000=[], xA038=[])).read(0.0).neighbours[0]
    assert near.tx_capacity_kbps == round(1000 * (1200 + 0.65) / 1.7)


def test_loss_counts_what_happened_between_readings():
    adapter = Adapter()
    plc = radio(adapter)
    plc.read(0.0)
    adapter.answers[0xA030] = [made.link_stats((190, 0, 10, 900, 5), (0, 0, 0, 0, 0, 0))]
    assert plc.read(1.0).neighbours[0].tx_loss == pytest.approx(0.1)
    adapter.answers[0xA030] = [made.link_stats((10, 0, 10, 900, 5), (0, 0, 0, 0, 0, 0))]
    assert plc.read(2.0).neighbours[0].tx_loss == pytest.approx(0.5)


def test_failed_blocks_are_those_of_the_last_second_with_traffic():
    adapter, shares = Adapter(), []
    plc = radio(adapter)
    for now_s, passed, failed in ((0.0, 100, 100), (0.5, 190, 110), (1.5, 300, 200), (3.0, 300, 200)):
        adapter.answers[0xA030] = [made.link_stats((0, 0, 0, passed, failed), (0, 0, 0, 0, 0, 0))]
        reading = plc.read(now_s)
        shares.append(reading.neighbours[0].plc.block_errors)
    assert shares == pytest.approx([0.5, 0.5, 100 / 300, 100 / 300])
    assert reading.adapter == made.ADAPTER
    assert reading.neighbours[0].plc.adapter == NEAR


def test_tone_maps_give_the_rate_of_each_slot():
    def answer(frame):
        slot = frame[32]
        return made.fragments(0xA071, made.tone_map_body([4 + slot] * 1155, slot=slot, slots=2))

    near, _ = radio(Adapter(xA070=answer)).read(0.0).neighbours
    # 1155 carriers of 4 and 6 bits, 16/21, 46.52 us.
    assert near.modulation == "BLE 132 slots 76-113 PBerr 1.0%, HomePlug AV 500 as AV 200"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"x6048": [], "xA000": []}, "no power-line adapter answers"),
        ({"x6048": [made.frame(0x6049, b"\xff", version=1)], "xA000": []}, f"0x6049 from {made.ADAPTER}: 255 rows"),
        ({"x6048": [made.frame(0x6049, b"", version=1)[:19]], "xA000": []}, f"0x6049 from {made.ADAPTER}: cut after 0"),
        ({"x6048": [made.network_stats([(NEAR, 9000, 1)], version=2)]}, "9000 Mb/s for 00:0b:3b:aa:00:02, more than"),
    ],
)
def test_adapter_that_is_silent_or_lies_gives_one_line(changed, why):
    adapter = Adapter(**changed)
    if "9000" in why:
        adapter.answers[0xA038] = []
    with pytest.raises(RadioError, match=why) as caught:
        radio(adapter).read(0.0)
    assert "\n" not in str(caught.value)


def test_adapter_that_falls_silent_is_looked_for_again():
    adapter = Adapter()
    plc = radio(adapter)
    plc.read(0.0)
    answers, adapter.answers = adapter.answers, {}
    with pytest.raises(RadioError, match=f"adapter {made.ADAPTER} does not answer any more"):
        plc.read(1.0)
    adapter.answers = answers
    assert len(plc.read(2.0).neighbours) == 2


def test_late_counters_of_one_station_are_not_taken_for_another():
    adapter = Adapter()
    late = made.link_stats((7, 0, 0, 7, 0), (0, 0, 0, 0, 0, 0))
    adapter.answers[0xA030] = lambda frame: [made.link_stats((1, 0, 0, 100, 0), (0, 0, 0, 0, 0, 0))]
    reader = HomePlugReader("eth1", lambda name: adapter)
    adapter.queue.append(late[:23] + bytes([3]) + late[24:])
    assert [s.tx.pbs_passed for s in reader.view(0.0).stations] == [100, 100]


def test_adapter_with_254_stations_is_read():
    stations = [(f"00:0b:3b:00:00:{tei:02x}", tei, BEHIND, 100, 100) for tei in range(1, 255)]
    adapter = Adapter(
        x6048=made.fragments(0x6049, made.network_stats([(s[0], 100, 100) for s in stations])[19:]),
        xA038=made.fragments(0xA039, made.network_info_body(stations)),
    )
    assert len(radio(adapter).read(0.0).neighbours) == 254


# -- busy time

SOF_US, ACK_US = 110.48 + 1000 * 1.28, 110.48 + 100


def sniffing(frames):
    adapter = Adapter(xA034=[made.sniffer_state(True)])
    plc = radio(adapter)
    adapter.queue += [made.delimiter(0)]
    plc.read(0.0)
    adapter.queue += frames
    return adapter, plc


def test_sniffer_counts_frames_acknowledgements_and_spaces_of_all_networks():
    foreign = [made.delimiter(1, length=1000, source_tei=77, destination_tei=78), made.delimiter(2)]
    _, plc = sniffing(foreign * 100)
    reading = plc.read(1.0)
    assert reading.busy_source == "sniffer"
    assert (reading.busy_us, reading.active_us) == (int(100 * (SOF_US + ACK_US)), 1_000_000)


def test_time_in_which_indications_were_lost_is_not_observed():
    adapter, plc = sniffing([made.delimiter(1, length=1000)])
    adapter.dropped = True
    assert plc.read(1.0).active_us == 0


def test_counters_take_over_when_the_sniffer_says_nothing():
    adapter, plc = sniffing([])
    adapter.answers[0xA030] = [made.link_stats((110, 0, 0, 600, 5), (0, 0, 0, 0, 0, 0))]
    reading = plc.read(1.5)
    assert reading.busy_source == "counters"
    fixed_us = 2 * 110.48 + 140 + 100
    # The rate towards the second station is 0, so nothing is known of its airtime.
    assert reading.busy_us == pytest.approx(10 * fixed_us + 100 * 8 * 520 / 132, abs=1)
    assert reading.active_us == 1_500_000


class Line(Adapter):
    """Behind the port is a line, on which the adapter NEAR answers as well: ``between`` counts its frames to FAR."""

    between = (100, 0, 0, 500, 5)

    def send(self, frame):
        if frame[:6] != made.mac(NEAR):
            super().send(frame)
            return
        stats, rates = made.link_stats(self.between, (0, 0, 0, 0, 0, 0)), made.network_stats([(FAR, 100, 50)])
        answer = {0x6048: rates, 0xA030: stats}[int.from_bytes(frame[15:17], "little")]
        self.queue.append(answer[:6] + made.mac(NEAR) + answer[12:])


def test_counters_of_links_between_other_adapters_count_as_well():
    adapter = Line()
    plc = radio(adapter)
    plc.read(0.0)
    adapter.between = (110, 0, 0, 700, 5)
    reading = plc.read(1.0)
    assert reading.busy_source == "counters"
    fixed_us = 2 * 110.48 + 140 + 100
    assert reading.busy_us == pytest.approx(10 * fixed_us + 200 * 8 * 520 / 100, abs=1)


def test_other_adapters_are_left_alone_while_the_sniffer_works():
    adapter = Line(xA034=[made.sniffer_state(True)])
    plc = radio(adapter)
    adapter.queue.append(made.delimiter(0))
    plc.read(0.0)
    # A request to the other adapter would fail now.
    adapter.between = None
    adapter.queue.append(made.delimiter(0))
    assert plc.read(0.5).busy_source == "sniffer"


def test_sniffer_of_an_adapter_that_was_plugged_in_again_is_switched_on_again():
    adapter, plc = sniffing([])
    adapter.requests.clear()
    plc.read(0.5)
    assert 0xA034 not in {kind for kind, _ in adapter.requests}
    plc.read(1.5)
    plc.read(1.6)
    assert [kind for kind, _ in adapter.requests].count(0xA034) == 1


def test_no_busy_time_without_sniffer_and_counters():
    plc = radio(Adapter(xA030=[], xA000=[]))
    plc.read(0.0)
    reading = plc.read(1.0)
    assert (reading.busy_source, reading.active_us) == ("none", 0)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10**9), st.integers(0, 10**9)), max_size=20))
def test_counters_only_grow_and_the_line_is_never_busier_than_observed(steps):
    meter, now_s, last = BusyMeter(), 0.0, (0, 0)
    for step_s, mpdus, blocks in steps:
        now_s += step_s
        link = LinkCounts(NEAR, TxCounts(mpdus, 0, 0, blocks, 0), RxCounts(0, 0, 0, 0, 0, 0, ()), 100, 100)
        busy, active, _ = meter.add(now_s, BusyView(), [link])
        assert busy >= last[0] and active >= last[1] and busy <= active + 1
        last = busy, active


@given(st.floats(0.01, 150))
def test_capacity_inverts_the_measured_line(ble):
    assert 1.7 * l2_capacity_mbps(ble) - 0.65 == pytest.approx(ble)
    assert l2_capacity_mbps(0) == 0


def test_only_av_200_has_a_measured_line():
    assert {family.name for family in FAMILIES.values() if family.measured} == {AV_200.name}
    assert l2_capacity_mbps(100, GREEN_PHY) == 10
    assert l2_capacity_mbps(2000, AV2) == 1000
    assert homeplug.LOCAL_ADAPTER.startswith("00:b0:52")
