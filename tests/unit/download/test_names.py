"""Which DNS servers an interface's network has told this machine, and which names are not for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.download import names
from hyroads.controller.download.names import is_name_of_here, servers_of


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nobody tells anything."""
    monkeypatch.setattr(names, "_LINKS", tmp_path / "links")
    monkeypatch.setattr(names, "_RESOLVCONF", (tmp_path / "resolvconf",))
    monkeypatch.setattr(names, "_HOSTS", tmp_path / "hosts")
    monkeypatch.setattr(names.shutil, "which", lambda _: None)
    (tmp_path / "links").mkdir()
    (tmp_path / "resolvconf").mkdir()
    return tmp_path


def test_nobody_tells_anything(host: Path) -> None:
    assert servers_of("lo") == servers_of("none0") == ()


def test_systemd_networkd_tells(host: Path) -> None:
    (host / "links" / "1").write_text("ADMIN_STATE=configured\nDNS=192.0.2.53 2001:db8::53#dns.example 127.0.0.53\n")
    assert servers_of("lo") == ("192.0.2.53", "2001:db8::53")


def test_resolvconf_tells(host: Path) -> None:
    (host / "resolvconf" / "lo.dhclient").write_text("search example.org\nnameserver 192.0.2.7\nnameserver nobody\n")
    assert servers_of("lo") == ("192.0.2.7",)


@pytest.mark.parametrize(
    ("program", "text", "found"),
    [
        ("resolvectl", "Link 2 (lo): 192.0.2.1 fe80::1%2 2001:db8::1\n", ("192.0.2.1", "2001:db8::1")),
        ("resolvectl", "Link 2 (lo):\n", ()),
        ("nmcli", "192.0.2.1 | 192.0.2.2\n2001:db8::1\n", ("192.0.2.1", "192.0.2.2", "2001:db8::1")),
        ("nmcli", "\x00\xff garbage 999.1.1.1 :: 0.0.0.0", ()),
    ],
)
def test_programs_tell(
    host: Path, monkeypatch: pytest.MonkeyPatch, program: str, text: str, found: tuple[str, ...]
) -> None:
    monkeypatch.setattr(names.shutil, "which", lambda name: f"/usr/bin/{name}" if name == program else None)
    monkeypatch.setattr(names.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, text, ""))
    assert servers_of("lo") == found


def test_a_program_that_fails_or_hangs_tells_nothing(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("resolvectl", 1.0)

    monkeypatch.setattr(names.shutil, "which", lambda name: name)
    monkeypatch.setattr(names.subprocess, "run", fails)
    assert servers_of("lo") == ()


def test_names_of_this_machine_and_its_surroundings_are_not_for_the_dns(host: Path) -> None:
    (host / "hosts").write_text("192.0.2.9 Pinned.example.org other # not.this.one\n")
    for name in (
        "192.0.2.1",
        "2001:db8::1",
        "localhost",
        "a.localhost",
        "printer",
        "printer.local",
        "pinned.example.org.",
    ):
        assert is_name_of_here(name), name
    for name in ("example.org", "not.this.one", "local.example.org"):
        assert not is_name_of_here(name), name


def test_what_is_no_name_is_left_to_the_hosts_resolver() -> None:
    # In a process without eventlet, which leaves others a dnspython of two halves.
    code = """
from hyroads.controller.download import names
asked = []
names.resolve = lambda host, _: asked.append(host) or ()
wrong = ["a..b", "x" * 70 + ".org", "xn--\\xff.org", ("a." * 200) + "org"]
assert all(names.InterfaceNames("lo", ["127.0.0.1"]).addresses(name, 80) == () for name in wrong)
assert asked == wrong, asked
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("lo", "--dns 'lo': expected IF=ADDRESS, or several addresses with commas"),
        ("lo=dns.example", "--dns 'lo=dns.example': expected IF=ADDRESS, or several addresses with commas"),
        ("lo=", "--dns 'lo=': expected IF=ADDRESS, or several addresses with commas"),
        ("eth9=192.0.2.1", "--dns 'eth9=192.0.2.1': expected one of the interfaces lo"),
    ],
)
@pytest.mark.parametrize("command", [["proxy"], ["fetch", "http://127.0.0.1:1/file"]])
def test_wrong_servers_are_one_line(
    capsys: pytest.CaptureFixture[str], command: list[str], given: str, said: str
) -> None:
    assert main([*command, "--interfaces", "lo", "--dns", given]) == 2
    assert capsys.readouterr().err == f"hyroads: {said}\n"
