"""Several texts as one byte string, from which labels, numbers and keys are derived. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def joined(parts: Iterable[str]) -> bytes:
    """Each part preceded by its length in characters and a colon: no two lists of texts give the same bytes.

    Labels, flow numbers and the keys of frames are hashes of this, so the encoding must never change.
    """
    return "".join(f"{len(part)}:{part}" for part in parts).encode()
