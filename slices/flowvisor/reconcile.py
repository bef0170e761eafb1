"""What FlowVisor has and what it shall have -> the steps between, carried out and checked by reading back. Pure.

New entries come before old ones go, so that a packet always belongs to someone; only a slice whose controller passes
to another slice goes first, because FlowVisor wants one address for each. FlowVisor 1.4 needs care:

- more than one entry in one ``add-flowspace`` kills its worker: each entry is a step of its own;
- an add brings entries back to life that were removed before: after each one the slice is told to be enabled, which
  makes it read its entries again;
- ``update-flowspace`` without a match widens the entry to everything: nothing is ever updated, a changed entry is
  another entry with another name;
- limits of slices can't be read back: a slice that is there is always told of them;
- two entries may have one name, and a removal takes both: a name that is there more than once is removed and added;
- entries of disabled slices are listed only on demand: without them an apply would add all of them once more;
- entries of disabled slices can't be removed, but go with the slice: a slice that is wanted is enabled first.

Time and the connection are arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Any, Protocol

from hyroads.controller.core import strict_json
from hyroads.controller.core.strict_json import JsonError

from .desired import Desired
from .entries import ADMIN, OURS, WRITE, FlowVisorError, FvRule, FvSlice, rules_of, shared

CONTACT = "hyroads@localhost"
"""FlowVisor wants to know whom to write to; nobody ever is, but it tells which slices are ours."""
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
class SeenSlice:
    """A slice that FlowVisor has."""

    host: str
    port: int
    enabled: bool
    ours: bool
    """Whether we made it, so that it may go when nobody wants it any more."""

    @property
    def controller(self) -> str:
        """As written in a file."""
        return f"tcp:{self.host}:{self.port}"


@dataclass(frozen=True)
class Observed:
    """What FlowVisor has: slices but its own, and flowspace entries."""

    slices: Mapping[str, SeenSlice]
    rules: Mapping[str, FvRule | None]
    """Our entries by name; None if one gives packets to several slices, which ours never do."""
    repeated: frozenset[str] = frozenset()
    """Names of ours that several entries have."""
    others: Mapping[str, tuple[FvRule, ...]] = field(default_factory=dict)
    """Entries that are not ours, by name."""

    def says(self, name: str, rule: FvRule) -> bool:
        """Whether there is one entry of this name, and it is this one."""
        return name not in self.repeated and self.rules.get(name) == rule

    def left(self, desired: Desired) -> list[str]:
        """Slices of ours, and slices with entries of ours, that are not wanted."""
        used = {rule.slice_name for rule in self.rules.values() if rule is not None}
        return sorted(
            name for name, each in self.slices.items() if name not in desired.slices and (each.ours or name in used)
        )


def steps(observed: Observed, desired: Desired) -> tuple[Step, ...]:
    """What to do, in order; slices that are not wanted go if they are ours or have entries of ours."""
    left = observed.left(desired)
    blocking = _blocking(observed, desired, left)
    missing = [rule for name, rule in desired.rules.items() if not observed.says(name, rule)]
    # An entry under one of our names that says something else must go first: a removal takes all of one name.
    clashing = sorted(rule.name for rule in missing if rule.name in observed.rules)
    found = _slices_removal(observed, blocking)
    # A slice that is there may still have the controller of one that is not.
    for known in (True, False):
        found += [
            _slice_step(s, known=known) for name, s in desired.slices.items() if (name in observed.slices) is known
        ]
    found += _removal(clashing)
    found += [Step(f"add {rule.name}", _ADD_RULE, [rule.document()], rule.slice_name) for rule in missing]
    found += _removal(
        sorted(
            name
            for name, rule in observed.rules.items()
            if name not in desired.rules and (rule is None or rule.slice_name not in left)
        )
    )
    found += _slices_removal(observed, [name for name in left if name not in blocking])
    return tuple(found)


def _blocking(observed: Observed, desired: Desired, left: list[str]) -> list[str]:
    """Slices that go and have the controller of one that comes: FlowVisor wants one address for each slice."""
    coming = {(each.host, each.port) for name, each in desired.slices.items() if name not in observed.slices}
    return [name for name in left if (observed.slices[name].host, observed.slices[name].port) in coming]


def _slices_removal(observed: Observed, names: list[str]) -> list[Step]:
    """Entries, then slices. Those of a disabled slice are not found, but go with it."""
    enabled = {name for name in names if observed.slices[name].enabled}
    rules = observed.rules.items()
    found = _removal(sorted(name for name, rule in rules if rule is not None and rule.slice_name in enabled))
    return found + [Step(f"remove slice {name}", "remove-slice", {"slice-name": name}) for name in names]


def _slice_step(each: FvSlice, *, known: bool) -> Step:
    limits = {
        "admin-contact": CONTACT, "flowmod-limit": each.flow_mod_limit, "rate-limit": each.messages_per_s,
        "admin-status": True,
    }  # fmt: skip
    if known:
        where = {"controller-host": each.host, "controller-port": each.port}
        return Step(f"set slice {each.name}", "update-slice", {"slice-name": each.name, **where, **limits})
    parameters = {
        "slice-name": each.name,
        "controller-url": f"tcp:{each.host}:{each.port}",
        # Who has a slice's password may change everything, so nobody gets to know it.
        "password": token_urlsafe(24),
        "drop-policy": "exact",
        "recv-lldp": True,
    }
    return Step(f"add slice {each.name}", "add-slice", {**parameters, **limits})


def differences(observed: Observed, desired: Desired) -> tuple[str, ...]:
    """In what FlowVisor is not as it shall be, in words; limits can't be seen."""
    found: list[str] = []
    for name, each in desired.slices.items():
        seen = observed.slices.get(name)
        if seen is None:
            found.append(f"slice {name} is missing")
            continue
        if (seen.host, seen.port) != (each.host, each.port):
            found.append(f"slice {name} has the controller {seen.controller} instead of tcp:{each.host}:{each.port}")
        if not seen.enabled:
            found.append(f"slice {name} is disabled")
    found += [f"slice {name} is left" for name in observed.left(desired)]
    found += [f"{name} is missing" for name in desired.rules if name not in observed.rules]
    for name, rule in observed.rules.items():
        if name not in desired.rules:
            found.append(f"{name} is left")
        elif name in observed.repeated:
            found.append(f"{name} is there more than once")
        elif rule != desired.rules[name]:
            found.append(f"{name} says something else")
    return tuple(found)


def disturbances(observed: Observed, desired: Desired) -> tuple[str, ...]:
    """Which entries of others concern packets of the wanted slices, in words; they are left alone."""
    wanted = tuple(desired.rules.values())
    entries = [
        (name, rule)
        for name, rules in observed.others.items()
        for rule in rules
        if rule.slice_name in observed.slices and observed.slices[rule.slice_name].enabled
    ]
    found: list[str] = []
    theirs = []
    for name, rule in entries:
        if rule.slice_name in desired.slices:
            found.append(f"entry {name} gives slice {rule.slice_name} what the file does not: {rule}")
        else:
            theirs.append((name, rule))
    above: dict[int, FvRule] = {}
    below: dict[int, FvRule] = {}
    for number, mine in shared([rule for _, rule in theirs], wanted):
        higher = theirs[number][1].priority >= wanted[mine].priority
        (above if higher else below).setdefault(number, wanted[mine])
    for number, (name, rule) in enumerate(theirs):
        what = f"entry {name} of slice {rule.slice_name} ({rule})"
        if number in above:
            found.append(f"{what} is above slice {above[number].slice_name} ({above[number]})")
        if number in below and rule.permission & WRITE:
            hit = below[number]
            found.append(f"{what} has write and shares packets with slice {hit.slice_name} ({hit})")
    return tuple(found)


def idle(observed: Observed, desired: Desired) -> tuple[str, ...]:
    """Slices of others that have no flowspace, in words."""
    used = {rule.slice_name for rules in observed.others.values() for rule in rules}
    known = used | desired.slices.keys() | set(observed.left(desired))
    return tuple(
        f"slice {name} is not in the file and has no flowspace" for name in sorted(observed.slices.keys() - known)
    )


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
    # What it would save says of each slice what the lists leave out, also of those that have never been connected.
    slices = _slices(connection.call("save-config"))
    # Else it hides the entries of disabled slices.
    flowspace = connection.call("list-flowspace", {"show-disabled": True})
    if not isinstance(flowspace, list):
        raise FlowVisorError("FlowVisor: a list of flowspace entries was expected")
    entries: dict[object, tuple[str, tuple[FvRule, ...]]] = {}
    for number, entry in enumerate(flowspace):
        if not isinstance(entry, Mapping):
            raise FlowVisorError("FlowVisor: a flowspace entry was expected")
        # An entry of several slices is listed once for each.
        key = str(entry["id"]) if "id" in entry else number
        entries[key] = str(entry.get("name", "")), rules_of(entry)
    times = Counter(name for name, _ in entries.values())
    rules: dict[str, FvRule | None] = {}
    others: dict[str, tuple[FvRule, ...]] = {}
    for name, each in entries.values():
        if name.startswith(OURS):
            rules[name] = each[0] if len(each) == 1 else None
        else:
            others[name] = others.get(name, ()) + each
    return Observed(slices, rules, frozenset(name for name in rules if times[name] > 1), others)


def _slices(text: object) -> dict[str, SeenSlice]:
    """The slices in FlowVisor's configuration, but its own one."""
    try:
        document = strict_json.parse(str(text))
        listed = [each for each in document["Slice"] if each["name"] != ADMIN]
        return {
            str(each["name"]): SeenSlice(
                str(each["controller_hostname"]),
                int(each["controller_port"]),
                bool(each["admin_status"]),
                each["contact_email"] == CONTACT,
            )
            for each in listed
        }
    except (JsonError, KeyError, TypeError, ValueError) as error:
        raise FlowVisorError(f"FlowVisor: the slices in its configuration can't be read: {error}") from error


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
