"""Serves FlowVisor's management API as FlowVisor does: HTTPS with a password, on loopback, in threads."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from fake_flowvisor import ADMIN, FakeFlowVisor, Refused


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """An answer is one segment: the second of two would wait 40 ms for the acknowledgement of the first."""
    fake: FakeFlowVisor

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        given = self.headers.get("Authorization", "")
        right = "Basic " + base64.b64encode(f"{ADMIN}:{self.fake.password}".encode()).decode()
        if given != right or ADMIN not in self.fake.slices:
            return self._answer(401, b"<html><h2>HTTP ERROR: 401</h2></html>", "text/html")
        request = json.loads(body)
        head = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            if request["method"] in self.fake.crash_on:
                raise RuntimeError("unhandled")
            answer = {**head, "result": self.fake.call(request["method"], request.get("params"))}
        except Refused as refused:
            answer = {**head, "error": {"code": refused.code, "message": str(refused)}}
        except Exception:  # noqa: BLE001 - whatever fails inside is an empty 500, as in the real one
            return self._answer(500, b"", "text/html")
        return self._answer(200, json.dumps(answer).replace("/", "\\/").encode(), "text/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def certificate(folder: Path, *, named: bool = True) -> Path:
    """A key and a certificate that signs itself, in one file; for 127.0.0.1, or for no address as FlowVisor's own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flowvisor")])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    )  # fmt: skip
    if named:
        names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        builder = builder.add_extension(names, critical=False)
    signed = builder.sign(key, hashes.SHA256())
    path = folder / ("flowvisor.pem" if named else "unnamed.pem")
    pem, raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(pem, raw, serialization.NoEncryption()) + signed.public_bytes(pem))
    return path


def fingerprint(pem: Path) -> str:
    """SHA-256 of the certificate in a file, as openssl writes it."""
    signed = x509.load_pem_x509_certificate(pem.read_bytes())
    return sha256(signed.public_bytes(serialization.Encoding.DER)).digest().hex(":").upper()


@contextmanager
def served(fake: FakeFlowVisor, pem: Path) -> Iterator[str]:
    """Serves it on loopback while the block runs; the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
