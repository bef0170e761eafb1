"""The faults that scripts/mutate.py puts into a module."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "mutate.py"
SOURCE = '''
def last(of: list[int], most: int = 3) -> int:
    """Words."""
    if len(of) > most and not_empty(of):
        of.sort(reverse=True)
        of.pop()
    for each in sorted(of):
        if 0 < each < 9:
            break
    return at([n for n in of if n], [1, -most], most | 4)
'''


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return module


def test_faults_are_of_all_kinds_and_each_changes_the_module() -> None:
    mutants = script().mutants
    found = mutants(SOURCE)
    assert {each.words.partition(":")[0] for each in found} == {
        "flip", "off by one", "drop", "negate", "and/or", "swap statements", "swap items", "no operand", "no condition",
        "no item", "no argument", "no bound", "never", "always", "counterpart", "opposite",
    }  # fmt: skip
    clean = ast.unparse(ast.parse(SOURCE))
    sources = [each.source for each in found]
    assert clean not in sources and len(set(sources)) == len(sources)
    assert [each.number for each in found] == list(range(len(found)))
    assert found == mutants(SOURCE)


def test_each_part_of_a_condition_can_be_left_out() -> None:
    source = "def f(a, b, c):\n    return a and b and g(a | b, a < b < c, [x for x in a if x])\n"
    bodies = {each.source.partition("return ")[2] for each in script().mutants(source) if each.words.startswith("no ")}
    whole = "g(a | b, a < b < c, [x for x in a if x])"
    assert bodies == {
        f"b and {whole}",
        f"a and {whole}",
        "a and b",
        *(f"a and b and {whole.replace('a | b', kept)}" for kept in "ab"),
        *(f"a and b and {whole.replace('a < b < c', kept)}" for kept in ("a < b", "b < c")),
        f"a and b and {whole.replace(' if x', '')}",
    }


def test_tests_of_every_listed_module_exist() -> None:
    mutate = script()
    for module, tests in mutate.NEAREST.items():
        assert importlib.util.find_spec(module) is not None
        assert all((mutate.UNIT / name).is_file() for name in tests)


def test_equivalent_faults_are_left_out_and_each_must_be_one_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate = script()
    every = mutate.mutants(SOURCE)
    monkeypatch.setattr(
        mutate, "EQUIVALENT", {("m", "drop: [of.sort(reverse=True)]"): "why", ("other", "and/or"): "why"}
    )
    assert [each for each in every if each not in mutate.worth_trying("m", every)] == [
        each for each in every if each.words.startswith("drop: [of.sort(reverse=True)]")
    ]
    for words in ("drop: ", "no such fault"):
        monkeypatch.setattr(mutate, "EQUIVALENT", {("m", words): "why"})
        with pytest.raises(SystemExit, match="expected one"):
            mutate.worth_trying("m", every)
