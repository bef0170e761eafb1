"""The words of the project: no identifier and no page of docs/ uses a word that only its authors understand."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = frozenset(
    "desk office keeper journey carrying kept fabric governor corridor confined asker upkeep leavings greeting".split()  # noqa: SIM905
)
ANYWHERE = re.compile("|".join(sorted(WORDS)), re.IGNORECASE)
FOLDERS = ("benchmarks", "controller", "dashboard", "dataplane/src", "mininet", "plugins", "rest", "slices", "tests")
# Identifiers that may hold such a word, and why.
ALLOWED = {
    "office": "the demo's and the network's name",
    "office22": "a network of the study: a real office floor",
    "office22_panels": "the same, with its power lines",
    "wide_office": "the same, made larger",
    "greeting": "HTTP and SNMP peers greet, by their standards",
}
# In prose and in the names of tests "kept" is plain English, and an office is a building.
PLAIN = {"kept", "office"}
PROSE = ("benchmarks", "tests")


def _words(identifier: str) -> set[str]:
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)
    return {part.lower().removesuffix("s") if part.lower() != "leavings" else "leavings" for part in parts}


def private_words(identifier: str, plain: Set[str] = frozenset()) -> set[str]:
    return set() if identifier in ALLOWED else _words(identifier) & (WORDS - plain)


def python_identifiers(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def rust_identifiers(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line).split("//")[0]
        for name in re.findall(r"[A-Za-z_]\w*", code):
            yield number, name


def found_in(folder: str) -> list[str]:
    hits, plain = [], PLAIN if folder in PROSE else set()
    for path in sorted((ROOT / folder).rglob("*")):
        readers = {".py": python_identifiers, ".rs": rust_identifiers}
        if path.suffix in readers and path.is_file():
            place = path.relative_to(ROOT)
            hits += [f"{place}: file name" for _ in private_words(path.stem, plain)]
            text = path.read_text(encoding="utf-8")
            # Most files have none of the words anywhere, and need not be taken apart.
            names = readers[path.suffix](text) if ANYWHERE.search(text) else ()
            hits += [f"{place}:{line}: {name}" for line, name in names if private_words(name, plain)]
    return hits


@pytest.mark.parametrize("folder", FOLDERS)
def test_identifiers_use_the_words_of_the_field(folder: str) -> None:
    hits = found_in(folder)
    assert not hits, "\n".join(hits)


def test_docs_use_the_words_of_the_field() -> None:
    hits = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            prose = re.sub(r"https?://\S+", "", line)
            bad = _words(prose) & (WORDS - PLAIN)
            hits += [f"{path.relative_to(ROOT)}:{number}: {', '.join(sorted(bad))}"] if bad else []
    assert not hits, "\n".join(hits)


def test_words_are_found_inside_names() -> None:
    assert private_words("FlowDesk") == {"desk"}
    assert private_words("_office_of") == {"office"}
    assert private_words("KEPT_NOTES") == {"kept"}
    assert private_words("keepers") == {"keeper"}
    assert not private_words("office22") and not private_words("helpdeskless")
