"""Requests of a box to its controller, whose certificate is known by its SHA-256."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError

MOST_BYTES = 1 << 20
WITHIN_S = 15.0
PREFIX = "/api/v1"


class UnreachableError(HyroadsError):
    """The controller gives no answer; later it may."""


class WrongControllerError(HyroadsError):
    """Something else than the known controller answers."""


class RefusedError(HyroadsError):
    """The controller refuses; ``status`` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


@dataclass(frozen=True)
class Link:
    """``host`` and ``port`` of a controller. ``pin`` is the SHA-256 of its certificate in hex digits."""

    host: str
    port: int
    pin: str = ""

    @staticmethod
    def of(url: str, pin: str = "") -> Link:
        """By an address ``https://HOST[:PORT]``; HyroadsError."""
        parts = urlsplit(url)
        try:
            port = parts.port or 443
        except ValueError:
            port = 0
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query or not port:
            raise HyroadsError(f"{url[:100]!a}: expected https://HOST:PORT")
        return Link(parts.hostname, port, normal_pin(pin))

    def meet(self) -> tuple[str, str]:
        """The SHA-256 of the certificate that is shown, and the address of this machine that leads there."""
        connection = self._connection()
        try:
            return _digest(connection), str(connection.sock.getsockname()[0])
        finally:
            connection.close()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The document that a request is answered with. UnreachableError, WrongControllerError, RefusedError."""
        connection = self._connection()
        try:
            shown = _digest(connection)
            if shown != self.pin:
                raise WrongControllerError(f"{self.host}:{self.port} shows another certificate: SHA-256 {shown}")
            headers = {"Content-Type": "application/json", "Connection": "close"}
            connection.request("POST", f"{PREFIX}{path}", json.dumps(body), headers)
            response = connection.getresponse()
            data = response.read(MOST_BYTES)
            document = strict_json.parse(data) if data else None
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        except ValueError as error:
            raise RefusedError(502, f"{self.host}:{self.port} is no controller: {error}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise self._refused(response.status, document)
        return document

    def _refused(self, status: int, document: Any) -> HyroadsError:
        detail = str(document.get("detail", "")) if isinstance(document, Mapping) else ""
        shown = "".join(each for each in detail if each.isprintable())[:300]
        if status in (429, 503):
            return UnreachableError(shown or "the controller is busy")
        if status == 307:
            return RefusedError(status, "another controller leads: join there")
        return RefusedError(status, shown or f"{self.host}:{self.port} answers with status {status}")

    def _connection(self) -> HTTPSConnection:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The certificate is compared with the pin; the clock of the box, and names, do not count yet.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = HTTPSConnection(self.host, self.port, timeout=WITHIN_S, context=context)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise self._unreachable(error) from error
        return connection

    def _unreachable(self, error: Exception) -> UnreachableError:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        return UnreachableError(f"https://{self.host}:{self.port}: {reason}")


def normal_pin(pin: str) -> str:
    """A fingerprint as it is compared: hex digits in lower case, without colons; HyroadsError if it is none."""
    digits = pin.replace(":", "").lower()
    if digits and (len(digits) != 64 or not set(digits) <= set("0123456789abcdef")):
        raise HyroadsError("--pin: expected a SHA-256, 64 hex digits")
    return digits


def _digest(connection: HTTPSConnection) -> str:
    shown = connection.sock.getpeercert(binary_form=True)
    return hashlib.sha256(shown or b"").hexdigest()
