"""What a service manager is told, over a real socket."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest

from hyroads.controller.framework.service_manager import ServiceManager


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_manager_hears_what_happens(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@hyroads-test-{os.getpid()}"
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind("\0" + name[1:] if name.startswith("@") else name)
        channel.settimeout(1)
        manager = ServiceManager(environment)
        assert environment == {"HOME": "/"}, "children do not speak for their parent"
        assert manager.watchdog_s == 3.0
        assert manager.ready("two\nlines") and channel.recv(100) == b"READY=1\nSTATUS=two lines"
        before_us = time.monotonic_ns() // 1000
        assert manager.reloading()
        first, second = channel.recv(100).decode().splitlines()
        assert first == "RELOADING=1"
        assert before_us <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
        assert manager.alive() and channel.recv(100) == b"WATCHDOG=1"
        assert manager.stopping() and channel.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_without_a_manager_nothing_happens(environment: dict[str, str]) -> None:
    manager = ServiceManager(environment)
    assert not manager.ready() and not manager.watchdog_s


@pytest.mark.parametrize("given", [{"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}])
def test_the_watchdog_of_another_process_is_none_of_ours(given: dict[str, str]) -> None:
    assert not ServiceManager(dict(given)).watchdog_s


def test_a_manager_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    name = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(name))
        manager = ServiceManager({"NOTIFY_SOCKET": str(name)})
        began_s = time.monotonic()
        assert not all(manager.alive() for _ in range(5000))
        assert time.monotonic() - began_s < 5


def test_turns_of_a_loop_are_told_at_most_three_times_in_the_managers_patience(tmp_path: Path) -> None:
    name = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(name))
        channel.setblocking(False)
        manager = ServiceManager({"NOTIFY_SOCKET": str(name), "WATCHDOG_USEC": "60000000"})
        for _ in range(50):
            manager.turned()
        assert channel.recv(100) == b"WATCHDOG=1"
        with pytest.raises(BlockingIOError):
            channel.recv(100)


def test_an_event_loop_tells_that_it_turns(tmp_path: Path) -> None:
    name = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(name))
        channel.setblocking(False)

        async def run() -> None:
            watching = asyncio.create_task(ServiceManager(environment).watch())
            for _ in range(3):
                assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(channel, 100), 10) == b"WATCHDOG=1"
            assert not watching.done()

        environment = {"NOTIFY_SOCKET": str(name), "WATCHDOG_USEC": "30000"}
        asyncio.run(run())
        environment = {"NOTIFY_SOCKET": str(name)}
        asyncio.run(ServiceManager(environment).watch())
