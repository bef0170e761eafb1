"""The rate that a flow's last agent receives, from the agent's own counters and clock."""

from __future__ import annotations

from hyroads.mininet.emulation import Emulation
from hyroads.mininet.errors import EmulationError


class DeliveryRecorder:
    """Samples the received L2 payload of one multipath flow while traffic runs."""

    def __init__(self, emulation: Emulation, flow: str) -> None:
        self._emulation = emulation
        described = emulation.rest.flow(flow)
        self._number = described["number"]
        self._egress = described["egress"]
        if self._egress is None:
            raise EmulationError(f"flow {flow} has no last agent: it is {described['state']}")
        self._samples: list[tuple[float, int]] = []
        self._started = False

    def start(self) -> None:
        """From now on ``sample`` counts."""
        self._started = True
        self.sample()

    def sample(self) -> None:
        """Adds (agent's time, bytes received on all paths); nothing before ``start``."""
        if not self._started:
            return
        report = self._emulation.agent_report(self._egress)
        received = sum(
            path["received_bytes"]
            for flow in report["egress"]
            if flow["number"] == self._number
            for path in flow["paths"]
        )
        self._samples.append((report["time_s"], received))

    def rate_mbps(self, within_s: float) -> float:
        """Mean rate in Mb/s of L2 payload over the first ``within_s`` seconds after ``start``."""
        if not self._samples:
            raise EmulationError("no samples of the last agent: traffic did not start")
        first = self._samples[0]
        last = max(sample for sample in self._samples if sample[0] - first[0] <= within_s)
        if last[0] <= first[0]:
            raise EmulationError("too few samples of the last agent for a rate")
        return (last[1] - first[1]) * 8 / 1e6 / (last[0] - first[0])
