"""What the owner of a slice may see and change (docs/explanation/slicing.md, section 13). Pure.

The operator may everything. An owner, told by the hash of a token, sees its own slices and those given out of them, and
of all others the names. It chooses controllers in the networks that the operator allows, lowers limits, and, with the
permission ``delegate``, has children of its slices; whether they lie in their parents: ``delegation``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from hyroads.slices.errors import NotAllowedError
from hyroads.slices.model import Controller, Limits, Slice, SliceModel

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: an operator, who sees all and maybe changes all, or the owner of some slices."""

    operator: bool = False
    sees_all: bool = False
    slices: frozenset[str] = frozenset()
    """Those that a token is the owner's of."""


OPERATOR = Asker(operator=True, sees_all=True)

_OPERATORS = ("queue", "rate_out_mbps", "rate_out_least_mbps", "dscp")


def owned(model: SliceModel, token_sha256: str) -> frozenset[str]:
    """The slices that a token with this hash is the owner's of; every slice is compared with it."""
    return frozenset([each.name for each in model.slices.values() if each.owned_by(token_sha256)])


def visible(model: SliceModel, asker: Asker) -> frozenset[str]:
    """The slices that somebody sees whole."""
    if asker.sees_all:
        return frozenset(model.slices)
    return frozenset(name for own in asker.slices for name in model.family(own))


def given_out(model: SliceModel, asker: Asker) -> frozenset[str]:
    """The slices that an owner has given out, and may change whole."""
    return frozenset(name for own in asker.slices for name in model.family(own) - {own})


def check(
    model: SliceModel, asker: Asker, put: Iterable[Slice], remove: Iterable[str], allowed: Collection[Network]
) -> None:
    """:class:`NotAllowedError` if somebody may not add, replace or remove these slices."""
    if asker.operator:
        return
    mine = given_out(model, asker)
    for name in remove:
        if name not in mine:
            raise NotAllowedError(f"slice {name}: only the operator, or the owner of its parent, removes it")
    for each in put:
        _check_controllers(model, each, asker.slices | mine, allowed)
        if each.name in asker.slices and each.name not in mine:
            _check_own(model.slices[each.name], each)
        else:
            _check_child(model, each, asker.slices | mine)


def _check_own(before: Slice, after: Slice) -> None:
    lowered = replace(before, controllers=after.controllers, limits=after.limits)
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
        if not _lies_in(controller, allowed):
            networks = ", ".join(map(str, allowed)) or "none"
            raise NotAllowedError(
                f"slice {each.name}: {controller} is at no address where owners may have controllers: {networks}"
            )
        if _place(controller) in others:
            raise NotAllowedError(f"slice {each.name}: {controller} is another's")


def _lies_in(controller: Controller, allowed: Collection[Network]) -> bool:
    address, _ = _place(controller)
    return not isinstance(address, str) and any(address in network for network in allowed)


def _place(controller: Controller) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address | str, int]:
    """Equal for two ways to write one address."""
    try:
        return ipaddress.ip_address(controller.host), controller.port
    except ValueError:
        return controller.host, controller.port
