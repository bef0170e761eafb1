"""Who may use the proxy, for what and over which interfaces; and what its log says."""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import json
import os
import sys
import time
from dataclasses import dataclass, field

from .http1 import Origin

CONNECT_PORTS = frozenset({80, 443, 8443})


@dataclass(frozen=True, slots=True)
class Rule:
    """What requests may use: those to a ``host`` (``*.example.org``: all below it; None: any) and ``port``."""

    name: str
    host: str | None = None
    port: int | None = None
    interfaces: tuple[str, ...] = ()
    weight: float = 1.0

    def matches(self, origin: Origin) -> bool:
        """Whether the rule is for requests to this server."""
        host = origin.host.lower().rstrip(".")
        if self.host is not None:
            below = self.host.startswith("*.") and host.endswith(self.host[1:])
            if not below and host != self.host:
                return False
        return self.port is None or self.port == origin.port


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may use the proxy, and for what. ``connect_ports`` None: all; ``token`` None: none is asked for."""

    rules: tuple[Rule, ...] = ()
    connect_ports: frozenset[int] | None = CONNECT_PORTS
    allow_local: bool = False
    token: str | None = None
    clients: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    def admits(self, address: str) -> bool:
        """Whether a client at this address may connect."""
        found = ipaddress.ip_address(address.partition("%")[0])
        found = getattr(found, "ipv4_mapped", None) or found
        return not self.clients or found.is_loopback or any(found in network for network in self.clients)

    def knows(self, credentials: bytes | None) -> bool:
        """Whether credentials hold the token: ``Bearer TOKEN``, or ``Basic`` with the token as password."""
        if self.token is None:
            return True
        kind, _, text = (credentials or b"").partition(b" ")
        given = text.strip()
        if kind.lower() == b"basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except ValueError:
                return False
        elif kind.lower() != b"bearer":
            return False
        return hmac.compare_digest(given, self.token.encode())


@dataclass(eq=False)
class Record:
    """What the log says of a request."""

    client: str
    method: str = "-"
    target: str = "-"
    status: int = 0
    bytes: int = 0
    split: bool = False
    interfaces: dict[str, int] = field(default_factory=dict)
    why: str = ""


def print_record(record: Record, seconds: float) -> None:
    """The log as lines of JSON on standard output."""
    document = {
        "time": round(time.time(), 3),
        "client": record.client,
        "method": record.method,
        "target": record.target,
        "status": record.status,
        "bytes": record.bytes,
        "seconds": round(seconds, 4),
        "split": record.split,
        "interfaces": dict(record.interfaces),
        **({"error": record.why} if record.why else {}),
    }
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(document) + os.linesep)
        sys.stdout.flush()
