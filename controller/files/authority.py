"""Identities of devices: an authority of one's own, certificates with the names of nodes, and tokens of which only
hashes stay (docs/how-to/identities.md).
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import DEVICE_ROLES, ROLE_URI, CertificateRole, token_hash

from .private import append_line, write_atomically
from .text import check_private, read_private
from .tls import certificate_id

AUTHORITY, ISSUED, REVOKED = "ca", "issued.jsonl", "revoked.pem"
DIALLING_ONLY = frozenset({CertificateRole.NODE, CertificateRole.CLIENT})
"""Roles of which no program is a server: their certificates are good for clients only."""
AUTHORITY_DAYS, RENEW_DAYS, MOST_DAYS = 3650, 30, 3650
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_Usage = x509.oid.ExtendedKeyUsageOID


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate by its serial number and first name; ``box`` is the id of the box it was signed for at adoption."""

    serial_number: int
    name: str
    box: str | None = None


@dataclass(frozen=True)
class Authority:
    """The key and the certificate by which all others are made, and the folder in which everything is."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @staticmethod
    def of(folder: Path, *, make: bool = False) -> Authority:
        """That of a folder; with ``make`` a new one if there is none. ConfigError, OSError."""
        key, certificate = folder / f"{AUTHORITY}.key", folder / f"{AUTHORITY}.pem"
        if not key.exists() and make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            secret = ec.generate_private_key(ec.SECP256R1())
            # Who is interrupted here has a key without a certificate, and makes both anew after removing it.
            write_atomically(key, _key_text(secret))
            write_atomically(certificate, _text(_root(secret)))
        if not key.exists():
            raise ConfigError(str(key), "", "is not there: make an authority with hyroads identity authority")
        check_private(key, "whoever reads it can be any node")
        try:
            secret_key = serialization.load_pem_private_key(key.read_bytes(), None)
            shown = x509.load_pem_x509_certificate(certificate.read_bytes())
        except (ValueError, TypeError) as error:
            raise ConfigError(
                str(key), "", f"expected a PEM key without password, and its certificate: {error}"
            ) from None
        if not isinstance(secret_key, ec.EllipticCurvePrivateKey) or secret_key.public_key() != shown.public_key():
            raise ConfigError(str(key), "", f"expected an elliptic key, that of {certificate.name}")
        return Authority(folder, secret_key, shown)

    def issue(
        self,
        names: Sequence[str],
        where: TlsFiles,
        *,
        roles: Collection[CertificateRole],
        days: int,
        renew: bool = False,
    ) -> bool:
        """A key and a certificate that names ``names``: first a node or a host, then hosts, addresses, datapath ids.
        One whose ``roles`` are never dialled is good for clients only: a switch would else take any node for its
        controller. False: there is one already that is for the same and does not end soon. OSError.
        """
        key, certificate = Path(where.key), Path(where.certificate)
        name, alternatives = names[0], _alternatives(names, roles)
        if not renew and key.exists() and self._is_good(certificate, name, alternatives):
            return False
        secret = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(secret.public_key(), name, self.certificate.subject, min(days, MOST_DAYS))
        uses = [_Usage.CLIENT_AUTH, *([_Usage.SERVER_AUTH] if not DIALLING_ONLY.issuperset(roles) else [])]
        # The key alone is of no use: who is interrupted here makes both anew.
        certificate.unlink(missing_ok=True)
        write_atomically(key, _key_text(secret))
        write_atomically(certificate, _text(self._noted(self._signed(builder, alternatives, uses))))
        return True

    def renew(self, where: TlsFiles, roles: Collection[CertificateRole], *, days: int) -> bool:
        """Sign a certificate again that this authority has signed, for the same key, names and uses, with these
        ``roles``; False if it has just these and does not end soon. ConfigError, OSError.
        """
        path = Path(where.certificate)
        try:
            found = x509.load_pem_x509_certificate(path.read_bytes())
            uses = list(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
            shown = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            key = found.public_key()
        except (ValueError, x509.ExtensionNotFound) as error:
            raise ConfigError(str(path), "", f"expected a certificate of hyroads identity: {error}") from None
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=RENEW_DAYS)
        alternatives = [each for each in shown if not isinstance(each, x509.UniformResourceIdentifier)]
        alternatives += _alternatives((), roles)
        if list(shown) == alternatives and found.not_valid_after_utc > soon:
            return False
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ConfigError(str(path), "", "expected a certificate of hyroads identity: its key is of another kind")
        name = str(found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)
        builder = _builder(key, name, self.certificate.subject, min(days, MOST_DAYS))
        write_atomically(path, _text(self._noted(self._signed(builder, alternatives, uses))))
        return True

    def revoke(self, name: str | None) -> int:
        """Add all certificates of ``name`` that were issued here to ``revoked.pem``, a list of revoked certificates
        (RFC 5280, section 5) that this authority signs; how many are new in it. None: the list is signed as it is, and
        made if there is none. ConfigError, OSError.
        """
        path, now = self.folder / REVOKED, datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        builder = builder.last_update(now).next_update(self.certificate.not_valid_after_utc)
        known: dict[int, x509.RevokedCertificate] = {}
        if path.exists():
            try:
                known = {each.serial_number: each for each in x509.load_pem_x509_crl(path.read_bytes())}
            except ValueError as error:
                raise ConfigError(str(path), "", f"expected a PEM list of revoked certificates: {error}") from None
        new = set() if name is None else self._issued_to(name) - known.keys()
        for serial in new:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            known[serial] = entry.build()
        for each in known.values():
            builder = builder.add_revoked_certificate(each)
        signed = builder.sign(self.key, hashes.SHA256())
        write_atomically(path, signed.public_bytes(serialization.Encoding.PEM).decode())
        return len(new)

    def _noted(self, certificate: x509.Certificate, **more: str) -> x509.Certificate:
        """Remember each certificate and its owner, so that it can be revoked when its file is lost. OSError."""
        name = str(certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)
        line = {"serial": f"{certificate.serial_number:x}", "name": name, **more}
        append_line(self.folder / ISSUED, json.dumps(line))
        return certificate

    def issued(self) -> list[IssuedCertificate]:
        """All certificates that this authority has issued; ConfigError, OSError."""
        path = self.folder / ISSUED
        try:
            lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            return [IssuedCertificate(int(line["serial"], 16), str(line["name"]), line.get("box")) for line in lines]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(str(path), "", f"expected lines with serial and name: {error}") from None

    def _issued_to(self, name: str) -> set[int]:
        return {each.serial_number for each in self.issued() if each.name == name}

    def check_can_note(self) -> None:
        """ConfigError if certificates that this process signs could not be revoked, because it can't note them."""
        path = self.folder / ISSUED
        if not os.access(path if path.exists() else self.folder, os.R_OK | os.W_OK):
            what = "is not writable for this user: the certificates of adopted boxes are noted there, to be revoked"
            raise ConfigError(str(path), "", what)

    def sign(self, request: str, names: Sequence[str], *, days: int, box: str) -> str:
        """The certificate (PEM) of the device ``box`` for the key of a PEM certificate request, good for clients only,
        that names ``names`` as in :meth:`issue`; the names in the request do not count. It is noted as that of the box.
        ValueError if it is no sound request, OSError.
        """
        key = _requested_key(request)
        builder = _builder(key, names[0], self.certificate.subject, min(days, MOST_DAYS))
        signed = self._signed(builder, _alternatives(names, [CertificateRole.NODE]), [_Usage.CLIENT_AUTH])
        return _text(self._noted(signed, box=box))

    @property
    def text(self) -> str:
        """Its certificate, PEM."""
        return _text(self.certificate)

    def has_signed(self, certificate: str) -> bool:
        """Whether a certificate file (PEM) is of this authority; OSError, ValueError."""
        shown = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
        try:
            shown.verify_directly_issued_by(self.certificate)
        except (InvalidSignature, ValueError, TypeError):
            return False
        return True

    def _signed(
        self, builder: x509.CertificateBuilder, alternatives: list[x509.GeneralName], uses: list[x509.ObjectIdentifier]
    ) -> x509.Certificate:
        for extension, critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage(uses), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False),
            *([(x509.SubjectAlternativeName(alternatives), False)] if alternatives else []),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self.key, hashes.SHA256())

    def _is_good(self, path: Path, name: str, alternatives: list[x509.GeneralName]) -> bool:
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=RENEW_DAYS)
        with suppress(OSError, ValueError, x509.ExtensionNotFound):
            found = x509.load_pem_x509_certificate(path.read_bytes())
            known = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            of_us = found.issuer == self.certificate.subject and _subject(name) == found.subject
            return of_us and list(known) == alternatives and found.not_valid_after_utc > soon
        return False


@dataclass(frozen=True)
class DeviceFiles:
    """What a node gets, in a folder of its name: its tokens, its key and certificate, and the authority's."""

    folder: Path

    @staticmethod
    def of(folder: Path, node: str) -> DeviceFiles:
        """Those of a node; ids may have any characters."""
        return DeviceFiles(folder / (quote(node, safe=" ") if node.strip(".") else node.replace(".", "%2E")))

    @property
    def tls(self) -> TlsFiles:
        """Key, certificate and authority."""
        return TlsFiles(*(str(self.folder / f"{name}") for name in ("node.key", "node.pem", f"{AUTHORITY}.pem")))

    def token(self, role: str) -> Path:
        """The file of a role's token."""
        return self.folder / f"{role}.token"


class IdentityFile:
    """The controller's file of hashes (setting ``identities``). Changes are written by :meth:`save`."""

    def __init__(self, path: Path, known: Mapping[tuple[str, str], str]) -> None:
        self.path = path
        self._known = dict(known)

    def has(self, role: str, node: str, file: Path) -> bool:
        """Whether a file holds the token of a node in a role."""
        try:
            return self._known.get((role, node)) == token_hash(read_private(file).strip())
        except ConfigError:
            return False

    def give(self, role: str, node: str, file: Path, *, renew: bool = False) -> bool:
        """Make a token, unless the file has it already; whether it is new. OSError."""
        if not renew and self.has(role, node, file):
            return False
        token = secrets.token_hex(24)
        write_atomically(file, f"{token}\n")
        self._known[role, node] = token_hash(token)
        return True

    def remove(self, node: str) -> int:
        """A node has no token any more; how many it had."""
        gone = [key for key in self._known if key[1] == node]
        for key in gone:
            del self._known[key]
        return len(gone)

    def save(self) -> None:
        """Write the file; OSError."""
        by_role = {
            role: {node: known for (of_role, node), known in sorted(self._known.items()) if of_role == role}
            for role in DEVICE_ROLES
        }
        write_atomically(self.path, json.dumps(by_role, indent=1) + "\n")


def key_digest(request: str) -> str:
    """SHA-256 of the public key in a certificate request (PEM), in hex digits; ValueError if it is no sound request."""
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(_requested_key(request).public_bytes(*form)).hexdigest()


def _requested_key(request: str) -> ec.EllipticCurvePublicKey:
    """The key of a request that its owner has signed: of one elliptic curve, so that no costly key is accepted."""
    try:
        found = x509.load_pem_x509_csr(request.encode())
        key = found.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("expected a key of the curve P-256")
        if found.is_signature_valid:
            return key
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from error
    raise ValueError("expected a request that its own key has signed")


def revoked_in(path: str) -> frozenset[str]:
    """The ids (``files.tls.certificate_id``) of all certificates in a file of PEM lists of revoked certificates, of one
    or several authorities; ConfigError.
    """
    end, found = b"-----END X509 CRL-----", set[str]()
    try:
        parts = Path(path).read_bytes().split(end)[:-1]
        for part in parts:
            listed = x509.load_pem_x509_crl(part + end + b"\n")
            found |= {certificate_id(listed.issuer, each.serial_number) for each in listed}
    except OSError as error:
        raise ConfigError(path, "", str(error.strerror)) from None
    except ValueError as error:
        raise ConfigError(path, "", f"expected PEM lists of revoked certificates: {error}") from None
    if not parts:
        raise ConfigError(path, "", "expected PEM lists of revoked certificates")
    return frozenset(found)


def _alternatives(names: Iterable[str], roles: Collection[CertificateRole]) -> list[x509.GeneralName]:
    """Those that can be hosts or addresses; a certificate is for all of them. And its roles."""
    found: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            if _HOST.fullmatch(name):
                found.append(x509.DNSName(name))
    return [*found, *(x509.UniformResourceIdentifier(f"{ROLE_URI}{role}") for role in sorted(roles))]


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _builder(key: ec.EllipticCurvePublicKey, name: str, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(issuer, _subject(name), key, x509.random_serial_number())
    # Clocks of others may be slow.
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _root(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    # Two authorities with one name would be taken for each other.
    name = f"HyRoads {secrets.token_hex(4)}"
    builder = _builder(key.public_key(), name, _subject(name), AUTHORITY_DAYS)
    words = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "encipher_only", "decipher_only",
    )  # fmt: skip
    usage = dict.fromkeys(words, False)
    for extension in (
        x509.BasicConstraints(ca=True, path_length=0),
        x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage),
    ):
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(key, hashes.SHA256())


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(*form).decode()


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
