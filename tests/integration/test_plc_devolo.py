"""An access point reads a devolo adapter over the network, by the library ``devolo-plc-api``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import devolo_adapter
import pytest

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

ADDRESS = "192.0.2.20"
READ = """
import json, sys
from hyroads.controller.access_point.model import RadioError
from hyroads.controller.access_point.plc import Plc
from hyroads.controller.access_point.plc_devolo import DevoloReader
for password in sys.argv[1:]:
    try:
        reading = Plc(DevoloReader("192.0.2.20", password)).read(0.0)
        print(json.dumps([[each.mac, each.tx_capacity_kbps, each.modulation] for each in reading.neighbours]))
    except RadioError as error:
        print(json.dumps(str(error)))
"""


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def spaces() -> Iterator[tuple[str, str]]:
    """Namespaces of an access point and of its adapter."""
    tag = f"hr-devolo-{os.getpid()}"
    box, adapter = f"{tag}-box", f"{tag}-plc"
    with ExitStack() as stack:
        for each in (box, adapter):
            run("ip", "netns", "add", each)
            stack.callback(run, "ip", "netns", "del", each)
            run("ip", "-n", each, "link", "set", "lo", "up")
        run("ip", "link", "add", "name", "eth1", "netns", box, "type", "veth", "peer", "name", "eth0", "netns", adapter)
        for space, name, address in ((box, "eth1", "192.0.2.1"), (adapter, "eth0", ADDRESS)):
            run("ip", "-n", space, "address", "add", f"{address}/24", "dev", name)
            run("ip", "-n", space, "link", "set", name, "up")
        yield box, adapter


@contextmanager
def adapter(space: str, password: str = "") -> Iterator[None]:
    command = ["ip", "netns", "exec", space, sys.executable, devolo_adapter.__file__, ADDRESS, password]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        process.stdin.close()
        assert process.wait(20) == 0


def read(space: str, *passwords: str) -> list[object]:
    lines = run("ip", "netns", "exec", space, sys.executable, "-c", READ, *passwords).splitlines()
    return [json.loads(line) for line in lines]


def test_an_adapter_gives_the_capacity_to_each_other_one(spaces: tuple[str, str]) -> None:
    box, there = spaces
    with adapter(there):
        (found,) = read(box, "")
    assert found == [
        ["b8:27:eb:41:c0:a1", 765088, "BLE 1300, G.hn as AV 200"],
        ["00:0b:3b:c3:a4:e8", 47441, "BLE 80, G.hn as AV 200"],
    ]


def test_a_wrong_password_is_one_line(spaces: tuple[str, str]) -> None:
    box, there = spaces
    with adapter(there, "secret"):
        right, wrong = read(box, "secret", "other")
    assert isinstance(right, list) and len(right) == 2
    assert wrong == f"adapter {ADDRESS} wants another password"
