"""Demo ``session``: five devices talk to each other without a server, over trees that take every link once.

First they talk through a chat server at the gateway. Then a session is declared: messages go to its group and are
copied where the trees branch. Server and controller are killed, one more device joins and leaves, a link is cut; who
misses what is counted by the numbers in the messages, what goes over links by medium and switches.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyroads.mininet.emulation import Emulation
from hyroads.mininet.group_talk import GroupTalk, tree_counters

from .checks import part_of
from .verdict import Stage

GROUP = "239.1.2.3"
OTHER_GROUP = "239.1.2.4"
SERVER = "g"
MEMBERS = ("s", "a", "c", "d", "p")
NEWCOMER = "b"
ROUNDS = 5
# 50 messages/s of 100 bytes, with headers of UDP, IP, Ethernet and the tree's label.
SENT_MBPS = 50 * (100 + 8 + 20 + 14 + 4) * 8e-6
# Counters of rules are asked for each second, and follow within another.
COUNTED_S = 4.0
# A message that is under way when a count ends is still to come.
LATEST_S = 0.5
_PACKETS = re.compile(r"n_packets=(\d+).*mpls_label=(\d+)")


def run(stage: Stage) -> None:
    """With a server, without; without a controller; joins and leaves; a link is cut."""
    emulation, hold_s = stage.emulation, float(stage.options.seconds)
    stage.view.phase("through a chat server")
    with GroupTalk(emulation, MEMBERS, GROUP, server=SERVER) as chat:
        stage.pause(1.0)
        chat.forget()
        stage.pause(hold_s)
        by_server_ms = float(np.median(chat.delays_ms()))
    stage.view.phase("a session is declared")
    asked_s = time.monotonic()
    document = emulation.rest.request(
        "POST", "/sessions", {"id": "talk", "group": GROUP, "participants": list(MEMBERS)}
    ).document
    confirmed_ms = 1e3 * (time.monotonic() - asked_s)
    stage.check("request to confirmed session", 60.0, confirmed_ms, "ms", at_most=20.0)
    with GroupTalk(emulation, [*MEMBERS, NEWCOMER], GROUP) as talk:
        talk.speak(MEMBERS)
        stage.pause(1.0)
        _count(stage, talk, document, hold_s)
        by_session_ms = float(np.median(talk.delays_ms(MEMBERS)))
        stage.check("median delay by server, and by session", by_server_ms, by_session_ms, "ms", at_most=1.0)
        _join_and_leave(stage, talk)
        _without_controller(stage, talk, hold_s)
        _cut(stage, talk)
    _by_membership(stage)


def _judge(stage: Stage, what: str, talk: GroupTalk, from_s: float, hosts: Sequence[str] = MEMBERS) -> None:
    """Messages that some host missed or got twice since a moment."""
    to_s = time.monotonic()
    time.sleep(LATEST_S)
    accounts = [talk.account(to, by, from_s, to_s) for to in hosts for by in hosts if to != by]
    said = sum(account.said for account in accounts)
    stage.check(f"{what}: messages due", 1, min(1, said), "", at_least=1.0)
    for name in ("missed", "doubled"):
        count = sum(getattr(account, name) for account in accounts)
        stage.check(f"{what}: {name} of {said}", 0, count, "", at_most=1.0)


def _count(stage: Stage, talk: GroupTalk, document: dict[str, Any], hold_s: float) -> None:
    """Whether every link of every tree carries every message once, and nothing else carries any."""
    stage.view.phase("messages are counted on all links")
    talk.speak([])
    time.sleep(LATEST_S)
    rules, links = label_counters(stage.emulation), tree_counters(stage.emulation)
    said = {host: len(talk.said[host]) for host in MEMBERS}
    from_s = time.monotonic()
    talk.forget()
    talk.speak(MEMBERS)
    stage.pause(max(hold_s, COUNTED_S))
    trees = stage.emulation.rest.get("/sessions/talk")["trees"]
    sent_mbps = part_of(sum(tree["sent_mbps"] or 0.0 for tree in trees), len(trees))
    talk.speak([])
    _judge(stage, "in the session", talk, from_s)
    stage.check("what a source sends, as switches count it", SENT_MBPS, sent_mbps, at_least=0.8, at_most=1.2)
    # Open vSwitch's counters follow within a second.
    time.sleep(1.0)
    after, links_after = label_counters(stage.emulation), tree_counters(stage.emulation)
    said = {host: len(talk.said[host]) - said[host] for host in MEMBERS}
    expected, by_link = _expected(stage.emulation, document, said)
    wrong = sum(abs(after.get(key, 0) - rules.get(key, 0) - count) for key, count in expected.items())
    words = f"copies at switches that should not be, or are missing, of {sum(expected.values())}"
    stage.check(words, 0, wrong, "", at_most=1.0)
    carried = {name: links_after[name] - links[name] for name in links}
    # Hosts say now and then who they are (IGMP, MLD), which is flooded.
    extra = sum(max(0, carried[name] - by_link[name]) for name in carried)
    missing = sum(max(0, by_link[name] - carried[name]) for name in carried)
    total = sum(by_link.values())
    stage.check(f"frames missing on links, of {total}", 0, missing, "", at_most=1.0)
    stage.check("other frames on links", 0.02 * total, extra, "", at_most=1.0)
    talk.speak(MEMBERS)


def _expected(
    emulation: Emulation, document: dict[str, Any], said: Mapping[str, int]
) -> tuple[Counter[tuple[str, int]], Counter[str]]:
    """Messages that switches should take from their parents, by node and label, and unicast frames by link."""
    network, addressing = emulation.network, emulation.addressing
    copies: Counter[tuple[str, int]] = Counter()
    frames: Counter[str] = Counter()
    for tree in document["trees"]:
        for sent in tree["transmissions"]:
            for name in sent:
                link = network.links[network.link_index[name]]
                if addressing.has_switch(link.source) and addressing.has_switch(link.target):
                    copies[link.target, tree["label"]] += said[tree["source"]]
                if len(sent) == 1:
                    frames[name] += said[tree["source"]]
    return copies, frames


def label_counters(emulation: Emulation) -> dict[tuple[str, int], int]:
    """By node and label: how many frames its switch took from the parent in the tree."""
    found: dict[tuple[str, int], int] = {}
    for node in emulation.addressing.dpid:
        for line in emulation.node(node).dpctl("dump-flows", "table=3").splitlines():
            match = _PACKETS.search(line)
            if match is not None:
                key = node, int(match[2])
                found[key] = found.get(key, 0) + int(match[1])
    return found


def _join_and_leave(stage: Stage, talk: GroupTalk) -> None:
    stage.view.phase("one more joins and leaves")
    rest, began_s = stage.emulation.rest, time.monotonic()
    join_ms, leave_ms, heard = [], [], 0
    for _ in range(ROUNDS):
        asked_s = time.monotonic()
        rest.request("POST", "/sessions/talk/participants", {"name": NEWCOMER})
        join_ms.append(1e3 * (time.monotonic() - asked_s))
        in_s = time.monotonic()
        talk.speak([*MEMBERS, NEWCOMER])
        stage.pause(0.4)
        talk.speak(MEMBERS)
        out_s = time.monotonic()
        time.sleep(0.1)
        there = [talk.account(NEWCOMER, by, in_s, out_s) for by in MEMBERS]
        there += [talk.account(to, NEWCOMER, in_s, out_s) for to in MEMBERS]
        heard += sum(account.missed + account.doubled for account in there)
        asked_s = time.monotonic()
        rest.request("DELETE", f"/sessions/talk/participants/{NEWCOMER}")
        leave_ms.append(1e3 * (time.monotonic() - asked_s))
        stage.pause(0.2)
    _judge(stage, f"{ROUNDS} joins and leaves", talk, began_s)
    stage.check("joined: missed or doubled by or of the newcomer", 0, heard, "", at_most=1.0)
    stage.check("longest join", 100.0, max(join_ms), "ms", at_most=20.0)
    stage.check("longest leave", 100.0, max(leave_ms), "ms", at_most=20.0)


def _without_controller(stage: Stage, talk: GroupTalk, hold_s: float) -> None:
    stage.view.phase("no controller and no server")
    # Trees that nothing enters any more have gone, so that a new controller has nothing to change.
    stage.pause(2.0)
    emulation, from_s = stage.emulation, time.monotonic()
    emulation.controller.kill()
    stage.pause(hold_s)
    _judge(stage, "without controller and server", talk, from_s)
    stage.view.phase("a new controller")
    from_s = time.monotonic()
    emulation.controller.start()
    emulation.wait_ready(30.0)
    stage.pause(2.0)
    _judge(stage, "a new controller", talk, from_s)
    document = emulation.rest.get("/sessions/talk")
    stage.check("the new controller knows the session", 1, int(document["state"] == "active"), "", at_least=1.0)
    changed = sum(switch["flow_mods"] for switch in emulation.rest.get("/health")["switches"])
    stage.check("rules that it changed", 0, changed, "", at_most=1.0)


def _cut(stage: Stage, talk: GroupTalk) -> None:
    """The power line to c is not the only way there."""
    stage.view.phase("a link is cut")
    for link in ("gc-wifi", "gc-wifi~"):
        stage.emulation.shared.set_link(link, up=False)
    stage.pause(1.5)
    from_s = time.monotonic()
    stage.pause(1.0)
    _judge(stage, "1.5 s after a link was cut", talk, from_s)
    trees = stage.emulation.rest.get("/sessions/talk")["trees"]
    used = {link for tree in trees for sent in tree["transmissions"] for link in sent}
    stage.check("trees over the cut link", 0, len(used & {"gc-wifi", "gc-wifi~"}), "", at_most=1.0)


def _by_membership(stage: Stage) -> None:
    """Nobody is named: hosts take part because they say so by IGMP, as every host does that opens such a socket."""
    stage.view.phase("hosts join by IGMP")
    rest = stage.emulation.rest
    rest.request("POST", "/sessions", {"id": "open", "group": OTHER_GROUP, "membership": True})
    with GroupTalk(stage.emulation, MEMBERS, OTHER_GROUP) as talk:
        waited_s = _participants_are(stage, len(MEMBERS))
        stage.check("joined by IGMP within", 2.0, waited_s, "s", at_most=1.0)
        stage.pause(1.0)
        from_s = time.monotonic()
        stage.pause(1.0)
        _judge(stage, "joined by IGMP", talk, from_s)
    waited_s = _participants_are(stage, 0)
    stage.check("left by IGMP within", 4.0, waited_s, "s", at_most=1.0)


def _participants_are(stage: Stage, count: int) -> float:
    """Seconds until a session has so many participants and is active; 10 if it has not by then."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + 10.0:
        document = stage.emulation.rest.get("/sessions/open")
        if len(document["participants"]) == count and document["state"] == "active":
            return time.monotonic() - began_s
        stage.pause(0.1)
    return 10.0
