"""docs/reference/metrics.md against what programs export, and Prometheus' own linter."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus import promtool
from prometheus_client.parser import text_string_to_metric_families

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \| ([\w, ]*)\| ([\w ]*)\|", re.MULTILINE)
_UNITS = {"bytes": "bytes", "seconds": "seconds", "ratio": "ratio", "second": "bytes per second"}


def listed(heading: str) -> dict[str, tuple[str, frozenset[str], str]]:
    """By metric of a part of the page: kind, labels and unit."""
    (part,) = [part for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE) if part.startswith(heading)]
    return {
        name: (kind, frozenset(filter(None, labels.strip().split(", "))), unit.strip())
        for name, kind, labels, unit in ROW.findall(part)
    }


def check(text: str, *headings: str, absent: tuple[str, ...] = ()) -> int:
    """The metrics of these parts of the page and no others are exported, but those that begin so, with their kinds,
    labels and units; how many of them have samples.
    """
    page = {name: row for heading in headings for name, row in listed(heading).items() if not name.startswith(absent)}
    families = list(text_string_to_metric_families(text))
    exported = {family.name + ("_total" if family.type == "counter" else ""): family for family in families}
    assert set(exported) == set(page), sorted(set(exported) ^ set(page))
    for name, family in exported.items():
        kind, labels, unit = page[name]
        assert family.type == kind, name
        assert unit == _UNITS.get(name.removesuffix("_total").rpartition("_")[2], ""), name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels, name
    return sum(bool(family.samples) for family in families)


def lint(text: str) -> None:
    """``promtool check metrics`` finds nothing."""
    assert promtool("check", "metrics", text=text) == ""
