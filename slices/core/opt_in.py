"""Users who join slices with their own traffic, and take it back (docs/reference/slicer.md). Pure.

A slice with an :class:`OptIn` is open to users. A user's own traffic is what the settings say of the user
(``users.User``): nothing in a request names an address. Of it the slice gets what the slice takes and the user gives.
So the rules of a user are intersections, and contain nothing of anybody else's.

A packet has two ends, and each may be a user who has joined another slice. So the rules of a user lie on five levels,
highest first: from a MAC address, from an IP address, to a MAC address, to an IP address, and neighbour discovery for
an address. No two users share a header on one level, because no two have an address in common. So where two slices are
open at the same priority, a packet between two users is in the slice of the one who sends it.

Users are in nobody's way. What the operator and owners declare is checked without users first; users who then do not
fit any more are taken out (:func:`seated`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .change import check, difference_of
from .errors import ConflictError
from .match import TernaryMatch, completed, intersection
from .model import PRODUCTION, FlowspaceRule, Member, OptIn, Slice, SliceModel
from .slicefile import match_documents, parse_matches
from .users import User

MAX_MATCHES_OF_USER = 256
FROM_MAC, FROM_IP, TO_MAC, TO_IP, DISCOVERY = 4, 3, 2, 1, 0
"""What a level adds to the priority of the slice's :class:`OptIn`."""
_SOLICITATION, _ADVERTISEMENT = 135, 136


class TakenError(ConflictError):
    """Some of a user's traffic is another slice's already; the text says whose."""


@dataclass(frozen=True, slots=True)
class Request:
    """A user who wants to be in a slice, with what belongs to one of these matches."""

    user: str
    asked: tuple[TernaryMatch, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A user who could not stay in a slice."""

    slice: str
    user: str
    reason: str


# -- one user in one slice --------------------------------------------------------------------------------------------


def member_of(user: User, policy: OptIn, asked: tuple[TernaryMatch, ...]) -> Member:
    """The user in a slice; :class:`ConflictError` if nothing, or too much, of the user's traffic would be in it."""
    levels: dict[int, dict[TernaryMatch, None]] = {}
    for level, own in _own(user):
        for match in _common(own, policy.matches, asked):
            levels.setdefault(level, {})[match] = None
    count = sum(map(len, levels.values()))
    if not count:
        raise ConflictError("nothing of the user's own traffic belongs to what the slice takes and the user gives")
    if count > MAX_MATCHES_OF_USER:
        raise ConflictError(f"this makes {count} matches, expected at most {MAX_MATCHES_OF_USER}")
    rules = tuple(
        FlowspaceRule(tuple(matches), policy.priority + level, policy.switches, policy.ports)
        for level, matches in sorted(levels.items(), reverse=True)
    )
    return Member(user.name, asked, rules)


def _own(user: User) -> Iterator[tuple[int, TernaryMatch]]:
    """The user's own traffic, by level."""
    fields: list[tuple[int, dict[str, int | tuple[int, int]]]] = []
    for mac in user.macs:
        fields += [(FROM_MAC, {"eth_src": mac}), (TO_MAC, {"eth_dst": mac})]
    for address in user.addresses:
        value = int(address)
        if address.version == 4:
            fields += [(FROM_IP, {"ipv4_src": value}), (TO_IP, {"ipv4_dst": value})]
            fields += [(FROM_IP, {"arp_spa": value}), (TO_IP, {"arp_tpa": value})]
            continue
        fields += [(FROM_IP, {"ipv6_src": value}), (TO_IP, {"ipv6_dst": value})]
        for kind in (_SOLICITATION, _ADVERTISEMENT):
            fields.append((DISCOVERY, {"icmpv6_type": kind, "ipv6_nd_target": value}))
    for level, each in fields:
        for match in completed(each):
            yield level, match


def _common(
    own: TernaryMatch, taken: Iterable[TernaryMatch], asked: tuple[TernaryMatch, ...]
) -> Iterator[TernaryMatch]:
    for match in taken:
        part = intersection(own, match)
        for given in asked if part is not None else ():
            both = intersection(part, given) if part is not None else None
            if both is not None:
                yield both


# -- changes of a model -----------------------------------------------------------------------------------------------


def open_to(each: Slice, user: str) -> bool:
    """Whether a user may know of a slice that it is, or was, open: may be in it, or is."""
    return each.opt_in is not None and (each.opt_in.admits(user) or member(each, user) is not None)


def member(each: Slice, user: str) -> Member | None:
    """A user of a slice, if the user has joined it."""
    return next((one for one in each.members if one.user == user), None)


def joined(model: SliceModel, name: str, user: User, asked: tuple[TernaryMatch, ...]) -> SliceModel:
    """The model with a user in a slice; :class:`ConflictError` if the slice is closed or full or takes nothing of the
    user's, :class:`TakenError` if it is another slice's already.

    Who is in it already may give more or less, also when it is closed.
    """
    each = model.slices[name]
    policy, already = each.opt_in, member(each, user.name)
    if policy is None or not policy.admits(user.name) or (not policy.open and already is None):
        raise ConflictError(f"slice {name} is not open for user {user.name}")
    if already is None and len(each.members) >= policy.most_users:
        raise ConflictError(f"slice {name} has {len(each.members)} users already: expected at most {policy.most_users}")
    new = member_of(user, policy, asked)
    others = [one for one in each.members if one.user != user.name]
    changed = _with(model, {name: replace(each, members=_sorted([*others, new]))})
    try:
        check(changed, [name])
    except ConflictError as error:
        raise TakenError(str(error)) from error
    return changed


def left(model: SliceModel, name: str, user: str) -> SliceModel:
    """The model without a user in a slice. It always fits: children have nothing of their parents' users."""
    each = model.slices[name]
    return _with(model, {name: replace(each, members=tuple(one for one in each.members if one.user != user))})


def _with(model: SliceModel, slices: Mapping[str, Slice]) -> SliceModel:
    return SliceModel({**model.slices, **slices})


def _sorted(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda one: one.user))


def member_changes(before: SliceModel, after: SliceModel, names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(``added``, ``changed`` or ``removed``, slice, user) of the named slices."""
    for name in sorted(names):
        old = {one.user: one for one in before.slices[name].members} if name in before.slices else {}
        new = {one.user: one for one in after.slices[name].members} if name in after.slices else {}
        for user in sorted(old.keys() | new.keys()):
            if old.get(user) != new.get(user):
                yield "added" if user not in old else "removed" if user not in new else "changed", name, user


def requests_of(model: SliceModel) -> dict[str, tuple[Request, ...]]:
    """Who is in which slice, by its name."""
    return {
        name: tuple(Request(one.user, one.asked) for one in each.members)
        for name, each in model.slices.items()
        if each.members
    }


def seated(
    declared: SliceModel,
    wanted: Mapping[str, Iterable[Request]],
    users: Mapping[str, User],
    before: SliceModel | None = None,
) -> tuple[SliceModel, tuple[Dropped, ...]]:
    """A checked model without users, with as many of the wanted ones as fit it, and the others.

    ``before`` is a model from which slices are taken that would be the same, so that little is compared.
    """
    dropped: list[Dropped] = []
    seats: list[tuple[str, Member]] = []
    for name, requests in wanted.items():
        each = declared.slices.get(name)
        for request in requests:
            try:
                seats.append((name, _seat(each, users.get(request.user), request)))
            except ConflictError as error:
                dropped.append(Dropped(name, request.user, str(error)))
    if not seats:
        return declared, tuple(dropped)
    whole = _reused(_with_members(declared, seats), before)
    names = whole.slices.keys() if before is None else _differing(before, whole)
    try:
        check(whole, names)
    except ConflictError:
        fitting, more = _fitting(declared, seats)
        return _reused(fitting, before), (*dropped, *more)
    return whole, tuple(dropped)


def _differing(before: SliceModel, after: SliceModel) -> frozenset[str]:
    change = difference_of(before, after)
    return change.added | change.changed


def _seat(each: Slice | None, user: User | None, request: Request) -> Member:
    if each is None or each.opt_in is None or each.name == PRODUCTION:
        raise ConflictError("the slice is not open for users any more")
    if user is None or not each.opt_in.admits(request.user):
        raise ConflictError("the slice is not open for this user any more")
    return member_of(user, each.opt_in, request.asked)


def _with_members(declared: SliceModel, seats: Iterable[tuple[str, Member]]) -> SliceModel:
    members: dict[str, list[Member]] = {}
    for name, one in seats:
        members.setdefault(name, []).append(one)
    slices = {name: replace(declared.slices[name], members=_sorted(each)) for name, each in members.items()}
    return _with(declared, slices)


def _reused(model: SliceModel, before: SliceModel | None) -> SliceModel:
    """Equal slices as the same objects, with all that was computed of them."""
    old = before.slices if before is not None else {}
    return SliceModel({name: old[name] if old.get(name) == each else each for name, each in model.slices.items()})


def _fitting(declared: SliceModel, seats: list[tuple[str, Member]]) -> tuple[SliceModel, list[Dropped]]:
    """Add users in halves: whole halves where they fit, down to the single one who does not."""
    dropped: list[Dropped] = []
    taken: list[tuple[str, Member]] = []
    model = declared
    waiting = [seats]
    while waiting:
        some = waiting.pop()
        wider = _with_members(declared, [*taken, *some])
        try:
            check(wider, {name for name, _ in some})
        except ConflictError as error:
            if len(some) == 1:
                [(name, one)] = some
                dropped.append(Dropped(name, one.user, str(error)))
            else:
                middle = len(some) // 2
                waiting += [some[middle:], some[:middle]]
        else:
            taken += some
            model = wider
    return model, dropped


# -- documents --------------------------------------------------------------------------------------------------------


def documents(model: SliceModel) -> list[dict[str, Any]]:
    """Who is in which slice, for the state file."""
    return [
        {"slice": name, "user": one.user, "match": match_documents(one.asked)}
        for name, each in model.slices.items()
        for one in each.members
    ]


def read_documents(found: Iterable[Mapping[str, Any]], document_name: str) -> dict[str, tuple[Request, ...]]:
    """The requests of ``documents``; raises what wrong values raise, or :class:`ConfigError`."""
    requests: dict[str, tuple[Request, ...]] = {}
    for each in found:
        name = str(each["slice"])
        one = Request(str(each["user"]), parse_matches(each["match"], document_name))
        requests[name] = (*requests.get(name, ()), one)
    return requests
