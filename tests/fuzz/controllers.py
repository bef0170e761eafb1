"""Other controllers: instances of a hot standby, and controllers of neighbouring regions."""

from __future__ import annotations

import math
from typing import Any

from inputs import Script
from targets import target

from hyroads.controller.app.region_messages import parse_wanted
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.netfile import parse
from hyroads.controller.ha import peers
from hyroads.controller.ha.peer_links import PeerError, PeerLines
from hyroads.controller.model import state as model
from hyroads.controller.model.state import TopologyContext


class _Link:
    """What comes over a connection, in pieces."""

    def __init__(self, data: bytes) -> None:
        self._pieces = Script(data).pieces()

    def receive(self) -> bytes:
        return next(self._pieces, b"")


def lines(data: bytes) -> list[Any]:
    """The documents of a connection, up to the first that is refused."""
    link: Any = _Link(data)
    found, reader = [], PeerLines(link, 4096)
    try:
        while True:
            found.append(reader.next())
    except (EOFError, PeerError):
        return found


@target("peer-lines", "controller.ha.peers", "controller.core.strict_json", longest=1500)
def peer_lines(data: bytes) -> None:
    """Heartbeats, events and what bandits have learned; what is taken can be told to the next instance."""
    for document in lines(data):
        for read in (peers.parse_event, peers.parse_learned_line, lambda each: peers.parse_beat("b", each)):
            try:
                told = read(document)
            except PeerError:
                continue
            if isinstance(told, peers.Event):
                assert math.isfinite(told.time_s)
                peers.line_of(peers.event_document(told))
            elif isinstance(told, peers.Beat):
                assert math.isfinite(told.leader_age_s)
                peers.line_of(peers.beat_document(told))


_CHAIN: dict[str, Any] = {
    "nodes": {name: {"role": "ap"} for name in ("n1", "n2", "m1", "m2", "s1", "s2")},
    "links": [
        {"id": "n", "from": "n1", "to": "n2", "technology": "wifi-n", "capacity_mbps": 20, "both": True},
        {"id": "m", "from": "m1", "to": "m2", "technology": "wifi-m", "capacity_mbps": 20, "both": True},
        {"id": "s", "from": "s1", "to": "s2", "technology": "wifi-s", "capacity_mbps": 20, "both": True},
        {"id": "nm", "from": "n2", "to": "m1", "technology": "ethernet", "capacity_mbps": 100, "both": True},
        {"id": "ms", "from": "m2", "to": "s1", "technology": "ethernet", "capacity_mbps": 100, "both": True},
    ],
    "interference": {"rule": "technology"},
    "regions": {"north": ["n1", "n2"], "middle": ["m1", "m2"], "south": ["s1", "s2"]},
}
_CONTEXT = TopologyContext.of(parse(_CHAIN, "fuzz"), "fuzz", region="middle")
_STATE = model.initial(_CONTEXT)


@target("region-messages", "controller.app.region_messages", "controller.core.netfile_sections", longest=1500)
def region_messages(data: bytes) -> None:
    """What the controller of a neighbouring region wants, message after message, each following what it said before."""
    before = None
    for document in lines(data):
        try:
            before = parse_wanted(document, "north", _CONTEXT, _STATE, before)
        except HyroadsError as error:
            assert str(error)
        else:
            assert before.silent <= {link.id for link in _CONTEXT.network.links}
