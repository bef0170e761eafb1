"""Frames of every form that a header parser can get wrong, by a seed; and what Open vSwitch reads in frames."""

from __future__ import annotations

import ipaddress
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import pack

from hyroads.slices.core.fields import BY_NAME

ETHER_TYPES = (0x0800, 0x0806, 0x8035, 0x86DD, 0x8847, 0x8848, 0x894F, 0x88CC, 0x88E7, 0x0899, 0x8863)
TAG_TYPES = (0x8100, 0x88A8, 0x9100)
SNAP = bytes.fromhex("aaaa03000000")
_EXTENSIONS = (0, 43, 44, 51, 60, 59, 135)


# -- well-formed frames -----------------------------------------------------------------------------------------------


def plain(rng: random.Random) -> bytes:
    """A usual frame: at most one tag, no fragment, no options, nothing wrong."""
    tag = pack("!HH", rng.choice(TAG_TYPES[:2]), rng.randrange(0x10000)) if rng.random() < 0.3 else b""
    form = rng.choice((_plain_ipv4, _plain_ipv6, _arp, _mpls, _other))
    return rng.randbytes(12) + tag + form(rng)


def _plain_ipv4(rng: random.Random) -> bytes:
    proto, upper = _upper(rng, 4)
    return b"\x08\0" + _ipv4_header(rng, proto, len(upper)) + upper


def _plain_ipv6(rng: random.Random) -> bytes:
    proto, upper = _upper(rng, 6)
    return b"\x86\xdd" + _ipv6_header(rng, proto, len(upper)) + upper


def _arp(rng: random.Random) -> bytes:
    return b"\x08\x06" + pack("!HHBBH", 1, 0x800, 6, 4, rng.randrange(1, 256)) + rng.randbytes(rng.choice((20, 38)))


def _mpls(rng: random.Random) -> bytes:
    return rng.choice((b"\x88\x47", b"\x88\x48")) + rng.randbytes(4) + rng.randbytes(rng.randrange(60))


def _other(rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return pack("!H", 38) + b"BBc" + rng.randbytes(35)
    return pack("!H", rng.choice((0x88CC, 0x0899, 0x88E7, 0x894F))) + rng.randbytes(rng.randrange(46, 80))


def _ipv4_header(rng: random.Random, proto: int, length: int, fragment: int = 0, options: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    head = pack("!BBHHHBBH", 0x40 | words, rng.randrange(256), words * 4 + length, 7, fragment, 64, proto, 0)
    return head + rng.randbytes(8) + options


def _ipv6_header(rng: random.Random, proto: int, length: int) -> bytes:
    return pack("!IHBB", 6 << 28 | rng.randrange(1 << 28), length, proto, 64) + rng.randbytes(32)


def _upper(rng: random.Random, version: int) -> tuple[int, bytes]:
    payload = rng.randbytes(rng.randrange(40))
    form = rng.randrange(5)
    if form == 0:
        options = rng.randrange(4)
        head = rng.randbytes(12) + bytes(((5 + options) << 4,)) + rng.randbytes(7 + 4 * options)
        return 6, head + payload
    if form == 1:
        return 17, rng.randbytes(8) + payload
    if form == 2:
        return 132, rng.randbytes(12) + payload
    if form == 3:
        return (1, rng.randbytes(8) + payload) if version == 4 else (58, _icmpv6(rng))
    return rng.choice((2, 47, 50, 89, 255)), rng.randbytes(8) + payload


def _icmpv6(rng: random.Random, options: int = 1) -> bytes:
    kind = rng.choice((128, 133, 135, 136, 143))
    if kind not in {135, 136}:
        return bytes((kind, rng.randrange(256))) + rng.randbytes(rng.randrange(6, 40))
    found = bytes((kind, 0)) + rng.randbytes(22)
    for _ in range(rng.randrange(options + 1)):
        length = rng.choice((1, 1, 1, 2))
        found += bytes((rng.choice((1, 2, 14)), length)) + rng.randbytes(length * 8 - 2)
    return found


# -- odd ones ---------------------------------------------------------------------------------------------------------


def odd(rng: random.Random) -> bytes:
    """Any frame, mostly unusual in one way or more."""
    kind = rng.randrange(10)
    if kind == 0:
        return rng.randbytes(rng.randrange(100))
    frame = plain(rng) if kind < 4 else _unusual(rng)
    for _ in range(rng.choice((0, 1, 1, 2)) if kind >= 4 else 1):
        frame = rng.choice(_MUTATIONS)(rng, frame)
    return frame


def _unusual(rng: random.Random) -> bytes:
    tags = b"".join(
        pack("!HH", rng.choice(TAG_TYPES), rng.randrange(0x10000)) for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 2, 3)))
    )
    form = rng.choice((_odd_ipv4, _odd_ipv4, _odd_ipv6, _odd_ipv6, _odd_ipv6, _odd_arp, _mpls, _noise))
    inner = form(rng)
    if rng.random() < 0.2:
        llc = rng.choice((SNAP, SNAP, SNAP, SNAP[:3] + b"\0\0\x0c", rng.randbytes(6)))
        inner = pack("!H", rng.choice((len(inner) + 6, rng.randrange(0x700)))) + llc + inner
    return rng.randbytes(12) + tags + inner


def _noise(rng: random.Random) -> bytes:
    return pack("!H", rng.choice(ETHER_TYPES)) + rng.randbytes(rng.randrange(90))


def _odd_arp(rng: random.Random) -> bytes:
    words = [1, 0x800, 6, 4, rng.choice((1, 2, 255, 256, 0x100 | rng.randrange(256)))]
    if rng.random() < 0.5:
        words[rng.randrange(4)] ^= 1 << rng.randrange(8)
    return rng.choice((b"\x08\x06", b"\x80\x35")) + pack("!HHBBH", *words) + rng.randbytes(20)


def _odd_ipv4(rng: random.Random) -> bytes:
    proto, upper = _upper(rng, 4)
    proto = proto if rng.random() < 0.9 else rng.choice((0, 6, 17, 58, rng.randrange(256)))
    fragment = rng.choice((0, 0, 0x4000, 0x2000, 0x2001, 1, 0x1FFF, 0x8000))
    options = rng.randbytes(4 * rng.choice((0, 0, 0, 1, 3, 10)))
    header = bytearray(_ipv4_header(rng, proto, len(upper), fragment, options))
    if rng.random() < 0.3:
        total = len(header) + len(upper)
        header[2:4] = pack("!H", rng.choice((0, 19, 20, len(header), total - 1, total + 1, rng.randrange(0x10000))))
    if rng.random() < 0.1:
        header[0] = rng.randrange(256)
    return b"\x08\0" + header + upper


def _odd_ipv6(rng: random.Random) -> bytes:
    proto, upper = _upper(rng, 6)
    if rng.random() < 0.3:
        proto, upper = 58, _icmpv6(rng, 4)
    chain, count = b"", rng.choice((0, 1, 1, 1, 2, 2, 3, 5, 9, 12))
    for _ in range(count):
        kind = rng.choice(_EXTENSIONS)
        chain = _extension(rng, kind, proto) + chain
        proto = kind
    length = len(chain) + len(upper)
    if rng.random() < 0.15:
        length = rng.choice((0, 8, len(chain), len(chain) + 4, max(0, length - 1), length + 1, rng.randrange(0x10000)))
    header = bytearray(_ipv6_header(rng, proto, length))
    if rng.random() < 0.05:
        header[0] = rng.randrange(256)
    return b"\x86\xdd" + header + chain + upper


def _extension(rng: random.Random, kind: int, following: int) -> bytes:
    if kind == 44:
        offset = rng.choice((0, 0, 1, 8, 9, rng.randrange(0x10000)))
        return bytes((following, rng.randrange(256))) + pack("!H", offset) + rng.randbytes(4)
    if kind == 51:
        units = rng.choice((0, 1, 2, 4))
        size = (units + 2) * 4
    else:
        units = rng.choice((0, 0, 0, 1, 2))
        size = (units + 1) * 8
    if rng.random() < 0.05:
        units = rng.randrange(256)
    return bytes((following, units)) + rng.randbytes(size - 2)


def _cut(rng: random.Random, frame: bytes) -> bytes:
    return frame[: rng.randrange(len(frame) + 1)]


def _flip(rng: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        if len(data) > 12:
            data[rng.randrange(12, min(len(data), 90))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _replace(rng: random.Random, frame: bytes) -> bytes:
    if len(frame) < 14:
        return frame
    at = rng.randrange(12, len(frame))
    return frame[:at] + rng.choice((b"\0", b"\xff", rng.randbytes(1), rng.randbytes(2))) + frame[at + 1 :]


def _lengthen(rng: random.Random, frame: bytes) -> bytes:
    return frame + rng.choice((bytes, rng.randbytes))(rng.randrange(1, 40))


_MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (_cut, _flip, _replace, _lengthen)


# -- what Open vSwitch reads ------------------------------------------------------------------------------------------

_TYPES = {
    **dict.fromkeys(("ip", "icmp", "igmp", "tcp", "udp", "sctp"), 0x0800),
    **dict.fromkeys(("ipv6", "icmp6", "tcp6", "udp6", "sctp6"), 0x86DD),
    **{"arp": 0x0806, "rarp": 0x8035, "mpls": 0x8847, "mplsm": 0x8848},
}
_PROTOCOLS = {"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "sctp": 132, "icmp6": 58, "tcp6": 6, "udp6": 17, "sctp6": 132}
_PORTS = {6: "tcp", 17: "udp", 132: "sctp"}


@dataclass(frozen=True)
class Reading:
    """What Open vSwitch read: fields by OpenFlow's names (what is not there is 0), and in what frame."""

    fields: dict[str, int]
    tags: int
    fragment: bool

    @property
    def header(self) -> int:
        """All fields as one integer (``fields``)."""
        return sum(value << BY_NAME[name].shift for name, value in self.fields.items())


def readings(frames: Iterable[bytes]) -> Iterator[Reading]:
    """One of each frame that is not empty, by the parser that Open vSwitch's programs share."""
    with tempfile.NamedTemporaryFile() as file:
        for frame in frames:
            file.write(pack("!BBHIIIH6x", 4, 13, 24 + len(frame), 1, 0xFFFFFFFF, 0xFFFFFFFD, 0) + frame)
        file.flush()
        done = subprocess.run(("ovs-ofctl", "ofp-parse", file.name), check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if not line.startswith("OFPT_"):
            yield _reading(line)


def _reading(line: str) -> Reading:
    words = dict(part.partition("=")[::2] for part in line.partition(" ")[0].split(","))
    keyword = next((word for word, value in words.items() if not value and word in _TYPES), "")
    eth_type = _TYPES[keyword] if keyword else int(words["dl_type"], 16)
    fields = {"eth_dst": _mac(words["dl_dst"]), "eth_src": _mac(words["dl_src"]), "eth_type": eth_type}
    tags = "dl_vlan" in words
    if tags:
        fields |= {"vlan_vid": 0x1000 | int(words["dl_vlan"]), "vlan_pcp": int(words["dl_vlan_pcp"])}
    if eth_type in {0x0800, 0x86DD}:
        fields |= _ip(words, 4 if eth_type == 0x0800 else 6, _PROTOCOLS.get(keyword))
    elif eth_type == 0x0806:
        fields |= {name: _ip_address(words[name]) for name in ("arp_spa", "arp_tpa")}
        fields |= {"arp_op": int(words["arp_op"]), "arp_sha": _mac(words["arp_sha"]), "arp_tha": _mac(words["arp_tha"])}
    elif keyword.startswith("mpls"):
        fields |= {name: int(words.get(name, 0)) for name in ("mpls_label", "mpls_tc", "mpls_bos")}
    return Reading(fields, tags + ("dl_vlan1" in words), words.get("nw_frag", "no") != "no")


def _ip(words: dict[str, str], version: int, proto: int | None) -> dict[str, int]:
    proto = int(words["nw_proto"]) if proto is None else proto
    source, target = ("nw_src", "nw_dst") if version == 4 else ("ipv6_src", "ipv6_dst")
    found = {
        "ip_proto": proto,
        "ip_dscp": int(words["nw_tos"]) >> 2,
        "ip_ecn": int(words["nw_ecn"]),
        f"ipv{version}_src": _ip_address(words[source]),
        f"ipv{version}_dst": _ip_address(words[target]),
    }
    if version == 6:
        found["ipv6_flabel"] = int(words["ipv6_label"], 16)
    if proto in _PORTS:
        for side in ("src", "dst"):
            found[f"{_PORTS[proto]}_{side}"] = int(words.get(f"tp_{side}", 0))
    elif (version, proto) in {(4, 1), (6, 58)}:
        for part in ("type", "code"):
            found[f"icmpv{version}_{part}"] = int(words.get(f"icmp_{part}", 0))
        if "nd_target" in words:
            found["ipv6_nd_target"] = _ip_address(words["nd_target"])
            found |= {f"ipv6_{name}": _mac(words[name]) for name in ("nd_sll", "nd_tll")}
    return found


def _mac(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _ip_address(text: str) -> int:
    return int(ipaddress.ip_address(text))
