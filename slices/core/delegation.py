"""What the owner of a slice may see and change, and give out of it (docs/reference/slicer.md). Pure.

The operator may everything. An owner, told by the hash of a token, sees its own slices and those given out of them, and
of all others the names. It chooses controllers in the networks that the operator allows, lowers limits, and, with the
permission ``delegate``, gives parts of its slices to *children*.

Each packet that a child's rule matches, at each place where it holds, must be the parent's if there were no children:
under that rule lies one of the parent's, at most :data:`BAND` priorities below, and nobody else's rule between. So
children carve out of their parent alone, and the operator, with priorities above the band, out of all of them. The
search goes from the highest rule on and divides what is left; few rules have such priorities. What children may use is
taken from what their parent may (:func:`own_limits`).

What users may bring into a child (``opt_in``) must be its parent's like its rules. What users have brought into the
parent is not its own to give out: each of them may take it back at any time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import NotAllowedError
from .match import TernaryMatch, describe, outside
from .model import PRODUCTION, Controller, FlowspaceRule, Limits, OptIn, Permission, Slice, SliceModel

BAND = 9
MAX_DEPTH = 4
MAX_PARTS = 10_000

_SHARED = ("rate_in_mbps",)
_COUNTED = ("tables", "flow_entries", "groups", "meters", "packet_ins_per_s", "flow_mods_per_s")
_NEVER_ALL = (*_SHARED, "flow_mods_per_s")
"""Of these nothing would be no limit, or no traffic at all."""
_UNCHANGED = "tables"
"""A parent's tables stay where they are: its children's are beside them."""

_YES, _MAYBE, _NO = "yes", "maybe", "no"


def reasons(model: SliceModel, names: Collection[str]) -> Iterator[str]:
    """What is wrong with the children of a model of which the named slices are new or others than before."""
    for name, children in model.children.items():
        parent = model.slices.get(name)
        broken = _parent_problem(model, parent) or ("" if parent is None else _limits_problem(parent, children))
        if parent is None or broken:
            yield f"slice {children[0].name}: its parent {name} {broken}"
            continue
        family = model.family(name)
        for child in children:
            yield from _child_problems(model, parent, child, family, names)


def _parent_problem(model: SliceModel, parent: Slice | None) -> str:
    if parent is None:
        return "is not there"
    if parent.name == PRODUCTION or Permission.DELEGATE not in parent.permissions:
        return "has no permission delegate"
    depth, above = 1, parent
    while above.parent and depth <= MAX_DEPTH:
        depth, above = depth + 1, model.slices.get(above.parent, Slice(""))
    return f"has too many parents: expected at most {MAX_DEPTH} levels" if depth > MAX_DEPTH else ""


# -- limits -----------------------------------------------------------------------------------------------------------


def _limits_problem(parent: Slice, children: tuple[Slice, ...]) -> str:
    limits = parent.limits
    for name in (*_SHARED, *_COUNTED):
        most, given = getattr(limits, name), [getattr(child.limits, name) for child in children]
        if most is None:
            continue
        if None in given:
            return f"has a limit {name} of {most:g}, so each of its children needs one"
        total = sum(given)
        if total > most or (total == most and name in _NEVER_ALL):
            own = ": something must stay for itself" if total == most else ""
            return f"has a limit {name} of {most:g}, and its children together {total:g}{own}"
    for technology in {technology for child in children for technology in child.limits.airtime_share}:
        most = limits.airtime_share.get(technology, 0.0)
        total = sum(child.limits.airtime_share.get(technology, 0.0) for child in children)
        if total > most + 1e-9:
            return f"has {most:g} of the airtime of {technology}, and its children together {total:g}"
    return ""


def own_limits(model: SliceModel, name: str) -> Limits:
    """What a slice may use itself: what it has given to children is theirs."""
    limits, children = model.slices[name].limits, model.children.get(name, ())
    queue = queue_of(model, name)
    if queue != limits.queue:
        limits = replace(limits, queue=queue)
    if not children:
        return limits
    given = [child.limits for child in children]
    left: dict[str, Any] = {}
    for limit in (*_SHARED, *_COUNTED):
        most = getattr(limits, limit)
        if most is not None and limit != _UNCHANGED:
            left[limit] = most - sum(getattr(each, limit) or 0 for each in given)
    shares = {
        technology: max(0.0, share - sum(each.airtime_share.get(technology, 0.0) for each in given))
        for technology, share in limits.airtime_share.items()
    }
    return replace(limits, airtime_share=MappingProxyType(shares), **left)


def queue_of(model: SliceModel, name: str) -> int | None:
    """A slice's queue, or that of the nearest of its parents that has one: children share its rate."""
    each = model.slices.get(name)
    for _ in range(MAX_DEPTH + 1):
        if each is None or each.limits.queue is not None or not each.parent:
            break
        each = model.slices.get(each.parent)
    return None if each is None else each.limits.queue


def default_limits(parent: Slice) -> Limits:
    """What a child has that asks for nothing: a quarter of what its parent was given."""
    limits = parent.limits
    counted: dict[str, Any] = {
        name: type(value)(value / 4) for name in _COUNTED if (value := getattr(limits, name)) is not None
    }
    counted |= {_UNCHANGED: max(1, counted[_UNCHANGED]), "flow_mods_per_s": max(1.0, counted["flow_mods_per_s"])}
    rates: dict[str, Any] = {name: None if (value := getattr(limits, name)) is None else value / 4 for name in _SHARED}
    return replace(Limits(), **counted, **rates)


# -- flowspace --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """A rule's match that may say who owns packets of a child's rule."""

    owner: str
    name: str
    """What the rule is called."""
    rule: FlowspaceRule
    match: TernaryMatch


class _Place(NamedTuple):
    """A switch and a port of it; None is one that no rule names."""

    switch: int | None
    port: int | str | None

    def __str__(self) -> str:
        where = "on other switches" if self.switch is None else f"on switch {self.switch:#x}"
        return f"{where}, {'other ports' if self.port is None else f'port {self.port}'}"


def _child_problems(
    model: SliceModel, parent: Slice, child: Slice, family: frozenset[str], names: Collection[str]
) -> Iterator[str]:
    excess = child.permissions - parent.permissions
    if excess:
        words = " and ".join(sorted(permission.value for permission in excess))
        yield f"slice {child.name}: its parent {parent.name} has no permission {words}"
    new = child.name in names or parent.name in names
    others = [each for each in model.slices.values() if each.name not in family and (new or each.name in names)]
    if not new and not others:
        return
    near = _near(child, [parent, *others])
    if not new and near.keys() <= {parent.name}:
        return
    for what, rule in _taken(child):
        for match in rule.matches:
            wrong = _wrong(match, rule, _entries(match, rule, near.values(), parent), parent.name)
            if wrong:
                yield f"slice {child.name}, {what}: {wrong}"
                break


def _taken(child: Slice) -> Iterator[tuple[str, FlowspaceRule]]:
    """The rules of a child, and those of all who could ever join it."""
    yield from ((f"rule {number}", rule) for number, rule in enumerate(child.flowspace))
    if child.opt_in is not None:
        yield from (("opt_in", rule) for rule in child.opt_in.rules())


def _near(child: Slice, slices: Collection[Slice]) -> dict[str, Slice]:
    """Those slices that have rules at most a band below the child's."""
    wanted = {rule.priority - step for _, rule in _taken(child) for step in range(1, BAND + 1)}
    return {each.name: each for each in slices if not wanted.isdisjoint(each.index.groups)}


def _entries(match: TernaryMatch, rule: FlowspaceRule, slices: Collection[Slice], parent: Slice) -> list[_Entry]:
    """What lies under a match, highest priority first; of the parent what stays if all its users go."""
    return [
        _Entry(each.name, each.rule_name(number), each.rules[number], other)
        for priority in range(rule.priority - 1, rule.priority - BAND - 1, -1)
        for each in slices
        for number, other in each.index.overlapping(priority, match)
        if each is not parent or number < len(parent.flowspace)
    ]


def _wrong(match: TernaryMatch, rule: FlowspaceRule, entries: list[_Entry], parent: str) -> str:
    """Which packets of a match are not the parent's; empty if all are."""
    seen: set[tuple[str, ...]] = set()
    for place in _places(rule, entries):
        here = tuple(_holds(entry.rule, place) for entry in entries)
        if here in seen:
            continue
        seen.add(here)
        held = [(entry, how) for entry, how in zip(entries, here, strict=True) if how != _NO]
        wrong = _wrong_here(match, held, parent, rule.priority)
        if wrong:
            return f"{wrong[0]} {place} {wrong[1]}"
    return ""


def _wrong_here(
    match: TernaryMatch, held: list[tuple[_Entry, str]], parent: str, priority: int
) -> tuple[str, str] | None:
    rest: tuple[TernaryMatch, ...] = (match,)
    for entry, how in held:
        if entry.owner != parent:
            taken = next((part for part in rest if part.overlaps(entry.match)), None)
            if taken is not None:
                found = TernaryMatch(taken.value | entry.match.value, taken.mask | entry.match.mask)
                return describe(found), f"are of slice {entry.owner}, {entry.name}"
        elif how == _YES:
            rest = outside(rest, entry.match)
            if len(rest) > MAX_PARTS:
                return describe(match), f"can't be compared with the flowspace of {parent}: too many parts"
    if not rest:
        return None
    band = f"{max(1, priority - BAND)} to {priority - 1}"
    return describe(rest[0]), f"are not in the flowspace of its parent {parent} (its rules with priority {band})"


def _places(rule: FlowspaceRule, entries: list[_Entry]) -> Iterator[_Place]:
    """Places of a rule such that at each of its others the same entries hold as at one of these."""
    switches: Collection[int | None] = sorted(rule.switches or ())
    ports: Collection[int | str | None] = sorted(rule.ports or (), key=str)
    if rule.switches is None:
        switches = (None, *sorted({switch for entry in entries for switch in entry.rule.switches or ()}))
    if rule.ports is None:
        ports = (None, *sorted({port for entry in entries for port in entry.rule.ports or ()}, key=str))
    return (_Place(switch, port) for switch in switches for port in ports)


def _holds(rule: FlowspaceRule, place: _Place) -> str:
    if rule.switches is not None and place.switch not in rule.switches:
        return _NO
    if rule.ports is None or place.port in rule.ports:
        return _YES
    # A name and a number may be the same port: which, is not known here.
    mixed = place.port is not None and any(type(port) is not type(place.port) for port in rule.ports)
    return _MAYBE if mixed else _NO


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: an operator, who sees all and maybe changes all, or the owner of some slices."""

    operator: bool = False
    sees_all: bool = False
    slices: frozenset[str] = frozenset()
    """Those that a token is the owner's of."""
    user: str = ""
    """The user whose token it is, who may join slices (``opt_in``)."""


OPERATOR = Principal(operator=True, sees_all=True)

_OPERATORS = ("queue", "rate_out_mbps", "rate_out_least_mbps", "dscp")


def owned(model: SliceModel, token_sha256: str) -> frozenset[str]:
    """The slices that a token with this hash is the owner's of; every slice is compared with it."""
    return frozenset([each.name for each in model.slices.values() if each.owned_by(token_sha256)])


def visible(model: SliceModel, principal: Principal) -> frozenset[str]:
    """The slices that somebody sees whole."""
    if principal.sees_all:
        return frozenset(model.slices)
    return frozenset(name for own in principal.slices for name in model.family(own))


def given_out(model: SliceModel, principal: Principal) -> frozenset[str]:
    """The slices that an owner has given out, and may change whole."""
    return frozenset(name for own in principal.slices for name in model.family(own) - {own})


def check(
    model: SliceModel, principal: Principal, put: Iterable[Slice], remove: Iterable[str], allowed: Collection[Network]
) -> None:
    """:class:`NotAllowedError` if somebody may not add, replace or remove these slices."""
    if principal.operator:
        return
    mine = given_out(model, principal)
    for name in remove:
        if name not in mine:
            raise NotAllowedError(f"slice {name}: only the operator, or the owner of its parent, removes it")
    for each in put:
        _check_controllers(model, each, principal.slices | mine, allowed)
        if each.name in principal.slices and each.name not in mine:
            _check_own(model.slices[each.name], each)
        else:
            _check_child(model, each, principal.slices | mine)


def _check_own(before: Slice, after: Slice) -> None:
    lowered = replace(before, controllers=after.controllers, limits=after.limits, opt_in=_own_opt_in(before, after))
    if after != lowered:
        differing = [
            field.name for field in fields(Slice) if getattr(after, field.name) != getattr(lowered, field.name)
        ]
        raise NotAllowedError(
            f"slice {after.name}: its owner may change controllers and lower limits, not {', '.join(differing)}"
        )
    _check_queue(after, before.limits)
    for field in fields(Limits):
        was, now = getattr(before.limits, field.name), getattr(after.limits, field.name)
        if not _at_most(now, was):
            raise NotAllowedError(f"slice {after.name}: its owner may lower limits only: {field.name} was {_text(was)}")


def _own_opt_in(before: Slice, after: Slice) -> OptIn | None:
    """What users may do as the operator has it, but opened or closed, and for fewer users."""
    was, now = before.opt_in, after.opt_in
    if was is None or now is None:
        return was
    fewer = was.users is None or (now.users is not None and now.users <= was.users)
    most = min(was.most_users, now.most_users)
    return replace(was, open=now.open, users=now.users if fewer else was.users, most_users=most)


def _check_queue(after: Slice, before: Limits) -> None:
    """Queues are rows of switches that only the operator makes: in any other the slice would have no rate at all."""
    for name in _OPERATORS:
        if getattr(after.limits, name) != getattr(before, name):
            raise NotAllowedError(f"slice {after.name}: {name} is the operator's to give")


def _at_most(now: Any, was: Any) -> bool:
    if isinstance(now, int | float) and isinstance(was, int | float):
        return now <= was
    if hasattr(now, "items") and hasattr(was, "items"):
        return all(technology in was and share <= was[technology] for technology, share in now.items())
    return bool(now == was) or was is None


def _text(limit: Any) -> str:
    return f"{limit:g}" if isinstance(limit, int | float) else str(dict(limit) if hasattr(limit, "items") else limit)


def _check_child(model: SliceModel, each: Slice, family: frozenset[str]) -> None:
    if each.name in model.slices and each.name not in family:
        raise NotAllowedError(f"slice {each.name} is another's")
    if each.parent not in family:
        raise NotAllowedError(f"slice {each.name}: expected a parent that is yours")
    _check_queue(each, model.slices[each.name].limits if each.name in model.slices else Limits())
    if each.ssids:
        raise NotAllowedError(f"slice {each.name}: SSIDs are the operator's to give")


def _check_controllers(model: SliceModel, each: Slice, family: frozenset[str], allowed: Collection[Network]) -> None:
    """New controllers only where the operator allows them, and none that is another's: it would hear us as a switch."""
    before = model.slices[each.name].controllers if each.name in family & model.slices.keys() else ()
    others = {_place(c) for other in model.slices.values() if other.name not in family for c in other.controllers}
    for controller in each.controllers:
        if controller in before:
            continue
        address, _ = _place(controller)
        if isinstance(address, str) or not any(address in network for network in allowed):
            networks = ", ".join(map(str, allowed)) or "none"
            raise NotAllowedError(
                f"slice {each.name}: {controller} is at no address where owners may have controllers: {networks}"
            )
        if _place(controller) in others:
            raise NotAllowedError(f"slice {each.name}: {controller} is another's")


def _place(controller: Controller) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address | str, int]:
    """Equal for two ways to write one address."""
    try:
        return ipaddress.ip_address(controller.host), controller.port
    except ValueError:
        return controller.host, controller.port
