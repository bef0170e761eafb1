"""MPTCP as a network sees it (RFC 8684, RFC 6824): SYNs -> tokens -> connections and their subflows.

A switch copies each TCP segment with SYN to the controller. :func:`parse_syn` reads its MPTCP option, which is what
the two ends say of a subflow before it carries anything:

    SYN      MP_CAPABLE                   version 1 says no more; version 0 has the sender's key
    SYN/ACK  MP_CAPABLE, key              the token of this end is the first 32 bits of a hash of its key
    SYN      MP_JOIN, token, address id   one more subflow for the connection that the receiver knows by this token
    SYN/ACK  MP_JOIN                      the receiver knows it

Keys authenticate subflows, so none is kept: a key is hashed as it is read. :class:`ConnectionTable` makes connections
of these segments. All of them may come from anybody, so each table is bounded, overall and by host, and each segment
ends in one :class:`Outcome`.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha1, sha256
from ipaddress import ip_address
from struct import Struct
from typing import NamedTuple

SNAP_BYTES = 128
"""So much of a frame holds Ethernet, a VLAN tag, IPv6 and the longest TCP header; or IPv4 without options, two tags."""
TOKEN_BYTES = 4
_ETH_TYPES_VLAN = frozenset({b"\x81\x00", b"\x88\xa8", b"\x91\x00"})
_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"
_MAX_TAGS = 3
_TCP, _FIN, _SYN, _RST, _ACK = 6, 0x01, 0x02, 0x04, 0x10
_FRAGMENT_BITS = 0x3FFF
_SKIPPED_HEADERS = frozenset({0, 43, 60})
"""IPv6 extension headers in front of TCP: hop-by-hop options, routing, destination options."""
_MAX_SKIPPED = 4
_OPTION_END, _OPTION_NOTHING, _OPTION_MPTCP = 0, 1, 30
_MP_CAPABLE, _MP_JOIN = 0, 1
_EXTENSIBILITY, _ALGORITHMS = 0x40, 0x3F
_BACKUP = 0x01
_TOKEN = Struct("!I")


class Kind(IntEnum):
    """What a segment with SYN says of MPTCP."""

    PLAIN = 0
    CAPABLE = 1
    JOIN = 2
    MALFORMED = 3


class Syn(NamedTuple):
    """A TCP segment with SYN; ``answers``: and ACK. ``key`` names the segment's addresses and ports, see :func:`ends`.

    ``token`` is the sender's in an MP_CAPABLE that has a key, and the receiver's in an MP_JOIN without ACK.
    """

    kind: Kind
    answers: bool = False
    source_mac: bytes = b""
    target_mac: bytes = b""
    key: bytes = b""
    version: int = 0
    token: int | None = None
    address_id: int = 0
    backup: bool = False


class Ends(NamedTuple):
    """Addresses and ports of a TCP connection, from its source's point of view."""

    source: str
    source_port: int
    target: str
    target_port: int


def ends(key: bytes) -> Ends:
    """The addresses and ports that a key of :class:`Syn` or :class:`Subflow` stands for."""
    size = (len(key) - 4) // 2
    source, target = key[:size], key[size : 2 * size]
    first, second = key[2 * size : 2 * size + 2], key[2 * size + 2 :]
    return Ends(
        str(ip_address(source)), int.from_bytes(first, "big"), str(ip_address(target)), int.from_bytes(second, "big")
    )


def turned(key: bytes) -> bytes:
    """The key of the other direction."""
    size = (len(key) - 4) // 2
    return key[size : 2 * size] + key[:size] + key[2 * size + 2 :] + key[2 * size : 2 * size + 2]


def parse_syn(frame: bytes) -> Syn | None:
    """What the first bytes of an Ethernet frame (:data:`SNAP_BYTES`) say; None: it is no TCP segment with SYN.

    Whatever can't be read, because it is cut short or contradicts itself, is ``Kind.MALFORMED``. Never raises.
    """
    try:
        return _parse(frame)
    except IndexError:
        return _malformed(frame)


def _malformed(frame: bytes) -> Syn:
    return Syn(Kind.MALFORMED, source_mac=frame[6:12], target_mac=frame[:6])


def _parse(frame: bytes) -> Syn | None:
    at = 12
    for _ in range(_MAX_TAGS):
        if frame[at : at + 2] not in _ETH_TYPES_VLAN:
            break
        at += 4
    eth_type = frame[at : at + 2]
    at += 2
    if eth_type == _IPV4:
        return _in_ipv4(frame, at)
    if eth_type == _IPV6:
        return _in_ipv6(frame, at)
    return None


def _in_ipv4(frame: bytes, at: int) -> Syn | None:
    if frame[at + 9] != _TCP:
        return None
    size = (frame[at] & 0x0F) * 4
    is_fragment = (frame[at + 6] << 8 | frame[at + 7]) & _FRAGMENT_BITS
    end = at + (frame[at + 2] << 8 | frame[at + 3])
    if frame[at] >> 4 != 4 or size < 20 or is_fragment:
        return _malformed(frame)
    return _in_tcp(frame, frame[at + 12 : at + 20], at + size, end)


def _in_ipv6(frame: bytes, at: int) -> Syn | None:
    following = frame[at + 6]
    end = at + 40 + (frame[at + 4] << 8 | frame[at + 5])
    tcp = at + 40
    for _ in range(_MAX_SKIPPED):
        if following not in _SKIPPED_HEADERS:
            break
        following, tcp = frame[tcp], tcp + 8 + 8 * frame[tcp + 1]
    if following != _TCP:
        return None
    if frame[at] >> 4 != 6:
        return _malformed(frame)
    return _in_tcp(frame, frame[at + 8 : at + 40], tcp, end)


def _in_tcp(frame: bytes, addresses: bytes, at: int, end: int) -> Syn | None:
    """``end`` is where the packet ends by its own word; the frame may have been cut before, or filled up."""
    flags = frame[at + 13]
    if not flags & _SYN:
        return None
    options_end = at + (frame[at + 12] >> 4) * 4
    if flags & (_FIN | _RST) or not at + 20 <= options_end <= min(end, len(frame)):
        return _malformed(frame)
    found = _mptcp_option(frame, at + 20, options_end)
    if found is None:
        return _malformed(frame)
    answers = bool(flags & _ACK)
    said = _option(found, answers) if found else (Kind.PLAIN,)
    where = (answers, frame[6:12], frame[:6], addresses + frame[at : at + 4])
    return Syn(said[0], *where, *said[1:])


def _mptcp_option(frame: bytes, at: int, end: int) -> bytes | None:
    """The only MPTCP option among the TCP options in this part of a frame; empty: there is none; None: malformed."""
    found = b""
    while at < end:
        kind = frame[at]
        if kind == _OPTION_END:
            break
        if kind == _OPTION_NOTHING:
            at += 1
            continue
        following = at + frame[at + 1] if at + 1 < end else at
        if not at + 2 <= following <= end or (kind == _OPTION_MPTCP and found):
            return None
        if kind == _OPTION_MPTCP:
            found = frame[at:following]
        at = following
    return found


_Said = tuple[Kind] | tuple[Kind, int, int | None, int, bool]
"""Kind, version, token, address id and backup flag."""


def _option(option: bytes, answers: bool) -> _Said:
    subtype = option[2] >> 4 if len(option) >= 4 else None
    if subtype == _MP_CAPABLE:
        return _capable(option, answers)
    if subtype == _MP_JOIN:
        return _join(option, answers)
    return (Kind.MALFORMED if subtype is None else Kind.PLAIN,)


def _capable(option: bytes, answers: bool) -> _Said:
    """RFC 8684, section 3.1; RFC 6824 for version 0."""
    version = option[2] & 0x0F
    if option[3] & _EXTENSIBILITY or not option[3] & _ALGORITHMS or version > 1:
        # The receiver must ignore such an option.
        return (Kind.PLAIN,)
    has_key = answers or version == 0
    if len(option) != (12 if has_key else 4):
        return (Kind.MALFORMED,)
    return Kind.CAPABLE, version, token_of(option[4:12], version) if has_key else None, 0, False


def _join(option: bytes, answers: bool) -> _Said:
    """RFC 8684, section 3.2."""
    if len(option) != (16 if answers else 12):
        return (Kind.MALFORMED,)
    token = None if answers else _TOKEN.unpack_from(option, 4)[0]
    return Kind.JOIN, 1, token, option[3], bool(option[2] & _BACKUP)


def token_of(key: bytes, version: int) -> int:
    """The token of the end that has this key: the first 32 bits of its SHA-256, in version 0 of its SHA-1."""
    hashed = sha256(key) if version else sha1(key, usedforsecurity=False)
    return int.from_bytes(hashed.digest()[:TOKEN_BYTES], "big")
