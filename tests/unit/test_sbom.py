"""The list of what HyRoads is made of has all that is pinned, and is the same each time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import sbom

ROOT = Path(__file__).parents[2]


def test_all_that_is_pinned_is_in_it_once() -> None:
    found = sbom.document()
    names = [part["bom-ref"] for part in found["components"]]
    assert len(set(names)) == len(names) > 150
    lock = tomllib.loads((ROOT / "dataplane" / "Cargo.lock").read_text())
    crates = {f"pkg:cargo/{p['name']}@{p['version']}" for p in lock["package"] if "source" in p}
    assert crates and crates <= set(names)
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if re.match(r"[A-Za-z]", line)]
    required = {part["name"] for part in found["components"] if part["scope"] == "required"}
    assert len(required & {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}) == len(lines)
    assert all(part["hashes"] for part in found["components"])
    assert "pkg:pypi/ryu@4.34" in names and "pkg:pypi/flask-smorest@0.47.0" in names


def test_it_has_what_cyclonedx_asks_for() -> None:
    found = sbom.document()
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found["serialNumber"])
    for part in (found["metadata"]["component"], *found["components"]):
        assert part["name"] and part["version"] and part["scope"] in ("required", "excluded")
        assert re.fullmatch(r"pkg:(pypi|cargo)/[^/@]+@[^/@]+", part["purl"])
        assert all(re.fullmatch(r"[0-9a-f]{64}", one["content"]) for one in part.get("hashes", ()))


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "sbom.py"), "--out"]
    for name in ("one", "two"):
        subprocess.run([*command, str(tmp_path / name / "sbom.json")], check=True, capture_output=True)
    text = (tmp_path / "one" / "sbom.json").read_text()
    assert text == (tmp_path / "two" / "sbom.json").read_text() and json.loads(text) == sbom.document()
