"""docs/reference/metrics.md against what a running controller offers."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from controller_process import ControllerProcess
from prometheus_client.parser import text_string_to_metric_families

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*)\|", re.MULTILINE)


def test_the_page_lists_every_metric_with_its_kind_and_labels(tmp_path: Path) -> None:
    listed = {
        name: (kind, set(filter(None, labels.strip().split(", "))))
        for name, kind, labels in ROW.findall(PAGE.read_text())
    }
    with ControllerProcess(tmp_path, {"slices": {"research": {"wifi": 0.25}}}) as controller:
        answer = urllib.request.urlopen(f"http://127.0.0.1:{controller.port}/metrics", timeout=10)
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    offered = {family.name + ("_total" if family.type == "counter" else ""): family for family in families}
    assert set(offered) == set(listed)
    for name, family in offered.items():
        kind, labels = listed[name]
        assert family.type == kind, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels, name
