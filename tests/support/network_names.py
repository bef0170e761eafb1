"""Names of emulated networks, which no two workers of pytest share: networks of one name cannot run side by side."""

from __future__ import annotations

import os


def network_name(label: str) -> str:
    """The name of a network of this worker. Tests of one worker run one after the other, so they may share a label."""
    return f"t-{label}-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
