#!/usr/bin/env python3
"""The ledger of a run of scripts/test.sh: which tests passed, at which try, which were skipped or not made, and why.

    scripts/ledger.py add PART OUTCOME WHAT [REASON]      one line: a part, or a piece of one, that is no test of pytest
    scripts/ledger.py rust FILE TRY                       what ``cargo test`` printed; prints the tests that failed
    scripts/ledger.py show [--judge]                      the list, also as build/ledger.json

Each process that runs tests appends lines of JSON to a file of its own in $HYROADS_LEDGER (default: build/ledger;
tests/support/ledger_hooks.py does it for pytest). With ``--judge`` the exit status is 1 if more than 0.5 % of the tests
that ran passed at the second try only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("HYROADS_LEDGER") or ROOT / "build" / "ledger")
SUMMARY = ROOT / "build" / "ledger.json"
MOST_SECOND_TRIES = 0.005
PASSED, FAILED, SKIPPED, NOT_MADE = "passed", "failed", "skipped", "not made"
_RESULT = re.compile(r"^test result: \S+ (\d+) passed; \d+ failed; (\d+) ignored;", re.MULTILINE)
_FAILED_NAME = re.compile(r"^    ([A-Za-z0-9_:]+)$")


@dataclass(frozen=True)
class Line:
    """An outcome of a test, or of ``count`` tests of a program that does not name them."""

    part: str
    test: str
    outcome: str
    tried: int = 1
    reason: str = ""
    seconds: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class Summary:
    """All tests by their last outcome; ``second`` are those that failed first and passed then."""

    passed: int
    second: Sequence[Line]
    failed: Sequence[Line]
    skipped: Sequence[Line]
    not_made: Sequence[Line]

    @property
    def ran(self) -> int:
        """Tests that passed, at whichever try, or failed."""
        return self.passed + len(self.second) + sum(line.count for line in self.failed)

    @property
    def too_many(self) -> bool:
        """Whether more than the share ``MOST_SECOND_TRIES`` of the tests needed a second try."""
        return len(self.second) > MOST_SECOND_TRIES * self.ran


def summarise(lines: Iterable[Line]) -> Summary:
    """The last outcome of each test, and whether an earlier try had failed."""
    tries: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        tries.setdefault((line.part, line.test), []).append(line)
    passed, by_outcome = 0, {outcome: list[Line]() for outcome in ("second", FAILED, SKIPPED, NOT_MADE)}
    for found in tries.values():
        found.sort(key=lambda line: line.tried)
        last = found[-1]
        if last.outcome != PASSED:
            by_outcome[last.outcome].append(last)
        elif last.tried > 1:
            by_outcome["second"].append(last)
        else:
            passed += last.count
    return Summary(passed, by_outcome["second"], by_outcome[FAILED], by_outcome[SKIPPED], by_outcome[NOT_MADE])


def report(summary: Summary) -> str:
    """The last lines of ``make test``."""
    reasons = Counter[str]()
    for line in summary.skipped:
        reasons[line.reason] += line.count
    said = [f"passed: {summary.passed}"]
    share = len(summary.second) / max(1, summary.ran)
    said.append(f"passed at the second try: {len(summary.second)} ({share:.2%} of {summary.ran} that ran)")
    said += [f"    {line.part} {line.test} ({line.seconds:.1f} s)" for line in summary.second]
    said.append(f"failed: {sum(line.count for line in summary.failed)}")
    said += [f"    {line.part} {line.test}" for line in summary.failed]
    said.append(f"skipped: {reasons.total()}")
    said += [f"    {count} x {reason}" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])]
    said.append(f"not made: {len(summary.not_made)}")
    said += [f"    {line.part} {line.test}: {line.reason}" for line in summary.not_made]
    return "\n".join(said)


def document(summary: Summary) -> dict[str, Any]:
    """build/ledger.json."""
    lists = {name: getattr(summary, name) for name in ("second", FAILED, SKIPPED, "not_made")}
    entries = {name: [vars(line) for line in lines] for name, lines in lists.items()}
    return {"passed": summary.passed, "ran": summary.ran, "too_many_second_tries": summary.too_many, **entries}


def read(folder: Path) -> list[Line]:
    """All lines of all processes. The last line of a process that was killed may be incomplete: it is left out."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(Line(**json.loads(text)))
            except (ValueError, TypeError):
                print(f"hyroads test: {path.name}: an incomplete line", file=sys.stderr)
    return found


def rust(text: str, tried: int) -> tuple[list[Line], list[str]]:
    """The lines for what ``cargo test --quiet`` printed, and the names of the tests that failed."""
    names: list[str] = []
    for line in reversed(text.splitlines()):
        if line.strip() == "failures:":
            break
        if match := _FAILED_NAME.match(line):
            names.insert(0, match[1])
    totals = [(int(match[1]), int(match[2])) for match in _RESULT.finditer(text)]
    failed = names if any(line.strip() == "failures:" for line in text.splitlines()) else []
    lines = [Line("rust-test", name, FAILED, tried) for name in failed]
    if tried == 1 and totals:
        passed, ignored = (sum(column) for column in zip(*totals, strict=True))
        lines.append(Line("rust-test", "passed", PASSED, count=passed))
        if ignored:
            lines.append(Line("rust-test", "ignored", SKIPPED, reason="ignored by cargo test", count=ignored))
    return lines, failed


def append(lines: Iterable[Line]) -> None:
    """Adds lines to the file of this process."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"other-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(vars(line)) + "\n" for line in lines)


def _add_rust(path: Path, tried: int) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    lines, failed = rust(text, tried)
    if tried > 1:
        again = {line.test for line in read(FOLDER) if line.part == "rust-test" and line.outcome == FAILED}
        # A second run that did not come to its end has proved nothing.
        is_whole = _RESULT.search(text) is not None
        lines += [Line("rust-test", test, PASSED, tried) for test in sorted(again - set(failed)) if is_whole]
    append(lines)
    print("\n".join(failed))


def _show(judge: bool) -> int:
    summary = summarise(read(FOLDER))
    SUMMARY.parent.mkdir(exist_ok=True)
    SUMMARY.write_text(json.dumps(document(summary), indent=1), encoding="utf-8")
    print(report(summary))
    if not (judge and summary.too_many):
        return 0
    print(f"failed: more than {MOST_SECOND_TRIES:.1%} of the tests passed at the second try only")
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    for name in ("part", "outcome", "what"):
        add.add_argument(name)
    add.add_argument("reason", nargs="?", default="")
    of_rust = commands.add_parser("rust")
    of_rust.add_argument("file", type=Path)
    of_rust.add_argument("tried", type=int)
    commands.add_parser("show").add_argument("--judge", action="store_true")
    given = parser.parse_args(arguments)
    if given.command == "add":
        append([Line(given.part, given.what, given.outcome, reason=given.reason)])
    elif given.command == "rust":
        _add_rust(given.file, given.tried)
    else:
        return _show(given.judge)
    return 0


if __name__ == "__main__":
    sys.exit(main())
