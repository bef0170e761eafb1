"""Pages of the documentation that need no root, typed line by line. Those that do are in tests/scenario."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_session import follow, needs_root, pages

PAGES = [page for page in pages("tutorials", "how-to") if not needs_root(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path)
