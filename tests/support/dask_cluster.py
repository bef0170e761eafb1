"""A Dask cluster on loopback: a scheduler and workers, each a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_START_S = 60.0


@dataclass
class Cluster:
    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def cluster(workers: int, folder: Path, protocol: str = "tcp", options: Sequence[str] = ()) -> Iterator[Cluster]:
    """Ends with all of its processes. ``options`` are those of TLS, for scheduler and workers."""
    address = f"{protocol}://127.0.0.1:{free_port()}"
    processes: list[subprocess.Popen[bytes]] = []
    # What tests share can be imported by workers, too.
    env = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[2]}"}

    def start(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:], *options]
        with (folder / f"dask-{len(processes)}.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=env)
        processes.append(process)
        return process

    port = address.rsplit(":", 1)[1]
    try:
        scheduler = start(
            "dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--protocol",
            protocol,
            "--no-dashboard",
            "--no-show",
        )
        _await_port(int(port))
        started = [
            # Without a nanny a worker that is killed does not come back.
            start(
                "dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1",
                "--protocol", protocol, "--local-directory", tempfile.mkdtemp(dir=folder),
            )
            for _ in range(workers)
        ]  # fmt: skip
        yield Cluster(address, scheduler, started)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _await_port(port: int) -> None:
    until = time.monotonic() + _START_S
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        assert time.monotonic() < until, "the scheduler does not listen"
        time.sleep(0.1)
