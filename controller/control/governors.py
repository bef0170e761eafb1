"""Several governors as one: each decides the flows of its own policies (docs/explanation/live.md, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hyroads.controller.control.governor import Fixed, Governor, SlotView
from hyroads.controller.core.infer.change import Change


class Governors:
    """A :class:`Governor` made of others by name; where two name the same flow, the first of them decides."""

    def __init__(self, named: Mapping[str, Governor]) -> None:
        self._named = dict(named)

    def decide(self, view: SlotView) -> Mapping[str, Fixed]:
        """What all say, each signed with its name."""
        fixed: dict[str, Fixed] = {}
        for name, governor in self._named.items():
            for flow, rates in governor.decide(view).items():
                fixed.setdefault(flow, replace(rates, by=name))
        return fixed

    def alerted(self, changes: tuple[Change, ...], now_s: float) -> None:
        """All hear of it."""
        for governor in self._named.values():
            governor.alerted(changes, now_s)

    def document(self, flow: str) -> dict[str, Any]:
        """Name -> what that governor knows of the flow, null where it has nothing to do with it."""
        return {name: governor.document(flow) for name, governor in self._named.items()}
