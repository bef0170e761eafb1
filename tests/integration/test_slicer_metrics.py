"""``/metrics`` of the slicer: as the page says, and owners see their slices alone."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import metrics_page
from slicer_lab import slicer_lab

from hyroads.slices.core.model import token_hash

OWNER = "the token of an owner"
SLICES: list[dict[str, Any]] = [
    {"name": "red", "owner_token_sha256": token_hash(OWNER), "flowspace": [{"ports": ["p1", "p2"]}]}
]


def read(url: str, token: str | None = None) -> str:
    request = urllib.request.Request(f"{url}/metrics")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


def test_metrics_are_as_the_page_says_and_owners_see_their_own(tmp_path: Path) -> None:
    with slicer_lab(tmp_path, SLICES) as lab:
        lab.switch(1)
        whole, own = read(lab.url), read(lab.url, OWNER)
    assert metrics_page.check(whole, "All programs", "The slicer") > 10
    for text in (whole, own):
        assert 'hyroads_slice_rules{dp_id="0x1",slice="red"}' in text
    assert 'slice="production"' in whole and 'slice="production"' not in own
    metrics_page.lint(whole)
