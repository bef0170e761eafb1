"""Debian's Prometheus for tests, unpacked and not installed (scripts/prometheus.sh): its linter, and a real server on
loopback.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually, free_ports

ROOT = Path(__file__).resolve().parents[2]


@lru_cache
def program(name: str) -> str:
    """``prometheus`` or ``promtool``; skips where the package can't be had."""
    done = subprocess.run([ROOT / "scripts" / "prometheus.sh"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"needs Debian's package prometheus: {done.stderr.strip()}")
    found = shutil.which(name, path=done.stdout.strip())
    assert found is not None, done.stdout
    return found


def promtool(*words: str | Path, text: str | None = None) -> str:
    """What ``promtool`` says; fails if it finds anything wrong."""
    done = subprocess.run(
        [program("promtool"), *map(str, words)], input=text, text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A server with a configuration, as a context; its data are in ``folder``."""

    def __init__(self, folder: Path, configuration: Path) -> None:
        (self.port,) = free_ports(1)
        self._folder, self._configuration = folder, configuration
        self.log = folder / "prometheus.log"

    def __enter__(self) -> Prometheus:
        command = [
            program("prometheus"),
            f"--config.file={self._configuration}", f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--storage.tsdb.retention.time=1h", "--log.level=warn",
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        try:
            eventually(self._is_ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def get(self, path: str, **query: str | float) -> Any:
        """The data of an answer of the HTTP API."""
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[Any]:
        """The result of an expression now."""
        found: list[Any] = self.get("query", query=expression)["result"]
        return found

    def targets(self) -> dict[str, tuple[str, str]]:
        """By job and instance: health and last error."""
        active = self.get("targets", state="active")["activeTargets"]
        return {
            f"{one['labels']['job']} {one['labels']['instance']}": (one["health"], one["lastError"]) for one in active
        }

    def await_scrapes(self, count: int, seconds: float) -> None:
        """Until each target was read so often."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            read = self.query("min(count_over_time(up[1h]))")
            if read and float(read[0]["value"][1]) >= count:
                return
            time.sleep(0.2)
        raise AssertionError(f"not read {count} times within {seconds} s: {self.targets()}")
