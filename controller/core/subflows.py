"""The subflows of an MPTCP connection (RFC 8684) as flows of two groups: one of what the client sends, one of the rest.

The planner routes the flows of a group apart (``flow_groups``), and gives a group the share of one flow (``rates``), as
RFC 6356 asks of a connection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .netfile_sections import ETH_TYPE_IPV4, ETH_TYPE_IPV6, IP_PROTO_TCP
from .network import PRODUCTION, FlowSpec

MAX_TOKEN = 0xFFFFFFFF
Direction = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class TcpEnd:
    """One end of a subflow: the node at which the host is, and its IPv4 or IPv6 address and TCP port."""

    node: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Subflow:
    """One TCP connection of an MPTCP connection. ``number`` is its own for as long as the connection lives."""

    number: int
    client: TcpEnd
    peer: TcpEnd


@dataclass(frozen=True, slots=True)
class MptcpConnection:
    """A connection by its token, the first 32 bits of the hash of the peer's key (RFC 8684, section 3.2)."""

    token: int
    subflows: tuple[Subflow, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.token <= MAX_TOKEN:
            raise ValueError(f"token {self.token}: expected 32 bits")


def group_of(token: int, direction: Direction) -> str:
    """The name of the group of a connection's flows in one direction; ``up`` is from the client."""
    return f"mptcp-{token:08x}-{direction}"


def flow_of(token: int, number: int, direction: Direction) -> str:
    """The id of the flow of one subflow in one direction."""
    return f"mptcp-{token:08x}-{number}-{direction}"


def subflow_flows(connection: MptcpConnection, *, weight: float = 1.0, slice_name: str = PRODUCTION) -> list[FlowSpec]:
    """Two flows for each subflow, in order of the subflows, ``up`` before ``down``.

    A subflow whose ends are at one node needs no path and gets no flows. ``weight`` is that of the whole connection;
    ``slice_name`` the slice whose shares it keeps. Raises ``ValueError`` for an address that is none,
    or two of different versions.
    """
    flows = []
    for subflow in connection.subflows:
        client, peer = subflow.client, subflow.peer
        if client.node == peer.node:
            continue
        directions: Iterable[tuple[Direction, TcpEnd, TcpEnd]] = (("up", client, peer), ("down", peer, client))
        for direction, source, target in directions:
            flows.append(
                FlowSpec(
                    flow_of(connection.token, subflow.number, direction),
                    source.node,
                    target.node,
                    weight=weight,
                    match=_match(source, target),
                    slice=slice_name,
                    group=group_of(connection.token, direction),
                )
            )
    return flows


def _match(source: TcpEnd, target: TcpEnd) -> dict[str, int | str]:
    """What the packets of a subflow have in one direction, prerequisites included."""
    first, last = ipaddress.ip_address(source.address), ipaddress.ip_address(target.address)
    if first.version != last.version:
        raise ValueError(f"{first} and {last}: expected addresses of one version")
    name, eth_type = {4: ("ipv4", ETH_TYPE_IPV4), 6: ("ipv6", ETH_TYPE_IPV6)}[first.version]
    return {
        "eth_type": eth_type,
        "ip_proto": IP_PROTO_TCP,
        f"{name}_src": str(first),
        f"{name}_dst": str(last),
        "tcp_src": source.port,
        "tcp_dst": target.port,
    }
