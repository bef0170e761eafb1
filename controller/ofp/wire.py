"""OpenFlow 1.3 (wire version 4) and the Open vSwitch extensions as bytes, encoded directly.

Building Ryu's message objects costs over 100 us each; here a rule is encoded once, in a few microseconds, and sending
it again only needs a new transaction id (``message``). Sources of the layouts: OpenFlow Switch Specification 1.3.5,
sections 7.1 to 7.3, and Open vSwitch's ``lib/ofp-actions.c`` (experimenter actions 0x2320).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct, error

from hyroads.controller.core.errors import OpenFlowError

from . import match as act
from .match import Match

VERSION = 4
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER = 0, 1, 2, 3, 4
FEATURES_REQUEST, FEATURES_REPLY, GET_CONFIG_REQUEST, SET_CONFIG = 5, 6, 7, 9
PACKET_IN, FLOW_REMOVED, PORT_STATUS, PACKET_OUT = 10, 11, 12, 13
FLOW_MOD, GROUP_MOD, PORT_MOD, TABLE_MOD, METER_MOD = 14, 15, 16, 17, 29
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 18, 19, 20, 21
QUEUE_CONFIG_REQUEST, QUEUE_CONFIG_REPLY, ROLE_REQUEST, ROLE_REPLY = 22, 23, 24, 25
GET_ASYNC_REQUEST, SET_ASYNC = 26, 28
ADD, MODIFY, MODIFY_STRICT, DELETE, DELETE_STRICT = 0, 1, 2, 3, 4
GROUP_ADD, GROUP_MODIFY, GROUP_DELETE = 0, 1, 2
METER_ADD, METER_MODIFY, METER_DELETE = 0, 1, 2
MULTIPART_DESCRIPTION, MULTIPART_FLOW, MULTIPART_AGGREGATE, MULTIPART_TABLE, MULTIPART_PORT_STATS = 0, 1, 2, 3, 4
MULTIPART_QUEUE_STATS, MULTIPART_GROUP, MULTIPART_GROUP_DESC, MULTIPART_GROUP_FEATURES = 5, 6, 7, 8
MULTIPART_METER, MULTIPART_METER_CONFIG, MULTIPART_METER_FEATURES, MULTIPART_TABLE_FEATURES = 9, 10, 11, 12
MULTIPART_PORT_DESC = 13
ALL_TABLES = 0xFF
ANY = 0xFFFFFFFF
NO_BUFFER = 0xFFFFFFFF
VENDOR_NICIRA = 0x2320

HEADER = Struct("!BBHI")
_FLOW_MOD = Struct("!QQBBHHHIIIH2x")
_MATCH_HEADER = Struct("!HH")
_INSTRUCTION_GOTO = Struct("!HHB3x")
_INSTRUCTION_ACTIONS = Struct("!HH4x")
_GROUP_MOD = Struct("!HBxI")
_BUCKET = Struct("!HHII4x")
_MULTIPART_REQUEST = Struct("!H6x")
_ANY_PORT = Struct("!I4x").pack(ANY)
_FLOW_STATS_REQUEST = Struct("!HH4xB3xII4xQQ")
_OUTPUT = Struct("!HHIH6x")
_SET_FIELD_ETH = Struct("!HHI6s2x")
_SET_FIELD_U32 = Struct("!HHII4x")
_SET_FIELD_U16 = Struct("!HHIH6x")
_ACTION_U32 = Struct("!HHI")
_ACTION_U16 = Struct("!HHH2x")
_ACTION_U8 = Struct("!HHB3x")
_NX_ENCAP = Struct("!HHIHHI")
_NX_DECAP = Struct("!HHIH2xI")
_NX_RESUBMIT = Struct("!HHIHHB3x")
_NX_MOVE = Struct("!HHIHHHHII")
_NX_CHECK_LARGER = Struct("!HHIHHHI6x")
_NX_CLONE = Struct("!HHIH6x")
_NX_CONTROLLER = Struct("!HHIH6xHHH2xHHI")
_PACKET_OUT = Struct("!IIH6x")
_METER_MOD = Struct("!HHI")
_METER_BAND = Struct("!HHII4x")
_METER_ID = Struct("!I4x")
_METER_KBPS, _METER_PACKETS, _METER_BURST, _METER_CONTROLLER = 1, 2, 4, 0xFFFFFFFD
_ONF_TCP_FLAGS = Struct("!HBBIHH")
_VENDOR_ONF = 0x4F4E4600
_ANYTHING = Match()
_IN_PORT_16 = 0xFFF8
_NXM_REGISTER_2, _NXM_REGISTER_3 = 0x0001_0404, 0x0001_0604
_NXM_IP_FRAGMENT = b"\x00\x01\x34\x01"
_FIRST_FRAGMENT = 1
"""Of the values of that field: a fragment (bit 0) with offset 0 (bit 1)."""
_MAX_LENGTH = 0xFFFF


def message(body: bytes, xid: int, kind: int = FLOW_MOD) -> bytes:
    """A whole OpenFlow message: header with transaction id, then ``body``."""
    return HEADER.pack(VERSION, kind, len(body) + 8, xid) + body


@lru_cache(maxsize=65536)
def mac_bytes(text: str) -> bytes:
    """Six bytes of ``aa:bb:cc:dd:ee:ff``."""
    try:
        raw = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        raw = b""
    if len(raw) != 6:
        raise OpenFlowError(f"MAC address {text!r}: expected six hexadecimal bytes separated by colons")
    return raw


def _oxm(number: int, value: bytes, mask: bytes | None = None) -> bytes:
    """One field of the basic class 0x8000; a mask of all ones is left out, as Open vSwitch does when it answers."""
    if mask is None or mask.count(0xFF) == len(mask):
        return bytes((0x80, 0x00, number << 1, len(value))) + value
    masked = bytes(a & b for a, b in zip(value, mask, strict=True))
    return bytes((0x80, 0x00, number << 1 | 1, 2 * len(value))) + masked + mask


def _mac_field(number: int) -> Callable[[str], bytes]:
    @lru_cache(maxsize=16384)
    def encode(text: str) -> bytes:
        address, _, mask = text.partition("/")
        return _oxm(number, mac_bytes(address), mac_bytes(mask) if mask else None)

    return encode


def _ip_field(number: int, kind: type[IPv4Address] | type[IPv6Address], size: int) -> Callable[[str], bytes]:
    @lru_cache(maxsize=16384)
    def encode(text: str) -> bytes:
        address, _, mask = text.partition("/")
        try:
            raw = kind(address).packed
            if mask.isdigit() and int(mask) <= 8 * size:
                ones = (1 << 8 * size) - (1 << 8 * size - int(mask))
                return _oxm(number, raw, ones.to_bytes(size, "big"))
            return _oxm(number, raw, kind(mask).packed if mask else None)
        except AddressValueError:
            raise OpenFlowError(f"IP address {text!r}: expected an address with an optional /length or /mask") from None

    return encode


def _number_field(number: int, size: int, name: str, limit: int) -> Callable[[int], bytes]:
    header = bytes((0x80, 0x00, number << 1, size))

    def encode(value: int) -> bytes:
        if not 0 <= value <= limit:
            raise OpenFlowError(f"match {name}={value}: expected 0..{limit}")
        return header + value.to_bytes(size, "big")

    return encode


def _vlan_field(value: int) -> bytes:
    if value == act.TAGGED:
        return _oxm(6, b"\x10\x00", b"\x10\x00")
    if value == act.PRIORITY_TAG:
        return _oxm(6, b"\x10\x00")
    if not 0 <= value <= 4094:
        raise OpenFlowError(f"match vlan={value}: expected 1..4094, or 0 for untagged frames")
    return bytes((0x80, 0x00, 6 << 1, 2)) + (value | 0x1000 if value else 0).to_bytes(2, "big")


def _register_field(header: int, name: str) -> Callable[[int], bytes]:
    def encode(value: int) -> bytes:
        if not 0 <= value <= ANY:
            raise OpenFlowError(f"match {name}={value}: expected 0..{ANY}")
        return header.to_bytes(4, "big") + value.to_bytes(4, "big")

    return encode


def _first_fragment_field(value: bool) -> bytes:
    if not value:
        raise OpenFlowError("match is_first_fragment=False: expected True")
    return _NXM_IP_FRAGMENT + bytes((_FIRST_FRAGMENT,))


def _tcp_flags_field(value: int) -> bytes:
    if not 0 < value <= 0xFFF:
        raise OpenFlowError(f"match tcp_flags={value}: expected 1..4095")
    return _ONF_TCP_FLAGS.pack(0xFFFF, 42 << 1 | 1, 8, _VENDOR_ONF, value, value)


# In ascending order of OXM header: prerequisites come before what needs them.
_FIELDS: tuple[tuple[str, Callable[..., bytes]], ...] = (
    ("register_2", _register_field(_NXM_REGISTER_2, "register_2")),
    ("register_3", _register_field(_NXM_REGISTER_3, "register_3")),
    ("register_4", _register_field(act.REGISTER_4, "register_4")),
    ("register_5", _register_field(act.REGISTER_5, "register_5")),
    ("in_port", _number_field(0, 4, "in_port", ANY)),
    ("eth_dst", _mac_field(3)),
    ("eth_src", _mac_field(4)),
    ("eth_type", _number_field(5, 2, "eth_type", 0xFFFF)),
    ("vlan", _vlan_field),
    ("ip_proto", _number_field(10, 1, "ip_proto", 0xFF)),
    ("ipv4_src", _ip_field(11, IPv4Address, 4)),
    ("ipv4_dst", _ip_field(12, IPv4Address, 4)),
    ("tcp_src", _number_field(13, 2, "tcp_src", 0xFFFF)),
    ("tcp_dst", _number_field(14, 2, "tcp_dst", 0xFFFF)),
    ("udp_src", _number_field(15, 2, "udp_src", 0xFFFF)),
    ("udp_dst", _number_field(16, 2, "udp_dst", 0xFFFF)),
    ("arp_spa", _ip_field(22, IPv4Address, 4)),
    ("arp_sha", _mac_field(24)),
    ("ipv6_src", _ip_field(26, IPv6Address, 16)),
    ("ipv6_dst", _ip_field(27, IPv6Address, 16)),
    ("icmpv6_type", _number_field(29, 1, "icmpv6_type", 0xFF)),
    ("nd_target", _ip_field(31, IPv6Address, 16)),
    ("mpls_label", _number_field(34, 4, "mpls_label", 0xFFFFF)),
    ("mpls_bos", _number_field(36, 1, "mpls_bos", 1)),
    ("tcp_flags", _tcp_flags_field),
    # Its header is lower than that of eth_type, which it needs in front of it: see _order.
    ("is_first_fragment", _first_fragment_field),
)
_NEEDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "ip_proto": ("eth_type", (0x0800, 0x86DD)),
    "ipv4_src": ("eth_type", (0x0800,)),
    "ipv4_dst": ("eth_type", (0x0800,)),
    "arp_spa": ("eth_type", (0x0806,)),
    "arp_sha": ("eth_type", (0x0806,)),
    "is_first_fragment": ("eth_type", (0x0800, 0x86DD)),
    "icmpv6_type": ("ip_proto", (58,)),
    "nd_target": ("icmpv6_type", (135, 136)),
    "ipv6_src": ("eth_type", (0x86DD,)),
    "ipv6_dst": ("eth_type", (0x86DD,)),
    "tcp_src": ("ip_proto", (6,)),
    "tcp_dst": ("ip_proto", (6,)),
    "tcp_flags": ("ip_proto", (6,)),
    "udp_src": ("ip_proto", (17,)),
    "udp_dst": ("ip_proto", (17,)),
    "mpls_label": ("eth_type", (0x8847,)),
    "mpls_bos": ("eth_type", (0x8847,)),
}


def match_fields(match: Match) -> bytes:
    """OXM fields of a match in the order of :func:`canonical_fields`, without header and padding.

    Raises OpenFlowError for a value out of range or a field whose prerequisite is missing.
    """
    parts = []
    for name, encode in _FIELDS:
        value = getattr(match, name)
        if value is None:
            continue
        need = _NEEDS.get(name)
        if need is not None and getattr(match, need[0]) not in need[1]:
            expected = " or ".join(map(hex, need[1]))
            raise OpenFlowError(f"match {name}={value}: expected {need[0]} to be {expected}")
        parts.append(encode(value))
    return b"".join(parts)


def match_struct(fields: bytes) -> bytes:
    """The ofp_match structure around OXM fields: type 1 (OXM), length, fields, padding to 8 bytes."""
    return _MATCH_HEADER.pack(1, 4 + len(fields)) + fields + b"\0" * (-(4 + len(fields)) % 8)


def canonical_fields(fields: bytes) -> bytes:
    """OXM fields sorted by their header, the one of fragments last; a truncated rest stays at the end as it is."""
    parts: list[bytes] = []
    offset = 0
    while offset + 4 <= len(fields):
        end = offset + 4 + fields[offset + 3]
        parts.append(fields[offset:end])
        offset = end
    ordered: list[bytes] = sorted(parts, key=_order)
    return b"".join(ordered) + fields[offset:]


def _order(field: bytes) -> tuple[bool, bytes]:
    return field.startswith(_NXM_IP_FRAGMENT), field


# -- actions and instructions -----------------------------------------------------------------------------------------

_OXM_ETH_DST, _OXM_ETH_SRC, _OXM_MPLS_LABEL = 0x80000606, 0x80000806, 0x80004404
_NXM_IN_PORT = 0x0000_0002
"""Open vSwitch lets no action write OpenFlow's own field."""


def _clone(action: act.Clone) -> bytes:
    inner = actions(action.actions)
    return _NX_CLONE.pack(0xFFFF, 16 + len(inner), VENDOR_NICIRA, 42) + inner


def _mpls_label(action: act.SetMplsLabel) -> bytes:
    if not 0 <= action.label <= 0xFFFFF:
        raise OpenFlowError(f"MPLS label {action.label}: expected 0..{0xFFFFF}")
    return _SET_FIELD_U32.pack(25, 16, _OXM_MPLS_LABEL, action.label)


_ENCODERS: dict[type, Callable[..., bytes]] = {
    act.Output: lambda a: _OUTPUT.pack(0, 16, a.port, 0xFFFF if a.port == act.CONTROLLER else 0),
    act.SetEthDst: lambda a: _SET_FIELD_ETH.pack(25, 16, _OXM_ETH_DST, mac_bytes(a.mac)),
    act.SetEthSrc: lambda a: _SET_FIELD_ETH.pack(25, 16, _OXM_ETH_SRC, mac_bytes(a.mac)),
    act.SetMplsLabel: _mpls_label,
    act.SetMplsTtl: lambda a: _ACTION_U8.pack(15, 8, a.ttl),
    act.DecMplsTtl: lambda _: _ACTION_U32.pack(16, 8, 0),
    act.PopMpls: lambda a: _ACTION_U16.pack(20, 8, a.eth_type),
    act.PopVlan: lambda _: _ACTION_U32.pack(18, 8, 0),
    act.PushVlan: lambda a: _ACTION_U16.pack(17, 8, a.eth_type),
    act.Move: lambda a: _NX_MOVE.pack(0xFFFF, 24, VENDOR_NICIRA, 6, a.bits, 0, 0, a.source, a.target),
    act.SetRegister2: lambda a: _SET_FIELD_U32.pack(25, 16, _NXM_REGISTER_2, a.value),
    act.SetRegister3: lambda a: _SET_FIELD_U32.pack(25, 16, _NXM_REGISTER_3, a.value),
    act.SetRegister4: lambda a: _SET_FIELD_U32.pack(25, 16, act.REGISTER_4, a.value),
    act.SetInPort: lambda a: _SET_FIELD_U16.pack(25, 16, _NXM_IN_PORT, a.port),
    act.CheckLarger: lambda a: _NX_CHECK_LARGER.pack(
        0xFFFF, _NX_CHECK_LARGER.size, VENDOR_NICIRA, 49, a.most_bytes, a.bit, _NXM_REGISTER_3
    ),
    act.ToController: lambda a: _NX_CONTROLLER.pack(
        0xFFFF, _NX_CONTROLLER.size, VENDOR_NICIRA, 37, 0, 6, a.most_bytes, 5, 8, a.meter
    ),
    act.Group: lambda a: _ACTION_U32.pack(22, 8, a.group),
    act.Encap: lambda a: _NX_ENCAP.pack(0xFFFF, 16, VENDOR_NICIRA, 46, 0, a.packet_type),
    act.Decap: lambda a: _NX_DECAP.pack(0xFFFF, 16, VENDOR_NICIRA, 47, a.packet_type),
    act.Resubmit: lambda a: _NX_RESUBMIT.pack(0xFFFF, 16, VENDOR_NICIRA, 14, _IN_PORT_16, a.table),
    act.Clone: _clone,
}


def actions(items: Iterable[act.Action]) -> bytes:
    """A list of actions; raises OpenFlowError when a value does not fit its field."""
    try:
        return b"".join([_ENCODERS[type(item)](item) for item in items])
    except error as problem:
        raise OpenFlowError(f"actions {items!r}: a value does not fit its field ({problem})") from None


def instructions(items: tuple[act.Action, ...], goto: int | None, meter: int | None = None) -> bytes:
    """The meter, apply-actions with ``items``, goto-table; each is left out when it is empty or None."""
    out = b"" if meter is None else _ACTION_U32.pack(6, 8, meter)
    if items:
        encoded = actions(items)
        if len(encoded) + 8 > _MAX_LENGTH - 256:
            raise OpenFlowError(f"{len(items)} actions do not fit one OpenFlow message")
        out += _INSTRUCTION_ACTIONS.pack(4, 8 + len(encoded)) + encoded
    if goto is not None:
        out += _INSTRUCTION_GOTO.pack(1, 8, goto)
    return out


def flow_mod_body(
    command: int,
    table: int,
    priority: int,
    fields: bytes,
    instruction_bytes: bytes = b"",
    *,
    cookie: int = 0,
    cookie_mask: int = 0,
) -> bytes:
    """A flow-mod without its header: ``fields`` as from ``match_fields``; no timeouts, no buffer."""
    head = _FLOW_MOD.pack(cookie, cookie_mask, table, command, 0, 0, priority, NO_BUFFER, ANY, ANY, 0)
    return head + match_struct(fields) + instruction_bytes


def buckets(items: Iterable[Iterable[act.Action]]) -> bytes:
    """The buckets of a group of type ALL."""
    encoded = [actions(bucket) for bucket in items]
    whole = b"".join(_BUCKET.pack(len(one) + _BUCKET.size, 0, ANY, ANY) + one for one in encoded)
    if len(whole) > _MAX_LENGTH - 256:
        raise OpenFlowError(f"{len(encoded)} buckets do not fit one OpenFlow message")
    return whole


def group_mod_body(command: int, group: int, bucket_bytes: bytes = b"") -> bytes:
    """A group-mod without its header, for a group of type ALL."""
    return _GROUP_MOD.pack(command, 0, group) + bucket_bytes


def group_desc_request(xid: int) -> bytes:
    """Asks for the description of every group."""
    return message(_MULTIPART_REQUEST.pack(MULTIPART_GROUP_DESC), xid, MULTIPART_REQUEST)


def meter_features_request(xid: int) -> bytes:
    """Asks what the switch's meters can do."""
    return message(_MULTIPART_REQUEST.pack(MULTIPART_METER_FEATURES), xid, MULTIPART_REQUEST)


def port_stats_request(xid: int) -> bytes:
    """Asks for the counters of all ports."""
    return message(_MULTIPART_REQUEST.pack(MULTIPART_PORT_STATS) + _ANY_PORT, xid, MULTIPART_REQUEST)


def flow_stats_request(
    xid: int, *, table: int = ALL_TABLES, cookie: int = 0, cookie_mask: int = 0, match: Match = _ANYTHING
) -> bytes:
    """Asks for the rules of a table that match at least ``match``, with ``cookie`` under ``cookie_mask``."""
    body = _FLOW_STATS_REQUEST.pack(MULTIPART_FLOW, 0, table, ANY, ANY, cookie, cookie_mask)
    return message(body + match_struct(match_fields(match)), xid, MULTIPART_REQUEST)


def packet_out(xid: int, frame: bytes, *, in_port: int = act.CONTROLLER, out: int = act.TABLE) -> bytes:
    """Sends a frame out of the port ``out``: through the tables, as if it came in at ``in_port``, unless said else."""
    output = actions((act.Output(out),))
    return message(_PACKET_OUT.pack(NO_BUFFER, in_port, len(output)) + output + frame, xid, PACKET_OUT)


def controller_meter(xid: int, packets_per_s: int) -> bytes:
    """Open vSwitch's meter of what it sends to the controller: two messages, for it may be there from before."""
    delete = _METER_MOD.pack(METER_DELETE, _METER_PACKETS | _METER_BURST, _METER_CONTROLLER)
    add = _METER_MOD.pack(METER_ADD, _METER_PACKETS | _METER_BURST, _METER_CONTROLLER)
    band = _METER_BAND.pack(1, 16, packets_per_s, packets_per_s)
    return message(delete, xid, METER_MOD) + message(add + band, xid, METER_MOD)


def controller_meter_request(xid: int) -> bytes:
    """Asks for that meter."""
    return message(
        _MULTIPART_REQUEST.pack(MULTIPART_METER_CONFIG) + _METER_ID.pack(_METER_CONTROLLER), xid, MULTIPART_REQUEST
    )


def is_controller_meter(reply: bytes, packets_per_s: int) -> bool:
    """Whether the answer shows the meter that :func:`controller_meter` makes."""
    band = _METER_BAND.pack(1, 16, packets_per_s, packets_per_s)
    return reply[16:] == _METER_MOD.pack(24, _METER_PACKETS | _METER_BURST, _METER_CONTROLLER) + band


def meter_mod_body(command: int, number: int, rate: int = 0, burst: int = 0, *, in_packets: bool = False) -> bytes:
    """A meter-mod without its header, for a meter that drops what is beyond its rate; a deletion needs no rate.

    Rate and burst are in kb/s and kbit, or, ``in_packets``, in packets per second and packets.
    """
    head = _METER_MOD.pack(command, (_METER_PACKETS if in_packets else _METER_KBPS) | _METER_BURST, number)
    return head if command == METER_DELETE else head + _METER_BAND.pack(1, 16, rate, burst)


def meters_request(xid: int) -> bytes:
    """Asks what all meters do."""
    return message(_MULTIPART_REQUEST.pack(MULTIPART_METER_CONFIG) + _METER_ID.pack(ANY), xid, MULTIPART_REQUEST)


def meter_config(add_body: bytes) -> bytes:
    """How a switch describes the meter that a meter-mod adds (OpenFlow Switch Specification 1.3.5, section 7.3.5.8)."""
    return len(add_body).to_bytes(2, "big") + add_body[2:]


def barrier_request(xid: int) -> bytes:
    """Asks the switch to finish everything before and to say so."""
    return message(b"", xid, BARRIER_REQUEST)


def delete_all_of_table_body(table: int = ALL_TABLES, *, cookie: int = 0, cookie_mask: int = 0) -> bytes:
    """A non-strict delete of every rule of ``table`` whose cookie equals ``cookie`` under ``cookie_mask``."""
    return flow_mod_body(DELETE, table, 0, b"", cookie=cookie, cookie_mask=cookie_mask)
