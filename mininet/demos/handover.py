"""Demo ``handover``: a client goes from WiFi to another channel, to power line, to a cellular-like link, and back.

The controller moves its flows, asked over REST; the client only lets go of an access point when it is asked to leave.
Pings every 20 ms tell what is lost, doubled or out of order: nothing with `hoolock` and `bicast`, at most what is in
flight with `hard`. Then a flow goes by three lossy paths at once (3-cast), also while the controller is killed, and by
all of them together again.
"""

from __future__ import annotations

import math
from functools import partial

from hyroads.controller.core.network import Place
from hyroads.controller.model.handover import links_at
from hyroads.mininet.programs import wait_until
from hyroads.mininet.roaming import PingRun, Pings, Roamer, together

from .verdict import Stage

NETWORK = "roaming"
CLIENT, GATEWAY = "c", "g"
WAY = (Place("a", "wifi1"), Place("b", "wifi2"), Place("b", "plc"), Place("x", "lte"))
LOSSLESS = ("hoolock", "bicast")
INTERVAL_S = 0.02
# Of each series of pings so much goes by before the handover begins.
BEFORE = 0.3
LAST_LINKS = ("ac-wifi1", "bc-wifi2", "bc-plc")
LOSS = 0.03
JOIN_WITHIN_S = 5.0
RESTART_S = 6.0
COPIES = 3
STREAM_INTERVAL_S = 0.002
STREAM_BYTES = 200


def run(stage: Stage) -> None:
    """A round trip with each manager, then copies."""
    for flow in stage.declared.flows:
        stage.declare(flow)
    roamer = Roamer(stage.emulation, CLIENT)
    for manager in ("hard", *LOSSLESS):
        stage.view.phase(f"handovers by {manager}")
        roamer.begin_at(WAY[0])
        judge(stage, manager, round_trip(stage, roamer, manager))
    controller_killed(stage, roamer)
    for place in WAY:
        roamer.links(place, up=True)
    wait_until("all interfaces of the client", lambda: all(links_up(stage).values()), JOIN_WITHIN_S)
    stage.emulation.rest.request("POST", "/handovers", {"client": CLIENT, "to": None})
    ncast(stage)


def controller_killed(stage: Stage, roamer: Roamer) -> None:
    """Packets go on, and the next controller knows where the client is."""
    stage.view.phase("controller killed and started again")
    pings = PingRun(stage.emulation, GATEWAY, CLIENT, round(RESTART_S / INTERVAL_S), INTERVAL_S)
    restart(stage)
    stage.check("controller killed: lost", 0, pings.result().lost, "pings", at_most=1.0)
    flow = stage.emulation.rest.flow("down")
    links = {path["links"][-1] for path in flow["multipath"]}
    here = roamer.at is not None and links <= set(links_at(stage.declared, CLIENT, roamer.at))
    stage.check("controller back: the client's flow is where it was", 1, here, "of 1", at_least=1.0)


def restart(stage: Stage) -> None:
    """The controller is killed and started again."""
    stage.emulation.controller.kill()
    stage.emulation.controller.stop()
    stage.emulation.controller.start()
    stage.emulation.wait_ready()


def links_up(stage: Stage) -> dict[str, bool]:
    """Which links the controller takes for up."""
    links = stage.emulation.rest.get("/topology")["links"]
    return {link["id"]: link["up"] for link in links}


def round_trip(stage: Stage, roamer: Roamer, manager: str) -> list[tuple[str, Pings]]:
    """One handover to each place and back to the first."""
    found = []
    for place in (*WAY[1:], WAY[0]):
        old = roamer.at
        pings = PingRun(stage.emulation, GATEWAY, CLIENT, round(stage.hold_s / INTERVAL_S), INTERVAL_S)
        stage.pause(stage.hold_s * BEFORE)
        handover = roamer.move(place, manager)
        found.append((f"{old} to {place}", pings.result()))
        after_ms = 1e3 * (handover["moved_after_s"] or math.nan)
        stage.view.note(f"     {old} to {place}: {handover['phase']}, flows moved {after_ms:.0f} ms after the request")
    return found


def judge(stage: Stage, manager: str, found: list[tuple[str, Pings]]) -> None:
    """What pings say."""
    sent, lost, doubled, wrong = together(pings for _, pings in found)
    if manager in LOSSLESS:
        stage.check(f"{manager}: lost of {sent} pings", 0, lost, "pings", at_most=1.0)
    else:
        flying = sum(math.ceil(max(pings.rtt_ms, default=0.0) / 1e3 / INTERVAL_S) + 1 for _, pings in found)
        stage.check(f"{manager}: lost, beside what can be in flight", flying, lost, "pings", at_most=1.0)
    stage.check(f"{manager}: doubled", 0, doubled, "pings", at_most=1.0)
    stage.check(f"{manager}: out of order", 0, wrong, "pings", at_most=1.0)


def ncast(stage: Stage) -> None:
    """Copies over three paths that each lose some, switched on and off while packets flow."""
    rest = stage.emulation.rest
    for link in LAST_LINKS:
        stage.emulation.shared.set_link(link, loss=LOSS)
    stage.view.phase(f"{COPIES}-cast over links that lose {LOSS:.0%}")
    paths = [["ga", "ac-wifi1"], ["gb", "bc-wifi2"], ["gb", "bc-plc"]]
    rest.request("POST", "/ncasts", {"flow": "down", "copies": COPIES, "paths": paths})
    traffic = stage.traffic(GATEWAY, CLIENT)
    copied = traffic.stream(stage.hold_s, STREAM_INTERVAL_S, STREAM_BYTES, lambda: None)
    most = max(1.0, copied.sent * 1e-4)
    stage.check(f"{COPIES}-cast: lost of {copied.sent}", most, len(copied.lost), "packets", at_most=1.0)
    wrong = copied.doubled + copied.out_of_order
    stage.check(f"{COPIES}-cast: doubled or out of order", 0, wrong, "packets", at_most=1.0)
    for link in LAST_LINKS:
        stage.emulation.shared.set_link(link, loss=0.0)

    received = traffic.stream(RESTART_S, STREAM_INTERVAL_S, STREAM_BYTES, partial(restart, stage))
    wrong = len(received.lost) + received.doubled + received.out_of_order
    stage.check("n-cast, controller killed: lost, doubled, out of order", 0, wrong, "packets", at_most=1.0)
    copies = rest.get("/ncasts/down")
    goes_on = (copies["phase"], copies["paths"]) == ("copying", paths)
    stage.check("n-cast, controller back: it goes on", 1, goes_on, "of 1", at_least=1.0)

    def off_and_on() -> None:
        rest.request("DELETE", "/ncasts/down")
        rest.request("POST", "/ncasts", {"flow": "down", "copies": COPIES})

    switched = traffic.stream(stage.hold_s, STREAM_INTERVAL_S, STREAM_BYTES, off_and_on)
    wrong = len(switched.lost) + switched.doubled + switched.out_of_order
    stage.check("n-cast off and on: lost, doubled, out of order", 0, wrong, "packets", at_most=1.0)
    rest.request("DELETE", "/ncasts/down")
