"""How the packets of a private flow are split over two networks: the settings, and what a flow says of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .checking import Place, Section, number_of

PRIVATE_KEYS = ("n_cons", "cost_share", "padding", "n_chp")
"""Keys of a flow that only a private one has."""
DEFAULT_N_CONS = 20.0


@dataclass(frozen=True, slots=True)
class Padding:
    """Adaptive padding: a gap between packets is drawn from a normal distribution (truncated at 0) with mean ``gap_ms``
    and standard deviation ``deviation_ms``; if no packet came by then, a dummy is sent. At most ``max_per_s``.

    The default gaps are those of the synthetic traces of the study ``privacy``, both directions together.
    """

    gap_ms: float = 9.0
    deviation_ms: float = 63.0
    max_per_s: float = 200.0


@dataclass(frozen=True, slots=True)
class PrivateSplit:
    """How the packets of a private flow are split over two networks (Henri, EPFL thesis 9056, 2018, chapter 6).

    ``n_cons``: mean run on one network, packets. ``cost_share``: mean share of network 1, the first path, if that is
    the costly one (above 0, at most 0.5); None: 0.5. ``n_chp``: mean number of packets between draws of the share, for
    HyWF-AP; None: one draw per access. ``padding``: dummies that fill gaps; None: none.
    """

    n_cons: float = DEFAULT_N_CONS
    cost_share: float | None = None
    n_chp: float | None = None
    padding: Padding | None = None


PLAIN_SPLIT = PrivateSplit()


def split_document(split: PrivateSplit) -> dict[str, Any]:
    """All that a private flow says of its split; null: not asked for."""
    padding = split.padding
    own = padding is not None and padding != Padding()
    return {
        "n_cons": split.n_cons,
        "cost_share": split.cost_share,
        "padding": asdict(padding) if padding is not None and own else padding is not None,
        "n_chp": split.n_chp,
    }


def said_of(split: PrivateSplit) -> dict[str, Any]:
    """The keys of a flow that say this split: those that differ from what a flow without them has."""
    plain = {"n_cons": DEFAULT_N_CONS, "cost_share": None, "n_chp": None, "padding": split.n_chp is not None}
    return {key: value for key, value in split_document(split).items() if value != plain[key]}


def read_split(section: Section, policy: str, *, is_private: bool) -> PrivateSplit:
    """What a flow says of its private split; said of another flow it is an error, at the first such key."""
    said = [key for key in PRIVATE_KEYS if key in section]
    share = section.optional("cost_share")
    n_chp = number_of(section, "n_chp", 0.0, 1.0, 1e9) or None
    found = PrivateSplit(
        number_of(section, "n_cons", DEFAULT_N_CONS, 1.0, 1e6),
        share.number(0.5, 0.0, 0.5, open_low=True, what="a share above 0 and at most 0.5") if share else None,
        n_chp,
        _padding(section["padding"]) if "padding" in section else Padding() if n_chp else None,
    )
    if said and not is_private:
        section[said[0]].fail(f"expected only with policy private, got it with {policy}")
        return PrivateSplit()
    return found


def _padding(place: Place) -> Padding | None:
    """true: with the gaps of the default; false: none; or a mapping with gaps of one's own."""
    if isinstance(place.value, bool):
        return Padding() if place.boolean(False) else None
    if not isinstance(place.value, Mapping):
        place.expected("true or false, or a mapping")
        return None
    section, usual = place.section(("gap_ms", "deviation_ms", "max_per_s")), Padding()
    return Padding(
        number_of(section, "gap_ms", usual.gap_ms, 0.1, 1e5),
        number_of(section, "deviation_ms", usual.deviation_ms, 0.0, 1e5),
        number_of(section, "max_per_s", usual.max_per_s, 1.0, 1e4),
    )
