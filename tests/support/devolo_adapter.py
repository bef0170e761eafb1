"""A devolo adapter as the network sees it: it names its HTTP interface by multicast DNS, and answers by protobuf.

The bytes are put together here, by the numbers of the fields in devolo's description of the interface (IDL), so that
only the library decodes them. A program: ``devolo_adapter.py ADDRESS PASSWORD``; it runs until its input ends.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCAL, REMOTE = 1, 2
OWN, HALL, ATTIC = "000B3BC3A4E6", "000B3BC3A4E7", "000B3BC3A4E8"
BEHIND_HALL = "B827EB41C0A1"
PATH, VERSION, REALM = "a1b2c3d4e5f6", "v0", "devolo"


def _tag(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


def text(number: int, value: str) -> bytes:
    return _tag(number, 2) + bytes([len(value)]) + value.encode()


def number(field: int, value: int) -> bytes:
    return _tag(field, 0) + bytes([value])


def real(field: int, value: float) -> bytes:
    return _tag(field, 1) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    # Two bytes of length.
    return _tag(field, 2) + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data


def device(mac: str, topology: int, technology: int, *bridged: str) -> bytes:
    own = (text(1, "devolo Magic 2"), text(7, mac), number(8, topology), number(9, technology))
    return message(1, *own, *(text(10, each) for each in bridged))


def rate(source: str, target: str, tx_mbps: float, rx_mbps: float) -> bytes:
    return message(2, text(1, source), text(2, target), real(3, tx_mbps), real(4, rx_mbps))


def overview(technology: int = 7) -> bytes:
    """The answer to GetNetworkOverview: two adapters beside the own one, of which one reports its rates itself."""
    return message(
        1,
        device(OWN, LOCAL, technology, "02AA00000001"),
        device(HALL, REMOTE, technology, BEHIND_HALL),
        device(ATTIC, REMOTE, technology, "02AA00000003", "02AA00000004"),
        rate(OWN, HALL, 1300.4, 900.0),
        rate(HALL, OWN, 899.0, 1299.0),
        rate(ATTIC, OWN, 120.0, 80.0),
        rate(HALL, ATTIC, 60.0, 50.0),
    )


def _authorised(header: str, password: str) -> bool:
    """HTTP digest authentication with MD5 and qop auth (RFC 2617)."""
    given = dict(re.findall(r'(\w+)="?([^",]*)"?', header))
    md5 = lambda words: hashlib.md5(words.encode()).hexdigest()  # noqa: E731 - what the device does
    first = md5(f"devolo:{REALM}:{password}")
    names = ("nonce", "nc", "cnonce", "qop")
    middle = ":".join(given.get(name, "") for name in names)
    return given.get("response") == md5(f"{first}:{middle}:{md5('GET:' + given.get('uri', ''))}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    password = ""

    def do_GET(self) -> None:
        if self.password and not _authorised(self.headers.get("Authorization", ""), self.password):
            self._answer(401, b"", ("WWW-Authenticate", f'Digest realm="{REALM}", nonce="0123", qop="auth"'))
        elif self.path == f"/{PATH}/{VERSION}/GetNetworkOverview":
            self._answer(200, overview(), ("Content-Type", "application/octet-stream"))
        else:
            self._answer(404, b"", ("X-Path", self.path))

    def _answer(self, status: int, data: bytes, header: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header(*header)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    from zeroconf import IPVersion, ServiceInfo, Zeroconf

    address, _Handler.password = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    server = ThreadingHTTPServer((address, 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    named = Zeroconf(interfaces=[address], ip_version=IPVersion.V4Only)
    both = {"Path": PATH, "Version": VERSION}
    own = {"PlcMacAddress": OWN, "PlcTechnology": "ghn-spirit"}
    device_facts = {
        "SN": "1234567890",
        "MT": "2730",
        "Product": "dLAN Magic 2",
        "Features": "",
        "FirmwareDate": "2026-01-01",
    }
    for kind, more in (("plcnetapi", own), ("deviceapi", device_facts)):
        service = f"_dvl-{kind}._tcp.local."
        named.register_service(
            ServiceInfo(
                service,
                f"Magic.{service}",
                port=server.server_port,
                addresses=[ipaddress.IPv4Address(address).packed],
                properties={**both, **more},
                server="magic.local.",
            )
        )
    print("ready", flush=True)
    sys.stdin.read()
    named.close()


if __name__ == "__main__":
    main()
