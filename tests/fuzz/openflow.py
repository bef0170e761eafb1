"""Switches: the guard, what we read ourselves, the parsers of Ryu and os-ken behind the guard, and the handshake."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from inputs import Script
from targets import target

from hyroads.controller.core.errors import GuardError, OpenFlowError
from hyroads.controller.ofp import guard, handshake, readback, wire
from hyroads.controller.ofp.diff import error_of
from hyroads.controller.switches.roles import parse_role_reply

_READERS = (readback.parse_flow_stats, readback.parse_groups, readback.parse_port_stats)


def passes(message: bytes) -> bool:
    """Whether the guard lets it through."""
    try:
        guard.check(message)
    except GuardError:
        return False
    return True


@target("openflow-messages", "controller.ofp", "controller.switches.roles", longest=1200)
def messages(data: bytes) -> None:
    """A message through the guard to those who read it without Ryu."""
    if not passes(data):
        return
    kind = data[1]
    if kind == wire.MULTIPART_REPLY:
        for reader in _READERS:
            try:
                reader(data)
            except OpenFlowError:
                continue
    elif kind == wire.PACKET_IN:
        try:
            packet = readback.parse_packet_in(data)
        except OpenFlowError:
            return
        assert data.endswith(packet.frame)
        assert readback.table_of(data) < 256 and readback.cookie_of_packet_in(data) >= 0
    elif kind == wire.ERROR:
        error_of(data)
    elif kind == wire.ROLE_REPLY:
        parse_role_reply(data)
    handshake.needs(data)


class Framework:
    """The parser of messages of Ryu or of os-ken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._ofproto: Any = importlib.import_module(f"{name}.ofproto.ofproto_v1_3")
        self._parser: Any = importlib.import_module(f"{name}.ofproto.ofproto_v1_3_parser")
        self._datapath = SimpleNamespace(ofproto=self._ofproto, ofproto_parser=self._parser)

    def parse(self, message: bytes) -> Any:
        """The message as an object; whatever the parser raises."""
        version, kind, length, xid = wire.HEADER.unpack_from(message)
        return self._parser.msg_parser(self._datapath, version, kind, length, xid, message)


_check_experimenter_action = guard._experimenter_action
_experimenter_actions: list[int] = []
"""Where the guard met some in the message that it looks at."""


def _noted(data: bytes, start: int, end: int, where: str, depth: int) -> None:
    _experimenter_actions.append(start)
    _check_experimenter_action(data, start, end, where, depth)


FRAMEWORKS = [Framework(name) for name in ("ryu", "os_ken") if find_spec(name)]


@target("openflow-parsers", "controller.ofp.guard", longest=1200)
def parsers(data: bytes) -> None:
    """What the guard lets through, each framework's parser reads, and ends; but for actions of experimenters."""
    _experimenter_actions.clear()
    with patch.object(guard, "_experimenter_action", _noted):
        if not passes(data):
            return
    for framework in FRAMEWORKS:
        try:
            framework.parse(data)
        except Exception as error:
            if _experimenter_actions:
                continue
            raise AssertionError(f"{framework.name} fails with what the guard lets through: {data.hex()}") from error


@target("openflow-handshake", "controller.ofp.handshake", "controller.ofp.guard", longest=1200)
def handshakes(data: bytes) -> None:
    """A stranger's bytes in pieces, up to FEATURES_REPLY. What is said to it is no longer than what it said."""
    hand, answered, script = handshake.Handshake(), 0, Script(data)
    for piece in script.pieces():
        try:
            answered += len(hand.take(piece))
        except OpenFlowError:
            return
        if hand.features:
            assert passes(hand.features) and 0 <= hand.dpid < 2**64
            break
    assert answered <= len(data) + len(handshake.FEATURES_REQUEST)
