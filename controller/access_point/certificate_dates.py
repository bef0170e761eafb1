"""What a certificate says of itself, read with the standard library alone: validity and names. Pure.

Only the parts of X.509 (RFC 5280, section 4.1) that are needed are read; signatures are checked where TLS is spoken.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

_SEQUENCE, _SET, _OID, _OCTETS, _UTC_TIME, _VERSION, _EXTENSIONS = 0x30, 0x31, 0x06, 0x04, 0x17, 0xA0, 0xA3
_DNS_NAME = 0x82
_COMMON_NAME = bytes.fromhex("550403")
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class CertificateDates:
    """From when to when a certificate is valid, Unix time, and its common names and DNS names."""

    begins_s: float
    ends_s: float
    names: tuple[str, ...]


def certificate_dates(pem: str) -> CertificateDates:
    """Of the first certificate of a PEM text; ValueError if it cannot be read."""
    begin, end = pem.find(_BEGIN), pem.find(_END)
    if begin < 0 or end < begin:
        raise ValueError("expected a PEM certificate")
    try:
        return _read(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)]))
    except (IndexError, ValueError) as error:
        raise ValueError("expected a PEM certificate") from error


def _read(der: bytes) -> CertificateDates:
    (_, certificate), *_ = _items(der)
    (_, signed), *_ = _items(certificate)
    fields = [(tag, value) for tag, value in _items(signed) if tag != _VERSION]
    # Serial number, algorithm and issuer come first.
    (_, validity), (_, subject), *_ = fields[3:]
    begins_s, ends_s = (_time(tag, value) for tag, value in _items(validity))
    extensions = next((value for tag, value in fields if tag == _EXTENSIONS), b"")
    names = (*_common_names(subject), *_dns_names(extensions))
    return CertificateDates(begins_s, ends_s, tuple(dict.fromkeys(names)))


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of the elements of DER; ValueError if one is cut."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise ValueError("cut")
        yield tag, data[at : at + length]
        at += length


def _time(tag: int, value: bytes) -> float:
    text = value.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280, section 4.1.2.5.1: two digits from 50 on are of the last century.
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC).timestamp()


def _common_names(subject: bytes) -> Iterator[str]:
    for _, part in _items(subject):
        for _, attribute in _items(part):
            (_, kind), (_, text), *_ = _items(attribute)
            if kind == _COMMON_NAME:
                yield text.decode("utf-8", "replace")


def _dns_names(extensions: bytes) -> Iterator[str]:
    for _, listed in _items(extensions):
        for _, extension in _items(listed):
            parts = list(_items(extension))
            if parts[0] == (_OID, _ALTERNATIVE_NAMES) and parts[-1][0] == _OCTETS:
                for _, names in _items(parts[-1][1]):
                    yield from (name.decode("ascii", "replace") for tag, name in _items(names) if tag == _DNS_NAME)
