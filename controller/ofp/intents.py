"""What one switch shall do, in the network's terms: ports by name, neighbours, labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hyroads.controller.ofp.match import Match


@dataclass(frozen=True, slots=True)
class MediumPort:
    """Own interface on a technology."""

    name: str
    technology: str
    mac: str


@dataclass(frozen=True, slots=True)
class AccessPort:
    """A port to hosts that are not part of the hybrid network's media."""

    name: str
    hosts: tuple[str, ...] = ()
    """MAC addresses known to be here."""
    guarded: bool = False
    """Frames of other sources go to the controller, and nowhere else until it has learned them (``hosts``)."""
    serves_dhcp: bool = False
    """DHCP servers may be here; the controller gets a copy of what they say."""


@dataclass(frozen=True, slots=True)
class AgentPorts:
    """The two ports of the node's ``hyroads-edge`` and its label."""

    access: str
    network: str
    label: int


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The far end of an outgoing link: reached over own ``port`` at ``mac``; ``label`` names the link in a stack."""

    node: str
    port: str
    mac: str
    label: int


@dataclass(frozen=True, slots=True)
class Hop:
    """Where a frame goes next: out of own ``port`` to ``mac``."""

    port: str
    mac: str


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """Single path to the node behind ``label``: the next hop, and other ones for frames that came in on some ports."""

    node: str
    label: int
    hop: Hop
    by_port: Mapping[str, Hop] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HelloLabel:
    """The agent's label for a hello frame out of ``port``."""

    port: str
    label: int


@dataclass(frozen=True, slots=True)
class AttachedClient:
    """A plain client that is attached to own medium ``port``; ``label`` is its node label."""

    mac: str
    port: str
    label: int


@dataclass(frozen=True, slots=True)
class ClassifiedFlow:
    """A multipath flow that this edge splits: frames that match go to the agent behind the label ``number``.

    ``match`` has no ``in_port``. Of two flows that match a frame the one with the higher ``precedence`` (0..59000)
    wins.
    """

    id: str
    number: int
    match: Match
    precedence: int = 0


@dataclass(frozen=True, slots=True)
class TreeBranch:
    """What a switch does with the frames of a source tree, which travel behind ``label``.

    They come from ``parent`` (own port and its address there; None where the tree begins), addressed to the own
    interface or, if ``by_group``, to all children on that medium at once. ``copies`` are the transmissions to the
    children; one for several of them goes to the group address of trees. ``delivers``: there are participants here.
    """

    label: int
    parent: Hop | None = None
    by_group: bool = False
    copies: tuple[Hop, ...] = ()
    delivers: bool = False


@dataclass(frozen=True, slots=True)
class SessionMembers:
    """Who gets the frames of a session at one switch: ``access`` ports, and ``clients`` as unicast.

    ``match`` tells the session's frames from others and has no ``in_port``.
    """

    match: Match
    access: tuple[str, ...] = ()
    clients: tuple[AttachedClient, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """Frames that enter a session here: those that match source and group take the tree that begins with ``branch``,
    and go to the other ``members`` here. ``client`` is the source if it is a plain client that is attached here.

    Without a branch they are dropped: a session is for its participants. ``match`` has no ``in_port``.
    """

    match: Match
    branch: TreeBranch | None = None
    members: SessionMembers | None = None
    client: AttachedClient | None = None


@dataclass(frozen=True, slots=True)
class SwitchIntent:
    """Everything that one switch shall do."""

    node: str
    dpid: int
    node_label: int
    flood_label: int
    media: tuple[MediumPort, ...] = ()
    access: tuple[AccessPort, ...] = ()
    agent: AgentPorts | None = None
    neighbours: tuple[Neighbour, ...] = ()
    peers: tuple[Hop, ...] = ()
    """Interfaces (own port, their address) that hello frames may come from."""
    label_sources: tuple[Hop, ...] = ()
    """Interfaces (own port, their address) that labels may come from: of switches with a link to here."""
    hellos: tuple[HelloLabel, ...] = ()
    routes: tuple[NodeRoute, ...] = ()
    remote_hosts: Mapping[str, int] = field(default_factory=dict)
    """MAC of a host that is not here -> the label of its node, or its own if it is a plain client."""
    tree: tuple[Hop, ...] = ()
    """Neighbours on the broadcast tree."""
    clients: tuple[AttachedClient, ...] = ()
    strays: tuple[AttachedClient, ...] = ()
    """Plain clients that may be here and are not: what is heard of them goes to the controller."""
    flows: tuple[ClassifiedFlow, ...] = ()
    branches: tuple[TreeBranch, ...] = ()
    entries: tuple[SessionEntry, ...] = ()
    members: tuple[SessionMembers, ...] = ()
    hears_reports: bool = False
    """What hosts say of groups (IGMP, MLD) goes to the controller as well."""
