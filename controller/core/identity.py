"""Who a device is: tokens of agents and radios by node, and which certificates may speak for which node. Pure.

Tokens are random and long, so a plain SHA-256 of each is enough to know it by, and lets nobody in who reads it.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

DEVICE_ROLES = ("agent", "radio")
"""Who has a token of each node: its edge agent, and the agent of its radios."""
ANY = "*"
"""Among the names of certificates that may speak for every switch: all of the authority."""


ROLE_URI = "hyroads:role:"
"""A certificate names its roles as URIs among its alternative names (RFC 5280, section 4.2.1.6), each of these and a
role. Switches, agents, etcd and browsers compare hosts and common names only, so they take such a certificate as
before.
"""


class CertificateRole(StrEnum):
    """What the owner of a certificate is. A certificate may have several roles."""

    NODE = "node"
    """A box: its switch, its edge agent and the agent of its radios."""
    CLIENT = "client"
    CONTROLLER = "controller"
    """To switches, agents, REST clients, etcd and the other controllers of its network."""
    REGION = "region"
    """To the controllers of neighbouring regions."""
    ETCD = "etcd"
    DASHBOARD = "dashboard"
    SLICER = "slicer"


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a certificate says: common names and DNS names, roles, and its issuer with its serial number (``id``)."""

    names: tuple[str, ...] = ()
    roles: frozenset[str] = frozenset()
    id: str = ""


def role_fault(facts: CertificateFacts, wanted: Collection[str], revoked: Collection[str] = ()) -> str:
    """Why a certificate must not be taken where these roles are ``wanted``; "" if it has one of them and its id is not
    ``revoked``.
    """
    if facts.id in revoked:
        return f"its certificate, of {_listed(facts.names)}, is revoked"
    if not facts.roles:
        return f"its certificate, of {_listed(facts.names)}, has no role: make it again with hyroads identity renew"
    if facts.roles.isdisjoint(wanted):
        roles = " and ".join(ascii(role[:16]) for role in sorted(facts.roles)[:4])
        return (
            f"its certificate, of {_listed(facts.names)}, has the role {roles}, and not {' or '.join(sorted(wanted))}"
        )
    return ""


def token_hash(token: str) -> str:
    """What is kept of a token, in hex digits."""
    return sha256(token.encode()).hexdigest()


@dataclass(frozen=True)
class DeviceTokens:
    """``own`` has hashes by (role, node). ``shared`` is the one token of all nodes that have none of their own."""

    own: Mapping[tuple[str, str], str] = field(default_factory=dict)
    shared: str | None = field(default=None, repr=False)
    required: bool = False
    """Whether a device needs a token even while none is known: boxes may be adopted later."""

    @property
    def are_asked_for(self) -> bool:
        """Whether anybody needs a token."""
        return bool(self.own) or self.shared is not None or self.required

    def admits(self, role: str, node: str, token: str | None) -> bool:
        """Whether a token is that of a node in a role. Who has one of its own is not let in by the shared one."""
        given = token or ""
        known = self.own.get((role, node))
        if known is not None:
            return hmac.compare_digest(token_hash(given), known)
        if self.shared is not None:
            return hmac.compare_digest(given.encode(), self.shared.encode())
        return not self.own and not self.required

    def sharing(self, nodes: Collection[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Which of these (role, node) the shared token lets in."""
        return () if self.shared is None else tuple(each for each in nodes if each not in self.own)


def dpid_name(dpid: int) -> str:
    """A datapath id as certificates name it: 16 hex digits, as Ryu and Open vSwitch write it."""
    return f"{dpid:016x}"


SWITCH_ROLES = (CertificateRole.NODE, CertificateRole.SLICER)
"""Roles of certificates that are taken where switches connect."""


def not_of_switch(
    facts: CertificateFacts, dpid: int, node: str | None = None, *, any_switch: Collection[str] = ()
) -> str:
    """The fault of a switch's certificate; "" if it may speak for this datapath id.

    A node's may if it names the datapath id or the node, a slicer's if ``any_switch`` has one of its names.
    """
    own = {dpid_name(dpid), *((node,) if node is not None else ())} if CertificateRole.NODE in facts.roles else set()
    wanted = own.union(any_switch if CertificateRole.SLICER in facts.roles else ())
    if ANY in any_switch or not wanted.isdisjoint(facts.names):
        return ""
    return f"its certificate is of {_listed(facts.names)}, and not of switch {dpid_name(dpid)}"


def not_of_node(names: Collection[str], node: str, what: str = "node") -> str:
    """The fault of a certificate of these names that a device shows as ``node``; "" if it names
    that. ``what`` a node is there: a node, an instance.
    """
    return "" if node in names else f"its certificate is of {_listed(names)}, and not of {what} {node!r}"


def _listed(names: Collection[str]) -> str:
    return ", ".join(ascii(name[:64]) for name in list(names)[:4]) or "nobody"
