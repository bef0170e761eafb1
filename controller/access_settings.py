"""What the controller does with hosts at access ports (docs/reference/settings.md): the key ``access``."""

from __future__ import annotations

from dataclasses import dataclass, field

from hyroads.controller.core.checking import Place, Section
from hyroads.controller.core.services.clients import Limits


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """``guard``: only frames of hosts that were learned pass, and no host takes the place of another."""

    guard: bool = True
    dhcp_servers: tuple[str, ...] | None = None
    """Nodes at whose access port DHCP servers may be; None: gateways."""
    limits: Limits = field(default_factory=Limits)


def parse_access(top: Section) -> AccessSettings:
    """The section of the settings, if there is one."""
    if top.values.get("access") is None:
        return AccessSettings()
    section = top["access"].section(("guard", "quiet_s", "forget_s", "interfaces", "dhcp_servers"))
    default = Limits()
    limits = Limits(
        interfaces=section["interfaces"].integer(default.interfaces, 1, 100_000)
        if "interfaces" in section
        else default.interfaces,
        quiet_s=section["quiet_s"].number(default.quiet_s, 0.1, 3600) if "quiet_s" in section else default.quiet_s,
        forget_s=section["forget_s"].number(default.forget_s, 1, 86_400) if "forget_s" in section else default.forget_s,
    )
    guard = section["guard"].boolean(True) if "guard" in section else True
    servers = section.optional("dhcp_servers")
    return AccessSettings(guard, None if servers is None else _nodes(servers), limits)


def _nodes(place: Place) -> tuple[str, ...]:
    if not isinstance(place.value, list) or not all(isinstance(node, str) for node in place.value):
        place.expected("a list of nodes")
        return ()
    return tuple(place.value)
