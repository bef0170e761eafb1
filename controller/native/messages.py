"""Many sockets read by a thread of the library (``dataplane/src/messages``): lines of devices, and the numbers of
frequent ones.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from . import load_library, with_short_calls

if TYPE_CHECKING:
    from numpy.typing import NDArray

ABI_VERSION = 5
LINE, END, FAILED, PONG, CHANGES, WHOLE = range(6)
"""Kinds of events; see ``reader.rs``."""
LONGEST_PING = 64
EVENT = np.dtype([(name, "u8") for name in ("id", "kind", "line", "length", "first", "count")])


class _Place(ctypes.Structure):
    _fields_ = (
        ("events", ctypes.c_void_p), ("event_count", ctypes.c_uint64), ("lines", ctypes.c_void_p),
        ("line_bytes", ctypes.c_uint64), ("values", ctypes.c_void_p), ("value_count", ctypes.c_uint64),
    )  # fmt: skip


_FOUND = load_library("hyroads_messages_abi", ABI_VERSION)
_LIBRARY = None if _FOUND is None else with_short_calls(_FOUND)
if _LIBRARY is not None:
    _pointer, _number, _int = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32
    for _name, _result, *_arguments in (
        ("new", _pointer, _number),
        ("free", None, _pointer),
        ("descriptor", _int, _pointer),
        ("add", _number, _pointer, _int, ctypes.c_char_p, _number),
        ("remove", None, _pointer, _number),
        ("report", None, _pointer, _number, _pointer, _number, _pointer, _number, _number, _int),
        ("reading", None, _pointer, _number, ctypes.c_char_p, _number, _number, _int),
        ("ping", None, _pointer, _pointer, _pointer, _pointer, _number),
        ("settle", _number, _pointer, _number, _pointer, _number),
        ("pongs", None, _pointer, _pointer),
        ("take", _int, _pointer, _pointer, _number),
        ("held", None, _pointer, _pointer),
        ("is_holding", _int, _pointer, _number),
        ("taken_until_ns", _number, _pointer),
    ):
        _function = getattr(_LIBRARY, f"hyroads_messages_{_name}")
        _function.restype, _function.argtypes = _result, _arguments


@dataclass(frozen=True, eq=False)
class Told:
    """Events in order. ``ids[i]`` says whose it is (:meth:`MessageReader.add`), ``kinds[i]`` what.

    ``first[i]`` and ``count[i]`` say where in ``values`` the numbers of changes and of wholes are; of a pong ``first``
    is its number (of one that was kept, how many nanoseconds it took), of an error ``count`` is that of the error, and
    of a line how many came so far that may be whole reports or readings. ``events`` are all of these as the columns of
    one array (``EVENT``).
    """

    events: NDArray[np.void]
    values: NDArray[np.float64]
    _lines: bytes

    @cached_property
    def ids(self) -> list[int]:
        """By event: whose it is."""
        return self._column("id")

    @cached_property
    def kinds(self) -> list[int]:
        """By event: what it is."""
        return self._column("kind")

    @cached_property
    def first(self) -> list[int]:
        """By event: where its numbers begin, or the number of a pong."""
        return self._column("first")

    @cached_property
    def count(self) -> list[int]:
        """By event: how many numbers it has, or that of an error, or of lines."""
        return self._column("count")

    def _column(self, name: str) -> list[int]:
        found: list[int] = self.events[name].tolist()
        return found

    def line(self, i: int) -> bytes:
        """The text of an event; of numbers of radios there is none."""
        event = self.events[i]
        at = int(event["line"])
        return self._lines[at : at + int(event["length"])]

    def numbers(self, i: int) -> NDArray[np.float64]:
        """The numbers of changes or of a whole."""
        event = self.events[i]
        at = int(event["first"])
        return self.values[at : at + int(event["count"])]

    @classmethod
    def at(cls, place: _Place) -> Told:
        """What the library has put there."""
        size = place.event_count * EVENT.itemsize
        events = np.frombuffer(ctypes.string_at(place.events, size) if size else b"", EVENT)
        lines = ctypes.string_at(place.lines, place.line_bytes) if place.line_bytes else b""
        values = np.frombuffer(ctypes.string_at(place.values, 8 * place.value_count) if place.value_count else b"")
        return cls(events, values, lines)

    def __len__(self) -> int:
        """How many events there are."""
        return len(self.events)

    def some(self, places: Sequence[int] | NDArray[Any]) -> Told:
        """Some of them alone."""
        return Told(self.events[places], self.values, self._lines)


class MessageReader:
    """Reads sockets, in a thread of its own; only one other thread may use it. Each socket has a number, never used
    again.
    """

    def __init__(self, library: ctypes.PyDLL, longest: int) -> None:
        self._library = library
        self._reader = library.hyroads_messages_new(longest)
        if not self._reader:
            raise OSError("the system gives no epoll descriptor")
        self._place = _Place()
        self.descriptor: int = library.hyroads_messages_descriptor(self._reader)
        """Readable while there is something for :meth:`take`."""

    def __del__(self) -> None:
        """End the thread, and free what the library has."""
        if getattr(self, "_reader", None):
            self._library.hyroads_messages_free(self._reader)
            self._reader = None

    def add(self, descriptor: int, data: bytes) -> int:
        """Read a socket from now on; ``data`` was read of it before. Its number; OSError."""
        number = int(self._library.hyroads_messages_add(self._reader, descriptor, data, len(data)))
        if not number:
            raise OSError(f"descriptor {descriptor} can't be waited for")
        return number

    def remove(self, number: int) -> None:
        """Forget a socket, before it is closed."""
        self._library.hyroads_messages_remove(self._reader, number)

    def refer_to_report(
        self, number: int, shape: NDArray[np.uint64], values: NDArray[np.float64], *, wholes: int, is_last: bool = False
    ) -> None:
        """Changes refer to this report from now on (``WholeReport::new``), unless more than ``wholes`` lines were read
        that may be whole ones: then this is said again after the last of them. ``is_last``: it is that line; those that
        differ from it in counters alone come as ``WHOLE`` then.
        """
        arrays = shape.ctypes.data, len(shape), values.ctypes.data, len(values)
        self._library.hyroads_messages_report(self._reader, number, *arrays, wholes, is_last)

    def refer_to_reading(self, number: int, technologies: Sequence[str], *, wholes: int, is_last: bool = False) -> None:
        """Changes refer to a reading of these technologies from now on; the rest is as above, but that those that
        differ from it in counters alone come as ``CHANGES``.
        """
        names = "\n".join(technologies).encode()
        self._library.hyroads_messages_reading(self._reader, number, names, len(names), wholes, is_last)

    def take(self, most: int) -> tuple[Told, bool]:
        """What came since the last time, in order, at most so many events, and whether there are more. Of numbers the
        newest of each socket are kept until :meth:`held`, or until a line comes over it, which they then precede.
        OSError: nothing is read any more.
        """
        is_more = self._library.hyroads_messages_take(self._reader, ctypes.byref(self._place), most)
        if is_more < 0:
            raise OSError("the thread that reads has ended")
        return Told.at(self._place), bool(is_more)

    def held(self) -> Told:
        """The numbers that are kept: of each socket changes, or a whole, or a whole and then changes."""
        self._library.hyroads_messages_held(self._reader, ctypes.byref(self._place))
        return Told.at(self._place)

    def ping(self, numbers: NDArray[np.int64], seqs: NDArray[np.int64]) -> list[int]:
        """Have its thread ping sockets, each with a number ``seqs`` of its own; the places in ``numbers`` of those that
        it does not, as their last ping is not sent yet. Of the others :meth:`settle` has to be asked before anything is
        sent.
        """
        ids, asked = numbers.astype(np.uint64), seqs.astype(np.uint64)
        is_refused = np.zeros(len(ids), dtype=np.uint8)
        columns = ids.ctypes.data, asked.ctypes.data, is_refused.ctypes.data
        self._library.hyroads_messages_ping(self._reader, *columns, len(ids))
        places: list[int] = np.flatnonzero(is_refused).tolist()
        return places

    def settle(self, number: int) -> bytes:
        """Send the ping that a socket may still have; what there was no room for is to be sent before anything else."""
        rest = ctypes.create_string_buffer(LONGEST_PING)
        length = self._library.hyroads_messages_settle(self._reader, number, rest, LONGEST_PING)
        return rest.raw[:length]

    def pongs(self) -> Told:
        """Answers to pings that say nothing new, the newest of each socket; they come in no other way."""
        self._library.hyroads_messages_pongs(self._reader, ctypes.byref(self._place))
        return Told.at(self._place)

    def is_holding(self, number: int) -> bool:
        """Whether something of a socket was read and is to be taken."""
        return bool(self._library.hyroads_messages_is_holding(self._reader, number))

    def taken_until_s(self) -> float:
        """On the monotonic clock: all that came before was read and taken, but for numbers that are kept."""
        return float(self._library.hyroads_messages_taken_until_ns(self._reader)) * 1e-9


def message_reader(longest: int) -> MessageReader | None:
    """A reader of lines of at most ``longest`` bytes; None without the library."""
    return None if _LIBRARY is None else MessageReader(_LIBRARY, longest)
