"""Every unsafe function in Rust says what its caller promises. Why a block is sound is for clippy to ask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTION = re.compile(r"\bunsafe (?:extern \"C\" )?fn \w")


def without_reason(path: Path) -> Iterator[str]:
    lines = path.read_text().splitlines()
    for at, line in enumerate(lines):
        if not FUNCTION.search(line):
            continue
        above = at
        while above and re.match(r"\s*(//|#\[)", lines[above - 1]):
            above -= 1
        if not re.search(r"SAFETY: |# Safety", "\n".join(lines[above:at])):
            yield f"{path.relative_to(ROOT)}:{at + 1}: {line.strip()}"


def test_every_unsafe_function_says_what_it_relies_on() -> None:
    files = sorted((ROOT / "dataplane" / "src").rglob("*.rs"))
    assert sum(len(FUNCTION.findall(file.read_text())) for file in files) > 20
    assert [each for file in files for each in without_reason(file)] == []


def test_lint_refuses_an_unsafe_block_without_a_reason() -> None:
    assert "-D clippy::undocumented_unsafe_blocks" in (ROOT / "scripts" / "test.sh").read_text()
