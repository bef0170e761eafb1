"""Demo ``roaming-80211``: handovers between access points with 802.11 radios of the kernel (mac80211_hwsim).

A plain station is asked over 802.11v to go from one access point to the other and back; a client with an agent moves
between two radios by each manager. Pings every 20 ms tell what is lost, doubled or out of order. The station's own
program decides whether it follows, and the controller knows where it is from its association alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hyroads.controller.core.network import Place
from hyroads.controller.model.handover import links_at
from hyroads.mininet.programs import wait_until
from hyroads.mininet.roaming import PingRun, Pings, Roamer

from . import recording
from .handover import INTERVAL_S, judge, links_up
from .verdict import Stage

NETWORK = "roaming-80211"
GATEWAY, STATION, CLIENT = "g", "p", "c"
CELL = "wifi"
ACCESS_POINTS = ("a", "b")
RADIOS = (Place("a", "wifi1"), Place("b", "wifi2"))
MANAGERS = ("hard", "hoolock", "bicast")
# The client leaves a radio every few seconds, as hardly anybody does: a link that comes and goes like that is held down
# for seconds, which would be all that the demo shows.
SETTINGS = {"flap_damping": False}
HANDOVERS = 20
DEFAULT_S = 8.0
ASSOCIATED_WITHIN_S, KNOWN_WITHIN_S, MOVED_WITHIN_S = 0.2, 0.1, 0.1
LOST_AT_MOST = 1
LENGTH_S = 1.0
"""Of the pings around one handover."""
BEFORE = 0.3
PATIENCE_S = 10.0
POLL_S = 0.005


@dataclass(frozen=True)
class Handover:
    """One handover: when it began (seconds of the run), how it ended, and what became of the pings."""

    at_s: float
    client: str
    manager: str
    source: str
    target: str
    phase: str
    moved_after_s: float
    pings: Pings


def run(stage: Stage) -> None:
    """The station, then the client with each manager."""
    for flow in stage.declared.flows:
        stage.declare(flow)
    # Each way as often as back; fewer with fewer --seconds.
    count = max(4, 2 * round(HANDOVERS * stage.hold_s / DEFAULT_S / 2))
    began_s = time.monotonic()
    made = roam_station(stage, count, began_s)
    roamer = Roamer(stage.emulation, CLIENT)
    for manager in MANAGERS:
        stage.view.phase(f"{count} handovers of {CLIENT} between its radios by {manager}")
        roamer.begin_at(RADIOS[0])
        mine = [roam_client(stage, roamer, RADIOS[number % 2], manager, began_s) for number in range(1, count + 1)]
        judge_done(stage, manager, mine)
        judge(stage, manager, [(f"{each.source} to {each.target}", each.pings) for each in mine])
        made += mine
    write(stage, made)


def roam_station(stage: Stage, count: int, began_s: float) -> list[Handover]:
    """The station associates, and is sent to the other access point again and again."""
    stage.view.phase(f"{STATION} associates")
    associate(stage)
    stage.view.phase(f"{count} handovers of {STATION} between access points by 802.11v")
    made = []
    for _ in range(count):
        here = attachment(stage)["node"]
        there = next(point for point in ACCESS_POINTS if point != here)
        made.append(timed(stage, began_s, (STATION, "802.11v", here, there), partial(send, stage, there)))
    judge_done(stage, "802.11v", made)
    slowest_s = max(each.moved_after_s for each in made)
    stage.check("802.11v: moved after, at worst", MOVED_WITHIN_S, slowest_s, "s", at_most=1.0)
    lost = max(each.pings.lost for each in made)
    stage.check("802.11v: lost in a handover, at worst", LOST_AT_MOST, lost, "pings", at_most=1.0)
    return made


def send(stage: Stage, access_point: str) -> dict[str, Any]:
    """Ask the controller to send the station to an access point, and wait until that is over."""
    body = {"client": STATION, "to": {"node": access_point, "technology": CELL}}
    answer: dict[str, Any] = stage.emulation.rest.request("POST", "/handovers", body).document
    return answer


def associate(stage: Stage) -> None:
    """How long the station takes, and how much later the controller knows."""
    cell = stage.emulation.cells[CELL]
    cell.set_associated(STATION, False)
    wait_until(f"{STATION} to leave", lambda: cell.associated_with(STATION) is None, PATIENCE_S, POLL_S)
    wait_until("the controller to know", lambda: attachment(stage)["known_by"] != "association", PATIENCE_S, POLL_S)
    began_s = time.monotonic()
    cell.set_associated(STATION, True)
    wait_until(f"{STATION} to associate", lambda: cell.associated_with(STATION) is not None, PATIENCE_S, POLL_S)
    associated_s = time.monotonic()
    wait_until("the controller to know", lambda: attachment(stage)["known_by"] == "association", PATIENCE_S, POLL_S)
    known_s = time.monotonic()
    stage.check(f"{STATION} associated after", ASSOCIATED_WITHIN_S, associated_s - began_s, "s", at_most=1.0)
    stage.check("known to the controller after that", KNOWN_WITHIN_S, known_s - associated_s, "s", at_most=1.0)


def attachment(stage: Stage) -> dict[str, Any]:
    """Where the controller takes the station to be."""
    found: dict[str, Any] = stage.emulation.rest.get(f"/clients/{STATION}")
    nowhere = {"node": ACCESS_POINTS[0], "known_by": None}
    return dict(found["attachments"][0]) if found["attachments"] else nowhere


def roam_client(stage: Stage, roamer: Roamer, place: Place, manager: str, began_s: float) -> Handover:
    """The client goes to another radio, which has associated before."""
    roamer.links(place, up=True)
    mine = links_at(stage.declared, CLIENT, place)
    wait_until(f"links at {place}", lambda: all(links_up(stage)[link] for link in mine), PATIENCE_S)
    who = (CLIENT, manager, str(roamer.at), str(place))
    return timed(stage, began_s, who, lambda: roamer.move(place, manager))


def timed(stage: Stage, began_s: float, who: tuple[str, str, str, str], move: Callable[[], dict[str, Any]]) -> Handover:
    """A handover with pings before, while and after it goes on; ``who`` is client, manager, source and target."""
    client, manager, source, target = who
    pings = PingRun(stage.emulation, GATEWAY, client, round(LENGTH_S / INTERVAL_S), INTERVAL_S)
    stage.pause(LENGTH_S * BEFORE)
    at_s = time.monotonic() - began_s
    handover = move()
    found = pings.result()
    after_s = handover["moved_after_s"]
    moved_s = math.inf if after_s is None else float(after_s)
    words = f"{handover['phase']}, moved {1e3 * moved_s:.0f} ms after the request, {found.lost} of {found.sent} lost"
    stage.view.note(f"     {source} to {target}: {words}")
    return Handover(at_s, client, manager, source, target, handover["phase"], moved_s, found)


def judge_done(stage: Stage, manager: str, made: Sequence[Handover]) -> None:
    """Whether all came to their end."""
    done = sum(each.phase == "done" for each in made)
    stage.check(f"{manager}: handovers done", len(made), done, f"of {len(made)}", at_least=1.0)


def write(stage: Stage, made: Sequence[Handover]) -> None:
    """All handovers as CSV, and a plot of how long they took and what they lost."""
    rows: list[list[object]] = []
    for each in made:
        who = (f"{each.at_s:.3f}", each.client, each.manager, each.source, each.target, each.phase)
        pings = each.pings
        moved = f"{each.moved_after_s:.4f}"
        rows.append([*who, moved, pings.sent, pings.lost, pings.doubled, pings.out_of_order])
    header = "at_s client manager from to phase moved_after_s sent lost doubled out_of_order"
    stage.write_csv("handovers.csv", header.split(), rows)
    if not recording.can_draw():
        stage.view.note("no plot: Matplotlib is not installed (pip install 'hyroads[study]')")
        return
    panels = [
        recording.Panel("flows moved after the request", "ms", series(made, lambda each: 1e3 * each.moved_after_s)),
        recording.Panel("pings lost in a handover", "pings", series(made, lambda each: float(each.pings.lost))),
    ]
    stage.files += recording.draw(stage.folder, stage.name, panels, {})


def series(
    made: Sequence[Handover], value: Callable[[Handover], float]
) -> dict[str, tuple[recording.FloatArray, recording.FloatArray]]:
    """A value of each handover over time, by manager."""
    found = {}
    for manager in dict.fromkeys(each.manager for each in made):
        mine = [each for each in made if each.manager == manager]
        found[manager] = (np.array([each.at_s for each in mine]), np.array([value(each) for each in mine]))
    return found
