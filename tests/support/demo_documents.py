"""Documents of demos, for tests that look at single checks: as they are beside what the machine gave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from not_made import not_made

from hyroads.mininet.demos.counter_check import Judgement, expected, judge_runs
from hyroads.mininet.reference import TOO_SLOW

# A demo on a machine that is too slow runs this many times, then its tests are not made.
TRIES = 3
PASSED, FAILED, NOT_MADE = 0, 1, 2
_SPOILT = frozenset({"ok", "ratio", "measured"})


class NotJudged(dict[str, Any]):
    """A check that the machine spoilt: a test that looks at what was measured is not made."""

    def __getitem__(self, key: str) -> Any:
        """The entry; the exception of ``not_made`` where it is a measured one."""
        if key in _SPOILT:
            raise not_made(f": {TOO_SLOW}, {self['what'].strip()} was not judged")
        return super().__getitem__(key)


def counter_checks_of(text: str) -> list[dict[str, Any]]:
    """The counter-checks of the document that is last in ``text``; none if there is no such document."""
    try:
        document = json.loads(text.strip().splitlines()[-1])
        return list(document.get("counter_checks", []))
    except (ValueError, IndexError, AttributeError):
        return []


def status_of(runs: Sequence[tuple[int, str, str]]) -> int | None:
    """The exit status that runs of a demo have together, the last of which has just ended; None: it runs again.

    Each run has its exit status and what it wrote to stdout and stderr. Outcomes of the machine are ``NOT_MADE``.
    """
    status, _, error = runs[-1]
    found = [counter_checks_of(each) for _, each, _ in runs]
    if not (status == FAILED and found[-1]) and not (status == NOT_MADE and TOO_SLOW in error):
        return status
    judgement = judge_runs(found)
    if judgement is not Judgement.UNDECIDED:
        return PASSED if judgement is Judgement.HOLDS else FAILED
    return NOT_MADE if len(runs) >= TRIES else None


def judged(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its checks as they were judged.

    A rate that holds beside the plain lane has the ratio that it has beside it, with the demos' allowance; a failure
    stays as it is.
    """
    entries = {each["what"]: each for each in document.get("counter_checks", [])}
    if not entries:
        return document
    return {**document, "checks": [_judged(check, entries.get(check["what"])) for check in document["checks"]]}


def _judged(check: dict[str, Any], entry: dict[str, Any] | None) -> dict[str, Any]:
    if entry is None or entry["counts"]:
        return check
    beside = entry["beside"]
    if beside is None:
        return NotJudged(check)
    ratio = beside if beside >= 1 else min(1.0, beside / expected(entry["reference"]))
    return {**check, "ok": True, "ratio": ratio, "measured": check["theory"] * ratio}
