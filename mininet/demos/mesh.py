"""Demo ``mesh``: one TCP connection uses the backlinks of three access points, also where these share one channel.

Cereijo (UC3M, 2016) measured such a mesh with the kernel's MPTCP and
layer-2 routing: 26 of 30 Mb/s where the links between access points had two channels and the client Ethernet, less than
10 where all of it was on WiFi.
"""

from __future__ import annotations

from collections.abc import Iterable

from hyroads.controller.core.network import ClientMode, Network
from hyroads.controller.core.placement import place_radios

from .checks import Check
from .triangle import activate, await_multipath, timed_tcp, udp_beside
from .verdict import Stage

FLOW = "down"
# Links of the file that do not exist in a phase; both directions.
TWO_CHANNELS, ONE_CHANNEL = ("cb-1", "bt-wifi"), ("cb-6", "bt-eth")
AT_LEAST = 0.95
# Until paths that came back are in use.
SETTLE_S = 2.0
# Acknowledgements have links of their own here, and nobody else uses these media.
SETTINGS: dict[str, object] = {"margin": 0.01, "tcp_margin": 0.01}
# A capacity is what a link carries of packets; TCP's own part of a packet of 1500 bytes is 52.
PACKETS_OVER_PAYLOAD = 1500 / 1448


def run(stage: Stage) -> None:
    """Two channels and Ethernet; then everything on WiFi, the access points on one channel."""
    switch(stage, (), TWO_CHANNELS)
    activate(stage)
    measure(stage, "two channels, client on Ethernet", TWO_CHANNELS)
    switch(stage, TWO_CHANNELS, ONE_CHANNEL)
    measure(stage, "one channel, client on WiFi", ONE_CHANNEL)


def switch(stage: Stage, there: Iterable[str], gone: Iterable[str]) -> None:
    """Other links exist from now on."""
    for links, up in ((there, True), (gone, False)):
        for direction in both_ways(links):
            stage.emulation.shared.set_link(direction, up=up)
    stage.pause(SETTLE_S)


def measure(stage: Stage, title: str, gone: Iterable[str]) -> None:
    """One TCP connection beside the best placement of the client's radios."""
    flow = stage.declared.flows[0]
    await_multipath(stage, flow.id)
    stage.view.phase(title)
    optimum = optimum_mbps(stage.declared, gone)
    result, during = timed_tcp(stage, stage.options.seconds, "cubic")
    what, mbps = f"packets of TCP, {title}", result.mbps * PACKETS_OVER_PAYLOAD
    check = Check(what, optimum, mbps, at_least=AT_LEAST, at_most=1.0, during=during, adapts=True)
    stage.check_tcp(check, udp_beside(stage, what, optimum * (1 - stage.emulation.margin())))
    stage.view.note(f"     of which TCP payload: {result.mbps:.2f} Mb/s")


def optimum_mbps(network: Network, gone: Iterable[str]) -> float:
    """What ``hyroads place`` says of the flow, Mb/s, without the links ``gone``; all airtime may be used."""
    flow = network.flows[0]
    live = network.with_capacities(dict.fromkeys(both_ways(gone), 0.0))
    return place_radios(live, flow.target, flow.source, ClientMode.FULL_SPEED).total_mbps


def both_ways(links: Iterable[str]) -> list[str]:
    """The links, and those back."""
    return [direction for link in links for direction in (link, f"{link}~")]
