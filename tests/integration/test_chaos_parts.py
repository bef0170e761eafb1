"""What chaos stands on: a clock that jumps, disks that are full, and streams that account for each packet."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hyroads.mininet.chaos import faults
from hyroads.mininet.chaos.faults import CLOCK_SOURCE, COMPILER
from hyroads.mininet.chaos.plan import Event, Fault, Group, Kind, Part
from hyroads.mininet.chaos.run import Outcome, verdict
from hyroads.mininet.chaos.streams import PING, TCP, UDP, Account
from hyroads.mininet.programs import EmulationError, run


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason="needs a C compiler")
def test_a_clock_jumps_and_only_that_of_the_day(tmp_path: Path) -> None:
    library, offset = tmp_path / "clock.so", tmp_path / "offset"
    run(COMPILER, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), str(CLOCK_SOURCE))
    offset.write_bytes(struct.pack("=q", -86400))
    program = (
        "import sys, time\n"
        "for line in sys.stdin:\n    time.sleep(0.001); print(time.time(), time.monotonic(), flush=True)\n"
    )
    more = {"LD_PRELOAD": str(library), "HYROADS_CHAOS_CLOCK": str(offset)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True, env={**os.environ, **more}
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for seconds in (-86400, 3600, 0):
            with offset.open("r+b") as file:
                file.write(struct.pack("=q", seconds))
            process.stdin.write("\n")
            process.stdin.flush()
            of_day, monotonic = map(float, process.stdout.readline().split())
            assert of_day - time.time() == pytest.approx(seconds, abs=10)
            assert monotonic == pytest.approx(time.monotonic(), abs=10)
        process.stdin.close()


@pytest.fixture
def disk() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    run("mount", "-t", "tmpfs", "-o", "size=1m", "hyroads-test", str(folder))
    yield folder
    run("umount", str(folder))
    folder.rmdir()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_disk_is_full_and_has_room_again(disk: Path) -> None:
    (disk / "old").write_bytes(bytes(10_000))
    mend = faults._filled(disk)
    with pytest.raises(OSError, match="No space"):
        (disk / "new").write_bytes(bytes(10_000))
    assert (disk / "old").read_bytes() == bytes(10_000)
    mend()
    (disk / "new").write_bytes(bytes(500_000))
    with pytest.raises(EmulationError):
        faults._filled(disk.parent)


def test_each_packet_is_accounted_for() -> None:
    account = Account(UDP)
    numbers = [account.send(0.1 * n) for n in range(10)]
    for number in numbers[:5] + numbers[7:] + numbers[:1]:
        account.arrive(number, 2.0)
    told = account.told("x", 0.0, 0.95)
    assert (told["sent"], told["lost"], told["doubled"]) == (10, 2, 0)
    assert account.told("x", 0.0, 3.0)["doubled"] == 1
    assert account.told("x", 0.0, 0.55)["lost"] == 1
    # One that was only late is not lost.
    account.arrive(numbers[5], 5.0)
    assert account.told("x", 0.0, 1.0)["lost"] == 1
    account.forget(1.0)
    assert account.told("x", 0.0, 1.0) == {
        "name": "x",
        "kind": UDP,
        "sent": 0,
        "lost": 0,
        "doubled": 0,
        "arrived": 0,
        "broken": 0,
    }


def test_what_tcp_has_sent_is_never_forgotten() -> None:
    for kind, left in ((TCP, 1), (PING, 0)):
        account = Account(kind)
        account.send(0.0)
        account.forget(10.0)
        assert len(account.missing) == left


def test_the_verdict_counts_what_went_wrong() -> None:
    event = Event(1, (Fault(Part(Group.AGENT, "a"), Kind.KILL),), 1.0)
    good = Outcome(event, 0.0, 1.0, 1.5, "", 0.1, 0.0)
    bad = Outcome(
        event,
        2.0,
        3.0,
        None,
        "agent a does not run",
        0.1,
        0.0,
        ["2 exceptions: x", "agent a: 90 descriptors, 9 at first"],
    )
    assert good.ok and not bad.ok
    assert "not back: agent a does not run" in bad.line() and bad.document()["back_s"] is None
    counted = {"events": 2, "unhealed": 1, "exceptions": 1, "leaks": 1, "wrong": 2, "slow": 0}
    assert verdict([good, bad]) == counted
