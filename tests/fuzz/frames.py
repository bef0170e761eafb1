"""Frames of hosts that switches hand up: who claims which address, IGMP and MLD, SYNs of MPTCP."""

from __future__ import annotations

from ipaddress import ip_address

from targets import target

from hyroads.controller.core import mptcp
from hyroads.controller.core.services import membership, sightings


@target("frames", "controller.core.services", "controller.core.mptcp", longest=1600)
def frames(data: bytes) -> None:
    """One frame to all who read frames; none of them refuses, and none claims for a group."""
    seen = sightings.sighting_of(data)
    if seen is not None:
        for claim in seen.claims:
            assert not int(claim.mac[:2], 16) & 1
            assert ip_address(claim.ip)
    kind, packet = sightings.packet_of(data)
    assert kind >= 0 and data.endswith(packet)
    for report in membership.reports(data):
        assert ip_address(str(report.group)).is_multicast
    membership.query_of(data)
    mptcp.parse_syn(data)
