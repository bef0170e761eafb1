"""A box finds controllers by multicast DNS, on real packets between network namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from controller_process import eventually

from hyroads.controller.runtime.announcer import COMMAND

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

ASK = """
import json
from hyroads.controller.box import discovery
from hyroads.controller.box.discovery import Places, find_controllers
discovery.WITHIN_S = 1.0
found = find_controllers(Places(resolver="/none", leases=()))
print(json.dumps([[each.url, each.by] for each in found]))
"""


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Namespaces: a box with two interfaces, and on each a machine."""
    tag = f"hr-found-{os.getpid()}"
    spaces = [f"{tag}-{each}" for each in ("box", "one", "two")]
    with ExitStack() as stack:
        for each in spaces:
            run("ip", "netns", "add", each)
            stack.callback(run, "ip", "netns", "del", each)
            run("ip", "-n", each, "link", "set", "lo", "up")
        for number, each in enumerate(spaces[1:], 1):
            ends = ("name", f"eth{number}", "netns", spaces[0]), ("name", "eth0", "netns", each)
            run("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])
            for space, name, host in ((spaces[0], f"eth{number}", 2), (each, "eth0", 1)):
                run("ip", "-n", space, "address", "add", f"192.0.{number}.{host}/24", "dev", name)
                run("ip", "-n", space, "link", "set", name, "up")
        yield spaces


@contextmanager
def announced(space: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    command = ["ip", "netns", "exec", space, *COMMAND]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"addresses": [address], "port": 8080}).encode() + b"\n")
        process.stdin.flush()
        yield process
        process.stdin.close()
        assert process.wait(10) == 0


def found(space: str) -> list[list[str]]:
    answer: list[list[str]] = json.loads(run("ip", "netns", "exec", space, sys.executable, "-c", ASK))
    return sorted(answer)


def test_a_box_finds_each_controller_that_names_itself_on_its_networks(names: list[str]) -> None:
    box, one, two = names
    assert found(box) == []
    with announced(one, "192.0.1.1"):
        eventually(lambda: found(box) == [["https://192.0.1.1:8080", "multicast DNS"]])
        with announced(two, "192.0.2.1"):
            urls = ["https://192.0.1.1:8080", "https://192.0.2.1:8080"]
            eventually(lambda: [url for url, _ in found(box)] == urls)
    # The end of a process withdraws its name.
    assert found(box) == []
