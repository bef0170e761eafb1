"""Access rules: which frames may enter the network, and how many (docs/reference/access-rules.md). Pure."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from .checking import Place, Problems, id_problem, interface_mac
from .errors import ConfigError
from .netfile_sections import parse_match

MOST_PRIORITY = 1999
MOST_FOR_APPLICATIONS = 999
"""Rules of administrators with a higher priority can't be overruled by an application."""
LEAST_MBPS, MOST_MBPS = 0.001, 100_000.0
LONGEST_S = 10 * 365 * 86400.0
ETH_TYPE_ARP, IP_PROTO_UDP = 0x0806, 17
DHCP_PORTS = frozenset({67, 68, 546, 547})
FIELDS = ("id", "action", "owner", "by_admin", "priority", "match", "client", "to", "rate_mbps", "expires_s")


class Action(Enum):
    """What happens to the frames of a rule. Of rules with equal priority the one that stands first here decides."""

    DENY = "deny"
    LIMIT = "limit"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Frames that enter the network and match are dropped, limited to ``rate_mbps``, or let through.

    ``client`` is who sends them and ``to`` who gets them: a node id or a MAC address; None: anybody. ``match`` has
    further OpenFlow fields by name. A rule ends at ``expires_s`` (Unix time; None: never). ``owner`` is the name of
    the token that made it, ``by_admin`` whether that was an administrator's.
    """

    id: str
    action: Action
    owner: str
    by_admin: bool
    priority: int
    match: Mapping[str, int | str] = field(default_factory=dict)
    client: str | None = None
    to: str | None = None
    rate_mbps: float | None = None
    expires_s: float | None = None

    @property
    def names_control(self) -> bool:
        """Whether it matches ARP or DHCP by name: only then these are subject to it, and nothing else is."""
        if self.match.get("eth_type") == ETH_TYPE_ARP:
            return True
        return any(self.match.get(name) in DHCP_PORTS for name in ("udp_src", "udp_dst"))

    def document(self) -> dict[str, Any]:
        """As JSON, for REST and the state file."""
        return {**asdict(self), "action": self.action.value, "match": dict(self.match)}

    def is_over(self, now_s: float) -> bool:
        """Whether it has expired at a Unix time."""
        return self.expires_s is not None and self.expires_s <= now_s


def parse_rule(document: object, name: str, known: Collection[str]) -> AccessRule:
    """A rule from its document (see :meth:`AccessRule.document`); ``known`` are the nodes that it may name.

    Raises :class:`ConfigError` with all that is wrong.
    """
    problems = Problems(name)
    place = Place(document, problems)
    section = place.section(FIELDS, ("id", "action"))
    problem = id_problem(section.values.get("id")) if "id" in section else ""
    if problem:
        section["id"].expected(problem)
    # What is not an action is a problem already; the rest of the rule is looked at nevertheless.
    text = section["action"].choice([each.value for each in Action], "deny") if "action" in section else "deny"
    action, values = Action(text), section.values
    priority = section["priority"].integer(0, 0, MOST_PRIORITY) if "priority" in section else 0
    match = parse_match(section["match"]) if values.get("match") is not None else {}
    client, to = (_end(section[key], known) if values.get(key) is not None else None for key in ("client", "to"))
    rate = section["rate_mbps"].number(1.0, LEAST_MBPS, MOST_MBPS) if values.get("rate_mbps") is not None else None
    if (rate is None) == (action is Action.LIMIT):
        place.key("rate_mbps", None).fail("expected a rate with action limit, and with no other")
    expires = section["expires_s"].number(0.0, 0.0, 1e11) if values.get("expires_s") is not None else None
    owner, by_admin = values.get("owner", ""), values.get("by_admin", False)
    if not isinstance(owner, str) or not isinstance(by_admin, bool):
        place.key("owner", owner).expected("the name of a token")
    problems.raise_if_any()
    return AccessRule(str(values["id"]), action, owner, by_admin, priority, match, client, to, rate, expires)


def _end(place: Place, known: Collection[str]) -> str | None:
    if isinstance(place.value, str) and place.value in known:
        return place.value
    mac = interface_mac(place.value)
    if mac is None:
        place.expected("the id of a node with a host, or the MAC address of a host")
    return mac


def expiry(document: Mapping[str, Any], name: str, now_s: float) -> float | None:
    """When a rule shall end (Unix time) by ``expires_in_s`` or ``expires_s`` of a request; None: never."""
    within_s, at_s = document.get("expires_in_s"), document.get("expires_s")
    if within_s is not None and at_s is not None:
        raise ConfigError(name, "expires_in_s", "expected either expires_in_s or expires_s")
    if within_s is not None:
        at_s = now_s + within_s
    if at_s is None:
        return None
    if not math.isfinite(at_s) or not now_s < at_s <= now_s + LONGEST_S:
        where = "expires_s" if within_s is None else "expires_in_s"
        raise ConfigError(name, where, "expected a time that is still to come, at most ten years from now")
    return float(at_s)


@dataclass(frozen=True, slots=True)
class Right:
    """What the holder of a token may make rules of: frames that ``clients`` (MAC addresses) send; None: all frames."""

    clients: frozenset[str] | None = None
    most_rules: int | None = None

    def problem(self, rule: AccessRule, sender: str | None) -> str:
        """Why a rule is beyond this right, if it is; else empty. ``sender`` is the MAC address of its ``client``."""
        if self.clients is None:
            return ""
        if sender is None or sender not in self.clients:
            return "this token may only make rules for what its own clients send"
        if rule.priority > MOST_FOR_APPLICATIONS:
            return f"priorities above {MOST_FOR_APPLICATIONS} are for administrators"
        return ""


def overlap(one: AccessRule, other: AccessRule) -> bool:
    """Whether some frame is subject to both rules, as far as their fields tell."""
    if one.names_control != other.names_control:
        return False
    for mine, theirs in ((one.client, other.client), (one.to, other.to)):
        if mine is not None and theirs is not None and mine != theirs:
            return False
    return all(_overlap(one.match[name], other.match[name]) for name in one.match.keys() & other.match.keys())


def _overlap(mine: int | str, theirs: int | str) -> bool:
    if isinstance(mine, int) or isinstance(theirs, int):
        return mine == theirs
    return ipaddress.ip_network(mine).overlaps(ipaddress.ip_network(theirs))
