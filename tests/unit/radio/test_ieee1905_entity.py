"""The AL entity on virtual time: greetings, questions, answers, and neighbours that flood or lie."""

from __future__ import annotations

import pytest

from hyroads.controller.access_point.ieee1905 import (
    ETHERTYPE,
    GROUP,
    LINK_METRIC_QUERY,
    LINK_METRIC_RESPONSE,
    TOPOLOGY_DISCOVERY,
    TOPOLOGY_NOTIFICATION,
    TOPOLOGY_QUERY,
    TOPOLOGY_RESPONSE,
    Joiner,
    Message,
    write_message,
)
from hyroads.controller.access_point.ieee1905_entity import (
    DISCOVERY_S,
    FORGET_S,
    MAX_LINKS_OF_PEER,
    MAX_PEERS,
    MAX_SEEN,
    METRICS_FORGET_S,
    METRICS_S,
    NOTIFY_EVERY_S,
    RELAYS_PER_S,
    TOPOLOGY_S,
    AlEntity,
    Frame,
    OwnInterface,
    OwnLink,
)
from hyroads.controller.access_point.ieee1905_tlvs import (
    AlAddress,
    DeviceInformation,
    LocalInterface,
    MessageError,
    MetricQuery,
    MetricResult,
    Neighbours,
    SendingInterface,
    TransmitterMetric,
    TransmitterMetrics,
)
from hyroads.controller.access_point.model import mac_bytes

AL, WIFI, PLC = "42:00:00:00:00:01", "00:00:00:00:00:01", "00:00:00:00:00:02"
OTHER, OTHER_WIFI, OTHER_PLC = "42:00:00:00:00:99", "00:00:00:00:00:98", "00:00:00:00:00:97"
INTERFACES = (OwnInterface("wlan0", WIFI, 0x0105), OwnInterface("eth1", PLC, 0x0201))


def entity(link=lambda interface, mac: None) -> AlEntity:
    return AlEntity(AL, INTERFACES, link, 0.0)


def frame(destination: str, source: str, message: Message) -> bytes:
    head = mac_bytes(destination) + mac_bytes(source) + ETHERTYPE.to_bytes(2, "big")
    return head + write_message(message)[0]


def greeting(al: str = OTHER, mac: str = OTHER_WIFI) -> bytes:
    return frame(GROUP, mac, Message(TOPOLOGY_DISCOVERY, 1, (AlAddress(al), SendingInterface(mac))))


def metrics(*links: TransmitterMetric, al: str = OTHER) -> Message:
    return Message(LINK_METRIC_RESPONSE, 7, (TransmitterMetrics(al, AL, links),))


def link(capacity: int, available: int, mac: str = OTHER_WIFI) -> TransmitterMetric:
    return TransmitterMetric(mac, WIFI, 0x0105, False, 0, 0, capacity, available, 866)


def read(sent: Frame) -> tuple[str, str, Message]:
    message = Joiner().received("", sent.data[14:], 0.0)
    assert message is not None and len(sent.data) >= 60
    return sent.data[:6].hex(":"), sent.data[6:12].hex(":"), message


def test_greets_on_all_interfaces_at_once_and_each_minute():
    al = entity()
    first = al.due(0.0)
    assert [(sent.interface, *read(sent)[:2]) for sent in first] == [("wlan0", GROUP, WIFI), ("eth1", GROUP, PLC)]
    assert read(first[1])[2].tlvs == (AlAddress(AL), SendingInterface(PLC))
    assert al.due_s == DISCOVERY_S and al.due(DISCOVERY_S - 1) == []
    assert len(al.due(DISCOVERY_S)) == 2


def test_interface_that_is_added_greets_at_once():
    al = entity()
    al.due(0.0)
    al.add(OwnInterface("eth2", "00:00:00:00:00:03", 1), 5.0)
    assert [sent.interface for sent in al.due(5.0)] == ["wlan0", "eth1", "eth2"]


def test_new_neighbour_is_asked_for_topology_and_metrics():
    al = entity()
    al.due(0.0)
    assert al.received("wlan0", greeting(), 1.0) == []
    asked = al.due(1.0)
    assert [(sent.interface, read(sent)[0], read(sent)[2].kind) for sent in asked] == [
        ("wlan0", GROUP, TOPOLOGY_NOTIFICATION),
        ("eth1", GROUP, TOPOLOGY_NOTIFICATION),
        ("wlan0", OTHER, TOPOLOGY_QUERY),
        ("wlan0", OTHER, LINK_METRIC_QUERY),
    ]
    assert al.due(1.1) == []


def test_answers_of_a_neighbour_give_its_links_exactly():
    al = entity()
    al.received("wlan0", greeting(), 1.0)
    told = DeviceInformation(OTHER, (LocalInterface(OTHER_WIFI, 0x0105), LocalInterface(OTHER_PLC, 0x0201)))
    al.received("wlan0", frame(AL, OTHER, Message(TOPOLOGY_RESPONSE, 1, (told,))), 2.0)
    al.received("wlan0", frame(AL, OTHER, metrics(link(400, 35), link(90, 80, OTHER_PLC))), 3.0)
    (device,) = al.devices()
    assert device.interfaces == told.interfaces and device.heard_s == 3.0
    assert [(each.interface, each.capacity_mbps, each.available_percent) for each in device.links] == [
        (OTHER_WIFI, 400, 35),
        (OTHER_PLC, 90, 80),
    ]
    al.received("wlan0", frame(AL, OTHER, metrics(link(300, 20))), 4.0)
    assert al.devices()[0].links[0].capacity_mbps == 300 and len(al.devices()[0].links) == 2


def test_neighbour_on_two_media_is_one_device_with_two_hearings():
    al = entity()
    al.received("wlan0", greeting(), 1.0)
    al.received("eth1", greeting(mac=OTHER_PLC), 1.0)
    (device,) = al.devices()
    assert [(each.own, each.interface) for each in device.hearings] == [("wlan0", OTHER_WIFI), ("eth1", OTHER_PLC)]


def test_metrics_of_unknown_or_other_devices_are_passed_over():
    al = entity()
    al.received("wlan0", frame(AL, OTHER, metrics(link(400, 35))), 1.0)
    assert al.devices() == ()
    al.received("wlan0", greeting(), 1.0)
    al.received("wlan0", frame(AL, "00:00:00:00:00:55", metrics(link(400, 35))), 2.0)
    assert al.devices()[0].links == ()


def test_silent_neighbour_is_forgotten():
    al = entity()
    al.received("wlan0", greeting(), 1.0)
    al.due(FORGET_S + 0.9)
    assert len(al.devices()) == 1
    al.due(FORGET_S + 1.1)
    assert al.devices() == ()


def test_answers_with_own_interfaces_neighbours_and_measured_links():
    known = {("wlan0", OTHER_WIFI): OwnLink(120.9, 25), ("eth1", OTHER_PLC): OwnLink(70_000, 100)}
    al = entity(lambda interface, mac: known.get((interface, mac)))
    al.received("wlan0", greeting(), 1.0)
    al.received("eth1", greeting(mac=OTHER_PLC), 1.0)
    (answer,) = al.received("wlan0", frame(AL, OTHER, Message(TOPOLOGY_QUERY, 55)), 2.0)
    destination, source, message = read(answer)
    assert (destination, source, message.kind, message.number) == (OTHER, WIFI, TOPOLOGY_RESPONSE, 55)
    mine = DeviceInformation(AL, (LocalInterface(WIFI, 0x0105), LocalInterface(PLC, 0x0201)))
    heard = [Neighbours(mac, ((OTHER, False),)) for mac in (WIFI, PLC)]
    assert message.tlvs == (mine, *heard)
    (answer,) = al.received("wlan0", frame(WIFI, OTHER, Message(LINK_METRIC_QUERY, 56, (MetricQuery(OTHER),))), 2.0)
    (told,) = read(answer)[2].tlvs
    assert (told.al, told.neighbour_al) == (AL, OTHER)
    figures = [(e.interface, e.neighbour_interface, e.capacity_mbps, e.available_percent) for e in told.links]
    assert figures == [(WIFI, OTHER_WIFI, 120, 25), (PLC, OTHER_PLC, 0xFFFF, 100)]


def test_query_for_a_device_that_is_no_neighbour_says_so():
    (answer,) = entity().received("wlan0", frame(AL, OTHER, Message(LINK_METRIC_QUERY, 1, (MetricQuery(OTHER),))), 0.0)
    assert read(answer)[2].tlvs == (MetricResult(0),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(14),
        frame("00:00:00:00:00:77", OTHER, Message(TOPOLOGY_QUERY, 1)),
        frame(AL, WIFI, Message(TOPOLOGY_QUERY, 1)),
        greeting(al=AL),
        frame(AL, OTHER, Message(0x8000, 1)),
    ],
)
def test_frames_that_are_not_for_it_are_passed_over(data):
    al = entity()
    assert al.received("wlan0", data, 0.0) == []
    assert al.received("nowhere", greeting(), 0.0) == [] and al.devices() == ()


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message(TOPOLOGY_DISCOVERY, 1, (AlAddress(OTHER),)), "without the addresses"),
        (Message(TOPOLOGY_DISCOVERY, 1, (AlAddress("01:00:00:00:00:00"), SendingInterface(OTHER))), "addresses"),
        (Message(LINK_METRIC_QUERY, 1), "does not say which links"),
    ],
)
def test_message_without_its_content_is_refused(message, why):
    with pytest.raises(MessageError, match=why):
        entity().received("wlan0", frame(AL if message.kind else GROUP, OTHER, message), 0.0)


def test_answers_at_most_twenty_queries_a_second():
    al = entity()
    query = frame(AL, OTHER, Message(TOPOLOGY_QUERY, 1))
    answers = [len(al.received("wlan0", query, n / 1000)) for n in range(3000)]
    assert 20 + 3 * 20 - 2 <= sum(answers) <= 20 + 3 * 20


def test_ten_thousand_neighbours_leave_the_first_and_cost_bounded_memory():
    al = entity()
    al.received("wlan0", greeting(), 0.0)
    refused = 0
    for n in range(10_000):
        address = f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}"
        try:
            al.received("wlan0", greeting(address, address), 0.0)
        except MessageError:
            refused += 1
    assert refused == 10_000 - (MAX_PEERS - 1) and len(al.devices()) == MAX_PEERS
    assert OTHER in {device.al for device in al.devices()}


def test_neighbour_with_too_many_links_keeps_the_first():
    al = entity()
    al.received("wlan0", greeting(), 0.0)
    for start in (0, 40, 80):
        links = (link(n, 50, f"02:00:00:00:01:{n:02x}") for n in range(start, start + 40))
        al.received("wlan0", frame(AL, OTHER, metrics(*links)), 1.0)
    assert len(al.devices()[0].links) == MAX_LINKS_OF_PEER


def test_two_entities_hear_each_other_and_agree():
    al = entity(lambda interface, mac: OwnLink(120, 25))
    other = AlEntity(OTHER, (OwnInterface("lan", OTHER_WIFI, 0x0105),), lambda interface, mac: OwnLink(60, 75), 0.0)
    ends = {"wlan0": (other, "lan"), "lan": (al, "wlan0")}
    for now_s in (0.0, 1.0, 6.0, 12.0):
        waiting = [*al.due(now_s), *other.due(now_s)]
        while waiting:
            sent = waiting.pop(0)
            if sent.interface in ends:
                receiver, interface = ends[sent.interface]
                waiting += receiver.received(interface, sent.data, now_s)
    assert [(each.capacity_mbps, each.available_percent) for each in al.devices()[0].links] == [(60, 75)]
    assert [(each.capacity_mbps, each.available_percent) for each in other.devices()[0].links] == [(120, 25)]


def notification(al: str = OTHER, number: int = 5, *, is_relayed: bool = True) -> bytes:
    return frame(GROUP, OTHER_WIFI, Message(TOPOLOGY_NOTIFICATION, number, (AlAddress(al),), is_relayed))


def kinds(frames: list[Frame]) -> list[int]:
    return [read(sent)[2].kind for sent in frames]


def test_notifies_when_a_neighbour_comes_or_goes_at_most_once_a_second():
    al = entity()
    al.due(0.0)
    al.received("wlan0", greeting(), 1.0)
    news = [sent for sent in al.due(1.0) if read(sent)[2].kind == TOPOLOGY_NOTIFICATION]
    assert [sent.interface for sent in news] == ["wlan0", "eth1"]
    first, second = (read(sent)[2] for sent in news)
    assert first == second and first.is_relayed and first.tlvs == (AlAddress(AL),)
    for number in range(2, 30):
        al.received("wlan0", greeting(f"42:00:00:00:01:{number:02x}"), 1.0 + number / 100)
        assert TOPOLOGY_NOTIFICATION not in kinds(al.due(1.0 + number / 100))
    assert al.due_s <= 1.0 + NOTIFY_EVERY_S
    assert kinds(al.due(1.0 + NOTIFY_EVERY_S)).count(TOPOLOGY_NOTIFICATION) == 2
    gone_s = 2.0 + FORGET_S
    assert kinds(al.due(gone_s)).count(TOPOLOGY_NOTIFICATION) == 2 and al.devices() == ()


def test_queries_a_neighbour_that_notifies_at_most_once_a_second():
    al = entity()
    al.due(0.0)
    al.received("wlan0", greeting(), 1.0)
    al.due(1.0)
    queries = 0
    for number in range(100):
        now_s = 2.0 + number / 50
        al.received("wlan0", notification(number=number), now_s)
        queries += kinds(al.due(now_s)).count(TOPOLOGY_QUERY)
    assert queries in {2, 3}
    # One more query for the last ones; without notifications one a minute.
    assert TOPOLOGY_QUERY in kinds(al.due(5.0))
    assert TOPOLOGY_QUERY not in kinds(al.due(4.9 + TOPOLOGY_S))
    assert TOPOLOGY_QUERY in kinds(al.due(5.0 + TOPOLOGY_S))


def test_relays_each_relayed_message_once_to_the_other_interfaces():
    al = entity()
    (sent,) = al.received("wlan0", notification(), 1.0)
    assert (sent.interface, *read(sent)[:2]) == ("eth1", GROUP, PLC)
    assert read(sent)[2] == Message(TOPOLOGY_NOTIFICATION, 5, (AlAddress(OTHER),), is_relayed=True)
    # It comes back by another way, and own messages do too.
    assert al.received("eth1", notification(), 1.1) == []
    assert al.received("eth1", notification(AL, 9), 1.2) == []
    assert al.received("wlan0", notification(number=6, is_relayed=False), 1.3) == []
    assert len(al.received("wlan0", notification(number=7), 1.4)) == 1


def test_relays_are_bounded_in_rate_and_memory():
    al = entity()
    sent = [al.received("wlan0", notification(number=number), 1.0) for number in range(4 * MAX_SEEN)]
    assert sum(map(len, sent)) == RELAYS_PER_S
    assert len(al._seen) <= MAX_SEEN
    assert len(al.received("wlan0", notification(number=60_000), 2.0)) == 1


def test_a_ring_of_entities_relays_a_message_once_each():
    ring = [AlEntity(f"42:00:00:00:00:{n:02x}", (OwnInterface("left", f"00:00:00:00:01:{n:02x}", 1),
            OwnInterface("right", f"00:00:00:00:02:{n:02x}", 1)), lambda interface, mac: None, 0.0)
            for n in range(4)]  # fmt: skip
    waiting, sent = [(0, "left", notification())], 0
    while waiting:
        at, interface, data = waiting.pop()
        for each in ring[at].received(interface, data, 1.0):
            sent += 1
            beside = (at + (1 if each.interface == "right" else -1)) % 4
            waiting.append((beside, "left" if each.interface == "right" else "right", each.data))
    assert sent == len(ring)


def test_metrics_that_are_not_repeated_are_forgotten():
    al = entity()
    al.received("wlan0", greeting(), 1.0)
    al.received("wlan0", frame(WIFI, OTHER_WIFI, metrics(link(90, 40))), 2.0)
    al.due(2.0)
    assert len(al.devices()[0].links) == 1
    al.due(2.0 + METRICS_FORGET_S)
    assert len(al.devices()[0].links) == 1
    al.due(2.0 + METRICS_FORGET_S + METRICS_S)
    assert al.devices()[0].links == ()
