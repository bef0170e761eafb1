"""One TCP connection whose two directions are both flows: acknowledgements never take the airtime of the data.

A model of two agents with the granularity of real reports (frames of a slot, bytes of a queue), the estimator of
demands, and the exact rates of two flows of equal weight on one medium.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest
from reports_by_flow import offer_of

from hyroads.controller.control.reports import Side
from hyroads.controller.core.demand import Demands

TICK_S, TICKS = 0.005, 20
SLOT_S = TICK_S * TICKS
SETTLED = 20
MEDIUM_MBPS = 10.45
DATA_BYTES, ACK_BYTES = 1538, 90
# As seen: with a report of what is missing (SACK), and one for each frame instead of each second one, after a loss.
SACK_BYTES = 110
LOSS_EVERY = 21
# A pacer lets a frame a path pass early, and a full one at that.
SLACK_BYTES = 3 * 1500


class Agent:
    """The sending end of a flow: paces what waits, counts as agents do."""

    def __init__(self, longest_queue: int) -> None:
        self._waiting: deque[int] = deque()
        self._longest = longest_queue
        self._credit = 0.0
        self._sent_frames = self._sent_bytes = self._dropped = 0
        self._before: dict[str, object] | None = None

    def tick(self, frames: Iterable[int], rate_mbps: float) -> int:
        """Frames (bytes of each) come, and as many leave as a tick allows; returns how many left."""
        for frame in frames:
            if len(self._waiting) < self._longest:
                self._waiting.append(frame)
            else:
                self._dropped += 1
        self._credit = min(self._credit, SLACK_BYTES) + rate_mbps * 125_000 * TICK_S
        left = 0
        while self._waiting and self._credit >= self._waiting[0]:
            size = self._waiting.popleft()
            self._credit -= size
            self._sent_bytes += size
            left += 1
        self._sent_frames += left
        return left

    def report(self, rate_mbps: float) -> Side:
        """What it says at the end of a slot, and what it said at the end of the last."""
        path = {"id": 1, "rate_mbps": rate_mbps, "sent_frames": self._sent_frames, "sent_bytes": self._sent_bytes}
        queued = {"queued": len(self._waiting), "queued_bytes": sum(self._waiting)}
        entry = {**queued, "dropped": self._dropped, "paths": [path]}
        side = Side(entry, self._before, SLOT_S)
        self._before = entry
        return side


def shares(data: float, acks: float) -> tuple[float, float]:
    """Rates of two flows of equal weight on one medium, from their demands in Mb/s."""
    half = MEDIUM_MBPS / 2
    if data <= half or acks <= half:
        small, great = min(data, acks), min(max(data, acks), MEDIUM_MBPS - min(data, acks))
        return (small, great) if data < acks else (great, small)
    return half, half


@pytest.mark.parametrize("together", [1, 6, 24, 48], ids=lambda n: f"bursts of {n}")
def test_acknowledgements_take_what_they_send_and_some_headroom(together: int) -> None:
    """``together``: so many data frames are delivered at once, in order again, and acknowledged in one burst."""
    data, acks = Agent(longest_queue=50), Agent(longest_queue=32)
    demands = Demands()
    rates = (MEDIUM_MBPS / 2, MEDIUM_MBPS / 2)
    delivered = ack_bytes = held = 0
    most_mbps, slots = 0.0, 300
    for slot in range(slots):
        for _ in range(TICKS):
            # The sender's window fills the queue; nothing arrives without leaving it.
            sent = data.tick([DATA_BYTES] * 12, rates[0])
            held += sent
            due = held // together * together
            held -= due
            frames = [SACK_BYTES] * due if slot % LOSS_EVERY == LOSS_EVERY - 1 else [ACK_BYTES] * (due // 2)
            acks.tick(frames, rates[1])
            if slot >= SETTLED:
                delivered += sent
                ack_bytes += sum(frames)
        offers = {"data": offer_of(data.report(rates[0])), "acks": offer_of(acks.report(rates[1]))}
        demands = demands.after({flow: offer for flow, offer in offers.items() if offer is not None}, slot * SLOT_S)
        rates = shares(demands.demand_mbps("data"), demands.demand_mbps("acks"))
        if slot >= SETTLED:
            most_mbps = max(most_mbps, rates[1])
    seconds = (slots - SETTLED) * SLOT_S
    acks_mbps = ack_bytes * 8e-6 / seconds
    assert delivered * DATA_BYTES * 8e-6 / seconds >= 0.97 * (MEDIUM_MBPS - acks_mbps)
    # After a loss they are twice as many, and longer: they get that, and headroom.
    assert most_mbps <= 1.25 * 2 * SACK_BYTES / ACK_BYTES * 1.15 * acks_mbps


def test_what_waits_is_counted_in_bytes() -> None:
    """Forty acknowledgements are no backlog of a transfer; four full frames are one."""

    def offer(queued: int, queued_bytes: int | None, size: int):
        def entry(frames: int, waiting: int) -> dict[str, object]:
            path = {"id": 1, "rate_mbps": 0.4, "sent_frames": frames, "sent_bytes": frames * size}
            return {"queued": waiting, "queued_bytes": queued_bytes, "dropped": 0, "paths": [path]}

        return offer_of(Side(entry(45, queued), entry(0, 0), SLOT_S))

    small = offer(40, 40 * ACK_BYTES, ACK_BYTES)
    assert small.backlogged and not small.is_open
    assert small.offered_mbps == pytest.approx(85 * ACK_BYTES * 8e-6 / SLOT_S)
    # A transfer that begins among acknowledgements shows in what waits, not in what was sent.
    assert offer(4, 4 * 1500, ACK_BYTES).is_open
    assert not offer(3, 3 * 1500, ACK_BYTES).is_open
    # An agent that does not say how much waits: full frames, as ever.
    assert offer(4, None, ACK_BYTES).is_open
    # Nothing waits, and the last frames were full: nobody knows whether it would send more.
    assert offer(0, 0, 1500).offered_mbps is None
    assert offer(0, 0, ACK_BYTES).offered_mbps == pytest.approx(45 * ACK_BYTES * 8e-6 / SLOT_S)
