"""Two real radios of mac80211_hwsim, an access point and a station, with ``hyroads-medium --hwsim`` between them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_clients import MediumControl, connected
from wireless_rig import PROGRAMS, wait_for

from hyroads.mininet.programs import find_program

NAMESPACE = "hr-radio-sta"
ACCESS_POINT_IP, STATION_IP = "10.78.0.1", "10.78.0.2"
INSIDE = ["ip", "netns", "exec", NAMESPACE]
MHZ = 2412


@dataclass(frozen=True)
class Radio:
    """A radio of hwsim and its first interface."""

    interface: str
    phy: str
    mac: str
    hardware: str
    """The address by which the driver names the radio: the second of the two that it has."""


def radios() -> list[Radio]:
    """The radios that the kernel has in this namespace."""
    found = []
    for path in sorted(Path("/sys/class/net").glob("wlan*")):
        if (path / "device" / "driver").resolve().name == "mac80211_hwsim":
            phy = (path / "phy80211").resolve()
            mac, hardware = (phy / "addresses").read_text().split()[:2]
            found.append(Radio(path.name, phy.name, mac, hardware))
    return found


def missing() -> str:
    """What is not there to use two radios; empty if all is."""
    if os.geteuid() != 0:
        return "needs root"
    programs = [name for name in ("hostapd", "iw", "ip") if shutil.which(name, path=PROGRAMS) is None]
    if programs:
        return f"needs {', '.join(programs)}"
    return "" if len(radios()) >= 2 else "needs two radios of mac80211_hwsim (scripts/guest.sh --radios 2)"


def run(*command: str) -> str:
    """Output of a command; fails the test if the command does."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": PROGRAMS}, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass
class Air:
    """The access point ``ap``, the station ``sta`` in its namespace, and the medium's control socket."""

    ap: Radio
    sta: Radio
    medium: MediumControl
    process: subprocess.Popen[str]
    hostapd: subprocess.Popen[bytes]

    def set_links(self, **changes: Any) -> None:
        """Changes both directions."""
        for link in ("ap-sta", "sta-ap"):
            self.medium.set_link(link, **changes)

    def raw_stats(self) -> dict[str, Any]:
        """All that the medium tells, as it tells it."""
        return self.medium._request({"op": "stats"})  # the client leaves out what only radios have

    def associated(self) -> bool:
        """Whether the station has an access point."""
        return "Connected" in run(*INSIDE, "iw", "dev", self.sta.interface, "link")

    def associate(self) -> float:
        """The station joins; seconds that it took."""
        began_s = time.monotonic()
        assert wait_for(self._try_to_join), run(*INSIDE, "iw", "dev")
        return time.monotonic() - began_s

    def _try_to_join(self) -> bool:
        if self.associated():
            return True
        subprocess.run(
            [*INSIDE, "iw", "dev", self.sta.interface, "connect", "hyroads", str(MHZ)], capture_output=True, timeout=10
        )
        return bool(wait_for(self.associated, 0.5))

    def station(self, word: str) -> str:
        """What the station's driver counts about its access point under ``word``."""
        lines = run(*INSIDE, "iw", "dev", self.sta.interface, "station", "dump").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.strip().startswith(word))

    def ping_losses(self, count: int, interval_s: float) -> int:
        """How many of so many pings of the station the access point does not answer."""
        done = subprocess.run(
            [*INSIDE, "ping", "-q", "-n", "-c", str(count), "-i", str(interval_s), "-W", "2", ACCESS_POINT_IP],
            capture_output=True,
            text=True,
            timeout=120,
        )
        sent, received = (int(part.split()[0]) for part in done.stdout.split("statistics ---")[1].split(",")[:2])
        return sent - received

    def udp(self, offered_mbps: float, seconds: float, datagram_bytes: int = 1400) -> tuple[float, float]:
        """Rate in Mb/s at L2 payload that the access point gets of the station, and the share of datagrams lost."""
        server = subprocess.Popen(["iperf3", "-s", "-1", "-J"], stdout=subprocess.PIPE, text=True)
        try:
            assert wait_for(lambda: ":5201" in run("ss", "-ltn"))
            command = f"iperf3 -c {ACCESS_POINT_IP} -u -b {offered_mbps}M -l {datagram_bytes} -t {seconds} -O 1 -J"
            subprocess.run([*INSIDE, *command.split()], capture_output=True, timeout=120, check=True)
            report = json.loads(server.communicate(timeout=30)[0])
        finally:
            server.kill()
        # The last interval is cut short, the first one is the start of the queue.
        rows = [row["sum"] for row in report["intervals"]][1:-1]
        rate_mbps = sum(row["bits_per_second"] for row in rows) / len(rows) / 1e6
        lost, sent = sum(row["lost_packets"] for row in rows), sum(row["packets"] for row in rows)
        return rate_mbps * (datagram_bytes + 28) / datagram_bytes, lost / max(1, sent)


def document(ap: Radio, sta: Radio, capacity_mbps: float, **changes: Any) -> dict[str, Any]:
    """A configuration of the medium with one link each way."""
    names = {"ap": ap, "sta": sta}
    return {
        "ports": [
            {"name": name, "mac": radio.mac, "radio": radio.hardware, "technology": "wifi"}
            for name, radio in names.items()
        ],
        "links": [
            {"id": f"{a}-{b}", "from": a, "to": b, "capacity_mbps": capacity_mbps}
            for a, b in (("ap", "sta"), ("sta", "ap"))
        ],
        "conflicts": {"technology": True},
        **changes,
    }


@contextmanager
def air(folder: Path, capacity_mbps: float = 20.0, **changes: Any) -> Iterator[Air]:
    """The access point is up and the medium runs; nobody is associated yet."""
    ap, sta = radios()[:2]
    config, control = folder / "medium.json", folder / "medium.sock"
    config.write_text(json.dumps(document(ap, sta, capacity_mbps, **changes)))
    (folder / "hostapd.conf").write_text(
        f"interface={ap.interface}\ndriver=nl80211\nssid=hyroads\nhw_mode=g\nchannel=1\n"
    )
    subprocess.run(["ip", "netns", "del", NAMESPACE], capture_output=True, timeout=30)
    run("ip", "netns", "add", NAMESPACE)
    command = [find_program("hyroads-medium"), "--config", str(config), "--socket", str(control), "--hwsim"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    hostapd = subprocess.Popen(
        [str(shutil.which("hostapd", path=PROGRAMS)), str(folder / "hostapd.conf")], stdout=subprocess.DEVNULL
    )
    try:
        run("iw", "phy", sta.phy, "set", "netns", "name", NAMESPACE)
        run(*INSIDE, "ip", "link", "set", "lo", "up")
        run(*INSIDE, "ip", "link", "set", sta.interface, "up")
        run(*INSIDE, "ip", "addr", "add", f"{STATION_IP}/24", "dev", sta.interface)
        with connected(MediumControl, control) as client:
            assert wait_for(lambda: "type AP" in run("iw", "dev", ap.interface, "info"))
            run("ip", "addr", "replace", f"{ACCESS_POINT_IP}/24", "dev", ap.interface)
            yield Air(ap, sta, client, process, hostapd)
    finally:
        for program in (hostapd, process):
            program.terminate()
            program.wait(10)
        run(*INSIDE, "iw", "phy", sta.phy, "set", "netns", "1")
        run("ip", "netns", "del", NAMESPACE)
        run("ip", "addr", "flush", "dev", ap.interface)
