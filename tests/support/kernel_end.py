"""One end of the kernel plane in the network namespace of this process: JSON commands on stdin, answers on stdout.

    python kernel_end.py client|waypoint STATE-FILE

A command is ``{"do": "install" | "refresh" | "flows" | "migrate" | "paths" | "learn" | "remove", ...}``. A client
follows the carriers of its interfaces by itself.
"""

from __future__ import annotations

import dataclasses
import json
import select
import sys
import time
from pathlib import Path
from typing import Any

from hyroads.controller.client.kernel_plane import KernelPlane, KernelWaypoint, link_events
from hyroads.controller.core.errors import HyroadsError

PORT = 6656


def answer(end: KernelPlane | KernelWaypoint, command: dict[str, Any]) -> Any:
    what = command.pop("do")
    if what == "install" and isinstance(end, KernelPlane):
        return end.install(command["document"], time.monotonic())
    if what == "flows":
        return [dataclasses.asdict(each) for each in end.flows()]
    if what == "refresh":
        return end.refresh(time.monotonic())
    return getattr(end, what)(**command)


def main() -> None:
    end = (KernelPlane if sys.argv[1] == "client" else lambda state: KernelWaypoint(state, PORT))(Path(sys.argv[2]))
    events = link_events()
    while True:
        ready = select.select([sys.stdin, events], [], [], 1.0)[0]
        if events in ready:
            events.recv(1 << 16)
        # Commands that come all the time do not keep it from looking at what the kernel has told.
        if isinstance(end, KernelPlane) and (events in ready or sys.stdin not in ready):
            end.refresh(time.monotonic())
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return
            begun_s = time.perf_counter()
            try:
                told = {"ok": answer(end, json.loads(line))}
            except HyroadsError as error:
                told = {"error": str(error)}
            print(json.dumps({**told, "took_s": time.perf_counter() - begun_s}), flush=True)


if __name__ == "__main__":
    main()
