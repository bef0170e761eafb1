"""What an earlier controller left in the state file, made ready for this one; what no longer fits is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.control.handover import Confined, Key
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.services.place import Place
from hyroads.controller.numbering import Numbers
from hyroads.controller.services.declared_clients import places_from
from hyroads.controller.services.ncast_documents import KeptNCast, ncasts_from
from hyroads.controller.state import DeclaredFlow, Fabric
from hyroads.controller.state_store import Saved, Store, declared


@dataclass(frozen=True)
class Kept:
    """``confined`` is what was wanted of flows: the first plan shall be what the agents run, n-casts included."""

    flows: list[DeclaredFlow]
    numbers: Numbers
    confined: Mapping[Key, Confined]
    places: Mapping[str, Place | None]
    ncasts: list[KeptNCast]
    services: Mapping[str, Any]
    """What the other desks kept, by their names."""


def kept_in(store: Store, fabric: Fabric) -> tuple[Kept, list[ConfigError]]:
    """The content of the file, and what is left out of it."""
    saved, problems = store.load(fabric.network)
    kept, more = ready(saved, fabric)
    return kept, problems + more


def ready(saved: Saved, fabric: Fabric) -> tuple[Kept, list[ConfigError]]:
    """What was saved, on this network, and what is left out of it."""
    flows = declared(fabric.network, saved)
    specs = {flow.spec.id: flow.spec for flow in flows}
    ncasts, no_ncasts = ncasts_from(saved.services.get("ncasts"), fabric.network, specs)
    places, no_places = places_from(saved.services.get("places"), fabric)
    confined = {**saved.confined, **{ncast.key: ncast.confined for ncast in ncasts}}
    return Kept(flows, saved.numbers, confined, places, ncasts, saved.services), no_ncasts + no_places
