"""The backhaul of docs/how-to/backhaul.md on radios of mac80211_hwsim: 802.11s and SAE by the page's own file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_session import DOCS, blocks
from wireless_rig import PROGRAMS, has_radios, wait_for

from hyroads.mininet.radios import InterfaceKind, Radio

TOOLS = [shutil.which(name, path=PROGRAMS) for name in ("wpa_supplicant", "iw")]


pytestmark = [
    pytest.mark.root,
    pytest.mark.radio,
    pytest.mark.skipif(not has_radios(), reason="needs root and mac80211_hwsim (scripts/guest.sh)"),
    pytest.mark.skipif(None in TOOLS, reason="needs wpa_supplicant, iw"),
]
PAGE = DOCS / "how-to" / "backhaul.md"
MACS = {"one": "02:00:00:00:bb:01", "two": "02:00:00:00:bb:02"}


def configuration() -> str:
    """The page's file of wpa_supplicant. A guest has no database of what countries allow: emulated radios have channels
    of at most 40 MHz, in no country.
    """
    (found,) = [text for block in blocks(PAGE) if "mode=5" in (text := block.text)]
    return re.sub("country=.*\n", "", found).replace("mode=5", "mode=5\n    disable_vht=1")


def namespace_of(process: int) -> Path:
    return Path(f"/proc/{process}/ns/net").readlink()


class Mesh:
    """Two access points, each with a radio ``wlan0`` in a network namespace of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[subprocess.Popen[bytes]] = []
        for name, mac in MACS.items():
            subprocess.run(["ip", "netns", "add", f"hr-mesh-{name}"], check=True)
            holder = self._start(name, "sleep", "infinity")
            assert wait_for(lambda pid=holder.pid: namespace_of(pid) != namespace_of(os.getpid()), 5.0)  # type: ignore[misc]
            Radio(f"hr-{name}", InterfaceKind.STATION, mac).move(holder.pid)
            self.run(name, "ip", "link", "set", f"hr-{name}", "name", "wlan0")

    def run(self, name: str, *command: str) -> str:
        done = subprocess.run(
            ["ip", "netns", "exec", f"hr-mesh-{name}", *command], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def join(self, name: str, text: str) -> None:
        path = self.folder / f"{name}.conf"
        path.write_text(re.sub("DIR=.*", f"DIR={self.folder}/{name}", text))
        path.chmod(0o600)
        self._start(name, "wpa_supplicant", "-iwlan0", "-Dnl80211", f"-c{path}")

    def peers(self, name: str) -> dict[str, str]:
        """State of the peering by address of the neighbour."""
        dump = self.run(name, "iw", "dev", "wlan0", "station", "dump")
        found = re.findall(r"Station (\S+)|mesh plink:\s*(\S+)", dump)
        return dict(zip([mac for mac, _ in found if mac], [state for _, state in found if state], strict=False))

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{command[0]}.log").open("ab") as log:
            process = subprocess.Popen(["ip", "netns", "exec", f"hr-mesh-{name}", *command], stdout=log, stderr=log)
        self.programs.append(process)
        return process

    def end(self) -> None:
        for program in reversed(self.programs):
            program.terminate()
            program.wait(10)
        for name in MACS:
            subprocess.run(["ip", "netns", "delete", f"hr-mesh-{name}"], check=False)


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Mesh]:
    found = Mesh(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_backhaul_of_the_page_joins_and_is_read(mesh: Mesh) -> None:
    for name in MACS:
        mesh.join(name, configuration())
    for name, other in (("one", "two"), ("two", "one")):
        assert wait_for(lambda n=name, o=other: mesh.peers(n).get(MACS[o]) == "ESTAB", 30.0), mesh.peers(name)  # type: ignore[misc]
        assert mesh.run(name, "iw", "dev", "wlan0", "get", "mesh_param", "mesh_fwding").split() == ["0"]
        mesh.run(name, "ip", "link", "set", "wlan0", "mtu", "1600")
        mesh.run(name, "ip", "address", "add", f"10.9.9.{1 + list(MACS).index(name)}/24", "dev", "wlan0")
    assert " 0% packet loss" in mesh.run("one", "ping", "-c", "5", "-i", "0.2", "-M", "do", "-s", "1572", "10.9.9.2")
    script = "from hyroads.controller.access_point import linux_wifi, nl80211\n" + (
        "found = linux_wifi.LinuxWifi(nl80211.Nl80211('wlan0')).read(0.0).neighbours\n"
        "print([(each.mac, each.tx_capacity_kbps > 0) for each in found])"
    )
    assert mesh.run("one", sys.executable, "-c", script).strip() == str([(MACS["two"], True)])


def test_other_password_makes_no_link(mesh: Mesh) -> None:
    mesh.join("one", configuration())
    mesh.join("two", configuration().replace("a long password of your own", "another password than this"))
    assert wait_for(lambda: MACS["two"] in mesh.peers("one"), 30.0), "the neighbour is heard"
    assert not wait_for(lambda: mesh.peers("one").get(MACS["two"]) == "ESTAB", 5.0)
