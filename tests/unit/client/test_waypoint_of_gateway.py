"""The waypoint of a gateway: what the network file says of it, its own certificate, and what the command refuses."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import WaypointAddress
from hyroads.controller.files.tls import fingerprint, own_certificate, server_side

DOCUMENT = {"nodes": {"gw": {"role": "gateway"}}, "links": [], "interference": {"rule": "technology"}}


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (True, WaypointAddress()),
        ({}, WaypointAddress()),
        ({"address": "2001:DB8::1", "port": 7000}, WaypointAddress("2001:db8::1", 7000)),
        ({"isolated": True}, WaypointAddress(isolated=True)),
        (False, None),
        (None, None),
    ],
)
def test_a_gateway_may_have_a_waypoint(written: object, found: WaypointAddress | None) -> None:
    network = parse({**DOCUMENT, "nodes": {"gw": {"role": "gateway", "waypoint": written}}}, "x")
    assert network.nodes["gw"].waypoint == found
    assert parse(to_document(network), "x").nodes == network.nodes


def test_its_own_certificate_stays_until_it_is_for_another_address(tmp_path: Path) -> None:
    files = own_certificate(tmp_path / "state", "waypoint", "192.0.2.1")
    first = fingerprint(files.certificate)
    for name in (files.key, files.certificate):
        assert Path(name).stat().st_mode & 0o777 == 0o600
    assert own_certificate(tmp_path / "state", "waypoint", "192.0.2.1") == files
    assert fingerprint(files.certificate) == first
    assert fingerprint(own_certificate(tmp_path / "state", "waypoint", "2001:db8::1").certificate) != first
    # Cut off while it was written, or not ours to read: made anew.
    Path(files.certificate).write_text("-----BEGIN CERTIFICATE-----\nbroken")
    own_certificate(tmp_path / "state", "waypoint", "192.0.2.1")
    server_side(files, "x")


def test_clients_trust_it_for_its_address_alone(tmp_path: Path) -> None:
    files = own_certificate(tmp_path, "waypoint", "192.0.2.1")
    server = server_side(files, "x")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(files.certificate)
    for name, trusted in (("192.0.2.1", True), ("192.0.2.2", False)):
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = client.wrap_bio(to_client, to_server, server_hostname=name), server.wrap_bio(to_server, to_client, True)
        problem = None
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLCertVerificationError as error:
                    problem = error
                except ssl.SSLError:
                    assert problem is not None
        assert (problem is None) == trusted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--key", "waypoint.key"], "--key: expected --certificate and --key, or neither"),
        (["--listen", "6656"], "--listen: expected clients' ADDRESS:PORT, or a --certificate"),
        (["--node", "gw", "--listen", "6656"], "--listen: not with --node: the network file says it"),
        (["--node", "gw"], "--node: expected a node that has a waypoint in {file} (there is none), got 'gw'"),
        (["--node", "ap"], "--node: expected a node that has a waypoint in {file} (there is none), got 'ap'"),
    ],
)
def test_wrong_options_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    file = tmp_path / "network.json"
    file.write_text('{"nodes": {"gw": {"role": "gateway"}}, "links": [], "interference": {"rule": "technology"}}')
    assert main(["client", "waypoint", "--network", str(file), *words]) == 2
    assert capsys.readouterr().err == f"hyroads: command line: {said.format(file=file)}\n"
