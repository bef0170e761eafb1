"""Checked reading of nested mappings and lists: collects every error with its place in the document. Pure.

A :class:`Place` is a cursor. Reading a wrong value records an error and returns a harmless default, so that one pass
finds all errors; :meth:`Problems.raise_if_any` then raises one :class:`ConfigError` with the rest in ``more``.

Endpoints, files and TLS, which the settings of the controller and of the slicer describe alike, are read here, too.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from .errors import ConfigError

MAX_PROBLEMS = 100
MAX_ID_LENGTH = 64
MAX_HINT_WORDS = 1000

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_~-]+")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


Listener = Callable[[str, str, Mapping[str, Any]], None]


class Problems:
    """The errors found so far in one document. While :func:`listening`, all tell ``listener`` how each place is
    read: its path, the kind of reading, and the bounds of that.
    """

    listener: Listener | None = None

    def __init__(self, document: str) -> None:
        self.document = document
        self.errors: list[ConfigError] = []

    def add(self, place: str, problem: str) -> None:
        """Record one error; beyond ``MAX_PROBLEMS`` they are dropped."""
        if len(self.errors) < MAX_PROBLEMS:
            self.errors.append(ConfigError(self.document, place, problem))

    def raise_if_any(self) -> None:
        """Raise the first error found, the others in its ``more``."""
        if self.errors:
            first = self.errors[0]
            raise ConfigError(first.document, first.place, first.problem, self.errors[1:])


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Lets a listener know what parsers ask of documents, from which a schema follows (``core.file_schema``)."""
    Problems.listener = staticmethod(listener)
    try:
        yield
    finally:
        Problems.listener = None


@dataclass(frozen=True)
class Place:
    """A value and where it is in the document."""

    value: Any
    problems: Problems = field(repr=False)
    path: str = ""

    def fail(self, problem: str) -> None:
        """Record an error at this place."""
        self.problems.add(self.path, problem)

    def _read(self, kind: str, **bounds: Any) -> None:
        if self.problems.listener is not None:
            self.problems.listener(self.path, kind, bounds)

    def expected(self, what: str) -> None:
        """Record that something else was expected here."""
        self.fail(f"expected {what}, got {describe(self.value)}")

    def hint(self, value: object, known: Collection[str]) -> str:
        """The end of an error text: the nearest known word, if the search for it is cheap and will be seen."""
        full = len(self.problems.errors) >= MAX_PROBLEMS
        return "" if full or len(known) > MAX_HINT_WORDS else suggestion(value, known)

    def key(self, name: object, value: Any) -> Place:
        """The place of a value under a key of this mapping."""
        text = key_text(name)
        return Place(value, self.problems, f"{self.path}.{text}" if self.path else text)

    def item(self, index: int, value: Any) -> Place:
        """The place of an item of this list."""
        return Place(value, self.problems, f"{self.path}[{index}]")

    def section(self, known: Collection[str], required: Collection[str] = ()) -> Section:
        """This value as a mapping with the given keys; wrong or missing keys are recorded."""
        self._read("section", known=tuple(known), required=tuple(required))
        if not isinstance(self.value, Mapping):
            self.expected("a mapping")
            return Section(self, {}, valid=False)
        for name in self.value:
            if name not in known:
                self.key(name, None).fail("unknown key" + self.hint(name, known))
        for name in required:
            if name not in self.value:
                self.key(name, None).fail("is missing")
        return Section(self, self.value)

    def entries(self) -> Iterator[tuple[str, Place]]:
        """Keys that are valid ids with the places of their values, of a mapping with free keys."""
        self._read("entries")
        if not isinstance(self.value, Mapping):
            self.expected("a mapping")
            return
        for name, value in self.value.items():
            place = self.key(name, value)
            problem = id_problem(name)
            if problem:
                place.fail(f"expected a key that is {problem}, got {describe(name)}")
            else:
                yield name, place

    def items(self) -> Iterator[Place]:
        """The places of the items of a list."""
        self._read("items")
        if not isinstance(self.value, Sequence) or isinstance(self.value, str | bytes):
            self.expected("a list")
            return
        for index, value in enumerate(self.value):
            yield self.item(index, value)

    def number(
        self, default: float, low: float = -math.inf, high: float = math.inf, *, open_low: bool = False, what: str = ""
    ) -> float:
        """A finite number in [low, high] (or (low, high] if ``open_low``); booleans are not numbers."""
        self._read("number", low=low, high=high, open_low=open_low)
        value = self.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.expected(what or "a number")
            return default
        if (isinstance(value, int) and value.bit_length() > 64) or not math.isfinite(value):
            self.expected(what or "a finite number")
            return default
        if not low <= value <= high or (open_low and value == low):
            self.expected(_with_bound(what, value, low, high) if what else f"a number from {low:g} to {high:g}")
            return default
        return float(value)

    def integer(self, default: int, low: int, high: int) -> int:
        """A whole number in [low, high]; text such as ``0x1f`` is read too."""
        self._read("integer", low=low, high=high)
        value = self.value
        if isinstance(value, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
            value = int(value, 16)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.expected(f"a whole number from {low} to {high}")
            return default
        return value

    def boolean(self, default: bool) -> bool:
        """true or false."""
        self._read("boolean")
        if isinstance(self.value, bool):
            return self.value
        self.expected("true or false")
        return default

    def identifier(self) -> str:
        """An id: text of bounded length without control characters; empty if it is wrong."""
        self._read("identifier")
        problem = id_problem(self.value)
        if problem:
            self.expected(problem)
            return ""
        return str(self.value)

    def reference(self, known: Collection[str], kind: str) -> str:
        """The id of something declared elsewhere; empty if it is wrong."""
        name = self.identifier()
        if name and name not in known:
            self.fail(f"expected the id of a {kind}, got {describe(name)}" + self.hint(name, known))
            return ""
        return name

    def choice(self, known: Collection[str], default: str) -> str:
        """One of several words."""
        self._read("choice", known=tuple(known))
        if isinstance(self.value, str) and self.value in known:
            return self.value
        self.fail(f"expected {one_of(known)}, got {describe(self.value)}" + self.hint(self.value, known))
        return default

    def says(self, word: str) -> bool:
        """Whether this is a word that may be in place of something else, such as ``all`` of a list."""
        self._read("choice", known=(word,))
        return bool(self.value == word)

    def mac(self) -> str | None:
        """A unicast MAC address, in lower case."""
        self._read("mac")
        text = interface_mac(self.value)
        if text is None:
            self.expected("a unicast MAC address like 02:00:00:00:00:01")
        return text

    def ipv4_host(self) -> str | None:
        """An IPv4 address that a host may have."""
        self._read("ipv4")
        address = _ip(self.value)
        usable = address is not None and not (address.is_multicast or address.is_unspecified or address.is_loopback)
        if address is None or address.version != 4 or not usable:
            self.expected("an IPv4 address of a host like 10.0.0.1")
            return None
        return str(address)


@dataclass(frozen=True)
class Section:
    """A mapping whose keys are known."""

    place: Place
    values: Mapping[str, Any]
    valid: bool = True

    def __contains__(self, name: str) -> bool:
        """Whether the key is given."""
        return name in self.values

    def __getitem__(self, name: str) -> Place:
        """The place of a given key's value."""
        return self.place.key(name, self.values[name])

    def optional(self, name: str) -> Place | None:
        """The place of a key's value, None if the key isn't given."""
        return self[name] if name in self.values else None


def _with_bound(what: str, value: float, low: float, high: float) -> str:
    """What was expected, with the bound that the value broke where the words leave it open."""
    if value > high and f"{high:g}" not in what:
        return f"{what} and at most {high:g}"
    return f"{what} and at least {low:g}" if 0 < value < low else what


def id_problem(value: object) -> str:
    """What an id must be, if the value isn't a valid one; else empty."""
    if isinstance(value, bool | int | float) or value is None:
        return "text (write it in quotes)"
    if not isinstance(value, str):
        return "text"
    if not 0 < len(value) <= MAX_ID_LENGTH:
        return f"text of 1 to {MAX_ID_LENGTH} characters"
    if not value.isprintable() or value != value.strip():
        return "text without control characters and without spaces around it"
    return ""


MAX_USER_BYTES = 253
"""Of an attribute of RADIUS (RFC 2865, section 5)."""


def is_user_name(text: object) -> TypeGuard[str]:
    """Whether a text is the name of a user of 802.1X that we show: printable, at most 253 bytes."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_USER_BYTES or not text.isprintable():
        return False
    return len(text.encode()) <= MAX_USER_BYTES


def interface_mac(value: object) -> str | None:
    """A MAC address that an interface may have (unicast, not zero), in lower case; None for anything else."""
    text = value.lower() if isinstance(value, str) else ""
    return text if MAC.fullmatch(text) and not int(text[:2], 16) & 1 and text != "00:00:00:00:00:00" else None


def describe(value: object) -> str:
    """A short account of a wrong value; bounded whatever the value is."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 64:
        return "a huge number"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return ascii(value) if len(value) <= 40 else ascii(value[:37]) + "..."
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, Sequence) else f"a {type(value).__name__}"


def suggestion(value: object, known: Collection[str]) -> str:
    """`` (did you mean 'x'?)`` with the nearest known word, or nothing."""
    close = difflib.get_close_matches(value[:MAX_ID_LENGTH], known, n=1) if isinstance(value, str) else []
    return f" (did you mean {describe(close[0])}?)" if close else ""


def one_of(known: Collection[str]) -> str:
    """``a, b or c``."""
    words = list(known)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def key_text(name: object) -> str:
    """A key as it is written in a place: bare if plain, else quoted and bounded."""
    if isinstance(name, str) and _PLAIN_KEY.fullmatch(name) and len(name) <= MAX_ID_LENGTH:
        return name
    return describe(name)


def _ip(value: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(value) if isinstance(value, str) else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Our key and certificate, and the authority that others are checked by."""

    key: str
    certificate: str
    ca: str | None = None


def path_of(section: Section, key: str, base: Path) -> str | None:
    """The name of a file, relative to ``base``; None if none is given."""
    if key not in section or section.values[key] is None:
        return None
    place = section[key]
    if not isinstance(place.value, str) or not place.value or "\0" in place.value:
        place.expected("a file name")
        return None
    return str(base / place.value)


def integer_of(section: Section, key: str, default: int, low: int, high: int) -> int:
    """A whole number, if it is given."""
    return section[key].integer(default, low, high) if key in section else default


def number_of(section: Section, key: str, default: float, low: float, high: float) -> float:
    """A number, if it is given."""
    return section[key].number(default, low, high) if key in section else default


def boolean_of(section: Section, key: str, default: bool) -> bool:
    """true or false, if it is given."""
    return section[key].boolean(default) if key in section else default


def choice_of(section: Section, key: str, known: Sequence[str]) -> str:
    """One of several words; the first if none is given."""
    return section[key].choice(known, known[0]) if key in section else known[0]


def endpoint_of(listen: Section | None, key: str, port: int, *, may_be_plain: bool = False) -> tuple[Endpoint, bool]:
    """Where to listen (loopback unless said otherwise), and whether ``allow_plaintext`` is said, where it may be."""
    host, plaintext = "127.0.0.1", False
    if listen is not None and key in listen:
        section = listen[key].section(("host", "port", *(("allow_plaintext",) if may_be_plain else ())))
        if "host" in section:
            host = _host(section["host"], host)
        port = integer_of(section, "port", port, 1, 65535)
        plaintext = boolean_of(section, "allow_plaintext", False)
    return Endpoint(host, port), plaintext


def _host(place: Place, default: str) -> str:
    address = "localhost" if place.value == "localhost" else _ip(place.value)
    if address is None:
        place.expected("an IP address to listen on, or localhost")
        return default
    return str(address)


def tls_files(top: Section, name: str, base: Path) -> TlsFiles | None:
    """``{key, certificate, ca}`` under a name."""
    if top.values.get(name) is None:
        return None
    section = top[name].section(("key", "certificate", "ca"), ("key", "certificate"))
    key, certificate = path_of(section, "key", base), path_of(section, "certificate", base)
    return TlsFiles(key, certificate, path_of(section, "ca", base)) if key and certificate else None
