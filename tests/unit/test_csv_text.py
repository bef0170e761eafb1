"""No cell of a CSV file is a formula, whichever part of HyRoads writes it."""

from __future__ import annotations

import ast
import csv
import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hyroads.controller.core.csv_text import csv_text
from hyroads.controller.study.framework import Result, Table
from hyroads.controller.study.report import write
from hyroads.mininet.demos.checks import CheckedStage, DemoOptions

ROOT = Path(__file__).parents[2]
FOLDERS = ("controller", "rest", "slices", "dashboard", "mininet", "plugins", "benchmarks", "scripts")
SHARED = ROOT / "controller/core/csv_text.py"
OTHER_WAYS = {"writer", "DictWriter", "to_csv", "savetxt"}


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    """Name and content of each module that may write CSV."""
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if path != SHARED)
    texts = ((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in found)
    return tuple((name, ast.parse(text)) for name, text in texts if any(word in text for word in (".csv", *OTHER_WAYS)))


def calls(tree: ast.Module) -> set[str]:
    """The last part of the name of each function that is called."""
    found = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in found}


def names_csv(tree: ast.Module) -> bool:
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    # Names of files, and no prose.
    return any(text.endswith(".csv") and " " not in text for text in texts)


def written() -> Iterator[tuple[str, set[str]]]:
    return ((name, calls(tree)) for name, tree in modules() if names_csv(tree))


def test_every_csv_writer_uses_the_shared_function() -> None:
    found = dict(written())
    assert len(found) >= 7, found.keys()
    assert not {name for name, called in found.items() if not called & {"csv_text", "write_csv"}}


def test_no_other_module_writes_csv_in_another_way() -> None:
    assert not {name for name, tree in modules() if calls(tree) & OTHER_WAYS}


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t"], ids=["equals", "plus", "minus", "at", "tab"])
def test_text_that_begins_like_a_formula_gets_an_apostrophe(begin: str) -> None:
    text = f"{begin}cmd|' /C calc'!A0"
    head, cell = csv.reader(io.StringIO(csv_text([text], [[text]]), newline=""))
    assert head == cell == [f"'{text}"]


def test_carriage_returns_end_no_row() -> None:
    assert csv_text(["a"], [["\r=1+1"], ["x\r=1+1"], ["two\nlines"]]) == 'a\n\' =1+1\nx =1+1\n"two\nlines"\n'


def test_numbers_stay_numbers() -> None:
    rows = [[-1.5, -2, "-0.125", "+3", "-1e-05", None, True], ["-1-1", "-", "+1+cmd", "1", "a-b", "", False]]
    assert csv_text(list("abcdefg"), rows).splitlines()[1:] == [
        "-1.5,-2,-0.125,+3,-1e-05,,True",
        "'-1-1,'-,'+1+cmd,1,a-b,,False",
    ]


def test_ids_in_files_of_studies_and_demos_are_no_formulas(tmp_path: Path) -> None:
    bad = "=1+1"
    write(Result("study", "", [Table("rows", "Rows", ("flow",), ((bad,),))], [], [], []), tmp_path, plots=False)
    stage = CheckedStage("demo", DemoOptions(out=tmp_path))
    stage.write_csv("demo.csv", ["flow"], [[bad]])
    assert stage.files == [tmp_path / "demo.csv"]
    for name in ("rows.csv", "demo.csv"):
        assert (tmp_path / name).read_text(encoding="utf-8") == "flow\n'=1+1\n"
