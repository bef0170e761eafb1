"""Carries out the steps of ``reconcile`` and checks by reading back. Time and the connection are arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Any, Protocol

from hyroads.slices.flowvisor.desired import Desired
from hyroads.slices.flowvisor.entries import FlowVisorError, FvSlice
from hyroads.slices.flowvisor.reconcile import ADDRESS, Action, Observed, Step, differences, observed_of, steps

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
    """What FlowVisor has. An empty object asks for all entries: without parameters it fails inside."""
    return observed_of(connection.call("list-slices"), connection.call("list-flowspace", {}))


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
            _CARRY_OUT[step.action](connection, step, clock)
        except FlowVisorError as error:
            raise FlowVisorError(f"step {number} of {len(todo)} ({step.what}): {error}", error.code) from error
    left = differences(observe(connection), desired)
    if left:
        raise FlowVisorError(f"FlowVisor confirmed every step, and yet {'; '.join(left[:5])}")
    return todo


def _limits(each: FvSlice) -> dict[str, Any]:
    return {"flowmod-limit": each.flow_mod_limit, "rate-limit": each.messages_per_s, "admin-status": True}


def _add_slice(connection: Connection, step: Step, clock: Clock) -> None:
    each = _fv_slice(step)
    # Who has a slice's password may change everything, so nobody gets to know it.
    parameters = {
        "slice-name": each.name,
        "controller-url": f"tcp:{each.host}:{each.port}",
        "admin-contact": ADDRESS,
        "password": token_urlsafe(24),
        "drop-policy": "exact",
        "recv-lldp": True,
        **_limits(each),
    }
    _true(connection, "add-slice", parameters)


def _update_slice(connection: Connection, step: Step, clock: Clock) -> None:
    each = _fv_slice(step)
    where = {"controller-host": each.host, "controller-port": each.port}
    _true(connection, "update-slice", {"slice-name": each.name, **where, **_limits(each)})


def _remove_slice(connection: Connection, step: Step, clock: Clock) -> None:
    _true(connection, "remove-slice", {"slice-name": step.slice_name})


def _remove_rules(connection: Connection, step: Step, clock: Clock) -> None:
    _true(connection, "remove-flowspace", list(step.names))


def _add_rule(connection: Connection, step: Step, clock: Clock) -> None:
    if step.rule is None:
        raise FlowVisorError("a step without its entry")
    request = connection.call("add-flowspace", [step.rule.document()])
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


def _fv_slice(step: Step) -> FvSlice:
    if step.fv_slice is None:
        raise FlowVisorError("a step without its slice")
    return step.fv_slice


_CARRY_OUT: dict[Action, Callable[[Connection, Step, Clock], None]] = {
    Action.ADD_SLICE: _add_slice,
    Action.UPDATE_SLICE: _update_slice,
    Action.REMOVE_SLICE: _remove_slice,
    Action.ADD_RULE: _add_rule,
    Action.REMOVE_RULES: _remove_rules,
}
