"""Packet-ins on their way up and packet-outs on their way down (OpenFlow 1.3.5, sections 7.3.7 and 7.4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.slices.core.allocation import CLASSIFIER_TABLE
from hyroads.slices.core.errors import SliceError, bad_action, bad_request
from hyroads.slices.core.fields import Field, bits_of
from hyroads.slices.core.match import ALL

from . import discovery
from .actions import ALL_PORTS, CONTROLLER, FLOOD, IN_PORT, OUTPUT, TABLE, Origin, Translator, queued
from .frames import header_of
from .guest_view import GuestView
from .region import Regions
from .xids import Buffers

NO_BLOCK = frozenset({CLASSIFIER_TABLE, 0xFF})
"""Tables of packet-ins that no rule of a slice sent."""
_PACKET_IN = Struct("!BBHIIHBBQHH")
_PACKET_OUT = Struct("!BBHIIIH6x")
_OUTPUT = Struct("!HHIH6x")
_HEADER = Struct("!HH")
_IN_PORT_FIELD = b"\x80\x00\x00\x04"
_NO_COOKIE = (1 << 64) - 1
_ETH_TYPE_BITS = bits_of("eth_type")
_METADATA_FIELDS = (b"\x80\x00\x04\x08", b"\x80\x00\x05\x10")


# -- up ---------------------------------------------------------------------------------------------------------------


def owner_outside_blocks(message: bytes, regions: Regions) -> int:
    """The slice of a packet-in that no rule of a slice sent: by the mark of a discovery frame, else by flowspace.

    The message has passed ``guard.check``. ``region.NOBODY`` if the frame, or what came of it, may be of several.
    """
    fields, data_at = _match(message)
    number = discovery.marked_for(message[data_at : data_at + 14])
    if number is not None:
        return number
    total = int.from_bytes(message[12:14], "big")
    return regions.owner(_in_port(fields), header_of(message[data_at:], total))


def packet_in(message: bytes, view: GuestView, key: bytes, now_s: float) -> bytes | None:
    """The packet-in for the guest; None if it is not for it: a port not its own, or a forged discovery frame.

    The message has passed ``guard.check``. The table is the guest's, the slice's metadata is gone. What has a mark
    without being marked by the slicer, tagged or not, is shown to nobody. Nor is it if it came by a slice's own
    tables: the classifier leads no genuine mark there.
    """
    version, kind, _, xid, buffer, total, reason, table, cookie, _, _ = _PACKET_IN.unpack_from(message)
    in_block = table not in NO_BLOCK
    table = view.guest_table(table) if in_block else 0
    fields, data_at = _match(message)
    in_port = _in_port(fields)
    if in_port not in view.ports:
        return None
    fields = _without_slice(fields, view)
    data = message[data_at:]
    if data[6:10] == discovery.MARK:
        found = None if in_block else discovery.unmark(data, view.number, key, now_s)
        if found is None or not view.arrivals.first(in_port, found.proof, now_s):
            return None
        total -= len(data) - len(found.frame)
        data = found.frame
        cookie = view.discovery_cookies.get(int.from_bytes(data[12:14], "big"), _NO_COOKIE)
    length = 4 + len(fields)
    size = _PACKET_IN.size - 4 + (length + 7) // 8 * 8 + 2 + len(data)
    head = _PACKET_IN.pack(version, kind, size, xid, buffer, total, reason, table, cookie, 1, length)
    return b"".join((head, fields, b"\0" * (-length % 8 + 2), data))


def _match(message: bytes) -> tuple[bytes, int]:
    """(OXM bytes, where the frame starts)."""
    (_, length) = _HEADER.unpack_from(message, 24)
    return message[28 : 24 + length], 24 + (length + 7) // 8 * 8 + 2


def _in_port(fields: bytes) -> int:
    # Open vSwitch puts it first; any order is allowed.
    at = 0
    while at + 8 <= len(fields):
        if fields[at : at + 4] == _IN_PORT_FIELD:
            return int.from_bytes(fields[at + 4 : at + 8], "big")
        at += 4 + fields[at + 3]
    raise SliceError("a packet-in without in_port")


def _without_slice(fields: bytes, view: GuestView) -> bytes:
    """Match fields with the guest's part of the metadata; without metadata if that is 0, as a switch reports it."""
    at, end = 0, len(fields)
    while at + 4 <= end:
        header, after = fields[at : at + 4], at + 4 + fields[at + 3]
        if header in _METADATA_FIELDS:
            value = int.from_bytes(fields[at + 4 : at + 12], "big") & view.layout.guest_metadata_mask
            field = b"\x80\x00\x04\x08" + value.to_bytes(8, "big") if value else b""
            return fields[:at] + field + fields[after:]
        at = after
    return fields


# -- down -------------------------------------------------------------------------------------------------------------


def packet_out(message: bytes, view: GuestView, buffers: Buffers, key: bytes, now_s: float) -> bytes:
    """The packet-out for the switch, under the guest's transaction id; :class:`Refused`."""
    if len(message) < _PACKET_OUT.size:
        raise bad_request(6, f"packet-out of {len(message)} bytes")
    version, kind, _, xid, buffer, in_port, actions_length = _PACKET_OUT.unpack_from(message)
    data_at = _PACKET_OUT.size + actions_length
    if data_at > len(message):
        raise bad_request(6, f"packet-out with {actions_length} bytes of actions")
    if in_port not in view.ports and in_port not in {CONTROLLER, wire.ANY}:
        raise bad_request(11, f"port {in_port:#x} is not of the slice")
    data = message[data_at:]
    buffered = buffer != wire.NO_BUFFER
    marked = discovery.mark(data, view.number, key, now_s) if not buffered else None
    walker: Translator
    if marked is not None:
        walker = _DiscoveryOut(view, Origin(header_of(data), ()), marked.proof, now_s)
        data = marked.frame
    elif not buffered:
        if data[6:10] == discovery.MARK:
            raise bad_action(6, "the frame's source address is the slicer's own, for discovery")
        walker = _PacketOut(view, Origin(header_of(data), (in_port,)))
    else:
        if not buffers.take(buffer, view.number, now_s):
            raise bad_request(8, f"buffer {buffer:#x} is not of the slice")
        walker = Translator(view, Origin(ALL, view.kinds(in_port if in_port in view.ports else None)))
    actions = walker.walk(message, _PACKET_OUT.size, data_at)
    size = _PACKET_OUT.size + len(actions) + len(data)
    if size > 0xFFFF:
        raise bad_request(6, "the packet-out does not fit a message")
    return _PACKET_OUT.pack(version, kind, size, xid, buffer, in_port, len(actions)) + actions + data


class _PacketOut(Translator):
    """The frame is known: wherever it leaves, it must be the slice's there. FLOOD and ALL go where it is."""

    def check_out(self, port: int | None) -> None:
        [in_port] = self.origin.in_ports
        at = in_port if port is None else port
        if not self.mine(at):
            raise bad_action(6, f"the frame is not the slice's at port {at:#x}")

    def mine(self, port: int) -> bool:
        view = self.view
        return view.regions.leak(view.number, None, self.origin.match, self.rewrite, port) is None

    def has(self, field: Field) -> bool:
        """Only what is read in the frame surely is where a switch would write it: nothing of a fragment's ports."""
        rewrite, bits = self.rewrite, field.ones << field.shift
        if not super().has(field) or not field.needs:
            return super().has(field)
        return not bits & ~self.origin.match.mask and not (rewrite.mask | rewrite.unknown) & _ETH_TYPE_BITS

    def enter_group(self) -> None:
        [in_port] = self.origin.in_ports
        if in_port not in self.view.ports:
            raise bad_action(9, "groups are for frames with an ingress port of the slice")
        self.check_out(None)

    def output(self, port: int, action: bytes) -> None:
        [in_port] = self.origin.in_ports
        if port in {FLOOD, ALL_PORTS}:
            wanted = sorted(self.view.ports - {in_port})
            self._copy(each for each in wanted if self.mine(each))
        elif port in {TABLE, CONTROLLER}:
            # It enters the classifier, or comes back as a packet-in, as if it had come in at its ingress port.
            self.check_out(None)
            self.parts.append(action)
        else:
            super().output(port, action)

    def _copy(self, ports: Iterable[int]) -> None:
        self.parts.append(queued(self.view.queue))
        self.parts += [_OUTPUT.pack(OUTPUT, 16, each, 0) for each in ports]


class _DiscoveryOut(_PacketOut):
    """A marked discovery frame: to the slice's ports, unchanged. A host that sends it back makes no link of it."""

    def __init__(self, view: GuestView, origin: Origin, proof: bytes, now_s: float) -> None:
        super().__init__(view, origin)
        self._proof = proof
        self._now_s = now_s

    def mine(self, port: int) -> bool:
        return port in self.view.ports and not self.rewrite.changed

    def check_out(self, port: int | None) -> None:
        if port is None or not self.mine(port):
            raise bad_action(6, "a discovery frame goes to ports of the slice, unchanged")

    def enter_group(self) -> None:
        raise bad_action(9, "a discovery frame goes to ports of the slice")

    def output(self, port: int, action: bytes) -> None:
        if port in {TABLE, CONTROLLER, IN_PORT} or self.rewrite.changed:
            raise bad_action(6, "a discovery frame goes to ports of the slice")
        ports = sorted(self.view.ports) if port in {FLOOD, ALL_PORTS} else [port]
        for each in ports:
            self.view.arrivals.first(each, self._proof, self._now_s)
        if port in {FLOOD, ALL_PORTS}:
            self._copy(ports)
        else:
            Translator.output(self, port, action)
