"""Questions to DNS for the servers of a service (RFC 2782, SRV records), and answers. Pure; answers are not trusted."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from .errors import HyroadsError

SRV = 33
_HEADER, _RECORD, _SRV = struct.Struct("!HHHHHH"), struct.Struct("!HHIH"), struct.Struct("!HHH")
_IN, _RECURSE, _IS_ANSWER, _CODE = 1, 0x0100, 0x8000, 0x000F
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
MOST_RECORDS, MOST_JUMPS, MOST_LABEL, MOST_NAME = 64, 32, 63, 253


class DnsError(HyroadsError):
    """A name or a message is none that DNS knows."""


def question(name: str, number: int) -> bytes:
    """A question for the SRV records of a name; ``number`` (16 bits) is repeated in the answer. DnsError."""
    labels = name.strip(".").encode("ascii", "replace").split(b".")
    if len(name) > MOST_NAME or not all(0 < len(label) <= MOST_LABEL for label in labels):
        raise DnsError(f"{name[:64]!a}: expected the name of a domain")
    coded = b"".join(bytes([len(label)]) + label for label in labels)
    return _HEADER.pack(number, _RECURSE, 1, 0, 0, 0) + coded + b"\0" + struct.pack("!HH", SRV, _IN)


def servers(message: bytes, number: int) -> list[tuple[str, int]]:
    """Hosts and ports of an answer, the preferred first; none if there are none. DnsError if it is not that answer."""
    try:
        given, flags, questions, count, _, _ = _HEADER.unpack_from(message)
        if given != number or not flags & _IS_ANSWER:
            raise DnsError("expected the answer to the question")
        at = _HEADER.size
        for _ in range(min(questions, MOST_RECORDS)):
            at = _name(message, at)[1] + 4
        found = sorted(_records(message, at, min(count, MOST_RECORDS)))
    except (struct.error, IndexError) as error:
        raise DnsError("expected a whole answer") from error
    return [] if flags & _CODE else [(host, port) for _, _, host, port in found]


def _records(message: bytes, at: int, count: int) -> Iterator[tuple[int, int, str, int]]:
    """Priority, order within it (the greatest weight first), host and port of the SRV records."""
    for _ in range(count):
        at = _name(message, at)[1]
        kind, of, _, length = _RECORD.unpack_from(message, at)
        at += _RECORD.size
        if at + length > len(message):
            raise DnsError("expected a whole answer")
        if (kind, of) == (SRV, _IN):
            priority, weight, port = _SRV.unpack_from(message, at)
            host, _ = _name(message, at + _SRV.size)
            # A dot alone says that there is no such service.
            if _HOST.fullmatch(host) and port:
                yield priority, -weight, host, port
        at += length


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
