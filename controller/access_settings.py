"""What the controller does with hosts at access ports (docs/controller.md, section 1): the key ``access``."""

from __future__ import annotations

from dataclasses import dataclass, field

from hyroads.controller.core.checking import Section
from hyroads.controller.core.services.clients import Limits


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """``guard``: only frames of hosts that were learned pass, and no host takes the place of another."""

    guard: bool = True
    limits: Limits = field(default_factory=Limits)


def parse_access(top: Section) -> AccessSettings:
    """The section of the settings, if there is one."""
    if top.values.get("access") is None:
        return AccessSettings()
    section = top["access"].section(("guard", "quiet_s", "forget_s", "interfaces"))
    default = Limits()
    limits = Limits(
        interfaces=section["interfaces"].integer(default.interfaces, 1, 100_000)
        if "interfaces" in section
        else default.interfaces,
        quiet_s=section["quiet_s"].number(default.quiet_s, 0.1, 3600) if "quiet_s" in section else default.quiet_s,
        forget_s=section["forget_s"].number(default.forget_s, 1, 86_400) if "forget_s" in section else default.forget_s,
    )
    guard = section["guard"].boolean(True) if "guard" in section else True
    return AccessSettings(guard, limits)
