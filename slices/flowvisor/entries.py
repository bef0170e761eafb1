"""What FlowVisor's management API calls slices and flowspace entries, as data. Pure.

It reads back other than it is told: numbers of 16 bits come back signed, a match has a key ``wildcards``, and "every
switch" is called ``all_dpids``. :func:`rule_of` undoes that, so that what is there can be compared with what is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from ipaddress import IPv4Network
from types import MappingProxyType
from typing import Any

from hyroads.slices.core.errors import SliceError
from hyroads.slices.core.match import TernaryMatch
from hyroads.slices.core.model import OverlapIndex

ADMIN = "fvadmin"
OURS = "hr-"
"""Names of our flowspace entries begin with this; all others are left alone."""
READ, WRITE = 2, 4
EVERY_SWITCH = ("all", "any", "*", "all_dpids", "ff:ff:ff:ff:ff:ff:ff:ff")
_NETWORKS = ("nw_src", "nw_dst")
_SIXTEEN_BITS = ("dl_type", "dl_vlan", "tp_src", "tp_dst", "in_port")
_TEXTS = ("dl_src", "dl_dst")
_KEYS = (*_SIXTEEN_BITS, *_TEXTS, *_NETWORKS, "dl_vpcp", "nw_proto", "nw_tos")

# Where each field is in the bits of an entry, and how many it has; the datapath id is in the lowest 64.
_BITS = {"dl_src": 48, "dl_dst": 48, "nw_src": 32, "nw_dst": 32, **dict.fromkeys(_SIXTEEN_BITS, 16)}
_WIDTH = 48
_PLACES = {key: (64 + _WIDTH * place, _BITS.get(key, 8)) for place, key in enumerate(_KEYS)}

Value = int | str


class FlowVisorError(SliceError):
    """Something about a FlowVisor; ``code`` is its JSON-RPC error code if it gave one."""

    def __init__(self, problem: str, code: int | None = None) -> None:
        self.problem, self.code = problem, code
        super().__init__(problem)


class FailedInsideError(FlowVisorError):
    """FlowVisor met something that it does not handle, and gave no reason."""


@dataclass(frozen=True, slots=True)
class FvSlice:
    """A slice; ``flow_mod_limit`` counts entries per switch, ``messages_per_s`` has a burst of 200 (both -1: none)."""

    name: str
    host: str
    port: int
    flow_mod_limit: int = -1
    messages_per_s: int = -1


@dataclass(frozen=True)
class FvRule:
    """A flowspace entry that gives packets to one slice; ``dpid`` None is every switch."""

    slice_name: str
    permission: int
    priority: int
    dpid: int | None
    match: Mapping[str, Value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "match", MappingProxyType(dict(sorted(self.match.items()))))

    @property
    def name(self) -> str:
        """Follows from the content: an entry that differs has another name, so nothing is ever updated in place."""
        text = repr((self.slice_name, self.permission, self.priority, self.dpid, tuple(self.match.items())))
        return f"{OURS}{self.slice_name}-{sha256(text.encode()).hexdigest()[:16]}"

    @cached_property
    def packets(self) -> TernaryMatch:
        """The switches, ports and packets of the entry as bits, to find entries that share some."""
        value, mask = (0, 0) if self.dpid is None else (self.dpid, (1 << 64) - 1)
        for key, given in self.match.items():
            shift, bits = _PLACES[key]
            ones, number = (1 << bits) - 1, given
            if key in _NETWORKS:
                network = IPv4Network(str(given), strict=False)
                number, ones = int(network.network_address), int(network.netmask)
            elif key in _TEXTS:
                number = int(str(given).replace(":", ""), 16)
            value |= int(number) << shift
            mask |= ones << shift
        return TernaryMatch(value, mask)

    def __str__(self) -> str:
        """What it matches, in FlowVisor's words."""
        fields = [f"{key}={value}" for key, value in self.match.items()]
        where = [] if self.dpid is None else [f"dpid={dpid_text(self.dpid)}"]
        return f"{', '.join([*where, *fields]) or 'every packet'}, priority {self.priority}"

    def document(self) -> dict[str, Any]:
        """The entry of ``add-flowspace``."""
        return {
            "name": self.name,
            "dpid": "all" if self.dpid is None else dpid_text(self.dpid),
            "priority": self.priority,
            "match": dict(self.match),
            "slice-action": [{"slice-name": self.slice_name, "permission": self.permission}],
        }


def dpid_text(dpid: int) -> str:
    """A datapath id as FlowVisor writes it: eight bytes with colons."""
    return ":".join(f"{byte:02x}" for byte in dpid.to_bytes(8, "big"))


def dpid_of(text: object) -> int | None:
    """The datapath id of FlowVisor's text; None is every switch. :class:`FlowVisorError` if it is neither."""
    if text in EVERY_SWITCH:
        return None
    digits = str(text).replace(":", "")
    if not 0 < len(digits) <= 16 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        raise FlowVisorError(f"FlowVisor: a datapath id was expected, got {str(text)[:40]!r}")
    return int(digits, 16)


def rules_of(entry: Mapping[str, Any]) -> tuple[FvRule, ...]:
    """An entry of ``list-flowspace``, as one for each slice that it gives packets to."""
    actions, match = entry.get("slice-action"), entry.get("match", {})
    if not isinstance(actions, list) or not isinstance(match, Mapping):
        raise FlowVisorError(f"FlowVisor: a flowspace entry was expected, got {str(entry)[:80]!r}")
    try:
        dpid, priority = dpid_of(entry["dpid"]), int(entry["priority"])
        fields = {key: _value(key, match[key]) for key in _KEYS if key in match}
        return tuple(
            FvRule(str(action["slice-name"]), int(action["permission"]), priority, dpid, fields) for action in actions
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FlowVisorError(f"FlowVisor: a flowspace entry can't be read: {error}") from error


def shared(some: Sequence[FvRule], others: Sequence[FvRule]) -> Iterator[tuple[int, int]]:
    """The places of all pairs, one of each, that have packets in common, whatever their priorities."""
    for number, _, other, _ in indexed(some).overlaps(indexed(others)):
        yield number, other


def indexed(rules: Sequence[FvRule]) -> OverlapIndex:
    """An index of what entries match, by their places, in which all priorities count as one."""
    return OverlapIndex((0, rule.packets, number) for number, rule in enumerate(rules))


def _value(key: str, value: Any) -> Value:
    if key in _TEXTS:
        return str(value).lower()
    if key in _NETWORKS:
        # Always written alike: without a length if it is one address.
        network = IPv4Network(str(value), strict=False)
        return str(network.network_address) if network.prefixlen == 32 else str(network)
    number = int(value)
    return number & 0xFFFF if key in _SIXTEEN_BITS else number & 0xFF
