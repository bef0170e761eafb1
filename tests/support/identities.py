"""An authority of a test's own, with tokens and certificates of the nodes a and b, and who dials with them."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from controller_process import NETWORK
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from hyroads.controller.cli.main import main
from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.identity import CertificateRole
from hyroads.controller.files.authority import Authority

SERVER = "controller"


def made(folder: Path) -> Path:
    """The folder with everything, made by the command that operators use."""
    where = folder / "identities"
    assert main(["identity", "authority", "--folder", str(where)]) == 0
    assert main(["identity", "server", SERVER, "127.0.0.1", "localhost", "--folder", str(where)]) == 0
    assert main(["identity", "node", "a", "b", "--network", str(NETWORK), "--folder", str(where)]) == 0
    assert main(["identity", "client", "laptop", "--folder", str(where)]) == 0
    return where


def issued(folder: Path, role: str, *names: str) -> TlsFiles:
    """A certificate of a role, for these names and this machine, of the authority of a folder, which is made."""
    authority = Authority.of(folder, make=True)
    files = TlsFiles(*(str(folder / name) for name in (f"{names[0]}-{role}.key", f"{names[0]}-{role}.pem", "ca.pem")))
    authority.issue([*names, "127.0.0.1"], files, roles=[CertificateRole(role)], days=2)
    return files


def without_role(path: Path, authority: Authority) -> None:
    """Sign a certificate of the command again as version 0.3 signed it."""
    found = x509.load_pem_x509_certificate(path.read_bytes())
    builder = x509.CertificateBuilder(found.issuer, found.subject, found.public_key(), x509.random_serial_number())
    now = datetime.datetime.now(datetime.UTC)
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=300))
    for each in found.extensions:
        value: x509.ExtensionType = each.value
        if isinstance(value, x509.SubjectAlternativeName):
            value = x509.SubjectAlternativeName(
                [one for one in value if not isinstance(one, x509.UniformResourceIdentifier)]
            )
        builder = builder.add_extension(value, each.critical)
    path.write_bytes(builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def context_with(files: TlsFiles) -> ssl.SSLContext:
    """A client that trusts the authority and shows this certificate."""
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.certificate, files.key)
    return context


def answer_of(port: int, files: TlsFiles, line: bytes) -> bytes:
    """All that a port answers to a line from a client with this certificate."""
    said = b""
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    with suppress(OSError), context_with(files).wrap_socket(plain, server_hostname="127.0.0.1") as secured:
        secured.sendall(line)
        while data := secured.recv(65536):
            said += data
    return said


def server_tls(folder: Path, *, ca: bool) -> dict[str, str]:
    """The section of settings of a server."""
    files = {"key": f"{SERVER}.key", "certificate": f"{SERVER}.pem", **({"ca": "ca.pem"} if ca else {})}
    return {name: str(folder / file) for name, file in files.items()}


def context_of(folder: Path, node: str | None) -> ssl.SSLContext:
    """A client that trusts the authority, with the certificate of a node or none."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if node is not None:
        context.load_cert_chain(folder / node / "node.pem", folder / node / "node.key")
    return context


def token_of(folder: Path, node: str, role: str = "agent") -> str:
    return (folder / node / f"{role}.token").read_text().strip()


class Device:
    """An agent or radio that says hello, and answers pings only when told to."""

    def __init__(
        self,
        port: int,
        node: str,
        token: str | None,
        role: str = "agent",
        context: Any = None,
        **more: Any,
    ) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.socket = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        hello: dict[str, Any] = {"type": "hello", "version": 1, "node": node, "program": "test", "boot": "1"}
        hello |= {"token": token} if role != "agent" else {"token": token, "revision": 0}
        self.say({**hello, **({} if role == "agent" else {"role": role}), **more})
        self.lines = self.socket.makefile("rb")

    def say(self, message: Mapping[str, Any]) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next message; nothing at the end."""
        with suppress(OSError):
            return dict(json.loads(self.lines.readline() or b"{}"))
        return {}

    def answer(self) -> dict[str, Any]:
        """The first message, pings left out."""
        while (message := self.hear()).get("type") == "ping":
            self.say({"type": "pong", "seq": message["seq"]})
        return message

    def live(self) -> None:
        """Answer pings until the end, in a thread of its own."""

        def run() -> None:
            with suppress(OSError):
                while self.answer():
                    pass

        threading.Thread(target=run, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
