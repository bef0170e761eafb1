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
from controller_process import ControllerProcess, eventually
from edge_pair import EdgePair
from identities import made, server_tls

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("hyroads-edge", "hyroads-client", "hyroads-medium", "hyroads-modem")
# Debian's name -> that of QEMU's emulator of its programs, and of the machine in a program's head.
PROCESSORS = {
    "amd64": (None, "Advanced Micro Devices X86-64"),
    "arm64": ("qemu-aarch64", "AArch64"),
    "armhf": ("qemu-arm", "ARM"),
    "mipsel": ("qemu-mipsel", "MIPS R3000"),
}
SCRIPT = ROOT / "scripts" / "cross.sh"
NO_TOOLCHAIN = 3

pytestmark = [pytest.mark.nightly]


def readelf(program: Path, *words: str) -> str:
    return subprocess.run(["readelf", *words, program], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def fetched() -> Path:
    """The folder of the toolchain and of QEMU's emulators, which are fetched once for all checkouts."""
    done = subprocess.run([SCRIPT, "--fetch"], capture_output=True, text=True, timeout=1500)
    if done.returncode == NO_TOOLCHAIN:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def cross_built(*words: str) -> Path:
    """The folder of what ``scripts/cross.sh`` has built with these words."""
    done = subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1]).parent


@pytest.fixture(scope="module", params=PROCESSORS)
def built(request: pytest.FixtureRequest, fetched: Path) -> tuple[str, Path]:
    """A processor and the folder of the agent for it."""
    return request.param, cross_built(request.param, "hyroads-edge")


@pytest.fixture(scope="module")
def emulated(built: tuple[str, Path], fetched: Path) -> list[str]:
    """The words before a program of that processor."""
    name, _ = PROCESSORS[built[0]]
    return [] if name is None else [str(fetched / f"usr/bin/{name}-static")]


def test_each_program_needs_no_library_and_starts(built: tuple[str, Path], emulated: list[str]) -> None:
    folder = cross_built(built[0])
    for name in PROGRAMS:
        assert PROCESSORS[built[0]][1] in readelf(folder / name, "-h")
        assert "INTERP" not in readelf(folder / name, "-l") and "NEEDED" not in readelf(folder / name, "-d")
        command = [*emulated, folder / name, "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout.startswith(name), done.stderr


def test_openssl_is_part_of_the_program(built: tuple[str, Path], emulated: list[str], tmp_path: Path) -> None:
    """OpenSSL itself says that the file of the authority is missing."""
    command = [*emulated, built[1] / "hyroads-edge", "--node", "a", "--access", "tap:x", "--network", "tap:y"]
    command += ["--controller", "127.0.0.1:1", "--ca", tmp_path / "none.pem"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "none.pem: error:" in done.stderr and "No such file" in done.stderr


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
def test_frames_pass_an_agent_of_another_processor(
    built: tuple[str, Path], emulated: list[str], tmp_path: Path
) -> None:
    """To an agent of this machine's own processor, and back."""
    arch, folder = built
    programs = {"a": [*emulated, str(folder / "hyroads-edge")]}
    with BridgedPair(f"hr-{arch}", tmp_path, programs=programs) as pair:
        assert pair.ping_ms("10.8.0.2", count=5, interval_s=0.2), (tmp_path / "a.log").read_text()


FROM_HERE = 1
"""The revision of ``EdgePair``'s configurations; the controller's are hashes."""


def revision(pair: EdgePair) -> int:
    """Of the configuration that agent ``a`` has."""
    with pair.client("a") as client:
        return int(client.hello["revision"])


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_frames_pass_while_the_agent_has_a_tls_session(
    built: tuple[str, Path], emulated: list[str], tmp_path: Path
) -> None:
    """The real controller demands a certificate; the agent has that of node ``a``. The controller knows no switch here,
    so its configuration has no flow; one with a flow replaces it.
    """
    arch, folder = built
    files = made(tmp_path)
    tls = {"identities": str(files / "identities.json"), "agents_tls": server_tls(files, ca=True)}
    controller = ControllerProcess(tmp_path, tls)
    node, said = files / "a", tmp_path / "a.log"
    options = ["--controller", f"127.0.0.1:{controller.agents}", "--token-file", node / "agent.token"]
    options += ["--ca", files / "ca.pem", "--cert", node / "node.pem", "--key", node / "node.key"]
    programs = {"a": [*emulated, str(folder / "hyroads-edge"), *map(str, options)]}
    with BridgedPair(f"hr-{arch}", tmp_path, programs=programs) as pair:
        controller.command = ["ip", "netns", "exec", pair.namespace("a"), *controller.command]
        with (
            controller.log.open("ab") as log,
            subprocess.Popen(controller.command, env=controller.environment, stdout=log, stderr=log) as running,
        ):
            try:
                assert eventually(lambda: revision(pair) != FROM_HERE, 120), said.read_text()
                pair.configure("a")
                assert pair.ping_ms("10.8.0.2", count=5, interval_s=0.2), said.read_text()
                assert "welcomed us" in said.read_text() and "lost" not in said.read_text()
            finally:
                running.terminate()
                running.wait(60)


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
