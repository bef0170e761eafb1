"""Slice model -> what FlowVisor shall have, or every reason why it can't. Pure.

FlowVisor speaks OpenFlow 1.0: twelve fields, exact but for prefixes of IPv4 addresses. What it can't express is
refused before anything is sent; what it does other than one would expect is a warning.

Slices that share packets are refused if the lower one may write rules. FlowVisor cuts a rule to the entries of its own
slice, not by entries of others above them, so a rule of the lower slice would carry packets of the upper one. What is
left by other slices can't be written as entries instead: all but one port or protocol has no match in OpenFlow 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import combinations

from hyroads.slices.core.fields import VLAN_PRESENT
from hyroads.slices.core.match import TernaryMatch
from hyroads.slices.core.model import PRODUCTION, FlowspaceRule, Limits, Permission, Slice, SliceModel
from hyroads.slices.core.notation import write

from .entries import ADMIN, READ, WRITE, FlowVisorError, FvRule, FvSlice, Value, dpid_text, indexed

UNTAGGED = 65535
MAX_SLICE_NAME = 44
"""So no name of an entry is longer than the 64 characters of FlowVisor's data base."""
MAX_DPID = (1 << 63) - 1
_IPV6 = 0x86DD
MAX_RULES = 5000
"""An entry takes a request and a poll, so many entries take minutes; more is a mistake."""


class PreflightError(FlowVisorError):
    """The slices can't be had on a FlowVisor; ``refusals`` are all the reasons."""

    def __init__(self, refusals: tuple[str, ...]) -> None:
        self.refusals = refusals
        more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
        super().__init__(f"not possible on FlowVisor: {refusals[0]}{more}")


@dataclass(frozen=True)
class Desired:
    """Slices by name and flowspace entries by name, and what the operator should know."""

    slices: Mapping[str, FvSlice]
    rules: Mapping[str, FvRule]
    warnings: tuple[str, ...] = ()


@dataclass
class _Notes:
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def desired_of(model: SliceModel) -> Desired:
    """What FlowVisor shall have; :class:`PreflightError` with every reason why it can't."""
    notes = _Notes()
    slices: dict[str, FvSlice] = {}
    rules: dict[str, FvRule] = {}
    for each in model.slices.values():
        if each.name == PRODUCTION and not each.controllers:
            notes.warnings.append(f"{PRODUCTION} has no controller: packets of nobody are dropped")
            continue
        found = _slice(each, notes)
        if found is not None:
            slices[each.name] = found
        _remark(each, notes)
        rules |= {rule.name: rule for rule in _rules(each, notes)}
    _check_endpoints(slices, notes)
    _check_isolation(rules.values(), notes)
    if len(rules) > MAX_RULES:
        notes.refusals.append(f"{len(rules)} flowspace entries, expected at most {MAX_RULES}")
    if notes.refusals:
        raise PreflightError(tuple(notes.refusals))
    return Desired(slices, rules, tuple(notes.warnings))


def _slice(each: Slice, notes: _Notes) -> FvSlice | None:
    where = f"slice {each.name}"
    if each.name == ADMIN:
        notes.refusals.append(f"{where}: this name is that of FlowVisor's operator")
    if len(each.name) > MAX_SLICE_NAME:
        notes.refusals.append(f"{where}: expected a name of at most {MAX_SLICE_NAME} characters")
    if len(each.controllers) != 1:
        notes.refusals.append(f"{where}: expected exactly one controller, got {len(each.controllers)}")
        return None
    controller, limits = each.controllers[0], each.limits
    if controller.tls:
        notes.refusals.append(f"{where}: controller {controller}: FlowVisor connects to controllers by tcp only")
    if ":" in controller.host:
        notes.refusals.append(f"{where}: controller {controller}: FlowVisor knows no IPv6 addresses")
    default = Limits()
    for name in ("rate_in_mbps", "rate_out_mbps", "airtime_share", "queue"):
        if getattr(limits, name):
            notes.refusals.append(f"{where}: limits.{name}: FlowVisor limits no traffic")
    notes.warnings += [
        f"{where}: limits.{name} has no meaning in OpenFlow 1.0"
        for name in ("tables", "groups", "meters")
        if getattr(limits, name) != getattr(default, name)
    ]
    return FvSlice(each.name, controller.host, controller.port, limits.flow_entries, round(limits.flow_mods_per_s))


def _remark(each: Slice, notes: _Notes) -> None:
    where = f"slice {each.name}"
    if Permission.DELEGATE in each.permissions:
        notes.warnings.append(f"{where}: FlowVisor does not enforce delegation; only read and write are set")
    if each.opt_in is not None:
        notes.warnings.append(f"{where}: its users can't join it through FlowVisor")
    if each.ssids:
        notes.warnings.append(f"{where}: its SSIDs are not FlowVisor's business")
    if any(rule.ports is not None and all(not match.mask for match in rule.matches) for rule in each.flowspace):
        notes.warnings.append(f"{where}: a rule by ports alone breaks this slice's packet-outs in FlowVisor")
    names = {of.name for rule in each.flowspace for match in rule.matches for of, _, _ in match.fields()}
    written = sorted(names & _REWRITTEN)
    if written and Permission.WRITE in each.permissions:
        notes.warnings.append(f"{where}: FlowVisor lets a slice rewrite {', '.join(written)} out of its flowspace")


def _check_endpoints(slices: Mapping[str, FvSlice], notes: _Notes) -> None:
    seen: dict[tuple[str, int], str] = {}
    for each in slices.values():
        other = seen.setdefault((each.host, each.port), each.name)
        if other != each.name:
            notes.refusals.append(
                f"slices {other} and {each.name} have the same controller {each.host}:{each.port}; "
                "FlowVisor wants one address for each slice"
            )


def _check_isolation(rules: Iterable[FvRule], notes: _Notes) -> None:
    by_slice: dict[str, list[FvRule]] = {}
    for rule in rules:
        by_slice.setdefault(rule.slice_name, []).append(rule)
    indexes = [(mine, indexed(mine)) for mine in by_slice.values()]
    for (one, index), (other, other_index) in combinations(indexes, 2):
        if not (one[0].permission | other[0].permission) & WRITE:
            continue
        for number, _, second, _ in index.overlaps(other_index):
            pair = (one[number], other[second])
            lower, upper = sorted(pair, key=lambda rule: (rule.priority, -(rule.permission & WRITE)))
            if lower.permission & WRITE:
                notes.refusals.append(
                    f"slices {lower.slice_name} ({lower}) and {upper.slice_name} ({upper}) share packets: FlowVisor "
                    f"would let rules of {lower.slice_name} carry them; make the flowspaces disjoint, "
                    f"or give {lower.slice_name} no write"
                )
                break


def _rules(each: Slice, notes: _Notes) -> Iterator[FvRule]:
    permission = READ * (Permission.READ in each.permissions) | WRITE * (Permission.WRITE in each.permissions)
    if each.name == PRODUCTION:
        yield FvRule(each.name, permission, 0, None, {})
        return
    for number, rule in enumerate(each.flowspace):
        where = f"slice {each.name}, rule {number}"
        _check_switches(rule, where, notes)
        for port in _ports(rule, where, notes):
            for match in rule.matches:
                fields = _match(match, where, notes)
                if fields is None:
                    continue
                if port is not None:
                    fields["in_port"] = port
                for dpid in sorted(rule.switches) if rule.switches is not None else (None,):
                    yield FvRule(each.name, permission, rule.priority, dpid, fields)


def _check_switches(rule: FlowspaceRule, where: str, notes: _Notes) -> None:
    wrong = [dpid for dpid in sorted(rule.switches or ()) if dpid > MAX_DPID]
    if wrong:
        notes.refusals.append(f"{where}: switch {dpid_text(wrong[0])}: FlowVisor takes no datapath id above 2^63 - 1")


def _ports(rule: FlowspaceRule, where: str, notes: _Notes) -> tuple[int | None, ...]:
    if rule.ports is None:
        return (None,)
    wrong = [port for port in sorted(rule.ports, key=str) if not isinstance(port, int) or port >= 0xFF00]
    if wrong:
        notes.refusals.append(f"{where}: port {wrong[0]!r}: OpenFlow 1.0 has ports by number, up to 65279")
    return tuple(sorted(port for port in rule.ports if isinstance(port, int) and port < 0xFF00))


def _match(match: TernaryMatch, where: str, notes: _Notes) -> dict[str, Value] | None:
    fields: dict[str, Value] = {}
    over_ipv6 = match.field("eth_type") == (_IPV6, 0xFFFF)
    for each, value, mask in match.fields():
        length = mask.bit_count()
        problem = "OpenFlow 1.0 has no such field"
        if over_ipv6 and each.name in _OVER_IP:
            problem = "FlowVisor looks into IPv4 only, and this is over IPv6; add eth_type: 0x0800 to leave that out"
            notes.refusals.append(f"{where}: {each.name}={write(each, value, mask)}: {problem}")
            return None
        if each.name in _PREFIXES and mask == 0xFFFFFFFF & ~((1 << 32 - length) - 1):
            fields[_PREFIXES[each.name]] = f"{IPv4Address(value)}" + (f"/{length}" if length < 32 else "")
            continue
        if each.name in _PREFIXES:
            problem = "expected an address or a prefix"
        elif each.name in _EXACT:
            key, encode, expected = _EXACT[each.name]
            if mask == each.ones:
                fields[key] = encode(value)
                continue
            problem = f"expected {expected} here"
        notes.refusals.append(f"{where}: {each.name}={write(each, value, mask)}: {problem}")
        return None
    return fields


def _mac(address: int) -> str:
    return address.to_bytes(6, "big").hex(":")


def _vlan(vlan_vid: int) -> int:
    return vlan_vid & 0xFFF if vlan_vid & VLAN_PRESENT else UNTAGGED


def _number(value: int) -> int:
    return value


_ADDRESSES = ("eth_src", "eth_dst", "ipv4_src", "ipv4_dst")
_REWRITTEN = frozenset((*_ADDRESSES, "vlan_vid", "vlan_pcp", "ip_dscp", "tcp_src", "tcp_dst", "udp_src", "udp_dst"))
_OVER_IP = ("ip_dscp", "ip_ecn", "ip_proto")
"""One of these is in every match of something in an IP packet."""
_PREFIXES = {"ipv4_src": "nw_src", "ipv4_dst": "nw_dst", "arp_spa": "nw_src", "arp_tpa": "nw_dst"}
_NUMBERS = {
    "eth_type": "dl_type", "vlan_pcp": "dl_vpcp", "ip_proto": "nw_proto", "arp_op": "nw_proto",
    "tcp_src": "tp_src", "tcp_dst": "tp_dst", "udp_src": "tp_src", "udp_dst": "tp_dst",
    "icmpv4_type": "tp_src", "icmpv4_code": "tp_dst",
}  # fmt: skip
_EXACT: dict[str, tuple[str, Callable[[int], Value], str]] = {
    **{name: (key, _number, "one value: OpenFlow 1.0 has no masks and ranges") for name, key in _NUMBERS.items()},
    "eth_src": ("dl_src", _mac, "one address: OpenFlow 1.0 has no masks"),
    "eth_dst": ("dl_dst", _mac, "one address: OpenFlow 1.0 has no masks"),
    "vlan_vid": ("dl_vlan", _vlan, "none or one VLAN number: OpenFlow 1.0 has no masks"),
    "ip_dscp": ("nw_tos", lambda dscp: dscp << 2, "one value: OpenFlow 1.0 has no masks"),
}
"""By our name of a field: its name in OpenFlow 1.0, how a value is written there, and what is expected."""
