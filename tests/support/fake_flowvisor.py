"""A server with FlowVisor 1.4's documented management API, and its bugs: HTTPS on loopback, in threads.

The real one is a Java program of 2013 that no registry has. What is written here follows its observed behaviour, not
what our client expects of it: entries are read back with signed numbers, a worker dies of two entries at once, what
was removed comes back with the next add until the slice is updated, an update without a match widens the entry.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

PASSWORD = "secret of the operator"
INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32600, -32601, -32602


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass
class FakeFlowVisor:
    """``crash_on``: methods that fail with an empty HTTP 500; ``polls``: how often a request is pending."""

    slices: dict[str, dict[str, Any]] = field(default_factory=lambda: {"fvadmin": {"admin-status": True}})
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    ghosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Removed, and still in memory."""
    pending: dict[int, list[Any]] = field(default_factory=dict)
    worker_lives: bool = True
    crash_on: set[str] = field(default_factory=set)
    polls: int = 1
    calls: list[tuple[str, Any]] = field(default_factory=list)
    callbacks: list[dict[str, str]] = field(default_factory=list)
    ids: int = 0

    def call(self, method: str, parameters: Any) -> Any:
        self.calls.append((method, parameters))
        handler: Callable[[Any], Any] | None = getattr(self, "do_" + method.replace("-", "_"), None)
        if handler is None:
            raise Refused(NO_METHOD, f"unknown method {method}")
        return handler(parameters)

    def do_list_slices(self, _: Any) -> Any:
        return [{"slice-name": name, "admin-status": each["admin-status"]} for name, each in self.slices.items()]

    def do_add_slice(self, given: Any) -> bool:
        missing = {"slice-name", "controller-url", "admin-contact", "password"} - given.keys()
        if missing:
            raise Refused(INVALID_PARAMS, f"missing {sorted(missing)}")
        if given["slice-name"] in self.slices:
            raise Refused(INVALID_PARAMS, f"Slice already exists: {given['slice-name']}")
        kind, host, *port = given["controller-url"].split(":")
        where = (host, int(port[0]) if port else 6633)
        if kind != "tcp":
            raise Refused(INVALID_REQUEST, "bad controller url")
        if any(each.get("controller") == where for each in self.slices.values()):
            raise Refused(INVALID_REQUEST, "Another slice has this controller")
        self.slices[given["slice-name"]] = {
            **given,
            "controller": where,
            "admin-status": given.get("admin-status", True),
        }
        return True

    def do_update_slice(self, given: Any) -> bool:
        each = self.slices.get(given["slice-name"])
        if each is None:
            raise Refused(INVALID_PARAMS, "no such slice")
        each.update(given)
        self.ghosts = {name: rule for name, rule in self.ghosts.items() if given["slice-name"] not in _slices_of(rule)}
        return True

    def do_remove_slice(self, given: Any) -> bool:
        if self.slices.pop(given["slice-name"], None) is None:
            raise Refused(INVALID_PARAMS, "no such slice")
        self.rules = {name: rule for name, rule in self.rules.items() if given["slice-name"] not in _slices_of(rule)}
        return True

    def do_add_flowspace(self, given: Any) -> int:
        self.ids += 1
        if len(given) > 1:
            self.worker_lives = False
        self.pending[self.ids] = [self.polls, given]
        return self.ids

    def do_list_fs_status(self, given: Any) -> str:
        waiting = self.pending.get(given["fs-id"])
        if waiting is None:
            return "UNKNOWN"
        if not self.worker_lives or waiting[0] > 0:
            waiting[0] -= 1
            return "PENDING"
        for entry in self.pending.pop(given["fs-id"])[1]:
            unknown = [name for name in _slices_of(entry) if name not in self.slices]
            if unknown:
                return f"Slice {unknown[0]} does not exist"
            if entry["name"] in self.rules:
                return f"flowspace {entry['name']} exists"
            self.rules |= self.ghosts
            self.rules[entry["name"]] = entry
        return "SUCCESS"

    def do_update_flowspace(self, given: Any) -> int:
        for change in given:
            self.rules[change["name"]] = {**self.rules[change["name"]], "match": {}, **change}
        return 0

    def do_remove_flowspace(self, given: Any) -> bool:
        for name in given:
            if name not in self.rules:
                raise Refused(INVALID_PARAMS, f"no flowspace {name}")
            self.ghosts[name] = self.rules.pop(name)
        return True

    def do_list_flowspace(self, given: Any) -> Any:
        if not isinstance(given, dict):
            raise RuntimeError("null pointer")
        return [_read_back(number, rule) for number, rule in enumerate(self.rules.values())]

    def do_register_event_callback(self, given: Any) -> bool:
        self.callbacks.append(given)
        return True

    def do_unregister_event_callback(self, given: Any) -> bool:
        self.callbacks.remove(given)
        return True

    def happen(self, kind: str, **about: Any) -> None:
        for each in self.callbacks:
            if each["event-type"] == kind:
                body = {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": each["method"],
                    "params": {"cookie": each["cookie"], **about},
                }
                with urlopen(Request(each["url"], json.dumps(body).encode()), timeout=5):
                    pass


def _slices_of(rule: dict[str, Any]) -> list[str]:
    return [action["slice-name"] for action in rule["slice-action"]]


def _read_back(number: int, rule: dict[str, Any]) -> dict[str, Any]:
    match = {key: _signed(key, value) for key, value in rule["match"].items()}
    everywhere = rule["dpid"] in ("all", "any", "*")
    return {
        "id": number, "name": rule["name"], "dpid": "all_dpids" if everywhere else rule["dpid"],
        "priority": rule["priority"], "match": {**match, "wildcards": 4194303 >> len(match)},
        "slice-action": rule["slice-action"], "queues": [], "force-enqueue": -1,
    }  # fmt: skip


def _signed(key: str, value: Any) -> Any:
    wide = key in ("dl_type", "dl_vlan", "tp_src", "tp_dst", "in_port")
    return value - 65536 if wide and value > 32767 else value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """An answer is one segment: the second of two would wait 40 ms for the acknowledgement of the first."""
    fake: FakeFlowVisor

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        given = self.headers.get("Authorization", "")
        if given != "Basic " + base64.b64encode(f"fvadmin:{PASSWORD}".encode()).decode():
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


def certificate(folder: Path) -> Path:
    """A key and a certificate that signs itself, for 127.0.0.1, in one file."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flowvisor")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = folder / "flowvisor.pem"
    pem, raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(pem, raw, serialization.NoEncryption()) + signed.public_bytes(pem))
    return path


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
