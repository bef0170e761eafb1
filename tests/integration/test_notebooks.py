"""The notebooks of the documentation: whole, without results of somebody else's, and they run from top to bottom."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

# As a kernel does: one module for all cells, and the value of a last line that is an expression is shown.
RUNNER = """
import ast, sys, types
module = types.ModuleType("__main__")
sys.modules["__main__"] = module
for number, cell in enumerate(sys.stdin.read().split("\\0")):
    tree = ast.parse(cell, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), module.__dict__)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), module.__dict__)
        if value is not None:
            print(repr(value))
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4 and notebook["nbformat_minor"] >= 4 and "kernelspec" in notebook["metadata"]
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("markdown", "code") and isinstance(cell["metadata"], dict)
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input="\0".join(cells),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout
    assert "residential: +" in said and "rates.pdf" in said and "## Published and ours" in said


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["studies"]
