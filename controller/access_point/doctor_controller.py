"""Dials a controller as this box's agents do, up to the answer whether they would be admitted."""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
from contextlib import suppress
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.framework.tls_client import client_context

from .channel import VERSION, host_and_port
from .doctor import ControllerFacts
from .doctor_settings import BoxSettings, Secret

DIAL_S = 3.0
MOST_ANSWER = 1 << 16
_NO_TOKEN = Secret("none", "", "agent", "")
_NOT_YET_VALID = 9
"""X509_V_ERR_CERT_NOT_YET_VALID of OpenSSL."""


def controller_facts(address: str, settings: BoxSettings) -> ControllerFacts:
    """What a controller answers to a hello of each role that only checks: no session of a running agent ends."""
    try:
        host, port = host_and_port(address)
    except ConfigError:
        return ControllerFacts(address, unresolved="expected HOST:PORT such as 192.0.2.1:6654")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return ControllerFacts(address, unresolved=str(getattr(error, "strerror", None) or error))
    ahead_s = None
    for secret in settings.secrets or (_NO_TOKEN,):
        facts = _dial(address, host, found[0][4], settings, secret)
        if facts.unreachable or facts.tls or facts.refused:
            return facts
        ahead_s = facts.clock_ahead_s
    return ControllerFacts(address, clock_ahead_s=ahead_s)


def _dial(address: str, host: str, target: Any, settings: BoxSettings, secret: Secret) -> ControllerFacts:
    try:
        plain = socket.create_connection(target[:2], timeout=DIAL_S)
    except OSError as error:
        return ControllerFacts(address, unreachable=error.strerror or str(error))
    with plain:
        try:
            connection = _secured(plain, host, settings)
        except ConfigError as error:
            return ControllerFacts(address, tls=str(error))
        except ssl.SSLCertVerificationError as error:
            return ControllerFacts(address, tls=error.verify_message, not_yet_valid=error.verify_code == _NOT_YET_VALID)
        except OSError as error:
            return ControllerFacts(address, tls=_reason(error))
        return _check(address, connection, settings, secret)


def _secured(plain: socket.socket, host: str, settings: BoxSettings) -> socket.socket:
    if settings.ca is None:
        return plain
    return client_context(settings.ca, settings.certificate, settings.key).wrap_socket(plain, server_hostname=host)


def _check(address: str, connection: socket.socket, settings: BoxSettings, secret: Secret) -> ControllerFacts:
    hello = {"type": "hello", "version": VERSION, "node": settings.node, "program": "hyroads box doctor"}
    hello |= {"boot": os.urandom(8).hex(), "token": secret.read(), "role": secret.role, "revision": 0, "check": True}
    began_s = time.time()
    try:
        connection.sendall(json.dumps(hello).encode() + b"\n")
        answer = _answer(connection)
    except ssl.SSLError as error:
        # With TLS 1.3 the controller judges the box's certificate after the handshake.
        return ControllerFacts(address, tls=f"the controller refuses the certificate of this box: {_reason(error)}")
    except (OSError, ValueError) as error:
        return ControllerFacts(address, unreachable=f"no answer: {_reason(error)}")
    finally:
        with suppress(OSError):
            connection.close()
    if answer.get("type") == "error":
        return ControllerFacts(address, refused=str(answer.get("message"))[:200])
    time_s = answer.get("time_s")
    if isinstance(time_s, bool) or not isinstance(time_s, int | float):
        return ControllerFacts(address)
    return ControllerFacts(address, clock_ahead_s=time_s - (began_s + time.time()) / 2)


def _answer(connection: socket.socket) -> dict[str, Any]:
    received = b""
    while b"\n" not in received:
        chunk = connection.recv(4096)
        if not chunk:
            raise ConnectionResetError("it closed the connection")
        received += chunk
        if len(received) > MOST_ANSWER:
            raise ValueError("its answer is too long")
    found = strict_json.parse(received.partition(b"\n")[0])
    if not isinstance(found, dict):
        raise ValueError("its answer is no object")
    return found


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
