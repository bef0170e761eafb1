"""A walk of 300 rows through SNMPVisor beside the same walk at snmpd itself (root; a namespace of its own).

    python benchmarks/snmpvisor.py [--rounds 15]

The device has 60 interfaces, of which the slice owns every second one; it walks over ten columns of ifTable, 300
rows. Directly, the same rows are walked: those of an snmpd view that has nothing else. Times are those of net-snmp's
tools less the time of a request for one variable, which is mostly the start of the tool.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMESPACE = "hr-snmpvisor-bench"
INTERFACES, COLUMNS = 60, range(1, 11)
DEVICE, VISOR = "127.0.0.1:1610", "127.0.0.1:1161"
ENTRY = "1.3.6.1.2.1.2.2.1"
V3 = (
    "-v3",
    "-l",
    "authPriv",
    "-u",
    "lab",
    "-a",
    "SHA-256",
    "-A",
    "password-of-lab",
    "-x",
    "AES",
    "-X",
    "privacy-of-lab",
)
TARGET = 2.0


def inside(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", "netns", "exec", NAMESPACE, *command], text=True, capture_output=True, **options)


def timed(tool: str, access: tuple[str, ...], peer: str, oids: list[str]) -> tuple[float, int]:
    """Seconds for all walks, and how many rows they gave."""
    rows, began_s = 0, time.perf_counter()
    for oid in oids:
        done = inside(tool, *access, "-m", "", "-Oqn", "-t", "5", "-r", "0", peer, oid)
        rows += sum(line.startswith(".") for line in done.stdout.splitlines())
    return time.perf_counter() - began_s, rows


def start(*command: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["ip", "netns", "exec", NAMESPACE, *command], stdin=subprocess.DEVNULL, **options)


def measure(rounds: int, directory: Path) -> int:
    names = [f"if{number}" for number in range(INTERFACES)]
    mine = names[::2]
    inside("ip", "link", "set", "lo", "up", check=True)
    for name in names:
        inside("ip", "tuntap", "add", "dev", name, "mode", "tap", check=True)
    listed = json.loads(inside("ip", "-j", "link", check=True).stdout)
    index = {each["ifname"]: each["ifindex"] for each in listed}
    views = "".join(f"view mine included .{ENTRY}.{c}.{index[name]}\n" for c in COLUMNS for name in mine)
    user = "createUser lab SHA-256 password-of-lab AES privacy-of-lab\nrouser -s usm lab authpriv -V mine\n"
    (directory / "snmpd.conf").write_text(
        f"agentAddress udp:{DEVICE}\nrwcommunity device default\nrocommunity direct default -V mine\n{views}{user}"
    )
    slice_user = {"name": "lab", "password": "password-of-lab", "privacy_password": "privacy-of-lab"}
    (directory / "visor.json").write_text(
        json.dumps(
            {
                "devices": {
                    "ap": {"address": DEVICE, "community": "device", "interfaces": {n: {"owner": "lab"} for n in mine}}
                },
                "slices": {"lab": {"community": "slice", "user": slice_user}},
            }
        )
    )
    (directory / "visor.json").chmod(0o600)
    state = {**os.environ, "SNMP_PERSISTENT_DIR": str(directory / "state"), "MIBS": ""}
    snmpd = start("snmpd", "-f", "-C", "-c", str(directory / "snmpd.conf"), "-Lf", "/dev/null", env=state)
    command = [sys.executable, "-m", "hyroads.controller.cli", "snmpvisor", "--config", str(directory / "visor.json")]
    visor = start(*command, stderr=subprocess.DEVNULL)
    try:
        return table(rounds)
    finally:
        for process in (visor, snmpd):
            process.terminate()
        for process in (visor, snmpd):
            process.wait(10)


def table(rounds: int) -> int:
    until_s = time.monotonic() + 15
    while timed("snmpget", ("-v2c", "-c", "slice"), VISOR, [f"{ENTRY[:-6]}.1.0"])[1] < 1 and time.monotonic() < until_s:
        time.sleep(0.2)
    print(f"{'walk':<28}{'rows':>6}{'snmpd ms':>10}{'visor ms':>10}{'ratio':>8}{'target':>8}")
    worst = 0.0
    for what, tool, direct, through in (
        ("v2c, GETNEXT", "snmpwalk", ("-v2c", "-c", "direct"), ("-v2c", "-c", "slice")),
        ("v2c, GETBULK of 10", "snmpbulkwalk", ("-v2c", "-c", "direct"), ("-v2c", "-c", "slice")),
        ("v3 authPriv, GETNEXT", "snmpwalk", V3, V3),
        ("v3 authPriv, GETBULK of 10", "snmpbulkwalk", V3, V3),
    ):
        figures = {}
        for peer, access in ((DEVICE, direct), (VISOR, through)):
            one = statistics.median(timed("snmpget", access, peer, [f"{ENTRY}.1.2"])[0] for _ in range(rounds))
            walks = [timed(tool, access, peer, [ENTRY]) for _ in range(rounds)]
            figures[peer] = 1e3 * (statistics.median(seconds for seconds, _ in walks) - one)
            rows = walks[0][1]
            figures[peer] *= 300 / max(rows, 1)
        ratio = figures[VISOR] / figures[DEVICE]
        worst = max(worst, ratio)
        print(f"{what:<28}{300:>6}{figures[DEVICE]:>10.1f}{figures[VISOR]:>10.1f}{ratio:>8.2f}{TARGET:>8.1f}")
    print(f"worst ratio {worst:.2f}, target {TARGET:.1f}")
    return 0 if worst <= TARGET else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return measure(rounds, Path(folder))
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
