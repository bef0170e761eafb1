"""Whole processes: many silent connections from many addresses keep no friend out. Friends are counted, not timed."""

from __future__ import annotations

import http.client
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_process import free_ports
from dashboard_process import Dashboard
from silent_dialers import served_friends


def asked(port: int, path: str) -> bool:
    """Whether a page is answered with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, 20.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except http.client.HTTPException:
        return False
    finally:
        connection.close()


@pytest.fixture(autouse=True)
def usual_number_of_files() -> Iterator[None]:
    """Processes have the usual 1024 open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_dashboard(tmp_path: Path) -> None:
    pytest.importorskip("nicegui")
    [nothing] = free_ports(1)
    with Dashboard(f"http://127.0.0.1:{nothing}", tmp_path) as dashboard:
        assert asked(dashboard.port, "/")
        assert served_friends(dashboard.port, lambda: asked(dashboard.port, "/health"), friends=10) == 10
