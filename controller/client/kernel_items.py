"""What both sides of the kernel plane install: links, tunnels, and the plan that holds them. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CLIENT_END, WAYPOINT_END = 0, 1
NEIGHBOURS = (("169.254.102.2", "fe80::6650:2"), ("169.254.102.1", "fe80::6650:1"))
"""Inner addresses of a tunnel's ends: the client's, the waypoint's."""
PROBE_PORT = 9
"""To this UDP port of the waypoint's end (discard) a client sends through each tunnel, to show where it is."""
TUNNEL_BYTES = {4: 50, 6: 70}
_MTU_LEAST = 1280
CLAMP = 'oifname "hrk*" tcp flags syn tcp option maxseg size set rt mtu'
"""TCP at both ends learns the tunnel's MTU from the other's SYN."""


def hooked_chain(name: str, kind: str, hook: str, priority: str, rules: Sequence[str]) -> list[str]:
    """Lines of a chain of nftables through which all packets of a hook go, unless a rule says otherwise."""
    return [f"chain {name} {{", f"type {kind} hook {hook} priority {priority}; policy accept;", *rules, "}"]


@dataclass(frozen=True)
class Link:
    """An interface as the host has it now; ``index`` changes when the device is made anew.

    ``gateways`` has an entry for each family (4, 6) that has a default route: the gateway's address, or empty if the
    other end is the only one. ``down_s`` is how long the carrier has been missing.
    """

    name: str
    index: int
    carrier: bool
    mtu: int = 1500
    addresses: Mapping[int, str] = field(default_factory=dict)
    gateways: Mapping[int, str] = field(default_factory=dict)
    subnets: Mapping[int, Sequence[str]] = field(default_factory=dict)
    down_s: float = 0.0

    def reaches(self, family: int) -> bool:
        """Whether packets of a family can leave here."""
        return family in self.addresses and family in self.gateways


@dataclass(frozen=True)
class Item:
    """One thing that is installed with ``ip``: how it is made and how it goes.

    ``again`` says that making it twice does no harm and repairs what was lost, as ``route replace`` does. ``index`` is
    that of the device it hangs on, 0 if none: with another device it is another item.
    """

    add: str
    remove: str = ""
    again: bool = False
    index: int = 0

    @property
    def device(self) -> str:
        """The device that this makes; empty if it is something else."""
        return self.add.split()[2] if self.add.startswith("link add ") else ""


@dataclass(frozen=True)
class Plan:
    """The whole wanted state: ``items`` in order, the nftables text, and the elements of its maps and sets."""

    items: tuple[Item, ...]
    ruleset: str
    elements: Mapping[str, Mapping[bytes, bytes]]


def mark_key(mark: int) -> bytes:
    """A mark as nftables keeps it: in the order of the host."""
    return struct.pack("=I", mark)


def vni(session: int, number: int) -> int:
    """The VXLAN network identifier (24 bits) of a session's tunnel over an interface, numbered from 1."""
    return session << 4 | (number - 1)


def tunnel_name(session: int, number: int) -> str:
    """Name of a tunnel's device, the same at both ends."""
    return f"hrk{vni(session, number):x}"


def tunnel_mac(number: int, end: int) -> str:
    """MAC address of an end of a tunnel."""
    return f"02:48:52:{end:02x}:00:{number:02x}"


def rule_item(version: int, rule: str) -> Item:
    """A rule of the routing policy."""
    return Item(f"-{version} rule add {rule}", f"-{version} rule del {rule}")


@dataclass(frozen=True)
class Tunnel:
    """One end of a VXLAN tunnel: the far endpoint, and at a client the own address and interface."""

    session: int
    number: int
    end: int
    remote: str
    port: int
    local: str = ""
    link: Link | None = None


def tunnel_items(tunnel: Tunnel) -> Iterator[Item]:
    """The tunnel's device with its address and, as nothing is asked of the network, its neighbour.

    The source port is the fixed one, so that the way back through a NAT is where the way out was.
    """
    name = tunnel_name(tunnel.session, tunnel.number)
    version = 6 if ":" in tunnel.remote else 4
    mtu = max((tunnel.link.mtu if tunnel.link else 1500) - TUNNEL_BYTES[version], _MTU_LEAST)
    index = tunnel.link.index if tunnel.link else 0
    local = f" local {tunnel.local}" if tunnel.local else ""
    device = f" dev {tunnel.link.name}" if tunnel.link else ""
    yield Item(
        f"link add {name} address {tunnel_mac(tunnel.number, tunnel.end)} type vxlan"
        f" id {vni(tunnel.session, tunnel.number)}{local} remote {tunnel.remote}{device}"
        f" dstport {tunnel.port} srcport {tunnel.port} {tunnel.port + 1} nolearning",
        f"link del {name}",
        index=index,
    )
    yield Item(f"link set {name} mtu {mtu} addrgenmode none up", again=True, index=index)
    own, far = NEIGHBOURS[tunnel.end], NEIGHBOURS[1 - tunnel.end]
    mac = tunnel_mac(tunnel.number, 1 - tunnel.end)
    # The kernel's reverse path filter refuses all that comes to a device without an address.
    yield Item(f"addr replace {own[0]}/32 dev {name} scope link", again=True, index=index)
    yield Item(f"-6 addr replace {own[1]}/64 dev {name} nodad", again=True, index=index)
    for each in far:
        yield Item(f"neigh replace {each} lladdr {mac} dev {name} nud permanent", again=True, index=index)
