"""``hyroads emulate --dashboard`` on real packets, in a real browser."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from controller_process import eventually, free_ports
from dashboard_process import Window, browser, need_browser

need_browser()
NAME = "t-pages"
RED = (0xD4, 0x00, 0x00)


@pytest.fixture
def running(lab: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    # NiceGUI is another below pytest.
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    [port] = free_ports(1)
    found = lab.emulate(NAME, "--cli", "--dashboard", str(port), at_prompt=True)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: found.process.poll() is not None or answers(url), 60)
        assert found.process.poll() is None, found.process.communicate()
        yield found, url
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


def test_links_that_carry_traffic_and_those_that_are_cut_are_drawn_so(running: tuple[Any, str]) -> None:
    process, url = running
    with browser() as chromium:
        window = Window(chromium.new_context(viewport={"width": 1280, "height": 900}), url)
        window.open()
        window.until(lambda: set(window.drawn().values()) == {"links/plc/idle", "links/wifi/idle"})
        server = inside("c", "iperf3", "-s", "-1", "--forceflush")
        assert server.stdout is not None
        assert "listening" in server.stdout.readline() + server.stdout.readline()
        client = inside("a", "iperf3", "-u", "-b", "14M", "-t", "60", "-c", "10.0.0.3")
        try:
            # Nothing goes the other way.
            window.until(lambda: loaded(window) == {"ab-plc", "ab-wifi", "bc-wifi"})
            window.screenshot("network")
            process.process.stdin.write("cut ab-plc\n")
            process.process.stdin.flush()
            window.until(lambda: window.drawn()["ab-plc"] == "links/plc/down" and window.pixels(RED) > 50)
            window.until(lambda: loaded(window) == {"ab-wifi", "bc-wifi"})
            window.screenshot("cut")
            window.open("/flow?id=f1")
            window.until(lambda: "Mb/s" in window.page.inner_text("table"))
            window.page.wait_for_timeout(3000)
            window.screenshot("flow")
            window.open()
            window.until(window.drawn)
        finally:
            for one in (client, server):
                one.kill()
                one.communicate()
        window.until(lambda: loaded(window) == set())
        assert window.complaints == []
