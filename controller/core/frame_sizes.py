"""How large a host's packet may be behind what switches and agents put in front of it. All sizes are in bytes."""

from __future__ import annotations

LINK_MTU = 1600
"""The largest payload that anything here sends over a link, whatever a port could carry."""
HOST_MTU = 1500
"""The largest IP packet of a host on an Ethernet."""
LEAST_HOST_MTU = 1280
"""What every link must carry for IPv6 (RFC 8200, section 5)."""
_ETHERNET, _LABEL, _SHIM, _SEAL = 14, 4, 12, 8
_PATH_LABELS = 5
"""A path of four hops and the agent's label."""
SINGLE_OVERHEAD = _LABEL + _ETHERNET
"""What a switch adds on a single path."""
MULTIPATH_OVERHEAD = _PATH_LABELS * _LABEL + _SHIM + _SEAL + _ETHERNET
"""What an agent adds at most, on paths of up to four hops."""
NEEDED_MTU = HOST_MTU + MULTIPATH_OVERHEAD
"""Ports of this MTU carry every packet of a host as it is."""
LINK_SEAL = _SHIM + _SEAL
"""What an agent adds to a frame on a single path, where links are sealed."""
LEAST_MTU = LEAST_HOST_MTU + MULTIPATH_OVERHEAD
"""Ports of a smaller MTU do not carry what IPv6 needs."""


def single_frame(link_mtu: int, *, is_sealed: bool = False) -> int:
    """The largest frame of a host, with its Ethernet header, that single paths carry over links of this MTU."""
    return link_mtu - _LABEL - (LINK_SEAL if is_sealed else 0)
