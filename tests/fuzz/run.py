"""Fuzzes one target with Atheris (libFuzzer, guided by what of the decoder an input reaches).

    python tests/fuzz/run.py TARGET [options and folders of libFuzzer]
    python tests/fuzz/run.py TARGET --plain FILE...        runs these inputs once, without Atheris

``scripts/fuzz.py`` starts it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
import sys
import traceback
import warnings
from functools import partial
from pathlib import Path

import targets

HERE = Path(__file__).resolve().parent
FOUND = 77
"""The status of a program that has found something, as libFuzzer's."""
warnings.filterwarnings("ignore")


def main() -> None:
    """See the module."""
    name, *rest = sys.argv[1:]
    if rest[:1] == ["--plain"]:
        found = targets.load(name)
        for path in rest[1:]:
            found.function(Path(path).read_bytes())
            print(f"{path}: nothing found")
        return
    import atheris  # type: ignore[import-not-found]

    watched = _watched(name)
    with atheris.instrument_imports(include=watched, enable_loader_override=False):
        for package in watched:
            importlib.import_module(package)
        found = targets.load(name)
    atheris.Setup([sys.argv[0], *rest], partial(_once, found.function, rest))
    atheris.Fuzz()


def _once(function: targets.Function, options: list[str], data: bytes) -> None:
    """One input; one with a finding is kept, and ends the program."""
    try:
        function(data)
    except BaseException:  # noqa: BLE001 - whatever it is
        traceback.print_exc()
        prefix = next((each.partition("=")[2] for each in options if each.startswith("-artifact_prefix=")), "./")
        path = Path(f"{prefix}found-{hashlib.sha256(data).hexdigest()[:16]}")
        path.write_bytes(data)
        print(f"FOUND {path}", file=sys.stderr, flush=True)
        os._exit(FOUND)


def _watched(name: str) -> list[str]:
    """What is instrumented has to be known before the target is imported: its line in its module says it."""
    tree = ast.parse((HERE / f"{targets.HOMES[name]}.py").read_text(encoding="utf-8"))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        words = [each.value for each in call.args if isinstance(each, ast.Constant)]
        if getattr(call.func, "id", "") == "target" and words[0] == name:
            return [f"hyroads.{each}" for each in words[1:]]
    raise SystemExit(f"fuzz: no target {name}")


if __name__ == "__main__":
    main()
