"""Many sockets read by the library (``dataplane/src/messages``): lines of devices, and the numbers of frequent ones."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import load_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

ABI_VERSION = 2
LINE, END, FAILED, PONG, CHANGES, WHOLE = range(6)
"""Kinds of events; see ``reader.rs``."""
_EVENT = np.dtype([("fd", "i4"), ("kind", "u4"), ("line", "u8"), ("length", "u8"), ("first", "u8"), ("count", "u8")])

Event = tuple[int, int, bytes, int, "NDArray[np.float64]"]
"""Descriptor, kind, line, number (of a pong, or of an error), and the numbers of changes and of wholes."""


class _Place(ctypes.Structure):
    _fields_ = (
        ("events", ctypes.c_void_p), ("event_count", ctypes.c_uint64), ("lines", ctypes.c_void_p),
        ("line_bytes", ctypes.c_uint64), ("values", ctypes.c_void_p), ("value_count", ctypes.c_uint64),
    )  # fmt: skip


_LIBRARY: ctypes.CDLL | None = load_library("hyroads_messages_abi", ABI_VERSION)
# Calls of microseconds keep the interpreter's lock: to get it back while another thread computes takes a millisecond.
_SHORT = ctypes.PyDLL(_LIBRARY._name, handle=_LIBRARY._handle) if _LIBRARY is not None else None
if _LIBRARY is not None:
    _pointer, _size, _fd = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32
    for _name, _result, *_arguments in (
        ("new", _pointer, _size),
        ("free", None, _pointer),
        ("descriptor", _fd, _pointer),
        ("add", _fd, _pointer, _fd, ctypes.c_char_p, _size),
        ("remove", None, _pointer, _fd),
        ("report", None, _pointer, _fd, _pointer, _size, _pointer, _size, _fd),
        ("reading", None, _pointer, _fd, ctypes.c_char_p, _size, _fd),
        ("poll", ctypes.c_int64, _pointer, _pointer, _fd),
        ("held", None, _pointer, _pointer),
        ("is_holding", _fd, _pointer, _fd),
    ):
        for _calls in (_LIBRARY, _SHORT):
            _function = getattr(_calls, f"hyroads_messages_{_name}")
            _function.restype, _function.argtypes = _result, _arguments


class MessageReader:
    """Reads sockets by their descriptors; only one thread may use it."""

    def __init__(self, library: ctypes.CDLL, short: ctypes.CDLL, longest: int) -> None:
        self._library, self._short = library, short
        self._reader = library.hyroads_messages_new(longest)
        if not self._reader:
            raise OSError("the system gives no epoll descriptor")
        self._place = _Place()
        self.descriptor: int = library.hyroads_messages_descriptor(self._reader)
        """Readable while something is to be read."""

    def __del__(self) -> None:
        """Free what the library has."""
        if getattr(self, "_reader", None):
            self._library.hyroads_messages_free(self._reader)
            self._reader = None

    def add(self, descriptor: int, data: bytes) -> None:
        """Read a socket from now on; ``data`` was read of it before. OSError."""
        if not self._library.hyroads_messages_add(self._reader, descriptor, data, len(data)):
            raise OSError(f"descriptor {descriptor} can't be waited for")

    def remove(self, descriptor: int) -> None:
        """Forget a socket, before it is closed."""
        self._short.hyroads_messages_remove(self._reader, descriptor)

    def refer_to_report(
        self, descriptor: int, shape: NDArray[np.uint64], values: NDArray[np.float64], *, is_last: bool = False
    ) -> None:
        """Changes refer to this report from now on (``WholeReport::new``). ``is_last``: it is the one that was read
        last; those that differ from it in counters alone come as ``WHOLE`` then.
        """
        arrays = shape.ctypes.data, len(shape), values.ctypes.data, len(values)
        self._short.hyroads_messages_report(self._reader, descriptor, *arrays, is_last)

    def refer_to_reading(self, descriptor: int, technologies: Sequence[str], *, is_last: bool = False) -> None:
        """Changes refer to a reading of these technologies from now on; ``is_last`` as above."""
        names = "\n".join(technologies).encode()
        self._short.hyroads_messages_reading(self._reader, descriptor, names, len(names), is_last)

    def poll(self, *, holds: bool = False) -> tuple[int, Iterator[Event]]:
        """Read what is there: of how many sockets, and what it was, in order. With ``holds`` only the newest numbers of
        each socket are kept, until :meth:`held`, or until something else comes over it, which they then precede.
        """
        place = self._place
        count = self._library.hyroads_messages_poll(self._reader, ctypes.byref(place), holds)
        if count < 0:
            raise OSError("waiting for messages failed")
        return count, self._events()

    def held(self) -> Iterator[Event]:
        """The numbers that were held, of all sockets."""
        self._short.hyroads_messages_held(self._reader, ctypes.byref(self._place))
        return self._events()

    def is_holding(self, descriptor: int) -> bool:
        """Whether numbers of a socket are held."""
        return bool(self._short.hyroads_messages_is_holding(self._reader, descriptor))

    def _events(self) -> Iterator[Event]:
        place = self._place
        if not place.event_count:
            return iter(())
        events = np.frombuffer(ctypes.string_at(place.events, place.event_count * _EVENT.itemsize), _EVENT).tolist()
        lines = ctypes.string_at(place.lines, place.line_bytes) if place.line_bytes else b""
        values = np.frombuffer(ctypes.string_at(place.values, 8 * place.value_count) if place.value_count else b"")
        return _events(events, lines, values)


def _events(
    events: list[tuple[int, int, int, int, int, int]], lines: bytes, values: NDArray[np.float64]
) -> Iterator[Event]:
    nothing = values[:0]
    for descriptor, kind, line, length, first, count in events:
        numbers = values[first : first + count] if kind >= CHANGES else nothing
        yield descriptor, kind, lines[line : line + length], first if kind == PONG else count, numbers


def message_reader(longest: int) -> MessageReader | None:
    """A reader of lines of at most ``longest`` bytes; None without the library."""
    return MessageReader(_LIBRARY, _SHORT, longest) if _LIBRARY is not None and _SHORT is not None else None
