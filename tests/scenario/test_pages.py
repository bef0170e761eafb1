"""Pages of the documentation that need root, typed line by line in a network namespace of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_session import follow, needs_root, pages
from prometheus import program

# What these say is tested elsewhere too; the longest pages are typed at night.
AT_NIGHT = {"first-slice", "hand-over", "prometheus"}
PAGES = [
    pytest.param(page, id=page.stem, marks=pytest.mark.nightly if page.stem in AT_NIGHT else ())
    for page in pages("tutorials", "how-to")
    if needs_root(page)
]


@pytest.fixture
def namespace() -> Iterator[tuple[str, ...]]:
    """What enters an empty network namespace with a loopback: all ports of the documentation are free there."""
    name = f"hr-docs-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield ("nsenter", f"--net=/run/netns/{name}")
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, namespace: tuple[str, ...]) -> None:
    if "scripts/prometheus.sh" in page.read_text():
        # Unpacked here, for in there is no network.
        program("prometheus")
    follow(page, tmp_path, namespace)
