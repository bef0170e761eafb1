"""``hyroads emulate --dashboard`` on real packets, in a real browser."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from controller_process import eventually, free_ports
from dashboard_process import Window, browser, need_browser
from network_names import network_name

need_browser()
NAME = network_name("pages")
RED = (0xD4, 0x00, 0x00)
PLC = {"ab-plc", "ab-plc~"}
WIFI = {"ab-wifi", "ab-wifi~", "bc-wifi", "bc-wifi~"}


@pytest.fixture
def running(lab: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str, str]]:
    # NiceGUI is another below pytest.
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    port, api = free_ports(2)
    found = lab.emulate(NAME, "--cli", "--dashboard", str(port), "--publish", str(api), at_prompt=True)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: found.process.poll() is not None or answers(url), 60)
        assert found.process.poll() is None, found.process.communicate()
        yield found, url, f"http://127.0.0.1:{api}/api/v1/live"
        found.process.terminate()
        assert found.process.wait(20) == 130
        assert lab.leftovers(NAME) == []
    finally:
        found.close()


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=2).status_code == 200
    except requests.RequestException:
        return False


def inside(node: str, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(["ip", "netns", "exec", f"hr-{NAME}-{node}", *command], stdout=subprocess.PIPE, text=True)


def loaded(window: Window) -> set[str]:
    return {link for link, state in window.drawn().items() if not state.endswith(("/idle", "/unknown", "/down"))}


@contextmanager
def traffic() -> Iterator[None]:
    """14 Mb/s from a to c."""
    server = inside("c", "iperf3", "-s", "-1", "--forceflush")
    assert server.stdout is not None
    assert "listening" in server.stdout.readline() + server.stdout.readline()
    client = inside("a", "iperf3", "-u", "-b", "14M", "-t", "60", "-c", "10.0.0.3")
    try:
        yield
    finally:
        for one in (client, server):
            one.kill()
            one.communicate()


def slots(live: str) -> tuple[int, float]:
    """Slots that took place, and the rate that is delivered, Mb/s."""
    document = requests.get(live, timeout=2).json()
    delivered = document["columns"]["flows"].index("delivered_mbps")
    return document["slot"]["count"], sum(row[delivered] or 0.0 for row in document["flows"].values())


def check_without_effect(process: Any, live: str) -> None:
    """The controller goes on while the dashboard hangs, with connections that nobody reads, and after it was killed."""
    [dashboard] = [pid for pid, line in process.processes().items() if " dashboard --url " in line]
    _, before_mbps = slots(live)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(dashboard, number)
        count, began_s = slots(live)[0], time.monotonic()
        time.sleep(3.0)
        after, mbps = slots(live)
        assert after - count >= 0.9 * 10 * (time.monotonic() - began_s) - 1, "slots of 100 ms"
        assert mbps >= 0.9 * before_mbps


def test_links_that_carry_traffic_and_those_that_are_cut_are_drawn_so(running: tuple[Any, str, str]) -> None:
    process, url, live = running
    with browser() as chromium:
        window = Window(chromium.new_context(viewport={"width": 1280, "height": 900}), url)
        window.open()
        window.until(lambda: set(window.drawn().values()) == {"links/plc/idle", "links/wifi/idle"})
        with traffic():
            # Traffic goes from a to c only, but keeps the media busy in both directions.
            window.until(lambda: loaded(window) == PLC | WIFI)
            window.screenshot("network")
            process.process.stdin.write("cut ab-plc\n")
            process.process.stdin.flush()
            window.until(lambda: window.drawn()["ab-plc"] == "links/plc/down" and window.pixels(RED) > 50)
            window.until(lambda: loaded(window) == WIFI)
            window.screenshot("cut")
            window.open("/flow?id=f1")
            window.until(lambda: "Mb/s" in window.page.inner_text("table"))
            window.page.wait_for_timeout(3000)
            window.screenshot("flow")
            window.open()
            window.until(window.drawn)
        window.until(lambda: loaded(window) == set())
        assert window.complaints == []
        with traffic():
            window.until(lambda: loaded(window) == WIFI)
            check_without_effect(process, live)
