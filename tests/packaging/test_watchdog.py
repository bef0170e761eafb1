"""Each process that a unit watches tells a real notify socket that it lives, and does not when it hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from controller_process import NETWORK, free_ports

from hyroads.controller.files.programs import program_path

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
WATCHDOG_S = 0.6
HANG_S = 2.0
# It computes, and does not come back to its loop for a while: what nobody planned for looks like this.
HYROADS = f"""
import signal, time
def hang(*_):
    until_s = time.monotonic() + {HANG_S}
    while time.monotonic() < until_s:
        pass
signal.signal(signal.SIGUSR1, hang)
from hyroads.controller.cli.main import main
raise SystemExit(main())
"""


def command(name: str, folder: Path) -> list[str]:
    """What runs, with files of its own in ``folder``."""
    ports = free_ports(3)

    def file(document: object) -> str:
        (folder / "settings.json").write_text(json.dumps(document))
        (folder / "settings.json").chmod(0o600)
        (folder / "settings.json").chmod(0o600)
        return str(folder / "settings.json")

    program = [sys.executable, "-c", HYROADS]
    if name == "controller":
        listen = {key: {"port": port} for key, port in zip(("openflow", "agents", "rest"), ports, strict=True)}
        return [*program, name, "--config", file({"network": str(NETWORK), "listen": listen})]
    if name == "slicer":
        slices = {"slices": [{"name": "all", "controllers": ["tcp:127.0.0.1:6653"]}]}
        (folder / "slices.json").write_text(json.dumps(slices))
        settings = {"slices": "slices.json", "listen": {"openflow": {"port": ports[0]}, "control": "control"}}
        return [*program, name, "--config", file(settings)]
    if name == "snmpvisor":
        devices = {"ap": {"address": f"127.0.0.1:{ports[0]}", "community": "device"}}
        settings = {"listen": f"127.0.0.1:{ports[1]}", "devices": devices, "slices": {"all": {"community": "all"}}}
        return [*program, name, "--config", file(settings)]
    if name == "ap-agent":
        radios = [{"name": "none0", "technology": "wifi", "backend": "linux-wifi"}]
        agent = file({"node": "a", "interfaces": radios})
        return [*program, name, "--config", agent, "--channel", f"127.0.0.1:{ports[0]}"]
    if name == "waypoint":
        (folder / "tokens").write_text(f"laptop1 {'0123456789abcdef' * 2}\n")
        (folder / "tokens").chmod(0o600)
        where = ["--run-directory", str(folder / "run"), "--state-directory", str(folder / "state")]
        listen = ["--listen", f"127.0.0.1:{ports[0]}", "--tokens", str(folder / "tokens")]
        return [*IN_A_NAMESPACE, *program, "client", "waypoint", *listen, *where]
    if name == "guest-network":
        guests = file({"interface": "guest0", "uplink": "wan0", "state_directory": str(folder / "state")})
        devices = "ip link add guest0 type veth peer name guest1 && ip link add wan0 type veth peer name wan1"
        return [*IN_A_NAMESPACE, "sh", "-c", f'{devices} && exec "$@"', "sh", *program, name, "--config", guests]
    assert name == "edge", f"no command for the unit of {name}"
    edge = program_path("hyroads-edge")
    assert edge is not None, "hyroads-edge is not built"
    options = [
        "--node",
        "a",
        "--access",
        "tap:a-acc",
        "--network",
        "tap:a-net",
        "--controller",
        f"127.0.0.1:{ports[0]}",
    ]
    return ["unshare", "--net", edge, *options]


IN_A_NAMESPACE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@contextmanager
def watched(name: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The process, and what a service manager hears of it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, (folder / "log").open("wb") as log:
        manager.bind(str(folder / "notify"))
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": f"{WATCHDOG_S * 1e6:.0f}",
        }
        process = subprocess.Popen(command(name, folder), env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            yield process, manager
        finally:
            process.kill()
            process.wait()


def hear(manager: socket.socket, word: bytes, within_s: float) -> bool:
    """Whether it is said in time; what is said before it does not count."""
    manager.settimeout(within_s)
    try:
        while word not in manager.recv(1000):
            pass
    except TimeoutError:
        return False
    return True


WATCHED = sorted(u.stem.removeprefix("hyroads-").rstrip("@") for u in UNITS.glob("*") if "WatchdogSec" in u.read_text())


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root")
@pytest.mark.parametrize("name", WATCHED)
def test_a_process_that_hangs_is_silent(name: str, tmp_path: Path) -> None:
    with watched(name, tmp_path) as (process, manager):
        assert hear(manager, b"READY=1", 30.0), (tmp_path / "log").read_text()
        assert hear(manager, b"WATCHDOG=1", 10.0) and hear(manager, b"WATCHDOG=1", 10.0)
        hang, end = (signal.SIGSTOP, signal.SIGCONT) if name == "edge" else (signal.SIGUSR1, None)
        process.send_signal(hang)
        # What it said before it hung may still be under way.
        hear(manager, b"WATCHDOG=1", WATCHDOG_S / 3)
        assert not hear(manager, b"", WATCHDOG_S * 1.5), f"{name} hangs and says that it lives"
        if end is not None:
            process.send_signal(end)
        assert hear(manager, b"WATCHDOG=1", HANG_S + 10.0), "it goes on"
        process.terminate()
        if name != "ap-agent":
            assert hear(manager, b"STOPPING=1", 10.0)
        assert process.wait(10) in (0, -signal.SIGTERM)
