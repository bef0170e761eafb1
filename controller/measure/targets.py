"""What the collector polls: its configuration, one JSON document on stdin (secrets stay off command lines). Pure."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import ConfigError

_DOCUMENT = "collector configuration"
MIN_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Credentials:
    """v2c with ``community``, or v3 authPriv (SHA-256, AES-128) with ``user``; exactly one of them."""

    community: str | None = field(default=None, repr=False)
    user: str | None = None
    auth_password: str | None = field(default=None, repr=False)
    priv_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Target:
    """An access point's snmpd."""

    name: str
    host: str
    port: int
    credentials: Credentials


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """The whole document."""

    targets: tuple[Target, ...]
    interval_s: float = 1.0
    timeout_s: float = 0.8
    max_backoff_s: float = 30.0
    slow_every_s: float = 10.0


def parse(text: str, document_name: str = _DOCUMENT) -> CollectorConfig:
    """The configuration; :class:`ConfigError` with the place and what was expected. Secrets are never quoted."""
    try:
        raw = strict_json.parse(text)
        entries = raw.pop("targets")
        times = {key: float(value) for key, value in raw.items()}
        targets = tuple(_target(entry, i, document_name) for i, entry in enumerate(entries))
        config = CollectorConfig(targets, **times)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(document_name, "", f"expected targets and times: {type(error).__name__}") from error
    if config.interval_s < MIN_INTERVAL_S or not 0 < config.timeout_s <= config.max_backoff_s:
        raise ConfigError(
            document_name, "interval_s", f"expected at least {MIN_INTERVAL_S} s, and 0 < timeout_s <= max_backoff_s"
        )
    if len({target.name for target in targets}) < len(targets):
        raise ConfigError(document_name, "targets", "expected different names")
    return config


def _target(entry: dict[str, Any], place: int, document_name: str) -> Target:
    host, port = str(entry["host"]), int(entry.get("port", 161))
    ipaddress.IPv4Address(host)
    keys = ("community", "user", "auth_password", "priv_password")
    credentials = Credentials(**{key: entry[key] for key in keys if entry.get(key) is not None})
    v3 = credentials.user is not None and None not in (credentials.auth_password, credentials.priv_password)
    if not 0 < port < 0x10000 or (credentials.community is None) == (not v3):
        raise ConfigError(
            document_name, f"targets.{place}", "expected a port, and either a community or a user with passwords"
        )
    return Target(str(entry["name"]), host, port, credentials)


def document(config: CollectorConfig) -> str:
    """The configuration as one line, as :func:`parse` reads it."""
    raw = asdict(config)
    raw["targets"] = [{"name": t.name, "host": t.host, "port": t.port, **asdict(t.credentials)} for t in config.targets]
    return json.dumps(raw)
