"""The process of all scripted devices of a campus (``scripted_campus``), from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import scripted_campus
from controller_process import ControllerProcess


class Devices:
    """The process of all scripted devices."""

    def __init__(
        self,
        network: Path,
        *controllers: ControllerProcess,
        radios: bool,
        moving: float | None = None,
        arrivals: bool = True,
    ) -> None:
        openflow, agents = (str(one.openflow) for one in controllers), (str(one.agents) for one in controllers)
        ports = ["--openflow", *openflow, "--agents", *agents]
        command = [sys.executable, scripted_campus.__file__, str(network), *ports]
        command += [] if radios else ["--no-radios"]
        command += [] if arrivals else ["--no-arrivals"]
        command += [] if moving is None else ["--moving", str(moving)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"op": operation, **arguments}), file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
