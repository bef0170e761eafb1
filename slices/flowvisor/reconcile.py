"""What FlowVisor has and what it shall have -> the steps between, carried out and checked by reading back. Pure.

New entries come before old ones go, so that a packet always belongs to someone. FlowVisor 1.4 needs care:

- more than one entry in one ``add-flowspace`` kills its worker: each entry is a step of its own;
- an add brings entries back to life that were removed before: after each one the slice is told to be enabled, which
  makes it read its entries again;
- ``update-flowspace`` without a match widens the entry to everything: nothing is ever updated, a changed entry is
  another entry with another name;
- limits of slices can't be read back: a slice that is there is always told of them.

Time and the connection are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Any, Protocol

from .desired import Desired
from .entries import ADMIN, OURS, FlowVisorError, FvRule, FvSlice, rule_of

ADDRESS = "noc@localhost"
"""FlowVisor wants to know whom to write to; nobody ever is."""
_ADD_RULE = "add-flowspace"


@dataclass(frozen=True)
class Step:
    """One request: a method of the API with its parameters; ``what`` says it in words."""

    what: str
    method: str
    parameters: Any = field(repr=False)
    slice_name: str = ""
    """Whose entry is added."""


@dataclass(frozen=True)
class Observed:
    """What FlowVisor has: slices but its own, and our entries by name."""

    slices: frozenset[str]
    rules: Mapping[str, FvRule | None]


def steps(observed: Observed, desired: Desired) -> tuple[Step, ...]:
    """What to do, in order; slices that are not wanted go if they have entries of ours."""
    ours = {rule.slice_name for rule in observed.rules.values() if rule is not None}
    removable = ours & observed.slices
    wrong = sorted(name for name, rule in observed.rules.items() if rule is None or desired.rules.get(name) != rule)
    missing = [rule for name, rule in desired.rules.items() if observed.rules.get(name) != rule]
    # An entry under one of our names that says something else must go first: two can't have one name.
    clashing = [name for name in wrong if name in desired.rules]
    found: list[Step] = []
    found += [_slice_step(each, known=name in observed.slices) for name, each in desired.slices.items()]
    found += _removal(clashing)
    found += [Step(f"add {rule.name}", _ADD_RULE, [rule.document()], rule.slice_name) for rule in missing]
    found += _removal([name for name in wrong if name not in desired.rules])
    for name in sorted(removable - desired.slices.keys()):
        found.append(Step(f"remove slice {name}", "remove-slice", {"slice-name": name}))
    return tuple(found)


def _slice_step(each: FvSlice, *, known: bool) -> Step:
    limits = {"flowmod-limit": each.flow_mod_limit, "rate-limit": each.messages_per_s, "admin-status": True}
    if known:
        where = {"controller-host": each.host, "controller-port": each.port}
        return Step(f"set slice {each.name}", "update-slice", {"slice-name": each.name, **where, **limits})
    parameters = {
        "slice-name": each.name,
        "controller-url": f"tcp:{each.host}:{each.port}",
        "admin-contact": ADDRESS,
        # Who has a slice's password may change everything, so nobody gets to know it.
        "password": token_urlsafe(24),
        "drop-policy": "exact",
        "recv-lldp": True,
    }
    return Step(f"add slice {each.name}", "add-slice", {**parameters, **limits})


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
    return [Step(f"remove {name}", "remove-flowspace", [name]) for name in names]


ADDED_WITHIN_S = 20.0
FIRST_POLL_S, LONGEST_POLL_S = 0.02, 0.5


class Connection(Protocol):
    """What is needed of ``client.Client``."""

    def call(self, method: str, parameters: Any = None) -> Any:
        """The result of a method, or :class:`FlowVisorError`."""


@dataclass(frozen=True)
class Clock:
    """``now()`` in seconds, ``sleep(seconds)``."""

    now: Callable[[], float]
    sleep: Callable[[float], None]


def observe(connection: Connection) -> Observed:
    """What FlowVisor has; :class:`FlowVisorError` if that can't be read."""
    # An empty object asks for all entries: without parameters it fails inside.
    slices, flowspace = connection.call("list-slices"), connection.call("list-flowspace", {})
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


def reconcile(
    connection: Connection,
    desired: Desired,
    clock: Clock,
    progress: Callable[[int, int, Step], None] = lambda number, of, step: None,
) -> tuple[Step, ...]:
    """Brings FlowVisor to what is desired and returns what was done.

    :class:`FlowVisorError` names the step that failed; what was done before it stays, and doing it all again goes on
    from there.
    """
    todo = steps(observe(connection), desired)
    for number, step in enumerate(todo, 1):
        progress(number, len(todo), step)
        try:
            if step.method == _ADD_RULE:
                _add_rule(connection, step, clock)
            else:
                _true(connection, step.method, step.parameters)
        except FlowVisorError as error:
            raise FlowVisorError(f"step {number} of {len(todo)} ({step.what}): {error}", error.code) from error
    left = differences(observe(connection), desired)
    if left:
        raise FlowVisorError(f"FlowVisor confirmed every step, and yet {'; '.join(left[:5])}")
    return todo


def _add_rule(connection: Connection, step: Step, clock: Clock) -> None:
    request = connection.call(step.method, step.parameters)
    until_s, poll_s = clock.now() + ADDED_WITHIN_S, FIRST_POLL_S
    while (status := connection.call("list-fs-status", {"fs-id": request})) == "PENDING":
        if clock.now() >= until_s:
            raise FlowVisorError(f"still pending after {ADDED_WITHIN_S:g} s: its worker has stopped, restart FlowVisor")
        clock.sleep(poll_s)
        poll_s = min(2 * poll_s, LONGEST_POLL_S)
    if status != "SUCCESS":
        raise FlowVisorError(f"refused: {str(status)[:300]}")
    _true(connection, "update-slice", {"slice-name": step.slice_name, "admin-status": True})


def _true(connection: Connection, method: str, parameters: Any) -> None:
    answer = connection.call(method, parameters)
    if answer is not True:
        raise FlowVisorError(f"{method}: expected true, got {str(answer)[:100]}")
