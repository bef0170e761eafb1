"""Running ``hyroads`` commands with emulated networks, and looking at what is left of them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from demo_documents import NOT_MADE, judged, status_of
from not_made import not_made

from hyroads.mininet.reference import TOO_SLOW

HYROADS = [sys.executable, "-m", "hyroads.controller.cli"]
START_TIMEOUT_S = 40.0
# All runs that were made again together, in one worker: a machine that stays slow is not waited for.
AGAIN_S = 60.0
_again_s: list[float] = []
# Scenarios run side by side (scripts/test.sh): each holds its share of the lock "turn". A demo that is made again takes
# all of it, so that nothing runs beside it; who waits for that holds the door shut for those who come later.
_LOCKS = Path(tempfile.gettempdir()) / f"hyroads-scenarios-{os.geteuid()}"
_TURN, _DOOR = (_LOCKS.with_suffix(f".{name}").open("a") for name in ("turn", "door"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every scenario is real: it needs root."""
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.root)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Waits while somebody has to be alone."""
    fcntl.flock(_DOOR, fcntl.LOCK_EX)
    fcntl.flock(_TURN, fcntl.LOCK_SH)
    fcntl.flock(_DOOR, fcntl.LOCK_UN)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """The test has ended its networks."""
    fcntl.flock(_TURN, fcntl.LOCK_UN)


@contextmanager
def _alone() -> Iterator[None]:
    """Waits until no other test runs, and keeps them waiting."""
    fcntl.flock(_TURN, fcntl.LOCK_UN)
    fcntl.flock(_DOOR, fcntl.LOCK_EX)
    fcntl.flock(_TURN, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(_TURN, fcntl.LOCK_SH)
        fcntl.flock(_DOOR, fcntl.LOCK_UN)


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Whether ``condition`` became true in time."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def namespaces(network: str) -> list[str]:
    """Names of the network's namespaces that exist."""
    return [p.name for p in Path("/run/netns").glob(f"hr-{network}*")] if Path("/run/netns").exists() else []


def leftovers(network: str) -> list[str]:
    """All that exists of a network outside its own namespaces."""
    return namespaces(network) + [str(p) for p in Path("/run/hyroads").glob(f"{network}*")]


def alive(pids: list[int]) -> list[int]:
    """Which of the processes still run (a zombie does not)."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


class Running:
    """``hyroads emulate`` in the background, or another command; ``at_prompt`` if it waits for commands of Mininet."""

    def __init__(
        self, network: str, *arguments: str, file: str = "triangle", command: str = "emulate", at_prompt: bool = False
    ) -> None:
        self.network = network
        self.process = subprocess.Popen(
            [*HYROADS, command, file, "--name", network, "--publish", "0", *arguments],
            stdin=subprocess.PIPE if at_prompt else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        if at_prompt:
            lines = iter(self.process.stderr.readline, "")
            line = next((line for line in lines if line == "hyroads: ready\n"), "")
        else:
            line = self.process.stdout.readline()
            line = line if "runs" in line else ""
        if not line:
            self.process.kill()
            raise AssertionError(f"did not start: {self.process.communicate()}")

    def processes(self) -> dict[int, str]:
        """Process id (as this machine sees it) -> command line, of all that runs in the network's namespaces."""
        found = {}
        for name in namespaces(self.network):
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout
            for pid in map(int, pids.split()):
                try:
                    found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
        return found

    def pid_of(self, part: str) -> int:
        """The process of a part; ``owner``, ``init`` and ``worker`` are the three of the isolation."""
        if part == "owner":
            return self.process.pid
        if part in ("init", "worker"):
            parent = self.process.pid if part == "init" else self.pid_of("init")
            # The oldest: init has the children of those that ended, too.
            return min(pid for pid in self.processes() if parent_of(pid) == parent)
        return next(
            pid for pid, command in self.processes().items() if command.startswith(part) or f"/{part} " in command
        )

    def interrupt(self) -> int:
        """Ctrl-C from outside; returns the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(15)

    def close(self) -> None:
        """Ends it whatever its state."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def parent_of(pid: int) -> int:
    """Parent's process id, 0 if gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def children(parent: int) -> list[int]:
    """Process ids of the children of a process."""
    return [pid for path in Path("/proc").glob("[0-9]*") if parent_of(pid := int(path.name)) == parent]


def run_hyroads(
    *arguments: str, timeout_s: float = 60.0, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """A command, to its end; again, with nothing beside it, if the machine was too slow to believe what it found.

    Runs of a demo on a slow machine are judged together: the last one then has the exit status of them all.
    """
    runs: list[tuple[int, str, str]] = []
    while True:
        began_s = time.monotonic()
        with _alone() if runs else nullcontext():
            done = run_once(*arguments, timeout_s=timeout_s, prefix=prefix)
        if runs:
            _again_s.append(time.monotonic() - began_s)
        runs.append((done.returncode, done.stdout, done.stderr))
        status = status_of(runs)
        if status is not None and (status != NOT_MADE or TOO_SLOW not in done.stderr):
            done.returncode = status
            return done
        if status is not None or sum(_again_s) > AGAIN_S:
            raise not_made(f", {len(runs)} times: {(done.stderr.strip().splitlines() or [''])[-1]}")


def run_once(
    *arguments: str, timeout_s: float = 60.0, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """A command, to its end."""
    return subprocess.run(
        [*prefix, *HYROADS, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def last_json(text: str) -> dict[str, object]:
    """The document that is last on stdout; the checks of a demo as they are beside what the machine gave."""
    document = json.loads(text.strip().splitlines()[-1])
    assert isinstance(document, dict)
    return judged(document)


class Lab:
    """What the scenario tests are given: the helpers above, and the networks that a test started."""

    leftovers = staticmethod(leftovers)
    namespaces = staticmethod(namespaces)
    alive = staticmethod(alive)
    children = staticmethod(children)
    wait_for = staticmethod(wait_for)
    hyroads = HYROADS
    run_hyroads = staticmethod(run_hyroads)
    last_json = staticmethod(last_json)

    def __init__(self) -> None:
        self.started: list[Running] = []

    def emulate(self, network: str, *arguments: str, **more: Any) -> Running:
        """Starts a network in the background and waits until it runs; ``more`` as for :class:`Running`."""
        self.started.append(Running(network, *arguments, **more))
        return self.started[-1]


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A lab in which no network survives its test."""
    lab = Lab()
    yield lab
    for running in lab.started:
        running.close()
    from hyroads.mininet.run_directory import sweep

    def clean() -> bool:
        sweep()
        return not any(leftovers(running.network) for running in lab.started)

    assert wait_for(clean, 5.0)


@pytest.fixture(scope="session")
def hyroads() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command to its end."""
    return run_hyroads


@pytest.fixture(scope="session")
def document_of() -> Callable[[str], dict[str, object]]:
    """Reads the JSON document that is last on stdout."""
    return last_json
