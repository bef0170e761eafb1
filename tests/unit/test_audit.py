"""What an audit finds weak, of installations as data and of files as they are."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from identities import issued

from hyroads.controller.cli import audit as reading
from hyroads.controller.cli import main as cli
from hyroads.controller.core.audit import (
    DAY_S,
    NOTE,
    WEAK,
    BoxCertificate,
    Certificate,
    FileFacts,
    Installation,
    PluginFacts,
    Port,
    Running,
    TlsFacts,
    judge,
)
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.secret_places import files_in, secrets_in
from hyroads.controller.files.tls import own_certificate, server_side

ROOT = Path(__file__).parents[2]
TRIANGLE = ROOT / "mininet" / "networks" / "triangle.yaml"
LONG = "0123456789abcdef0123"
USER = 1234
HERE = (Running("127.0.0.1", USER),)
SOUND = Installation(
    "controller",
    "hyroads.yaml",
    ports=(
        Port("listen.openflow", "192.0.2.1", 6653, tls=True, checks_certificates=True),
        Port("listen.agents", "127.0.0.1", 6654, tokens=True, running=HERE),
        Port("listen.rest", "127.0.0.1", 8080, tokens=True, running=HERE),
    ),
    files=(FileFacts("agent_token_file", "agent.token", 0o600, USER), FileFacts("state_file", "none", None)),
    certificates=(Certificate("tls.certificate", 40 * DAY_S),),
    secrets={"agent_token_file": LONG, "api_tokens.ops.token": LONG[::-1]},
    plugins=(PluginFacts("mine", "nobody", 65534),),
    agent_nodes=1,
)


def weak(installation: Installation) -> dict[str, str]:
    return {finding.place: finding.what for finding in judge(installation) if finding.level == WEAK}


def notes(installation: Installation) -> set[str]:
    return {finding.place for finding in judge(installation) if finding.level == NOTE}


def with_port(place: str, **changes: Any) -> Installation:
    return replace(SOUND, ports=tuple(replace(p, **changes) if p.place == place else p for p in SOUND.ports))


def test_what_is_sound_has_no_findings() -> None:
    assert judge(SOUND) == ()


@pytest.mark.parametrize(
    "place,changes",
    [
        ("listen.rest", {"tokens": False}),
        ("listen.rest", {"host": "192.0.2.1"}),
        ("listen.agents", {"tokens": False}),
        ("listen.openflow", {"tls": False, "checks_certificates": False}),
        ("listen.openflow", {"checks_certificates": False}),
        ("listen.rest", {"running": (Running("0.0.0.0", USER),)}),
    ],
)
def test_ports_without_tokens_and_tls_are_weak(place: str, changes: dict[str, Any]) -> None:
    assert list(weak(with_port(place, **changes))) == [place]


def test_what_loopback_needs_not_is_no_finding() -> None:
    assert judge(with_port("listen.openflow", host="::1", tls=False, checks_certificates=False)) == ()


def test_files_that_others_may_use_are_weak() -> None:
    for changes in ({"mode": 0o640}, {"mode": 0o604}, {"open_folder": "/srv"}, {"uid": 77}):
        file = replace(SOUND.files[0], **changes)
        assert list(weak(replace(SOUND, files=(file,)))) == ["agent_token_file"], changes
    assert not weak(replace(SOUND, files=(replace(SOUND.files[0], uid=0),)))


@pytest.mark.parametrize("left_s,words", [(29 * DAY_S, "ends in 29 days"), (-2 * DAY_S, "ended 2 days ago")])
def test_certificates_that_end_soon_are_weak(left_s: float, words: str) -> None:
    found = replace(SOUND, certificates=(Certificate("tls.ca", 1e9 + left_s),), now_s=1e9)
    assert weak(found) == {"tls.ca": words}


def test_secrets_that_are_easy_to_guess_or_the_same_are_weak_and_not_shown() -> None:
    same = replace(SOUND, secrets={"agent_token": LONG, "api_tokens.ops.token": LONG, "ha.peer_token": "ab" * 10})
    assert set(weak(same)) == {"api_tokens.ops.token", "ha.peer_token"}
    said = f"{judge(same)!r} {same!r}"
    assert LONG not in said and "ab" * 10 not in said


def test_root_is_weak_for_the_program_and_its_plugins() -> None:
    root = with_port("listen.rest", running=(Running("127.0.0.1", 0),))
    assert set(weak(replace(root, plugins=(PluginFacts("mine", None),)))) == {"user", "plugins.mine"}
    assert set(weak(replace(SOUND, plugins=(PluginFacts("mine", "root", 0),)))) == {"plugins.mine"}
    assert notes(replace(SOUND, plugins=(PluginFacts("mine", None),))) == {"plugins.mine"}


def test_etcd_and_communities_in_the_clear_are_weak() -> None:
    found = replace(SOUND, plain_etcd=("http://127.0.0.1:2379",), communities=("snmp.targets.ap",))
    assert set(weak(found)) == {"ha.etcd", "snmp.targets.ap"}


def test_links_without_seals_are_a_note_for_each_technology() -> None:
    assert notes(replace(SOUND, unsealed=("plc", "wifi"))) == {*notes(SOUND), "links plc", "links wifi"}
    assert weak(replace(SOUND, unsealed=("plc", "wifi"))) == weak(SOUND)


@pytest.mark.parametrize(("seal_frames", "technologies"), [("true", ("plc", "wifi")), ("all", ())])
def test_audit_reads_whether_links_are_sealed(tmp_path: Path, seal_frames: str, technologies: tuple[str, ...]) -> None:
    settings = tmp_path / "hyroads.yaml"
    settings.write_text(f"network: {TRIANGLE}\nseal_frames: {seal_frames}\n")
    installation, refused = reading.read(str(settings), {})
    assert refused is None
    assert installation.unsealed == technologies


def test_notes_say_what_helps_and_are_not_weak() -> None:
    found = replace(with_port("listen.agents", host="0.0.0.0"), agent_nodes=3)
    assert notes(found) == {"listen.agents"} and set(weak(found)) == {"listen.agents", "agent_token"}
    assert set(weak(replace(SOUND, any_switch=("*",)))) == {"any_switch"} and not weak(
        replace(SOUND, any_switch=("s",))
    )
    still = replace(SOUND, ports=tuple(replace(port, running=()) for port in SOUND.ports))
    assert not weak(still) and notes(still) == {"hyroads.yaml"}


def test_secrets_and_their_files_are_found_anywhere_in_a_document() -> None:
    document = {
        "agent_token": LONG,
        "api_tokens": {"ops": {"token": LONG, "role": "admin"}},
        "clients": {"laptop": {"token_file": "laptop.token"}},
        "tls": {"key": "a.key", "certificate": "a.pem"},
        "devices": [{"community": "public", "key": "no file"}],
        "state_file": "state.json",
        "snmp": "targets.json",
        "ha": {"peer_token": None},
    }
    assert [place for place, _ in secrets_in(document)] == [
        "agent_token", "api_tokens.ops.token", "devices[0].community",
    ]  # fmt: skip
    assert {file.place: file.name for file in files_in(document)} == {
        "clients.laptop.token_file": "laptop.token",
        "tls.key": "a.key",
        "state_file": "state.json",
        "snmp": "targets.json",
    }


def settings(folder: Path, **more: Any) -> Path:
    path = folder / "hyroads.yaml"
    path.write_text(json.dumps({"network": str(TRIANGLE), **more}))
    path.chmod(0o600)
    return path


def test_files_and_ports_are_read_as_they_are(tmp_path: Path) -> None:
    token = tmp_path / "agent.token"
    token.write_text(LONG + "\n")
    token.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = settings(tmp_path, agent_token_file="agent.token", listen={"agents": {"port": port}})
        found, refused = reading.read(str(path), {})
    agents = next(each for each in found.ports if each.place == "listen.agents")
    assert refused is None and agents.running == (Running("127.0.0.1", os.geteuid()),)
    assert found.secrets == {"agent_token_file": LONG}
    assert [(file.place, file.mode) for file in found.files] == [("agent_token_file", 0o600)]
    assert found.agent_nodes == 2


def test_addresses_are_read_as_the_kernel_writes_them() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as taken:
        assert Running("::", os.geteuid()) in tuple(reading._running(taken.getsockname()[1], stream=True))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.2", 0))
        assert Running("127.0.0.2", os.geteuid()) in tuple(reading._running(taken.getsockname()[1], stream=False))


def test_a_file_that_others_may_read_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings(tmp_path, agent_token=LONG)
    path.chmod(0o644)
    assert cli.main(["audit", "--config", str(path), "--json"]) == 1
    shown = capsys.readouterr().out
    assert LONG not in shown
    found = [one for one in json.loads(shown)["findings"] if one["place"] == "settings"]
    assert found[0]["level"] == "weak" and found[0]["do"] == f"chmod 600 {path}"


def test_a_folder_that_everybody_may_write_is_a_finding(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    path = settings(folder, agent_token=LONG)
    folder.chmod(0o777)
    assert "settings" in weak(reading.read(str(path), {})[0])
    folder.chmod(0o1777)
    assert "settings" not in weak(reading.read(str(path), {})[0])


def test_settings_that_are_wrong_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings(tmp_path, margin="much")
    with pytest.raises(ConfigError):
        reading.read(str(path), {})
    assert cli.main(["audit", "--config", str(path)]) == 2
    assert "margin" in capsys.readouterr().err


@pytest.mark.parametrize(
    "document,program",
    [
        ({"slices": []}, "slicer"),
        ({"devices": {}, "slices": {}}, "snmpvisor"),
        ({"network": str(TRIANGLE), "slices": {}}, "controller"),
    ],
)
def test_whose_settings_they_are_is_found(tmp_path: Path, document: dict[str, Any], program: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    found, _ = reading.read(str(path), {})
    assert found.program == program and found.ports


def test_no_program_takes_secrets_that_others_may_read(tmp_path: Path) -> None:
    """The settings themselves, and each kind of file that they name; the same files with mode 0600 are taken."""
    secret = tmp_path / "secret"
    secret.write_text(LONG)
    own = {"community": LONG}
    device = {"address": "127.0.0.1:161", "community_file": "secret"}
    ha = {"etcd": ["http://127.0.0.1:1"], "name": "a", "advertise": {"rest": "http://a:1", "peer": "127.0.0.1:1"}}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("controller", {"network": str(TRIANGLE), "agent_token": LONG}),
        ("controller", {"network": str(TRIANGLE), "api_tokens": {"ops": {"token": LONG}}}),
        ("controller", {"network": str(TRIANGLE), "agent_token_file": "secret"}),
        ("controller", {"network": str(TRIANGLE), "clients": {"laptop": {"token_file": "secret"}}}),
        ("controller", {"network": str(TRIANGLE), "ha": {**ha, "peer_token_file": "secret"}}),
        ("controller", {"network": str(TRIANGLE), "region": {"name": "north", "token_file": "secret"}}),
        ("slicer", {"slices": [], "api_tokens": {"ops": {"token": LONG}}}),
        ("snmpvisor", {"devices": {}, "slices": {"lab": own}}),
        ("snmpvisor", {"devices": {"ap": device}, "slices": {}}),
    ]
    for number, (program, document) in enumerate(cases):
        path = tmp_path / f"{number}.yaml"
        path.write_text(json.dumps(document))
        where = secret if "secret" in json.dumps(document) else path
        for file in (secret, path):
            file.chmod(0o600)
        found, refused = reading.read(str(path), {})
        assert found.program == program and refused is None, document
        where.chmod(0o640)
        found, refused = reading.read(str(path), {})
        assert refused is not None and "0600" in refused and LONG not in refused, document
        assert any("chmod 600" in finding.do for finding in judge(found))


def test_a_key_of_tls_that_others_may_read_is_refused(tmp_path: Path) -> None:
    files = own_certificate(tmp_path, "own", "127.0.0.1")
    server_side(files, "settings")
    Path(files.key).chmod(0o644)
    with pytest.raises(ConfigError, match=r"tls\.key: .*expected mode 0600"):
        server_side(files, "settings")


def tls(place: str, roles: str, authority: str = "1") -> TlsFacts:
    return TlsFacts(place, f"{place}.pem", frozenset(roles.split()), frozenset({authority}))


@pytest.mark.parametrize(
    ("program", "place", "role"),
    [
        ("controller", "tls", "controller"),
        ("controller", "agents_tls", "controller"),
        ("controller", "ha.tls", "controller"),
        ("controller", "region.tls", "region"),
        ("slicer", "tls", "slicer"),
        ("slicer", "controllers_tls", "slicer"),
    ],
)
def test_certificate_without_its_role_is_weak(program: str, place: str, role: str) -> None:
    def weak(roles: str) -> list[str]:
        found = judge(Installation(program, "x.yaml", tls=(tls(place, roles),)))
        return [one.what for one in found if one.place == f"{place}.certificate"]

    assert weak(role) == weak(f"{role} etcd") == []
    assert weak("")[0].startswith("has no role")
    assert weak("node")[0].startswith(f"has the role node, and not {role}")


def test_revoked_box_that_the_controller_does_not_refuse_is_weak() -> None:
    boxes = tuple(BoxCertificate(f"n{i}", "box", "1", listed, refused)
                  for i, (listed, refused) in enumerate(((False, False), (True, True), (True, False))))  # fmt: skip
    (found,) = judge(Installation("controller", "x.yaml", box_certificates=boxes))
    assert (found.level, found.place) == (WEAK, "revoked") and "node n2" in found.what


def test_certificate_of_rest_needs_no_role() -> None:
    assert judge(Installation("controller", "x.yaml", tls=(tls("rest_tls", ""),))) == ()


@pytest.mark.parametrize("place", ["ha.tls", "region.tls"])
@pytest.mark.parametrize("of_devices", ["tls", "agents_tls"])
def test_authority_of_controllers_that_also_issues_for_devices_is_weak(place: str, of_devices: str) -> None:
    def weak(authority: str) -> list[str]:
        role = "region" if place == "region.tls" else "controller"
        both = tls(of_devices, "controller"), tls(place, role, authority)
        return [one.place for one in judge(Installation("controller", "x.yaml", tls=both)) if one.level == WEAK]

    assert weak("1") == [f"{place}.ca"]
    assert weak("2") == []


def test_audit_reads_roles_and_authorities_of_files(tmp_path: Path) -> None:
    own = issued(tmp_path, "etcd", "a")
    (found,) = reading._tls_facts({"ha.tls": own, "tls": None, "rest_tls": replace(own, certificate="nowhere.pem")})
    assert (found.place, found.roles, len(found.authorities)) == ("ha.tls", {"etcd"}, 1)
