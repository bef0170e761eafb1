"""A controller that is told of nothing but nodes and technologies is killed: measuring anew costs no packet."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from typing import Any

PINGS, INTERVAL_S = 900, 0.02


def test_no_packet_is_lost_while_a_measuring_controller_is_killed_and_comes_back(lab: Any) -> None:
    running = lab.emulate("it-measured", "--measured", "--discover", "--noise", "0.1")
    time.sleep(3)
    ping = subprocess.Popen(
        ["ip", "netns", "exec", "hr-it-measured-a", "ping", "-q", "-c", str(PINGS), "-i", str(INTERVAL_S), "10.0.0.3"],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(2)
    controllers = [pid for pid, command in running.processes().items() if "controller --config" in command]
    assert len(controllers) == 1
    os.kill(controllers[0], signal.SIGKILL)
    output, _ = ping.communicate(timeout=PINGS * INTERVAL_S + 30)
    again = [pid for pid, command in running.processes().items() if "controller --config" in command]
    assert again and again != controllers, "started again by the emulation"
    sent, received = map(int, re.findall(r"(\d+) packets transmitted, (\d+) received", output)[0])
    assert (sent, received) == (PINGS, PINGS)
