"""What the REST API offers to users (docs/reference/slicer.md): to join slices with their own traffic, and to leave.

A user sees the slices that are open for the user, and nothing of other users.
"""

from __future__ import annotations

from typing import Any

from hyroads.rest.contract import Document, ForbiddenError, NotFoundError
from hyroads.slices.core import delegation
from hyroads.slices.core.delegation import Principal
from hyroads.slices.core.match import ALL
from hyroads.slices.core.model import Slice, SliceModel
from hyroads.slices.core.opt_in import TakenError, joined, left, member, open_to
from hyroads.slices.core.slicefile import match_documents, parse_matches
from hyroads.slices.core.users import ME, User

from .slicer import Seen


def joined_or_left(principal: Principal, method: str, path: tuple[str, str], document: Any, seen: Seen) -> SliceModel:
    """The slices of now with a user in one more or one less; ``path`` names the slice and the user."""
    name, user = path
    each, who = joining(seen, principal, name, user)
    if method == "DELETE":
        if member(each, who.name) is None:
            raise NotFoundError(f"user {who.name} has not joined slice {name}")
        return left(seen.model, name, who.name)
    if not (principal.user or principal.operator):
        raise ForbiddenError("only the user, or the operator, adds a user's traffic to a slice")
    asked = parse_matches(document["match"], "opt-in") if "match" in (document or {}) else (ALL,)
    try:
        return joined(seen.model, name, who, asked)
    except TakenError as error:
        if not principal.user:
            raise
        # Of whom else the traffic would be is nothing that users are told.
        mine = [other for other in seen.model.slices.values() if other is not each and member(other, who.name)]
        text = "".join(f"; you have joined {other.name}" for other in mine[:3])
        raise TakenError(f"slice {name}: some of your traffic is another slice's already{text}") from error


def joining(seen: Seen, principal: Principal, name: str, user: str) -> tuple[Slice, User]:
    """The slice and the user of a request, if both are there and the principal may know."""
    user = principal.user if principal.user and user == ME else user
    if principal.user and user != principal.user:
        raise ForbiddenError("expected your own name, or me")
    each, who = seen.model.slices.get(name), seen.users.get(user)
    hidden = principal.user and each is not None and not open_to(each, user)
    if each is None or hidden:
        raise NotFoundError(f"there is no slice {name[:40]!a} that is open for {'you' if principal.user else 'users'}")
    if not principal.user and name not in delegation.visible(seen.model, principal):
        raise ForbiddenError(f"slice {name} is another's")
    if who is None:
        raise NotFoundError(f"there is no user {user[:40]!a}")
    return each, who


def opt_in_document(each: Slice, user: User) -> Document:
    """What a user has brought into a slice, or could."""
    found, policy = member(each, user.name), each.opt_in
    rules = found.rules if found is not None else ()
    return {
        "slice": each.name,
        "user": user.name,
        "joined": found is not None,
        "open": policy is not None and policy.open,
        "takes": match_documents(policy.matches) if policy is not None else [],
        "match": [document for rule in rules for document in match_documents(rule.matches)],
    }
