"""What happens to a flow when parts fail: controller killed, agent killed, link cut - and when they come back."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from hyroads.mininet.probe import StreamReport
from hyroads.mininet.programs import EmulationError, wait_until
from hyroads.mininet.run_directory import discovered_names, network_document

from .verdict import Stage

INTERVAL_S = 0.005
PACKET_BYTES = 1200
CONTROLLER_DOWN_S = 10.0
AGENT_DOWN_S = 2.0
CUT_S = 3.0
BACK_TIMEOUT_S = 15.0
# What the project promises.
AGENT_FALLBACK_S = 1.0
AGENT_BACK_S = 5.0
LINK_MOVE_S = 0.2
POLL_S = 0.01


@dataclass
class Moments:
    """When what happened (seconds of CLOCK_MONOTONIC; 0 = not yet)."""

    broken_s: float = 0.0
    mended_s: float = 0.0
    back_s: float = 0.0


def run_faults(stage: Stage, source: str, target: str, flow: str) -> None:
    """All faults, each on a stream of packets of which every one is accounted for."""
    controller_killed(stage, source, target)
    edges = stage.emulation.rest.flow(flow)
    agent_lost(stage, source, target, flow, edges["ingress"], how=signal.SIGKILL)
    agent_lost(stage, source, target, flow, edges["egress"], how=signal.SIGKILL)
    agent_lost(stage, source, target, flow, edges["ingress"], how=signal.SIGSTOP)
    link_cut(stage, source, target, flow)


def _stream(stage: Stage, source: str, target: str, seconds: float, during: Callable[[], None]) -> StreamReport:
    return stage.traffic(source, target).stream(seconds, INTERVAL_S, PACKET_BYTES, during)


def controller_killed(stage: Stage, source: str, target: str) -> None:
    """No packet is lost while the controller is away, nor when it comes back."""
    stage.view.phase(f"controller killed (kill -9) for {CONTROLLER_DOWN_S:.0f} s under a paced UDP stream")
    controller = stage.emulation.controller

    def during() -> None:
        controller.kill()
        stage.pause(CONTROLLER_DOWN_S)
        controller.start()
        stage.emulation.wait_ready()

    report = _stream(stage, source, target, CONTROLLER_DOWN_S + 8.0, during)
    stage.check("packets lost while the controller was killed", 0, len(report.lost), "packets", at_most=1.0)


def agent_lost(stage: Stage, source: str, target: str, flow: str, node: str, *, how: signal.Signals) -> None:
    """Traffic falls back to the single path, and to the multipath when the agent returns.

    A killed agent's connections break; a frozen one (SIGSTOP) just falls silent, which takes up to the promised second
    to notice before anything can move.
    """
    word = {signal.SIGKILL: "killed", signal.SIGSTOP: "frozen"}[how]
    stage.view.phase(f"agent of {node} {word} ({how.name}) under a paced UDP stream")
    agent = stage.emulation.agent(node)
    second = _link_of_one_path(stage, flow)[0]
    moments = Moments()

    def during() -> None:
        moments.broken_s = time.monotonic()
        agent.kill(how)
        _await_state(stage, flow, "single")
        stage.pause(AGENT_DOWN_S)
        carried = _carried_bytes(stage, second)
        moments.mended_s = time.monotonic()
        if how == signal.SIGSTOP:
            agent.kill(signal.SIGCONT)
        else:
            agent.start()
        _await_use(stage, second, carried)
        moments.back_s = time.monotonic()
        _await_state(stage, flow, "multipath")

    report = _stream(stage, source, target, AGENT_DOWN_S + 6.0, during)
    outage_s = report.last_loss_after_s(moments.broken_s, moments.mended_s)
    what = f"agent of {node} {word}"
    limit_s = AGENT_FALLBACK_S + (LINK_MOVE_S if how == signal.SIGSTOP else 0.0)
    stage.check(f"{what}: until the single path carries all", limit_s, outage_s, "s", at_most=1.0)
    back_s = moments.back_s - moments.mended_s
    stage.check(f"{what}, back: until the multipath is used", AGENT_BACK_S, back_s, "s", at_most=1.0)


def link_cut(stage: Stage, source: str, target: str, flow: str) -> None:
    """The flow moves to what is left when a link of its multipath dies, and back when it returns."""
    link, backward = _link_of_one_path(stage, flow)
    stage.view.phase(f"link {link} cut under a paced UDP stream")
    moments = Moments()

    def during() -> None:
        _set_links(stage, (link, backward), up=False)
        moments.broken_s = time.monotonic()
        stage.pause(CUT_S)
        carried = _carried_bytes(stage, link)
        _set_links(stage, (link, backward), up=True)
        moments.mended_s = time.monotonic()
        _await_use(stage, link, carried)
        moments.back_s = time.monotonic()

    report = _stream(stage, source, target, CUT_S + 5.0, during)
    move_s = report.last_loss_after_s(moments.broken_s, moments.mended_s)
    stage.check(f"{link} cut: until what is left carries all", LINK_MOVE_S, move_s, "s", at_most=1.0)
    late_s = max(0.0, report.longest_gap_s(moments.mended_s - 1.0, moments.mended_s) - LINK_MOVE_S)
    stage.check(f"{link} stays cut: stream interrupted beyond that", 0, late_s, "s", at_most=1.0)
    back_s = moments.back_s - moments.mended_s
    stage.check(f"{link} restored: until it carries the flow", 2.0, back_s, "s", at_most=1.0)
    lost = len([n for n in report.lost if report.sent_at_s(n) >= moments.mended_s])
    stage.check(f"{link} restored: packets lost", 0, lost, "packets", at_most=1.0)


def _link_of_one_path(stage: Stage, flow: str) -> tuple[str, str]:
    """A link that only one path of the flow uses, and its backward direction."""
    multipath = stage.emulation.rest.flow(flow)["multipath"]
    if len(multipath) < 2:
        raise EmulationError(f"flow {flow} has no second path that a cut could leave")
    emulation = stage.emulation
    links = emulation.network.links
    names = {}
    if emulation.options.discover:
        # A controller that discovers links has names of its own for them.
        document = network_document(emulation.network, emulation.addressing, measured=True, discover=True)
        names = {theirs: ours for ours, theirs in discovered_names(emulation.network, document).items()}
    for link in multipath[0]["links"]:
        if all(link not in path["links"] for path in multipath[1:]):
            cut = next(one for one in links if one.id == names.get(link, link))
            ends = (cut.target, cut.source, cut.technology)
            back = next((one.id for one in links if (one.source, one.target, one.technology) == ends), cut.id)
            return cut.id, back
    raise EmulationError(f"flow {flow}: its paths share all links")


def _set_links(stage: Stage, links: tuple[str, ...], *, up: bool) -> None:
    for link in dict.fromkeys(links):
        stage.emulation.shared.set_link(link, up=up)


def _carried_bytes(stage: Stage, link: str) -> int:
    """Bytes that the link has carried."""
    with stage.emulation.shared.client() as client:
        return int(client.stats().links[link].bytes)


def _await_use(stage: Stage, link: str, carried: int) -> None:
    """Waits until the link has carried packets of the stream, not just hello frames of 46 bytes every few dozen ms."""
    wait_until(
        f"use of {link}",
        lambda: _carried_bytes(stage, link) - carried > 10 * PACKET_BYTES,
        BACK_TIMEOUT_S,
        interval_s=POLL_S,
    )


def _await_state(stage: Stage, flow: str, state: str) -> None:
    wait_until(
        f"flow {flow} in state {state}",
        lambda: bool(stage.emulation.rest.flow(flow)["state"] == state),
        BACK_TIMEOUT_S,
        interval_s=POLL_S,
    )
