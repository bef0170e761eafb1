"""What a request to change slices means: which slices are put and removed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.rest.contract import ForbiddenError, NotFoundError
from hyroads.slices import owners
from hyroads.slices.delegation import default_limits
from hyroads.slices.model import HIGHEST_PRIORITY, Slice, SliceModel
from hyroads.slices.owners import Asker
from hyroads.slices.slicefile import parse, parse_slice, slice_document


@dataclass(frozen=True)
class Edit:
    """Slices to add or replace and names to remove, or a whole model."""

    put: tuple[Slice, ...] = ()
    remove: tuple[str, ...] = ()
    model: SliceModel | None = None


def edit(model: SliceModel, asker: Asker, method: str, path: tuple[str, ...], document: Any) -> Edit:
    """``path`` is that below ``/slices``; ConfigError names the place in the document that is wrong."""
    if not path:
        return Edit(model=parse(document, "slices"))
    name = path[0]
    if (method, len(path)) == ("PUT", 1):
        return Edit((_declared(model, asker, name, document),))
    old = model.slices.get(name)
    if old is None:
        raise NotFoundError(f"there is no slice {name[:40]!a}")
    if name not in owners.visible(model, asker):
        raise ForbiddenError(f"slice {name} is another's")
    if (method, len(path)) == ("DELETE", 1):
        return Edit(remove=(name,))
    return Edit((_changed(model, old, method, path[1:], document),))


def _declared(model: SliceModel, asker: Asker, name: str, document: Any) -> Slice:
    """A slice that is given whole."""
    document = {"name": name, **document}
    if document["name"] != name:
        raise ConfigError("slice", "name", "expected the name of the path")
    own = sorted(asker.slices)
    # Where an owner has one slice to give out of, it need not say which.
    if not asker.operator and name not in asker.slices and "parent" not in document and len(own) == 1:
        document["parent"] = own[0]
    parent = model.slices.get(str(document.get("parent", "")))
    return parse_slice(document if parent is None else _as_child(document, parent), "slice")


def _as_child(document: Mapping[str, Any], parent: Slice) -> dict[str, Any]:
    """With what a child has that is not said: a quarter of its parent's limits, rules just above its parent's."""
    limits = slice_document(Slice("", limits=default_limits(parent)))["limits"]
    given = document.get("limits", {})
    document = {**document, "limits": {**limits, **given} if isinstance(given, Mapping) else given}
    if isinstance(document.get("flowspace"), list):
        document["flowspace"] = [_above(rule, parent) for rule in document["flowspace"]]
    return document


def _above(rule: Any, parent: Slice) -> Any:
    if not isinstance(rule, Mapping) or "priority" in rule or not parent.flowspace:
        return rule
    return {**rule, "priority": min(HIGHEST_PRIORITY, 1 + max(each.priority for each in parent.flowspace))}


def _changed(model: SliceModel, old: Slice, method: str, path: tuple[str, ...], document: Any) -> Slice:
    """A slice of which something is changed: itself, its flowspace, one rule of it."""
    now = slice_document(old)
    parent = model.slices.get(old.parent)
    if not path:
        limits = {**now["limits"], **document.get("limits", {})}
        now |= {**document, "limits": limits}
    elif method == "PUT":
        now["flowspace"] = document["flowspace"]
    elif method == "POST":
        now["flowspace"] = [*now["flowspace"], document]
    else:
        now["flowspace"] = _without(now["flowspace"], old.name, path[1])
    if parent is not None:
        now["flowspace"] = [_above(rule, parent) for rule in now["flowspace"]]
    return parse_slice(now, "slice")


def _without(rules: list[Any], name: str, rule: str) -> list[Any]:
    wanted = {number for number, each in enumerate(rules) if rule in {str(number), each.get("name")}}
    if not wanted:
        raise NotFoundError(f"slice {name} has no flowspace rule {rule[:40]!a}")
    return [each for number, each in enumerate(rules) if number not in wanted]
