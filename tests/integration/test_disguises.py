"""ARP, neighbour discovery, router advertisements and DHCP that are not allowed pass in no disguise; fragments do.

Real frames, real Open vSwitch, the real controller.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from client_lab import ClientLab, eventually, mesh
from disguises import disguises, honest
from host_frames import advertisement

pytestmark = pytest.mark.root
OWNED = "2001:db8::77"
NETWORK = mesh(3).replace(
    "links:\n",
    """  p: {role: client}
  q: {role: client}
links:
  - {id: n0-p, from: n0, to: p, technology: wifi, capacity_mbps: 50, both: true}
  - {id: n0-q, from: n0, to: q, technology: wifi, capacity_mbps: 50, both: true}
""",
)


@pytest.fixture(scope="module")
def lab() -> Iterator[ClientLab]:
    with ClientLab(NETWORK, {"access": {"quiet_s": 60, "dhcp_servers": ["n0"], "routers": ["n0"]}}) as lab:
        mac = lab.addressing.host_mac["p"]
        lab.send("p", mac, **advertisement(mac, OWNED))
        eventually(lambda: OWNED in str(lab.rest("GET", "/clients/p")[1]))
        yield lab


def sender(lab: ClientLab, at: str) -> str:
    """The address of a host that is let in there."""
    mac = lab.addressing.host_mac["q"] if at == "q" else "02:aa:00:00:41:01"

    def is_let_in() -> bool:
        lab.send(at, mac, payload=b"here I am " + at.encode())
        return lab.came("n2", b"here I am " + at.encode(), 0.2)

    eventually(is_let_in)
    return mac


@pytest.mark.parametrize("at", ["q", "n1"], ids=["station", "access port"])
def test_no_disguise_passes(lab: ClientLab, at: str) -> None:
    mac = sender(lab, at)
    tried = disguises(mac, lab.addressing.host_ip["p"], OWNED)
    arrived: list[bytes] = []
    for attempt in range(3):
        for disguise in tried:
            for eth_type, payload in disguise.frames:
                lab.send(at, mac, eth_type=eth_type, payload=payload)
            # The controller is given the time to answer wrongly.
            time.sleep(0.05)
        last = b"that was attempt %d at " % attempt + at.encode()
        lab.send(at, mac, payload=last)
        eventually(lambda last=last: arrived.extend(lab.received("n2")) or any(last in each for each in arrived))
    arrived += lab.received("n0")
    arrived += lab.received("p")
    passed = [each.name for each in tried if any(each.key in frame for frame in arrived)]
    assert not passed


@pytest.mark.parametrize("at", ["q", "n1"], ids=["station", "access port"])
def test_honest_fragments_pass(lab: ClientLab, at: str) -> None:
    mac = sender(lab, at)
    for name, frames in honest(1 if at == "q" else 2):
        arrived: list[bytes] = []

        def missing(frames: list[tuple[int, bytes]] = frames, arrived: list[bytes] = arrived) -> int:
            arrived.extend(lab.received("n2"))
            return sum(not any(payload in each for each in arrived) for _, payload in frames)

        for count, (eth_type, payload) in enumerate(frames, start=1):
            lab.send(at, mac, eth_type=eth_type, payload=payload)
            if count % 8 == 0:
                arrived.extend(lab.received("n2"))
        eventually(lambda missing=missing: not missing(), 5)
        assert not missing(), name


def test_first_fragment_of_an_unknown_host_is_looked_at_too(lab: ClientLab) -> None:
    mac = "02:aa:00:00:42:01"
    found = {each.name: each for each in disguises(mac, "10.0.77.1", OWNED)}
    for _ in range(3):
        for name in ("DHCP in fragments", "router in fragments"):
            for eth_type, payload in found[name].frames:
                lab.send("n1", mac, eth_type=eth_type, payload=payload)
    lab.send("n1", mac, payload=b"known now")
    arrived: list[bytes] = []
    eventually(lambda: arrived.extend(lab.received("n2")) or any(b"known now" in each for each in arrived))
    assert not any(each.key in frame for each in found.values() for frame in arrived)
