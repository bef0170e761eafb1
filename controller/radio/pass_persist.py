"""net-snmp's ``pass_persist`` protocol (man snmpd.conf): lines on stdin, answers on stdout. Survives any input."""

from __future__ import annotations

from typing import BinaryIO, Protocol

from hyroads.controller.radio.mib import BASE, Oid, Value

MAX_LINE_BYTES = 4096
MAX_OID_LENGTH = 128
NONE = b"NONE\n"


class Objects(Protocol):
    """What is served."""

    def get(self, oid: Oid) -> Value | None:
        """The object, or None."""

    def following(self, oid: Oid) -> Oid | None:
        """The first object after ``oid``."""


def parse_oid(line: bytes) -> Oid | None:
    """``.1.3.6`` -> (1, 3, 6); None for anything else."""
    parts = line.strip().lstrip(b".").split(b".")
    if len(parts) > MAX_OID_LENGTH or not all(part.isdigit() and len(part) <= 10 for part in parts):
        return None
    return tuple(map(int, parts))


def encode(oid: Oid, value: Value) -> bytes:
    """The three lines of an answer; octets in hexadecimal, so that no byte can end the line."""
    words = value.value.hex(" ") if isinstance(value.value, bytes) else str(value.value)
    return f".{'.'.join(map(str, oid))}\n{value.kind}\n{words}\n".encode()


def serve(requests: BinaryIO, answers: BinaryIO, objects: Objects) -> None:
    """Answers until the input ends."""
    while line := _line(requests):
        command = line.strip().lower()
        if command == b"ping":
            answer = b"PONG\n"
        elif command in (b"get", b"getnext"):
            answer = _answer(command, _line(requests), objects)
        elif command == b"set":
            _line(requests)
            _line(requests)
            answer = b"not-writable\n"
        elif command:
            answer = NONE
        else:
            continue
        answers.write(answer)
        answers.flush()


def _line(requests: BinaryIO) -> bytes:
    """The next line; of one that is too long only the start, the rest is skipped."""
    line = requests.readline(MAX_LINE_BYTES)
    rest = line
    while rest and not rest.endswith(b"\n"):
        rest = requests.readline(MAX_LINE_BYTES)
    return line


def _answer(command: bytes, line: bytes, objects: Objects) -> bytes:
    oid = parse_oid(line)
    if oid is not None and command == b"getnext":
        # snmpd asks for what follows a request that may lie before our subtree.
        oid = objects.following(oid if oid >= BASE else BASE)
    value = None if oid is None else objects.get(oid)
    return NONE if oid is None or value is None else encode(oid, value)
