"""The client's end of TLS, for programs of devices: needs the standard library alone."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import ROLE_URI, CertificateRole


def require_role(context: ssl.SSLContext, role: CertificateRole) -> None:
    """Connections of a client's context end in the handshake unless the server's certificate has a role."""
    wanted = "URI", f"{ROLE_URI}{role}"

    def check(shown: Mapping[str, Any] | None) -> None:
        if wanted not in (shown or {}).get("subjectAltName", ()):
            raise ssl.SSLCertVerificationError(f"its certificate does not have the role {role}: see hyroads identity")

    class CheckedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self.getpeercert())

    class CheckedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self.getpeercert())

    context.sslobject_class, context.sslsocket_class = CheckedObject, CheckedSocket


def client_context(ca: str, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Trusts controllers with a certificate of ``ca`` that has the name by which they are dialled, and shows one of
    ours. PEM files, the key with mode 0600; ConfigError.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(ca, "", f"expected PEM certificates: {error.strerror or error}") from error
    require_role(context, CertificateRole.CONTROLLER)
    if (certificate is None) != (key is None):
        raise ConfigError("TLS", "", "expected a certificate and its key, or neither")
    if certificate is None or key is None:
        return context
    try:
        mode = Path(key).stat().st_mode
        if mode & 0o077:
            raise ConfigError(key, "", "expected mode 0600: it is a secret key")
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            certificate, "", f"expected a certificate and its own key: {error.strerror or error}"
        ) from error
    return context


class ClientTls:
    """One connection, in memory: what comes from the network goes in, what has to be sent comes out, and neither waits.
    ssl.SSLError, which is an OSError, if the other end is not whom its certificate should be of.
    """

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)
        self._is_ready = False

    def received(self, data: bytes) -> bytes:
        """What these bytes of the network say."""
        self._in.write(data)
        parts: list[bytes] = []
        try:
            self._shake_hands()
            while part := self._tls.read(1 << 16):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(parts)

    def send(self, data: bytearray) -> bytes:
        """What to send for all of ``data``, which is empty afterwards; until both ends agree it stays, and what comes
        out is the handshake.
        """
        try:
            self._shake_hands()
            if data:
                self._tls.write(data)
                data.clear()
        except ssl.SSLWantReadError:
            pass
        return self._out.read()

    def _shake_hands(self) -> None:
        if not self._is_ready:
            self._tls.do_handshake()
            self._is_ready = True
