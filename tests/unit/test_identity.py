"""Who may be which node: tokens of nodes and roles, names of certificates, and the files that the command makes."""

from __future__ import annotations

import json
import os
import random
import stat
from pathlib import Path

import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import (
    ANY,
    CertificateFacts,
    CertificateRole,
    DeviceTokens,
    dpid_name,
    not_of_node,
    not_of_switch,
    token_hash,
)
from hyroads.controller.files.authority import Authority, DeviceFiles
from hyroads.controller.files.private import append_line, write_atomically
from hyroads.controller.files.tls import certificate_ends, certificate_names, client_side
from hyroads.controller.settings.clients import parse_identities
from hyroads.controller.settings.controller import parse

TRIANGLE = Path(__file__).resolve().parents[2] / "mininet" / "networks" / "triangle.yaml"
SHARED = "shared" * 6


def test_each_token_admits_exactly_whom_it_is_of() -> None:
    rng = random.Random(1)
    everybody = [(role, node) for role in ("agent", "radio") for node in "abcd"]
    tokens = {one: rng.randbytes(16).hex() for one in everybody[:6]}
    own = {one: token_hash(token) for one, token in tokens.items()}
    for shared in (None, SHARED, ""):
        known = DeviceTokens(own, shared)
        for role, node in everybody:
            right = tokens.get((role, node), shared)
            for token in (*tokens.values(), SHARED, "", None, own[everybody[0]]):
                assert known.admits(role, node, token) is ((token or "") == right)
        let_in = [one for one in everybody if one not in own and known.admits(*one, shared)]
        assert list(known.sharing(everybody)) == ([] if shared is None else let_in)
        assert shared is None or let_in == everybody[6:]


OTHERS = [lambda t: t + " ", lambda t: " " + t, lambda t: t + "\n", lambda t: t[:-1], lambda t: t[1:], lambda t: t + t,
          lambda t: t.upper(), lambda t: t[::-1], lambda t: "\0" + t, lambda t: t[:5] + "\0" + t[5:]]  # fmt: skip


@pytest.mark.parametrize("change", range(len(OTHERS)))
def test_token_is_the_whole_text_and_no_other(change: int) -> None:
    token = "sHared0" * 6
    other = OTHERS[change](token)
    for known in (DeviceTokens(shared=token), DeviceTokens({("agent", "a"): token_hash(token)})):
        assert known.admits("agent", "a", token) and not known.admits("agent", "a", other)
        assert not known.admits("agent", "a", token_hash(token))


def test_without_any_token_everybody_is_admitted_and_with_one_nobody_without() -> None:
    assert DeviceTokens().admits("agent", "a", None) and not DeviceTokens().are_asked_for
    only_b = DeviceTokens({("agent", "b"): token_hash("b" * 32)})
    assert not only_b.admits("agent", "a", None) and only_b.are_asked_for


def test_tokens_are_not_shown() -> None:
    assert SHARED not in repr(DeviceTokens(shared=SHARED))


def facts(names: list[str], role: str = "node") -> CertificateFacts:
    return CertificateFacts(tuple(names), frozenset({role}))


@pytest.mark.parametrize(
    ("names", "any_switch", "is_right"),
    [
        (["a"], [], True),
        ([dpid_name(1)], [], True),
        (["b", dpid_name(1)], [], True),
        (["b", dpid_name(2)], [], False),
        ([], [], False),
        (["1", "A", "0x1"], [], False),
        (["slicer"], ["slicer"], True),
        # A node may have that name.
        (["b", "slicer"], ["slicer"], False),
        (["b"], ["slicer"], False),
        (["b"], [ANY], True),
        # A certificate can't give itself this right.
        ([ANY], ["slicer"], False),
    ],
)
def test_a_certificate_speaks_for_the_switch_that_it_names(
    names: list[str], any_switch: list[str], is_right: bool
) -> None:
    role = "slicer" if names == ["slicer"] else "node"
    assert (not not_of_switch(facts(names, role), 1, "a", any_switch=any_switch)) is is_right
    assert not_of_node(["a", "x"], "a") == "" and "not of node 'a'" in not_of_node(["b"], "a")


def made(folder: Path, *nodes: str) -> Path:
    assert main(["identity", "authority", "--folder", str(folder)]) == 0
    chosen = nodes or ("--all",)
    assert main(["identity", "node", *chosen, "--network", str(TRIANGLE), "--folder", str(folder)]) == 0
    return folder


def test_the_command_makes_what_controller_and_devices_take(tmp_path: Path) -> None:
    folder = made(tmp_path / "all")
    known = parse_identities(str(folder / "identities.json"))
    assert set(known) == {(role, node) for role in ("agent", "radio") for node in "ab"}
    for (role, node), expected in known.items():
        files = DeviceFiles.of(folder, node)
        assert token_hash(files.token(role).read_text().strip()) == expected
        names = certificate_names(Path(files.tls.certificate).read_bytes())
        assert names == (node, dpid_name("ab".index(node) + 1))
        client_side(files.tls, "test", "tls")
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "ca.pem":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    text = (folder / "identities.json").read_text()
    assert not any(path.read_text().strip() in text for path in folder.rglob("*.token"))


def test_again_it_makes_only_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path, "a")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    made(folder, "a")
    assert {path: path.read_bytes() for path in before} == before
    (folder / "a" / "radio.token").unlink()
    capsys.readouterr()
    made(folder, "a", "b")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("radio.token new") and lines[2].endswith("agent.token, radio.token, node.pem new")
    assert (folder / "a" / "agent.token").read_bytes() == before[folder / "a" / "agent.token"]
    assert main(["identity", "node", "a", "--network", str(TRIANGLE), "--folder", str(folder), "--renew"]) == 0
    assert all(
        path.read_bytes() != before[path] for path in before if path.parent.name == "a" and path.name != "ca.pem"
    )


def test_a_node_that_is_removed_has_no_tokens(tmp_path: Path) -> None:
    folder = made(tmp_path)
    assert main(["identity", "remove", "a", "--folder", str(folder)]) == 0
    assert {node for _, node in parse_identities(str(folder / "identities.json"))} == {"b"}


@pytest.mark.parametrize("node", ["..", ".", "a/b", "../../etc", "ünïcode ☃", "a b", "%2E"])
def test_names_of_nodes_never_leave_the_folder(tmp_path: Path, node: str) -> None:
    found = DeviceFiles.of(tmp_path, node).folder
    assert found.resolve().parent == tmp_path.resolve()
    authority = Authority.of(tmp_path, make=True)
    found.mkdir()
    files = DeviceFiles.of(tmp_path, node).tls
    assert authority.issue([node, dpid_name(7)], files, roles=[CertificateRole.NODE], days=2)
    shown = certificate_names((found / "node.pem").read_bytes())
    assert shown[0] == node and dpid_name(7) in shown


def test_wrong_input_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["node", "a", "--network", str(TRIANGLE), "--folder", str(tmp_path)], "make an authority"),
        (["node", "zz", "--network", str(TRIANGLE), "--folder", str(tmp_path)], "no node 'zz'"),
        (["server", "../x", "--folder", str(tmp_path)], "expected a host"),
    ):
        assert main(["identity", *words]) == 2
        assert said in capsys.readouterr().err
    folder = made(tmp_path / "mode", "a")
    (folder / "ca.key").chmod(0o644)
    assert main(["identity", "server", "x", "--folder", str(folder)]) == 2
    assert "0600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"agents": {}}, "agents"),
        ({"agent": {"a": "short"}}, "agent.a"),
        ({"agent": {"a": "0" * 64, "b": "0" * 64}}, "agent.b"),
        ({"radio": {"a": 7}}, "radio.a"),
        ([], ""),
    ],
)
def test_a_wrong_file_of_identities_names_the_place(tmp_path: Path, document: object, place: str) -> None:
    path = tmp_path / "identities.json"
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    with pytest.raises(ConfigError) as raised:
        parse_identities(str(path))
    assert raised.value.place == place
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="0600"):
        parse_identities(str(path))


def test_settings_take_identities_instead_of_the_shared_token(tmp_path: Path) -> None:
    folder = made(tmp_path)
    document = {"network": "n", "listen": {"agents": {"host": "0.0.0.0"}}}
    name = str(tmp_path / "hyroads.yaml")
    with pytest.raises(ConfigError, match="beyond loopback"):
        parse(document, name, {})
    settings = parse({**document, "identities": "identities.json"}, name, {})
    assert settings.device_tokens.own and settings.device_tokens.shared is None
    tls = {"key": str(folder / "a" / "node.key"), "certificate": str(folder / "a" / "node.pem")}
    with pytest.raises(ConfigError, match="beyond loopback"):
        parse({**document, "agents_tls": tls}, name, {})
    settings = parse({**document, "agents_tls": {**tls, "ca": str(folder / "ca.pem")}}, name, {})
    assert certificate_ends(settings.tls_places).keys() == {"agents_tls.certificate", "agents_tls.ca"}
    with pytest.raises(ConfigError, match=r"rest_tls\.ca"):
        parse({**document, "identities": "identities.json", "rest_tls": {**tls, "ca": "ca.pem"}}, name, {})


def test_wrong_certificate_is_named_by_a_bounded_part_of_its_names() -> None:
    assert not_of_node([], "a") == "its certificate is of nobody, and not of node 'a'"
    assert (
        not_of_node(["b", "c", "d", "e", "f"], "a") == "its certificate is of 'b', 'c', 'd', 'e', and not of node 'a'"
    )
    assert not_of_node(["x" * 65], "a") == f"its certificate is of {'x' * 64!r}, and not of node 'a'"


@pytest.mark.parametrize("name", ["", "a", "ap", "ap1", "ap10", "xap1", "AP1", "ap1 ", "*"])
def test_certificate_speaks_for_a_node_by_its_whole_name(name: str) -> None:
    assert (not_of_node([name], "ap1") == "") is (name == "ap1")
    assert (not_of_node(["b", name], "ap1") == "") is (name == "ap1")
    assert (not_of_switch(facts([name]), 1, "ap1") == "") is (name == "ap1")
    assert (not_of_switch(facts([name], "slicer"), 1, any_switch=["ap1"]) == "") is (name == "ap1")
    assert not_of_switch(facts([name], "slicer"), 1, "ap1")
    assert not_of_node([], "ap1") and not_of_switch(facts([]), 1, "ap1", any_switch=["x"])


def test_line_is_added_to_a_file_whose_last_line_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "one")
    with path.open("a") as handle:
        handle.write("tw")
    append_line(path, "three")
    assert path.read_text() == "one\ntw\nthree\n" and path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_file_that_root_replaces_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "revoked.pem"
    path.write_text("old")
    os.chown(path, 4711, 4712)
    write_atomically(path, "new")
    assert (path.read_text(), path.stat().st_uid, path.stat().st_gid) == ("new", 4711, 4712)
