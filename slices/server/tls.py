"""TLS contexts from files."""

from __future__ import annotations

import ssl
from pathlib import Path

from hyroads.controller.core.errors import ConfigError
from hyroads.slices.server.settings import TlsFiles


def switch_side(files: TlsFiles, document: str) -> ssl.SSLContext:
    """For the listener; with ``ca`` switches must show a certificate of it."""
    context = _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files, document, "tls")
    if files.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def controller_side(files: TlsFiles | None, document: str) -> ssl.SSLContext:
    """For connections to controllers, whose certificates must be good and for the name that was dialled."""
    if files is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca is None:
        context.load_default_certs()
    return _loaded(context, files, document, "controllers_tls")


def _loaded(context: ssl.SSLContext, files: TlsFiles, document: str, place: str) -> ssl.SSLContext:
    for key, name in (("key", files.key), ("certificate", files.certificate), ("ca", files.ca)):
        if name is not None:
            try:
                Path(name).read_bytes()
            except OSError as error:
                raise ConfigError(document, f"{place}.{key}", f"{name}: {error.strerror}") from error
    try:
        # The password is asked for only if the key needs one; a prompt would wait for ever.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
        if files.ca is not None:
            context.load_verify_locations(files.ca)
    except (ssl.SSLError, OSError) as error:
        what = "PEM files: a certificate, its own key without password, certificates of the authority"
        reason = getattr(error, "reason", None) or error
        raise ConfigError(document, place, f"expected {what}: {reason}") from error
    return context
