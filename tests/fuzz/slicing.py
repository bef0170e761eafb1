"""The slicer: messages of guests on their way to a switch, messages of a switch on their way to guests, frames.

``translated`` is for the comparison with Open vSwitch, which must read whatever the slicer sends on.
"""

from __future__ import annotations

import struct

from inputs import Script
from targets import target

from hyroads.controller.core.errors import GuardError, HyroadsError
from hyroads.controller.ofp import guard, wire
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry
from hyroads.slices.core.match import ALL, of_fields
from hyroads.slices.core.model import Permission
from hyroads.slices.proxy import discovery
from hyroads.slices.proxy.frames import header_of
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.region import Regions
from hyroads.slices.proxy.session import Out, SwitchSession, Tenant
from hyroads.slices.proxy.xids import EntryQuota, bucket_of

BLOCKS = {"production": Block(1, 1, 8), "web": Block(2, 10, 4), "other": Block(3, 20, 4)}
PORTS = {"production": {1, 2, 3, 4}, "web": {1, 2}, "other": {2, 3}}
FEATURES = wire.message(struct.pack("!QIBB2xII", 0x42, 256, 254, 0, 0x4F, 0), 1, 6)
ENTRIES = (
    ClassifierEntry(50, of_fields({"vlan_vid": 0x1064}), BLOCKS["web"]),
    ClassifierEntry(40, of_fields({"vlan_vid": 0x10C8}), BLOCKS["other"]),
    ClassifierEntry(0, ALL, BLOCKS["production"]),
)
REGIONS = Regions(ENTRIES)
WEB, OTHER = 1, 2
_KEY = b"k" * 32
_FROM_SWITCH_ONLY_WITH_TABLE = {wire.PACKET_IN: 15, 11: 19}
"""Messages that tell a table, and where."""


def session() -> SwitchSession:
    """A switch with three slices, two of which have a guest."""
    groups, meters = NumberPool(1, 1000), NumberPool(1, 1000)
    tenants = [
        Tenant(
            name,
            GuestView(block, frozenset(PORTS[name]), REGIONS, IdMap(groups, 5), IdMap(meters, 5)),
            frozenset({Permission.READ, Permission.WRITE}),
            bucket_of(1000.0),
            bucket_of(1000.0),
            EntryQuota(100),
        )
        for name, block in BLOCKS.items()
    ]
    found = SwitchSession(FEATURES, REGIONS, tenants, _KEY)
    found.join(WEB, 2)
    found.join(OTHER, 3)
    return found


def whole(data: bytes) -> bytes | None:
    """One message as the stream cuts it: its header says as many bytes as there are."""
    if not 8 <= len(data) < 1 << 16:
        return None
    return data[:2] + struct.pack("!H", len(data)) + data[4:]


def check(out: Out) -> None:
    """All that leaves is whole messages; to the switch only with tables of slices, to guests only with their own."""
    for message in (*out.switch, *(message for _, message in out.guests), *out.own):
        assert struct.unpack_from("!H", message, 2)[0] == len(message), message.hex()
    for message in out.switch:
        if message[1] == wire.FLOW_MOD:
            assert 10 <= message[24] < 14 or 20 <= message[24] < 24, message.hex()
    for guest, message in out.guests:
        assert guest in (WEB, OTHER)
        at = _FROM_SWITCH_ONLY_WITH_TABLE.get(message[1])
        assert at is None or message[at] < 4, message.hex()


def translated(data: bytes) -> list[bytes]:
    """What the switch gets of the messages of guests in an input. Errors that end a connection end the input."""
    found, script, sent = session(), Script(data), list[bytes]()
    while script.data:
        who, message = (WEB, OTHER)[script.byte() & 1], whole(script.bytes())
        if message is None:
            continue
        try:
            out = found.from_guest(who, message, 1.0)
        except HyroadsError:
            break
        check(out)
        sent += out.switch
    return sent


@target("slicer-guests", "slices.proxy", "slices.core", longest=1200)
def guests(data: bytes) -> None:
    """Messages of two guests, in any order: a byte says whose, two how long."""
    translated(data)


@target("slicer-switches", "slices.proxy", "controller.ofp.guard", longest=1600)
def switches(data: bytes) -> None:
    """Messages of guests (a byte 0 or 1 in front) and of the switch (any other); those of the switch pass the guard."""
    found, script = session(), Script(data)
    while script.data:
        who, message = script.byte(), whole(script.bytes())
        if message is None:
            continue
        try:
            if who < 2:
                check(found.from_guest((WEB, OTHER)[who], message, 1.0))
                continue
            guard.check(message)
        except GuardError:
            continue
        except HyroadsError:
            return
        try:
            check(found.from_switch(message, 1.0))
        except HyroadsError:
            return


@target("slicer-frames", "slices.proxy.frames", "slices.proxy.discovery", longest=1600)
def slicer_frames(data: bytes) -> None:
    """Frames in packet-ins and packet-outs: which slice's they are, and the slicer's own discovery frames."""
    header_of(data)
    if discovery.is_discovery(data):
        marked = discovery.mark(data, 2, _KEY, 1.0)
        if marked is not None:
            assert discovery.marked_for(marked.frame) == 2
            back = discovery.unmark(marked.frame, 2, _KEY, 1.0)
            assert back is not None and back.frame == data, "a marked frame comes back as it was"
    assert discovery.unmark(data, 2, _KEY, 1.0) is None, "nobody guesses a proof"
