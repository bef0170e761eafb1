"""The agents' protocol as data (docs/reference/dataplane.md, section 2): lines in, checked messages out.

Pure. What comes from an agent is hostile until :func:`parse_line` has checked it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.port_readings import PortReading
from hyroads.controller.core.strict_json import JsonError

from .lead import epoch_of

VERSION = 1
MAX_LINE = 1 << 20
MAX_REPORTED = 70_000
AGENT, RADIO, CLIENT = "agent", "radio", "client"
MAX_PORTS = 256
LEAST_MTU, MOST_MTU = 68, 65_535
"""Bytes; what an interface with IPv4 may have (RFC 791)."""
_MAC = re.compile("[0-9a-f]{2}(:[0-9a-f]{2}){5}")
MOST = 1e300
"""No counter is greater."""

Report = dict[str, Any]
"""A checked report, or an entry of one."""


class ProtocolError(HyroadsError):
    """A line is not what the protocol allows."""


def encode(document: Mapping[str, Any], seq: int | None = None) -> bytes:
    """One line, with a ``seq`` if there is one."""
    if seq is not None:
        document = {**document, "seq": seq}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Hello:
    """First line of a session: of an agent, of an access point's radios, or of a multi-homed client (``role``), whose
    id then is ``node``.
    """

    node: str
    program: str
    boot: str
    token: str | None = field(repr=False)
    revision: int
    role: str = AGENT
    epoch: int = 0
    """The greatest epoch that it has seen; 0: it knows of one controller only."""
    changes: bool = False
    """It can report what changed, if it is asked to."""
    seals: bool = False
    """It can seal frames, if it gets keys."""
    check: bool = False
    """No session is wanted: only the answer whether the controller would admit this node, and its clock."""
    pieces: bool = False
    """It can join pieces of frames, and send them on."""
    seals_links: bool = False
    """It can seal what its switch sends to neighbours."""


def parse_line(line: bytes) -> dict[str, Any]:
    """A checked message; unknown types come back with their type only. :class:`ProtocolError` if it is malformed."""
    if len(line) > MAX_LINE:
        raise ProtocolError(f"a line has more than {MAX_LINE} bytes")
    try:
        # Of what comes ten times a second each number is compared with bounds.
        is_counted = line.startswith(_COUNTED)
        message = strict_json.parse_checked(line) if is_counted else strict_json.parse(line)
    except JsonError as error:
        raise ProtocolError(f"a line: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError("a line is not an object with a type")
    if is_counted and not line.startswith(b'{"type":"%b",' % message["type"].encode()):
        raise ProtocolError("a line names its type twice")
    check = _CHECKS.get(message["type"])
    if check is None:
        return {"type": "unknown", "name": message["type"][:40], "seq": _optional_seq(message)}
    return check(message)


def parse_hello(message: Mapping[str, Any]) -> Hello:
    """The hello in a message that :func:`parse_line` returned."""
    if message["type"] != "hello":
        raise ProtocolError("the first line is not hello")
    if message["version"] != VERSION:
        raise ProtocolError(f"protocol version {message['version']} is not {VERSION}")
    return Hello(**{field.name: message[field.name] for field in fields(Hello)})


def _integer(message: Mapping[str, Any], key: str, high: int = 2**63) -> int:
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise ProtocolError(f"{message.get('type')}.{key} is not a whole number")
    return value


def _text(message: Mapping[str, Any], key: str, longest: int = 64) -> str:
    value = message.get(key)
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise ProtocolError(f"{message.get('type')}.{key} is not text of at most {longest} characters")
    return value


def _optional_seq(message: Mapping[str, Any]) -> int | None:
    return None if message.get("seq") is None else _integer(message, "seq")


def _hello(message: Mapping[str, Any]) -> dict[str, Any]:
    token = message.get("token")
    if token is not None and not isinstance(token, str):
        raise ProtocolError("hello.token is not text")
    role = message.get("role", AGENT)
    if role not in (AGENT, RADIO, CLIENT):
        raise ProtocolError("hello.role is none of agent, radio and client")
    return {
        "type": "hello",
        "version": _integer(message, "version"),
        "node": _text(message, "node"),
        "program": _text(message, "program") if "program" in message else "",
        "boot": _text(message, "boot"),
        "token": token,
        "revision": _integer(message, "revision") if role == AGENT else 0,
        "role": role,
        "epoch": epoch_of(message),
        "changes": message.get("changes") is True,
        "seals": message.get("seals") is True,
        "check": message.get("check") is True,
        "pieces": message.get("pieces") is True,
        "seals_links": message.get("seals_links") is True,
    }


def _answer(message: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"type": message["type"], "seq": _optional_seq(message)}
    if message["type"] == "error":
        text = message.get("message")
        result["message"] = "".join(c for c in text[:500] if c.isprintable()) if isinstance(text, str) else ""
        result["epoch"] = epoch_of(message)
    if message["type"] == "ok":
        # Checked where the question was asked.
        result.update({key: message.get(key) for key in ("from", "revision", "rates")})
    return result


def _pong(message: Mapping[str, Any]) -> dict[str, Any]:
    heard_ms = message.get("heard_ms")
    is_number = isinstance(heard_ms, int | float) and not isinstance(heard_ms, bool) and 0 <= heard_ms <= MOST
    return {**_answer(message), "epoch": epoch_of(message), "heard_ms": heard_ms if is_number else None}


def _link(message: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("up"), bool):
        raise ProtocolError("link.up is not true or false")
    return {"type": "link", "link": _text(message, "link", 80), "up": message["up"]}


def parse_ports(message: Mapping[str, Any]) -> tuple[PortReading, ...]:
    """What an agent read from ports of its node: the message ``ports``."""
    ports = _objects(message, "ports")
    if len(ports) > MAX_PORTS:
        raise ProtocolError(f"ports: more than {MAX_PORTS} of them")
    return tuple(_port(port) for port in ports)


def _port(port: Mapping[str, Any]) -> PortReading:
    mac = _text(port, "mac", 17)
    if not _MAC.fullmatch(mac):
        raise ProtocolError("ports: mac is no address")
    mtu = _integer(port, "mtu", MOST_MTU)
    if mtu < LEAST_MTU:
        raise ProtocolError(f"ports: mtu is below {LEAST_MTU}")
    return PortReading(_text(port, "name", 15), mtu, mac)


_COUNTERS = {
    "ingress": ("number", "queued", "queued_bytes", "dropped", "too_big", "sent", "from"),
    "egress": (
        "number", "delivered_frames", "delivered_bytes", "reordered", "late", "duplicate", "lost", "timed_out",
        "held", "held_max", "hold_mean_ms",
    ),
}  # fmt: skip
_PATH_COUNTERS = {
    "ingress": ("id", "rate_mbps", "sent_frames", "sent_bytes", "skipped"),
    "egress": ("id", "received_frames", "received_bytes", "delay_ms", "last_heard_ms", "passed", "arrived"),
}
_REPORT_NUMBERS = ("time_s", "revision", "unclassified", "malformed", "forged", "replayed", "cpu_s")
_WOKEN_LATE = ("max_ms", "over_5_ms_s", "over_20_ms_s", "over_100_ms_s")


def _report(message: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "report", "seq": _optional_seq(message), **_numbers(message, _REPORT_NUMBERS)}
    result["more"] = message.get("more") is True
    result["woken_late"] = _woken_late(message.get("woken_late"))
    if result["time_s"] is None:
        raise ProtocolError("report.time_s is missing")
    for side, keys in _COUNTERS.items():
        result[side] = [
            {
                **_numbers(flow, keys),
                "paths": [_numbers(path, _PATH_COUNTERS[side]) for path in _objects(flow, "paths")],
            }
            for flow in _objects(message, side)
        ]
    result["links"] = [
        {"link": _text(link, "link", 80), "up": link.get("up") is True, **_numbers(link, ("last_heard_ms",))}
        for link in _objects(message, "links")
    ]
    return result


def _woken_late(told: Any) -> dict[str, float | int | None] | None:
    """How late the machine woke the agent; None from one that does not tell."""
    if told is None:
        return None
    if not isinstance(told, dict):
        raise ProtocolError("report: woken_late is not an object")
    return _numbers(told, _WOKEN_LATE)


def _numbers(source: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, float | int | None]:
    """The named counters; what is missing or null is None."""
    result: dict[str, float | int | None] = {key: source.get(key) for key in keys}
    for key, value in result.items():
        # JSON's 1e999 is infinite in Python, and true is no number.
        if value is not None and (type(value) not in _NUMBERS or not -MOST <= value <= MOST):
            raise ProtocolError(f"report: {key} is not a number")
    return result


def _objects(source: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    values = source.get(key, [])
    if not isinstance(values, list) or len(values) > MAX_REPORTED or not all(isinstance(v, dict) for v in values):
        raise ProtocolError(f"report: {key} is not a list of objects")
    return values


_NUMBERS = (int, float)
_COUNTED = (b'{"type":"report",', b'{"type":"changes",', b'{"type":"radio",', b'{"type":"radio-changes",')

_CHECKS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "hello": _hello,
    "ok": _answer,
    "error": _answer,
    "ping": _answer,
    "pong": _pong,
    "link": _link,
    "report": _report,
    # Checked by ``changes``, ``markers``, ``telemetry``, ``al_devices``, ``clients``, once its session is known.
    "changes": dict,
    "passed": dict,
    "ports": dict,
    "radio": dict,
    "radio-changes": dict,
    "station": dict,
    "bss": dict,
    "transition": dict,
    "dot1x": dict,
    "devices": dict,
    "client-report": dict,
    "client-event": dict,
    "client-policy": dict,
}
