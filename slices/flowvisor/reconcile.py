"""What FlowVisor has and what it shall have -> the steps between. Pure.

New entries come before old ones go, so that a packet always belongs to someone. FlowVisor 1.4 needs care:

- more than one entry in one ``add-flowspace`` kills its worker: each entry is a step of its own;
- an add brings entries back to life that were removed before: after each one the slice is told to be enabled, which
  makes it read its entries again;
- ``update-flowspace`` without a match widens the entry to everything: nothing is ever updated, a changed entry is
  another entry with another name;
- limits of slices can't be read back: a slice that is there is always told of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hyroads.slices.flowvisor.desired import Desired
from hyroads.slices.flowvisor.entries import ADMIN, OURS, FlowVisorError, FvRule, FvSlice, rule_of

ADDRESS = "noc@localhost"
"""FlowVisor wants to know whom to write to; nobody ever is."""


class Action(Enum):
    """Methods of the API that change something."""

    ADD_SLICE = "add-slice"
    UPDATE_SLICE = "update-slice"
    REMOVE_SLICE = "remove-slice"
    ADD_RULE = "add-flowspace"
    REMOVE_RULES = "remove-flowspace"


@dataclass(frozen=True)
class Step:
    """One request; ``slice_name`` is the slice it is about, ``what`` says it in words."""

    action: Action
    what: str
    slice_name: str = ""
    rule: FvRule | None = None
    fv_slice: FvSlice | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observed:
    """What FlowVisor has: slices but its own, and our entries by name."""

    slices: frozenset[str]
    rules: Mapping[str, FvRule | None]


def observed_of(slices: Any, flowspace: Any) -> Observed:
    """From the answers to ``list-slices`` and ``list-flowspace``; :class:`FlowVisorError` if they can't be read."""
    if not isinstance(slices, list) or not isinstance(flowspace, list):
        raise FlowVisorError("FlowVisor: lists of slices and of flowspace entries were expected")
    names = frozenset(str(each.get("slice-name")) for each in slices if isinstance(each, Mapping)) - {ADMIN}
    rules: dict[str, FvRule | None] = {}
    for entry in flowspace:
        if not isinstance(entry, Mapping):
            raise FlowVisorError("FlowVisor: a flowspace entry was expected")
        name = str(entry.get("name", ""))
        if name.startswith(OURS):
            rules[name] = rule_of(entry)
    return Observed(names, rules)


def steps(observed: Observed, desired: Desired) -> tuple[Step, ...]:
    """What to do, in order; slices that are not wanted go if they have entries of ours."""
    ours = {rule.slice_name for rule in observed.rules.values() if rule is not None}
    removable = ours & observed.slices
    wrong = sorted(name for name, rule in observed.rules.items() if rule is None or desired.rules.get(name) != rule)
    missing = [rule for name, rule in desired.rules.items() if observed.rules.get(name) != rule]
    # An entry under one of our names that says something else must go first: two can't have one name.
    clashing = [name for name in wrong if name in desired.rules]
    found: list[Step] = []
    for name, each in desired.slices.items():
        known = name in observed.slices
        action = Action.UPDATE_SLICE if known else Action.ADD_SLICE
        found.append(Step(action, f"{'set' if known else 'add'} slice {name}", name, fv_slice=each))
    found += _removal(clashing)
    found += [Step(Action.ADD_RULE, f"add {rule.name}", rule.slice_name, rule=rule) for rule in missing]
    found += _removal([name for name in wrong if name not in desired.rules])
    for name in sorted(removable - desired.slices.keys()):
        found.append(Step(Action.REMOVE_SLICE, f"remove slice {name}", name))
    return tuple(found)


def differences(observed: Observed, desired: Desired) -> tuple[str, ...]:
    """In what FlowVisor is not as it shall be, in words; limits can't be seen."""
    lacking = [f"slice {name} is missing" for name in desired.slices if name not in observed.slices]
    lacking += [f"{name} is missing" for name in desired.rules if name not in observed.rules]
    wrong = [
        f"{n} says something else" for n, r in observed.rules.items() if n in desired.rules and desired.rules[n] != r
    ]
    left = [f"{name} is left" for name in observed.rules if name not in desired.rules]
    return (*lacking, *wrong, *left)


def _removal(names: list[str]) -> list[Step]:
    return [Step(Action.REMOVE_RULES, f"remove {name}", names=(name,)) for name in names]
