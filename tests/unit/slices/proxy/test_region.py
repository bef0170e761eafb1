"""What leaves the flowspace, against enumeration of all headers of four bits at three ports."""

from __future__ import annotations

import random
from itertools import product

import pytest
from examples import seeds

from hyroads.slices.core.allocation import PRODUCTION_NUMBER, Block
from hyroads.slices.core.classifier import DISCOVERY_PRIORITY, ClassifierEntry, at_port
from hyroads.slices.core.fields import BY_NAME, TOTAL_BITS
from hyroads.slices.core.match import TernaryMatch
from hyroads.slices.proxy import region
from hyroads.slices.proxy.region import NOBODY, UNCHANGED, Regions, Rewrite

SHIFT = BY_NAME["eth_src"].shift  # four bits inside one field without prerequisites
ALL_BITS = (1 << TOTAL_BITS) - 1
PORTS = (1, 2, 3)
HEADERS = range(16)


def ternary(rng: random.Random) -> TernaryMatch:
    mask = rng.randrange(16)
    return TernaryMatch((rng.randrange(16) & mask) << SHIFT, mask << SHIFT)


def flowspace(rng: random.Random) -> list[ClassifierEntry]:
    """Random entries of three slices, some at one port only; each has its own priority."""
    entries = []
    for priority in range(rng.randrange(1, 8), 0, -1):
        match = ternary(rng)
        if rng.random() < 0.4:
            match = at_port(match, rng.choice(PORTS))
        entries.append(ClassifierEntry(priority, match, Block(rng.randrange(2, 5), 1, 1)))
    return entries


def owner(entries: list[ClassifierEntry], port: int, header: int) -> int:
    whole = at_port(TernaryMatch(header << SHIFT, 15 << SHIFT), port).value
    return next((e.block.number for e in entries if e.match.has(whole)), PRODUCTION_NUMBER)


def rewriting(rng: random.Random) -> Rewrite:
    kind = rng.randrange(3)
    if kind == 0:
        return UNCHANGED
    found = UNCHANGED.set(rng.randrange(16) << SHIFT, rng.randrange(16) << SHIFT)
    return found.forget(rng.randrange(16) << SHIFT) if kind == 2 else found


def images(rewrite: Rewrite, header: int) -> set[int]:
    """Every header that may come out."""
    base = (header << SHIFT & ~rewrite.mask | rewrite.value) >> SHIFT
    unknown = rewrite.unknown >> SHIFT
    return {base & ~unknown | bits & unknown for bits in HEADERS}


@pytest.mark.parametrize("seed", seeds(300))
def test_a_leak_is_found_exactly_where_there_is_one(seed: int) -> None:
    rng = random.Random(seed)
    entries = flowspace(rng)
    regions = Regions(entries)
    assert all(
        regions.owner(port, TernaryMatch(h << SHIFT, ALL_BITS)) == owner(entries, port, h)
        for port in PORTS
        for h in HEADERS
    )
    # The slicer's own rules and the lowest one say nothing of the flowspace.
    own = [ClassifierEntry(DISCOVERY_PRIORITY, ternary(rng), Block(9, 1, 1))]
    beside = Regions([*own, *entries, ClassifierEntry(0, TernaryMatch(0, 0), Block(PRODUCTION_NUMBER, 1, 1))])
    for port, number in product(PORTS, range(1, 5)):
        everywhere = all(owner(entries, port, h) == number for h in HEADERS)
        assert not regions.whole(number, port) or everywhere
        assert beside.whole(number, port) == regions.whole(number, port)
    for _ in range(5):
        port, match = rng.choice(PORTS), ternary(rng)
        owners = {owner(entries, port, h) for h in HEADERS if match.has(h << SHIFT)}
        found = regions.owner(port, TernaryMatch(match.value, match.mask | ALL_BITS & ~(15 << SHIFT)))
        assert {found} in ({NOBODY}, owners), "sure only if all headers have one owner"
        assert beside.owner(port, TernaryMatch(match.value, match.mask | ALL_BITS & ~(15 << SHIFT))) == found
    for _ in range(20):
        number, match, rewrite = rng.randrange(1, 5), ternary(rng), rewriting(rng)
        in_port, out_port = rng.choice(PORTS), rng.choice(PORTS)
        mine = {h for h in HEADERS if match.has(h << SHIFT) and owner(entries, in_port, h) == number}
        assert regions.owns_some(number, in_port, match) == bool(mine)
        leaking = {h for h in mine if any(owner(entries, out_port, i) != number for i in images(rewrite, h))}
        found = regions.leak(number, in_port, match, rewrite, out_port)
        if leaking:
            assert found is not None, "nothing leaves unseen"
        elif not rewrite.unknown:
            assert found is None, "nothing allowed is refused"
        if found is not None and not rewrite.unknown:
            assert any(found.has(h << SHIFT) for h in leaking), "what is named does leak"


def test_ports_with_the_same_flowspace_have_one_kind() -> None:
    match = TernaryMatch(1 << SHIFT, 1 << SHIFT)
    entries = [ClassifierEntry(9, at_port(match, port), Block(2, 1, 1)) for port in (1, 2)]
    entries.append(ClassifierEntry(5, match, Block(3, 2, 1)))
    regions = Regions(entries)
    assert regions.kind(3) == regions.kind(4) != regions.kind(1)
    assert regions.leak(3, 3, match, UNCHANGED, 4) is None
    assert regions.leak(3, 3, match, UNCHANGED, 1) is not None


def test_a_question_that_is_too_hard_is_answered_with_no() -> None:
    bits = [TernaryMatch(3 << SHIFT + 2 * n, 3 << SHIFT + 2 * n) for n in range(20)]
    entries = [ClassifierEntry(100 - n, at_port(bit, 1), Block(2, 1, 1)) for n, bit in enumerate(bits)]
    regions = Regions(entries)
    wide = TernaryMatch(0, 0)
    assert regions.leak(2, 2, wide, Rewrite(1 << SHIFT, 1 << SHIFT), 1) is None, "the slice owns nothing at port 2"
    assert regions.leak(PRODUCTION_NUMBER, 2, wide, UNCHANGED, 1) is not None


@pytest.mark.parametrize(("most", "known"), [(4, True), (3, False)])
def test_question_is_too_hard_beyond_a_number_of_parts(most: int, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A match of four bits leaves four parts of all headers, which the next entry decides."""
    monkeypatch.setattr(region, "MAX_PARTS", most)
    four = TernaryMatch(15 << SHIFT, 15 << SHIFT)
    entries = [ClassifierEntry(9, four, Block(2, 1, 1)), ClassifierEntry(8, TernaryMatch(0, 0), Block(2, 1, 1))]
    leaking = Regions(entries).leak(2, None, TernaryMatch(0, 0), UNCHANGED, 1)
    assert (leaking is None) is known
    others = [ClassifierEntry(9, four, Block(3, 1, 1)), ClassifierEntry(8, TernaryMatch(0, 0), Block(3, 1, 1))]
    assert Regions(others).owns_some(2, 1, TernaryMatch(0, 0)) is not known, "yes if that is too hard to tell"


def test_port_is_whole_by_an_entry_of_all_packets_alone() -> None:
    everything, some = TernaryMatch(0, 0), TernaryMatch(1 << SHIFT, 1 << SHIFT)
    regions = Regions(
        [ClassifierEntry(9, at_port(everything, 1), Block(2, 1, 1)), ClassifierEntry(8, some, Block(3, 1, 1))]
    )
    assert [regions.whole(number, port) for number in (2, 3) for port in (1, 2)] == [True, False, False, False]
    assert [Regions([]).whole(number, 1) for number in (PRODUCTION_NUMBER, 2)] == [True, False]


@pytest.mark.parametrize("seed", seeds(50))
def test_bits_are_written_or_unknown_by_what_came_last(seed: int) -> None:
    rng = random.Random(seed)
    rewrite, expected = UNCHANGED, dict[int, int | None]()
    for _ in range(6):
        bits, value = rng.randrange(16), rng.randrange(16)
        is_set = rng.random() < 0.5
        rewrite = rewrite.set(value, bits) if is_set else rewrite.forget(bits)
        expected |= {bit: value >> bit & 1 if is_set else None for bit in range(4) if bits >> bit & 1}
    assert rewrite.mask == sum(1 << bit for bit, value in expected.items() if value is not None)
    assert rewrite.unknown == sum(1 << bit for bit, value in expected.items() if value is None)
    assert rewrite.value == sum(value << bit for bit, value in expected.items() if value)
    assert rewrite.changed is bool(expected)


@pytest.mark.parametrize("seed", seeds(100))
def test_ports_of_one_kind_have_one_flowspace(seed: int) -> None:
    """Few different entries, so that ports have the same ones, above or below one of every port."""
    rng = random.Random(seed)
    some = [TernaryMatch(0, 0), TernaryMatch(1 << SHIFT, 1 << SHIFT)]
    entries = []
    for priority in range(6, 0, -1):
        match, port = rng.choice(some), rng.choice([None, *PORTS])
        match = match if port is None else at_port(match, port)
        entries.append(ClassifierEntry(priority, match, Block(rng.randrange(2, 4), 1, 1)))
    regions = Regions(entries)
    for one, other in product(PORTS, PORTS):
        same = all(owner(entries, one, h) == owner(entries, other, h) for h in HEADERS)
        assert same or regions.kind(one) != regions.kind(other)
        leaks = any(regions.leak(n, one, TernaryMatch(0, 0), UNCHANGED, other) is not None for n in range(1, 4))
        assert leaks is not same
