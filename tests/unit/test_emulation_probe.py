"""The accounting of the paced stream: losses, outages and gaps from hand-made arrivals."""

import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.mininet.probe import Arrival, StreamReport, receive, report, send

INTERVAL_S = 0.01


def stream(sent: int, lost: set[int], start_s: float = 100.0) -> StreamReport:
    arrivals = tuple(
        Arrival(n, start_s + n * INTERVAL_S, start_s + n * INTERVAL_S + 0.002) for n in range(sent) if n not in lost
    )
    return StreamReport(sent, start_s, INTERVAL_S, arrivals)


def test_outage_ends_one_interval_after_the_last_lost_packet():
    result = stream(100, lost=set(range(20, 25)))
    # Packets 20..24 left at 100.20..100.24; the event was at 100.195.
    assert result.last_loss_after_s(100.195) == pytest.approx(100.24 + INTERVAL_S - 100.195)


def test_losses_before_the_event_or_after_the_window_do_not_count():
    result = stream(100, lost={3, 50, 90})
    assert result.last_loss_after_s(100.4, before_s=100.8) == pytest.approx(0.5 + INTERVAL_S - 0.4)
    assert result.last_loss_after_s(100.6, before_s=100.8) == 0.0


def test_gap_counts_silence_at_both_edges():
    result = stream(10, lost=set(range(5, 10)))
    assert result.longest_gap_s(100.0, 100.5) == pytest.approx(0.5 - 0.042)
    assert stream(10, lost=set(range(10))).longest_gap_s(100.0, 100.5) == pytest.approx(0.5)


@given(sent=st.integers(1, 200), lost=st.sets(st.integers(0, 199)))
def test_every_packet_is_either_lost_or_arrived(sent: int, lost: set[int]):
    result = stream(sent, lost)
    assert sorted([*result.lost, *(arrival.number for arrival in result.arrivals)]) == list(range(sent))


def test_both_ends_on_loopback(unused_udp_port_pair):
    port, arrivals, sent = unused_udp_port_pair
    result = report(sent, arrivals)
    assert port > 0
    assert result.sent == 20
    assert result.lost == []
    assert all(0 <= arrival.received_s - arrival.sent_s < 1.0 for arrival in result.arrivals)


@pytest.fixture
def unused_udp_port_pair():
    """A real stream over loopback: (port, what arrived, what the sender says)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as finder:
        finder.bind(("127.0.0.1", 0))
        port = finder.getsockname()[1]
    collected = []
    receiver = threading.Thread(target=lambda: collected.extend(receive(port, 0.45)))
    receiver.start()
    listening = f":{port:04X} 00000000:0000"
    while receiver.is_alive() and listening not in Path("/proc/net/udp").read_text():
        time.sleep(0.002)
    sent = send("127.0.0.1", port, 0.1, 0.005, 100)
    receiver.join()
    return port, collected, sent
