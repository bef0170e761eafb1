"""The dashboard in a real browser, before a controller whose figures the tests set."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from box_rig import Rig, settings_of
from dashboard_process import Dashboard, Window, browser, need_browser
from fake_controller import FakeController
from waypoint_certificates import make_certificate

from hyroads.controller.core.netfile import parse
from hyroads.rest import boxes
from hyroads.rest.contract import Token

need_browser()


def _link(one: str, source: str, target: str, technology: str, capacity_mbps: float) -> dict[str, Any]:
    ends = {"from": source, "to": target, "technology": technology, "capacity_mbps": capacity_mbps, "both": True}
    return {"id": one, **ends}


# The triangle, with a link more: the client has somewhere to go.
NETWORK = parse(
    {
        "name": "lab",
        "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}},
        "links": [
            _link("ab-plc", "a", "b", "plc", 10),
            _link("ab-wifi", "a", "b", "wifi", 15),
            _link("bc-wifi", "b", "c", "wifi", 30),
            _link("ac-wifi", "a", "c", "wifi", 6),
        ],
        "interference": {"rule": "technology"},
    },
    "lab",
)
RED = (0xD4, 0x00, 0x00)
MEMORY_MINUTES = float(os.environ.get("HYROADS_DASHBOARD_MINUTES", "10"))
PAGES = ("/", "/flow", "/clients", "/slices", "/sessions", "/boxes", "/events", "/health", "/what-if")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """The controller's own service of boxes; a test says when switches and agents connect."""
    return Rig(settings_of(tmp_path_factory.mktemp("authority")), NETWORK)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, rig: Rig) -> Iterator[tuple[FakeController, Dashboard]]:
    with FakeController(NETWORK, resources=lambda: boxes.blueprints(rig.service)) as fake:
        fake.flow("f1", [["ab-plc", "bc-wifi"], ["ab-wifi", "bc-wifi"]], 0)
        fake.flow("f2", [["ab-wifi"]], 1.0)
        fake.place("c", "b", "wifi")
        with Dashboard(fake.url, tmp_path_factory.mktemp("dashboard")) as dashboard:
            yield fake, dashboard


@pytest.fixture(scope="module")
def shared(chromium: Any, lab: tuple[FakeController, Dashboard]) -> Iterator[Window]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    yield Window(context, lab[1].url)
    context.close()


@pytest.fixture
def window(lab: tuple[FakeController, Dashboard], shared: Window) -> Iterator[Window]:
    """The page *Network* of an idle network, once that is drawn; no errors on the console until the end."""
    for link in NETWORK.links:
        lab[0].set_link(link.id, up=1, rate_mbps=0, busy_percent=0)
    shared.complaints.clear()
    shared.open()
    shared.until(lambda: set(shared.drawn().values()) == {"links/plc/idle", "links/wifi/idle"})
    yield shared
    assert shared.complaints == []


def test_all_pages_load_whole_for_all_and_ask_nobody_else(window: Window) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    for path in PAGES:
        window.open(path)
        window.page.wait_for_selector("nav a[aria-current=page]")
        assert window.page.get_attribute("nav a[aria-current=page]", "href") == path
        window.until(lambda: "lab" in window.page.inner_text("header"))
        found = axe.Axe().run(window.page).response["violations"]
        serious = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found
                   if one["impact"] in ("serious", "critical")]  # fmt: skip
        assert serious == [], path


def test_when_traffic_begins_the_right_links_change(lab: Any, window: Window) -> None:
    before = window.drawn()
    lab[0].set_link("ab-plc", rate_mbps=9.0, busy_percent=90)
    window.until(lambda: window.drawn()["ab-plc"] == "links/plc/b100")
    assert {one: of for one, of in window.drawn().items() if before[one] != of} == {"ab-plc": "links/plc/b100"}
    lab[0].set_link("ab-plc", rate_mbps=0, busy_percent=0)
    window.until(lambda: window.drawn() == before)


def test_a_flow_lights_exactly_its_links(window: Window) -> None:
    assert window.names("flow") == set()
    window.page.click("text=f1:")
    window.until(lambda: window.names("flow") == {"ab-plc", "ab-wifi", "bc-wifi"})
    window.page.click("text=f2:")
    window.until(lambda: window.names("flow") == {"ab-wifi"})
    assert "ab-wifi" in window.page.inner_text("table[aria-label='paths of the flow']")
    window.page.click("text=f2:")
    window.until(lambda: window.names("flow") == set())


def test_a_cut_link_turns_red_and_comes_back(lab: Any, window: Window) -> None:
    assert window.pixels(RED) == 0
    lab[0].cut("ab-plc")
    window.until(lambda: window.pixels(RED) > 50)
    assert {one for one, of in window.drawn().items() if of.endswith("/down")} == {"ab-plc"}
    lab[0].restore("ab-plc")
    window.until(lambda: window.pixels(RED) == 0)


def test_a_client_is_handed_over_and_its_dot_moves(lab: Any, window: Window) -> None:
    before = window.until(lambda: window.place_of("clients", "c"))
    window.click_point("nodes", "c")
    window.until(lambda: "Client c" in window.page.inner_text(".hr-side"))
    window.until(lambda: "a/wifi" in window.page.inner_text(".hr-side .q-select"))
    window.page.click("button:has-text('Hand over')")
    [asked] = window.until(lambda: lab[0].handovers)
    assert asked["client"] == "c"
    assert asked["to"] == {"node": "a", "technology": "wifi"}
    window.until(lambda: window.place_of("clients", "c") not in (None, before))
    assert "a/wifi" in window.page.inner_text("table[aria-label='places of the client']")
    assert "b/wifi" in window.page.inner_text("table[aria-label='where the client was']")


def test_what_if_plans_beside_the_live_network(lab: Any, window: Window) -> None:
    window.open("/what-if")
    window.page.click("button:has-text('Compute')")
    table = "table[aria-label='theory']"
    window.until(lambda: "f1" in window.page.inner_text(table), 60)
    assert "Mb/s" in window.page.inner_text(table)


def test_a_flow_is_shown_over_time_and_exported(lab: Any, window: Window) -> None:
    window.open("/flow?id=f2")
    window.until(lambda: "1 Mb/s" in window.page.inner_text("table"))
    for form, begin in (("CSV", b"unix_time_s,"), ("SVG", b"<?xml"), ("PDF", b"%PDF")):
        with window.page.expect_download() as download:
            window.page.click(f"button:has-text('Export {form}')")
        exported = Path(download.value.path()).read_bytes()
        assert exported.startswith(begin)
        assert form != "CSV" or exported.count(b"\n") > 2


def test_events_are_shown_as_they_happen_and_filtered(lab: Any, window: Window) -> None:
    window.open("/events")
    lab[0].publish("flow.moved", id="<b>f9</b>", state="single")
    lab[0].publish("agent.down", node="b")
    window.until(lambda: "agent.down" in window.page.inner_text("table"))
    assert "<b>f9</b>" in window.page.inner_text("table")
    window.page.fill("input", "agent")
    window.until(lambda: "flow.moved" not in window.page.inner_text("table"))


def test_box_is_adopted_and_forgotten_and_shown_as_adopted_only_once_confirmed(
    lab: Any, window: Window, rig: Rig
) -> None:
    lab[0].documents["health"] = {
        "switches": [{"node": "a", "connected": True}, {"node": "b", "connected": False}], "agents": [],
    }  # fmt: skip
    window.open("/boxes")
    window.until(lambda: f"--pin {rig.service.pin()['pin']}" in window.page.inner_text("body"))
    rig.apply("box-1")
    pending, adopted = "table[aria-label='pending boxes']", "table[aria-label='adopted boxes']"
    window.until(lambda: "box-1" in window.page.inner_text(pending))
    window.page.click("button[aria-label='Adopt box-1']")
    dialog = window.page.get_by_role("dialog")
    ports = dialog.get_by_label("ports")
    window.until(lambda: "b" in dialog.locator(".q-select").inner_text().split())
    # What the controller refuses is shown, and nothing has changed.
    ports.fill("plc=nothing")
    dialog.get_by_role("button", name="Adopt").click()
    window.until(lambda: "plc: expected an interface of the box" in dialog.get_by_role("alert").inner_text())
    assert rig.service.document("box-1")["state"] == "pending"
    ports.fill("plc=b-plc")
    dialog.get_by_role("button", name="Adopt").click()
    window.until(lambda: "not connected yet: switch b, agent b" in window.page.inner_text(adopted))
    status = "[role=status]"
    assert "waits for switch b, agent b" in window.page.inner_text(status)
    rig.connect("b")
    rig.service.follow()
    window.until(lambda: window.page.inner_text(status) == "box-1 is adopted as b.")
    assert "not connected" not in window.page.inner_text(adopted)
    window.page.click("button[aria-label='Forget box-1']")
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="hidden")
    assert rig.service.names() == ("box-1",)
    window.page.click("button[aria-label='Forget box-1']")
    dialog.get_by_role("button", name="Forget").click()
    window.until(lambda: window.page.inner_text(status) == "box-1 is forgotten.")
    assert rig.service.names() == ()
    window.until(lambda: "box-1" not in window.page.inner_text(adopted))


def test_a_controller_that_goes_is_said_and_one_that_comes_back_is_shown(window: Window, lab: Any) -> None:
    fake = lab[0]
    banner = "[role=alert]"
    window.until(lambda: not window.page.is_visible(banner))
    fake.__exit__()
    window.until(lambda: window.page.is_visible(banner))
    assert "has not answered" in window.page.inner_text(banner)
    fake.closed, fake._wanted_port = False, fake.port
    fake.set_link("ab-plc", busy_percent=90)
    fake.__enter__()
    window.until(lambda: not window.page.is_visible(banner))
    window.until(lambda: window.drawn()["ab-plc"] == "links/plc/b100")


def test_a_stopped_dashboard_does_not_hold_the_controller_up(lab: Any, window: Window) -> None:
    fake, dashboard = lab
    dashboard.process.send_signal(signal.SIGSTOP)
    try:
        fake.publish("flow.moved", id="f1")
        assert fake.live().version
    finally:
        dashboard.process.send_signal(signal.SIGCONT)
    fake.set_link("ab-plc", busy_percent=90)
    window.until(lambda: window.drawn()["ab-plc"] == "links/plc/b100")


def _memory_mb(dashboard: Dashboard, windows: list[Window]) -> tuple[float, float]:
    """Of the server, and what all pages hold after a collection."""
    held = 0.0
    for window in windows:
        session = window.page.context.new_cdp_session(window.page)
        session.send("HeapProfiler.collectGarbage")
        held += session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
        session.detach()
    return psutil.Process(dashboard.process.pid).memory_info().rss / 1e6, held


@pytest.mark.nightly
def test_memory_of_four_browsers_and_of_the_server_does_not_grow(chromium: Any, tmp_path: Path) -> None:
    with FakeController(NETWORK) as fake, Dashboard(fake.url, tmp_path) as dashboard:
        fake.flow("f1", [["ab-plc", "bc-wifi"], ["ab-wifi", "bc-wifi"]], 0)
        windows = [Window(chromium.new_context(), dashboard.url) for _ in range(4)]
        for window, path in zip(windows, ("/", "/", "/flow?id=f1", "/events"), strict=True):
            window.open(path)
        samples: list[tuple[float, float]] = []
        begin_s, turn = time.monotonic(), 0
        while (gone := time.monotonic() - begin_s) < 60 * MEMORY_MINUTES:
            turn += 1
            fake.set_link("ab-plc", rate_mbps=turn % 10, busy_percent=turn * 7 % 100)
            fake.publish("flow.moved", id="f1", state="multipath")
            windows[0].page.wait_for_timeout(500)
            # Caches and the graphs' arrays grow to their size first.
            if gone > 15 * MEMORY_MINUTES and turn % 10 == 0:
                samples.append(_memory_mb(dashboard, windows))
        third = len(samples) // 3
        for which, column in zip(("server", "pages"), zip(*samples, strict=True), strict=True):
            before, after = (statistics.median(part) for part in (column[:third], column[-third:]))
            assert after < 1.1 * before, f"{which}: {before:.1f} MB, then {after:.1f} MB"
            print(f"{which}: {before:.1f} MB, then {after:.1f} MB")
        assert [window.complaints for window in windows] == [[], [], [], []]
        for window in windows:
            window.page.context.close()


def test_beyond_loopback_a_viewer_logs_in_and_sees_no_buttons(chromium: Any, tmp_path: Path, rig: Rig) -> None:
    tokens = (Token("ops", "admin-token", "admin"), Token("guest", "viewer-token", "viewer"))
    make_certificate(tmp_path, "pages", "127.0.0.1")
    file = tmp_path / "token"
    file.write_text("viewer-token")
    file.chmod(0o600)
    files = ("--cert", str(tmp_path / "pages.pem"), "--key", str(tmp_path / "pages.key"), "--token-file", str(file))
    arguments = (*files, "--listen", "0.0.0.0")
    rig.apply("box-2")
    with FakeController(NETWORK, tokens=tokens, resources=lambda: boxes.blueprints(rig.service)) as fake:
        fake.place("c", "b", "wifi")
        with Dashboard(fake.url, tmp_path, *arguments, tls=True) as dashboard:
            for token, buttons in (("viewer-token", 0), ("admin-token", 1)):
                context = chromium.new_context(ignore_https_errors=True)
                window = Window(context, dashboard.url)
                window.page.goto(dashboard.url)
                window.page.fill("#token", token)
                window.page.click("button")
                window.until(window.drawn)
                assert window.page.locator("button:has-text('Hand over')").count() == buttons
                assert window.page.evaluate("() => document.cookie") == ""
                window.open("/boxes")
                window.page.wait_for_selector("td:has-text('box-2')")
                assert window.page.locator("button:has-text('Adopt')").count() == buttons
                assert window.page.locator("button:has-text('Forget')").count() == buttons
                window.page.click("text=Log out")
                window.page.wait_for_selector("#token")
                assert window.complaints == []
                context.close()


@pytest.mark.parametrize("arguments", [["--listen", "0.0.0.0"], ["--port", "0"], ["--cert", "x"], ["--url", "ftp://x"]])
def test_bad_input_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hyroads.controller.cli", "dashboard", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("hyroads: ")
    assert done.stderr.count("\n") == 1
