"""benchmarks/scale.py leaves nothing behind when it is told to end, and tests that run side by side get other ports."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from controller_process import eventually
from not_made import needs_etcd

ROOT = Path(__file__).resolve().parents[2]
PICK = """
import random, sys
sys.path.insert(0, sys.argv[1])
random.seed(1)
from controller_process import free_ports
print(*free_ports(200), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("more", "programs"), [((), 2), (("--standby", "1"), 3)], ids=["alone", "with a standby"])
def test_what_it_started_ends_with_it(tmp_path: Path, more: tuple[str, ...], programs: int) -> None:
    if more:
        pytest.importorskip("etcd3gw")
        needs_etcd()
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--nodes", "4", "--flows", "2", *more]
    with (tmp_path / "said").open("w") as said:
        benchmark = subprocess.Popen([*command, "--seconds", "60"], stdout=said, stderr=said)
    process = psutil.Process(benchmark.pid)

    def begun() -> list[psutil.Process]:
        """Controllers, devices and etcd, once all are there."""
        found = process.children(recursive=True)
        return found if len(found) >= programs else []

    try:
        family = eventually(begun, 120.0)
        benchmark.terminate()
        assert benchmark.wait(60) == 128 + signal.SIGTERM, (tmp_path / "said").read_text()
        _, alive = psutil.wait_procs(family, 10)
        assert alive == []
    finally:
        for left in [*process.children(recursive=True), process] if benchmark.poll() is None else []:
            left.kill()
        benchmark.wait()


def test_processes_side_by_side_get_other_ports() -> None:
    support = str(ROOT / "tests" / "support")
    pipe = subprocess.PIPE
    pickers = [
        subprocess.Popen([sys.executable, "-c", PICK, support], stdin=pipe, stdout=pipe, text=True) for _ in range(3)
    ]
    try:
        ports = [int(port) for picker in pickers for port in picker.stdout.readline().split()]  # type: ignore[union-attr]
        assert len(ports) == len(set(ports)) == 600
    finally:
        for picker in pickers:
            picker.communicate()
