"""Messages of SFNet, both ends' (docs/reference/sfnet.md). Pure; what comes in is checked here, once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.strict_json import JsonError

GROUP, PORT = "224.0.0.3", 2209
VERSION = 1
DATAGRAM = 256
"""A request for discovery has just as many bytes, and its answer no more: whoever forges a sender gains nothing."""
MAX_LINE = 128 * 1024
MAX_KINDS = 32
MAX_NONCE = 32
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class MessageError(HyroadsError):
    """A message is not what is expected."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the REST API; ``id`` comes back with the answer."""

    id: int
    method: str
    path: str
    body: object
    key: str | None = None
    """Idempotency key: the same request with the same key is done once."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Send events of these kinds from now on (none: of all kinds), or after the one with id ``after``."""

    id: int
    kinds: tuple[str, ...]
    after: int | None


def discovery_request(nonce: str) -> bytes:
    """A datagram that asks who is the controller."""
    head = json.dumps({"type": "discover", "version": VERSION, "nonce": nonce})
    return head.encode().ljust(DATAGRAM)


def discovery_nonce(datagram: bytes) -> str | None:
    """What a request for discovery is known by; None if the datagram is none that is to be answered."""
    if len(datagram) != DATAGRAM:
        return None
    message = _mapping(datagram)
    nonce = message.get("nonce")
    fits = message.get("type") == "discover" and message.get("version") == VERSION
    good = isinstance(nonce, str) and 0 < len(nonce) <= MAX_NONCE and nonce.isascii() and nonce.isalnum()
    return nonce if fits and good and isinstance(nonce, str) else None


def discovery_answer(nonce: str, address: str, port: int, program: str) -> bytes:
    """Where the controller listens."""
    answer = {"type": "controller", "version": VERSION, "nonce": nonce, "address": address, "port": port}
    text = json.dumps({**answer, "program": program[:40]}).encode()
    return text if len(text) <= DATAGRAM else json.dumps(answer).encode()


def discovered(datagram: bytes, nonce: str) -> tuple[str, int] | None:
    """Address and port of the controller; None if this does not answer the request with ``nonce``."""
    message = _mapping(datagram)
    if message.get("type") != "controller" or message.get("nonce") != nonce:
        return None
    address, port = message.get("address"), message.get("port")
    return (address, port) if isinstance(address, str) and type(port) is int and 0 < port < 65536 else None


def hello(line: bytes) -> str | None:
    """The token in the first line of a connection, if there is one; :class:`MessageError`."""
    message = _known(line, ("type", "version", "token"))
    if message.get("type") != "hello" or message.get("version") != VERSION:
        raise MessageError(f"expected a hello of version {VERSION}")
    token = message.get("token")
    if token is not None and not isinstance(token, str):
        raise MessageError("token: expected text or null")
    return token


def request(line: bytes) -> Request | Subscribe:
    """Any later line; :class:`MessageError`."""
    message = _known(line, ("id", "method", "path", "body", "key", "subscribe", "after"))
    number = message.get("id")
    if type(number) is not int or not 0 <= number < 2**53:
        raise MessageError("id: expected a whole number")
    if "subscribe" in message:
        return _subscribe(number, message)
    method, path = message.get("method"), message.get("path")
    if method not in METHODS:
        raise MessageError(f"method: expected one of {', '.join(METHODS)}")
    if not isinstance(path, str) or not path.startswith("/"):
        raise MessageError("path: expected what follows /api/v1")
    key = message.get("key")
    if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise MessageError("key: expected printable ASCII text")
    return Request(number, method, path, message.get("body"), key)


def _subscribe(number: int, message: Mapping[str, Any]) -> Subscribe:
    kinds, after = message["subscribe"], message.get("after")
    if not isinstance(kinds, list) or len(kinds) > MAX_KINDS or not all(isinstance(kind, str) for kind in kinds):
        raise MessageError(f"subscribe: expected a list of at most {MAX_KINDS} kinds of events")
    if after is not None and type(after) is not int:
        raise MessageError("after: expected the id of an event")
    return Subscribe(number, tuple(kinds), after)


def line_of(message: Mapping[str, object]) -> bytes:
    """A message as it is sent."""
    return json.dumps(message).encode() + b"\n"


def wants(kinds: tuple[str, ...], kind: str) -> bool:
    """Whether events of a kind were asked for: ``link`` stands for ``link.up`` and ``link.down`` as well."""
    return not kinds or any(kind == one or kind.startswith(f"{one}.") for one in kinds)


def _known(line: bytes, names: tuple[str, ...]) -> Mapping[str, Any]:
    if len(line) > MAX_LINE:
        raise MessageError(f"expected a line of at most {MAX_LINE} bytes")
    message = _mapping(line)
    if not message:
        raise MessageError("expected a JSON object")
    unknown = sorted(set(message) - set(names))
    if unknown:
        raise MessageError(f"{unknown[0][:40]}: unknown field")
    return message


def _mapping(text: bytes) -> Mapping[str, Any]:
    try:
        message = strict_json.parse(text)
    except JsonError:
        return {}
    return message if isinstance(message, dict) else {}
