"""The runs of models: the same for a seed, of many kinds, shortened where they fail, with the command that repeats."""

from __future__ import annotations

import random

import pytest
from swarm import events, swarm

KINDS = ("a", "b", "c", "d")


def test_runs_have_kinds_and_weights_of_their_own() -> None:
    rows = [events(random.Random(seed), KINDS, 40) for seed in range(60)]
    assert rows == [events(random.Random(seed), KINDS, 40) for seed in range(60)]
    kinds = [frozenset(kind for kind, _ in row) for row in rows if len(row) > 20]
    assert len(set(kinds)) > 6 and all(kinds)
    assert all("a" in {kind for kind, _ in events(random.Random(s), KINDS, 900, ("a",))} for s in range(5))


def test_failure_is_shortened_and_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(_: int, row: list[tuple[str, int]]) -> None:
        kinds = [kind for kind, _ in row]
        assert "b" not in kinds or "d" not in kinds[kinds.index("b") :], "d after b"

    monkeypatch.setenv("HYROADS_SEED", "7")
    monkeypatch.setenv("HYROADS_RUNS", "50")
    with pytest.raises(AssertionError) as raised:
        swarm(1, lambda rng: events(rng, KINDS, 40), play)
    said = str(raised.value)
    assert "d after b" in said and said.partition("after [")[2].partition("]")[0].count("(") == 2
    seed = int(said.split("HYROADS_SEED=")[1].split(maxsplit=1)[0])
    monkeypatch.setenv("HYROADS_SEED", str(seed))
    monkeypatch.setenv("HYROADS_RUNS", "1")
    with pytest.raises(AssertionError) as again:
        swarm(1, lambda rng: events(rng, KINDS, 40), play)
    assert str(again.value) == said and 7 <= seed < 57
