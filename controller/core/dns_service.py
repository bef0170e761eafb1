"""Questions to DNS for the servers of a service, and answers. Pure; answers are not trusted.

A DNS server names them by SRV records (RFC 2782). On the own link services answer for themselves, by multicast DNS
(RFC 6762) as DNS-SD says (RFC 6763): a pointer names the instances, and SRV and A records where each one is.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import HyroadsError

A, PTR, SRV = 1, 12, 33
_HEADER, _RECORD, _SRV = struct.Struct("!HHHHHH"), struct.Struct("!HHIH"), struct.Struct("!HHH")
_IN, _RECURSE, _IS_ANSWER, _CODE = 1, 0x0100, 0x8000, 0x000F
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
MOST_RECORDS, MOST_JUMPS, MOST_LABEL, MOST_NAME, MOST_ADDRESSES = 64, 32, 63, 253, 8


class DnsError(HyroadsError):
    """A name or a message is none that DNS knows."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A service that answered for itself: its port, and the IPv4 addresses that it names, maybe none."""

    port: int
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Record:
    """``at`` is where its data begin in the message, ``length`` their bytes."""

    name: str
    kind: int
    at: int
    length: int


def question(name: str, number: int, kind: int = SRV) -> bytes:
    """A question for the records of a kind of a name; ``number`` (16 bits) is repeated in the answer. DnsError."""
    labels = name.strip(".").encode("ascii", "replace").split(b".")
    if len(name) > MOST_NAME or not all(0 < len(label) <= MOST_LABEL for label in labels):
        raise DnsError(f"{name[:64]!a}: expected the name of a domain")
    coded = b"".join(bytes([len(label)]) + label for label in labels)
    return _HEADER.pack(number, _RECURSE, 1, 0, 0, 0) + coded + b"\0" + struct.pack("!HH", kind, _IN)


def servers(message: bytes, number: int) -> list[tuple[str, int]]:
    """Hosts and ports of an answer, the preferred first; none if there are none. DnsError if it is not that answer."""
    found = sorted(server for record in _answered(message, number, 1) for server in _server(message, record))
    return [(host, port) for _, _, host, port in found]


def instances(message: bytes, number: int, service: str) -> list[Instance]:
    """Who answers a question for the PTR records of ``service``, such as ``_http._tcp.local``, in the order of the
    answer; none if there is none. DnsError if it is not that answer.
    """
    addresses: dict[str, list[str]] = {}
    found: dict[str, tuple[str, int]] = {}
    for record in _answered(message, number, 3):
        if record.kind == A and record.length == 4:
            data = message[record.at : record.at + 4]
            addresses.setdefault(record.name.lower(), []).append(str(ipaddress.IPv4Address(data)))
        elif record.name.lower().endswith(f".{service.lower()}"):
            for _, _, host, port in _server(message, record):
                found.setdefault(record.name, (host, port))
    return [Instance(port, tuple(addresses.get(host.lower(), ())[:MOST_ADDRESSES])) for host, port in found.values()]


def _answered(message: bytes, number: int, sections: int) -> list[_Record]:
    """The records of the first sections after the questions; DnsError."""
    try:
        given, flags, questions, *counts = _HEADER.unpack_from(message)
        if given != number or not flags & _IS_ANSWER:
            raise DnsError("expected the answer to the question")
        at = _HEADER.size
        for _ in range(min(questions, MOST_RECORDS)):
            at = _name(message, at)[1] + 4
        records = list(_records(message, at, min(sum(counts[:sections]), MOST_RECORDS)))
    except (struct.error, IndexError) as error:
        raise DnsError("expected a whole answer") from error
    return [] if flags & _CODE else records


def _records(message: bytes, at: int, count: int) -> Iterator[_Record]:
    """The records from a place on, of the internet's class."""
    for _ in range(count):
        name, at = _name(message, at)
        kind, of, _, length = _RECORD.unpack_from(message, at)
        at += _RECORD.size
        if at + length > len(message):
            raise DnsError("expected a whole answer")
        # In multicast DNS the highest bit says that this is the whole set.
        if of & 0x7FFF == _IN:
            yield _Record(name, kind, at, length)
        at += length


def _server(message: bytes, record: _Record) -> Iterator[tuple[int, int, str, int]]:
    """Priority, order within it (the greatest weight first), host and port of an SRV record; else nothing."""
    if record.kind != SRV:
        return
    try:
        priority, weight, port = _SRV.unpack_from(message, record.at)
        host, _ = _name(message, record.at + _SRV.size)
    except (struct.error, IndexError) as error:
        raise DnsError("expected a whole answer") from error
    # A dot alone says that there is no such service.
    if _HOST.fullmatch(host) and port:
        yield priority, -weight, host, port


def _name(message: bytes, at: int) -> tuple[str, int]:
    """The name at a place, and where it ends there."""
    labels: list[str] = []
    end, jumps = 0, 0
    while length := message[at]:
        if length & 0xC0 == 0xC0:
            end = end or at + 2
            at, jumps = (length & 0x3F) << 8 | message[at + 1], jumps + 1
        elif length <= MOST_LABEL:
            label = message[at + 1 : at + 1 + length]
            labels.append(label.decode("ascii", "replace"))
            at += 1 + length
        else:
            raise DnsError("expected a name")
        if jumps > MOST_JUMPS or len(labels) > MOST_NAME // 2:
            raise DnsError("expected a name of bounded length")
    return ".".join(labels), end or at + 1
