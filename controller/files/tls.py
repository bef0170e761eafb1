"""TLS contexts from the files that settings name, for the controller and the slicer."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import ROLE_URI, CertificateFacts, CertificateRole, role_fault

from .private import write_atomically
from .text import check_private

_OWN_DAYS, _RENEW_DAYS = 3650, 30


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


def fingerprint(certificate: str | Path) -> str:
    """SHA-256 of a PEM file's first certificate, in hex digits."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(_first_certificate(Path(certificate)))).hexdigest()


def certificate_names(certificate: bytes) -> tuple[str, ...]:
    """The common names and DNS names of a certificate (PEM or DER); none if it can't be read."""
    return certificate_facts(certificate).names


def certificate_facts(certificate: bytes) -> CertificateFacts:
    """What a certificate (PEM or DER) says; nothing if it can't be read."""
    try:
        is_pem = b"-----BEGIN" in certificate
        found = (x509.load_pem_x509_certificate if is_pem else x509.load_der_x509_certificate)(certificate)
        names = [str(each.value) for each in found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        uris: list[str] = []
        with contextlib.suppress(x509.ExtensionNotFound):
            others = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            names += others.get_values_for_type(x509.DNSName)
            uris = others.get_values_for_type(x509.UniformResourceIdentifier)
        number = certificate_id(found.issuer, found.serial_number)
    except ValueError:
        return CertificateFacts()
    roles = frozenset(uri.removeprefix(ROLE_URI) for uri in uris if uri.startswith(ROLE_URI))
    return CertificateFacts(tuple(dict.fromkeys(names)), roles, number)


def authorities_in(ca: str) -> frozenset[str]:
    """SHA-256 of each certificate in a PEM file, in hex digits; OSError, ValueError."""
    known = x509.load_pem_x509_certificates(Path(ca).read_bytes())
    return frozenset(each.fingerprint(hashes.SHA256()).hex() for each in known)


def certificate_id(issuer: x509.Name, serial_number: int) -> str:
    """By what a certificate is known among those that are revoked."""
    return f"{hashlib.sha256(issuer.public_bytes()).hexdigest()[:32]}:{serial_number:x}"


@dataclass(eq=False)
class Revoked:
    """The ids of revoked certificates, the same for all ports. A reload replaces ``ids``."""

    ids: frozenset[str] = frozenset()


@dataclass(eq=False)
class CertificateCheck:
    """Which certificates one kind of port takes, or one kind of server may show: those with one of the ``roles`` that
    are not ``revoked``.
    """

    roles: frozenset[CertificateRole]
    revoked: Revoked

    @staticmethod
    def of(*roles: CertificateRole, revoked: Revoked | None = None) -> CertificateCheck:
        """For certificates with one of these roles."""
        return CertificateCheck(frozenset(roles), revoked or Revoked())

    def fault(self, facts: CertificateFacts) -> str:
        """Why a certificate is not taken; "" if it is."""
        return role_fault(facts, self.roles, self.revoked.ids)


def own_certificate(folder: Path, name: str, address: str) -> TlsFiles:
    """``NAME.pem`` and ``NAME.key`` of a folder, for an IP address; made if they are not there, are for another address
    or end soon. Raises OSError.
    """
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    if not (key.is_file() and certificate.is_file() and _is_for(certificate, address)):
        secret = ec.generate_private_key(ec.SECP256R1())
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The key alone is of no use: who is interrupted here makes both anew.
        certificate.unlink(missing_ok=True)
        write_atomically(key, secret.private_bytes(*form).decode())
        write_atomically(certificate, _self_signed(secret, name, address))
    return TlsFiles(str(key), str(certificate))


def _first_certificate(path: Path) -> str:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = path.read_text(encoding="ascii")
    return text[text.index(begin) : text.index(end) + len(end)]


def _self_signed(key: ec.EllipticCurvePrivateKey, name: str, address: str) -> str:
    now, subject = datetime.datetime.now(datetime.UTC), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    # Clocks of clients may be slow.
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=_OWN_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def _is_for(path: Path, address: str) -> bool:
    """Whether a certificate is for an address, and for some time to come."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=_RENEW_DAYS)
    addresses = names.get_values_for_type(x509.IPAddress)
    return ipaddress.ip_address(address) in addresses and found.not_valid_after_utc > soon


def _loaded(context: ssl.SSLContext, files: TlsFiles, document: str, place: str) -> ssl.SSLContext:
    for key, name in (("key", files.key), ("certificate", files.certificate), ("ca", files.ca)):
        if name is not None:
            _check_readable(name, document, f"{place}.{key}")
    _check_mode(files.key, document, f"{place}.key")
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


def _check_mode(name: str, document: str, place: str) -> None:
    try:
        check_private(name, "it is a secret key")
    except ConfigError as error:
        raise ConfigError(document, place, str(error)) from error


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
