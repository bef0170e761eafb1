"""The cookie of a rule: HyRoads' mark and a hash of everything the rule says (docs/reference/openflow.md, section
3)."""

from __future__ import annotations

from hashlib import blake2b

MARK = 0x48
MARK_VALUE = MARK << 56
MARK_MASK = 0xFF << 56
FULL_MASK = 0xFFFF_FFFF_FFFF_FFFF


def cookie_of(table: int, priority: int, match: bytes, instructions: bytes) -> int:
    """0x48 in the top byte, then 56 bits of BLAKE2b over table, priority, match and instructions.

    Equal cookies mean equal rules: with n rules on a switch two differ by chance with probability n^2 / 2^57.
    """
    digest = blake2b(match, digest_size=7)
    digest.update(table.to_bytes(1, "big") + priority.to_bytes(2, "big") + instructions)
    return MARK_VALUE | int.from_bytes(digest.digest(), "big")


def is_ours(cookie: int) -> bool:
    """Whether a rule with this cookie was installed by HyRoads."""
    return cookie & MARK_MASK == MARK_VALUE
