"""The slicer's frame parser against Open vSwitch's own, on frames of every form."""

from __future__ import annotations

import random
import shutil

import pytest
from odd_frames import Reading, odd, plain, readings

from hyroads.slices.core.match import TernaryMatch, describe
from hyroads.slices.proxy.frames import header_of

pytestmark = pytest.mark.skipif(shutil.which("ovs-ofctl") is None, reason="needs Open vSwitch")

COUNT = 50_000
PORTS = [f"{name}_{side}" for name in ("tcp", "udp", "sctp") for side in ("src", "dst")]
PORTS += [f"icmpv{version}_{part}" for version in (4, 6) for part in ("type", "code")]


def possible(frame: bytes, reading: Reading) -> list[Reading]:
    """All that switches may read, by their settings: of fragments rules see no ports, and vlan-limit is 1 or more."""
    found = [reading]
    if reading.fragment:
        without = {name: value for name, value in reading.fields.items() if name not in PORTS}
        found.append(Reading(without, reading.tags, fragment=True))
    if reading.tags > 1:
        outer = {name: reading.fields[name] for name in ("eth_dst", "eth_src", "vlan_vid", "vlan_pcp")}
        found.append(Reading({**outer, "eth_type": int.from_bytes(frame[16:18], "big")}, 1, fragment=False))
    return found


def wrong(claimed: TernaryMatch, reading: Reading) -> str:
    """The fields that are claimed to be what they are not."""
    bad = (claimed.value ^ reading.header) & claimed.mask
    return describe(TernaryMatch(claimed.value & bad, bad)) if bad else ""


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_claimed_is_what_open_vswitch_reads(seed: int) -> None:
    """Also with the padding that a medium adds to a short frame, and where a packet-in has only a frame's beginning."""
    rng = random.Random(seed)
    frames = [odd(rng) or b"\0" for _ in range(COUNT)]
    padded = [frame.ljust(60, b"\0") for frame in frames if len(frame) < 60]
    found = list(readings([*frames, *padded]))
    assert len(found) == len(frames) + len(padded)
    behind = iter(found[COUNT:])
    kinds = {"tags": 0, "fragments": 0, "opened": 0, "closed": 0}
    for frame, reading in zip(frames, found[:COUNT], strict=True):
        claimed = header_of(frame)
        cut = header_of(frame[: rng.randrange(len(frame))], len(frame))
        seen = possible(frame, reading)
        if len(frame) < 60:
            seen += possible(frame.ljust(60, b"\0"), next(behind))
        for each in seen:
            assert not wrong(claimed, each), frame.hex()
            assert not wrong(cut, each), frame.hex()
        kinds["tags"] += reading.tags > 1
        kinds["fragments"] += reading.fragment
        kinds["opened" if set(reading.fields) > {f.name for f, _, _ in claimed.fields()} else "closed"] += 1
    assert min(kinds.values()) > COUNT // 100, kinds


def test_nothing_of_a_usual_frame_is_left_open() -> None:
    rng = random.Random(4)
    frames = [plain(rng) for _ in range(COUNT // 2)]
    for frame, reading in zip(frames, readings(frames), strict=True):
        claimed = header_of(frame)
        open_fields = set(reading.fields) - {field.name for field, _, _ in claimed.fields()}
        assert open_fields <= {"ipv6_nd_sll", "ipv6_nd_tll"}, frame.hex()
        assert claimed.has(reading.header)
