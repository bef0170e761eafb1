"""Roles of certificates: which ones the command issues, who is refused, how those of 0.3 get one, and revocation."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from identities import without_role

from hyroads.controller.cli.main import main
from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import CertificateFacts, CertificateRole, role_fault
from hyroads.controller.files.authority import Authority, revoked_in
from hyroads.controller.files.tls import CertificateCheck, Revoked, certificate_facts, server_side
from hyroads.controller.framework.tls_client import ClientTls, client_context

TRIANGLE = Path(__file__).resolve().parents[2] / "mininet" / "networks" / "triangle.yaml"
ROLES = tuple(CertificateRole)


def identity(folder: Path, *words: str) -> None:
    assert main(["identity", words[0], *words[1:], "--folder", str(folder)]) == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    identity(tmp_path, "authority")
    return tmp_path


def shown(path: Path) -> CertificateFacts:
    return certificate_facts(ssl.PEM_cert_to_DER_cert(path.read_text()))


@pytest.mark.parametrize(("own", "wanted"), itertools.product(ROLES, ROLES))
def test_each_role_is_taken_at_its_own_port_only(own: CertificateRole, wanted: CertificateRole) -> None:
    facts = CertificateFacts(("x",), frozenset({own}), "1")
    assert (role_fault(facts, {wanted}) == "") is (own is wanted)
    assert "is revoked" in role_fault(facts, {wanted}, {"1"})


def test_certificate_without_role_is_refused_with_the_command_that_mends_it() -> None:
    assert "hyroads identity renew" in role_fault(CertificateFacts(("x",)), ROLES)
    assert all(CertificateCheck.of(*ROLES).fault(certificate_facts(text)) for text in (b"", b"no certificate"))


def test_command_issues_a_certificate_of_each_role(folder: Path) -> None:
    identity(folder, "node", "a", "--network", str(TRIANGLE))
    identity(folder, "client", "laptop")
    identity(folder, "server", "host", "ha-name")
    for role in ("region", "etcd", "dashboard", "slicer"):
        identity(folder, "server", "host", "--role", role)
    identity(folder, "server", "both", "--role", "controller", "--role", "region")
    found = {
        path.relative_to(folder).as_posix(): set(certificate_facts(path.read_bytes()).roles)
        for path in folder.rglob("*.pem")
        if path.name not in ("ca.pem", "revoked.pem")
    }
    assert found == {
        "a/node.pem": {"node"},
        "laptop/node.pem": {"client"},
        "host.pem": {"controller"},
        "host-region.pem": {"region"},
        "host-etcd.pem": {"etcd"},
        "host-dashboard.pem": {"dashboard"},
        "host-slicer.pem": {"slicer"},
        "both-controller-region.pem": {"controller", "region"},
    }


def test_renew_gives_certificates_of_version_03_their_roles_and_keeps_keys_and_names(folder: Path) -> None:
    identity(folder, "node", "a", "--network", str(TRIANGLE))
    identity(folder, "client", "laptop")
    identity(folder, "server", "host", "192.0.2.1")
    identity(folder, "server", "north", "192.0.2.2", "--role", "region")
    paths = [folder / name for name in ("a/node.pem", "laptop/node.pem", "host.pem", "north-region.pem")]
    authority = Authority.of(folder)
    keys, names = ([of(path) for path in paths] for of in (_key, _names))
    for path in paths:
        without_role(path, authority)
        assert certificate_facts(path.read_bytes()).roles == frozenset()
    identity(folder, "renew", str(paths[3]), "--role", "region")
    identity(folder, "renew")
    assert [set(certificate_facts(path.read_bytes()).roles) for path in paths] == [
        {"node"}, {"client"}, {"controller"}, {"region"},
    ]  # fmt: skip
    assert [_key(path) for path in paths] == keys and [_names(path) for path in paths] == names
    before = [path.read_bytes() for path in paths]
    identity(folder, "renew")
    assert [path.read_bytes() for path in paths] == before
    ssl.create_default_context().load_cert_chain(paths[0], folder / "a" / "node.key")


def _key(path: Path) -> bytes:
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return x509.load_pem_x509_certificate(path.read_bytes()).public_key().public_bytes(*form)


def _names(path: Path) -> list[x509.GeneralName]:
    found = x509.load_pem_x509_certificate(path.read_bytes())
    shown = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [each for each in shown if not isinstance(each, x509.UniformResourceIdentifier)]


def test_revoked_are_all_certificates_of_a_name_and_no_others(folder: Path) -> None:
    identity(folder, "node", "a", "b", "--network", str(TRIANGLE))
    first = shown(folder / "a" / "node.pem")
    identity(folder, "node", "a", "--network", str(TRIANGLE), "--renew")
    second, other = shown(folder / "a" / "node.pem"), shown(folder / "b" / "node.pem")
    identity(folder, "revoke", "b")
    identity(folder, "revoke", "a")
    check = CertificateCheck.of(CertificateRole.NODE)
    assert not any(check.fault(each) for each in (first, second, other))
    check.revoked.ids = revoked_in(str(folder / "revoked.pem"))
    assert all("is revoked" in check.fault(each) for each in (first, second, other))
    identity(folder, "node", "b", "--network", str(TRIANGLE), "--renew")
    assert check.fault(shown(folder / "b" / "node.pem")) == ""


def test_same_serial_number_of_another_authority_is_not_revoked(tmp_path: Path) -> None:
    for name in ("one", "two"):
        identity(tmp_path / name, "authority")
        identity(tmp_path / name, "client", "laptop")
    identity(tmp_path / "one", "revoke", "laptop")
    revoked = Revoked(revoked_in(str(tmp_path / "one" / "revoked.pem")))
    check = CertificateCheck.of(CertificateRole.CLIENT, revoked=revoked)
    assert check.fault(shown(tmp_path / "one" / "laptop" / "node.pem"))
    assert not check.fault(shown(tmp_path / "two" / "laptop" / "node.pem"))
    both = tmp_path / "both.pem"
    identity(tmp_path / "two", "revoke", "laptop")
    both.write_bytes(b"".join((tmp_path / name / "revoked.pem").read_bytes() for name in ("one", "two")))
    assert len(revoked_in(str(both))) == 2


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"])
def test_wrong_list_of_revoked_certificates_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "revoked.pem"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"revoked\.pem: .*lists of revoked"):
        revoked_in(str(path))


def test_nodes_and_clients_can_not_be_servers(folder: Path) -> None:
    authority = Authority.of(folder)
    for role in ROLES:
        files = TlsFiles(str(folder / f"{role}.key"), str(folder / f"{role}.pem"))
        assert authority.issue(["x"], files, roles=[role], days=2)
        found = x509.load_pem_x509_certificate(Path(files.certificate).read_bytes())
        uses = list(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        assert (x509.oid.ExtendedKeyUsageOID.SERVER_AUTH in uses) is (role not in ("node", "client"))


@pytest.mark.parametrize("role", [role for role in ROLES if role not in ("node", "client")])
def test_device_agrees_to_tls_with_controllers_alone(folder: Path, role: CertificateRole) -> None:
    authority, server = Authority.of(folder), TlsFiles(str(folder / "s.key"), str(folder / "s.pem"))
    authority.issue(["192.0.2.1"], server, roles=[role], days=2)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    other = server_side(server, "test").wrap_bio(incoming, outgoing, server_side=True)
    device = ClientTls(client_context(str(folder / "ca.pem")), "192.0.2.1")
    sent = bytearray(b"hello")
    incoming.write(device.send(sent))
    with pytest.raises(ssl.SSLWantReadError):
        other.do_handshake()
    if role == "controller":
        device.received(outgoing.read())
        incoming.write(device.send(sent))
        assert other.read() == b"hello"
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match="role controller"):
            device.received(outgoing.read())
        assert sent == b"hello"


@pytest.mark.parametrize("role", [role for role in ROLES if role not in ("node", "client")])
def test_controller_asks_members_of_etcd_alone(folder: Path, role: CertificateRole) -> None:
    pytest.importorskip("etcd3gw")
    from hyroads.controller.ha.etcd import Etcd, EtcdError

    authority, heard = Authority.of(folder), list[bytes]()
    server, own = (
        TlsFiles(*(str(folder / f"{name}.{end}") for end in ("key", "pem")), str(folder / "ca.pem")) for name in "sc"
    )
    authority.issue(["127.0.0.1"], server, roles=[role], days=2)
    authority.issue(["a"], own, roles=[CertificateRole.CONTROLLER], days=2)
    context = server_side(server, "test")

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as plain, suppress(OSError):
                    plain.settimeout(5)
                    with context.wrap_socket(plain, server_side=True) as secured:
                        heard.append(secured.recv(100))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with pytest.raises(EtcdError):
            Etcd([f"https://127.0.0.1:{listener.getsockname()[1]}"], "/x/", 1.0, own).seen()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert any(heard) is (role == "etcd")
