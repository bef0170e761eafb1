"""Demo ``external``: traffic that nobody controls gets all that it asks for, the controlled flows what is left.

A hybrid flow a -> b and a WiFi flow d -> b are controlled. An ordinary laptop's traffic b -> c is not: it is no
declared flow, the controller sees it only as airtime that its own flows do not explain. It asks for a quarter of WiFi's
airtime, then for half of it, and stops.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from hyroads.controller.core.network import FlowSpec
from hyroads.mininet.udp_load import L2_BYTES, PAYLOAD_BYTES

from .scenario import Scenario, offered_mbps
from .verdict import Stage

EXTERNAL = FlowSpec("external", "b", "c")
LINK = "bc-wifi"
SHARES = (0.0, 0.25, 0.5, 0.0)
TITLES = ("none", "a quarter of WiFi", "half of WiFi", "none again")
# The loop sees external traffic after two slots but learns what it asks for only as it gets more.
SETTLE_S = 2.0
# Queues that filled in that time empty first.
DELIVERED_LATER_S = 1.4
SERVED, AT_LEAST = 0.95, 0.93
NEVER_BELOW = 0.5
WINDOW_S = 0.4
# Interfaces count Ethernet headers, too.
L2_SHARE = L2_BYTES / (L2_BYTES + 14)


def run(stage: Stage) -> None:
    """Without, with some, with much, without."""
    flows = list(stage.declared.flows)
    capacity = next(link.capacity_mbps for link in stage.declared.links if link.id == LINK)
    alone = stage.theory.optimum(flows).rates_mbps
    asked = [share * capacity for share in SHARES]
    with Scenario(stage, flows, hosts=[EXTERNAL.target]) as scene:
        scene.load.open(EXTERNAL.id, EXTERNAL.source, EXTERNAL.target)
        stage.view.phase("two controlled flows")
        for flow in flows:
            scene.start_flow(flow.id, offered_mbps(alone[flow.id]))
        for title, mbps in zip(TITLES, asked, strict=True):
            send = partial(scene.load.set_rate, EXTERNAL.id, mbps * PAYLOAD_BYTES / L2_BYTES)
            targets = stage.theory.optimum(flows, {LINK: mbps}).rates_mbps
            scene.play(f"external traffic: {title}", title, targets, send)
        scene.load.set_rate(EXTERNAL.id, 0.0)
        time.sleep(0.1)
    for phase, mbps in enumerate(asked):
        if mbps:
            judge_external(stage, scene, phase, mbps)
        scene.judge(phase, SETTLE_S, at_least=AT_LEAST, delivered_later_s=DELIVERED_LATER_S)
    scene.write({"external": EXTERNAL.target})


def judge_external(stage: Stage, scene: Scenario, phase: int, asked_mbps: float) -> None:
    """Never starved: from the start at least half of what it asks for, and soon all of it."""
    title, start_s, end_s = scene.span(phase)
    carried = scene.recording.mean_host(EXTERNAL.target, start_s + SETTLE_S, end_s)
    during = scene.moments(phase, SETTLE_S)
    stage.check(f"{title}: external traffic carried", asked_mbps, carried * L2_SHARE, "Mb/s", SERVED, 1.05, during)
    ends = np.arange(start_s + 0.5, end_s, 0.1).tolist()
    worst = min(scene.recording.mean_host(EXTERNAL.target, end - WINDOW_S, end) for end in ends)
    stage.check(f"{title}: its worst 0.4 s", asked_mbps, worst * L2_SHARE, "Mb/s", NEVER_BELOW, None, during)
