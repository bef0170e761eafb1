"""Static programs for other processors: built here, packed, and run in QEMU's emulation of the processor (nightly)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from edge_pair import EdgePair

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("hyroads-edge", "hyroads-client", "hyroads-medium", "hyroads-modem")
# Debian's name -> that of QEMU's emulator of its programs, and of the machine in a program's head.
PROCESSORS = {
    "amd64": (None, "Advanced Micro Devices X86-64"),
    "arm64": ("qemu-aarch64", "AArch64"),
    "armhf": ("qemu-arm", "ARM"),
    "mipsel": ("qemu-mipsel", "MIPS R3000"),
}
NO_TOOLCHAIN = 3

pytestmark = [pytest.mark.nightly]


def readelf(program: Path, *words: str) -> str:
    return subprocess.run(["readelf", *words, program], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module", params=PROCESSORS)
def built(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A processor and the folder of the programs for it."""
    script = ROOT / "scripts" / "cross.sh"
    done = subprocess.run([script, request.param], capture_output=True, text=True, timeout=1500)
    if done.returncode == NO_TOOLCHAIN:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return request.param, Path(done.stdout.splitlines()[-1]).parent


def emulated(arch: str) -> list[str]:
    """The words before a program of that processor; skips if its emulator is not installed."""
    name, _ = PROCESSORS[arch]
    if name is None:
        return []
    found = shutil.which(f"{name}-static") or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (apt-get install qemu-user-static)")
    return [found]


def test_programs_need_no_library(built: tuple[str, Path]) -> None:
    arch, folder = built
    for name in PROGRAMS:
        assert PROCESSORS[arch][1] in readelf(folder / name, "-h")
        assert "INTERP" not in readelf(folder / name, "-l") and "NEEDED" not in readelf(folder / name, "-d")


def test_each_program_starts(built: tuple[str, Path]) -> None:
    arch, folder = built
    for name in PROGRAMS:
        command = [*emulated(arch), folder / name, "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout.startswith(name), done.stderr


class BridgedPair(EdgePair):
    """Side ``a`` has a TAP in a bridge as its network side: QEMU cannot emulate options of packet sockets."""

    def network(self, side: str) -> str:
        return "tap:net" if side == "a" else super().network(side)

    def start_agent(self, side: str, *extra: str) -> None:
        super().start_agent(side, *extra)
        if side == "a":
            self.ip(side, "link", "add", "bridge", "type", "bridge")
            for name in ("net", "p1"):
                self.ip(side, "link", "set", name, "master", "bridge", "up")
            self.ip(side, "link", "set", "bridge", "up")

    def config(self, side: str, rates: Sequence[float | None] = (None, None), **egress: Any) -> dict[str, Any]:
        document = super().config(side, rates[:1], **egress)
        (path,) = document["ingress"][0]["paths"]
        if side == "a":
            del path["interface"]
        else:
            # What is sent to an address that the bridge does not know goes to all its ports.
            path["dst_mac"] = "02:00:01:00:00:99"
        return document


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_frames_pass_an_agent_of_another_processor(built: tuple[str, Path], tmp_path: Path) -> None:
    """To an agent of this machine's own processor, and back."""
    arch, folder = built
    programs = {"a": [*emulated(arch), str(folder / "hyroads-edge")]}
    with BridgedPair(f"hr-{arch}", tmp_path, programs=programs) as pair:
        assert pair.ping_ms("10.8.0.2", count=5, interval_s=0.2), (tmp_path / "a.log").read_text()


@pytest.mark.skipif(not shutil.which("nfpm") or not shutil.which("dpkg-deb"), reason="nfpm or dpkg is not installed")
def test_packages_hold_the_program(built: tuple[str, Path], tmp_path: Path) -> None:
    arch, folder = built
    command = [sys.executable, ROOT / "scripts" / "packages.py", "--out", tmp_path, "--arch", arch]
    command += ["--edge", folder / "hyroads-edge", "hyroads-edge"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr == ""
    assert {each.suffix for each in tmp_path.glob("hyroads-edge_*")} == {".deb", ".ipk", ".apk"}
    (deb,) = tmp_path.glob("*.deb")
    field = subprocess.run(["dpkg-deb", "-f", deb, "Architecture", "Depends"], capture_output=True, text=True).stdout
    assert f"Architecture: {arch}\n" in field and "libc6" not in field
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path / "root"], check=True)
    assert PROCESSORS[arch][1] in readelf(tmp_path / "root/usr/bin/hyroads-edge", "-h")
