"""A slice's request -> requests to the device, and what of their answers the slice gets. Pure.

Each kind of request is a generator: it yields units for the device, is sent the device's answers, and returns the
answer for the slice. Numbers of requests are the caller's business. A device that answers nonsense, such as a next
variable that is not behind the last, gives :class:`SnmpError`; so no walk can go in circles.

A slice sees the system group and the rows of its own interfaces and of the radios that it shares. ``ifNumber`` counts
what it sees. Rows of its own may be changed; those of a shared radio by the radio's owner, or as the rule says. A
virtual interface of its own has its wireless network with it: SSID, security, passphrase and whether it is on the air
are the slice's affair, how much airtime it gets is the radio's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field

from . import pdu
from .config import Interface
from .pdu import END_OF_VIEW, NO_SUCH_INSTANCE, Binding, Kind, Oid, Pdu, SnmpError, Status, of_oid
from .view import Access, Subtree, View, name_key

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


SYSTEM: Oid = (1, 3, 6, 1, 2, 1, 1)
IF_NUMBER: Oid = (1, 3, 6, 1, 2, 1, 2, 1)
IF_ENTRY: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IF_X_ENTRY: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
IF_NAME: Oid = (*IF_X_ENTRY, 1)
HYROADS: Oid = (1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 18514, 1)
RADIO_ENTRY: Oid = (*HYROADS, 4, 1, 1)
BSS_ENTRY: Oid = (*HYROADS, 4, 2, 1)
ADMIN_STATUS, ALIAS = 7, 18
CHANNEL, POWER, RADIO_ADMIN = 2, 4, 5
SSID, SECURITY, PASSPHRASE, ENABLED, WEIGHT, RADIUS = 3, 4, 5, 6, 8, 13
BSS_RADIO: Oid = (*BSS_ENTRY, 2)
BSS_SLICE: Oid = (*BSS_ENTRY, 7)
SECRETS: Oid = (*BSS_ENTRY, PASSPHRASE)
"""Variables whose values nobody is shown."""
SUBTREES = (
    Subtree(SYSTEM),
    Subtree(IF_NUMBER),
    Subtree(IF_ENTRY, frozenset({ADMIN_STATUS})),
    Subtree(IF_X_ENTRY, frozenset({ALIAS})),
    Subtree((*HYROADS, 1)),
    Subtree((*HYROADS, 2, 1), frozenset()),
    Subtree((*HYROADS, 3, 1), frozenset()),
    Subtree(RADIO_ENTRY, frozenset({CHANNEL, POWER, RADIO_ADMIN})),
    Subtree(
        BSS_ENTRY,
        frozenset({SSID, SECURITY, PASSPHRASE, ENABLED, WEIGHT, RADIUS}),
        by_name=True,
        shared=frozenset({WEIGHT}),
    ),
)
"""What exists on an access point (IF-MIB, HYROADS-MIB); the columns that may be changed."""

Ask = Callable[[str, str, Oid, bytes], Status | None]
"""(slice, name of the interface, variable, value) -> None: it may be set; else why not."""


def scope_of(slice_name: str, interfaces: Mapping[str, Interface], index_of: Mapping[str, int], ask: Ask) -> Scope:
    """What a slice sees of a device whose interfaces have these numbers (by name)."""
    names = {name: access for name, each in interfaces.items() if (access := _access(slice_name, each))}
    rows = {index_of[name]: access for name, access in names.items() if name in index_of}
    # The network on a radio's own interface is its owner's alone, however many share the radio.
    view = View(SUBTREES, rows, {name: access for name, access in names.items() if access is Access.WRITE})
    values = {(*IF_NUMBER, 0): pdu.of_integer(len(rows))}
    name_of = {(index_of[name],): name for name in names if name in index_of} | {name_key(name): name for name in names}

    def ask_for(oid: Oid, value: bytes) -> Status | None:
        row = view.row(oid)
        return Status.NOT_WRITABLE if row is None else ask(slice_name, name_of[row], oid, value)

    return Scope(view, values, ask_for)


def _access(slice_name: str, interface: Interface) -> Access:
    if slice_name == interface.owner:
        return Access.WRITE
    return Access.ASK if slice_name in interface.shared else Access.NONE


def sees_device(slice_name: str, interfaces: Mapping[str, Interface]) -> bool:
    """Whether a slice has anything to do with a device."""
    return any(slice_name == each.owner or slice_name in each.shared for each in interfaces.values())


def interface_numbers(bindings: Iterable[Binding]) -> dict[str, int]:
    """Interfaces by name, as IF-MIB numbers them."""
    size = len(IF_NAME)
    found = ((each.oid, _text(each)) for each in bindings if each.oid[:size] == IF_NAME and len(each.oid) == size + 1)
    return {name: oid[-1] for oid, name in found if name is not None}


def networks(bindings: Iterable[Binding]) -> dict[str, Interface]:
    """Wireless networks that belong to slices: who may change the device's own configuration says whose they are."""
    size = len(BSS_SLICE)
    texts = {each.oid: text for each in bindings if each.oid[:size] in (BSS_SLICE, BSS_RADIO) and (text := _text(each))}
    found = {}
    for oid, owner in texts.items():
        name = bytes(min(arc, 255) for arc in oid[size + 1 :]).decode("ascii", "replace")
        if oid[:size] == BSS_SLICE and oid[size:] == name_key(name):
            found[name] = Interface(owner, radio=texts.get((*BSS_RADIO, *oid[size:])))
    return found


def _text(binding: Binding) -> str | None:
    value = binding.value
    return value[2:].decode("utf-8", "replace") if value[:1] == bytes((pdu.OCTETS,)) and value[1] < 0x80 else None
