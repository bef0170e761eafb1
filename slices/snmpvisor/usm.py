"""SNMPv3 with the User-based Security Model (RFC 3412, RFC 3414, RFC 3826, RFC 7860): messages in and out. Pure.

Authentication by HMAC with MD5, SHA-1 or SHA-2, privacy by AES with 128 bits. Who is authoritative (the receiver of
requests) has an engine id, counts its starts (boots) and the seconds since; a message that is more than 150 s off is
refused, so that old ones can't be sent again.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import new as new_hash

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES

from . import pdu as ber
from .pdu import VERSION_3, Pdu, SnmpError, parse_pdu, pdu_bytes

# Name of the hash -> bytes of the digest that travel.
DIGEST_BYTES = {"md5": 12, "sha1": 12, "sha224": 16, "sha256": 24, "sha384": 32, "sha512": 48}
WINDOW_S = 150
MAX_TIME_S = 2**31 - 1
AUTH, PRIV, REPORTABLE = 0x01, 0x02, 0x04
USM = 3
MIN_PASSWORD = 8
MAX_SIZE = 65_507
STATS = (1, 3, 6, 1, 6, 3, 15, 1, 1)
"""usmStats: what a report tells."""
UNSUPPORTED_LEVEL, NOT_IN_TIME, UNKNOWN_USER, UNKNOWN_ENGINE, WRONG_DIGEST, DECRYPTION = range(1, 7)


@dataclass(frozen=True, slots=True)
class User:
    """A user; without ``privacy_password`` messages are authenticated only. Unauthenticated ones do not exist."""

    name: str
    hash_name: str
    password: str = field(repr=False)
    privacy_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.hash_name not in DIGEST_BYTES:
            raise SnmpError(f"user {self.name}: authentication by one of {', '.join(DIGEST_BYTES)} was expected")
        if min(len(self.password), len(self.privacy_password or self.password)) < MIN_PASSWORD:
            raise SnmpError(f"user {self.name}: passwords have at least {MIN_PASSWORD} characters")

    @property
    def level(self) -> int:
        """The flags that its messages have at least."""
        return AUTH if self.privacy_password is None else AUTH | PRIV

    def key(self, engine: bytes) -> bytes:
        """The key for authentication at an engine."""
        return localised(self.hash_name, self.password, engine)

    def privacy_key(self, engine: bytes) -> bytes:
        """The key for privacy at an engine."""
        return localised(self.hash_name, self.privacy_password or "", engine)[:16]


@lru_cache(maxsize=4096)
def localised(hash_name: str, password: str, engine: bytes) -> bytes:
    """The key of a password at an engine: a megabyte of it hashed, and again with the engine (RFC 3414, A.2)."""
    raw = password.encode()
    stretched = (raw * (1_048_576 // len(raw) + 1))[:1_048_576]
    key = new_hash(hash_name, stretched, usedforsecurity=True).digest()
    return new_hash(hash_name, key + engine + key).digest()


@dataclass(frozen=True, slots=True)
class Message:
    """A message of SNMPv3 as read: header, security parameters, and either the unit or the encrypted bytes of it."""

    message_id: int
    flags: int
    engine: bytes
    boots: int
    time_s: int
    user: str
    digest: bytes
    salt: bytes
    context: bytes
    pdu: Pdu | None
    raw: bytes
    digest_at: int
    encrypted: bytes | None


def parse(data: bytes) -> Message:
    """Reads a message; nothing is verified or decrypted yet. :class:`SnmpError`."""
    at, end = ber.expect(data, 0, len(data), ber.SEQUENCE)
    version, at = ber.integer(data, at, end)
    if version != VERSION_3:
        raise SnmpError(f"version {version}, expected {VERSION_3} (SNMPv3)")
    head, at = ber.expect(data, at, end, ber.SEQUENCE)
    message_id, head = ber.integer(data, head, at)
    _, head = ber.integer(data, head, at)
    flags, head = ber.octets(data, head, at)
    model, _ = ber.integer(data, head, at)
    if len(flags) != 1 or model != USM:
        raise SnmpError("a security model other than USM")
    security, at = ber.expect(data, at, end, ber.OCTETS)
    inner, stop = ber.expect(data, security, at, ber.SEQUENCE)
    engine, inner = ber.octets(data, inner, stop)
    boots, inner = ber.integer(data, inner, stop)
    time_s, inner = ber.integer(data, inner, stop)
    user, inner = ber.octets(data, inner, stop)
    digest_at, inner = ber.expect(data, inner, stop, ber.OCTETS)
    digest = data[digest_at:inner]
    salt, _ = ber.octets(data, inner, stop)
    if len(engine) > 32 or len(user) > 32:
        raise SnmpError("an engine id or a user name is too long")
    if not (0 <= boots <= MAX_TIME_S and 0 <= time_s <= MAX_TIME_S and 0 <= message_id <= MAX_TIME_S):
        raise SnmpError("a number of the header is out of range")
    fixed = (message_id, flags[0], engine, boots, time_s, user.decode("utf-8", "replace"), digest, salt)
    if flags[0] & PRIV:
        encrypted, _ = ber.octets(data, at, end)
        return Message(*fixed, b"", None, data, digest_at, encrypted)
    context, pdu = _scoped(data, at, end)
    return Message(*fixed, context, pdu, data, digest_at, None)


def _scoped(data: bytes, at: int, end: int) -> tuple[bytes, Pdu]:
    start, stop = ber.expect(data, at, end, ber.SEQUENCE)
    _, start = ber.octets(data, start, stop)
    context, start = ber.octets(data, start, stop)
    return context, parse_pdu(data, start, stop)


def is_authentic(message: Message, user: User, engine: bytes) -> bool:
    """Whether the digest is the user's; takes the same time for every wrong one."""
    size = DIGEST_BYTES[user.hash_name]
    if len(message.digest) != size:
        return False
    at = message.digest_at
    blank = message.raw[:at] + bytes(size) + message.raw[at + size :]
    return hmac.compare_digest(_digest(user, engine, blank), message.digest)


def opened(message: Message, user: User) -> tuple[bytes, Pdu]:
    """Context and unit, decrypted if they are encrypted; :class:`SnmpError` if that gives no unit."""
    if message.pdu is not None:
        return message.context, message.pdu
    if user.privacy_password is None or message.encrypted is None or len(message.salt) != 8:
        raise SnmpError("can't be decrypted")
    cipher = _cipher(user.privacy_key(message.engine), message.boots, message.time_s, message.salt)
    work = cipher.decryptor()
    plain = work.update(message.encrypted) + work.finalize()
    return _scoped(plain, 0, len(plain))


def message_bytes(
    pdu: Pdu,
    *,
    message_id: int,
    engine: bytes,
    boots: int,
    time_s: int,
    user: User | None,
    context: bytes = b"",
    salt: int = 0,
    reportable: bool = False,
) -> bytes:
    """A message at the level of its user; None: unauthenticated, for reports and discovery."""
    scoped = ber.element(
        ber.SEQUENCE, ber.element(ber.OCTETS, engine) + ber.element(ber.OCTETS, context) + pdu_bytes(pdu)
    )
    salt_bytes = b""
    if user is not None and user.privacy_password is not None:
        salt_bytes = salt.to_bytes(8, "big")
        work = _cipher(user.privacy_key(engine), boots, time_s, salt_bytes).encryptor()
        scoped = ber.element(ber.OCTETS, work.update(scoped) + work.finalize())
    flags = (user.level if user is not None else 0) | (REPORTABLE if reportable else 0)
    size = DIGEST_BYTES[user.hash_name] if user is not None else 0
    tail = ber.element(ber.OCTETS, bytes(size)) + ber.element(ber.OCTETS, salt_bytes)
    name = user.name.encode() if user is not None else b""
    before = ber.element(ber.OCTETS, engine) + ber.of_integer(boots) + ber.of_integer(time_s)
    security = ber.element(ber.SEQUENCE, before + ber.element(ber.OCTETS, name) + tail)
    head = ber.of_integer(message_id) + ber.of_integer(MAX_SIZE)
    head += ber.element(ber.OCTETS, bytes((flags,))) + ber.of_integer(USM)
    body = ber.of_integer(VERSION_3) + ber.element(ber.SEQUENCE, head) + ber.element(ber.OCTETS, security) + scoped
    whole = ber.element(ber.SEQUENCE, body)
    if user is None:
        return whole
    # The digest is over the message with zeros in its place, which is before salt and unit.
    at = len(whole) - len(scoped) - len(ber.element(ber.OCTETS, salt_bytes)) - size
    return whole[:at] + _digest(user, engine, whole) + whole[at + size :]


def _digest(user: User, engine: bytes, data: bytes) -> bytes:
    return hmac.digest(user.key(engine), data, user.hash_name)[: DIGEST_BYTES[user.hash_name]]


def _cipher(key: bytes, boots: int, time_s: int, salt: bytes) -> Cipher[CFB]:
    return Cipher(AES(key), CFB(boots.to_bytes(4, "big") + time_s.to_bytes(4, "big") + salt))
