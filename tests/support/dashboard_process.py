"""``hyroads dashboard`` as a process, and one browser for the tests of a module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually, free_ports

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
"""Where pages of the documentation find them (scripts/docs_site.py)."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def need_browser() -> None:
    """Skips the tests of a module where the extra ``dashboard``, Playwright or chromium is not installed."""
    for name in ("nicegui", "httpx_sse", "playwright"):
        pytest.importorskip(name, reason=f"{name} is not installed (scripts/bootstrap.sh --dev)")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (scripts/bootstrap.sh --dev)", allow_module_level=True)


class Dashboard:
    """Runs as a context; ``arguments`` are further ones."""

    def __init__(self, url: str, folder: Path, *arguments: str, tls: bool = False) -> None:
        [self.port] = free_ports(1)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.log, self.folder = folder / "dashboard.log", folder
        program = [sys.executable, "-m", "hyroads.controller.cli", "dashboard"]
        self.command = [*program, "--url", url, "--port", str(self.port), *arguments]

    def __enter__(self) -> Dashboard:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HYROADS_", "PYTEST_"))
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=environment, cwd=self.folder)
        try:
            eventually(lambda: self.process.poll() is not None or "hyroads dashboard: http" in self.log.read_text(), 60)
            assert self.process.poll() is None, self.log.read_text()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def browser() -> Iterator[Any]:
    """Debian's chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield found
        finally:
            found.close()


class Window:
    """A page of the dashboard; ``complaints`` are errors on its console, and requests to anywhere else."""

    def __init__(self, context: Any, url: str) -> None:
        self.url, self.page, self.complaints = url, context.new_page(), []
        self.page.set_default_timeout(60_000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", self.url.replace("http", "ws", 1))):
            self.complaints.append(f"request to {request.url}")

    def open(self, path: str = "/") -> None:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("nav")

    def drawn(self, kind: str = "links/") -> dict[str, str]:
        """By link: the series that draws it."""
        found: dict[str, list[str]] = self.page.evaluate(CHART_DATA)
        return {one: series for series, names in found.items() if series.startswith(kind) for one in names}

    def names(self, series: str) -> set[str]:
        return set(self.page.evaluate(CHART_DATA).get(series, []))

    def pixels(self, colour: tuple[int, int, int]) -> int:
        """How many pixels of the drawing are of this colour."""
        return int(self.page.evaluate(PIXELS, list(colour)) or 0)

    def place_of(self, series: str, name: str) -> Any:
        """Where a point is drawn, as coordinates of the chart."""
        return self.page.evaluate(POINT, [series, name])

    def click_point(self, series: str, name: str) -> None:
        x, y = self.page.evaluate(PIXEL_OF, [series, name])
        self.page.mouse.click(x, y)

    def screenshot(self, name: str) -> None:
        """For the documentation."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def until(self, what: Any, within_s: float = 40.0) -> Any:
        """The first true value; the browser works meanwhile."""
        for _ in range(int(within_s / 0.05)):
            value = what()
            if value:
                return value
            self.page.wait_for_timeout(50)
        raise AssertionError(f"not within {within_s} s: {value!r}; {self.page.inner_text('body')[:1000]}")


# Nothing while the page is on its way.
_CHART = """const element = document.querySelector('.hr-map');
  const chart = element && window.getElement && window.getElement(element.id.slice(1))?.chart;
  if (!chart) return {};"""
CHART_DATA = f"""() => {{ {_CHART}
  const found = {{}};
  for (const one of chart.getOption().series) found[one.id] = (one.data || []).map(each => each.name);
  return found; }}"""
POINT = f"""([series, name]) => {{ {_CHART}
  for (const one of chart.getOption().series) if (one.id === series)
    for (const each of one.data) if (each.name === name) return each.value;
  return null; }}"""
PIXEL_OF = f"""([series, name]) => {{ {_CHART}
  const of = chart.getOption().series.find(one => one.id === series).data.find(one => one.name === name);
  const point = chart.convertToPixel('grid', of.value);
  const box = document.querySelector('.hr-map').getBoundingClientRect();
  return [box.left + point[0], box.top + point[1]]; }}"""
PIXELS = """([red, green, blue]) => {
  const canvas = document.querySelector('.hr-map canvas');
  if (!canvas) return 0;
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let at = 0; at < data.length; at += 4)
    if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) count += 1;
  return count; }"""
