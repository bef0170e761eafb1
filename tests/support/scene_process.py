"""A scenario's network in a process of its own, made again on a machine that is too slow to be believed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from not_made import not_made

from hyroads.controller.core.netfile import load_text
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.reference import TOO_SLOW, Reference
from hyroads.mininet.runner import RunOptions, run_network

Seen = dict[str, Any]
SEND = """
import socket, sys, time
address, port, burst, pause_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for _ in range(burst):
        try:
            out.sendto(bytes(1400), (address, port))
        except OSError:
            pass
    time.sleep(pause_s)
"""


@contextmanager
def udp_load(to: Iterable[tuple[Sequence[str], str, int]], burst: int, pause_s: float) -> Iterator[None]:
    """Datagrams of 1,400 bytes, a ``burst`` of them and then a pause, whatever becomes of them.

    ``to`` has what a command inside the sender begins with, an address and a port.
    """
    senders = [
        subprocess.Popen([*inside, sys.executable, "-c", SEND, address, str(port), str(burst), str(pause_s)])
        for inside, address, port in to
    ]
    try:
        yield
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()


def make(
    network: dict[str, Any],
    name: str,
    body: Callable[[Emulation], Seen],
    out: Path,
    options: EmulationOptions = EmulationOptions(),  # noqa: B008 - it is frozen
) -> int:
    """The whole network: ``out`` gets what ``body`` saw, and under ``slow`` why that can't be believed."""

    def work(emulation: Emulation) -> int:
        with Reference(emulation.directory, realtime=emulation.options.realtime) as reference:
            found = body(emulation)
        out.write_text(json.dumps({**found, "slow": reference.lane().why_slow}))
        return 0

    read = load_text(json.dumps(network), "network")
    how = RunOptions(publish=0, emulation=options)
    return run_network(read, name, work, how, lambda text: print(text, file=sys.stderr))


def see(file: str, out: Path, holds: Callable[[Seen], bool], *, tries: int, timeout_s: float) -> Seen:
    """What ``scene(out)`` of a test's module (its ``__file__``) saw.

    What does not hold on a machine that was slow is made again, and at last counts as not made.
    """
    folders = [str(Path(file).parent), str(Path(__file__).parent)]
    program = f"import sys; sys.path[:0] = {folders!r}; from {Path(file).stem} import scene; "
    command = [sys.executable, "-c", program + f"from pathlib import Path; sys.exit(scene(Path({str(out)!r})))"]
    for _ in range(tries):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
        assert done.returncode == 0, done.stderr[-4000:]
        found: Seen = json.loads(out.read_text())
        if not found["slow"] or holds(found):
            return found
    raise not_made(f": {TOO_SLOW}, {found['slow']}")
