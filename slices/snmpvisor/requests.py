"""A slice's request -> requests to the device, and what of their answers the slice gets. Pure.

Each kind of request is a generator: it yields units for the device, is sent the device's answers, and returns the
answer for the slice. Numbers of requests are the caller's business. A device that answers nonsense, such as a next
variable that is not behind the last, gives :class:`SnmpError`; so no walk can go in circles.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from hyroads.slices.snmpvisor.ber import Oid, of_oid
from hyroads.slices.snmpvisor.errors import SnmpError
from hyroads.slices.snmpvisor.pdu import (
    END_OF_VIEW,
    NO_SUCH_INSTANCE,
    Binding,
    Kind,
    Pdu,
    Status,
)
from hyroads.slices.snmpvisor.view import Access, View

Exchange = Generator[Pdu, Pdu, Pdu]
MAX_STEPS = 2000
"""Requests to the device for one of a slice; a view that skips more than that is a mistake."""
MOST_ROWS = 50
ANSWER_BYTES = 16_000
MAX_ANSWER_BINDINGS = 1024


@dataclass(frozen=True)
class Scope:
    """A slice at a device: what it sees, variables with a value of its own, and who decides about shared ones.

    ``ask(oid, value)`` is None if the slice may set a shared variable to this, else why not.
    """

    view: View
    values: Mapping[Oid, bytes] = field(default_factory=dict)
    ask: Callable[[Oid, bytes], Status | None] = lambda oid, value: Status.NOT_WRITABLE

    def value(self, binding: Binding) -> Binding:
        """As the slice sees it."""
        own = self.values.get(binding.oid)
        return binding if own is None else Binding(binding.oid, own)


def serve(scope: Scope, pdu: Pdu) -> Exchange:
    """The exchange of a request; :class:`SnmpError` for a unit that is no request."""
    handler = _HANDLERS.get(pdu.kind)
    if handler is None:
        raise SnmpError(f"a unit {pdu.kind.name} is no request")
    return handler(scope, pdu)


def _get(scope: Scope, pdu: Pdu) -> Exchange:
    seen = [number for number, each in enumerate(pdu.bindings) if scope.view.access(each.oid)]
    found = [Binding(each.oid, NO_SUCH_INSTANCE) for each in pdu.bindings]
    if seen:
        answer = yield Pdu(Kind.GET, 0, tuple(Binding(pdu.bindings[number].oid) for number in seen))
        if answer.status:
            return _refused_as(pdu, answer, seen)
        _same_length(answer, len(seen))
        for number, binding in zip(seen, answer.bindings, strict=True):
            if binding.oid != pdu.bindings[number].oid:
                raise SnmpError("the device answered for another variable")
            found[number] = scope.value(binding)
    return pdu.response(tuple(found))


def _get_next(scope: Scope, pdu: Pdu) -> Exchange:
    found = [Binding(each.oid, END_OF_VIEW) for each in pdu.bindings]
    asked = {number: each.oid for number, each in enumerate(pdu.bindings)}
    for _ in range(MAX_STEPS):
        if not asked:
            return pdu.response(tuple(found))
        answer = yield Pdu(Kind.GET_NEXT, 0, tuple(Binding(oid) for oid in asked.values()))
        if answer.status:
            return _refused_as(pdu, answer, list(asked))
        _same_length(answer, len(asked))
        again: dict[int, Oid] = {}
        for (number, start), binding in zip(asked.items(), answer.bindings, strict=True):
            if binding.value == END_OF_VIEW:
                continue
            _behind(start, binding.oid)
            if scope.view.access(binding.oid):
                found[number] = scope.value(binding)
            elif (onward := scope.view.onward(binding.oid)) is not None:
                again[number] = onward
        asked = again
    raise SnmpError(f"nothing to be seen within {MAX_STEPS} requests to the device")


@dataclass
class _Column:
    """A repeated variable: where to go on (None: at the end), what the device told last, and what was found."""

    asked: Oid
    last: Oid
    start: Oid | None
    rows: list[Binding] = field(default_factory=list)


def _get_bulk(scope: Scope, pdu: Pdu) -> Exchange:
    once = max(0, min(pdu.status, len(pdu.bindings)))
    wanted = max(0, pdu.index)
    single: tuple[Binding, ...] = ()
    if once:
        answer = yield from _get_next(scope, Pdu(Kind.GET_NEXT, pdu.request_id, pdu.bindings[:once]))
        if answer.status:
            return answer
        single = answer.bindings
    columns = [_Column(each.oid, each.oid, each.oid) for each in pdu.bindings[once:]]
    if columns:
        wanted = min(wanted, (MAX_ANSWER_BINDINGS - once) // len(columns))
    for _ in range(MAX_STEPS):
        open_ = [each for each in columns if each.start is not None and len(each.rows) < wanted]
        if not open_ or _size(columns) > ANSWER_BYTES:
            return pdu.response((*single, *_rows(columns, wanted)))
        # Some of what comes will be hidden.
        most = min(MOST_ROWS, 2 * (wanted - min(len(each.rows) for each in open_)))
        answer = yield Pdu(Kind.GET_BULK, 0, tuple(Binding(c.start) for c in open_ if c.start is not None), 0, most)
        if answer.status:
            return pdu.refused(Status.GENERAL, 0)
        _take_rows(scope, open_, answer, wanted)
    raise SnmpError(f"nothing to be seen within {MAX_STEPS} requests to the device")


def _take_rows(scope: Scope, columns: list[_Column], answer: Pdu, wanted: int) -> None:
    if not answer.bindings or len(answer.bindings) > MOST_ROWS * len(columns):
        raise SnmpError("the device answered with other rows than were asked for")
    for number, column in enumerate(columns):
        for binding in answer.bindings[number :: len(columns)]:
            if column.start is None or len(column.rows) >= wanted:
                break
            if binding.value == END_OF_VIEW:
                column.start = None
                break
            if binding.oid <= column.start:
                # A row before the place that was jumped to meanwhile.
                _behind(column.last, binding.oid)
                column.last = binding.oid
                continue
            column.last = column.start = binding.oid
            if scope.view.access(binding.oid):
                column.rows.append(scope.value(binding))
            else:
                column.start = scope.view.onward(binding.oid)


def _rows(columns: list[_Column], wanted: int) -> list[Binding]:
    """Row by row, as GETBULK answers, only whole rows; a column that has ended says so in each."""
    result: list[Binding] = []
    for number in range(wanted):
        if any(number >= len(each.rows) and each.start is not None for each in columns):
            break
        result += [
            each.rows[number]
            if number < len(each.rows)
            else Binding(each.rows[-1].oid if each.rows else each.asked, END_OF_VIEW)
            for each in columns
        ]
        if all(number >= len(each.rows) for each in columns):
            break
    return result


def _size(columns: list[_Column]) -> int:
    return sum(len(of_oid(row.oid)) + len(row.value) + 4 for each in columns for row in each.rows)


def _set(scope: Scope, pdu: Pdu) -> Exchange:
    for number, each in enumerate(pdu.bindings, 1):
        refusal = _CHECKS[scope.view.access(each.oid)](scope, each)
        if refusal is not None:
            return pdu.refused(refusal, number)
    answer = yield Pdu(Kind.SET, 0, pdu.bindings)
    return _refused_as(pdu, answer, list(range(len(pdu.bindings)))) if answer.status else pdu.response(pdu.bindings)


_CHECKS: dict[Access, Callable[[Scope, Binding], Status | None]] = {
    Access.NONE: lambda scope, each: Status.NO_ACCESS,
    Access.READ: lambda scope, each: Status.NOT_WRITABLE,
    Access.ASK: lambda scope, each: scope.ask(each.oid, each.value),
    Access.WRITE: lambda scope, each: None,
}


def _refused_as(pdu: Pdu, answer: Pdu, positions: list[int]) -> Pdu:
    """The device's error, at the place that the variable has in the slice's own request."""
    index = positions[answer.index - 1] + 1 if 0 < answer.index <= len(positions) else 0
    status = answer.status if 0 <= answer.status <= max(Status) + 1 else Status.GENERAL
    return Pdu(Kind.RESPONSE, pdu.request_id, pdu.bindings, status, index)


def _same_length(answer: Pdu, count: int) -> None:
    if len(answer.bindings) != count:
        raise SnmpError(f"the device answered with {len(answer.bindings)} variables instead of {count}")


def _behind(start: Oid, found: Oid) -> None:
    if found <= start:
        raise SnmpError("the device's variables are not in order")


_HANDLERS: dict[Kind, Callable[[Scope, Pdu], Exchange]] = {
    Kind.GET: _get,
    Kind.GET_NEXT: _get_next,
    Kind.GET_BULK: _get_bulk,
    Kind.SET: _set,
}
