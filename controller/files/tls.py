"""TLS contexts from the files that settings name, for the controller and the slicer."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509

from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.errors import ConfigError


def server_side(files: TlsFiles, document: str, place: str = "tls") -> ssl.SSLContext:
    """For a listener; with ``ca`` whoever connects must show a certificate of it."""
    context = _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files, document, place)
    if files.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_side(files: TlsFiles | None, document: str, place: str) -> ssl.SSLContext:
    """For connections to servers, whose certificates must be good and for the name that was dialled."""
    if files is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca is None:
        context.load_default_certs()
    return _loaded(context, files, document, place)


def certificate_ends(places: Mapping[str, TlsFiles | None]) -> dict[str, float]:
    """When certificates end, in Unix time, by place such as ``tls.certificate``: of a file with several the first end.
    ``places`` are those of the settings, whose files could be read a moment ago.
    """
    found = {}
    for place, files in places.items():
        for key, name in (("certificate", files.certificate), ("ca", files.ca)) if files is not None else ():
            if name is not None:
                # What can't be read here is refused, with its reason, where it is loaded.
                with contextlib.suppress(OSError, ValueError):
                    known = x509.load_pem_x509_certificates(Path(name).read_bytes())
                    found[f"{place}.{key}"] = min(each.not_valid_after_utc.timestamp() for each in known)
    return found


def _loaded(context: ssl.SSLContext, files: TlsFiles, document: str, place: str) -> ssl.SSLContext:
    for key, name in (("key", files.key), ("certificate", files.certificate), ("ca", files.ca)):
        if name is not None:
            _check_readable(name, document, f"{place}.{key}")
    try:
        # The password is asked for only if the key needs one; a prompt would wait for ever.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        what = "a PEM certificate and its own key, without password"
        raise ConfigError(document, place, f"expected {what}: {_reason(error)}") from error
    if files.ca is not None:
        try:
            context.load_verify_locations(files.ca)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(document, f"{place}.ca", f"expected PEM certificates: {_reason(error)}") from error
    return context


def _check_readable(name: str, document: str, place: str) -> None:
    try:
        Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(document, place, f"{name}: {error.strerror}") from error


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
