"""The packages for OpenWrt: what is in them, and what their services start with a given configuration."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "deploy" / "openwrt"
# What rc.common and OpenWrt's functions.sh do, as far as the services use it: a section is NAME.OPTION in the
# environment, and what procd is told is printed, a line each.
LIBRARY = """
config_load() { [ "$1" = hyroads ]; }
config_get() { eval "$1=\\${uci_$2_$3:-\\$4}"; }
config_get_bool() { config_get "$@"; }
config_foreach() { for section in $(eval "echo \\$uci_sections_$2"); do "$1" "$section"; done; }
procd_open_instance() { echo open; }
procd_close_instance() { echo close; }
procd_set_param() { printf '%s' "$1"; shift; printf ' <%s>' "$@"; echo; }
procd_append_param() { printf '+'; procd_set_param "$@"; }
procd_add_reload_trigger() { echo "trigger $1"; }
"""
MAIN = {"main_enabled": "1", "main_node": "up", "main_controller": "192.0.2.1:6654", "main_token": "a secret"}


def start(service: str, folder: Path, **settings: str) -> tuple[int, list[str], str]:
    """Exit status, what procd was told, and complaints."""
    text = (SCRIPTS / f"{service}.init").read_text().replace("RUN=/var/run/hyroads", f"RUN={folder}/run")
    script = f"{LIBRARY}\n{text}\nstart_service; status=$?; service_triggers; exit $status"
    environment = {"PATH": "/usr/bin:/bin", **{f"uci_{key}": value for key, value in settings.items()}}
    done = subprocess.run(["dash", "-c", script], env=environment, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("service", ["hyroads-edge", "hyroads-ap"])
def test_nothing_runs_until_it_is_enabled(service: str, tmp_path: Path) -> None:
    assert start(service, tmp_path, **{**MAIN, "main_enabled": "0"}) == (0, ["trigger hyroads"], "")
    assert "option enabled '0'" in (SCRIPTS / "hyroads.config").read_text()


def test_three_lines_make_an_edge(tmp_path: Path) -> None:
    status, told, wrong = start("hyroads-edge", tmp_path, **MAIN, main_edge_options="--realtime --burst-ms 4")
    token = tmp_path / "run" / "edge.token"
    command = "/usr/bin/hyroads-edge --node up --controller 192.0.2.1:6654 --access tap:up-acc --network tap:up-net"
    assert (status, wrong) == (0, "")
    assert told == [
        "open",
        "command " + " ".join(f"<{word}>" for word in command.split()),
        f"+command <--token-file> <{token}>",
        "+command <--realtime> <--burst-ms> <4>",
        "respawn <3600> <2> <0>",
        "stderr <1>",
        "close",
        "trigger hyroads",
    ]
    assert token.read_text() == "a secret\n" and token.stat().st_mode & 0o077 == 0
    assert "--token-file" not in "".join(start("hyroads-edge", tmp_path, **{**MAIN, "main_token": ""})[1])


@pytest.mark.parametrize("node", ["", "a b", "$(reboot)", "a;b", "../x"])
def test_a_wrong_name_starts_nothing(node: str, tmp_path: Path) -> None:
    status, told, wrong = start("hyroads-edge", tmp_path, **{**MAIN, "main_node": node})
    assert status == 1 and "option node" in wrong and told == ["trigger hyroads"]


def test_the_agents_file_is_made_of_the_sections(tmp_path: Path) -> None:
    from hyroads.controller.access_point.config import parse

    radio = {"sections_interface": "r p", "r_name": "phy0-ap0", "r_technology": "wifi", "r_medium": "wifi-5180"}
    line = {"p_name": "eth1", "p_technology": "plc", "p_backend": "plc"}
    hostapd = {"sections_hostapd": "h", "h_socket": "/var/run/hostapd/phy0-ap0", "h_technology": "wifi"}
    status, told, wrong = start("hyroads-ap", tmp_path, **MAIN, **radio, **line, **hostapd)
    assert (status, wrong) == (0, "")
    file = tmp_path / "run" / "ap.json"
    assert f"<--config> <{file}> <--channel> <192.0.2.1:6654>" in told[1]
    config = parse(file.read_text(), str(file))
    assert config.node == "up" and file.stat().st_mode & 0o077 == 0
    assert [(each.name, each.technology, each.medium, each.backend) for each in config.interfaces] == [
        ("phy0-ap0", "wifi", "wifi-5180", "linux-wifi"),
        ("eth1", "plc", "plc", "plc"),
    ]
    assert config.hostapd[0].socket == "/var/run/hostapd/phy0-ap0"
    # No character ends a string before its time.
    start("hyroads-ap", tmp_path, **{**MAIN, "main_node": 'a"\\b'}, **radio)
    assert json.loads(file.read_text())["node"] == 'a"\\b'


def test_an_agent_without_radios_is_not_started(tmp_path: Path) -> None:
    assert start("hyroads-ap", tmp_path, **MAIN) == (0, ["trigger hyroads"], "")


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shell_scripts_are_clean() -> None:
    maintainer = "#!/bin/sh\nPART=a UNITS=b USERS=c SYSUSERS=d FOLDERS=e CACHES=f\n"
    maintainer += (ROOT / "deploy" / "packages" / "maintainer.sh").read_text()
    texts = [*((SCRIPTS / name).read_text() for name in ("hyroads-edge.init", "hyroads-ap.init", "prerm")), maintainer]
    for text in texts:
        done = subprocess.run(["shellcheck", "-s", "dash", "-"], input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout


@pytest.mark.skipif(not shutil.which("nfpm"), reason="nfpm is not installed")
def test_what_is_in_the_packages(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "packages.py"), "--out", str(tmp_path), "--formats", "ipk"]
    # Stands for the edge agent of scripts/cross.sh, which takes minutes to build.
    compiled = subprocess.run(
        ["gcc", "-static", "-x", "c", "-o", tmp_path / "edge", "-"], input="int main(void) { return 0; }", text=True
    )
    assert compiled.returncode == 0
    command += ["--edge", str(tmp_path / "edge"), "hyroads-edge", "hyroads-ap"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr == ""
    (edge,), (agent,) = tmp_path.glob("hyroads-edge_*.ipk"), tmp_path.glob("hyroads-ap_*_all.ipk")
    control, files = opened(edge)
    assert files == {"./usr/bin/hyroads-edge": 0o755, "./etc/init.d/hyroads-edge": 0o755, "./etc/config/hyroads": 0o600}
    assert "/etc/config/hyroads" in control["./conffiles"]
    assert "Depends: kmod-tun" in control["./control"] and "systemd" not in control["./control"]
    control, files = opened(agent)
    assert {"./usr/bin/hyroads-ap-agent", "./etc/init.d/hyroads-ap"} <= set(files)
    assert "./usr/lib/hyroads-ap/hyroads/controller/cli/ap_agent.py" in files
    assert not any(word in name for name in files for word in ("systemd", "scipy", "ryu", "rest/", "/man/"))
    assert "python3-light" in control["./control"]


@pytest.mark.skipif(not shutil.which("nfpm"), reason="nfpm is not installed")
def test_a_program_that_needs_libraries_is_not_for_openwrt(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "packages.py"), "--out", str(tmp_path), "--formats", "ipk"]
    done = subprocess.run([*command, "--edge", "/bin/sh", "hyroads-edge"], capture_output=True, text=True, timeout=300)
    assert "not static" in done.stderr and not list(tmp_path.glob("*.ipk"))


def opened(package: Path) -> tuple[dict[str, str], dict[str, int]]:
    """The control files with their texts, and the files with their modes."""
    with tarfile.open(package) as outer:
        assert read(outer, "./debian-binary") == b"2.0\n"
        control, data = (io.BytesIO(read(outer, f"./{part}.tar.gz")) for part in ("control", "data"))
    with tarfile.open(fileobj=control) as inner:
        texts = {dotted(each.name): read(inner, each.name).decode() for each in inner.getmembers() if each.isfile()}
    with tarfile.open(fileobj=data) as inner:
        assert {each.uid for each in inner.getmembers()} == {0}
        return texts, {dotted(each.name): each.mode & 0o777 for each in inner.getmembers() if each.isfile()}


def dotted(name: str) -> str:
    return "./" + name.removeprefix("./").lstrip("/")


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()
